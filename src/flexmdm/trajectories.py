"""The likelihood along whole trajectories from the prompt to the sequence: for few tokens, and for ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from flexmdm.alignment import Alignment, align
from flexmdm.canvas import Canvas, Template, runs_of_masks
from flexmdm.denoiser import Denoiser, Prediction, predict
from flexmdm.interpolants import FlexMDMInterpolant, assemble
from flexmdm.precision import float64_device
from flexmdm.quadrature import gauss_legendre
from flexmdm.sequences import Ragged

_LARGEST = 2**25  # numbers in a table of log-probabilities: masks x vocabulary
_NODES = 2  # of the quadrature between two events


@torch.no_grad()
def trajectory_nats(
    denoiser: Denoiser,
    x1: Ragged,
    template: Template | None = None,
    interpolant: FlexMDMInterpolant | None = None,
    num: int = 1,
    seed: int = 0,
    first: int = 0,
    nodes: int = _NODES,
) -> Tensor:
    """Return estimates of -log p_theta(x1) along ``num`` trajectories each, ``[B, num]``.

    A trajectory inserts and reveals the tokens of x1 one by one, at times that the interpolant draws. The model gives
    it a density, and so does the interpolant given x1; with Q and G marginalised over the embeddings, the logarithm of
    their ratio is

    sum_{reveals} log(Q_i(v) / f_i(v)) + sum_{insertions} log(G / g) + int alpha'/(1-alpha) sum_{runs} (g - G) dt.

    Its mean over the trajectories is the integral of `flexmdm.likelihood`. For an exact denoiser every single one gives
    -log p(x1), but for the quadrature in time: the states change, the probability of the whole does not. It takes
    about six evaluations for every token that is inserted, two for one that is only revealed.

    Args:
        denoiser: f and g.
        x1, template: clean sequences and the roles of their tokens; default: all free.
        interpolant: its schedules; default: those of the denoiser, else linear.
        num, seed, first: how many trajectories, and the seed and the number of the first. Trajectories of one number
            share their random numbers, token by token, so that sequences can be compared.
        nodes: clocks between two events at which g is asked for.

    >>> from flexmdm.oracle import FiniteDistribution
    >>> source = FiniteDistribution({(0,): 0.25, (0, 1, 0): 0.75}, vocab_size=2)
    >>> nats = trajectory_nats(source.denoiser(), Ragged.from_lists([[0], [0, 1, 0]]), num=2, nodes=9)
    >>> nats.neg().exp().round(decimals=4)
    tensor([[0.2500, 0.2500],
            [0.7500, 0.7500]], dtype=torch.float64)
    """
    interpolant = interpolant or getattr(denoiser, "interpolant", None) or FlexMDMInterpolant()
    template = Template.free(x1) if template is None else template
    device = float64_device(getattr(denoiser, "device", None) or x1.device)
    x1, template = x1.to(device), template.to(device)
    interpolant.check(x1, template, denoiser.mask_id)
    if not len(x1):
        return torch.zeros(0, num, dtype=torch.float64, device=device)
    again = torch.arange(len(x1), device=device).repeat_interleave(num)
    numbers = first + torch.arange(num, device=device).repeat(len(x1))
    steps = Steps.of(x1[again], template[again], numbers, interpolant, seed)
    nats = torch.zeros(len(again), dtype=torch.float64, device=device)
    for some in steps.split(_LARGEST // denoiser.vocab_size):
        nats.index_add_(0, some.path, _step_nats(denoiser, some, interpolant, nodes))
    return nats.view(len(x1), num)


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of trajectories: each a state of a sequence, its time, and the event that ends it.

    Attributes:
        x1, template: of each step, ``[S]``.
        path: ``[S]``, the number of its trajectory.
        begin, end: ``[S]``, the times between which the state stands; the last one of a trajectory ends at 1.
        token: ``[S]``, the token of x1 that the event is about; -1 where there is none.
        inserts: ``[S]`` bool, whether the event inserts it, and does not reveal it.
        there, clean: for every token of x1, whether it is in the state, and not as a mask.
    """

    x1: Ragged
    template: Template
    path: Tensor
    begin: Tensor
    end: Tensor
    token: Tensor
    inserts: Tensor
    there: Ragged
    clean: Ragged

    @classmethod
    def of(cls, x1: Ragged, template: Template, numbers: Tensor, interpolant: FlexMDMInterpolant, seed: int) -> Steps:
        """Return all steps of one trajectory of each sequence; ``numbers`` ``[B]`` are those of the trajectories."""
        inserted, revealed = interpolant.event_times(x1, template, numbers, seed)
        times = torch.stack([inserted, revealed], 1)  # [N, 2]
        which = (times > -torch.inf).flatten().nonzero().squeeze(1)
        path = torch.cat([x1.rows[which // 2], torch.arange(len(x1), device=x1.device)])  # and an end of each
        end = torch.cat([times.flatten()[which], times.new_full((len(x1),), torch.inf)])
        token = torch.cat([x1.columns[which // 2], torch.full_like(x1.lengths, -1)])
        inserts = torch.cat([which % 2 == 0, torch.zeros_like(x1.lengths, dtype=torch.bool)])
        order = torch.argsort(end, stable=True)
        order = order[torch.argsort(path[order], stable=True)]
        path, end, token, inserts = path[order], end[order], token[order], inserts[order]
        many = x1[path]
        until = end[many.rows]
        there, clean = (many.with_values(x1.with_values(time)[path].values < until) for time in (inserted, revealed))
        end = end.clamp(max=1.0)
        begin = torch.cat([end.new_zeros(1), end[:-1]])
        begin[torch.cat([torch.ones_like(inserts[:1]), path[1:] != path[:-1]])] = 0.0
        return cls(many, template[path], path, begin, end, token, inserts, there, clean)

    def __len__(self) -> int:
        return len(self.path)

    def __getitem__(self, which: slice | Tensor) -> Steps:
        return Steps(*(getattr(self, name)[which] for name in self.__dataclass_fields__))

    def split(self, masks: int) -> Iterator[Steps]:
        """Yield some steps at a time, of about so many ``masks``."""
        open_masks = self.there.count(self.there.values & ~self.clean.values) * (1 + _NODES) + 1
        part = (open_masks.cumsum(0) - 1) // max(masks, 1)
        for number in range(int(part[-1]) + 1 if len(part) else 0):
            if bool((part == number).any()):
                yield self[part == number]


def _step_nats(denoiser: Denoiser, steps: Steps, interpolant: FlexMDMInterpolant, nodes: int) -> Tensor:
    """Return what each step adds to -log p, ``[S]``."""
    canvas, _ = assemble(steps.x1, steps.template, steps.there.values, steps.clean.values, denoiser.mask_id)
    alignment = align(canvas, steps.x1, steps.template)
    begin, end = interpolant.insertion.value(steps.begin), interpolant.insertion.value(steps.end)
    event, growing = (steps.token >= 0).nonzero().squeeze(1), (canvas.num_open > 0).nonzero().squeeze(1)
    x, weight = gauss_legendre(nodes, device=canvas.device)
    width = (end - begin)[growing]
    alpha = begin[growing, None] + width[:, None] * x  # [growing, nodes]
    states = torch.cat([event, growing.repeat_interleave(nodes)])
    asked = canvas[states]
    prediction, possible = predict(denoiser, asked, torch.cat([end[event], alpha.flatten()]))
    is_event = torch.arange(len(states), device=canvas.device) < len(event)

    nats = torch.zeros(len(steps), dtype=torch.float64, device=canvas.device)
    expected = asked.open_gaps.sum(torch.where(asked.open_gaps.values, prediction.insertions.values.double(), 0.0))
    missing = canvas.open_gaps.sum(torch.where(canvas.open_gaps.values, alignment.gaps.values, 0.0))
    excess = (expected[~is_event].view(-1, nodes) - missing[growing, None]) / (1 - alpha)
    nats[growing] += width * (excess * weight).sum(1)
    nats[event] += _event_nats(prediction.of(asked, is_event), canvas, alignment, steps, event)
    impossible = torch.zeros_like(nats, dtype=torch.bool)
    impossible[states[~possible]] = True
    return torch.where(impossible, torch.inf, nats)


def _event_nats(prediction: Prediction, canvas: Canvas, alignment: Alignment, steps: Steps, event: Tensor) -> Tensor:
    """Return log(Q / f) or log(G / g) of the event of each of the states ``event`` ``[E]``, which are predicted."""
    inserts = steps.inserts[event]
    ahead = steps.there.values & (steps.x1.columns < steps.token[steps.x1.rows])
    entry = steps.x1.count(ahead)[event]  # its entry in the state, or the gap that it comes into
    nats = torch.zeros(len(event), dtype=torch.float64, device=canvas.device)

    reveals = event[~inserts]
    value = steps.x1.values[steps.x1.offsets[reveals] + steps.token[reveals]]
    mask = (canvas.is_mask.long().cumsum(0) - 1)[canvas.tokens.offsets[reveals] + entry[~inserts]]
    posterior = (alignment.weights[mask] * (alignment.candidates[mask] == value[:, None])).sum(1)
    masks = canvas.num_masks
    rows = Ragged(torch.arange(int(masks[event].sum()), device=canvas.device), masks[event])  # of the prediction
    before = (masks.cumsum(0) - masks)[reveals]  # masks of all states ahead of its own
    log_f = prediction.log_probs[rows.offsets[:-1][~inserts] + mask - before, value].double()
    nats[~inserts] = posterior.log() - log_f

    runs, _ = runs_of_masks(canvas)
    gaps = canvas.open_gaps
    source = gaps.with_values(torch.arange(len(gaps.values), device=canvas.device))[event].values
    zeros = torch.zeros(len(gaps.values), dtype=torch.float64, device=canvas.device)
    expected = zeros.index_add(0, runs[source], prediction.insertions.values.double() * gaps.values[source])
    missing = zeros.index_add(0, runs, alignment.gaps.values * gaps.values)
    run = runs[(gaps.offsets[event] + entry)[inserts]]
    nats[inserts] = (missing[run] / expected[run]).log()
    return nats
