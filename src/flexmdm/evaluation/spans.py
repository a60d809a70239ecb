"""Spans that were cut out and filled in again: how many came back exactly, and how near the others are."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from flexmdm.evaluation.intervals import Interval, mean, paired, share


class SpanScores(NamedTuple):
    """Exact match and `edit_similarity`, means over the spans with 95% intervals; or how much two models differ."""

    exact: Interval
    similarity: Interval


def span_scores(truth: Sequence[Any], fillings: Sequence[Any]) -> SpanScores:
    """Compare fillings with what was cut out, ``truth``: for each span a text or tokens.

    >>> exact, similarity = span_scores(["x + 1", "return y"], ["x + 1", "return x"])
    >>> exact.value, similarity.value
    (0.5, 0.9375)
    """
    same, near = _of_each(truth, fillings)
    return SpanScores(share(same), share(near))


def span_differences(truth: Sequence[Any], first: Sequence[Any], second: Sequence[Any], seed: int = 0) -> SpanScores:
    """Return the scores of ``first`` minus those of ``second`` on the same spans, by score interval and by bootstrap.

    >>> span_differences(["a", "b", "c", "d"], ["a", "b", "c", "d"], ["a", "b", "c", "x"]).exact.value
    0.25
    """
    (our_same, our_near), (their_same, their_near) = _of_each(truth, first), _of_each(truth, second)
    return SpanScores(paired(our_same, their_same), mean(our_near - their_near, seed))


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


def _of_each(truth: Sequence[Any], fillings: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return exact match and similarity of each span."""
    if len(truth) != len(fillings) or not truth:
        raise ValueError(
            f"every span needs one filling, and there must be a span: {len(truth)} spans, {len(fillings)} fillings"
        )
    pairs = list(zip(truth, fillings, strict=True))
    same = np.array([float(len(a) == len(b) and list(a) == list(b)) for a, b in pairs])
    return same, np.array([edit_similarity(a, b) for a, b in pairs])
