"""Draw the templates that a model is trained on: a mixture, so that one model samples, completes and infills.

What is learned is p(x1) P(template | x1), so whatever P depends on beyond what is given tilts what is generated. Here
the lengths of the fixed pieces are drawn without looking at the sequence. A sequence that is too short for them is
trained with its length known instead, where a preference for some lengths cancels. What follows a prefix, or fills a
single gap, then has the ordinary conditional law. With g > 1 gaps the free tokens are divided evenly at random, which
tilts that law by about (number of free tokens)^-(g - 1). Where the data marks regions, one of them is cut out, or all
together, each choice equally likely: what is learned of them is the law of what such a region holds.

In some of these sequences gaps have a least number of tokens, whose masks are there from the start. It is drawn without
looking either: if all gaps have as many or more, they stay open behind them; if not, the lengths of all are known.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from flexmdm.canvas import Role, Template
from flexmdm.randomness import stream, uniform
from flexmdm.sequences import Ragged

_KIND, _PIECE, _COUNT, _SHARE = stream("template"), stream("piece"), stream("number of gaps"), stream("share")
_HAS_LEAST, _LEAST = stream("whether gaps have a least number"), stream("least number")
_REGION = stream("region")
_UNCONDITIONAL, _PREFIX, _SPANS, _KNOWN, _REGIONS = range(5)
MOST_GAPS = 5
_PREFIX_LENGTH, _FIXED_LENGTH = 1 / 3, 1 / 2  # of a prefix, and of all fixed pieces together: means, of the mean length
_LEAST_SHARE = 1 / 3  # of the sequences with gaps: those whose gaps have a least number of tokens


@dataclass(frozen=True)
class Mixture:
    """Say how often each kind of template is drawn; the weights are relative."""

    unconditional: float = 0.5  # everything is free (the paper's setting is this alone)
    prefix: float = 0.15  # the first tokens are fixed
    spans: float = 0.3  # 1 to 5 gaps, some of them perhaps empty, before, between and behind fixed pieces
    known_length: float = 0.05  # nothing is fixed, but all masks are there from the start
    regions: float = 0.0  # marked regions are gaps, all else is fixed

    def __post_init__(self) -> None:
        if min(astuple(self)) < 0 or sum(astuple(self)) <= 0:
            raise ValueError(f"the weights of a mixture are not negative, and not all 0; got {self}")


def draw_templates(
    x1: Ragged, mixture: Mixture, mean_length: float, seed: int, numbers: Tensor, marks: Tensor | None = None
) -> Template:
    """Draw a template for every sequence; the ``mean_length`` of the data sets how long fixed pieces are.

    The randomness belongs to the sample numbers ``[B]``. The ``marks`` ``[B, R, 2]`` say where marked regions begin and
    end.

    >>> x1 = Ragged.from_lists([[1, 2, 3, 4]])
    >>> only = Mixture(unconditional=0, prefix=0, spans=1, known_length=0)
    >>> template = draw_templates(x1, only, mean_length=4.0, seed=0, numbers=torch.tensor([9]))
    >>> template.roles.tolist(), template.open_gaps.tolist()
    ([[0, 0, 0, 2]], [[True, False]])
    """
    shares = torch.tensor(astuple(mixture), dtype=torch.float64).cumsum(0)
    kind = torch.searchsorted(shares / shares[-1], uniform(seed, _KIND, numbers), right=True).clamp(max=_REGIONS)
    gaps = torch.where(kind == _SPANS, 1 + (MOST_GAPS * uniform(seed, _COUNT, numbers)).long(), 1)
    pieces = _pieces(kind, gaps, mean_length, seed, numbers)  # [B, 6]
    rest = x1.lengths - pieces.sum(1)
    kind = torch.where(rest < 0, _KNOWN, kind)
    # Gap j is free from begin[:, j] to end[:, j].
    divided = _divided(rest.clamp(min=0), gaps, seed, numbers)  # [B, 6], from 0 to the rest
    ahead = pieces.cumsum(1)[:, :-1]
    there = (torch.arange(MOST_GAPS) < gaps[:, None]) & (kind != _KNOWN)[:, None]
    begin, end = ahead + divided[:, :-1], ahead + divided[:, 1:]  # [B, 5]
    if marks is not None:
        cut = (kind == _REGIONS)[:, None]
        chosen, first, last = _chosen(marks, seed, numbers)
        there, begin, end = torch.where(cut, chosen, there), torch.where(cut, first, begin), torch.where(cut, last, end)
        sizes = torch.where(chosen, last - first, 0)
        ahead = torch.where(cut, first - sizes.cumsum(1) + sizes, ahead)
    least = _least(kind, gaps, mean_length, seed, numbers)  # [B, 5]
    short = (there & (least > end - begin)).any(1, keepdim=True)
    present = torch.where(there, torch.where(short, end - begin, least), 0)
    column = x1.columns[:, None]
    inside = there[x1.rows] & (begin[x1.rows] <= column) & (column < end[x1.rows])
    free = inside & (column >= (begin + present)[x1.rows])
    roles = torch.where(inside.any(1), int(Role.PRESENT), int(Role.FIXED))
    roles = torch.where(free.any(1), int(Role.FREE), roles)
    roles = torch.where(kind[x1.rows] == _KNOWN, int(Role.PRESENT), roles)
    # Between given tokens the gaps are numbered by the given tokens ahead: the pieces up to it, and what is present.
    given = x1.count(roles != Role.FREE)
    open_gaps = Ragged(torch.zeros(int((given + 1).sum()), dtype=torch.bool), given + 1)
    open_gaps.values[(open_gaps.offsets[:-1, None] + ahead + present.cumsum(1))[there & ~short]] = True
    return Template(x1.with_values(roles), open_gaps)


def _chosen(marks: Tensor, seed: int, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Draw which regions are cut out, ``[B, 5]`` bool; return it with where they all begin and end, ``[B, 5]``."""
    count = marks.shape[1]
    one = ((count + 1) * uniform(seed, _REGION, numbers)).long()[:, None]  # the last choice is all of them
    slot = torch.arange(MOST_GAPS)
    first, last = F.pad(marks, (0, 0, 0, MOST_GAPS - count)).unbind(2)
    return (slot < count) & ((slot == one) | (one == count)), first, last


