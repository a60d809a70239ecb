"""Gaps of some words in texts of words, to be filled again.

How many gaps a text gets is given; the words of each are drawn from all sizes of 1 to 6 that leave half of the text's
words at least, all equally likely, and so are all places that leave a word between two gaps. Words are what stands
between spaces, with their punctuation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

MOST_GAPS, MOST_WORDS = 3, 6


@dataclass(frozen=True)
class Cut:
    """A text with gaps: the pieces that are left, as `TextPipeline.fill` takes them, and what stood between them."""

    pieces: tuple[str, ...]
    gaps: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return the text as it was."""
        return "".join(piece + gap for piece, gap in zip(self.pieces, (*self.gaps, ""), strict=True))

    @property
    def words_left(self) -> int:
        return sum(len(piece.split()) for piece in self.pieces)


def cuts(texts: Iterable[str], seed: int = 0) -> Iterator[Cut]:
    """Yield each text with gaps, 1, 2 and 3 in turns; texts that have too few words for their number are left out."""
    rng, number = np.random.default_rng(seed), 0
    for text in texts:
        found = cut_words(text, 1 + number % MOST_GAPS, rng)
        if found is not None:
            number += 1
            yield found


def cut_words(text: str, gaps: int, rng: np.random.Generator) -> Cut | None:
    """Return a text with so many gaps; ``None`` if it has fewer than two words for each, or two spaces side by side.

    >>> cut_words("Tom put the book on the table.", 2, np.random.default_rng(1))
    Cut(pieces=('Tom put ', ' book ', ' table.'), gaps=('the', 'on the'))
    """
    words = text.split(" ")
    sizes = _sizes(gaps, len(words) // 2)
    if not sizes or "" in words:
        return None
    drawn = sizes[rng.integers(len(sizes))]
    left = len(words) - sum(drawn)
    places = np.sort(rng.choice(left + 1, gaps, replace=False))  # words that are left before each gap
    pieces, found, begin = [], [], 0
    for number, (size, before) in enumerate(zip((*drawn, 0), np.diff([0, *places, left]).tolist(), strict=True)):
        piece = " ".join(words[begin : begin + before])
        pieces.append(" " * (number > 0) * bool(piece) + piece + " " * (number < gaps) * bool(piece))
        found.append(" ".join(words[begin + before : begin + before + size]))
        begin += before + size
    return Cut(tuple(pieces), tuple(found[:-1]))


@cache
def _sizes(gaps: int, most: int) -> list[tuple[int, ...]]:
    """Return all ways to give each gap 1 to 6 words, ``most`` in all."""
    return [sizes for sizes in product(range(1, MOST_WORDS + 1), repeat=gaps) if sum(sizes) <= most]
