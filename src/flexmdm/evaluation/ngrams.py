"""A filler of gaps that only counts: the floor that a trained model has to be above."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from flexmdm.sequences import Ragged


@dataclass(frozen=True, eq=False)
class NgramFiller:
    """An interpolated n-gram model (Witten and Bell, 1991) that fills gaps from left to right.

    P(w | h) = (count(h w) + T(h) P(w | h')) / (count(h) + T(h)), where T(h) is the number of different tokens seen
    behind h, h' is h without its first token, and below the single tokens all are equally likely. Outside a sequence,
    before its first token and behind its last, stands a token of its own.

    >>> text = [[1, 2, 3, 4], [1, 2, 3, 4], [5, 2, 6]]
    >>> filler = NgramFiller.fit(Ragged.from_lists(text), vocab_size=7, order=3)
    >>> filler.fill([1], [4]), filler.fill([5, 2], [])
    ([2, 3], [6])
    """

    order: int  # n
    base: int  # tokens there are, with the one outside
    keys: tuple[np.ndarray, ...]  # for each n, all n-grams that were seen, as ascending numbers to the base ``base``
    counts: tuple[np.ndarray, ...]  # and how often

    @classmethod
    def fit(cls, sequences: Ragged, vocab_size: int, order: int = 4) -> NgramFiller:
        """Count the n-grams of sequences whose tokens are below ``vocab_size``, up to n = ``order``."""
        base = vocab_size + 1
        if order < 1 or base**order >= 2**63:
            raise ValueError(
                f"n-grams of {order} tokens of {vocab_size:,} have no number below 2^63: take shorter ones"
            )
        values, rows = sequences.values.numpy(), sequences.rows.numpy()
        gap = max(order - 1, 1)  # tokens outside between two sequences, so that no n-gram has tokens of both
        flat = np.full(len(values) + (len(sequences) + 1) * gap, vocab_size, dtype=np.int64)
        flat[np.arange(len(values)) + (rows + 1) * gap] = values
        keys, counts = [], []
        for n in range(1, order + 1):
            numbers = sliding_window_view(flat, n) @ base ** np.arange(n)[::-1]
            seen, count = np.unique(numbers, return_counts=True)
            keys.append(seen)
            counts.append(count.astype(np.float64))
        return cls(order, base, tuple(keys), tuple(counts))

    def probabilities(self, context: Sequence[int]) -> np.ndarray:
        """Return ``[base]``, the probability of each token behind ``context``; the last token is the one outside."""
        history = [self.base - 1] * self.order + [int(token) for token in context]
        found = np.full(self.base, 1 / self.base)
        for n, (keys, counts) in enumerate(zip(self.keys, self.counts, strict=True), 1):
            number = 0
            for token in history[len(history) - n + 1 :]:
                number = number * self.base + token
            low, high = np.searchsorted(keys, [number * self.base, (number + 1) * self.base])
            if low == high:
                break
            seen, different = counts[low:high], high - low
            found = found * (different / (seen.sum() + different))
            found[keys[low:high] - number * self.base] += seen / (seen.sum() + different)
        return found

    def fill(
        self, prefix: Sequence[int], suffix: Sequence[int], minimum: int = 1, maximum: int = 16, beam: int = 1
    ) -> list[int]:
        """Return the tokens that most probably stand between ``prefix`` and ``suffix``, as `fill_gaps` has them."""
        return self.fill_gaps([prefix, suffix], minimum, maximum, beam)[0]

    def fill_gaps(
        self, pieces: Sequence[Sequence[int]], minimum: int = 1, maximum: int = 16, beam: int = 1
    ) -> list[list[int]]:
        """Return the tokens that most probably stand between consecutive pieces of a sequence.

        Written token by token, the most probable one (or the ``beam`` most probable beginnings) each time; of all
        lengths from ``minimum`` to ``maximum`` those are taken which make middles and pieces the likeliest.

        >>> text = [[1, 2, 3, 4], [1, 2, 3, 4], [5, 2, 6]]
        >>> filler = NgramFiller.fit(Ragged.from_lists(text), vocab_size=7, order=3)
        >>> filler.fill_gaps([[1], [3], []])
        [[2], [4]]
        """
        if not 0 <= minimum <= maximum or beam < 1:
            raise ValueError(f"0 <= minimum <= maximum and beam >= 1 are needed, got {minimum}, {maximum}, {beam}")
        behind = max(self.order - 1, 1)  # tokens of a piece whose probability depends on the middle before it
        best = [_Beginning(0.0, tuple(pieces[0]), ())]
        for number, piece in enumerate(pieces[1:], 1):
            last = number == len(pieces) - 1
            after = [*piece, *[self.base - 1] * behind * last][:behind]
            found: list[_Beginning] = []
            for beginning in best:
                found = self._behind(beginning, after, found, 1 if last else beam, minimum, maximum, beam)
            best = [replace(one, tokens=(*one.tokens, *piece[len(after) :])) for one in found]
        return [list(middle) for middle in best[0].middles]

    def _behind(
        self,
        beginning: _Beginning,
        after: Sequence[int],
        found: list[_Beginning],
        most: int,
        minimum: int,
        maximum: int,
        beam: int,
    ) -> list[_Beginning]:
        """Return the ``most`` likeliest of what was found and of a beginning with a middle and ``after`` behind it."""
        beams: list[tuple[float, tuple[int, ...]]] = [(beginning.log_prob, ())]
        for length in range(maximum + 1):
            if length >= minimum:
                for p, middle in beams:
                    text = [*beginning.tokens, *middle, *after]
                    ahead = range(len(text) - len(after), len(text))
                    p += sum(float(np.log(self.probabilities(text[:index])[text[index]])) for index in ahead)
                    found = [*found, _Beginning(p, tuple(text), (*beginning.middles, middle))]
                found = sorted(found, key=lambda one: -one.log_prob)[:most]
            if len(found) == most and found[-1].log_prob >= beams[0][0]:
                break  # what is longer is less likely
            grown = []
            for p, middle in beams:
                next_one = np.log(self.probabilities([*beginning.tokens, *middle]))
                next_one[self.base - 1] = -np.inf  # a middle does not end the sequence
                likeliest = np.argsort(-next_one, kind="stable")[:beam]
                grown += [(p + float(next_one[token]), (*middle, int(token))) for token in likeliest]
            beams = sorted(grown, key=lambda one: -one[0])[:beam]
        return found


@dataclass(frozen=True)
class _Beginning:
    """Pieces and middles up to some point, and their log-probability."""

    log_prob: float
    tokens: tuple[int, ...]
    middles: tuple[tuple[int, ...], ...]
