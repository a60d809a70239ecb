"""Two published rules for what is revealed together, in the place of spacing: bounded entropy and dilated groups."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flexmdm.canvas import Canvas, rank_within
from flexmdm.denoiser import Prediction
from flexmdm.generation.policies import Policy, entropy, policy_named
from flexmdm.generation.turns import TurnsSampler
from flexmdm.randomness import StepRandomness

_SMALL = 1e-9  # nats by which a sum of entropies may be off


@dataclass(frozen=True)
class EntropyBoundedSampler(TurnsSampler):
    """Reveal the largest set whose summed entropy minus its largest stays within a bound, the surest masks first.

    The rule of "Accelerated Sampling from Masked Diffusion Models via Entropy Bounded Unmasking" (Ben-Hamu et al.,
    2025, arXiv 2505.24857): that difference bounds how much the tokens of the set can depend on each other. One mask is
    always within it. Insertions are those of `TurnsSampler`; with open gaps no more is revealed than the schedule
    leaves. Wherever tokens are in doubt it reveals about one at a time, also where they lie far apart.

    Attributes:
        bound: of the joint entropy, in nats.
        grid, decoding, confidence, crowding, lag, together: of `TurnsSampler`.

    >>> from flexmdm import FiniteDistribution, Prompt, generate
    >>> from flexmdm.generation import Grid
    >>> copies = FiniteDistribution({(0, 0): 0.5, (1, 1): 0.5}, vocab_size=2).denoiser()
    >>> out = generate(copies, 4, prompts=[Prompt.masks(2)], sampler=EntropyBoundedSampler(Grid(1)))
    >>> out.possible, out.evaluations
    ([True, True, True, True], [2, 2, 2, 2])
    """

    confidence: str | Policy = "entropy"
    bound: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.bound >= 0:
            raise ValueError(f"bound must be an entropy from 0 nats up, got {self.bound}")

    def _chosen(self, canvas: Canvas, prediction: Prediction, due: Tensor, most: Tensor, rng: StepRandomness) -> Tensor:
        rows = canvas.tokens.rows[canvas.masks]
        rank = rank_within(rows, -policy_named(self.confidence)(prediction.log_probs, canvas, rng))
        if not len(rows):
            return torch.zeros_like(rows, dtype=torch.bool)
        doubt = torch.zeros(len(canvas), int(rank.max()) + 1, dtype=torch.float64, device=canvas.device)
        doubt[rows, rank] = -entropy(prediction.log_probs.double(), canvas, rng)  # [B, m], in the order of the reveals
        within = doubt.cumsum(1) - doubt.cummax(1).values <= self.bound + _SMALL
        return within[rows, rank] & (rank < torch.minimum(due, most)[rows])


@dataclass(frozen=True)
class DilatedSampler(TurnsSampler):
    """Reveal groups of positions that are not neighbours: first far apart, then between these, and so on.

    The rule of "Plan for Speed: Dilated Scheduling for Masked Diffusion Language Models" (Luxembourg et al., 2025,
    arXiv 2506.19037) with base 2, for the whole canvas as one block: of all masks those at the multiples of the highest
    power of two, so that n masks take about 1 + log2 n evaluations, whatever the number of steps. Insertions are those
    of `TurnsSampler`, which move positions; with open gaps no more is revealed than the schedule leaves, the highest
    scores of ``confidence`` first. What depends on each other over some distance is drawn apart.

    Attributes:
        grid, decoding, confidence, crowding, lag, together: of `TurnsSampler`.

    >>> from flexmdm import FiniteDistribution, Prompt, generate
    >>> from flexmdm.generation import Grid
    >>> coins = FiniteDistribution({(0,) * 8: 0.5, (1,) * 8: 0.5}, vocab_size=2).denoiser()
    >>> out = generate(coins, prompts=[Prompt.masks(8)], sampler=DilatedSampler(Grid(1)), trace=True)
    >>> [[event.position for event in out.trace[0] if event.step == step] for step in range(4)]
    [[0], [4], [2, 6], [1, 3, 5, 7]]
    """

    def _chosen(self, canvas: Canvas, prediction: Prediction, due: Tensor, most: Tensor, rng: StepRandomness) -> Tensor:
        rows, columns = canvas.tokens.rows[canvas.masks], canvas.tokens.columns[canvas.masks]
        stride = torch.where(columns == 0, 2**62, columns & -columns)  # the largest power of two that divides it
        widest = torch.zeros_like(due).scatter_reduce(0, rows, stride, "amax")
        score = policy_named(self.confidence)(prediction.log_probs, canvas, rng).double()
        score = torch.where(stride == widest[rows], score, -torch.inf)
        return (score > -torch.inf) & (rank_within(rows, -score) < torch.minimum(due, most)[rows])
