"""The spaced sampler: what is revealed together lies far apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flexmdm.canvas import Canvas
from flexmdm.denoiser import Prediction
from flexmdm.generation.policies import entropy, policy_named
from flexmdm.generation.turns import TurnsSampler
from flexmdm.randomness import StepRandomness
from flexmdm.sequences import Ragged

_SCREEN = 4.0  # a clean token between two masks stands for this many masks more


@dataclass(frozen=True)
class SpacedSampler(TurnsSampler):
    """Few evaluations, little bias: insertions and reveals take turns (see `TurnsSampler`), reveals in small groups.

    - *Spacing.* Of two masks closer than the smaller of their reaches only one is revealed in a step. Between two masks
      a mask counts 1 and a clean token, which screens them from each other, 5. A mask of entropy H nats has reach
      ``spacing`` * (1 - log H / log ``negligible``), at least 0: what f knows already depends on nothing.
    - *Few at a time.* Of n tokens at most n / steps are revealed together (``together``), or one; masks without reach
      are not counted. So the number of steps also bounds the error where distance does not help.
    - Highest scores of ``confidence`` first.

    Where it is biased: spacing takes distance for independence. Masks that depend on each other over more than
    ``spacing`` are drawn apart from each other when they fall into one group, and then do not fit: copies, mirror
    images, brackets. With more than n / 2 steps for n tokens there are no such groups. Insertions of one step see the
    same g: right on average and, where the length is known, exact; else lengths are right to second order in the step,
    so that lengths that are either small or large come out wrong in few steps. In the last step the missing tokens are
    rounded once more, which can leave one of several that come only together. ``negligible`` entropies are neglected.
    `benchmarks/results/coupled.md` has all of this in numbers.

    Exact as the number of grid steps goes to infinity, with ``negligible = 0``, whatever the other settings: p goes to
    0 and the number of masks revealed together to 1.

    What it owes to others: that groups should be non-adjacent to `DilatedSampler`'s source, that entropy tells what may
    be revealed at once to `EntropyBoundedSampler`'s.

    Attributes:
        spacing: the reach of a mask with an entropy of 1 nat.
        negligible: the entropy in nats below which a mask may be revealed with any other; 0: only if it is certain.
        grid, decoding, confidence, crowding, lag, together: of `TurnsSampler`.

    >>> from flexmdm import FiniteDistribution, Prompt, generate
    >>> from flexmdm.generation import Grid
    >>> denoiser = FiniteDistribution({(0, 1, 1): 1.0}, vocab_size=2).denoiser()
    >>> out = generate(denoiser, prompts=[Prompt.masks(3)], sampler=SpacedSampler(Grid(16)))
    >>> out.sequences, out.evaluations  # nothing is in doubt, so all is revealed at once
    ([[0, 1, 1]], [1])
    """

    together: float = 1.0
    spacing: float = 16.0
    negligible: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.spacing > 0:
            raise ValueError(f"spacing must be positive, got {self.spacing}")
        if not 0 <= self.negligible < 1:
            raise ValueError(f"negligible must be an entropy in [0, 1) nats, got {self.negligible}")

    def _chosen(self, canvas: Canvas, prediction: Prediction, due: Tensor, most: Tensor, rng: StepRandomness) -> Tensor:
        masks = canvas.masks
        if not bool((due > 0).any()) or not len(masks):
            return torch.zeros(len(masks), dtype=torch.bool, device=canvas.device)
        rows, columns = canvas.tokens.rows[masks], canvas.tokens.columns[masks]
        is_mask = canvas.tokens.with_values(canvas.is_mask).to_padded(False)  # [B, n]
        width = torch.where(is_mask, 1.0, 1.0 + _SCREEN).double()
        place = (width.cumsum(1) - width / 2)[rows, columns]  # [M]
        score = policy_named(self.confidence)(prediction.log_probs, canvas, rng).double()
        doubt = -entropy(prediction.log_probs.double(), canvas, rng)
        relative = doubt.clamp(min=1e-300).log() / math.log(max(self.negligible, 1e-300))
        reach = self.spacing * (1 - relative).clamp(min=0.0)
        number = canvas.num_masks
        padded = (Ragged(one, number).to_padded(fill) for one, fill in ((score, -math.inf), (place, 0.0), (reach, 0.0)))
        inside = torch.arange(int(number.max()), device=canvas.device) < number[:, None]  # [B, m], masks from the left
        return spaced_subset(*padded, due, most)[inside]


def spaced_subset(score: Tensor, position: Tensor, reach: Tensor, due: Tensor, most: Tensor) -> Tensor:
    """Choose the highest scores of each row that are out of reach of each other.

    It takes a round for each entry with reach that is chosen, in all rows at a time, and so at most ``most`` rounds.

    Args:
        score: ``[B, n]``, -inf where there is nothing to choose; -inf may not be a score.
        position: ``[B, n]``, where each entry lies.
        reach: ``[B, n]``; of two entries closer than the smaller of their reaches the lower score is left out.
        due: ``[B]``, how many are chosen at most.
        most: ``[B]``, how many of those with reach.

    >>> score = torch.tensor([[0.5, 0.9, 0.1, 0.4]])
    >>> position, reach = torch.arange(4.0)[None], torch.tensor([[3.0, 3.0, 0.0, 2.0]])
    >>> spaced_subset(score, position, reach, torch.tensor([9]), torch.tensor([9]))
    tensor([[False,  True,  True,  True]])
    >>> spaced_subset(score, position, reach, torch.tensor([9]), torch.tensor([1]))
    tensor([[False,  True,  True, False]])
    """
    chosen = (reach <= 0) & (score > -math.inf)  # nothing is within reach of these
    left = score.masked_fill(chosen | (due <= 0)[:, None], -math.inf)
    for number in range(min(int(torch.minimum(due, most).max()), score.shape[1])):
        left = left.masked_fill((most <= number)[:, None], -math.inf)
        best, where = left.max(1, keepdim=True)  # [B, 1]
        if not bool((best > -math.inf).any()):
            break
        near = (position - position.gather(1, where)).abs() < torch.minimum(reach, reach.gather(1, where))
        chosen |= torch.zeros_like(chosen).scatter_(1, where, best > -math.inf)
        left = left.masked_fill(near.scatter_(1, where, True), -math.inf)
    order = score.masked_fill(~chosen, -math.inf).argsort(dim=1, descending=True, stable=True)
    return chosen & (order.argsort(1) < due[:, None])
