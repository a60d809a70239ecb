"""Long texts in pieces, as in the paper's appendix: at blank lines, then at the delimiter closest to the middle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

_BLANK_LINES = re.compile(r"\n\s*\n")


class Delimiter(NamedTuple):
    """Tokens at which a sequence may be cut: ``tokens`` ``[V]`` bool over the vocabulary, and on which side of them."""

    tokens: np.ndarray
    side: Literal["before", "after"]


def split_paragraphs(text: str) -> list[str]:
    r"""Return the paragraphs of a text: what stands between blank lines, stripped.

    >>> split_paragraphs("One.\nStill one.\n\n \nTwo.\n")
    ['One.\nStill one.', 'Two.']
    """
    return [paragraph for part in _BLANK_LINES.split(text) if (paragraph := part.strip())]


def chunk(tokens: Sequence[int] | np.ndarray, max_length: int, preferences: Sequence[Delimiter]) -> list[np.ndarray]:
    """Cut a sequence at the delimiter closest to its middle, and so on until no piece is longer than ``max_length``.

    The best delimiter comes first in ``preferences``; another is used where no better one lies strictly inside. Without
    any the cut is in the middle. No piece is empty.

    >>> comma = Delimiter(np.array([False, False, True]), "after")
    >>> [piece.tolist() for piece in chunk([0, 2, 0, 1, 1, 0, 2, 1], 4, [comma])]
    [[0, 2], [0, 1], [1, 0, 2], [1]]
    """
    tokens = np.asarray(tokens)
    cuts: list[np.ndarray] = []  # where each delimiter allows a cut, found when first needed

    def cut(start: int, end: int) -> int:
        for rank, delimiter in enumerate(preferences):
            if rank == len(cuts):
                cuts.append(np.flatnonzero(delimiter.tokens[tokens]) + (delimiter.side == "after"))
            right = int(np.searchsorted(cuts[rank], (start + end + 1) // 2))
            near = [index for index in cuts[rank][max(right - 1, 0) : right + 1].tolist() if start < index < end]
            if near:
                return min(near, key=lambda index: abs(2 * index - start - end))  # the left one of two
        return (start + end) // 2

    pieces, waiting = [], [(0, len(tokens))] if len(tokens) else []
    while waiting:
        start, end = waiting.pop()
        if end - start <= max_length:
            pieces.append(tokens[start:end])
        else:
            middle = cut(start, end)
            waiting += [(middle, end), (start, middle)]
    return pieces
