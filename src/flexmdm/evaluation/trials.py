"""Trials of samplers: with an exact denoiser, whatever error is left in the samples is the sampler's."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from flexmdm.evaluation.distances import (
    Estimate,
    bigram_law,
    length_law,
    nats_per_token,
    total_variation,
    total_variation_floor,
    wasserstein,
    wasserstein_floor,
    word_law,
)
from flexmdm.evaluation.sources import bigram_distribution, length_distribution, nine_words, phased_chain
from flexmdm.generation import generate
from flexmdm.oracle import FiniteDistribution, HiddenMarkovSource
from flexmdm.progress import ProgressBar
from flexmdm.sequences import Ragged

_EXACT_SEED = 1_000_003  # exact samples must not share random numbers with the sampler's
_EXACT_SAMPLES, _EXACT_REPEATS = 20_000, 8  # for the entropy rate; for the noise
_BATCH_TOKENS = 16_000  # of a chain, worked on at a time
_COST_PER_TOKEN = 0.75  # of a chain, against one of the nine words


@dataclass(frozen=True)
class Quality:
    """Distances of samples from their source; ``None`` where a measure does not apply."""

    total_variation: float | None  # of the words
    excess: Estimate | None  # nats per token above the entropy rate, over the samples on the support
    bigrams: float | None  # total variation of the pairs of neighbours
    length_error: float  # Wasserstein-1 distance of the lengths, in tokens
    length_variation: float  # total variation of the lengths
    off_support: float  # share of the samples that the source cannot produce

    @property
    def error(self) -> float:
        """Return the excess of a chain or the total variation of words; NaN if all is off-support."""
        value = self.total_variation if self.excess is None else self.excess.value
        return math.nan if value is None else value


@dataclass(frozen=True)
class Trial:
    """A sampler and its settings; what is ``None`` keeps the sampler's own default.

    >>> Trial("adaptive", steps=64, confidence="margin").label
    'adaptive (margin)'
    """

    sampler: str
    steps: int
    confidence: str | None = None
    spacing: float | None = None
    bound: float | None = None

    @property
    def label(self) -> str:
        numbers = {"spacing": self.spacing, "bound": self.bound}
        some = [f"{name} {value:g}" for name, value in numbers.items() if value is not None]
        chosen = ", ".join([*filter(None, [self.confidence]), *some])
        return f"{self.sampler} ({chosen})" if chosen else self.sampler


@dataclass(frozen=True)
class Outcome:
    """The outcome of a trial: evaluations per sequence, and seconds of the whole, the exact denoiser included."""

    trial: Trial
    quality: Quality
    evaluations: float
    seconds: float

    def to_dict(self) -> dict:
        """Return plain numbers for a JSON file; a number that does not exist is ``None``."""
        return without_nan(asdict(self))

    @staticmethod
    def from_dict(stored: dict) -> Outcome:
        quality = dict(stored["quality"])
        if quality["excess"] is not None:
            quality["excess"] = Estimate(**{k: math.nan if v is None else v for k, v in quality["excess"].items()})
        trial = Trial(**stored["trial"])
        return Outcome(trial, Quality(**quality), stored["evaluations"], stored["seconds"])


def without_nan(value: Any) -> Any:
    """Return the same lists and dictionaries with ``None`` for every number that JSON does not have.

    >>> without_nan({"excess": [0.5, math.nan]})
    {'excess': [0.5, None]}
    """
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True, eq=False)
class Subject:
    """A source to try samplers on: a finite one is judged word by word, a chain by nats per token and bigrams."""

    name: str
    source: FiniteDistribution | HiddenMarkovSource
    lengths: Tensor  # the law of its lengths
    samples: int  # sequences that a trial draws
    batch_size: int | None = None  # how many of them at a time; all if None
    cost: float = 1.0  # of one evaluation of one sequence, relative to other subjects: for the progress bar

    @cached_property
    def entropy_rate(self) -> Estimate:
        """Estimate that of a chain: it has no closed form, and its standard error is part of that of every excess."""
        samples = self.source.sample(_EXACT_SAMPLES, seed=_EXACT_SEED)
        return nats_per_token(self.source.log_prob(samples), samples.lengths)

    def judge(self, samples: Ragged, possible: Tensor | None = None) -> Quality:
        """Return the quality of samples, where those with ``possible`` ``[B]`` false got stuck before their end."""
        law = length_law(samples)
        lengths = wasserstein(law, self.lengths), total_variation(law, self.lengths)
        if isinstance(self.source, FiniteDistribution):
            words = word_law(samples, self.source, possible)
            return Quality(total_variation(words, self.source.probabilities), None, None, *lengths, float(words[-1]))
        log_prob = self.source.log_prob(samples)
        if possible is not None:
            log_prob = torch.where(possible, log_prob, -math.inf)
        excess = nats_per_token(log_prob, samples.lengths) - self.entropy_rate
        bigrams = total_variation(bigram_law(samples, self.source.vocab_size), bigram_distribution(self.source))
        return Quality(None, excess, bigrams, *lengths, float((log_prob == -math.inf).double().mean()))

    @cached_property
    def noise(self) -> Quality:
        """Return the expected quality of as many exact samples; excess and bigrams are means over eight draws."""
        lengths = wasserstein_floor(self.lengths, self.samples), total_variation_floor(self.lengths, self.samples)
        if isinstance(self.source, FiniteDistribution):
            return Quality(total_variation_floor(self.source.probabilities, self.samples), None, None, *lengths, 0.0)
        seeds = range(_EXACT_SEED + 1, _EXACT_SEED + 1 + _EXACT_REPEATS)
        exact = [self.judge(self.source.sample(self.samples, seed=seed)) for seed in seeds]
        error = sum(q.excess.standard_error for q in exact if q.excess is not None) / _EXACT_REPEATS
        bigrams = sum(q.bigrams for q in exact if q.bigrams is not None) / _EXACT_REPEATS
        return Quality(None, Estimate(0.0, error), bigrams, *lengths, 0.0)


def words_subject(samples: int) -> Subject:
    """Return the nine words; equal states share their work, so all sequences go in one batch.

    >>> words_subject(4).judge(Ragged.from_lists([[2], [2], [2], [0, 1]])).total_variation
    0.75
    """
    source = nine_words()
    return Subject("nine words", source, source.length_distribution(), samples)


def chain_subject(samples: int, stay: float = 0.82) -> Subject:
    """Return the phased chain, named after its mean length."""
    source = phased_chain(stay)
    law = length_distribution(source)
    length = float((law * torch.arange(len(law))).sum())
    name, batch_size = f"phased chain of {length:.0f} tokens", max(50, int(_BATCH_TOKENS / length))
    return Subject(name, source, law, samples, batch_size, _COST_PER_TOKEN * length)


def run_trial(
    subject: Subject, trial: Trial, seed: int = 0, report: Callable[[float], None] = lambda share: None
) -> Outcome:
    """Draw the subject's number of sequences with its exact denoiser and judge them.

    ``report`` is called with the share of the work that is done, from 0 to 1: the mean clock of all sequences.

    >>> run_trial(words_subject(1000), Trial("tau", steps=64)).quality.total_variation < 0.2
    True
    """
    start = time.perf_counter()
    out = generate(
        subject.source.denoiser(),
        subject.samples,
        **vars(trial),
        seed=seed,
        batch_size=subject.batch_size,
        callback=lambda progress: report(progress.share),
    )
    quality = subject.judge(Ragged.from_lists(out.sequences), torch.tensor(out.possible))
    return Outcome(trial, quality, sum(out.evaluations) / len(out.evaluations), time.perf_counter() - start)


def run_trials(
    work: Sequence[tuple[Subject, Trial]],
    seed: int,
    console: Console,
    finished: Callable[[Subject, Outcome], None],
) -> None:
    """Run trial after trial under a progress bar with the time left; ``finished`` is called with each outcome."""
    costs = [subject.cost * subject.samples * trial.steps for subject, trial in work]
    with ProgressBar("", sum(costs), console=console) as bar:
        for number, (subject, trial) in enumerate(work):
            bar.update(description=f"{subject.name}, {trial.label}, {trial.steps} steps")

            def report(share: float, number: int = number) -> None:
                bar.update(sum(costs[:number]) + share * costs[number])

            finished(subject, run_trial(subject, trial, seed, report))


@contextmanager
def threads(number: int) -> Generator[None]:
    """Limit torch to that many threads: for small tensors a second one gains little, and waits for a busy core."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
