"""The joint interpolant (x_t, s_t): how a clean sequence becomes a canvas at time t."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from flexmdm.canvas import Canvas, Role, Template, gaps_of
from flexmdm.precision import float64_device
from flexmdm.quadrature import gauss_legendre
from flexmdm.randomness import stream, uniform
from flexmdm.schedules import LinearSchedule, Schedule
from flexmdm.sequences import Ragged

_LAST = 1 - 2**-26  # the largest u whose time 1 - (1 - u)^2 is not rounded to 1, where hazards are infinite
_INSERT, _UNMASK, _TIME, _SHUFFLE = map(stream, ("insertion", "unmasking", "time", "shuffle"))


@dataclass(frozen=True, eq=False)
class InterpolantSample:
    """One draw of (x_t, s_t) for each clean sequence.

    Attributes:
        canvas: the states x_t.
        alpha: ``[B]``, the clock the network sees.
        t: ``[B]``.
        targets: the clean token behind each entry of the canvas.
        gaps: for each of the len(x_t) + 1 gaps, how many tokens are still missing in it, s_t[i] - s_t[i-1] - 1.
        kept: s_t, where in x1 each entry of the canvas comes from.
        x1: the clean sequences.
        template: their roles.

    >>> s = FlexMDMInterpolant().sample(Ragged.from_lists([[7, 8, 9]]), 1.0)
    >>> s.canvas.tokens.tolist(), s.targets.tolist(), s.gaps.tolist(), s.kept.tolist()  # at t = 1 all is there
    ([[7, 8, 9]], [[7, 8, 9]], [[0, 0, 0, 0]], [[0, 1, 2]])
    """

    canvas: Canvas
    alpha: Tensor
    t: Tensor
    targets: Ragged
    gaps: Ragged
    kept: Ragged
    x1: Ragged
    template: Template

    def to(self, device: torch.device | str) -> InterpolantSample:
        """Move to ``device``; ``alpha`` and ``t`` to its `float64_device`: near 1 the hazards need all digits of t."""
        devices = dict.fromkeys(("alpha", "t"), float64_device(device))
        return InterpolantSample(*(getattr(self, f.name).to(devices.get(f.name, device)) for f in fields(self)))


@dataclass(frozen=True)
class FlexMDMInterpolant:
    """The joint interpolant of FlexMDM; with a template of present tokens only, that of MDM.

    A free token is inserted at T1 ~ alpha'_t dt and revealed at T2 ~ 1{t >= T1} beta'_t / (1 - beta_{T1}) dt: before T1
    it is not there, from T1 to T2 it is a mask, from T2 on it is clean. A present token has T1 = 0, a fixed one
    T1 = T2 = 0. s_t = {i : T1_i <= t}.

    >>> x1 = Ragged.from_lists([[0, 1, 2, 1], [2]])
    >>> s = FlexMDMInterpolant().sample(x1, torch.tensor([0.6, 0.6]), seed=17, mask_id=9)
    >>> s.canvas.tokens.tolist(), s.kept.tolist(), s.gaps.tolist()
    ([[0, 9, 1], [9]], [[0, 2, 3], [0]], [[0, 1, 0, 0], [0, 0]])
    >>> s.targets.tolist()
    [[0, 2, 1], [2]]
    """

    insertion: Schedule = LinearSchedule()
    unmasking: Schedule = LinearSchedule()

    def sample(
        self,
        x1: Ragged,
        t: Tensor | float,
        template: Template | None = None,
        seed: int = 0,
        mask_id: int = -1,
        sequences: Tensor | None = None,
    ) -> InterpolantSample:
        """Draw x_t and s_t given x1 at times ``t`` ``[B]`` (or one for all).

        Random numbers belong to a sequence by its number, ``sequences`` ``[B]`` int; default: its index in the batch.
        """
        template = Template.free(x1) if template is None else template
        t = torch.as_tensor(t, dtype=torch.float64, device=x1.device).expand(len(x1))
        if not bool(((t >= 0) & (t <= 1)).all()):
            raise ValueError(f"times must lie in [0, 1], got values from {float(t.min())} to {float(t.max())}")
        self.check(x1, template, mask_id)
        rows, columns = x1.rows, x1.columns
        names = rows if sequences is None else sequences[rows]
        inserted_alpha, revealed_beta = self._drawn(template, names, columns, seed)
        alpha, beta = self.insertion.value(t), self.unmasking.value(t)
        free, fixed = template.roles.values == Role.FREE, template.roles.values == Role.FIXED
        there = ~free | (inserted_alpha <= alpha[rows])
        clean = fixed | (there & (revealed_beta <= beta[rows]))

        canvas, kept = assemble(x1, template, there, clean, mask_id)
        return InterpolantSample(
            canvas, alpha, t, kept.with_values(x1.values[there]), _missing(kept, x1.lengths), kept, x1, template
        )

    def event_times(self, x1: Ragged, template: Template, sequences: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Return T1 and T2 of every token, ``[N]`` each: the states that `sample` gives a sequence as time goes on.

        Random numbers belong to a sequence by its number, ``sequences`` ``[B]`` int.
        """
        inserted_alpha, revealed_beta = self._drawn(template, sequences[x1.rows], x1.columns, seed)
        free, fixed = template.roles.values == Role.FREE, template.roles.values == Role.FIXED
        inserted = torch.where(free, self.insertion.inverse(inserted_alpha), -torch.inf)
        revealed = self.unmasking.inverse(revealed_beta)
        revealed = torch.maximum(revealed, torch.nextafter(inserted, inserted.new_tensor(torch.inf)))
        return inserted, torch.where(fixed, -torch.inf, revealed)

    def _drawn(self, template: Template, names: Tensor, columns: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Return alpha at the insertion and beta at the reveal of every token, ``[N]`` each."""
        inserted_alpha = uniform(seed, _INSERT, names, columns, device=names.device)
        start = torch.where(template.roles.values == Role.FREE, self.insertion.inverse(inserted_alpha), 0.0)  # T1
        beta_start = self.unmasking.value(start)
        return inserted_alpha, beta_start + (1 - beta_start) * uniform(
            seed, _UNMASK, names, columns, device=names.device
        )

    def state_probabilities(self, t: Tensor | float) -> tuple[Tensor, Tensor, Tensor]:
        """Return P(empty), P(mask) and P(clean) of a free token at times ``t``.

        P(mask) = int_0^t alpha'_u (1 - beta_t) / (1 - beta_u) du; with linear schedules -(1 - t) log(1 - t).

        >>> FlexMDMInterpolant().state_probabilities(torch.tensor([0.5], dtype=torch.float64))[1]
        tensor([0.3466], dtype=torch.float64)
        """
        t = torch.as_tensor(t, dtype=torch.float64)
        alpha = self.insertion.value(t)
        if self.insertion == self.unmasking == LinearSchedule():
            mask = -torch.special.xlog1py(1 - t, -t)
            return 1 - t, mask, t - mask
        # With 1 - u = (1 - t)^x the integrand stays smooth as t -> 1, and with x = y^4 as u -> 0.
        y, weight = gauss_legendre(200, device=t.device)
        log_rest = torch.log1p(-t.clamp(max=1 - 1e-15))[..., None]  # [..., 1]
        u = -torch.expm1(log_rest * y**4)
        survival = (self.unmasking.rest(t)[..., None] / self.unmasking.rest(u)).clamp(max=1)  # still masked at t
        integrand = self.insertion.derivative(u) * survival * (1 - u) * -log_rest * 4 * y**3
        mask = torch.where(t > 0, (integrand * weight).sum(-1), 0.0).minimum(alpha)
        return 1 - alpha, mask, alpha - mask

    def changed(
        self, insertion: Schedule | str | None = None, unmasking: Schedule | str | None = None
    ) -> FlexMDMInterpolant:
        """Return the same with other schedules, which may be named by texts; ``None`` stays.

        >>> FlexMDMInterpolant().changed(insertion="power:2.9")
        FlexMDMInterpolant(insertion=PowerSchedule(exponent=2.9), unmasking=LinearSchedule())
        """
        insertion, unmasking = (Schedule.parse(s) if isinstance(s, str) else s for s in (insertion, unmasking))
        return FlexMDMInterpolant(insertion or self.insertion, unmasking or self.unmasking)

    def to_dict(self) -> dict:
        return {"insertion": self.insertion.to_dict(), "unmasking": self.unmasking.to_dict()}

    @staticmethod
    def from_dict(stored: dict) -> FlexMDMInterpolant:
        return FlexMDMInterpolant(Schedule.from_dict(stored["insertion"]), Schedule.from_dict(stored["unmasking"]))

    @staticmethod
    def check(x1: Ragged, template: Template, mask_id: int) -> None:
        """Raise if the template is not one of these sequences, or they contain the mask."""
        if not torch.equal(template.roles.lengths, x1.lengths):
            raise ValueError(f"the template has lengths {template.roles.lengths.tolist()} but x1 {x1.lengths.tolist()}")
        if bool((x1.values == mask_id).any()):
            raise ValueError(
                f"clean data must not contain the mask id {mask_id}: the mask must be a token that no sequence has"
            )


def assemble(x1: Ragged, template: Template, there: Tensor, clean: Tensor, mask_id: int) -> tuple[Canvas, Ragged]:
    """Return x_t and s_t, given which tokens of x1 are ``there`` ``[N]`` and which of those are ``clean`` ``[N]``."""
    kept = x1.with_values(x1.columns).keep(there)
    tokens = kept.with_values(torch.where(clean, x1.values, mask_id)[there])
    given = kept.with_values(template.given[there])
    return Canvas(tokens, mask_id, given=given, open_gaps=_open_gaps(tokens, there, template)), kept


def _open_gaps(tokens: Ragged, there: Tensor, template: Template) -> Ragged:
    """Return which gaps of the canvas are open.

    The gap in front of an entry lies in the template's gap that the entry is in, the last one in the last gap.
    """
    gaps = torch.arange(tokens.values.shape[0] + len(tokens), device=tokens.device)
    last = tokens.offsets[1:] + torch.arange(len(tokens), device=tokens.device)
    source = torch.empty_like(gaps)
    source[last] = template.open_gaps.offsets[1:] - 1
    before_last = torch.ones_like(gaps, dtype=torch.bool)
    before_last[last] = False
    source[before_last] = template.token_gaps[there]
    return gaps_of(tokens, template.open_gaps.values[source])


def _missing(kept: Ragged, lengths: Tensor) -> Ragged:
    """Return s_t[i] - s_t[i-1] - 1 with s_t[-1] = -1 and s_t[len] = len(x1)."""
    gaps = gaps_of(kept, kept.values.new_empty(kept.values.shape[0] + len(kept)))
    left, right = torch.empty_like(gaps.values), torch.empty_like(gaps.values)
    first, last = gaps.columns == 0, gaps.columns == kept.lengths[gaps.rows]
    left[~first], left[first] = kept.values, -1
    right[~last], right[last] = kept.values, lengths
    return gaps.with_values(right - left - 1)


def sample_times(count: int, seed: int = 0, device: torch.device | str | None = None) -> tuple[Tensor, Tensor]:
    """Draw low-discrepancy times, and return the weights that make a mean over them an integral over [0, 1].

    The loss weighs its terms by 1 / (1 - t), which has infinite variance under uniform t. So t = 1 - (1 - u)^2 with one
    u drawn from each of ``count`` equal intervals, in random order; the weight is dt/du = 2 (1 - u).

    Returns:
        t, weight: ``[count]`` each, float64; mean(weight * h(t)) estimates the integral of h.

    >>> t, weight = sample_times(1000)
    >>> round(float((weight * t).mean()), 3)
    0.5
    """
    index = torch.arange(count, device=device)
    u = (index + uniform(seed, _TIME, index, device=device)) / max(count, 1)
    u = u[torch.argsort(uniform(seed, _SHUFFLE, index, device=device))].clamp(max=_LAST)
    return 1 - (1 - u) ** 2, 2 * (1 - u)
