"""How good a text model is: lengths, fluency and variety of its samples, and the likelihood of held-out sequences."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
from flexmdm.generation.defaults import DEFAULTS, STEPS
from flexmdm.generation.generate import sampler_named
from flexmdm.generation.samplers import Grid
from flexmdm.sweeps.scores import LikelihoodScore, TextScore
from flexmdm.sweeps.sweep import OF_SAMPLERS
from flexmdm.tasks.likelihoods import bits
from flexmdm.tasks.pipeline import bar_on_stderr, progress_bar
from flexmdm.tasks.text.pipeline import TextPipeline

OPENING = 32  # tokens whose entropy is compared, whatever the lengths of the texts
_NOTHING = Interval(float("nan"), float("nan"), float("nan"))


@dataclass(frozen=True)
class Judge:
    """What samples are compared with.

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
        """All held-out sequences of a run, in random order."""
        held_out = pipeline.task.validation
        tokens = held_out.store.take(held_out.some(len(held_out))).tolist()
        return cls([pipeline.task.text.decode(sequence) for sequence in tokens], tokens, lm, most)

    def score(
        self,
        name: str,
        texts: Sequence[str],
        tokens: Sequence[Sequence[int]],
        sampler: str,
        steps: int,
        temperature: float = 1.0,
        evaluations: float = float("nan"),
        seconds: float = float("nan"),
    ) -> TextScore:
        """The score of texts, whoever wrote them."""
        fidelity = length_fidelity([len(t) for t in tokens], [len(t) for t in self.tokens])
        perplexity, kept, read, truncated = _NOTHING, float("nan"), 0, 0
        if self.lm is not None:
            given = texts[: self.most]
            found = _perplexity(self.lm, given)
            perplexity, kept, read, truncated = found.corpus, found.kept_share, len(given), found.truncated
        return TextScore(
            model=name,
            sampler=sampler,
            steps=steps,
            temperature=temperature,
            num=len(texts),
            length_w1=Interval(fidelity.w1, fidelity.w1_low, fidelity.w1_high),
            length_ks=Interval(fidelity.ks, fidelity.ks_low, fidelity.ks_high),
            generative_perplexity=perplexity,
            kept=kept,
            entropy=unigram_entropy(tokens),
            distinct_1=distinct_n(tokens, 1),
            distinct_2=distinct_n(tokens, 2),
            distinct_3=distinct_n(tokens, 3),
            evaluations=evaluations,
            seconds=seconds,
            opening_entropy=unigram_entropy([t[:OPENING] for t in tokens if len(t) >= OPENING]),
            samples=list(texts[:20]),
            lengths=[len(t) for t in tokens],
            read=read,
            truncated=truncated,
        )

    def held_out(self, num: int) -> TextScore:
        """How as many held-out sequences would do: distances of a part of them from all of them."""
        return self.score("held-out", self.texts[:num], self.tokens[:num], "", 0)

    def xz(self) -> float:
        """Bits per character of xz on the held-out texts."""
        return xz_bits_per_character(self.texts)


def _perplexity(lm: ReferenceLM, texts: Sequence[str]) -> Perplexity:
    with bar_on_stderr() as progress:
        bar = progress.add_task("reading", total=len(texts))
        return generative_perplexity(
            lm, texts, progress=lambda done, total: progress.update(bar, completed=done, total=total)
        )


def check(name: str, pipeline: TextPipeline, steps: Sequence[int], **options: Any) -> None:
    """Say what is wrong with options of `measure` before anything is measured."""
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
    sampler = sampler or _default_sampler(pipeline)
    began = time.perf_counter()
    settings: dict[str, Any] = {"sampler": sampler, "steps": steps, "temperature": temperature, **options}
    with progress_bar(num, f"{name}, {sampler} {steps}") as bar:
        answers = pipeline.fill([["", ""]], num, callback=bar, **settings)
    return judge.score(
        name,
        [answer.text for answer in answers],
        [answer.tokens for answer in answers],
        sampler,
        steps,
        temperature,
        sum(answer.evaluations for answer in answers) / num,
        (time.perf_counter() - began) / num,
    )


def held_out_bits(name: str, pipeline: TextPipeline, num: int, num_times: int = 64, seed: int = 0) -> LikelihoodScore:
    """The likelihood of ``num`` held-out sequences."""
    index = pipeline.task.validation.some(num)
    with bar_on_stderr() as progress:
        bar = progress.add_task(f"{name}, likelihood", total=len(index))
        found = bits(
            pipeline.model, pipeline.task, index, num_times, seed, lambda done: progress.update(bar, completed=done)
        )
    return LikelihoodScore(name, found.per_sequence, found.per_token.value, found.per_character, found.sequences)
