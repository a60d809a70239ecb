"""Strings in, strings out: sample, complete and infill with a trained model."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flexmdm.canvas import Prompt
from flexmdm.generation import Event, Progress
from flexmdm.tasks.generating import generated
from flexmdm.tasks.text.task import TextTask

if TYPE_CHECKING:  # seconds to import; whoever has a model has done so
    from flexmdm.backbones.model import FlexMDMModel

GAP_MARKER = "___"
_NAMED = 10  # bad texts in one error


@dataclass(frozen=True)
class Filled:
    """One answer.

    Attributes:
        text: all of it; the given pieces stand in it byte for byte.
        gaps: what was found for each gap.
        tokens: of all of it.
        evaluations: of the network.
        hit_max_length: whether it wanted to grow beyond the longest sequence.
        prompt, events: what it started from, and what happened, if a trace was asked for.
    """

    text: str
    gaps: tuple[str, ...]
    tokens: tuple[int, ...]
    evaluations: int
    hit_max_length: bool
    prompt: Prompt
    events: tuple[Event, ...] = ()


@dataclass(frozen=True)
class TextPipeline:
    """A model with its tokenizer.

    Load one by `from_pretrained`, then ``pipeline.sample(3)``, ``pipeline.complete("Once upon")`` and
    ``pipeline.infill("The ___ sat on the ___.")``. All three take options of `flexmdm.generate`: ``sampler``,
    ``steps``, ``temperature``, ``top_p``, ``seed`` and so on.
    """

    task: TextTask
    model: FlexMDMModel

    @classmethod
    def from_pretrained(cls, run: str | Path, device: str | None = None) -> TextPipeline:
        """The folder of a run, or the name of weights that come with the package (such as ``text``)."""
        from flexmdm.tasks.loading import load_as

        return cls(*load_as(TextTask, "text", run, device))

    def sample(self, num: int = 1, **options: Any) -> list[str]:
        """``num`` sequences from nothing."""
        return [answer.text for answer in self.fill([["", ""]], num, **options)]

    def complete(self, text: str | Sequence[str], num: int = 1, **options: Any) -> Any:
        """Go on behind ``text``: a string for a string, a list for a list or if ``num`` is more than 1."""
        texts = [text] if isinstance(text, str) else list(text)
        answers = [answer.text for answer in self.fill([[one, ""] for one in texts], num, **options)]
        return answers[0] if isinstance(text, str) and num == 1 else answers

    def infill(self, text: str | Sequence[str], num: int = 1, gap_marker: str = GAP_MARKER, **options: Any) -> Any:
        """Fill every ``gap_marker``: a string for a string, a list for a list or if ``num`` is more than 1."""
        texts = [text] if isinstance(text, str) else list(text)
        pieces = of_each(texts, lambda one: pieces_of(one, gap_marker))
        answers = [answer.text for answer in self.fill(pieces, num, **options)]
        return answers[0] if isinstance(text, str) and num == 1 else answers

    def fill(
        self,
        texts: Sequence[Sequence[str]],
        num: int = 1,
        minimum: int = 0,
        maximum: int | None = None,
        trace: bool = False,
        seed: int = 0,
        names: Sequence[str] = (),
        callback: Callable[[int, Progress], None] | None = None,
        **options: Any,
    ) -> list[Filled]:
        """``num`` answers for each text, given as the pieces between its gaps.

        Args:
            texts: for each text its pieces; an empty first or last piece leaves that end open.
            num: answers per text.
            minimum, maximum: tokens per gap.
            trace: keep the events.
            seed: of generation.
            names: what an error calls each text, such as its line; by default text 1, text 2 and so on.
            callback: called with (answers already complete, `flexmdm.generation.Progress`) after every step.
            options: of `flexmdm.generate`.
        """
        tokens = of_each(texts, self._encode, names)
        prompts = of_each(tokens, lambda pieces: self.task.prompt(pieces, minimum, maximum), names)
        answers = []
        for one in generated(self.task, self.model, prompts, num, trace, seed, callback=callback, **options):
            pieces, prompt = texts[one.prompt], prompts[one.prompt]
            found = fillings(one.sequence, one.given, prompt, tokens[one.prompt])
            gaps = self._decode(pieces, tokens[one.prompt], found)
            text = "".join(piece + gap for piece, gap in zip(pieces, (*gaps, ""), strict=True))
            measured = one.evaluations, one.hit_max_length
            answers.append(Filled(text, gaps, tuple(self.task.clean(one.sequence)), *measured, prompt, one.events))
        return answers

    @property
    def _leading_spaces(self) -> bool:
        """Whether tokens begin with the space before their word, so that a filling brings it along."""
        return self.task.text.kind not in ("characters", "bytes")

    def _encode(self, pieces: Sequence[str]) -> list[list[int]]:
        if len(pieces) < 2:
            raise ValueError(f"there is no gap in {''.join(pieces)!r}")
        if "" in pieces[1:-1]:
            raise ValueError(f"two gaps side by side are one: {GAP_MARKER.join(pieces)!r}")
        self.task.text.refuse_unknown(pieces)
        return self.task.text.encode([*map(self._without_last_space, pieces[:-1]), pieces[-1]])

    def _without_last_space(self, piece: str) -> str:
        return piece[:-1] if self._leading_spaces and piece.endswith(" ") and len(piece) > 1 else piece

    def _decode(
        self, pieces: Sequence[str], given: Sequence[Sequence[int]], found: Sequence[Sequence[int]]
    ) -> tuple[str, ...]:
        """What the gaps say between the pieces, with the spaces that their tokens imply and nobody has written."""
        gaps, before, seen = [], list(given[0]), self.task.text.decode(given[0])
        for (piece, following), tokens, behind in zip(pairwise(pieces), found, given[1:], strict=True):
            inside = self.task.clean(tokens)
            gap = self._decode_after(before, inside)
            unseen = piece[-1:].isspace() and not seen[-1:].isspace()
            before += inside
            seen = self._decode_after(before, behind)
            if before and following and not following[0].isspace() and seen.startswith(" "):
                gap += " "
            gaps.append(gap.removeprefix(" ") if unseen or self._without_last_space(piece) != piece else gap)
            before += behind
        return tuple(gaps)

    def _decode_after(self, before: list[int], tokens: Sequence[int]) -> str:
        """The text of tokens behind others; some tokenizers begin a word with a space only there."""
        start, whole = self.task.text.decode(before), self.task.text.decode([*before, *tokens])
        return whole[len(start) :] if whole.startswith(start) else self.task.text.decode(tokens)


def pieces_of(text: str, gap_marker: str = GAP_MARKER) -> list[str]:
    """A text cut at its gaps; a marker that is one character several times may be drawn longer, up to twice as long.

    >>> pieces_of("The ___ sat on the ____.")
    ['The ', ' sat on the ', '.']
    """
    if not gap_marker:
        raise ValueError("the gap marker is empty: give one or more characters that do not occur in the text")
    if len(set(gap_marker)) == 1:
        one, least = re.escape(gap_marker[0]), len(gap_marker)
        longer = f"(?<!{one}){one}{{{least},{2 * least - 1}}}(?!{one})"  # too short for two side by side
        text = re.sub(longer, lambda _: gap_marker, text)
    pieces = text.split(gap_marker)
    if len(pieces) == 1:
        raise ValueError(f"there is no gap in {text!r}: write {gap_marker} where something is to be found")
    return pieces


def of_each(texts: Sequence[Any], make: Callable[[Any], Any], names: Sequence[str] = ()) -> list[Any]:
    """What ``make`` makes of every text; if it refuses some, one error that names them all.

    >>> of_each(["1", "one", "2", "two"], int)
    Traceback (most recent call last):
    ValueError: text 2: invalid literal for int() with base 10: 'one'; bad too: text 4
    """
    made, problems = [], {}
    names = names or ([""] if len(texts) == 1 else [f"text {number}" for number in range(1, len(texts) + 1)])
    for name, text in zip(names, texts, strict=True):
        try:
            made.append(make(text))
        except ValueError as error:
            problems[name] = f"{name}: {error}" if name else str(error)
    if problems:
        first, *others = problems
        more = ", ".join(others[:_NAMED]) + (f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else "")
        raise ValueError(problems[first] + (f"; bad too: {more}" if more else ""))
    return made


def fillings(
    sequence: Sequence[int], given: Sequence[bool], prompt: Prompt, pieces: Sequence[Sequence[int]]
) -> list[list[int]]:
    """The tokens that stand in each gap between the pieces of a prompt.

    >>> prompt = Prompt.infill([[1], [2, 3], []])
    >>> fillings([1, 7, 2, 3, 2, 3], [True, False, True, True, False, False], prompt, [[1], [2, 3], []])
    [[7], [2, 3]]
    """
    found: list[list[int]] = [[] for _ in pieces[1:]]
    ends = list(accumulate(map(len, pieces)))  # fixed tokens up to the end of each piece
    place = fixed = 0  # entries of the prompt, and fixed tokens, so far
    for token, was_given in zip(sequence, given, strict=True):
        if was_given:
            place += 1
            if prompt.tokens[place - 1] is not None:
                fixed += 1
                continue
        # In the gap behind the first piece that is complete; of several such, the first takes it all.
        found[min(bisect_left(ends, fixed), len(found) - 1)].append(token)
    return found
