"""Insertions rounded once per sequence and corrected by what they taught; rules for what is revealed together."""

import itertools
import math

import pytest
import torch

from flexmdm import Canvas, Prediction, Prompt, Ragged, generate
from flexmdm.evaluation.sources import bimodal_lengths, even_parity, far_copies, fixed_length, palindromes
from flexmdm.generation import DilatedSampler, EntropyBoundedSampler, Grid, SpacedSampler, TurnsSampler
from flexmdm.generation.defaults import DEFAULTS, QUALITIES, STEPS
from flexmdm.generation.spaced import spaced_subset
from flexmdm.generation.turns import insert_rounded
from flexmdm.randomness import StepRandomness

RULES = ["spaced", "entropy_bounded", "dilated"]


def wrong(source, out):
    """Return the share of the samples that the source cannot produce."""
    words = set(source.words)
    return sum(tuple(s) not in words or not p for s, p in zip(out.sequences, out.possible, strict=True)) / len(
        out.sequences
    )


def together(trace):
    """Return how many masks each step revealed, of the steps that revealed any."""
    steps = [event.step for event in trace if event.kind == "reveal"]
    return [steps.count(step) for step in sorted(set(steps))]


# Insertions -----------------------------------------------------------------------------------------------------------


def test_every_gap_keeps_its_mean_and_the_total_is_rounded_once():
    """10,000 draws: the standard error of a mean is below 0.005."""
    number, means = 10_000, [0.3, 0.0, 1.6, 0.45]
    canvas = Canvas(Ragged.from_lists([[0, 9, 9]] * number), mask_id=9, open_gaps=[[True, False, True, True]] * number)
    said = Prediction(torch.zeros(2 * number, 9), canvas.open_gaps.with_values(torch.tensor(means * number)))
    rng = StepRandomness(0, torch.arange(number), 0)
    for chance in (1.0, 0.25):
        grown = insert_rounded(canvas, said, torch.full((number,), chance, dtype=torch.float64), rng)
        added = (grown.lengths - 3).double()
        assert float(added.mean()) == pytest.approx(chance * 2.35, abs=0.025)
        before = (grown.tokens.values == 0).nonzero().squeeze(1) - grown.tokens.offsets[:-1]
        assert float(before.double().mean()) == pytest.approx(chance * 0.3, abs=0.02)
        if chance == 1.0:
            assert set(added.tolist()) == {2.0, 3.0}


@pytest.mark.parametrize("sampler", RULES)
@pytest.mark.parametrize("steps", [1, 3, 16])
def test_a_length_that_is_known_is_never_missed(sampler, steps):
    out = generate(fixed_length(16).denoiser(), 200, sampler=sampler, steps=steps)
    assert out.sequences == [[0] * 16] * 200


def test_what_insertions_taught_of_the_length_is_made_up_for(monkeypatch):
    """3 or 24 tokens, 2,000 samples: W1 is 0.97 with what is owed, 2.06 without; the noise is 0.2."""
    source = bimodal_lengths(3, 24)

    def mean_error():
        lengths = torch.tensor([len(s) for s in generate(source.denoiser(), 2000, steps=16, seed=1).sequences])
        truth = torch.tensor([3, 24]).repeat_interleave(1000)
        return float((lengths.sort().values - truth).abs().double().mean())

    corrected = mean_error()
    monkeypatch.setattr("flexmdm.generation.turns.owed", lambda surprise, share: torch.zeros_like(surprise))
    assert corrected < 1.5 < mean_error()


@pytest.mark.parametrize("sampler", RULES)
def test_tokens_that_come_in_pairs_do_so_in_few_steps(sampler):
    """Palindromes of 2, 4 or 6 letters, 2,000 samples: 2 to 3% have an odd length."""
    out = generate(palindromes(2).denoiser(), 2000, sampler=sampler, steps=16)
    assert sum(len(s) % 2 for s in out.sequences) / 2000 < 0.05


# Reveals --------------------------------------------------------------------------------------------------------------


class Coins:
    """A denoiser that always doubts."""

    vocab_size, mask_id = 2, 2

    def __call__(self, canvas, alpha):
        nothing = torch.zeros(len(canvas.open_gaps.values))
        return Prediction(torch.full((len(canvas.masks), 2), -math.log(2)), canvas.open_gaps.with_values(nothing))


