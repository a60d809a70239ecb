"""Insertion heads: from the features of each gap to g, the expected number of tokens still missing in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEAST_REST = 1e-6  # log(1 - alpha) stays finite at alpha = 1
_LARGEST_LOG = 20.0  # of a count: closed regions, which nothing teaches, must not overflow
_BOUND = 15.0  # of |log g| in a `LogHead`
_LARGEST_SHAPE = 1000.0  # of a negative-binomial law that is nearly Poisson
_SOFTPLUS_ONE = math.log(math.e - 1)  # softplus of this is 1
_UNSEEN = 1e-3  # how probable it is that a region has a size that the data do not show
_WHOLE, _BETWEEN = "whole", "between"  # regions of canvases with nothing given, and those beside given entries

Statistics = Sequence[float] | Mapping[str, Sequence[float]]
"""What is known of the sizes of regions: mean and variance, or the share of each size for `whole` and for `between`."""


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions of a packed batch: stretches of gaps between given entries (all gaps, where nothing is given).

    Attributes:
        of_gap: ``[N + B]``, the region of each gap.
        sequence: ``[R]``, the sequence of each region.
        free: ``[R]``, the number of free entries in each region: one less than its gaps.
        whole: ``[R]`` bool, whether nothing is given in its sequence, of which it is the only region then.
        blank: ``[R]`` bool, whether moreover all entries of its sequence are masks.

    >>> given = torch.tensor([False, True, False])
    >>> regions = Regions.of(torch.tensor([3, 0]), given, shown=given)
    >>> regions.of_gap.tolist(), regions.free.tolist(), regions.whole.tolist()
    ([0, 0, 1, 1, 2], [1, 1, 0], [False, False, True])
    """

    of_gap: Tensor
    sequence: Tensor
    free: Tensor
    whole: Tensor
    blank: Tensor

    @classmethod
    def of(cls, lengths: Tensor, given: Tensor, shown: Tensor) -> Regions:
        """Return the regions of sequences with ``lengths`` ``[B]`` and flags ``[N]``: given, and shown (no mask)."""
        sequence = torch.arange(len(lengths), device=lengths.device)
        gaps = sequence.repeat_interleave(lengths + 1, output_size=len(given) + len(lengths))
        behind_entry = torch.ones_like(gaps, dtype=torch.bool)
        behind_entry[(lengths + 1).cumsum(0) - (lengths + 1)] = False  # the first gap of each sequence
        starts = torch.ones_like(behind_entry).masked_scatter(behind_entry, given.bool())
        of_gap = starts.long().cumsum(0) - 1
        entries = sequence.repeat_interleave(lengths, output_size=len(given))
        told = torch.ones(2, len(lengths), dtype=torch.bool, device=lengths.device)  # nothing given, nothing shown
        for row, flags in enumerate((given.bool(), shown.bool())):
            told[row, entries[flags]] = False
        of_region = gaps[starts]
        whole, hidden = told[:, of_region]
        return cls(of_gap, of_region, torch.bincount(of_gap) - 1, whole, whole & hidden)

    def sum(self, values: Tensor) -> Tensor:
        """Add up the values of the gaps of each region: ``[N + B, ...]`` -> ``[R, ...]``."""
        return values.new_zeros(len(self.free), *values.shape[1:]).index_add(0, self.of_gap, values)


class GapHead(nn.Module):
    """g for each gap on its own: softplus(a + b log(1 - alpha)) with b >= 0.

    The odds that k tokens are missing rather than none go like (1 - alpha)^k, so log g falls linearly in
    log(1 - alpha) where nothing needs to be missing; b learns that slope.

    Args:
        features: number of features of a gap.
        inner: width of the hidden layer.
        expected: g of every gap at alpha = 0 before training.
    """

    def __init__(self, features: int, inner: int, expected: float) -> None:
        super().__init__()
        self.mlp = _mlp(features, inner, 2)
        self.start = expected + math.log(-math.expm1(-expected))  # softplus(start) = expected

    @property
    def last_layers(self) -> list[nn.Module]:
        """Return the layers that start at zero."""
        return [self.mlp[-1]]

    def forward(self, features: Tensor, alpha: Tensor, regions: Regions) -> Tensor:
        """Map ``[G, features]`` and the clocks ``[B]`` to g ``[G]``."""
        level, slope = self.mlp(features.to(next(self.mlp.parameters()).dtype)).float().unbind(1)
        rest = _log_rest(alpha)[regions.sequence][regions.of_gap]
        return F.softplus(self.start + level + F.softplus(slope) * rest)


