"""Samples of a text model, their lengths, fluency and variety, and the likelihood of held-out sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flexmdm.evaluation.fluency import (
    Perplexity,
    ReferenceLM,
    distinct_n,
    generative_perplexity,
    unigram_entropy,
    xz_bits_per_character,
)
from flexmdm.evaluation.intervals import Interval
from flexmdm.evaluation.lengths import length_fidelity
from flexmdm.generation.decoding import Decoding
from flexmdm.generation.defaults import DEFAULTS, STEPS, Defaults
from flexmdm.generation.generate import sampler_named
from flexmdm.generation.samplers import Grid
from flexmdm.sweeps.scores import LikelihoodScore, TextScore
from flexmdm.sweeps.sweep import OF_SAMPLERS, Entrant, Refused, Scored, measured
from flexmdm.tasks.likelihoods import bits
from flexmdm.tasks.pipeline import Answer, bar_on_stderr
from flexmdm.tasks.task import Task
from flexmdm.tasks.text.pipeline import TextPipeline

if TYPE_CHECKING:
    from flexmdm.backbones.model import FlexMDMModel

OPENING = 32  # tokens whose entropy is compared, whatever the lengths of the texts
_NOTHING = Interval(float("nan"), float("nan"), float("nan"))
_COSTS_NOTHING: dict[str, Any] = {"evaluations": float("nan"), "seconds": float("nan")}


@dataclass(frozen=True)
class Judge:
    """Held-out sequences that samples are compared with.

    Attributes:
        texts, tokens: held-out sequences.
        lm: the reference model; ``None`` leaves perplexities out.
        most: texts that the reference model reads of each model, the first ones; by default all.
    """

    texts: list[str]
    tokens: list[list[int]]
    lm: ReferenceLM | None = None
    most: int | None = None

    @classmethod
    def of(cls, pipeline: TextPipeline, lm: ReferenceLM | None = None, most: int | None = None) -> Judge:
        """Return all held-out sequences of a run, in random order."""
        held_out = pipeline.task.validation
        tokens = held_out.store.take(held_out.some(len(held_out))).tolist()
        return cls([pipeline.task.text.decode(sequence) for sequence in tokens], tokens, lm, most)

    def figures(self, texts: Sequence[str], tokens: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Return the measures of texts, whoever wrote them, by their names in a `TextScore`."""
        fidelity = length_fidelity([len(t) for t in tokens], [len(t) for t in self.tokens])
        perplexity, kept, read, truncated = _NOTHING, float("nan"), 0, 0
        if self.lm is not None:
            given = texts[: self.most]
            found = _perplexity(self.lm, given)
            perplexity, kept, read, truncated = found.corpus, found.kept_share, len(given), found.truncated
        return {
            "length_w1": Interval(fidelity.w1, fidelity.w1_low, fidelity.w1_high),
            "length_ks": Interval(fidelity.ks, fidelity.ks_low, fidelity.ks_high),
            "generative_perplexity": perplexity,
            "kept": kept,
            "entropy": unigram_entropy(tokens),
            **{f"distinct_{n}": distinct_n(tokens, n) for n in (1, 2, 3)},
            "opening_entropy": unigram_entropy([t[:OPENING] for t in tokens if len(t) >= OPENING]),
            "samples": list(texts[:20]),
            "lengths": [len(t) for t in tokens],
            "read": read,
            "truncated": truncated,
        }

    def held_out(self, num: int) -> TextScore:
        """Return the score of as many held-out sequences: distances of a part of them from all of them."""
        texts, tokens = self.texts[:num], self.tokens[:num]
        return TextScore("held-out", "", 0, 1.0, len(texts), **_COSTS_NOTHING, **self.figures(texts, tokens))

    def xz(self) -> float:
        """Return the bits per character of xz on the held-out texts."""
        return xz_bits_per_character(self.texts)


def _perplexity(lm: ReferenceLM, texts: Sequence[str]) -> Perplexity:
    with bar_on_stderr() as progress:
        bar = progress.add_task("reading", total=len(texts))
        return generative_perplexity(
            lm, texts, progress=lambda done, total: progress.update(bar, completed=done, total=total)
        )


@dataclass(frozen=True)
class Samples:
    """Samples from nothing as a benchmark of `flexmdm.sweeps.sweep`: none is right or wrong, all are compared at once.

    Attributes:
        judge: what they are compared with.
        num: how many.
    """

    judge: Judge
    num: int
    name: str = "text"
    title: str = "samples"
    measure: str = "length_w1"
    groups: None = None

    @property
    def defaults(self) -> Defaults:
        """Return the samplers of all that writes."""
        return DEFAULTS["writing"]

    @property
    def items(self) -> Sequence[Sequence[str]]:
        """Return as many empty texts, each one gap."""
        return [["", ""]] * self.num

    def entrant(self, name: str, task: Task, model: FlexMDMModel) -> Entrant:
        """Return a run on text."""
        pipeline = task.pipeline(model)
        if not isinstance(pipeline, TextPipeline):
            raise ValueError(f"{name} was trained on the task {task.name}, and samples from nothing are text")
        return Entrant.of(name, task, model, pipeline.fill)

    def line(self, number: int, answer: Answer | Refused) -> dict[str, Any]:
        return {"text": answer.text, "tokens": list(answer.tokens)}

    def score(self, lines: Sequence[dict[str, Any]], file: Path | None = None) -> Scored:
        figures = self.judge.figures([line["text"] for line in lines], [line["tokens"] for line in lines])
        return Scored(figures.pop(self.measure), [], figures)


def check(name: str, pipeline: TextPipeline, steps: Sequence[int], **options: Any) -> None:
    """Raise if something is wrong with options of `measure`, before anything is measured."""
    decoding = Decoding(options.get("temperature", 1.0), options.get("top_k"), options.get("top_p"))
    own = {key: options[key] for key in OF_SAMPLERS if key in options}
    try:
        for count in steps:
            sampler_named(options.get("sampler") or _default_sampler(pipeline), Grid(count), decoding, **own)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _default_sampler(pipeline: TextPipeline) -> str:
    return DEFAULTS["writing"].options(pipeline.task.layout.inserts)["sampler"]


def measure(
    name: str,
    pipeline: TextPipeline,
    judge: Judge,
    num: int,
    steps: int = STEPS,
    sampler: str | None = None,
    temperature: float = 1.0,
    **options: Any,
) -> TextScore:
    """Draw ``num`` samples from nothing and judge them."""
    benchmark, seed = Samples(judge, num), options.pop("seed", 0)
    sampler = sampler or _default_sampler(pipeline)
    asked: dict[str, Any] = {"sampler": sampler, "steps": steps, "temperature": temperature}
    entrant = benchmark.entrant(name, pipeline.task, pipeline.model)
    point = measured(benchmark, entrant, {**asked, **options}, seed)
    costs: dict[str, Any] = {"evaluations": point.evaluations, "seconds": point.seconds}
    return TextScore(name, num=num, **asked, **costs, length_w1=point.measured, **point.figures)


def held_out_bits(name: str, pipeline: TextPipeline, num: int, num_times: int = 64, seed: int = 0) -> LikelihoodScore:
    """Return the likelihood of ``num`` held-out sequences."""
    index = pipeline.task.validation.some(num)
    with bar_on_stderr() as progress:
        bar = progress.add_task(f"{name}, likelihood", total=len(index))
        found = bits(
            pipeline.model, pipeline.task, index, num_times, seed, lambda done: progress.update(bar, completed=done)
        )
    return LikelihoodScore(name, found.per_sequence, found.per_token.value, found.per_character, found.sequences)
