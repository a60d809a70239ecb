"""The rate matrix of the paper, state by state: the exact law of the continuous-time chain of a small problem.

From a state x the chain reveals mask i as v at rate beta'/(1 - beta) f[i, v] and inserts a mask in gap i at rate
alpha'/(1 - alpha) g[i]. Nothing is ever taken back, so the states form a graph without cycles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flexmdm.canvas import Canvas, Prompt
from flexmdm.denoiser import Denoiser
from flexmdm.interpolants import FlexMDMInterpolant
from flexmdm.quadrature import gauss_legendre

_CELLS, _NODES = 24, 8  # intervals of time, and times in each of them, of the integration
_END = torch.tensor([1 - 1e-9, 1 - 1e-13], dtype=torch.float64)  # it ends at this alpha or beta, just short of 1


@dataclass(frozen=True, eq=False)
class StateSpace:
    """The K states that a chain can be in, and the E events (a reveal or an insertion) that lead from one to another.

    Attributes:
        states: K canvases; each comes before those it leads to.
        source: ``[E]``, the state in which an event happens.
        target: ``[E]``, the state it leads to; insertions anywhere in a run of masks have the same target.
        entry: ``[E]``, its index in f ``[M * V]`` followed by g ``[N + K]``, as predicted for all states at once.
    """

    states: Canvas
    source: Tensor
    target: Tensor
    entry: Tensor

    def total(self, flow: Tensor, end: Tensor) -> Tensor:
        """Return ``[..., K]``, the sum of ``flow`` ``[..., E]`` over the events of each ``end`` (source or target)."""
        return flow.new_zeros((*flow.shape[:-1], len(self.states))).index_add(-1, end, flow)


@torch.no_grad()
def reachable(
    denoiser: Denoiser, prompt: Prompt | None = None, max_length: int | None = None, most_states: int = 20_000
) -> StateSpace:
    """Return all states that events of positive rate lead to, from a prompt (default: from the empty sequence).

    >>> from flexmdm.oracle import FiniteDistribution
    >>> space = reachable(FiniteDistribution({(0,): 0.5, (1, 0): 0.5}, vocab_size=2).denoiser())
    >>> space.states.tokens.tolist()
    [[], [2], [0], [1], [2, 2], [1, 2], [2, 0], [1, 0]]
    """
    states = level = Canvas.of_prompts([prompt or Prompt.empty()], denoiser.mask_id, max_length)
    while len(following := _events(level, denoiser)[0]):
        level, _ = following.distinct()
        states = Canvas.cat([states, level])
        if len(states) > most_states:
            raise ValueError(f"more than {most_states} states can be reached: take a smaller source or a max_length")
    following, source, entry = _events(states, denoiser)
    _, which = Canvas.cat([states, following]).distinct()
    number = torch.empty_like(which).scatter(0, which[: len(states)], torch.arange(len(states)))
    return StateSpace(states, source, number[which[len(states) :]], entry)


def _events(canvas: Canvas, denoiser: Denoiser) -> tuple[Canvas, Tensor, Tensor]:
    """Return E canvases one event away, the state each comes from, and the event's index in f followed by g."""
    p = denoiser(canvas, torch.full((len(canvas),), 0.5, dtype=torch.float64))
    mask, token = (p.log_probs > -math.inf).nonzero(as_tuple=True)
    where = canvas.masks[mask]
    revealed = canvas[canvas.tokens.rows[where]]
    revealed = revealed.reveal(revealed.tokens.offsets[:-1] + canvas.tokens.columns[where], token)

    gaps = canvas.open_gaps
    room = canvas.lengths < (math.inf if canvas.max_length is None else canvas.max_length)
    (gap,) = (gaps.values & (p.insertions.values > 0) & room[gaps.rows]).nonzero(as_tuple=True)
    grown = canvas[gaps.rows[gap]]
    counts = torch.zeros_like(grown.open_gaps.values, dtype=torch.int64)
    counts[grown.open_gaps.offsets[:-1] + gaps.columns[gap]] = 1

    source = torch.cat([canvas.tokens.rows[where], gaps.rows[gap]])
    entry = torch.cat([mask * p.log_probs.shape[1] + token, p.log_probs.numel() + gap])
    return Canvas.cat([revealed, grown.insert_masks(counts)]), source, entry


