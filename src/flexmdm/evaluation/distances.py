"""Measure how far samples are from the truth, and how far as many exact samples would be.

A *law* here is a tensor of probabilities: of the words of a finite distribution (`word_law`), of the lengths 0, 1, ...
(`length_law`) or of pairs of neighbours (`bigram_law`). Distances take two laws; the shorter one goes on with zeros. A
floor is the expected distance of n exact samples from the truth, in closed form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flexmdm.oracle import FiniteDistribution
from flexmdm.sequences import Ragged


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error; the errors of a difference of independent estimates add up in squares.

    >>> Estimate(1.5, 0.3) - Estimate(1.0, 0.4)
    Estimate(value=0.5, standard_error=0.5)
    """

    value: float
    standard_error: float

    def __sub__(self, other: Estimate) -> Estimate:
        return Estimate(self.value - other.value, math.hypot(self.standard_error, other.standard_error))


# Laws of samples ------------------------------------------------------------------------------------------------------


def word_law(samples: Ragged, source: FiniteDistribution, possible: Tensor | None = None) -> Tensor:
    """Return the share of each word of ``source`` among the samples, ``[S + 1]``; the last entry is everything else.

    A sample where ``possible`` ``[B]`` is false (it got stuck before its end) is no word, whatever it spells.

    >>> source = FiniteDistribution({(0,): 0.5, (0, 1): 0.5}, vocab_size=2)
    >>> word_law(Ragged.from_lists([[0], [0], [0, 1], [1]]), source)
    tensor([0.5000, 0.2500, 0.2500], dtype=torch.float64)
    """
    number = {word: index for index, word in enumerate(source.words)}
    found = torch.tensor([number.get(tuple(word), len(number)) for word in samples.tolist()], dtype=torch.int64)
    if possible is not None:
        found = torch.where(possible, found, len(number))
    return _shares(found, len(number) + 1)


def length_law(samples: Ragged) -> Tensor:
    """Return the share of the samples that have n tokens, ``[longest + 1]``.

    >>> length_law(Ragged.from_lists([[5], [6, 6], [7, 8]]))
    tensor([0.0000, 0.3333, 0.6667], dtype=torch.float64)
    """
    return _shares(samples.lengths, samples.max_length + 1)


def bigram_law(samples: Ragged, vocab_size: int) -> Tensor:
    """Return the share of each pair of neighbours u v among all pairs of all samples, ``[V * V]``, at u V + v.

    >>> bigram_law(Ragged.from_lists([[0, 1, 0], [1], [0, 1]]), vocab_size=2).view(2, 2)
    tensor([[0.0000, 0.6667],
            [0.3333, 0.0000]], dtype=torch.float64)
    """
    neighbours = samples.rows[1:] == samples.rows[:-1]
    pairs = samples.values[:-1] * vocab_size + samples.values[1:]
    return _shares(pairs[neighbours], vocab_size**2)


def _shares(index: Tensor, size: int) -> Tensor:
    return torch.bincount(index, minlength=size).double() / max(len(index), 1)


# Distances between laws -----------------------------------------------------------------------------------------------


def total_variation(p: Tensor, q: Tensor) -> float:
    """Return TV(p, q) = 1/2 sum_x |p(x) - q(x)|, for laws ``[K]`` and ``[K']``.

    >>> total_variation(torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.25, 0.25]))
    0.25
    """
    return float(_difference(p, q).abs().sum() / 2)


def wasserstein(p: Tensor, q: Tensor) -> float:
    """Return W1(p, q) = sum_n |P(n) - Q(n)|, P and Q the distribution functions of laws of lengths: in tokens.

    >>> wasserstein(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 0.0, 0.0, 1.0]))  # always 1, always 3
    2.0
    """
    return float(_difference(p, q).cumsum(0).abs().sum())


def kolmogorov_smirnov(p: Tensor, q: Tensor) -> float:
    """Return KS(p, q) = max_n |P(n) - Q(n)|, P and Q the distribution functions of laws of lengths.

    >>> kolmogorov_smirnov(torch.tensor([0.25, 0.75]), torch.tensor([0.5, 0.0, 0.5]))
    0.5
    """
    return float(_difference(p, q).cumsum(0).abs().max())


def _difference(p: Tensor, q: Tensor) -> Tensor:
    size = max(len(p), len(q))
    p, q = (torch.nn.functional.pad(law.double(), (0, size - len(law))) for law in (p, q))
    return p - q


# What exact samples would show ----------------------------------------------------------------------------------------


def total_variation_floor(law: Tensor, num_samples: int) -> float:
    """Return E TV(law of n exact samples, law) = 1/2 sum_x E|Binomial(n, p_x) / n - p_x|.

    >>> round(total_variation_floor(torch.tensor([0.5, 0.5]), 2), 4)  # 1/2, unless both words come up once
    0.25
    """
    return float(_mean_deviation(law, num_samples).sum() / 2)


def wasserstein_floor(law: Tensor, num_samples: int) -> float:
    """Return E W1(law of n exact samples, law) = sum_n E|Binomial(n, P(n)) / n - P(n)|, P the distribution function.

    >>> round(wasserstein_floor(torch.tensor([0.5, 0.5]), 2), 4)
    0.25
    """
    return float(_mean_deviation(law.double().cumsum(0).clamp(max=1.0), num_samples).sum())


def _mean_deviation(p: Tensor, num_samples: int) -> Tensor:
    """Return E|Binomial(n, p) / n - p| = 2 k C(n, k) p^k (1 - p)^(n - k + 1) / n, k = floor(n p) + 1 (de Moivre)."""
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, got {num_samples}")
    p = p.double()
    n = torch.tensor(float(num_samples), dtype=torch.float64)
    k = torch.floor(n * p) + 1
    log_choose = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma((n - k + 1).clamp(min=1))
    value = 2 * k / n * torch.exp(log_choose + torch.xlogy(k, p) + torch.xlogy(n - k + 1, 1 - p))
    return torch.where((p > 0) & (p < 1), value, 0.0)


# Probability ----------------------------------------------------------------------------------------------------------


def nats_per_token(log_prob: Tensor, lengths: Tensor) -> Estimate:
    """Return R = sum -log p(x) / sum len(x), over the samples that the source can produce.

    On exact samples this estimates the entropy rate H(x) / E[len(x)] of the source; what samples of another origin have
    more than that is their *excess*. The standard error is that of a ratio estimator:
    std(-log p(x) - R len(x)) / (sqrt(n) mean len(x)). Samples off the support, where ``log_prob`` ``[B]`` is -inf, are
    left out: report their share too.

    >>> exact = nats_per_token(torch.tensor([-2.0, -4.0, -3.0]), torch.tensor([1, 3, 2]))
    >>> sampled = nats_per_token(torch.tensor([-5.0, -7.0, -float("inf")]), torch.tensor([2, 3, 1]))
    >>> round((sampled - exact).value, 4)
    0.9
    """
    on_support = log_prob > -math.inf
    nats, lengths = -log_prob[on_support].double(), lengths[on_support].double()
    total = lengths.sum()
    rate = nats.sum() / total if total > 0 else math.nan
    deviation = (nats - rate * lengths).std() if len(nats) > 1 else math.nan
    return Estimate(float(rate), float(deviation * math.sqrt(len(nats)) / total))
