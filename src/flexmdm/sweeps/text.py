"""Samples of a text model, their lengths, fluency and variety, and the likelihood of held-out sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flexmdm.evaluation.distances import Estimate
from flexmdm.evaluation.fluency import (
    LEAST,
    ReferenceLM,
    distinct_n,
    generative_perplexity,
    unigram_entropy,
    xz_bits_per_character,
)
from flexmdm.evaluation.intervals import Interval
from flexmdm.evaluation.lengths import length_fidelity
from flexmdm.evaluation.trials import without_nan
from flexmdm.generation.defaults import DEFAULTS
from flexmdm.progress import ProgressBar
from flexmdm.sweeps.sweep import Benchmark, Point, Refused, Scored, Writer, check_sampler, measured
from flexmdm.tasks.likelihoods import bits
from flexmdm.tasks.pipeline import Answer
from flexmdm.tasks.text.pipeline import TextPipeline

OPENING = 32  # tokens whose entropy is compared, whatever the lengths of the texts
_NOTHING = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class TextScore:
    """Measures of ``num`` texts of one model, sampler and number of steps.

    Attributes:
        model, sampler, steps, temperature, num: what was asked. 0 steps: not sampled at all, as held-out texts, which
            show what the other scores can be compared with.
        length_w1, length_ks: of `length_fidelity`, in tokens and from 0 to 1.
        generative_perplexity: of the corpus, under the reference model.
        read: texts that the reference model was given, the first ones; 0 without one.
        kept, truncated: share of these that were long enough for it, and how many were cut to its window.
        entropy: `unigram_entropy`, mean over the texts, in nats. It grows with the length of a text.
        opening_entropy: that of the first tokens (32) of the texts that have so many, whatever their lengths.
        distinct_1, distinct_2, distinct_3: `distinct_n` of all texts pooled; it falls as there are more.
        evaluations, seconds: per text.
        samples: texts, of which the page shows the first twenty.
        lengths: of all texts in tokens, those of ``samples`` first.
    """

    model: str
    sampler: str
    steps: int
    temperature: float
    num: int
    length_w1: Interval
    length_ks: Interval
    generative_perplexity: Interval
    kept: float
    entropy: Interval
    distinct_1: float
    distinct_2: float
    distinct_3: float
    evaluations: float
    seconds: float
    opening_entropy: Interval = _NOTHING
    samples: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    read: int = 0
    truncated: int = 0

    @classmethod
    def of(cls, point: Point) -> TextScore:
        """Return what was measured of `Samples`."""
        asked = {key: point.options[key] for key in ("sampler", "steps", "temperature")}
        costs = {"num": point.num, "evaluations": point.evaluations, "seconds": point.seconds}
        return cls(point.run, **asked, **costs, **point.figures, length_w1=point.measured)

    @property
    def series(self) -> str:
        """Return the name that scores share which differ in their steps alone."""
        words = [self.model, self.sampler, "" if self.temperature == 1 else f"T={self.temperature:g}"]
        return " ".join(word for word in words if word)

    @property
    def label(self) -> str:
        return f"{self.series}, {self.steps:,} steps" if self.steps else self.series

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and texts for a JSON file; a number that does not exist is ``None``."""
        return without_nan(asdict(self))