def rate_matrix(space: StateSpace, denoiser: Denoiser, interpolant: FlexMDMInterpolant, t: float) -> Tensor:
    """Return R_t ``[K, K]`` with p_t' = p_t R_t: rates off the diagonal, minus the sum of its row on it.

    >>> from flexmdm.oracle import FiniteDistribution
    >>> denoiser = FiniteDistribution({(0,): 1.0}, vocab_size=1).denoiser()
    >>> rate_matrix(reachable(denoiser), denoiser, FlexMDMInterpolant(), 0.5)  # from [] to [mask] to [0]
    tensor([[-2.,  2.,  0.],
            [ 0., -2.,  2.],
            [ 0.,  0.,  0.]], dtype=torch.float64)
    """
    time = torch.tensor([t], dtype=torch.float64)
    reveal, insert = interpolant.unmasking.hazard(time), interpolant.insertion.hazard(time)
    rates = _rates(space, denoiser, interpolant.insertion.value(time), reveal, insert)[0]
    matrix = rates.new_zeros(len(space.states), len(space.states))
    matrix = matrix.index_put((space.source, space.target), rates, accumulate=True)
    return matrix - torch.diag(matrix.sum(1))


def _rates(space: StateSpace, denoiser: Denoiser, alpha: Tensor, reveal: Tensor, insert: Tensor) -> Tensor:
    """Return ``[T, E]``, ``reveal`` ``[T]`` times f or ``insert`` ``[T]`` times g, at the clock ``alpha`` ``[T]``."""
    times, size = len(alpha), len(space.states)
    p = denoiser(space.states[torch.arange(size).repeat(times)], alpha.repeat_interleave(size))
    f, g = p.log_probs.double().exp().view(times, -1), p.insertions.values.double().view(times, -1)
    return torch.cat([reveal[:, None] * f, insert[:, None] * g], 1)[:, space.entry]


@torch.no_grad()
def solve(space: StateSpace, denoiser: Denoiser, interpolant: FlexMDMInterpolant) -> Tensor:
    """Return the law at t = 1, ``[K]``, of the chain that starts in the first state: the end of p' = p R.

    With t = 1 - exp(-w^2) the hazards, infinite at t = 1, become smooth in w, and so do powers of t at t = 0. On each
    of a few intervals [a, b] of w, p(w) = p(a) e^{-L(w)} + int_a^w inflow(v) e^{L(v) - L(w)} dv at Gauss nodes, where L
    is the integral of a state's exit rate from a on. Without cycles, putting p into its own inflow as often as there
    can be events is exact. What is still masked at the end is revealed at alpha = 1, in random order.

    >>> from flexmdm.oracle import FiniteDistribution
    >>> denoiser = FiniteDistribution({(0,): 0.25, (1,): 0.75}, vocab_size=2).denoiser()
    >>> space = reachable(denoiser)  # [], [mask], [0], [1]
    >>> solve(space, denoiser, FlexMDMInterpolant())
    tensor([1.0000e-09, 0.0000e+00, 2.5000e-01, 7.5000e-01], dtype=torch.float64)
    """
    alpha, beta = interpolant.insertion, interpolant.unmasking
    last = torch.minimum(alpha.inverse(_END[0]), beta.inverse(_END[1])).clamp(max=float(_END[1]))
    size = torch.sqrt(-torch.log1p(-last)) / _CELLS
    node, integral = _integration()
    events = range(2 * space.states.tokens.max_length)  # an entry takes an insertion and a reveal
    law = torch.zeros(len(space.states), dtype=torch.float64)
    law[0] = 1.0
    for cell in range(_CELLS):
        w = (cell + node) * size
        t = -torch.expm1(-w * w)
        dt = 2 * w * (1 - t) * size
        rates = _rates(space, denoiser, alpha.value(t), beta.hazard(t) * dt, alpha.hazard(t) * dt)  # [T, E]
        left = integral @ space.total(rates, space.source)  # [T + 1, K]: L at the nodes and at b
        kernel = integral[:, :, None] * torch.exp(left[:-1] - left[:, None])  # [T + 1, T, K]
        p = stayed = torch.exp(-left) * law
        for _ in events:
            inflow = space.total(rates * p[:-1, space.source], space.target)  # [T, K]
            p = stayed + (kernel * inflow).sum(1)
        law = p[-1]

    one, masks = torch.ones(1, dtype=torch.float64), space.states.num_masks
    reveals = _rates(space, denoiser, one, one, 0 * one)[0] / masks[space.source].clamp(min=1)
    for _ in events:
        law = torch.where(masks == 0, law, 0.0) + space.total(reveals * law[space.source], space.target)
    return law


def _integration() -> tuple[Tensor, Tensor]:
    """Return Gauss nodes ``[T]`` of [0, 1], and the matrix ``[T + 1, T]`` of integrals from 0 to each node and to 1."""
    node, _ = gauss_legendre(_NODES)
    power = torch.arange(_NODES, dtype=torch.float64)
    upper = torch.cat([node, node.new_ones(1)])[:, None]
    return node, torch.linalg.solve(node[:, None] ** power, upper ** (power + 1) / (power + 1), left=False)
