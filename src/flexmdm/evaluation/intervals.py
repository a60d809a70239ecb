"""95% intervals: of rates, and of what can be resampled."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
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

    def percent(self, each: bool = False) -> str:
        """Write a share in percent; ``each`` number with its sign, or only the first.

        >>> Interval(0.5, 0.25, 0.75).percent(), Interval(0.5, 0.25, 0.75).percent(each=True)
        ('50.0% (25.0 - 75.0)', '50.0% (25.0% - 75.0%)')
        """
        sign = "%" if each else ""
        return f"{self.value:.1%} ({100 * self.low:.1f}{sign} - {100 * self.high:.1f}{sign})"


def by_name(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return one flat row: a number by its name, and beside it the ends of its interval or its standard error.

    >>> by_name({"num": 8, "accuracy": {"value": 0.5, "low": 0.2, "high": 0.8}})
    {'num': 8, 'accuracy': 0.5, 'accuracy_low': 0.2, 'accuracy_high': 0.8}
    """
    row: dict[str, Any] = {}
    for name, value in figures.items():
        parts = value if isinstance(value, dict) and "value" in value else {"value": value}
        row |= {name if part == "value" else f"{name}_{part}": number for part, number in parts.items()}
    return row


def bootstrap(columns: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], seed: int = 0) -> Interval:
    """Return a statistic of the sums over texts, with its percentiles when the texts are resampled.

    The columns are ``[B, C]``, one row per text. The statistic of sums ``[R, C]`` gives ``[R]`` and is smooth, as a
    ratio of sums is: a distance is not.

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
    """Return the mean of values ``[B]``, one per text, with a bootstrap interval."""
    columns = np.stack([values, np.ones_like(values)], axis=1)
    return bootstrap(columns, lambda sums: sums[:, 0] / sums[:, 1], seed)


def rate(successes: int, n: int) -> Interval:
    """Return a success rate with its Wilson score interval; NaN from 0 to 1 if n is 0.

    >>> print(rate(90, 100), "|", rate(0, 100))  # never seen is not the same as impossible
    0.90 (0.83 - 0.94) | 0.00 (0.00 - 0.04)
    """
    if not 0 <= successes <= n:
        raise ValueError(f"a rate needs 0 <= successes <= n, got {successes} of {n}")
    return Interval(successes / n, *_wilson(successes / n, n)) if n else Interval(math.nan, 0.0, 1.0)


def share(values: np.ndarray, groups: Sequence[Hashable] | None = None) -> Interval:
    """Return the mean of values ``[B]`` from 0 to 1, such as right or wrong, with a Wilson interval.

    Its n is the effective number of items. Those of one group, such as lines of one function, are right or wrong
    together and count less than others, see `design_effect`. Values between 0 and 1 vary less than right and wrong do,
    and count more. For values that are 0 or 1, in groups of one, this is `rate`: of 0 everywhere the interval is no
    point. Without ``groups`` every item is its own.

    >>> values = np.array([1.0, 1, 1, 0, 0, 0])
    >>> print(share(values), "|", share(values, ["f", "f", "f", "g", "g", "g"]))
    0.50 (0.19 - 0.81) | 0.50 (0.05 - 0.95)
    """
    n = len(values)
    average = float(values.sum()) / n
    residuals = values - average
    between = float((values * (1 - values)).sum())  # n p (1 - p), the variance of right and wrong, less that of these
    effective = n / design_effect(residuals, groups) * (1 + between / (float(residuals @ residuals) + 1))
    return Interval(average, *_wilson(average, effective))


def design_effect(residuals: np.ndarray, groups: Sequence[Hashable] | None = None) -> float:
    """Return the factor by which more items are needed for an equally certain mean, as they come in groups.

    That is the variance of the mean by the jackknife, which leaves out one group at a time, over that which leaves out
    one item at a time. Few residuals other than 0 say little of how alike the items of a group are, so both get one
    success more, as if all items of a group were the same. It is at least 1, exactly 1 for groups of one, and the
    number of items if there is one group. The residuals ``[B]`` are what is left of each item without the mean.

    >>> together, against = np.array([0.5, 0.5, -0.5, -0.5]), np.array([0.5, -0.5, 0.5, -0.5])
    >>> round(design_effect(together, "ffgg"), 2), design_effect(against, "ffgg"), design_effect(together, "fghi")
    (3.6, 1.0, 1.0)
    """
    n = len(residuals)
    numbers: dict[Hashable, int] = {}
    of_each = [numbers.setdefault(group, len(numbers)) for group in (range(n) if groups is None else groups)]
    if len(of_each) != n:
        raise ValueError(f"every item needs its group: there are {n} items and {len(of_each)} groups")
    if len(numbers) in (1, n):
        return n / len(numbers)
    sizes, sums = np.bincount(of_each), np.bincount(of_each, residuals)
    grouped = ((sums / (1 - sizes / n)) ** 2).sum()
    alone = residuals @ residuals / (1 - 1 / n) ** 2
    return max(float((grouped + (sizes**2).sum() / n) / (alone + 1)), 1.0)


def paired(first: np.ndarray, second: np.ndarray, groups: Sequence[Hashable] | None = None) -> Interval:
    """Return the success rate of ``first`` minus that of ``second``, both tried on the same items ``[B]``.

    The score interval of Newcombe (1998, method 10) for a difference of paired rates. Unlike that of a resampled mean,
    it does not shrink to nothing where the two hardly ever disagree; 0 of 100 against 0 of 100 need not be equal:

    >>> print(paired(np.zeros(100), np.zeros(100)))
    0.00 (-0.04 - 0.04)

    Items in ``groups`` count as fewer, by the `design_effect` of what the two differ in:

    >>> print(paired(np.zeros(100), np.zeros(100), groups=["f"] * 50 + ["g"] * 50))
    0.00 (-0.66 - 0.66)
    """
    one, other = first.astype(bool), second.astype(bool)
    apart = one.astype(float) - other
    items, n = len(first), len(first) / design_effect(apart - apart.mean(), groups)
    both, neither = int((one & other).sum()), int((~one & ~other).sum())
    p, q = float(one.mean()), float(other.mean())
    (p_low, p_high), (q_low, q_high) = _wilson(p, n), _wilson(q, n)
    product = (both * neither - int((one & ~other).sum()) * int((~one & other).sum())) * (n / items) ** 2
    spread = n**2 * math.sqrt(p * (1 - p) * q * (1 - q))
    together = (max(product - n / 2, 0.0) if product > 0 else product) / spread if spread else 0.0
    low, high = (
        math.sqrt(max(a**2 - 2 * together * a * b + b**2, 0.0))
        for a, b in ((p - p_low, q_high - q), (p_high - p, q - q_low))
    )
    return Interval(p - q, p - q - low, p - q + high)


def _wilson(rate: float, n: float) -> tuple[float, float]:
    """Return (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n), p the rate; n need not be whole."""
    z = 1.96  # for 95%
    centre = rate + z**2 / (2 * n)
    half = z * math.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2))
    scale = 1 + z**2 / n
    return max((centre - half) / scale, 0.0), min((centre + half) / scale, 1.0)