@dataclass(frozen=True)
class LikelihoodScore:
    """Bits that a model needs for held-out texts, as upper bounds with standard errors.

    The end of a sequence is paid for in all of them; ``num`` is the number of sequences.
    """

    model: str
    bits_per_sequence: Estimate
    bits_per_token: float
    bits_per_character: Estimate
    num: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers for a JSON file; a number that does not exist is ``None``."""
        return without_nan(asdict(self))


@dataclass(frozen=True)
class Judge:
    """Held-out sequences that samples are compared with.

    Attributes:
        lm: the reference model; ``None`` leaves perplexities out.
        most: texts that the reference model reads of each model, the first ones; by default all.
        least: tokens of a text that has a perplexity.
        opening: first tokens of a text whose entropy is compared, whatever the lengths of the texts.
    """

    texts: list[str]
    tokens: list[list[int]]
    lm: ReferenceLM | None = None
    most: int | None = None
    least: int = LEAST
    opening: int = OPENING

    @classmethod
    def of(cls, pipeline: TextPipeline, lm: ReferenceLM | None = None, **settings: int) -> Judge:
        """Return all held-out sequences of a run, in random order; none if its data is not at hand."""
        settings = {"opening": OPENING, **settings}
        if not pipeline.task.has_data:
            return cls([], [], lm, **settings)
        held_out = pipeline.task.validation
        tokens = held_out.store.take(held_out.some(len(held_out))).tolist()
        return cls([pipeline.task.text.decode(sequence) for sequence in tokens], tokens, lm, **settings)

    def figures(self, texts: Sequence[str], tokens: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Return the measures of texts, whoever wrote them, by their names in a `TextScore`."""
        w1, ks = _NOTHING, _NOTHING
        if self.tokens:
            fidelity = length_fidelity([len(t) for t in tokens], [len(t) for t in self.tokens])
            w1 = Interval(fidelity.w1, fidelity.w1_low, fidelity.w1_high)
            ks = Interval(fidelity.ks, fidelity.ks_low, fidelity.ks_high)
        perplexity, kept, read, truncated = _NOTHING, math.nan, 0, 0
        if self.lm is not None:
            given = texts[: self.most]
            with ProgressBar("reading", len(given)) as bar:
                found = generative_perplexity(self.lm, given, progress=bar.update, least=self.least)
            perplexity, kept, read, truncated = found.corpus, found.kept_share, len(given), found.truncated
        return {
            "length_w1": w1,
            "length_ks": ks,
            "generative_perplexity": perplexity,
            "kept": kept,
            "entropy": unigram_entropy(tokens),
            **{f"distinct_{n}": distinct_n(tokens, n) for n in (1, 2, 3)},
            "opening_entropy": unigram_entropy([t[: self.opening] for t in tokens if len(t) >= self.opening]),
            "samples": list(texts[:20]),
            "lengths": [len(t) for t in tokens],
            "read": read,
            "truncated": truncated,
        }

    def held_out(self, num: int) -> TextScore:
        """Return the score of as many held-out sequences: distances of a part of them from all of them."""
        texts, tokens = self.texts[:num], self.tokens[:num]
        costs: dict[str, Any] = {"evaluations": math.nan, "seconds": math.nan}
        return TextScore("held-out", "", 0, 1.0, len(texts), **costs, **self.figures(texts, tokens))

    def xz(self) -> float:
        """Return the bits per character of xz on the held-out texts."""
        return xz_bits_per_character(self.texts) if self.texts else math.nan


@dataclass(frozen=True)
class Samples(Benchmark):
    """Samples from nothing as a benchmark: none is right or wrong, all are compared with held-out texts at once."""

    judge: Judge
    num: int
    name = "text"
    title = "samples"
    measure = "length_w1"
    defaults = DEFAULTS["writing"]
    pipelines = (TextPipeline,)
    asks = "samples from nothing are text"

    @property
    def items(self) -> Sequence[Sequence[str]]:
        """Return as many empty texts, each one gap."""
        return [["", ""]] * self.num

    def writer(self, name: str, pipeline: TextPipeline) -> Writer:
        return pipeline.fill

    def line(self, number: int, answer: Answer | Refused) -> dict[str, Any]:
        return {"text": answer.text, "tokens": list(answer.tokens)}

    def score(self, lines: Sequence[dict[str, Any]], file: Path | None = None) -> Scored:
        figures = self.judge.figures([line["text"] for line in lines], [line["tokens"] for line in lines])
        return Scored(figures.pop(self.measure), [], figures)


def check(name: str, pipeline: TextPipeline, steps: Sequence[int], **options: Any) -> None:
    """Raise if something is wrong with options of `measure`, before anything is measured."""
    settings = Samples.defaults.options(pipeline.task.layout.inserts, **options)
    try:
        for count in steps:
            check_sampler(settings, count)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def measure(
    name: str,
    pipeline: TextPipeline,
    judge: Judge,
    num: int,
    steps: int | None = None,
    sampler: str | None = None,
    seed: int = 0,
    **options: Any,
) -> TextScore:
    """Draw ``num`` samples from nothing and judge them."""
    benchmark = Samples(judge, num)
    settings = benchmark.defaults.options(pipeline.task.layout.inserts, steps=steps, sampler=sampler, **options)
    return TextScore.of(measured(benchmark, benchmark.entrant(name, pipeline.task, pipeline.model), settings, seed))


def held_out_bits(name: str, pipeline: TextPipeline, num: int, num_times: int = 64, seed: int = 0) -> LikelihoodScore:
    """Return the likelihood of ``num`` held-out sequences."""
    index = pipeline.task.validation.some(num)
    with ProgressBar(f"{name}, likelihood", len(index)) as bar:
        found = bits(pipeline.model, pipeline.task, index, num_times, seed, bar.update)
    return LikelihoodScore(name, found.per_sequence, found.per_token.value, found.per_character, found.sequences)
