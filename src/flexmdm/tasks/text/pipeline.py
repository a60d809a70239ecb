"""Strings in, strings out: sample, complete and infill with a trained model."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, ClassVar

from flexmdm.canvas import Prompt
from flexmdm.data import TextTokenizer
from flexmdm.data.tokenizers import Unanswerable
from flexmdm.evaluation.distances import Estimate
from flexmdm.generation.defaults import DEFAULTS
from flexmdm.tasks.layouts import Limit
from flexmdm.tasks.likelihoods import bits_of
from flexmdm.tasks.pipeline import Answer, Callback, Generated, Pipeline, of_each, texts_of
from flexmdm.tasks.text.task import TextTask

GAP_MARKER = "___"


@dataclass(frozen=True)
class TextPipeline(Pipeline[TextTask]):
    """A model with its tokenizer.

    Load one by `from_pretrained`, then ``pipeline.sample(3)``, ``pipeline.complete("Once upon")`` and
    ``pipeline.infill("The ___ sat on the ___.")``. All three take options of `flexmdm.generate`: ``sampler``,
    ``steps``, ``temperature``, ``top_p``, ``seed`` and so on; with ``full=True`` they return `Answer`s with all that is
    known of them instead of strings.
    """

    task_name: ClassVar[str] = "text"
    uses: ClassVar[str] = "flexmdm sample RUN, flexmdm complete RUN TEXT, flexmdm infill RUN TEXT"
    draws: ClassVar[int] = DEFAULTS["filling"].draws

    @property
    def tokenizer(self) -> TextTokenizer:
        return self.task.text

    def sample(self, num: int = 1, *, full: bool = False, **options: Any) -> list[Any]:
        """Write ``num`` sequences from nothing."""
        return texts_of(self.fill([["", ""]] * num, **options), one=False, full=full)

    def complete(self, text: str | Sequence[str], num: int = 1, *, full: bool = False, **options: Any) -> Any:
        """Go on behind ``text``: a string for a string, a list for a list or if ``num`` is more than 1."""
        texts = [text] if isinstance(text, str) else list(text)
        answers = self.fill([[one, ""] for one in texts], num, **options)
        return texts_of(answers, isinstance(text, str), full)

    def infill(
        self,
        text: str | Sequence[str],
        num: int = 1,
        gap_marker: str = GAP_MARKER,
        *,
        full: bool = False,
        best: int | None = None,
        **options: Any,
    ) -> Any:
        """Fill every ``gap_marker``: a string for a string, a list for a list or if ``num`` is more than 1.

        With ``best`` these are the most probable distinct ones of ``num`` draws, the best first, and say how sure each
        token is and how long a gap may be; ``best=0`` gives all as they are drawn. Without it, eight times as many are
        drawn as are wanted. The other options are those of `fill`: ``minimum`` and ``maximum`` tokens per gap,
        ``seed``, and those of `flexmdm.generate`.
        """
        options.setdefault("purpose", "filling")
        if best is None:
            best, num = num, num * self.draws
            options.setdefault("detailed", False)
        texts = [text] if isinstance(text, str) else list(text)
        pieces = of_each(texts, lambda one: pieces_of(one, gap_marker), options.get("names") or ())
        return texts_of(self.fill(pieces, num, best=best, **options), isinstance(text, str), full)

    def score(self, text: str, num_times: int = 64, seed: int = 0) -> Estimate:
        """Return the bits that the model needs for a text, length included: an upper bound, with its standard error."""
        if not isinstance(text, str):
            raise ValueError(f"score takes one text, and this is a {type(text).__name__}: score them one by one")
        self.task.text.refuse_unknown([text])
        return bits_of(self.model, self.task, self.task.text.encode([text])[0], num_times, seed)

    def fill(
        self,
        texts: Sequence[Sequence[str]],
        num: int = 1,
        minimum: int = 0,
        maximum: int | None = None,
        trace: bool = False,
        seed: int = 0,
        names: Sequence[str] = (),
        callback: Callback | None = None,
        best: int = 0,
        **options: Any,
    ) -> list[Answer]:
        """Write ``num`` answers for each text, given as the pieces between its gaps.

        Args:
            texts: for each text its pieces; an empty first or last piece leaves that end open.
            minimum, maximum: tokens per gap.
            num, trace, seed, names, callback, best: of `Pipeline.answers`.
            options: of `flexmdm.generate`.
        """
        if isinstance(texts, str) or any(isinstance(pieces, str) for pieces in texts):
            raise ValueError("fill takes the pieces of each text, such as [['The ', ' sat']]; for texts use infill")
        limits = {"minimum": minimum, "maximum": maximum}
        return self.answers(texts, num, trace, seed, names, callback, limits, best, **options)

    def prompt(
        self, tokens: Sequence[Sequence[int]], minimum: Limit = 0, maximum: Limit | None = None, **settings: Any
    ) -> Prompt:
        """Return the prompt of fixed pieces with something to find between them; ``[[], []]`` is the empty prompt."""
        fixed, gaps = sum(map(len, tokens)), len(tokens) - 1
        masks = minimum * gaps if isinstance(minimum, int) else sum(minimum)
        most = self.task.layout.longest
        if fixed + masks > most or (fixed == most and masks == 0):
            rest = f", each gap takes {minimum} or more" if masks else ""
            raise Unanswerable(
                f"the text leaves no room: {fixed:,} tokens are given{rest}, and this model was trained on at most "
                f"{most:,}"
            )
        return self.task.layout.between(tokens, minimum, maximum)

    def decode(self, request: Sequence[str], tokens: Sequence[Sequence[int]], prompt: Prompt, one: Generated) -> Answer:
        """Return the text with its gaps filled; the given pieces stand in it byte for byte."""
        found = fillings(one.sequence, one.given, prompt, self.task.layout.framed(tokens))
        gaps, fits = self._decode(request, tokens, found)
        text = "".join(piece + gap for piece, gap in zip(request, (*gaps, ""), strict=True))
        return one.answer(text, gaps, self.task.clean(one.sequence), prompt, pieces=tuple(request), fits=fits)

    def encode(self, request: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each piece of a text."""
        if len(request) < 2:
            raise Unanswerable(f"there is no gap in {''.join(request)!r}")
        if "" in request[1:-1]:
            raise Unanswerable(f"two gaps side by side are one: {GAP_MARKER.join(request)!r}")
        self.task.text.refuse_unknown(request)
        return self.task.text.encode([*map(self._without_last_space, request[:-1]), request[-1]])

    def encode_gaps(self, pieces: Sequence[str], gaps: Sequence[str]) -> list[list[int]]:
        """Return the tokens that stand in each gap between pieces if it holds this text, as `encode` leaves spaces."""
        left = [piece.removeprefix(self._without_last_space(piece)) for piece in pieces[:-1]]
        return self.task.text.encode([space + gap for space, gap in zip(left, gaps, strict=True)])

    def _without_last_space(self, piece: str) -> str:
        """Return a piece without the space that a filling brings along, where tokens begin with the one before."""
        leading = self.task.text.kind not in ("characters", "bytes")
        return piece[:-1] if leading and piece.endswith(" ") and len(piece) > 1 else piece

    def _decode(
        self, pieces: Sequence[str], given: Sequence[Sequence[int]], found: Sequence[Sequence[int]]
    ) -> tuple[tuple[str, ...], bool]:
        """Return the text of the gaps, with the spaces that their tokens imply and nobody has written.

        Beside it whether the fillings fit: none is empty, and each begins a word where a space was written.
        """
        gaps, before, seen, fits = [], list(given[0]), self.task.text.decode(given[0]), True
        for (piece, following), tokens, behind in zip(pairwise(pieces), found, given[1:], strict=True):
            inside = self.task.clean(tokens)
            gap = self._decode_after(before, inside)
            unseen = piece[-1:].isspace() and not seen[-1:].isspace()
            before += inside
            seen = self._decode_after(before, behind)
            if before and following and not following[0].isspace() and seen.startswith(" "):
                gap += " "
            spaced = unseen or self._without_last_space(piece) != piece
            fits &= bool(gap.strip()) and (gap.startswith(" ") or not spaced)
            gaps.append(gap.removeprefix(" ") if spaced else gap)
            before += behind
        return tuple(gaps), fits

    def _decode_after(self, before: list[int], tokens: Sequence[int]) -> str:
        """Return the text of tokens behind others; some tokenizers begin a word with a space only there."""
        start, whole = self.task.text.decode(before), self.task.text.decode([*before, *tokens])
        return whole[len(start) :] if whole.startswith(start) else self.task.text.decode(tokens)


def pieces_of(text: str, gap_marker: str = GAP_MARKER) -> list[str]:
    """Cut a text at its gaps; a marker that is one character several times may be drawn longer, up to twice as long.

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
        raise Unanswerable(f"there is no gap in {text!r}: write {gap_marker} where something is to be found")
    return pieces


def fillings(
    sequence: Sequence[int], given: Sequence[bool], prompt: Prompt, pieces: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Return the tokens that stand in each gap between the pieces of a prompt.

    >>> prompt = Prompt.infill([[1], [2, 3], []])
    >>> fillings([1, 7, 2, 3, 2, 3], [True, False, True, True, False, False], prompt, [[1], [2, 3], []])
    [[7], [2, 3]]
    """
    found: list[list[int]] = [[] for _ in pieces[1:]]
    ends = list(accumulate(map(len, pieces)))  # fixed tokens up to the end of each piece
    entries, fixed = iter(prompt.tokens), 0
    for token, was_given in zip(sequence, given, strict=True):
        if was_given and next(entries) is not None:
            fixed += 1
        else:  # in the gap behind the first piece that is complete; of several such, the first takes it all
            found[min(bisect_left(ends, fixed), len(found) - 1)].append(token)
    return found
