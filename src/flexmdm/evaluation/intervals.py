"""95% intervals: of rates, and of what can be resampled."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_RESAMPLES = 1000
_RESAMPLES_AT_A_TIME = 50


@dataclass(frozen=True)
class Interval:
    """A number and the ends of its 95% interval.

    >>> print(Interval(12.345, 10.0, 14.5))
    12.35 (10.00 - 14.50)
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} - {self.high:.2f})"


def by_name(figures: Mapping[str, Any]) -> dict[str, Any]:
    """One flat row for machines: a number by its name, and the ends of its interval or its standard error beside it.

    >>> by_name({"num": 8, "accuracy": {"value": 0.5, "low": 0.2, "high": 0.8}})
    {'num': 8, 'accuracy': 0.5, 'accuracy_low': 0.2, 'accuracy_high': 0.8}
    """
    row: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, dict) and "value" in value:
            row[name] = value["value"]
            row |= {f"{name}_{end}": value[end] for end in value if end != "value"}
        else:
            row[name] = value
    return row


def bootstrap(columns: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], seed: int = 0) -> Interval:
    """A statistic of the sums over texts, with the percentiles of what it is when the texts are resampled.

    Args:
        columns: ``[B, C]``, one row per text.
        statistic: of sums ``[R, C]``, gives ``[R]``; smooth, as a ratio of sums is: a distance is not.
        seed: of the resampling.

    >>> nats_and_tokens = np.array([[30.0, 10], [20, 10], [25, 10], [35, 10]])
    >>> print(bootstrap(nats_and_tokens, lambda sums: np.exp(sums[:, 0] / sums[:, 1])))
    15.64 (9.49 - 25.79)
    """
    num = len(columns)
    if not num:
        return Interval(math.nan, math.nan, math.nan)
    rng = np.random.default_rng(seed)
    sums = [
        rng.multinomial(num, np.full(num, 1 / num), size=_RESAMPLES_AT_A_TIME) @ columns
        for _ in range(_RESAMPLES // _RESAMPLES_AT_A_TIME)
    ]
    low, high = np.quantile(statistic(np.concatenate(sums)), [0.025, 0.975])
    return Interval(float(statistic(columns.sum(0, keepdims=True))[0]), float(low), float(high))


def mean(values: np.ndarray, seed: int = 0) -> Interval:
    """Of values ``[B]``, one per text."""
    columns = np.stack([values, np.ones_like(values)], axis=1)
    return bootstrap(columns, lambda sums: sums[:, 0] / sums[:, 1], seed)


def wilson(successes: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """The Wilson score interval of a success rate; z = 1.96 gives 95%.

    (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n) with p = successes / n.

    >>> [round(bound, 3) for bound in wilson(90, 100)]
    [0.826, 0.945]
    >>> [round(bound, 3) for bound in wilson(0, 100)]  # never seen is not the same as impossible
    [0.0, 0.037]
    """
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"a rate needs 0 <= successes <= n and n >= 1, got {successes} of {n}")
    rate = successes / n
    centre = rate + z**2 / (2 * n)
    half = z * math.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2))
    scale = 1 + z**2 / n
    return max((centre - half) / scale, 0.0), min((centre + half) / scale, 1.0)


def rate(successes: int, n: int) -> Interval:
    """A success rate with its Wilson interval; of nothing, nothing is known.

    >>> print(rate(90, 100))
    0.90 (0.83 - 0.94)
    """
    return Interval(successes / n, *wilson(successes, n)) if n else Interval(math.nan, 0.0, 1.0)


def paired(first: np.ndarray, second: np.ndarray, z: float = 1.96) -> Interval:
    """By how much the success rate of ``first`` is above that of ``second``, both tried on the same items ``[B]``.

    The score interval of Newcombe (1998, method 10) for a difference of paired rates. Unlike that of a resampled mean,
    it does not shrink to nothing where the two hardly ever disagree; 0 of 100 against 0 of 100 need not be equal:

    >>> print(paired(np.zeros(100), np.zeros(100)))
    0.00 (-0.04 - 0.04)
    """
    n = len(first)
    one, other = first.astype(bool), second.astype(bool)
    both, neither = int((one & other).sum()), int((~one & ~other).sum())
    p, q = float(one.mean()), float(other.mean())
    (p_low, p_high), (q_low, q_high) = wilson(int(one.sum()), n, z), wilson(int(other.sum()), n, z)
    product = both * neither - int((one & ~other).sum()) * int((~one & other).sum())
    spread = n**2 * math.sqrt(p * (1 - p) * q * (1 - q))
    together = (max(product - n / 2, 0.0) if product > 0 else product) / spread if spread else 0.0
    low, high = (
        math.sqrt(max(a**2 - 2 * together * a * b + b**2, 0.0))
        for a, b in ((p - p_low, q_high - q), (p_high - p, q - q_low))
    )
    return Interval(p - q, p - q - low, p - q + high)
