"""Which templates a model of sequences is trained on: a mixture, so that one model samples, completes and infills."""

from __future__ import annotations

from dataclasses import astuple, dataclass

import torch
from torch import Tensor

from flexmdm.canvas import Role, Template, gaps_of
from flexmdm.randomness import stream, uniform
from flexmdm.sequences import Ragged

_KIND, _PREFIX, _COUNT, _CUT = stream("template"), stream("prefix"), stream("number of gaps"), stream("cut")
_UNCONDITIONAL, _AHEAD, _SPANS, _KNOWN = range(4)
MOST_GAPS = 5
_PREFIX_SHARE = 1 / 3  # the mean prefix, of the mean length


@dataclass(frozen=True)
class Mixture:
    """How often each kind of template is drawn; the weights are relative.

    Attributes:
        unconditional: everything is free (the paper's setting is this alone).
        prefix: the first tokens are fixed. Their number is drawn without looking at the sequence, so the law of what
            follows is the ordinary conditional one; if there are not so many, or the place would cut a word, the
            template is unconditional instead.
        spans: 1 to 5 gaps, some of them perhaps empty, between cuts that are drawn evenly from the places where a word
            may be cut. What is learned is then p(x1) P(cuts | x1): with n such places the law of the filling is tilted
            by about n to the power of minus the number of cuts, towards shorter sequences.
        known_length: nothing is fixed, but all masks are there from the start.
    """

    unconditional: float = 0.5
    prefix: float = 0.15
    spans: float = 0.25
    known_length: float = 0.1

    def __post_init__(self) -> None:
        if min(astuple(self)) < 0 or sum(astuple(self)) <= 0:
            raise ValueError(f"the weights of a mixture are not negative, and not all 0; got {self}")


def draw_templates(
    x1: Ragged, may_cut: Tensor, mixture: Mixture, mean_length: float, seed: int, numbers: Tensor
) -> Template:
    """A template for every sequence.

    Args:
        x1: the sequences.
        may_cut: ``[N]``, whether a piece may begin at each token.
        mixture: of the kinds.
        mean_length: of the data, which sets how long prefixes are.
        seed, numbers: randomness belongs to the sample numbers ``[B]``.

    >>> x1 = Ragged.from_lists([[1, 2, 3, 4]])
    >>> only = Mixture(unconditional=0, prefix=0, spans=1, known_length=0)
    >>> template = draw_templates(x1, torch.ones(4, dtype=torch.bool), only, 4.0, seed=0, numbers=torch.tensor([6]))
    >>> template.roles.tolist(), template.open_gaps.tolist()  # 1 2 are to be found, and what stands between 3 and 4
    ([[0, 0, 2, 2]], [[True, False, True]])
    """
    size = len(x1)
    shares = torch.tensor(astuple(mixture), dtype=torch.float64).cumsum(0)
    kind = torch.searchsorted(shares / shares[-1], uniform(seed, _KIND, numbers), right=True).clamp(max=_KNOWN)
    cuttable = _cuttable(x1, may_cut)
    prefix = _prefixes(x1, cuttable, _PREFIX_SHARE * mean_length, seed, numbers)
    cuts = _cuts(x1, cuttable, seed, numbers)
    # A sequence is cut before the columns in its row of `cuts`, and every second piece, from the second on, is free.
    nowhere = x1.max_length + 1
    cuts = torch.where((kind == _SPANS)[:, None], cuts, nowhere)
    cuts[:, 0] = torch.where(kind == _UNCONDITIONAL, 0, cuts[:, 0])
    cuts[:, 0] = torch.where(kind == _AHEAD, prefix, cuts[:, 0])
    free = (cuts[x1.rows] <= x1.columns[:, None]).sum(1) % 2 == 1
    roles = torch.where(free, int(Role.FREE), int(Role.FIXED))
    roles = torch.where(kind[x1.rows] == _KNOWN, int(Role.PRESENT), roles)
    given = roles != Role.FREE
    # Open is the gap in which a free piece lies, even if the piece is empty.
    opened = cuts[:, 0::2] < nowhere  # [B, 5]
    before = torch.cat([torch.zeros(1, dtype=torch.int64), given.long().cumsum(0)])
    where = before[x1.offsets[:size, None] + cuts[:, 0::2].minimum(x1.lengths[:, None])]  # given ahead, in the batch
    gaps = x1.count(given) + 1
    open_gaps = torch.zeros(int(gaps.sum()), dtype=torch.bool)
    open_gaps[(where + torch.arange(size)[:, None])[opened]] = True
    return Template(x1.with_values(roles), Ragged(open_gaps, gaps))


def _cuttable(x1: Ragged, may_cut: Tensor) -> Ragged:
    """For each of the length + 1 places of every sequence, whether it may be cut there: at both ends it may."""
    places = gaps_of(x1, torch.ones(len(x1.values) + len(x1), dtype=torch.bool))
    inside = places.columns < x1.lengths[places.rows]
    places.values[inside] = may_cut | (x1.columns == 0)
    return places


def _prefixes(x1: Ragged, cuttable: Ragged, mean: float, seed: int, numbers: Tensor) -> Tensor:
    """``[B]``: how many first tokens are fixed; 0 where the number drawn does not fit."""
    drawn = (-torch.log1p(-uniform(seed, _PREFIX, numbers)) * mean).long()
    at = drawn.minimum(x1.lengths)
    fits = (drawn == at) & cuttable.values[cuttable.offsets[: len(x1)] + at]
    return torch.where(fits, at, 0)


def _cuts(x1: Ragged, cuttable: Ragged, seed: int, numbers: Tensor) -> Tensor:
    """``[B, 2 * MOST_GAPS]``: ascending columns, two for each gap; behind the end where there are fewer gaps."""
    gaps = 1 + (MOST_GAPS * uniform(seed, _COUNT, numbers)).long()
    places = cuttable.columns[cuttable.values]  # [P], for one sequence after another
    count = cuttable.count(cuttable.values)
    slot = torch.arange(2 * MOST_GAPS)
    drawn = (uniform(seed, _CUT, numbers[:, None], slot) * count[:, None]).long()
    drawn = torch.where(slot < 2 * gaps[:, None], drawn, count[:, None]).sort(1).values
    first = count.cumsum(0) - count
    column = places[(first[:, None] + drawn.minimum(count[:, None] - 1))]
    return torch.where(drawn < count[:, None], column, x1.max_length + 1)
