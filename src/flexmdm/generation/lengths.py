"""The law of how many tokens a gap gets, as the insertion head has it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from flexmdm.canvas import Canvas, Prompt
from flexmdm.denoiser import Denoiser, predict
from flexmdm.precision import float64_device

_CLOCKS, _LAST = 24, 0.99  # how often the head is asked about each number of tokens, and the last clock
_EARLY = 2  # clocks are the denser, the earlier: many tokens come soon
_FINER = 16  # points of the integration for each clock
_STATES = 256  # states at a time
_FLAT = 1e-9  # a slope that is none
_REST = 5e-3  # chance of larger numbers that is left out


@torch.no_grad()
def length_laws(
    denoiser: Denoiser, prompts: Sequence[Prompt], most: int = 64, max_length: int | None = None
) -> list[list[float]]:
    """Return for the one open gap of each prompt the chances of 0, 1, 2, ... tokens to be inserted.

    While nothing is revealed, the number n of masks in the gap is a growth process: in the time tau = -log(1 - alpha)
    it goes up at the rate g_n(alpha), the tokens that the head expects beyond n. So p_n' = g_{n-1} p_{n-1} - g_n p_n,
    one number after the other, until less than one in 200 is left or ``most`` are reached. At the last clock, 0.99,
    what is missing comes. Exact for an exact denoiser, but for the integration.

    Args:
        denoiser: g.
        prompts: each with exactly one open gap; its limit is kept.
        most: the largest number.
        max_length: of a whole sequence.

    >>> from flexmdm import FiniteDistribution
    >>> denoiser = FiniteDistribution({(0, 1): 0.5, (0, 2, 2, 1): 0.5}, vocab_size=3).denoiser()
    >>> (law,) = length_laws(denoiser, [Prompt.infill([[0], [1]])])
    >>> [round(chance, 2) for chance in law]
    [0.5, 0.0, 0.5]
    """
    if any(sum(prompt.open_gaps) != 1 for prompt in prompts):
        raise ValueError("the law of lengths is that of one open gap, and a prompt has none or several")
    if not prompts:
        return []
    tau = -math.log1p(-_LAST) * torch.linspace(0, 1, _CLOCKS, dtype=torch.float64) ** _EARLY
    laws: list[list[float]] = [[] for _ in prompts]
    going = list(range(len(prompts)))
    arriving = None  # log of the rate at which each gets the n-th token, [P, F]
    coming = torch.zeros(len(prompts), dtype=torch.float64)  # chance that it comes at the last clock
    for number in range(most + 1):
        rate = _expected(denoiser, [prompts[i] for i in going], number, 1 - torch.exp(-tau), max_length)
        chance = _chance(rate, arriving, tau, number)  # log, [P, F]
        arriving = chance + _refined(rate).log()
        here = chance[:, -1].exp() + coming
        stays = here * (1 - rate[:, -1].clamp(max=1.0)) if number < most else here
        for i, one in zip(going, stays.tolist(), strict=True):
            laws[i].append(one)
        on = torch.tensor([sum(laws[i]) < 1 - _REST for i in going])
        coming, arriving = (here - stays)[on], arriving[on]
        going = [i for i, goes in zip(going, on.tolist(), strict=True) if goes]
        if not going:
            break
    return [[chance / sum(law) for chance in law] for law in laws]


def _expected(
    denoiser: Denoiser, prompts: Sequence[Prompt], number: int, clocks: Tensor, max_length: int | None
) -> Tensor:
    """Return how many tokens are expected beyond ``number`` masks in the open gap, ``[P, T]``."""
    device = float64_device(getattr(denoiser, "device", None) or "cpu")
    canvas = Canvas.of_prompts(prompts, denoiser.mask_id, max_length, device)
    canvas = canvas.insert_masks(canvas.open_gaps.values * number)
    full = torch.zeros_like(canvas.lengths, dtype=torch.bool) if max_length is None else canvas.lengths >= max_length
    again = torch.arange(len(prompts), device=device).repeat_interleave(len(clocks))
    parts = []
    for some in again.split(_STATES):
        alpha = clocks.to(device).repeat(len(prompts))[sum(map(len, parts)) :][: len(some)]
        prediction, possible = predict(denoiser, canvas[some], alpha)
        gaps = canvas[some].open_gaps
        found = gaps.sum(prediction.insertions.values.double() * gaps.values)
        parts.append(torch.where(possible & ~full[some], found, 0.0))  # what is full, or cannot be, does not go on
    return torch.cat(parts).view(len(prompts), -1).cpu()


def _refined(values: Tensor) -> Tensor:
    """Return values ``[..., T]`` with points between them on straight lines, ``[..., F]``."""
    points = (values.shape[-1] - 1) * _FINER + 1
    flat = values.reshape(-1, 1, values.shape[-1])
    return torch.nn.functional.interpolate(flat, points, mode="linear", align_corners=True).view(*values.shape[:-1], -1)


def _chance(rate: Tensor, arriving: Tensor | None, tau: Tensor, number: int) -> Tensor:
    """Return log p_n along the finer clock, ``[P, F]``, from its rate ``[P, T]`` and the logarithm of what arrives."""
    fine, step = _refined(rate), _refined(tau).diff()
    left = torch.nn.functional.pad(((fine[:, 1:] + fine[:, :-1]) / 2 * step).cumsum(1), (1, 0))  # int g
    if arriving is None:
        return -left
    inflow = arriving + left
    slope = inflow.diff(dim=1)  # the inflow is exponential between two points, and a power of tau at first
    slope = torch.where(slope.abs() < _FLAT, _FLAT, slope)
    parts = inflow[:, :-1] + (torch.expm1(slope) / slope).log()
    parts = torch.where(inflow[:, :-1].isinf(), inflow[:, 1:] - math.log(number), parts) + step.log()
    return torch.nn.functional.pad(parts.logcumsumexp(1), (1, 0), value=-torch.inf) - left