def _pieces(kind: Tensor, gaps: Tensor, mean_length: float, seed: int, numbers: Tensor) -> Tensor:
    """Draw the lengths ``[B, 6]`` of the fixed pieces before, between and behind the gaps; those between are not 0."""
    slot = torch.arange(MOST_GAPS + 1)
    is_span = (kind == _SPANS)[:, None]
    mean = torch.where(is_span, _FIXED_LENGTH * mean_length / (gaps[:, None] + 1), _PREFIX_LENGTH * mean_length)
    drawn = (-torch.log1p(-uniform(seed, _PIECE, numbers[:, None], slot)) * mean).long()
    between = (slot > 0) & (slot < gaps[:, None])
    wanted = is_span & (slot <= gaps[:, None]) | (kind == _PREFIX)[:, None] & (slot == 0)
    return torch.where(wanted, drawn + between.long(), 0)


def _least(kind: Tensor, gaps: Tensor, mean_length: float, seed: int, numbers: Tensor) -> Tensor:
    """Draw the least number of tokens of each gap, ``[B, 5]``; 0 where there is none."""
    slot = torch.arange(MOST_GAPS)
    mean = (1 - _FIXED_LENGTH) * mean_length / (2 * gaps[:, None])
    drawn = 1 + (-torch.log1p(-uniform(seed, _LEAST, numbers[:, None], slot)) * mean).long()
    has_least = (kind == _SPANS) & (uniform(seed, _HAS_LEAST, numbers) < _LEAST_SHARE)
    return torch.where(has_least[:, None], drawn, 0)


def _divided(rest: Tensor, gaps: Tensor, seed: int, numbers: Tensor) -> Tensor:
    """Draw how the free tokens are divided between the gaps, ``[B, 6]``: 0, ascending, the rest from ``gaps`` on."""
    slot = torch.arange(MOST_GAPS - 1)
    cuts = (uniform(seed, _SHARE, numbers[:, None], slot) * (rest[:, None] + 1)).long()
    cuts = torch.where(slot < gaps[:, None] - 1, cuts, rest[:, None]).sort(1).values
    return torch.cat([torch.zeros_like(rest)[:, None], cuts, rest[:, None]], 1)
