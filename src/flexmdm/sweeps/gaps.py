"""Texts with words cut out, filled again by models that insert, by an MDM with so many masks, and by n-grams."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from flexmdm.canvas import Prompt
from flexmdm.evaluation.fluency import ReferenceLM, read
from flexmdm.evaluation.ngrams import NgramFiller
from flexmdm.evaluation.spans import Filled
from flexmdm.generation.defaults import DEFAULTS
from flexmdm.progress import ProgressBar
from flexmdm.sweeps.sweep import Benchmark, Refused, Scored, Writer
from flexmdm.tasks.pipeline import Answer, Callback, Generated, Pipeline, generated, of_each
from flexmdm.tasks.text.cutting import Cut
from flexmdm.tasks.text.pipeline import TextPipeline


@dataclass(frozen=True)
class Gaps(Benchmark):
    """Texts with gaps as a benchmark: an item is right if every gap holds the very words that were cut out.

    Attributes:
        cuts: the texts.
        lm: reads each text with its gaps filled, and as it was; ``None`` leaves this out.

    >>> benchmark = Gaps((Cut(("I want ", " go ", "."), ("to", "home")),))
    >>> benchmark.score([{"gaps": ["to", "there"], "sizes": [1, 1], "text": "I want to go there."}]).figures["length"]
    {'value': 1.0, 'low': 0.20654329147389294, 'high': 1.0}
    """

    cuts: Sequence[Cut]
    lm: ReferenceLM | None = None
    name = "gaps"
    measure = "exact"
    defaults = DEFAULTS["filling"]
    pipelines: ClassVar[tuple[type[Pipeline], ...]] = (TextPipeline,)
    asks = "these are texts with gaps"

    @property
    def title(self) -> str:
        return f"{len(self.cuts):,} texts with gaps"

    @property
    def items(self) -> Sequence[Sequence[str]]:
        """Return the pieces of each text."""
        return [cut.pieces for cut in self.cuts]

    @cached_property
    def truth(self) -> Sequence[Sequence[str]]:
        """Return what was cut out of each text, as fillings are compared with it."""
        return [tuple(map(self.compared, cut.gaps)) for cut in self.cuts]

    @cached_property
    def sizes(self) -> Sequence[Sequence[int]]:
        """Return how long that is: its words."""
        return [[len(gap.split()) for gap in gaps] for gaps in self.truth]

    def compared(self, gap: str) -> str:
        """Return a filling as it is compared: its words alone, whatever spaces are around them."""
        return " ".join(gap.split())

    def found_sizes(self, answer: Answer) -> list[int]:
        return [len(gap.split()) for gap in answer.gaps]

    def writer(self, name: str, pipeline: TextPipeline) -> Writer:
        def write(items: Sequence[Sequence[str]], draws: int = 1, **options: Any) -> list[Answer]:
            return pipeline.fill(items, draws, best=int(draws > 1), detailed=False, **options)

        return write

    def line(self, number: int, answer: Answer | Refused) -> dict[str, Any]:
        truth = self.truth[number]
        if isinstance(answer, Refused):
            text, gaps, sizes = "".join(self.items[number]), [""] * len(truth), [0] * len(truth)
        else:
            text, gaps, sizes = answer.text, list(map(self.compared, answer.gaps)), self.found_sizes(answer)
        return {"truth": truth, "text": text, "gaps": gaps, "sizes": sizes}

    def filled(self, lines: Sequence[dict[str, Any]]) -> Filled:
        """Return the worth of the answers to the first items, one by one."""
        readings = None
        if self.lm is not None:
            texts = [line["text"] for line in lines], [cut.text for cut in self.cuts[: len(lines)]]
            with ProgressBar("reading", 2 * len(lines)) as bar:
                both = read(self.lm, [*texts[0], *texts[1]], bar.update)
            readings = np.hstack(np.split(both, 2))
        found = [line["gaps"] for line in lines], self.sizes[: len(lines)], [line["sizes"] for line in lines]
        return Filled.compare(self.truth[: len(lines)], *found, readings)

    def score(self, lines: Sequence[dict[str, Any]], file: Path | None = None) -> Scored:
        filled = self.filled(lines)
        scores = filled.scores()
        exact = scores.pop(self.measure)
        return Scored(exact, filled.exact.astype(bool).tolist(), {name: vars(one) for name, one in scores.items()})


# Who fills them beside a model that inserts ---------------------------------------------------------------------------

Sizes = Callable[[int, int], Sequence[Sequence[int]]]
"""The tokens of each gap of an item (by its number), for each of so many draws."""


@dataclass(frozen=True)
class LengthLaw:
    """The lengths that gaps have in training texts which were cut in the same way.

    An MDM that has to guess draws the lengths of all gaps of a text together from those training texts that have as
    many gaps and as many words left, or nearly as many where no such text has gaps that fit.

    Attributes:
        known: the tokens of the gaps of each training text, by its number of gaps and of words left.
    """

    known: Mapping[tuple[int, int], Sequence[tuple[int, ...]]]

    @classmethod
    def of(cls, pipeline: TextPipeline, cuts: Iterable[Cut]) -> LengthLaw:
        """Return the law of training texts that were cut."""
        known: dict[tuple[int, int], list[tuple[int, ...]]] = defaultdict(list)
        for cut in cuts:
            known[len(cut.gaps), cut.words_left].append(tokens_of_gaps(pipeline, cut))
        return cls(dict(known))

    def draw(self, gaps: int, words: int, room: int, num: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
        """Draw the tokens of each gap ``num`` times, for a text that has ``room`` for so many tokens in all."""
        for key in sorted((key for key in self.known if key[0] == gaps), key=lambda key: abs(key[1] - words)):
            fitting = [sizes for sizes in self.known[key] if sum(sizes) <= room]
            if fitting:
                return [fitting[index] for index in rng.integers(len(fitting), size=num)]
        return [(1,) * gaps] * num


def tokens_of_gaps(pipeline: TextPipeline, cut: Cut) -> tuple[int, ...]:
    """Return how many tokens each gap had, the space before it included where its first token has one."""
    return tuple(map(len, pipeline.encode_gaps(cut.pieces, cut.gaps)))


def told(pipeline: TextPipeline, cuts: Sequence[Cut]) -> Sizes:
    """Return the true lengths of the gaps."""
    true = [tokens_of_gaps(pipeline, cut) for cut in cuts]
    return lambda number, draws: [true[number]] * draws


def guessed(pipeline: TextPipeline, cuts: Sequence[Cut], law: LengthLaw, seed: int = 0) -> Sizes:
    """Return lengths drawn from a law; those of an item are the same whenever they are asked for."""
    room = [pipeline.task.layout.longest - sum(map(len, pipeline.encode(cut.pieces))) for cut in cuts]

    def sizes(number: int, draws: int) -> list[tuple[int, ...]]:
        cut, rng = cuts[number], np.random.default_rng([seed, number])
        return law.draw(len(cut.gaps), cut.words_left, room[number], draws, rng)

    return sizes


def with_masks(pipeline: TextPipeline, sizes: Sizes, same: bool) -> Writer:
    """Return what fills gaps with a model that only reveals: as many masks in each as ``sizes`` say.

    Of several draws the most probable is kept, given what stands around it; if the sizes are not the ``same`` in all,
    these probabilities say nothing about each other, and that of the whole text decides.
    """

    def write(
        items: Sequence[Sequence[str]],
        seed: int = 0,
        first_sequence: int = 0,
        callback: Callback | None = None,
        draws: int = 1,
        **options: Any,
    ) -> list[Answer]:
        tokens = of_each(items, pipeline.encode)
        prompts = [
            pipeline.prompt(given, each, each)
            for number, given in enumerate(tokens)
            for each in sizes(first_sequence + number, draws)
        ]
        jobs = generated(
            pipeline.task, pipeline.model, prompts, seed=seed, first_sequence=first_sequence * draws, callback=callback,
            **options,
        )  # fmt: skip
        found = [replace(one, prompt=number // draws) for number, one in enumerate(jobs)]
        answers = [
            pipeline.decode(items[one.prompt], tokens[one.prompt], prompt, one)
            for prompt, one in zip(prompts, found, strict=True)
        ]
        if draws == 1:
            return answers
        if not same:
            nothing = pipeline.prompt([[], []])
            answers = [replace(answer, prompt=nothing) for answer in answers]
            found = [replace(one, given=[True] * len(one.sequence)) for one in found]
        return pipeline.most_probable(answers, found, 1, seed)

    return write


def counted(pipeline: TextPipeline, filler: NgramFiller, beam: int = 8) -> Writer:
    """Return what fills gaps by n-grams, which are told nothing about a length but that it is not 0."""

    def write(items: Sequence[Sequence[str]], **options: Any) -> list[Answer]:
        return [fill(pieces) for pieces in items]

    def fill(pieces: Sequence[str]) -> Answer:
        tokens = pipeline.encode(pieces)
        room = max(pipeline.task.width - sum(map(len, tokens)), 1)
        middles = filler.fill_gaps(tokens, 1, room, beam)
        sequence, given = list(tokens[0]), [True] * len(tokens[0])
        for middle, piece in zip(middles, tokens[1:], strict=True):
            sequence += [*middle, *piece]
            given += [False] * len(middle) + [True] * len(piece)
        prompt = Prompt.infill(tokens)
        return pipeline.decode(pieces, tokens, prompt, Generated(0, sequence, given, 0, False, ()))

    return write
