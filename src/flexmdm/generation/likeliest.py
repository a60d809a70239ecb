"""The likeliest sampler: the most probable number of tokens for every gap, then the surest tokens first."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flexmdm.canvas import Canvas, rank_within
from flexmdm.denoiser import Prediction
from flexmdm.generation.decoding import Decoding
from flexmdm.generation.policies import top_prob
from flexmdm.generation.samplers import Grid, reveal
from flexmdm.randomness import StepRandomness

_LAST = 0.98  # the last clock that the insertion head is asked at
_NARROW, _EVERYWHERE = 0.5, 1e-3  # of the first guess: twice the least variance, and what is added to the bell
_ROUNDS = 200  # of the fit; so few that what the head leaves open stays even


@dataclass(frozen=True)
class LikeliestSampler:
    """Temperature 0 for insertions: no number is drawn, every open gap gets the number of tokens it most probably has.

    First the clock goes to 1 in ``grid.steps`` steps of its own, in which nothing changes and the insertion head is
    asked how many tokens are missing. That tells the chance of every number (see `number_law`). Then all masks are
    inserted at once, and revealed one by one, the surest first. In a sequence with several gaps their numbers are taken
    to be independent, given what is fixed.

    Made for short gaps whose filling has one right answer. It does not sample: the number is always the same. A number
    that is certain is found whatever its size. Of several possible ones more than a few tokens are counted only
    roughly, and as their chance is smeared over neighbours, a small number that is nearly as probable wins.

    Attributes:
        grid: how often the insertion head is asked; once tells nothing.
        decoding: how tokens are drawn.
        most: tokens per gap at most.

    >>> from flexmdm import FiniteDistribution, generate
    >>> denoiser = FiniteDistribution({(0,): 0.6, (1, 1, 1, 1): 0.4}, vocab_size=2).denoiser()  # 2.2 tokens on average
    >>> generate(denoiser, 3, sampler=LikeliestSampler(Grid(16))).sequences
    [[0], [0], [0]]
    """

    grid: Grid
    decoding: Decoding = Decoding()
    most: int = 64

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ValueError(f"most must be at least 1 token per gap, got {self.most}")

    def step(self, canvas: Canvas, prediction: Prediction, alpha: Tensor, rng: StepRandomness) -> tuple[Canvas, Tensor]:
        clocks = self._clocks(alpha)
        complete = (alpha >= 1) | (canvas.num_open == 0)
        following = torch.searchsorted(clocks, alpha + 1e-9, right=True)  # [B], of the next clock
        expected = self._remember(canvas, prediction, following - 1)
        ask_again = ~complete & (following < len(clocks))
        counts = self._numbers(canvas, expected, clocks, ~complete & ~ask_again)
        masks = canvas.masks
        rows = canvas.tokens.rows[masks]
        surest = rank_within(rows, -top_prob(prediction.log_probs, canvas, rng)) == 0
        canvas = reveal(canvas, prediction, surest & complete[rows], self.decoding, rng)
        canvas = canvas.insert_masks(canvas.within_limit(counts, rng))
        memory = expected.transpose(1, 2).flatten(1) if bool(ask_again.any()) else None  # gaps that come go behind
        return canvas.with_memory(memory), torch.where(ask_again, clocks[following.clamp(max=len(clocks) - 1)], 1.0)

    def _clocks(self, alpha: Tensor) -> Tensor:
        """Return clocks ``[K]`` from 0 on, ever farther apart: the more tokens a gap has, the sooner is its first."""
        later = torch.logspace(0, 1, self.grid.steps - 1, base=_LAST * 2 * self.most, dtype=torch.float64)
        return torch.cat([later.new_zeros(1), later / (2 * self.most)]).to(alpha.device)

    def _remember(self, canvas: Canvas, prediction: Prediction, number: Tensor) -> Tensor:
        """Return ``[B, K, G]``, the expected missing tokens of all gaps so far; those of now at ``number`` ``[B]``."""
        missing = canvas.open_gaps.with_values(prediction.insertions.values.double()).to_padded(0.0)
        if canvas.memory is None:
            expected = missing.new_zeros(len(canvas), self.grid.steps, missing.shape[1])
        else:
            expected = canvas.memory.view(len(canvas), -1, self.grid.steps).transpose(1, 2)
            wider = max(missing.shape[1] - expected.shape[2], 0)  # others in the batch may have grown
            expected = torch.nn.functional.pad(expected, (0, wider)).clone()
        expected[torch.arange(len(canvas), device=expected.device), number, : missing.shape[1]] = missing
        return expected

    def _numbers(self, canvas: Canvas, expected: Tensor, clocks: Tensor, now: Tensor) -> Tensor:
        """Return ``[N + B]``, the likeliest number for open gaps of the sequences ``now`` ``[B]``, 0 for all others."""
        gaps = canvas.open_gaps
        counts = torch.zeros_like(gaps.values, dtype=torch.int64)
        chosen = gaps.values & now[gaps.rows]
        if not bool(chosen.any()):
            return counts
        law = number_law(expected[gaps.rows[chosen], :, gaps.columns[chosen]], clocks, self.most)
        if canvas.limits is not None:
            space, room = canvas.spaces(canvas.limits)
            numbers = torch.arange(self.most + 1, device=law.device)
            law = law.masked_fill(numbers > room[space][chosen, None], -1.0)
        counts[chosen] = law.argmax(1)
        return counts


def number_law(missing: Tensor, clocks: Tensor, most: int, rounds: int = _ROUNDS) -> Tensor:
    """Return the law of the number of missing tokens, ``[G, most + 1]``, from its mean while a gap stays empty.

    A gap of n tokens is still empty at the clock alpha with chance z^n, z = 1 - alpha: each token has an even time of
    its own. So the gap stays empty with chance S(z) = E[z^n], and while it does, g = E[n z^n] / E[z^n] =
    d log S / d log z. The head's g along the clock therefore tells S, and S how probable it is that the first token
    comes between any two clocks. That is a mixture over n of z^n - z'^n, whose weights are found by the EM algorithm,
    from a bell of the right mean and variance on. Ill-posed for large n, where neighbours look the same: an end after
    few ``rounds`` leaves those as they were.

    Args:
        missing: ``[G, K]``, the insertion head's prediction for each gap at each clock.
        clocks: ``[K]``, ascending from 0 to less than 1.
        most: the largest number.
        rounds: of the EM algorithm.

    >>> clocks, chance, n = torch.linspace(0, 0.99, 200).double(), torch.tensor([0.5, 0.0, 0.5]), torch.arange(3)
    >>> left = chance * (1 - clocks[:, None]) ** n
    >>> number_law(((left * n).sum(1) / left.sum(1))[None], clocks, most=2, rounds=5000).round(decimals=3)
    tensor([[0.5000, 0.0000, 0.5000]], dtype=torch.float64)
    """
    z = torch.cat([1 - clocks, clocks.new_zeros(1)])  # [K + 1]
    hazard = (missing[:, 1:] + missing[:, :-1]) / 2 * torch.log(z[:-2] / z[1:-1])  # trapezoids in log z
    empty = torch.exp(-hazard.cumsum(1))
    first = -torch.cat([torch.ones_like(empty[:, :1]), empty, torch.zeros_like(empty[:, :1])], 1).diff(dim=1)  # [G, K]
    chances = z[:-1, None] ** torch.arange(most + 1, device=z.device)  # [K, most + 1]
    parts = -torch.cat([chances, torch.zeros_like(chances[:1])]).diff(dim=0)  # a gap of no token never gets its first
    law = _first_guess(missing, clocks, most)
    for _ in range(rounds):
        law = law * ((first / (law @ parts.T).clamp(min=1e-300)) @ parts)
    return law


def _first_guess(missing: Tensor, clocks: Tensor, most: int) -> Tensor:
    """Return a law ``[G, most + 1]`` to begin with: a bell of mean g and variance dg / d log z at the first clock.

    A number that is certain has variance 0, and the bell is at it. A little is everywhere, for what is no bell.
    """
    begin = (missing > 0).long().argmax(1, keepdim=True).clamp(max=len(clocks) - 2)  # earlier ones may not be known
    mean, later = (missing.gather(1, begin + step) for step in (0, 1))
    variance = (mean - later) / torch.log((1 - clocks[begin]) / (1 - clocks[begin + 1]))
    numbers = torch.arange(most + 1, dtype=clocks.dtype, device=clocks.device)
    bell = torch.exp(-((numbers - mean) ** 2) / (2 * variance.clamp(min=0.0) + _NARROW)) + _EVERYWHERE
    return bell / bell.sum(1, keepdim=True)
