"""Insertion heads: from the features of each gap to g, the expected number of tokens still missing in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEAST_REST = 1e-6  # log(1 - alpha) stays finite at alpha = 1
_LARGEST_LOG = 20.0  # of a count: closed regions, which nothing teaches, must not overflow
_BOUND = 15.0  # of log g in a head of logarithms
_LARGEST_SHAPE = 1000.0  # of a negative-binomial law that is nearly Poisson
_SOFTPLUS_ONE = math.log(math.e - 1)  # softplus of this is 1


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions of a packed batch: stretches of gaps between given entries (all gaps, where nothing is given).

    Attributes:
        of_gap: ``[N + B]``, the region of each gap.
        sequence: ``[R]``, the sequence of each region.
        free: ``[R]``, the number of free entries in each region: one less than its gaps.

    >>> regions = Regions.of(torch.tensor([3, 0]), given=torch.tensor([False, True, False]))
    >>> regions.of_gap.tolist(), regions.free.tolist()
    ([0, 0, 1, 1, 2], [1, 1, 0])
    """

    of_gap: Tensor
    sequence: Tensor
    free: Tensor

    @classmethod
    def of(cls, lengths: Tensor, given: Tensor) -> Regions:
        """Return the regions of sequences with ``lengths`` ``[B]`` and flags ``given`` ``[N]``."""
        sequence = torch.arange(len(lengths), device=lengths.device)
        gaps = sequence.repeat_interleave(lengths + 1, output_size=len(given) + len(lengths))
        behind_entry = torch.ones_like(gaps, dtype=torch.bool)
        behind_entry[(lengths + 1).cumsum(0) - (lengths + 1)] = False  # the first gap of each sequence
        starts = torch.ones_like(behind_entry).masked_scatter(behind_entry, given.bool())
        of_gap = starts.long().cumsum(0) - 1
        sizes = torch.bincount(of_gap)
        return cls(of_gap, gaps[starts], sizes - 1)

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
    """g for each gap on its own: the exponential of a bounded number, whatever the clock.

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


class CountHead(nn.Module):
    """Count, then place: g_i = N share_i, with N the tokens missing in a region and a softmax over its gaps.

    The insertion loss of a region splits exactly into that of the count and that of the placement,
    sum_i (g_i - G_i log g_i) = N - (sum_i G_i) log N - sum_i G_i log share_i. The count starts from its mean under
    negative-binomial lengths, whatever the tokens: E[missing | n free, alpha] = (n + k) (1 - alpha) / (alpha + k / m)
    with mean m and shape k = m^2 / (variance - m). The network adds log-linear corrections to it, from mean features
    of the gaps and from what is counted. So the length, which grows like dn = n / alpha dalpha while few tokens are
    there, does not hang on how well a network counts.

    Args:
        features: number of features of a gap.
        inner: width of the hidden layers.
        mean, variance: of the number of free tokens of a region in the data.

    >>> head = CountHead(features=4, inner=8, mean=10.0, variance=60.0)
    >>> regions = Regions.of(torch.tensor([0, 2]), given=torch.tensor([False, False]))
    >>> for layer in head.last_layers:
    ...     _ = nn.init.zeros_(layer.weight), nn.init.zeros_(layer.bias)
    >>> head(torch.zeros(4, 4), torch.tensor([0.0, 0.5]), regions).detach()  # 10 in one gap, 2.9 in three
    tensor([10.0000,  0.9524,  0.9524,  0.9524])
    """

    def __init__(self, features: int, inner: int, mean: float, variance: float) -> None:
        super().__init__()
        self.mean = mean
        self.shape = min(mean**2 / max(variance - mean, mean**2 / _LARGEST_SHAPE), _LARGEST_SHAPE)
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
        free, rest = regions.free.float(), _log_rest(alpha)
        arrived = (alpha + self.shape / self.mean).log()
        counted = torch.stack(
            [
                torch.log1p(free),
                (alpha + 1 / self.mean).log(),
                rest.clamp(min=-7),
                torch.log1p(free) - torch.log1p(self.mean * alpha),
                1 / (1 + free),
            ],
            1,
        )  # [R, 5]
        pooled = (regions.sum(features.float()) / (regions.free + 1)[:, None]).to(features.dtype)
        level, slope = self.count(torch.cat([pooled, counted.to(features.dtype)], 1)).float().unbind(1)
        slope = F.softplus(slope + _SOFTPLUS_ONE)  # 1 before training, never negative
        return (free + self.shape).log() - arrived + level + slope * rest


def insertion_head(
    features: int, inner: int, expected_gap: float, regions: Sequence[float] | None, logarithmic: bool = False
) -> GapHead | LogHead | CountHead:
    """Return a head that counts if the mean and variance of the free tokens of a region are known, else one per gap.

    That per gap is ``logarithmic`` or a `GapHead`.
    """
    if regions is None:
        return (LogHead if logarithmic else GapHead)(features, inner, expected_gap)
    mean, variance = regions
    return CountHead(features, inner, mean, variance)


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
