"""Insertions and reveals take turns: what samplers share that choose by a rule of their own what to reveal together."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flexmdm.canvas import Canvas
from flexmdm.denoiser import Prediction
from flexmdm.generation.decoding import Decoding
from flexmdm.generation.policies import Policy, policy_named
from flexmdm.generation.samplers import Grid, reveal
from flexmdm.randomness import StepRandomness

_ROUNDING = 1e-9  # a sum of means that should be a whole number may end a little short of it
_SURE, _LAST = 0.1, 0.25  # tokens from a whole number; the share of the last grid step that is left for a second one
_FINEST = 64  # a crowded step is never shorter than this fraction of a grid step, so that generation ends


@dataclass(frozen=True)
class TurnsSampler:
    """A step either inserts or reveals; a subclass says which masks are revealed together.

    By the any-order theorem reveals are free: which masks, and at which clock, as long as the choice does not look at
    the drawn tokens. Insertions are not free, their rate per unit of alpha is g_i(x, alpha) / (1 - alpha). Hence:

    - *Inserting.* The clock goes from alpha to alpha', the next point of the grid, and of the missing tokens a share
      p = (alpha' - alpha) / (1 - alpha) is inserted: gap i gets p g_i masks on average, which is right for any p. The
      means g_i of a sequence are rounded with one random number, so that the total is off by less than one; each of
      these tokens is then inserted with probability p. That is exact for a length that is known, and for any other one
      the next step makes up for what this one could not learn on its way (see `owed`). alpha' comes earlier if a gap
      would get more than ``crowding``: p max_i g_i <= ``crowding``. It depends on the prediction alone: a step that
      ended at a drawn insertion would bias the length. A canvas so grows by a bounded factor per step, however long it
      is to be.
    - *Revealing.* When there are more masks than if the reveals of the unmasking schedule had stopped ``lag`` grid
      steps ago, the clock stands still (so no insertion relies on a g that knows nothing of the new tokens), and masks
      are revealed until there are as many as the schedule leaves now.

    At alpha = 1, and without open gaps (MDM), only reveals remain; they do not wait for the grid.

    Attributes:
        grid: the clock never steps past its points.
        decoding: how tokens are drawn.
        confidence: which masks to reveal first: the name of a policy, or a function.
        crowding: the expected number of insertions that a gap may get in one step; ``inf`` for the bare grid.
        lag: how many grid steps the reveals may fall behind their schedule. ``inf`` reveals only when all is inserted:
            the fewest evaluations, for a denoiser that is also good at canvases of nothing but masks.
        together: how many grid steps' worth of masks may be revealed at once: of n tokens, ``together`` n / steps.
    """

    grid: Grid
    decoding: Decoding = Decoding()
    confidence: str | Policy = "random"
    crowding: float = 0.6
    lag: float = 4.0
    together: float = math.inf

    def __post_init__(self) -> None:
        policy_named(self.confidence)
        if not self.crowding > 0:
            raise ValueError(f"crowding must be a positive number of insertions per gap and step, got {self.crowding}")
        if not self.lag >= 0:
            raise ValueError(f"lag must be a number of grid steps from 0 up, or inf, got {self.lag}")
        if not self.together > 0:
            raise ValueError(f"together must be a positive number of grid steps, or inf, got {self.together}")

    def step(self, canvas: Canvas, prediction: Prediction, alpha: Tensor, rng: StepRandomness) -> tuple[Canvas, Tensor]:
        complete = (alpha >= 1) | (canvas.num_open == 0)
        clock = torch.where(complete, 0.0, alpha)  # what is complete has none
        expected, size, owing = self._recalled(canvas, prediction)
        going_on = canvas.memory_of_width(4)[:, 2] == 0  # the last step revealed
        due = torch.where(complete, canvas.num_masks, self._due(canvas, clock, going_on, rng))
        chosen = self._chosen(canvas, prediction, due, self._most(size), rng)
        revealing = torch.bincount(canvas.tokens.rows[canvas.masks[chosen]], minlength=len(canvas)) > 0
        ahead = torch.where(complete | revealing, clock, self._next_clock(canvas, prediction, clock))
        share = (ahead - clock) / (1 - clock)
        canvas = reveal(canvas, prediction, chosen, self.decoding, rng)
        chance = insertion_chance(expected - canvas.lengths, share, owing)
        paid = torch.where(share < 1, (chance - share) / (1 - share), 0.0) * (expected - canvas.lengths)
        memory = torch.stack([expected, size, share, owing - paid], 1)
        canvas = insert_rounded(canvas, prediction, chance, rng)
        return canvas.with_memory(memory), torch.where(complete, 1.0, ahead)

    def _chosen(self, canvas: Canvas, prediction: Prediction, due: Tensor, most: Tensor, rng: StepRandomness) -> Tensor:
        """Return ``[M]``, which to reveal: up to ``due`` ``[B]`` of a sequence, at ``most`` so many in doubt."""
        raise NotImplementedError(f"{type(self).__name__} must say which masks it reveals together")

    def _recalled(self, canvas: Canvas, prediction: Prediction) -> tuple[Tensor, Tensor, Tensor]:
        """Return, ``[B]`` each, the expected final length, the free tokens and given masks so far, and `owed`."""
        expected = canvas.lengths + canvas.open_gaps.sum(_missing(canvas, prediction))
        before, size, share, owing = canvas.memory_of_width(4).unbind(1)
        free = canvas.tokens.count(~canvas.given.values | canvas.is_mask)
        return expected, torch.maximum(size, free), owing + owed(expected - before, share)

    def _most(self, size: Tensor) -> Tensor:
        """Return ``[B]``, how many masks in doubt may be revealed together; at least one."""
        return (size * self.together / self.grid.steps).clamp(max=1e9).floor().long().clamp(min=1)

    def _next_clock(self, canvas: Canvas, prediction: Prediction, alpha: Tensor) -> Tensor:
        """Return ``[B]``, the next point of the grid, or where the fullest gap has got ``crowding`` insertions.

        Where the expected number of missing tokens is no whole number the last grid step is taken in two: of tokens
        that come only together, the first ones tell the second step how many belong to them.
        """
        schedule, steps = self.grid.interpolant.insertion, self.grid.steps
        missing = _missing(canvas, prediction)
        most = torch.zeros_like(alpha).scatter_reduce(0, canvas.open_gaps.rows, missing, "amax")
        if canvas.max_length is not None:  # nothing comes into a full canvas, so nothing crowds
            most = torch.where(canvas.lengths >= canvas.max_length, 0.0, most)
        crowded = alpha + (1 - alpha) * self.crowding / most.clamp(min=1e-300)
        soonest = schedule.value((schedule.inverse(alpha) + 1 / (_FINEST * steps)).clamp(max=1.0))
        leap = self.grid.leap(alpha)
        total = canvas.open_gaps.sum(missing)
        between = 1 - (1 - self.grid.alpha(torch.full_like(leap.last, steps - 1, dtype=torch.int64))) * _LAST
        unsure = leap.last & ((total - total.round()).abs() > _SURE) & (alpha < between - _ROUNDING)
        point = torch.where(leap.last, 1.0, leap.alpha)  # a schedule may end an ulp short of 1
        return torch.minimum(torch.where(unsure, between, point), torch.maximum(crowded, soonest))

    def _due(self, canvas: Canvas, alpha: Tensor, going_on: Tensor, rng: StepRandomness) -> Tensor:
        """Return ``[B]``, the number of masks to reveal now to be on schedule.

        None before the lag is used up; once it is, reveals are ``going_on`` ``[B]`` until there are none.
        """
        interpolant = self.grid.interpolant
        t = interpolant.insertion.inverse(alpha)
        before = (t - self.lag / self.grid.steps).clamp(min=0.0)
        masked, masked_before = interpolant.state_probabilities(torch.stack([t, before]))[1]
        since = alpha - interpolant.insertion.value(before)
        # The share of inserted tokens and given masks that is still masked, on schedule and with the lag.
        started = alpha > 0
        on_schedule = torch.where(started, masked / alpha, 1.0)
        behind = torch.where(started, (masked_before + since) / alpha, 1.0)
        masks, tokens = canvas.num_masks, canvas.tokens.count(~canvas.given.values | canvas.is_mask)
        everyone = torch.arange(len(canvas), device=canvas.device)
        excess = (masks - tokens * on_schedule).clamp(min=0.0)
        due = torch.floor(excess + rng.uniform("due", everyone)).long()  # rounded at random: right on average
        return torch.where(going_on | (masks > tokens * behind + 1e-9), due, 0)


def owed(surprise: Tensor, share: Tensor) -> Tensor:
    """Return how many insertions the next step owes to what the last one taught, ``[B]``.

    The expected final length M = len + sum_i g_i is a martingale. A step that inserts a ``share`` p of the missing
    tokens has the right mean, but learns nothing on its way. Had it known by how much its insertions would change M,
    the ``surprise``, half of it on average could have acted on that: p / 2 times the surprise is owed. With it a pair
    of steps is right to second order in p. Where the length is known nothing is ever owed.

    >>> owed(torch.tensor([0.0, -2.0]), torch.tensor([0.25, 0.25]))
    tensor([ 0.0000, -0.2500])
    """
    return torch.where(share > 0, share / 2 * surprise, 0.0)


def insertion_chance(missing: Tensor, share: Tensor, owing: Tensor) -> Tensor:
    """Return the chance of each of the ``missing`` tokens ``[B]`` to be inserted in a step that inserts a ``share``.

    That is the share, and what is owed comes on top: (1 - share) of it, as the share of it comes anyway.
    """
    more = torch.where((missing > 0) & (share > 0), (1 - share) * owing / missing.clamp(min=1e-300), 0.0)
    return (share + more).clamp(0.0, 1.0)


def insert_rounded(canvas: Canvas, prediction: Prediction, chance: Tensor, rng: StepRandomness) -> Canvas:
    """Insert ``chance`` * g masks on average in every open gap, ``chance`` ``[B]``, within the canvas's limits.

    How many tokens are missing is not known, only the means g. They are rounded all at once, by systematic sampling
    (Madow, 1949): along the cumulated means a token stands at u, u + 1, u + 2, ... with one uniform number u. So every
    gap, and every run of masks, keeps its mean, and the total is that of the means rounded up or down; where the length
    is known it is never missed. Each of these tokens is then inserted with probability ``chance``.
    """
    gaps = canvas.open_gaps
    everyone = torch.arange(len(canvas), device=canvas.device)
    cumulated = gaps.with_values(_missing(canvas, prediction)).to_padded(0.0).cumsum(1)  # [B, len + 1]
    until = torch.floor(cumulated + rng.uniform("missing", everyone)[:, None] + _ROUNDING).long()
    tokens = until.diff(dim=1, prepend=torch.zeros_like(until[:, :1]))[gaps.rows, gaps.columns]  # [N + B]
    gap = torch.arange(len(tokens), device=canvas.device).repeat_interleave(tokens)  # one row for each missing token
    rows = gaps.rows[gap]
    number = torch.arange(len(gap), device=canvas.device) - torch.searchsorted(rows, rows)  # among those of its row
    gap = gap[rng.uniform("insertion", rows, number) < chance[rows]]
    counts = torch.zeros_like(tokens).index_add(0, gap, torch.ones_like(gap))
    return canvas.insert_masks(canvas.within_limit(counts, rng))


def _missing(canvas: Canvas, prediction: Prediction) -> Tensor:
    """Return ``[N + B]``, the expected number of missing tokens of every gap; of a closed one 0."""
    return torch.where(canvas.open_gaps.values, prediction.insertions.values.double(), 0.0)
