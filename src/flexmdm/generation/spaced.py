"""The spaced sampler: insertions and reveals take turns, and what is revealed together lies far apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flexmdm.canvas import Canvas, runs_of_masks
from flexmdm.denoiser import Prediction
from flexmdm.generation.decoding import Decoding
from flexmdm.generation.policies import Policy, entropy, policy_named
from flexmdm.generation.samplers import Grid, reveal
from flexmdm.randomness import StepRandomness

_SCREEN = 4.0  # a clean token between two masks stands for this many masks more
_FINEST = 64  # a crowded step is never shorter than this fraction of a grid step, so that generation ends


@dataclass(frozen=True)
class SpacedSampler:
    """Few evaluations, little bias: a step either inserts or reveals, and what it does together is nearly independent.

    By the any-order theorem reveals are free: which masks, and at which clock, as long as the choice does not look at
    the drawn tokens. Insertions are not free, their rate per unit of alpha is g_i(x, alpha) / (1 - alpha). Hence:

    - *Inserting.* The clock goes from alpha to alpha' and gap i gets p g_i masks on average, p = (alpha' - alpha) /
      (1 - alpha), the right mean for any p: Poisson, or one at most next to a clean token where g_i <= 1. alpha' is the
      next point of the grid, or earlier if a gap would get more than ``crowding``: p max_i g_i <= ``crowding``. It
      depends on the prediction alone: a step that ended at a drawn insertion would bias the length. A canvas so grows
      by a bounded factor per step, however long it is to be. The second of two such steps corrects the rates for what
      the first has shown, so that the length has the right spread too.
    - *Revealing.* When there are more masks than if the reveals of the unmasking schedule had stopped ``lag`` grid
      steps ago, the clock stands still (so no insertion relies on a g that knows nothing of the new tokens), and masks
      are revealed until there are as many as the schedule leaves now, the highest scores of ``confidence`` first.
    - *Spacing.* Of two masks closer than the smaller of their reaches only one is revealed in a step. Between two masks
      a mask counts 1 and a clean token, which screens them from each other, 5. A mask of entropy H nats has reach
      ``spacing`` * (1 - log H / log ``negligible``), at least 0: what f knows already depends on nothing.

    At alpha = 1, and without open gaps (MDM), only reveals remain; they do not wait for the grid.

    Exact as the number of grid steps goes to infinity, whatever the other settings: p goes to 0 and the number of masks
    revealed together to 1. With ``lag = inf``, and for MDM, everything is left for alpha = 1, which is exact as
    ``spacing`` goes to infinity with ``negligible = 0``.

    Attributes:
        grid: the clock never steps past its points.
        decoding: how tokens are drawn.
        confidence: which masks to reveal first: the name of a policy, or a function.
        spacing: the reach of a mask with an entropy of 1 nat.
        crowding: the expected number of insertions that a gap may get in one step; ``inf`` for the bare grid.
        lag: how many grid steps the reveals may fall behind their schedule. ``inf`` reveals only when all is inserted:
            the fewest evaluations, for a denoiser that is also good at canvases of nothing but masks.
        negligible: the entropy in nats below which a mask may be revealed with any other; 0: only if it is certain.

    >>> from flexmdm import FiniteDistribution, Prompt, generate
    >>> denoiser = FiniteDistribution({(0, 1, 1): 1.0}, vocab_size=2).denoiser()
    >>> out = generate(denoiser, prompts=[Prompt.masks(3)], sampler=SpacedSampler(Grid(16)))
    >>> out.sequences, out.evaluations  # nothing is in doubt, so all is revealed at once
    ([[0, 1, 1]], [1])
    """

    grid: Grid
    decoding: Decoding = Decoding()
    confidence: str | Policy = "random"
    spacing: float = 16.0
    crowding: float = 0.6
    lag: float = 4.0
    negligible: float = 0.05

    def __post_init__(self) -> None:
        policy_named(self.confidence)
        if not self.spacing > 0:
            raise ValueError(f"spacing must be positive, got {self.spacing}")
        if not self.crowding > 0:
            raise ValueError(f"crowding must be a positive number of insertions per gap and step, got {self.crowding}")
        if not self.lag >= 0:
            raise ValueError(f"lag must be a number of grid steps from 0 up, or inf, got {self.lag}")
        if not 0 <= self.negligible < 1:
            raise ValueError(f"negligible must be an entropy in [0, 1) nats, got {self.negligible}")

    def step(self, canvas: Canvas, prediction: Prediction, alpha: Tensor, rng: StepRandomness) -> tuple[Canvas, Tensor]:
        complete = (alpha >= 1) | (canvas.num_open == 0)
        clock = torch.where(complete, 0.0, alpha)  # what is complete has none
        due = torch.where(complete, canvas.num_masks, self._due(canvas, clock, rng))
        chosen = self._chosen(canvas, prediction, due, rng)
        revealing = torch.bincount(canvas.tokens.rows[canvas.masks[chosen]], minlength=len(canvas)) > 0
        ahead = torch.where(complete | revealing, clock, self._next_clock(canvas, prediction, clock))
        boost, memory = _second_order(canvas, prediction, clock, ahead - clock)
        canvas = reveal(canvas, prediction, chosen, self.decoding, rng)
        canvas = _insert(canvas, prediction, (ahead - clock) / (1 - clock), boost, rng)
        return canvas.with_memory(memory), torch.where(complete, 1.0, ahead)

    def _next_clock(self, canvas: Canvas, prediction: Prediction, alpha: Tensor) -> Tensor:
        """Return ``[B]``, the next point of the grid, or where the fullest gap has got ``crowding`` insertions."""
        schedule, steps = self.grid.interpolant.insertion, self.grid.steps
        missing = torch.where(canvas.open_gaps.values, prediction.insertions.values.double(), 0.0)
        most = torch.zeros_like(alpha).scatter_reduce(0, canvas.open_gaps.rows, missing, "amax")
        if canvas.max_length is not None:  # nothing comes into a full canvas, so nothing crowds
            most = torch.where(canvas.lengths >= canvas.max_length, 0.0, most)
        crowded = alpha + (1 - alpha) * self.crowding / most.clamp(min=1e-300)
        soonest = schedule.value((schedule.inverse(alpha) + 1 / (_FINEST * steps)).clamp(max=1.0))
        leap = self.grid.leap(alpha)
        ahead = torch.minimum(leap.alpha, torch.maximum(crowded, soonest))
        return torch.where(leap.last & (ahead >= leap.alpha), 1.0, ahead)  # a schedule may end an ulp short of 1

    def _due(self, canvas: Canvas, alpha: Tensor, rng: StepRandomness) -> Tensor:
        """Return ``[B]``, the number of masks to reveal now to be on schedule; none before the lag is used up."""
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
        return torch.where(masks > tokens * behind + 1e-9, due, 0)

    def _chosen(self, canvas: Canvas, prediction: Prediction, due: Tensor, rng: StepRandomness) -> Tensor:
        """Return ``[M]``, which masks to reveal, up to ``due`` ``[B]`` of each sequence, out of each other's reach."""
        masks = canvas.masks
        if not bool((due > 0).any()) or not len(masks):
            return torch.zeros(len(masks), dtype=torch.bool, device=canvas.device)
        rows, columns = canvas.tokens.rows[masks], canvas.tokens.columns[masks]
        is_mask = canvas.tokens.with_values(canvas.is_mask).to_padded(False)  # [B, n]
        width = torch.where(is_mask, 1.0, 1.0 + _SCREEN).double()
        position = width.cumsum(1) - width / 2
        score = torch.full_like(position, -math.inf)
        score[rows, columns] = policy_named(self.confidence)(prediction.log_probs, canvas, rng).double()
        doubt = -entropy(prediction.log_probs.double(), canvas, rng)
        reach = torch.zeros_like(position)
        relative = doubt.clamp(min=1e-300).log() / math.log(max(self.negligible, 1e-300))
        reach[rows, columns] = self.spacing * (1 - relative).clamp(min=0.0)
        return spaced_subset(score, position, reach, due)[rows, columns]