class LogHead(nn.Module):
    """g for each gap on its own: the exponential of a bounded number, which leaves the clock to the features.

    Args:
        features: number of features of a gap.
        inner: width of the hidden layer.
        expected: g of every gap before training.
    """

    def __init__(self, features: int, inner: int, expected: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.mlp = nn.Sequential(nn.Linear(features, inner), nn.GELU(), nn.Linear(inner, 1))
        self.start = math.log(expected)

    @property
    def last_layers(self) -> list[nn.Module]:
        """Return the layers that start at zero."""
        return [self.mlp[-1]]

    def forward(self, features: Tensor, alpha: Tensor, regions: Regions) -> Tensor:
        """Map ``[G, features]`` to g ``[G]``."""
        level = self.mlp(self.norm(features.to(self.norm.weight.dtype))).float().squeeze(1)
        return (self.start + level).clamp(-_BOUND, _BOUND).exp()


@dataclass(frozen=True)
class SizeLaw:
    """The law of the number L of free tokens in a region: negative-binomial, or mostly that of the data.

    With q = 1 - alpha and n of them there, E[missing | n, alpha] = sum_L p(L) C(L, n) q^(L - n) (L - n) over the same
    sum without its last factor. For a negative-binomial law with mean m and shape k = m^2 / (variance - m) it is
    (n + k) q / (alpha + k / m). The data's own law gets a small share of the negative-binomial one with the same mean
    and variance, so that no size is impossible.

    >>> law = SizeLaw.of_sizes([0, 1, 0, 3])  # once a single token, three times three
    >>> law.log_missing(torch.tensor([0, 1, 2]), torch.tensor([0.0, 0.5, 0.5])).exp()
    tensor([2.5000, 1.3845, 1.0002])
    """

    mean: float
    shape: float
    log_shares: tuple[float, ...] = ()  # of the sizes 0, 1, 2 ... in the data; none for a negative-binomial law

    @classmethod
    def of_moments(cls, mean: float, variance: float, log_shares: Sequence[float] = ()) -> SizeLaw:
        """Return the negative-binomial law with this mean and variance, and what the data show beside it."""
        excess = max(variance - mean, mean**2 / _LARGEST_SHAPE)
        return cls(mean, min(mean**2 / excess, _LARGEST_SHAPE), tuple(log_shares))

    @classmethod
    def of_sizes(cls, shares: Sequence[float]) -> SizeLaw:
        """Return the law of data in which size L has the share ``shares[L]``, or as many regions."""
        shares = [share / sum(shares) for share in shares]
        mean = sum(share * size for size, share in enumerate(shares))
        variance = sum(share * (size - mean) ** 2 for size, share in enumerate(shares))
        logs = [math.log(share) if share else -math.inf for share in shares]
        return cls.of_moments(max(mean, 0.1), max(variance, 0.1), logs)

    def log_missing(self, free: Tensor, alpha: Tensor) -> Tensor:
        """Return log E[missing | n, alpha] for ``free`` ``[R]`` and clocks ``[R]``."""
        n, rest, k = free.float(), _log_rest(alpha), self.shape
        expected = (n + k).log() - (alpha + k / self.mean).log() + rest
        if not self.log_shares:
            return expected
        shown = (k + alpha * self.mean).log()  # n of them, over alpha^n, which is in all sums
        chance = torch.lgamma(n + k) - torch.lgamma(n + 1) - math.lgamma(k) + k * (math.log(k) - shown)
        chance = chance + n * (math.log(self.mean) - shown) + math.log(_UNSEEN)
        log_share, log_factorial = _tables(self.log_shares, free.device)
        size = torch.arange(len(log_share), device=free.device)
        missing = (size - free[:, None]).clamp(min=0)  # [R, sizes]
        ways = log_factorial - log_factorial[missing] - torch.lgamma(n + 1)[:, None]
        terms = log_share + ways + missing * rest[:, None] + math.log1p(-_UNSEEN)
        terms = terms.masked_fill(size < free[:, None], -torch.inf)
        number = torch.logaddexp((terms + missing.log()).logsumexp(1), chance + expected)
        return number - torch.logaddexp(terms.logsumexp(1), chance)


@lru_cache(maxsize=8)
def _tables(log_shares: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the logarithms of the shares and of the factorials of all sizes."""
    log_factorial = torch.lgamma(torch.arange(len(log_shares), dtype=torch.float64) + 1)
    return torch.tensor(log_shares, device=device), log_factorial.float().to(device)


class CountHead(nn.Module):
    """Count, then place: g_i = N share_i, with N the tokens missing in a region and a softmax over its gaps.

    The insertion loss of a region splits exactly into that of the count and that of the placement,
    sum_i (g_i - G_i log g_i) = N - (sum_i G_i) log N - sum_i G_i log share_i. The count starts from what the sizes of
    regions in the data say, whatever the tokens are (`SizeLaw`). The network adds log-linear corrections to it, from
    mean features of the gaps and from what is counted; but none on a blank canvas, where the data's own law of sizes
    leaves nothing to learn. So the length, which grows like dn = n / alpha dalpha while few tokens are there, does not
    hang on how well a network counts.

    Args:
        features: number of features of a gap.
        inner: width of the hidden layers.
        statistics: of the number of free tokens of a region in the data.

    >>> head = CountHead(features=4, inner=8, statistics=(10.0, 60.0))
    >>> nothing = torch.tensor([False, False])
    >>> regions = Regions.of(torch.tensor([0, 2]), given=nothing, shown=nothing)
    >>> for layer in head.last_layers:
    ...     _ = nn.init.zeros_(layer.weight), nn.init.zeros_(layer.bias)
    >>> head(torch.zeros(4, 4), torch.tensor([0.0, 0.5]), regions).detach()  # 10 in one gap, 2.9 in three
    tensor([10.0000,  0.9524,  0.9524,  0.9524])
    """

    def __init__(self, features: int, inner: int, statistics: Statistics) -> None:
        super().__init__()
        if isinstance(statistics, Mapping):
            laws = [SizeLaw.of_sizes(statistics[name]) for name in (_WHOLE, _BETWEEN)]
        else:
            mean, variance = statistics
            laws = [SizeLaw.of_moments(mean, variance)] * 2
        self.whole, self.between = laws
        self.place = _mlp(features, inner, 1)
        self.count = _mlp(features + 5, inner, 2)

    @property
    def last_layers(self) -> list[nn.Module]:
        """Return the layers that start at zero."""
        return [self.place[-1], self.count[-1]]

    def forward(self, features: Tensor, alpha: Tensor, regions: Regions) -> Tensor:
        """Map ``[G, features]`` and the clocks ``[B]`` to g ``[G]``."""
        features = features.to(next(self.place.parameters()).dtype)
        log_share = _log_softmax(self.place(features).squeeze(1).float(), regions)  # [G]
        log_count = self._log_count(features, alpha, regions).clamp(max=_LARGEST_LOG)
        return (log_share + log_count[regions.of_gap]).exp()

    def _log_count(self, features: Tensor, alpha: Tensor, regions: Regions) -> Tensor:
        """Return the logarithm of N for each region, ``[R]``."""
        alpha = alpha.float()[regions.sequence]
        free, rest, mean = regions.free.float(), _log_rest(alpha), self.between.mean
        counted = torch.stack(
            [
                torch.log1p(free),
                (alpha + 1 / mean).log(),
                rest.clamp(min=-7),
                torch.log1p(free) - torch.log1p(mean * alpha),
                1 / (1 + free),
            ],
            1,
        )  # [R, 5]
        start = self.between.log_missing(regions.free, alpha)
        if self.whole is not self.between:
            start = torch.where(regions.whole, self.whole.log_missing(regions.free, alpha), start)
        pooled = (regions.sum(features.float()) / (regions.free + 1)[:, None]).to(features.dtype)
        level, slope = self.count(torch.cat([pooled, counted.to(features.dtype)], 1)).float().unbind(1)
        slope = F.softplus(slope + _SOFTPLUS_ONE)  # 1 before training, never negative
        correction = level + (slope - 1) * rest
        return start + (correction.masked_fill(regions.blank, 0.0) if self.whole.log_shares else correction)


def insertion_head(
    features: int, inner: int, expected_gap: float, statistics: Statistics | None, log_head: bool = False
) -> GapHead | LogHead | CountHead:
    """Return a head that counts if something is known of the sizes of regions, else one that looks at each gap."""
    if statistics is None:
        return (LogHead if log_head else GapHead)(features, inner, expected_gap)
    return CountHead(features, inner, statistics)


def read_statistics(stored: Any) -> Statistics | None:
    """Return statistics as a configuration stores them; raise if they are none."""
    if isinstance(stored, Mapping):
        if set(stored) != {_WHOLE, _BETWEEN} or not all(min(shares) >= 0 < sum(shares) for shares in stored.values()):
            raise ValueError(f"regions must have shares of sizes for {_WHOLE} and {_BETWEEN}, got {stored}")
        return {name: list(shares) for name, shares in stored.items()}
    if stored is not None and not (len(stored) == 2 and min(stored) > 0):
        raise ValueError(f"regions must be a mean and a variance, both positive, got {stored}")
    return stored and list(stored)


def _mlp(features: int, inner: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(features, inner), nn.GELU(approximate="tanh"), nn.Linear(inner, outputs))


def _log_rest(alpha: Tensor) -> Tensor:
    return (1 - alpha.float()).clamp(min=_LEAST_REST).log()


def _log_softmax(logits: Tensor, regions: Regions) -> Tensor:
    """Normalise logits ``[G]`` over the gaps of each region."""
    count = len(regions.free)
    largest = logits.detach().new_full((count,), -torch.inf).scatter_reduce(0, regions.of_gap, logits.detach(), "amax")
    shifted = logits - largest[regions.of_gap]
    return shifted - regions.sum(shifted.exp()).log()[regions.of_gap]
