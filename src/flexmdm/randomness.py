"""Counter-based random numbers: a hash of (seed, sequence, step, stream, slot).

Nothing is consumed in order, so a sequence comes out the same alone, in any batch and on any number of processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)
_BISECTION_ABOVE = 30.0
_LARGEST_RATE = 1e6  # of insertions in one gap: a denoiser that expects more is broken


# Integers are hashed as NumPy arrays where they are on the CPU, since for few of them PyTorch takes five times as long.
Integers = Any  # Tensor | np.ndarray: both know these operators


def _shifted(x: Integers, bits: int) -> Integers:
    """Shift int64 right logically (the operator's shift is arithmetic)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Integers) -> Integers:
    """Apply the finaliser of SplitMix64; int64 products wrap around."""
    x = (x ^ _shifted(x, 30)) * _FIRST
    x = (x ^ _shifted(x, 27)) * _SECOND
    return x ^ _shifted(x, 31)


def uniform(seed: int, *counters: Tensor | int, device: torch.device | str | None = None) -> Tensor:
    """Draw uniform float64 in (0, 1), one for each combination of the (broadcast) integer counters.

    >>> a = uniform(0, torch.arange(3), 7)
    >>> torch.equal(uniform(0, torch.tensor([2]), 7), a[2:])
    True
    """
    return _number(_absorbed(_seeded(seed, device), *counters))


def _array(x: Tensor) -> Any:
    return x.numpy() if x.device.type == "cpu" else x


@np.errstate(over="ignore")
def _seeded(seed: Tensor | int, device: torch.device | str | None) -> Any:
    """Return the state of the hash of a seed, or of several, before any counter."""
    if isinstance(seed, Tensor):
        return _mix(_array(seed) + _FIRST)
    return _mix(_array(torch.tensor((seed + (1 << 63)) % (1 << 64) - (1 << 63), device=device)) + _FIRST)


@np.errstate(over="ignore")
def _absorbed(state: Any, *counters: Tensor | int) -> Any:
    """Return the state after counters, mixed in one by one: none can stand in for another or for the seed."""
    for counter in counters:
        mixed = _mix(_array(counter.long()) + _GOLDEN) if isinstance(counter, Tensor) else _mixed(counter)
        state = _mix((state ^ mixed) + _SECOND)
    return state


@cache
def _mixed(counter: int) -> int:
    return int(_mix(torch.tensor(counter) + _GOLDEN))


def _number(state: Any) -> Tensor:
    bits = _shifted(state, 12)
    return ((bits if isinstance(bits, Tensor) else torch.from_numpy(np.asarray(bits))).double() + 0.5) * 2.0**-52


def stream(name: str) -> int:
    """Return a counter that keeps the numbers for one purpose apart from those for another."""
    return crc32(name.encode())


def hash_rows(rows: Tensor) -> Tensor:
    """Return ``[B]``, a 64-bit hash of each row of integers ``[B, k]``; equal rows have equal hashes."""
    multipliers = _mix(torch.arange(rows.shape[1], device=rows.device) + _GOLDEN)
    return _mix((rows.long() * multipliers).sum(1))


def poisson_quantile(u: Tensor, rate: Tensor) -> Tensor:
    """Return the smallest k with P(Poisson(rate) <= k) >= u, elementwise, int64."""
    rate = rate.double()
    if not bool(((rate >= 0) & (rate <= _LARGEST_RATE)).all()):
        raise ValueError(
            f"a Poisson rate must lie in [0, {_LARGEST_RATE:.0e}], got {float(rate.min())} to {float(rate.max())}"
        )
    count = torch.zeros_like(rate, dtype=torch.int64)
    small = (rate <= _BISECTION_ABOVE) & (u > torch.exp(-rate))
    (index,) = small.nonzero(as_tuple=True)
    mass = torch.exp(-rate[index])
    below = mass.clone()
    k = 0
    while index.numel():
        k += 1
        mass = mass * rate[index] / k
        below = below + mass
        count[index] = k
        # The sum of the masses ends a few ulp short of 1: a mass that no longer adds is past the end.
        going = (u[index] > below) & (mass > 1e-18)
        index, mass, below = index[going], mass[going], below[going]
    (large,) = (rate > _BISECTION_ABOVE).nonzero(as_tuple=True)
    if large.numel():
        count[large] = _poisson_bisection(u[large], rate[large])
    return count


def _poisson_bisection(u: Tensor, rate: Tensor) -> Tensor:
    low = torch.full_like(rate, -1.0)  # P(count <= low) < u <= P(count <= high)
    high = torch.ceil(rate + 12 * rate.sqrt() + 40)
    while bool((high - low > 1).any()):
        middle = torch.floor((low + high) / 2)
        enough = torch.special.gammaincc(middle + 1, rate) >= u
        high, low = torch.where(enough, middle, high), torch.where(enough, low, middle)
    return high.long()


@dataclass(frozen=True)
class StepRandomness:
    """The random numbers of one step of generation.

    Attributes:
        seed: of the whole generation, or of each sequence, ``[B]``.
        sequences: ``[B]`` int64, the identity of each sequence of the batch.
        step: how many steps these sequences have taken: one number for all, or ``[B]``.

    A draw names its ``purpose``, its ``rows`` (which sequence of the batch) and its ``slots`` (which
    position in that sequence): the same names give the same number.

    >>> rng = StepRandomness(seed=1, sequences=torch.tensor([4, 9]), step=0)
    >>> alone = StepRandomness(seed=1, sequences=torch.tensor([9]), step=0)
    >>> slots = torch.tensor([3])
    >>> bool(rng.uniform("token", torch.tensor([1]), slots) == alone.uniform("token", torch.tensor([0]), slots))
    True
    """

    seed: Tensor | int
    sequences: Tensor
    step: Tensor | int

    @cached_property
    def _state(self) -> Any:
        """Return ``[B]``, the hash of seed, sequence and step that all draws of a sequence begin with."""
        return _absorbed(_seeded(self.seed, self.sequences.device), self.sequences, self.step)

    def uniform(self, purpose: str, rows: Tensor, *slots: Tensor | int) -> Tensor:
        """Draw a uniform number in (0, 1) for each of ``rows`` ``[K]`` and ``slots`` ``[K]``, one or several."""
        return _number(_absorbed(_absorbed(self._state, stream(purpose))[_array(rows)], *(slots or (0,))))

    def poisson(self, purpose: str, rate: Tensor, rows: Tensor, slots: Tensor | int = 0) -> Tensor:
        """Draw Poisson counts with mean ``rate`` ``[K]``."""
        return poisson_quantile(self.uniform(purpose, rows, slots), rate)