def _second_order(canvas: Canvas, prediction: Prediction, alpha: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factor of this step's insertion rates ``[B]``, and the rate and width to remember ``[B, 2]``.

    The rate a = sum_i g_i / (1 - alpha) is a martingale: a step with frozen rates has the right mean, but too little
    spread, since within it the insertions learn nothing from each other. So steps come in pairs (the theta-trapezoidal
    rule): the second, of width w' after one of width w, takes the rate ((w + w')^2 a' - (w^2 + w'^2) a) / (2 w w'),
    which doubles what the first has learned when w' = w, and makes the pair right to second order. A pair needs steps
    of similar width with nothing revealed in between, rates that differ by less than half, and a result that is no
    negative rate.
    """
    missing = torch.where(canvas.open_gaps.values, prediction.insertions.values.double(), 0.0)
    rate = canvas.open_gaps.sum(missing) / (1 - alpha)
    memory = rate.new_zeros(len(canvas), 2) if canvas.memory is None else canvas.memory
    before, narrow = memory.unbind(1)
    similar = (narrow > 0) & (width >= narrow / 4) & (width <= 4 * narrow) & ((rate - before).abs() <= before / 2)
    product = torch.where(similar, 2 * narrow * width, 1.0)
    later = ((narrow + width) ** 2 * rate - (narrow**2 + width**2) * before) / product
    paired = similar & (later >= 0) & (rate > 0)
    boost = torch.where(paired, later / rate.clamp(min=1e-300), 1.0)
    first = ~paired & (width > 0)
    return boost, torch.stack([rate, width], 1) * first[:, None]


def _insert(canvas: Canvas, prediction: Prediction, share: Tensor, boost: Tensor, rng: StepRandomness) -> Canvas:
    """Insert share * boost * g masks on average in every open gap (both ``[B]``), within the canvas's ``max_length``.

    Insertions anywhere in a run of masks lead to the same state, so runs are what counts. If m tokens are missing in a
    run, each of them is inserted in this step with probability ``share``, independently: a binomial number. m is not
    known, only its mean; taken as one of the two integers around it, it is right wherever the context tells what is
    missing, where a Poisson number often leads to a sequence that cannot be.
    """
    gaps = canvas.open_gaps
    missing = torch.where(gaps.values, prediction.insertions.values.double(), 0.0) * boost[gaps.rows]
    run, rows = runs_of_masks(canvas)  # [N + B], [R]
    mean = missing.new_zeros(len(rows)).index_add(0, run, missing)
    index = torch.arange(len(rows), device=canvas.device)
    number = index - torch.searchsorted(rows, rows)  # of the run in its sequence
    tokens = torch.floor(mean + rng.uniform("missing", rows, number)).long()  # [R]
    token = index.repeat_interleave(tokens)  # one row for each missing token
    order = torch.arange(len(token), device=canvas.device) - (tokens.cumsum(0) - tokens)[token]
    inserted = rng.uniform("insertion", rows[token], number[token], order) < share[rows[token]]
    token, order = token[inserted], order[inserted]
    # Which gap of the run: each in proportion to what it misses.
    ends = missing.cumsum(0)
    start = ends[torch.searchsorted(run, index)] - missing[torch.searchsorted(run, index)]
    at = start[token] + mean[token] * rng.uniform("gap", rows[token], number[token], order)
    where = torch.searchsorted(ends, at, right=True).clamp(max=len(ends) - 1)
    counts = torch.zeros_like(gaps.values, dtype=torch.int64).index_add(0, where, torch.ones_like(where))
    return canvas.insert_masks(canvas.within_limit(counts, rng))


def spaced_subset(score: Tensor, position: Tensor, reach: Tensor, most: Tensor) -> Tensor:
    """Choose the highest scores of each row that are out of reach of each other, at most ``most`` ``[B]`` of them.

    Args:
        score: ``[B, n]``, -inf where there is nothing to choose; -inf may not be a score.
        position: ``[B, n]``, where each entry lies.
        reach: ``[B, n]``; of two entries closer than the smaller of their reaches the lower score is left out.

    >>> score = torch.tensor([[0.5, 0.9, 0.1, 0.4]])
    >>> position, reach = torch.arange(4.0)[None], torch.tensor([[3.0, 3.0, 0.0, 2.0]])
    >>> spaced_subset(score, position, reach, torch.tensor([9]))
    tensor([[False,  True,  True,  True]])
    """
    chosen = (reach <= 0) & (score > -math.inf)  # nothing is within reach of these
    left = score.masked_fill(chosen, -math.inf)
    while bool((left > -math.inf).any()):  # one round for each mask that is chosen
        best, where = left.max(1, keepdim=True)  # [B, 1]
        near = (position - position.gather(1, where)).abs() < torch.minimum(reach, reach.gather(1, where))
        chosen |= torch.zeros_like(chosen).scatter_(1, where, best > -math.inf)
        left = left.masked_fill(near.scatter_(1, where, True), -math.inf)
    order = score.masked_fill(~chosen, -math.inf).argsort(dim=1, descending=True, stable=True)
    return chosen & (order.argsort(1) < most[:, None])