@pytest.mark.parametrize("steps", [1, 2, 4, 6, 12, 30])
def test_without_open_gaps_the_steps_bound_how_many_are_revealed_together(steps):
    """18 tokens in doubt, with so little reach that nothing else bounds it."""
    sampler = SpacedSampler(Grid(steps), spacing=1e-6)
    out = generate(Coins(), 20, prompts=[Prompt.masks(18)], sampler=sampler, trace=True)
    assert max(max(together(trace)) for trace in out.trace) == max(18 // steps, 1)
    assert out.evaluations == [math.ceil(18 / max(18 // steps, 1))] * 20
    unbound = SpacedSampler(Grid(steps), spacing=1e-6, together=math.inf)
    assert generate(Coins(), prompts=[Prompt.masks(18)], sampler=unbound).evaluations == [1]


def test_copies_at_a_distance_fit_with_more_steps():
    """1,000 samples: a third would be wrong at any number of steps if nothing but distance counted."""
    source = far_copies(letters=3)
    known = [Prompt.masks(18)]
    shares = [wrong(source, generate(source.denoiser(), 1000, prompts=known, steps=steps)) for steps in (4, 16, 64)]
    assert shares[0] > 0.1 and shares[1:] == [0, 0]


def test_no_parity_is_missed_with_as_many_steps_as_tokens():
    source = even_parity(6)
    assert wrong(source, generate(source.denoiser(), 500, steps=8)) == 0


def test_the_subset_is_what_one_after_the_other_would_choose():
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        score, position, reach = (torch.rand(3, 12, generator=generator) for _ in range(3))
        position, reach = (position * 30).sort(1).values, (reach * 12 - 3).clamp(min=0)
        score[:, 10:] = -math.inf
        due, most = torch.tensor([12, 4, 0]), torch.tensor([2, 12, 3])
        found = spaced_subset(score, position, reach, due, most)
        for row in range(3):
            free = [i for i in range(10) if reach[row, i] <= 0]
            kept: list[int] = []
            for i in score[row, :10].argsort(descending=True).tolist():
                near = (abs(position[row, i] - position[row, j]) < min(reach[row, i], reach[row, j]) for j in kept)
                if i not in free and len(kept) < most[row] and not any(near):
                    kept.append(i)
            best = sorted(free + kept, key=lambda i: -float(score[row, i]))[: due[row]]
            assert found[row].nonzero().squeeze(1).tolist() == sorted(best)


def test_the_entropy_bound_takes_the_largest_set_of_the_surest():
    probs = torch.tensor([[0.5, 0.5], [0.99, 0.01], [0.9, 0.1], [1.0, 0.0], [0.8, 0.2]])
    canvas = Canvas(Ragged.from_lists([[2] * 5]), mask_id=2, open_gaps=[[False] * 6])
    said = Prediction(probs.log(), canvas.open_gaps.with_values(torch.zeros(6)))
    doubt = torch.special.entr(probs).sum(1)
    for bound in (0.0, 0.06, 0.4, 0.9, 2.0):
        sampler = EntropyBoundedSampler(Grid(4), bound=bound)
        grown, _ = sampler.step(canvas, said, torch.zeros(1).double(), StepRandomness(0, torch.arange(1), 0))
        sizes = range(1, 6)
        sets = (
            max(itertools.combinations(range(5), size), key=lambda s: -float(doubt[list(s)].sum())) for size in sizes
        )
        allowed = [s for s in sets if float(doubt[list(s)].sum() - doubt[list(s)].max()) <= bound + 1e-6]
        assert set((~grown.is_mask).nonzero().squeeze(1).tolist()) == set(allowed[-1])


def test_dilated_groups_are_of_positions_that_are_no_neighbours():
    source = even_parity(8)
    out = generate(source.denoiser(), 5, prompts=[Prompt.masks(8)], sampler="dilated", trace=True)
    for trace in out.trace:
        groups = {}
        for event in trace:
            groups.setdefault(event.step, []).append(event.position)
        assert list(groups.values()) == [[0], [4], [2, 6], [1, 3, 5, 7]]


@pytest.mark.parametrize("sampler", RULES)
def test_a_rule_samples_the_source_in_many_steps(sampler):
    """2,000 samples: noise 0.02; what is left over of palindromes of two letters is 0 to 2%."""
    source = palindromes(2)
    assert wrong(source, generate(source.denoiser(), 2000, sampler=sampler, steps=64)) < 0.03


def test_bad_settings_are_refused():
    for settings, what in (({"together": 0.0}, "together"), ({"lag": -1.0}, "lag"), ({"crowding": 0.0}, "crowding")):
        for sampler in (SpacedSampler, DilatedSampler, EntropyBoundedSampler):
            with pytest.raises(ValueError, match=what):
                sampler(Grid(4), **settings)
    with pytest.raises(ValueError, match="bound must be an entropy"):
        EntropyBoundedSampler(Grid(4), bound=-1.0)
    with pytest.raises(NotImplementedError, match="must say which masks"):
        generate(even_parity(4).denoiser(), sampler=TurnsSampler(Grid(4)))


# Quality --------------------------------------------------------------------------------------------------------------


def test_a_quality_is_a_number_of_steps_and_steps_win_over_it():
    denoiser = palindromes(2).denoiser()
    for quality, steps in QUALITIES.items():
        expected = generate(denoiser, 5, steps=steps)
        assert generate(denoiser, 5, quality=quality).evaluations == expected.evaluations
        assert DEFAULTS["filling"].options(inserts=True, quality=quality)["steps"] == steps
    assert generate(denoiser, 5, quality="exact", steps=8).sequences == generate(denoiser, 5, steps=8).sequences
    assert generate(denoiser, 5).evaluations == generate(denoiser, 5, steps=STEPS).evaluations
    assert DEFAULTS["filling"].options(inserts=True, quality="fast", steps=5)["steps"] == 5


def test_an_unknown_quality_is_refused():
    with pytest.raises(ValueError, match="no quality 'best'; choose from fast, balanced, exact"):
        generate(palindromes(2).denoiser(), quality="best")
    with pytest.raises(ValueError, match="brings its own settings"):
        generate(palindromes(2).denoiser(), sampler=SpacedSampler(Grid(4)), quality="fast")
