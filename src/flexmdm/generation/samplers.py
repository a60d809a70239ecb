"""Samplers: one pure step from a canvas and its prediction to the next canvas, along the clock alpha."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from flexmdm.canvas import Canvas, rank_within
from flexmdm.denoiser import Prediction
from flexmdm.generation.decoding import Decoding
from flexmdm.generation.policies import Policy, policy_named
from flexmdm.interpolants import FlexMDMInterpolant
from flexmdm.randomness import StepRandomness

_ROUNDED = 1e-6  # of a step of the grid: a clock that is so close to a point has reached it


class Sampler(Protocol):
    """Anything with a pure ``step``.

    A step gets the states, the denoiser's prediction at ``alpha`` ``[B]``, and the random numbers of this step; it
    returns the new states and clocks. A sequence is finished when it has no mask left and its clock is 1 (or it has no
    open gap). At clock 1 a step may only reveal.
    """

    def step(
        self, canvas: Canvas, prediction: Prediction, alpha: Tensor, rng: StepRandomness
    ) -> tuple[Canvas, Tensor]: ...


@dataclass(frozen=True)
class Leap:
    """A step of the clock from alpha to ``alpha``, ``[B]`` each.

    Attributes:
        alpha: where the clock goes.
        insertions: (alpha' - alpha) / (1 - alpha): the share of the missing tokens inserted on the way.
        reveals: (beta' - beta) / (1 - beta): the share of the masks revealed on the way.
        last: whether the clock reaches 1.
    """

    alpha: Tensor
    insertions: Tensor
    reveals: Tensor
    last: Tensor


@dataclass(frozen=True)
class Grid:
    """``steps`` equal steps in time, seen from the clock alpha; a clock between two points goes to the next one.

    >>> leap = Grid(4).leap(torch.tensor([0.0, 0.6, 1.0]))
    >>> leap.alpha, leap.insertions
    (tensor([0.2500, 0.7500, 1.0000], dtype=torch.float64), tensor([0.2500, 0.3750, 0.0000], dtype=torch.float64))
    """

    steps: int
    interpolant: FlexMDMInterpolant = field(default_factory=FlexMDMInterpolant)

    def __post_init__(self) -> None:
        if not isinstance(self.steps, int) or self.steps < 1:
            raise ValueError(f"steps must be at least 1, and a whole number, got {self.steps!r}")

    @cached_property
    def _points(self) -> tuple[Tensor, Tensor]:
        """Return alpha at the points of the grid, ``[steps + 1]``, and from where on a clock has reached each of them.

        That is a little before it: a clock that came there is rounded, and must go on to the next one.
        """
        point = torch.arange(self.steps + 1, dtype=torch.float64)
        value = self.interpolant.insertion.value
        return value(point / self.steps), value((point - _ROUNDED).clamp(min=0) / self.steps)

    def following(self, alpha: Tensor) -> Tensor:
        """Return ``[B]``, the number of the next point of the grid for clocks ``alpha``; the last one is ``steps``."""
        reached = self._points[1].to(alpha.device)
        return torch.searchsorted(reached, alpha.double().contiguous(), right=True).clamp(max=self.steps)

    def alpha(self, point: Tensor) -> Tensor:
        """Return ``[B]``, alpha at these points."""
        return self._points[0].to(point.device)[point]

    def leap(self, alpha: Tensor) -> Leap:
        alpha = alpha.double()  # a clock in single precision would miss the points of the grid
        following = self.following(alpha)
        next_alpha = self.alpha(following)
        unmasking = self.interpolant.unmasking
        beta = unmasking.value(self.interpolant.insertion.inverse(alpha))
        next_beta = unmasking.value(following.double() / self.steps)
        done = alpha >= 1
        return Leap(
            alpha=next_alpha,
            insertions=torch.where(done, 0.0, (next_alpha - alpha) / (1 - alpha)),
            reveals=torch.where(done, 1.0, (next_beta - beta) / (1 - beta)),
            last=following >= self.steps,
        )


def reveal(canvas: Canvas, prediction: Prediction, chosen: Tensor, decoding: Decoding, rng: StepRandomness) -> Canvas:
    """Reveal the masks where ``chosen`` ``[M]`` is true with tokens drawn from the prediction."""
    where = canvas.masks[chosen]
    u = rng.uniform("token", canvas.tokens.rows[where], canvas.tokens.columns[where])
    return canvas.reveal(where, decoding.draw(prediction.log_probs[chosen], u))


def insert(canvas: Canvas, prediction: Prediction, share: Tensor, rng: StepRandomness) -> Canvas:
    """Insert Poisson(share * g) masks in every open gap, ``share`` ``[B]``, within the canvas's ``max_length``."""
    gaps = canvas.open_gaps
    rate = torch.where(gaps.values, prediction.insertions.values.double() * share[gaps.rows], 0.0)
    counts = rng.poisson("insertion", rate, gaps.rows, gaps.columns)
    return canvas.insert_masks(canvas.within_limit(counts, rng))


@dataclass(frozen=True)
class TauSampler:
    """Algorithm 1, vanilla inference by tau-leaping.

    A mask is revealed if the Poisson number of its unmasking events in the step is exactly 1, which has probability
    r exp(-r) with r = (beta' - beta) / (1 - beta); Poisson(g (alpha' - alpha) / (1 - alpha)) masks are inserted in
    every gap, from the same evaluation. Nothing is inserted in the last step; what is still masked then is revealed at
    alpha = 1 with one evaluation more. Without open gaps this is MDM's tau-leaping.

    >>> from flexmdm import FiniteDistribution, generate
    >>> denoiser = FiniteDistribution({(0, 1): 1.0}, vocab_size=2).denoiser()
    >>> generate(denoiser, 3, sampler=TauSampler(Grid(128))).sequences
    [[0, 1], [0, 1], [0, 1]]
    """

    grid: Grid
    decoding: Decoding = Decoding()

    def step(self, canvas: Canvas, prediction: Prediction, alpha: Tensor, rng: StepRandomness) -> tuple[Canvas, Tensor]:
        leap = self.grid.leap(alpha)
        masks = canvas.masks
        rows, columns = canvas.tokens.rows[masks], canvas.tokens.columns[masks]
        once = torch.where(alpha >= 1, 1.0, leap.reveals * torch.exp(-leap.reveals))
        chosen = rng.uniform("reveal", rows, columns) < once[rows]
        canvas = reveal(canvas, prediction, chosen, self.decoding, rng)
        canvas = insert(canvas, prediction, torch.where(leap.last, 0.0, leap.insertions), rng)
        return canvas, leap.alpha


@dataclass(frozen=True)
class AdaptiveSampler:
    """Algorithm 1 with adaptive unmasking: the K masks of highest confidence are revealed.

    K = min(eligible masks, Poisson((beta' - beta) / (1 - beta) * masks)). With ``window = (gamma1, gamma2)`` only the
    leftmost min(floor(gamma1 K), gamma2) masks are eligible. Insertions, last step and rest as in `TauSampler`.

    >>> from flexmdm import FiniteDistribution, generate
    >>> denoiser = FiniteDistribution({(0, 1): 1.0}, vocab_size=2).denoiser()
    >>> generate(denoiser, 3, sampler=AdaptiveSampler(Grid(128), confidence="entropy", window=(5.0, 64))).sequences
    [[0, 1], [0, 1], [0, 1]]
    """

    grid: Grid
    decoding: Decoding = Decoding()
    confidence: str | Policy = "top_prob"
    window: tuple[float, int] | None = None

    def __post_init__(self) -> None:
        policy_named(self.confidence)
        if self.window is not None and not (self.window[0] >= 1 and self.window[1] >= 1):
            raise ValueError(f"window must be (gamma1 >= 1, gamma2 >= 1), got {self.window}")

    def step(self, canvas: Canvas, prediction: Prediction, alpha: Tensor, rng: StepRandomness) -> tuple[Canvas, Tensor]:
        leap = self.grid.leap(alpha)
        masks, number = canvas.masks, canvas.num_masks
        rows = canvas.tokens.rows[masks]
        everyone = torch.arange(len(canvas), device=canvas.device)
        wanted = rng.poisson("number", leap.reveals * number, everyone)
        wanted = torch.where(alpha >= 1, number, torch.minimum(wanted, number))
        score = policy_named(self.confidence)(prediction.log_probs, canvas, rng)
        if self.window is not None:
            wide, most = self.window
            eligible = torch.clamp((wanted * wide).floor().long(), max=most)
            eligible = torch.where(alpha >= 1, number, eligible)
            inside = rank_within(rows, canvas.tokens.columns[masks]) < eligible[rows]
            score = torch.where(inside, score, float("-inf"))
            wanted = torch.minimum(wanted, eligible)
        chosen = rank_within(rows, -score) < wanted[rows]
        canvas = reveal(canvas, prediction, chosen, self.decoding, rng)
        canvas = insert(canvas, prediction, torch.where(leap.last, 0.0, leap.insertions), rng)
        return canvas, leap.alpha


@dataclass(frozen=True)
class LowConfidenceSampler:
    """LLaDA's sampler for MDM: semi-autoregressive blocks with low-confidence remasking.

    In each step a token is drawn for every mask of the current block, the ones drawn with the highest probability stay,
    the others are masked again. Blocks of ``block`` masks come from the left (if they do not divide the masks, the
    first is the short one); the steps are shared out evenly, at least one for each block. Because it ranks by the drawn
    token it is biased at temperature > 0: likely tokens are kept, unlikely ones thrown away.

    >>> from flexmdm import FiniteDistribution, Prompt, generate
    >>> denoiser = FiniteDistribution({(0, 1, 1): 1.0}, vocab_size=2).denoiser()
    >>> generate(denoiser, prompts=[Prompt.masks(3)], sampler=LowConfidenceSampler(Grid(3), block=2)).sequences
    [[0, 1, 1]]
    """

    grid: Grid
    decoding: Decoding = Decoding()
    block: int | None = None

    def __post_init__(self) -> None:
        if self.block is not None and self.block < 1:
            raise ValueError(f"block must be at least 1 token, got {self.block}")

    def step(self, canvas: Canvas, prediction: Prediction, alpha: Tensor, rng: StepRandomness) -> tuple[Canvas, Tensor]:
        if bool(canvas.open_gaps.values.any()):
            raise ValueError("low_confidence is a sampler for MDM: it needs a prompt without open gaps (Prompt.masks)")
        leap = self.grid.leap(alpha)
        masks, left = canvas.masks, canvas.num_masks
        rows, columns = canvas.tokens.rows[masks], canvas.tokens.columns[masks]
        steps_left = torch.round((1 - self.grid.interpolant.insertion.inverse(alpha)) * self.grid.steps).clamp(min=1)
        quota = torch.ceil(left / steps_left).long()
        # Blocks are counted from the right end, so the masks left tell how far the current block has come.
        block = left if self.block is None else torch.where(left > 0, (left - 1) % self.block + 1, left)
        drawn = self.decoding.draw(prediction.log_probs, rng.uniform("token", rows, columns))
        score = prediction.log_probs.gather(1, drawn[:, None]).squeeze(1)
        score = torch.where(rank_within(rows, columns) < block[rows], score, float("-inf"))
        chosen = rank_within(rows, -score) < torch.minimum(quota, block)[rows]
        return canvas.reveal(masks[chosen], drawn[chosen]), leap.alpha
