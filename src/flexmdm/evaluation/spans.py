"""Gaps that were cut out and filled in again: how many came back exactly, and how near the others are."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from flexmdm.evaluation.intervals import Interval, bootstrap, mean, paired, share


@dataclass(frozen=True, eq=False)
class Filled:
    """The worth of fillings, one by one, for items of one gap or several.

    Attributes:
        exact: ``[B]``, 1 where every gap of an item holds just what was cut out, else 0.
        similarity: ``[B]``, `edit_similarity` to what was cut out, mean over the gaps of an item.
        lengths: ``[B, 2]``, gaps of an item whose filling is as long as what was cut out, and gaps.
        readings: ``[B, 4]``, nats and tokens of each filled text under a reference model, and of what it was; ``None``
            if nobody read them.

    >>> truth = [["x + 1"], ["return y"]]
    >>> filled = Filled.compare(truth, [["x + 1"], ["return x"]], [[3], [2]], [[3], [2]])
    >>> {name: round(one.value, 2) for name, one in filled.scores().items()}
    {'exact': 0.5, 'similarity': 0.94, 'length': 1.0}
    """

    exact: np.ndarray
    similarity: np.ndarray
    lengths: np.ndarray
    readings: np.ndarray | None = None

    @classmethod
    def compare(
        cls,
        truth: Sequence[Sequence[Sequence[Hashable]]],
        fillings: Sequence[Sequence[Sequence[Hashable]]],
        sizes: Sequence[Sequence[int]],
        found: Sequence[Sequence[int]],
        readings: np.ndarray | None = None,
    ) -> Filled:
        """Compare fillings with what was cut out.

        Args:
            truth, fillings: of each item what was cut out of its gaps, and what was put there: texts, or tokens.
            sizes, found: how long they are, in tokens or in words.
            readings: as above.
        """
        if len(truth) != len(fillings) or not truth:
            raise ValueError(
                f"every item needs its fillings, and there must be one: {len(truth)} items, {len(fillings)} fillings"
            )
        pairs = [list(zip(*both, strict=True)) for both in zip(truth, fillings, strict=True)]
        right = [
            [len(one), sum(a == b for a, b in zip(one, other, strict=True))]
            for one, other in zip(sizes, found, strict=True)
        ]
        return cls(
            exact=np.array([float(all(_same(a, b) for a, b in gaps)) for gaps in pairs]),
            similarity=np.array([np.mean([edit_similarity(a, b) for a, b in gaps]) for gaps in pairs]),
            lengths=np.array(right, dtype=float)[:, ::-1],
            readings=readings,
        )

    def scores(self) -> dict[str, Interval]:
        """Return the means over the items with 95% intervals; ``length`` is the share of gaps with the right length.

        ``perplexity`` is that of the filled texts over that of the originals.
        """
        gaps = self.lengths[:, 1].astype(int)
        each = np.concatenate([np.arange(n) < right for right, n in zip(self.lengths[:, 0], gaps, strict=True)])
        groups = np.repeat(np.arange(len(gaps)), gaps).tolist()
        found = {"exact": share(self.exact), "similarity": share(self.similarity)}
        found["length"] = share(each.astype(float), groups)
        return found if self.readings is None else found | {"perplexity": bootstrap(self.readings, _over)}

    def minus(self, other: Filled, seed: int = 0) -> dict[str, Interval]:
        """Return by how much these scores are above others on the same items: by score interval, or by bootstrap."""
        lengths = np.stack([self.lengths[:, 0] - other.lengths[:, 0], self.lengths[:, 1]], axis=1)
        found = {
            "exact": paired(self.exact, other.exact),
            "similarity": mean(self.similarity - other.similarity, seed),
            "length": bootstrap(lengths, lambda sums: sums[:, 0] / sums[:, 1], seed),
        }
        if self.readings is None or other.readings is None:
            return found
        both = np.hstack([self.readings, other.readings])
        return found | {"perplexity": bootstrap(both, lambda sums: _over(sums[:, :4]) - _over(sums[:, 4:]), seed)}


def _over(sums: np.ndarray) -> np.ndarray:
    """Return the perplexity of filled texts over that of the originals, of sums of `Filled.readings`."""
    return np.exp(sums[:, 0] / sums[:, 1] - sums[:, 2] / sums[:, 3])


def _same(first: Sequence[Hashable], second: Sequence[Hashable]) -> bool:
    return len(first) == len(second) and list(first) == list(second)


def edit_similarity(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """Return 1 - edit distance / length of the longer one: 1 for the same, 0 for nothing in common.

    >>> edit_similarity("kitten", "sitting"), edit_similarity("", "")
    (0.5714285714285714, 1.0)
    """
    longer = max(len(first), len(second))
    return 1 - edit_distance(first, second) / longer if longer else 1.0


def edit_distance(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """Count the insertions, deletions and replacements that turn one into the other (Levenshtein).

    >>> edit_distance("kitten", "sitting"), edit_distance([1, 2, 3], [2, 3])
    (3, 1)
    """
    row = list(range(len(second) + 1))  # distances of a beginning of the first to all beginnings of the second
    for length, item in enumerate(first, 1):
        above, row = row, [length]
        for index, other in enumerate(second):
            row.append(min(above[index + 1] + 1, row[index] + 1, above[index] + (item != other)))
    return row[-1]
