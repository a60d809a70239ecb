"""Trials of samplers: with an exact denoiser, whatever error is left in the samples is the sampler's."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from torch import Tensor

from flexmdm.evaluation.distances import (
    Estimate,
    bigram_law,
    length_law,
    nats_per_token,
    off_support_share,
    total_variation,
    total_variation_floor,
    wasserstein,
    wasserstein_floor,
    word_law,
)
from flexmdm.evaluation.sources import bigram_distribution, length_distribution, nine_words, phased_chain
from flexmdm.generation import Progress as GenerationProgress
from flexmdm.generation import generate
from flexmdm.oracle import FiniteDistribution, HiddenMarkovSource
from flexmdm.sequences import Ragged

_EXACT_SEED = 1_000_003  # exact samples must not share random numbers with the sampler's
_EXACT_REPEATS = 8
_BATCH_TOKENS = 16_000  # of a chain, worked on at a time
_COST_PER_TOKEN = 0.75  # of a chain, against one of the nine words


@dataclass(frozen=True)
class Quality:
    """How far samples are from their source; ``None`` where a measure does not apply.

    Attributes:
        total_variation: of the words.
        excess: nats per token above the entropy rate, over the samples on the support.
        bigrams: total variation of the pairs of neighbours.
        length_error: Wasserstein-1 distance of the lengths, in tokens.
        length_variation: total variation of the lengths.
        off_support: share of the samples that the source cannot produce.
    """

    total_variation: float | None
    excess: Estimate | None
    bigrams: float | None
    length_error: float
    length_variation: float
    off_support: float

    @property
    def error(self) -> float:
        """Return the excess of a chain or the total variation of words; NaN if all is off-support."""
        value = self.total_variation if self.excess is None else self.excess.value
        return math.nan if value is None else value


class Truth(Protocol):
    """A source, and how samples of it are judged."""

    @property
    def source(self) -> FiniteDistribution | HiddenMarkovSource: ...

    def judge(self, samples: Ragged, possible: Tensor | None = None) -> Quality:
        """Return the quality of samples, where those with ``possible`` ``[B]`` false got stuck before their end."""
        ...

    def noise(self, num_samples: int) -> Quality:
        """Return the expected quality of that many exact samples."""
        ...


@dataclass(frozen=True)
class WordsTruth:
    """A finite distribution, judged word by word.

    >>> truth = WordsTruth(FiniteDistribution({(0,): 0.5, (0, 1): 0.5}, vocab_size=2))
    >>> truth.judge(Ragged.from_lists([[0], [0], [0], [0, 1]])).total_variation
    0.25
    """

    source: FiniteDistribution

    def judge(self, samples: Ragged, possible: Tensor | None = None) -> Quality:
        law = word_law(samples, self.source, possible)
        lengths, true_lengths = length_law(samples), self.source.length_distribution()
        return Quality(
            total_variation=total_variation(law, self.source.probabilities),
            excess=None,
            bigrams=None,
            length_error=wasserstein(lengths, true_lengths),
            length_variation=total_variation(lengths, true_lengths),
            off_support=float(law[-1]),
        )

    def noise(self, num_samples: int) -> Quality:
        lengths = self.source.length_distribution()
        return Quality(
            total_variation=total_variation_floor(self.source.probabilities, num_samples),
            excess=None,
            bigrams=None,
            length_error=wasserstein_floor(lengths, num_samples),
            length_variation=total_variation_floor(lengths, num_samples),
            off_support=0.0,
        )


@dataclass(frozen=True)
class ChainTruth:
    """A hidden-Markov source, judged by probability per token, pairs of neighbours and lengths.

    The entropy rate has no closed form: it is estimated from ``exact_samples`` exact samples, and its standard error is
    part of that of every excess.
    """

    source: HiddenMarkovSource
    exact_samples: int = 20_000

    @cached_property
    def entropy_rate(self) -> Estimate:
        samples = self.source.sample(self.exact_samples, seed=_EXACT_SEED)
        return nats_per_token(self.source.log_prob(samples), samples.lengths)

    @cached_property
    def lengths(self) -> Tensor:
        return length_distribution(self.source)

    @cached_property
    def bigrams(self) -> Tensor:
        return bigram_distribution(self.source)

    def judge(self, samples: Ragged, possible: Tensor | None = None) -> Quality:
        log_prob = self.source.log_prob(samples)
        if possible is not None:
            log_prob = torch.where(possible, log_prob, -math.inf)
        return Quality(
            total_variation=None,
            excess=nats_per_token(log_prob, samples.lengths) - self.entropy_rate,
            bigrams=total_variation(bigram_law(samples, self.source.vocab_size), self.bigrams),
            length_error=wasserstein(length_law(samples), self.lengths),
            length_variation=total_variation(length_law(samples), self.lengths),
            off_support=off_support_share(log_prob),
        )

    def noise(self, num_samples: int) -> Quality:
        """Return lengths in closed form; bigrams and the error of the excess as the mean over eight exact samples."""
        exact = [
            self.judge(self.source.sample(num_samples, seed=_EXACT_SEED + 1 + repeat))
            for repeat in range(_EXACT_REPEATS)
        ]
        error = sum(q.excess.standard_error for q in exact if q.excess is not None) / _EXACT_REPEATS
        return Quality(
            total_variation=None,
            excess=Estimate(0.0, error),
            bigrams=sum(q.bigrams for q in exact if q.bigrams is not None) / _EXACT_REPEATS,
            length_error=wasserstein_floor(self.lengths, num_samples),
            length_variation=total_variation_floor(self.lengths, num_samples),
            off_support=0.0,
        )


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

    @property
    def label(self) -> str:
        details = [self.confidence, None if self.spacing is None else f"spacing {self.spacing:g}"]
        chosen = ", ".join(detail for detail in details if detail is not None)
        return f"{self.sampler} ({chosen})" if chosen else self.sampler


@dataclass(frozen=True)
class Outcome:
    """What came of a trial.

    Attributes:
        trial: the sampler and its settings.
        quality: of the samples.
        evaluations: of the denoiser, mean per sequence.
        seconds: of the whole trial, the exact denoiser included.
    """

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


@dataclass(frozen=True)
class Subject:
    """A source to try samplers on.

    Attributes:
        name: what it is called in tables.
        truth: the source, and how samples of it are judged.
        samples: how many sequences a trial draws.
        batch_size: how many of them at a time; ``None`` for all.
        cost: what one evaluation of one sequence takes, relative to other subjects: for the progress bar.
    """

    name: str
    truth: Truth
    samples: int
    batch_size: int | None = None
    cost: float = 1.0


def words_subject(samples: int) -> Subject:
    """Return the nine words; equal states share their work, so all sequences go in one batch."""
    return Subject("nine words", WordsTruth(nine_words()), samples)


def chain_subject(samples: int, stay: float = 0.82) -> Subject:
    """Return the phased chain, named after its mean length."""
    truth = ChainTruth(phased_chain(stay))
    length = float((truth.lengths * torch.arange(len(truth.lengths))).sum())
    batch_size = max(50, int(_BATCH_TOKENS / length))
    return Subject(f"phased chain of {length:.0f} tokens", truth, samples, batch_size, _COST_PER_TOKEN * length)


def run_trial(subject: Subject, trial: Trial, seed: int = 0, report: Callable[[float], None] | None = None) -> Outcome:
    """Draw the subject's number of sequences with its exact denoiser and judge them.

    ``report`` is called with the share of the work that is done, from 0 to 1: the mean clock of all sequences.

    >>> run_trial(words_subject(1000), Trial("tau", steps=64)).quality.total_variation < 0.2
    True
    """

    def callback(progress: GenerationProgress) -> None:
        if report is not None:
            report((progress.finished + float(progress.alpha.sum())) / progress.total)

    start = time.perf_counter()
    out = generate(
        subject.truth.source.denoiser(),
        subject.samples,
        sampler=trial.sampler,
        steps=trial.steps,
        confidence=trial.confidence,
        spacing=trial.spacing,
        seed=seed,
        batch_size=subject.batch_size,
        callback=callback,
    )
    quality = subject.truth.judge(Ragged.from_lists(out.sequences), torch.tensor(out.possible))
    return Outcome(trial, quality, sum(out.evaluations) / len(out.evaluations), time.perf_counter() - start)


def run_trials(
    work: Sequence[tuple[Subject, Trial]],
    seed: int,
    console: Console,
    finished: Callable[[Subject, Outcome], None],
) -> None:
    """Run trial after trial under a progress bar with the time left; ``finished`` is called with each outcome."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console, transient=True, speed_estimate_period=120) as progress:
        costs = [subject.cost * subject.samples * trial.steps for subject, trial in work]
        task = progress.add_task("", total=sum(costs))
        done = 0.0
        for (subject, trial), cost in zip(work, costs, strict=True):
            progress.update(task, description=f"{subject.name}, {trial.label}, {trial.steps} steps")

            def report(share: float, start: float = done, cost: float = cost) -> None:
                progress.update(task, completed=start + share * cost)

            finished(subject, run_trial(subject, trial, seed, report))
            done += cost
            progress.update(task, completed=done)


@contextmanager
def threads(number: int) -> Generator[None]:
    """Limit torch to that many threads: for small tensors a second one gains little, and waits for a busy core."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
