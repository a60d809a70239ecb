import json
import math

import pytest
import torch
from rich.console import Console

from flexmdm import Ragged
from flexmdm.evaluation.distances import Estimate
from flexmdm.evaluation.trials import (
    Outcome,
    Quality,
    Trial,
    chain_subject,
    run_trial,
    run_trials,
    threads,
    words_subject,
)


def test_exact_words_are_judged_at_the_noise():
    """4,000 exact samples: no more than twice the expected distances."""
    subject = words_subject(4000)
    quality, noise = subject.judge(subject.source.sample(4000, seed=3)), subject.noise
    assert quality.error < 2 * noise.error
    assert quality.length_error < 2 * noise.length_error
    assert quality.off_support == 0.0


def test_exact_sequences_of_a_chain_have_no_excess():
    """1,000 exact samples: within 4 standard errors, which are those that the noise announces."""
    subject = chain_subject(1000)
    quality, noise = subject.judge(subject.source.sample(1000, seed=3)), subject.noise
    assert quality.excess is not None and noise.excess is not None
    assert abs(quality.excess.value) < 4 * quality.excess.standard_error
    assert quality.excess.standard_error == pytest.approx(noise.excess.standard_error, rel=0.2)
    assert quality.bigrams < 2 * noise.bigrams and quality.length_error < 2.5 * noise.length_error


def test_shuffled_sequences_of_a_chain_have_excess():
    subject = chain_subject(200)
    samples = subject.source.sample(200, seed=3)
    order = torch.argsort(samples.rows + torch.rand(len(samples.values), generator=torch.Generator().manual_seed(0)))
    quality = subject.judge(samples.with_values(samples.values[order]))
    assert quality.excess is not None and quality.excess.value > 0.5
    assert quality.length_error == subject.judge(samples).length_error


def test_stuck_sequences_are_off_support():
    subject = chain_subject(2)
    samples = subject.source.sample(4, seed=3)
    assert subject.judge(samples, torch.tensor([True, True, True, False])).off_support == 0.25
    words = words_subject(2)
    assert words.judge(Ragged.from_lists([[2], [2]]), torch.tensor([True, False])).off_support == 0.5


def test_more_steps_bring_tau_closer_to_the_words():
    """1,000 samples, noise floor 0.035: from some 0.5 at 4 steps to some 0.1 at 64."""
    subject = words_subject(1000)
    few, many = (run_trial(subject, Trial("tau", steps)) for steps in (4, 64))
    assert many.quality.error < few.quality.error / 2
    assert 3 < few.evaluations <= 5 and 60 < many.evaluations <= 65


@pytest.mark.parametrize("sampler", ["tau", "adaptive", "spaced"])
def test_progress_goes_from_nothing_to_everything(sampler):
    shares = []
    run_trial(words_subject(50), Trial(sampler, 8), report=shares.append)
    assert shares == sorted(shares)
    assert 0 < shares[0] < 1 and shares[-1] == 1.0


def test_trials_are_run_in_order_and_each_is_heard_of():
    subject, heard = words_subject(10), []
    work = [(subject, Trial("tau", 2)), (subject, Trial("spaced", 4, confidence="entropy"))]
    run_trials(work, seed=0, console=Console(quiet=True), finished=lambda s, outcome: heard.append(outcome.trial))
    assert heard == [trial for _, trial in work]


@pytest.mark.parametrize("excess", [None, Estimate(0.1, 0.01), Estimate(math.nan, math.nan)])
def test_an_outcome_survives_json(excess):
    outcome = Outcome(Trial("spaced", 8, spacing=4.0), Quality(0.5, excess, 0.25, 1.0, 0.125, 0.0), 9.5, 1.25)
    stored = json.dumps(outcome.to_dict(), allow_nan=False)
    assert repr(Outcome.from_dict(json.loads(stored))) == repr(outcome)


def test_the_number_of_threads_is_put_back():
    before = torch.get_num_threads()
    with threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
