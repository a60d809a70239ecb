"""Schedules: how fast tokens are inserted (alpha) and revealed (beta) as t goes from 0 to 1."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from inspect import signature
from typing import ClassVar

import torch
from torch import Tensor

_LEAST_SLOPE = 1e-7  # of a power schedule, so that its value tells t to nine digits
_LEAST_EXPONENT = 1 / 3  # of a power schedule


def _in_unit_interval(x: Tensor | float, name: str) -> Tensor:
    x = x if isinstance(x, Tensor) and x.is_floating_point() else torch.as_tensor(x, dtype=torch.float64)
    if x.numel():
        least, most = map(float, torch.aminmax(x.detach()))
        if not (least >= 0 and most <= 1):  # also true for NaN
            raise ValueError(f"{name} must lie in [0, 1], got values from {least} to {most}")
    return x


class Schedule(ABC):
    """A smooth increasing function of t with value 0 at t = 0 and 1 at t = 1.

    ``value(t)`` is alpha_t (or beta_t), ``rest(t) = 1 - value(t)``, ``derivative(t)`` its time derivative,
    ``inverse(value(t)) == t``, and ``hazard(t) = derivative(t) / rest(t)`` the rate at which what has not happened yet
    happens.
    A schedule is stored as ``to_dict()`` and comes back by ``Schedule.from_dict``.

    >>> schedule = Schedule.from_dict({"name": "polynomial", "exponent": 2.0})
    >>> schedule.value(0.5), schedule.hazard(0.5)
    (tensor(0.2500, dtype=torch.float64), tensor(1.3333, dtype=torch.float64))
    >>> schedule.to_dict()
    {'name': 'polynomial', 'exponent': 2.0}
    """

    name: ClassVar[str]
    _known: ClassVar[dict[str, type[Schedule]]] = {}

    def __init_subclass__(cls) -> None:
        Schedule._known[cls.name] = cls

    def value(self, t: Tensor | float) -> Tensor:
        return self._value(_in_unit_interval(t, "t"))

    def derivative(self, t: Tensor | float) -> Tensor:
        return self._derivative(_in_unit_interval(t, "t"))

    def inverse(self, value: Tensor | float) -> Tensor:
        return self._inverse(_in_unit_interval(value, "a schedule's value"))

    def hazard(self, t: Tensor | float) -> Tensor:
        t = _in_unit_interval(t, "t")
        return self._derivative(t) / self._rest(t)

    def rest(self, t: Tensor | float) -> Tensor:
        """Return 1 - value(t), without cancellation near t = 1."""
        return self._rest(_in_unit_interval(t, "t"))

    @abstractmethod
    def _value(self, t: Tensor) -> Tensor: ...

    @abstractmethod
    def _derivative(self, t: Tensor) -> Tensor: ...

    @abstractmethod
    def _rest(self, t: Tensor) -> Tensor: ...

    @abstractmethod
    def _inverse(self, value: Tensor) -> Tensor: ...

    def to_dict(self) -> dict:
        return {"name": self.name, **vars(self)}

    @staticmethod
    def from_dict(stored: dict) -> Schedule:
        parameters = dict(stored)
        name = parameters.pop("name", None)
        if name not in Schedule._known:
            raise ValueError(f"unknown schedule {name!r}; the known ones are {', '.join(sorted(Schedule._known))}")
        try:
            return Schedule._known[name](**parameters)
        except TypeError as error:
            raise ValueError(f"schedule {name!r} does not take {parameters}: {error}") from None

    @staticmethod
    def parse(text: str) -> Schedule:
        """Return the schedule that a text names; numbers behind a colon are its parameters, in order.

        >>> Schedule.parse("cosine"), Schedule.parse("power:2.9"), Schedule.parse("geometric:0.1,3")
        (CosineSchedule(), PowerSchedule(exponent=2.9), GeometricSchedule(low=0.1, high=3.0))
        """
        name, _, numbers = text.partition(":")
        if name not in Schedule._known:
            return Schedule.from_dict({"name": name})  # raises
        names = list(signature(Schedule._known[name]).parameters)
        try:
            given = {names[i]: float(number) for i, number in enumerate(numbers.split(","))} if numbers else {}
        except (IndexError, ValueError):
            takes = " and ".join(names) or "no numbers"
            raise ValueError(f"{text!r} is no schedule: {name} takes {takes}; write power:2.9 or cosine") from None
        return Schedule.from_dict({"name": name, **given})


@dataclass(frozen=True)
class LinearSchedule(Schedule):
    """t, the paper's choice for both schedules.

    >>> LinearSchedule().value(0.25)
    tensor(0.2500, dtype=torch.float64)
    """

    name = "linear"

    def _value(self, t: Tensor) -> Tensor:
        return t

    def _derivative(self, t: Tensor) -> Tensor:
        return torch.ones_like(t)

    def _rest(self, t: Tensor) -> Tensor:
        return 1 - t

    def _inverse(self, value: Tensor) -> Tensor:
        return value


@dataclass(frozen=True)
class CosineSchedule(Schedule):
    """1 - cos(pi t / 2): slow at first.

    >>> CosineSchedule().value(1 / 3)
    tensor(0.1340, dtype=torch.float64)
    """

    name = "cosine"

    def _value(self, t: Tensor) -> Tensor:
        # The same function twice: without cancellation at 0, and exactly 1 at 1.
        return torch.where(t < 0.5, 2 * torch.sin(t * (math.pi / 4)) ** 2, 1 - torch.sin((1 - t) * (math.pi / 2)))

    def _derivative(self, t: Tensor) -> Tensor:
        return math.pi / 2 * torch.sin(t * (math.pi / 2))

    def _rest(self, t: Tensor) -> Tensor:
        return torch.sin((1 - t) * (math.pi / 2))

    def _inverse(self, value: Tensor) -> Tensor:
        return (torch.asin((value / 2).sqrt()) * (4 / math.pi)).clamp(max=1)


@dataclass(frozen=True)
class SineSchedule(Schedule):
    """sin(pi t / 2): fast at first.

    >>> SineSchedule().value(1 / 3)
    tensor(0.5000, dtype=torch.float64)
    """

    name = "sine"

    def _value(self, t: Tensor) -> Tensor:
        return torch.sin(t * (math.pi / 2))

    def _derivative(self, t: Tensor) -> Tensor:
        return math.pi / 2 * torch.sin((1 - t) * (math.pi / 2))

    def _rest(self, t: Tensor) -> Tensor:
        return 2 * torch.sin((1 - t) * (math.pi / 4)) ** 2

    def _inverse(self, value: Tensor) -> Tensor:
        return torch.asin(value) * (2 / math.pi)


@dataclass(frozen=True)
class PolynomialSchedule(Schedule):
    """t ** exponent.

    >>> PolynomialSchedule(exponent=3.0).value(0.5)
    tensor(0.1250, dtype=torch.float64)
    """

    exponent: float = 2.0
    name = "polynomial"

    def __post_init__(self) -> None:
        if not self.exponent > 0 or math.isinf(self.exponent):
            raise ValueError(f"the exponent of a polynomial schedule must be positive and finite, got {self.exponent}")

    def _value(self, t: Tensor) -> Tensor:
        return t**self.exponent

    def _derivative(self, t: Tensor) -> Tensor:
        return self.exponent * t ** (self.exponent - 1)

    def _rest(self, t: Tensor) -> Tensor:
        return -torch.expm1(self.exponent * t.log())

    def _inverse(self, value: Tensor) -> Tensor:
        return value ** (1 / self.exponent)


@dataclass(frozen=True)
class PowerSchedule(Schedule):
    """1 - (1 - t) ** exponent: exponents above 1 are fast at first, those below 1 fast at the end.

    A large exponent leaves so little at the end that alpha, whose distance from 1 is a multiple of 2 ** -53, would be
    rounded to 1 while tokens are still masked, and a clock that stands still tells no time. So the end is linear: 1 -
    alpha is never below a ten-millionth of 1 - t. That concerns less than one in ten million tokens, and every schedule
    samples the same law. Exponents are at least 1/3: below, t is rounded to 1 while tokens are still missing.

    >>> PowerSchedule(exponent=1.7).value(0.5)
    tensor(0.6922, dtype=torch.float64)
    >>> PowerSchedule(exponent=64.0).rest(0.5)  # not 5e-20
    tensor(5.0000e-08, dtype=torch.float64)
    """

    exponent: float = 2.0
    name = "power"

    def __post_init__(self) -> None:
        if not _LEAST_EXPONENT <= self.exponent < math.inf:
            raise ValueError(
                f"the exponent of a power schedule must be finite and at least {_LEAST_EXPONENT:.3f}, "
                f"got {self.exponent}"
            )

    def _value(self, t: Tensor) -> Tensor:
        rest = self._rest(t)
        return torch.where(rest > 0.5, -torch.expm1(self.exponent * torch.log1p(-t)), 1 - rest)

    def _derivative(self, t: Tensor) -> Tensor:
        slope = (1 - t) ** (self.exponent - 1)
        return torch.where(slope > _LEAST_SLOPE, self.exponent * slope, _LEAST_SLOPE)

    def _rest(self, t: Tensor) -> Tensor:
        return torch.maximum((1 - t) ** self.exponent, (1 - t) * _LEAST_SLOPE)

    def _inverse(self, value: Tensor) -> Tensor:
        left = torch.log1p(-value)
        return -torch.expm1(torch.minimum(left / self.exponent, left - math.log(_LEAST_SLOPE)))


@dataclass(frozen=True)
class EarlySchedule(PowerSchedule):
    """A power schedule whose exponent is 4 unless it is given: nearly all of it happens at the start.

    As an insertion schedule it sets the length first and leaves most of the time to the reveals.

    >>> EarlySchedule().value(0.5)
    tensor(0.9375, dtype=torch.float64)
    """

    exponent: float = 4.0
    name = "early"


@dataclass(frozen=True)
class GeometricSchedule(Schedule):
    """exp(-sigma(t)) with sigma falling geometrically from ``high`` to ``low``, rescaled to start at 0 and end at 1.

    >>> GeometricSchedule().value(torch.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """

    low: float = 1e-2
    high: float = 20.0
    name = "geometric"

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < math.inf:
            raise ValueError(f"a geometric schedule needs 0 < low < high, got low={self.low}, high={self.high}")

    @property
    def _range(self) -> tuple[float, float]:
        return math.exp(-self.high), math.exp(-self.low)

    def _sigma(self, t: Tensor) -> Tensor:
        return self.high * (self.low / self.high) ** t

    def _value(self, t: Tensor) -> Tensor:
        start, end = self._range
        value = ((torch.exp(-self._sigma(t)) - start) / (end - start)).clamp(0, 1)
        return torch.where(t == 1, 1.0, value)  # which rounding may miss

    def _derivative(self, t: Tensor) -> Tensor:
        start, end = self._range
        sigma = self._sigma(t)
        return torch.exp(-sigma) * sigma * math.log(self.high / self.low) / (end - start)

    def _rest(self, t: Tensor) -> Tensor:
        start, end = self._range
        rest = (-torch.expm1(self.low - self._sigma(t)) * end / (end - start)).clamp(0, 1)
        return torch.where(t == 1, 0.0, rest)

    def _inverse(self, value: Tensor) -> Tensor:
        start, end = self._range
        sigma = -torch.log(start + value * (end - start))
        return (torch.log(sigma / self.high) / math.log(self.low / self.high)).clamp(0, 1)
