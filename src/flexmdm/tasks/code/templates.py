"""How a cut function is written for each model, as in the paper's appendix but for its instruction.

The special tokens are no text.

FlexMDM reads ``prefix [SEP] middle [SEP] suffix`` and finds the middle in the gap between the separators. MDM reads
``[PRE] prefix [SUF] suffix [SEP] middle`` and then PAD, so that the number of masks does not tell the length. The paper
sometimes puts an instruction in front, the same for every example, which would say no more than the separators do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flexmdm.canvas import Role, Template
from flexmdm.sequences import Ragged
from flexmdm.tasks.code.cutting import Cut

NUM_SPECIALS = 3  # that a function gets at most


@dataclass(frozen=True)
class Specials:
    """The tokens behind those of a tokenizer that has ``size`` of them."""

    size: int

    @property
    def sep(self) -> int:
        return self.size

    @property
    def pre(self) -> int:
        return self.size + 1

    @property
    def suf(self) -> int:
        return self.size + 2

    @property
    def pad(self) -> int:
        return self.size + 3

    def in_place(self, prefix: Sequence[int], suffix: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the tokens left and right of the gap, for FlexMDM.

        >>> Specials(100).in_place([1, 2], [3])
        ([1, 2, 100], [100, 3])
        """
        return [*prefix, self.sep], [self.sep, *suffix]

    def ahead(self, prefix: Sequence[int], suffix: Sequence[int]) -> list[int]:
        """Return the tokens in front of the masks, for MDM.

        >>> Specials(100).ahead([1, 2], [3])
        [101, 1, 2, 102, 3, 100]
        """
        return [self.pre, *prefix, self.suf, *suffix, self.sep]


def in_place(cut: Cut, specials: Specials) -> tuple[Ragged, Template]:
    """Return the example of FlexMDM: all fixed but the middle, only the gap between the separators open.

    >>> cut = Cut(Ragged.from_lists([[1, 2, 7, 3]]), torch.tensor([2]), torch.tensor([3]))
    >>> x1, template = in_place(cut, Specials(100))
    >>> x1.tolist(), template.roles.tolist(), template.open_gaps.tolist()
    ([[1, 2, 100, 7, 100, 3]], [[2, 2, 2, 0, 2, 2]], [[False, False, False, True, False, False]])
    """
    functions, columns = cut.functions, cut.functions.columns
    begin, end = cut.begin[functions.rows], cut.end[functions.rows]
    moved = columns + (columns >= begin).long() + (columns >= end).long()
    x1 = _spread(functions, moved, torch.stack([cut.begin, cut.end + 1], 1), torch.tensor([specials.sep] * 2))
    fixed = (x1.columns <= cut.begin[x1.rows]) | (x1.columns > cut.end[x1.rows])
    given = x1.count(fixed)
    gaps = Ragged(torch.zeros(int((given + 1).sum()), dtype=torch.bool), given + 1)
    gaps.values[gaps.offsets[:-1] + cut.begin + 1] = True
    return x1, Template.fixed(x1, fixed, gaps)


def behind(cut: Cut, specials: Specials) -> tuple[Ragged, Ragged]:
    """Return the example of MDM without PAD: the middle behind everything else, and the roles.

    >>> cut = Cut(Ragged.from_lists([[1, 2, 7, 3]]), torch.tensor([2]), torch.tensor([3]))
    >>> x1, roles = behind(cut, Specials(100))
    >>> x1.tolist(), roles.tolist()
    ([[101, 1, 2, 102, 3, 100, 7]], [[2, 2, 2, 2, 2, 2, 1]])
    """
    functions, columns = cut.functions, cut.functions.columns
    begin, size = cut.begin[functions.rows], cut.sizes[functions.rows]
    rest = functions.lengths - cut.sizes  # [B], tokens of prefix and suffix
    in_suffix = columns >= begin + size
    moved = torch.where(in_suffix, columns - size + 2, columns + 1)
    moved = torch.where((columns >= begin) & ~in_suffix, columns - begin + rest[functions.rows] + 3, moved)
    extra = torch.stack([torch.zeros_like(rest), cut.begin + 1, rest + 2], 1)
    x1 = _spread(functions, moved, extra, torch.tensor([specials.pre, specials.suf, specials.sep]))
    middle = x1.columns > (rest + 2)[x1.rows]
    return x1, x1.with_values(torch.where(middle, int(Role.PRESENT), int(Role.FIXED)))


def _spread(functions: Ragged, columns: Tensor, extra: Tensor, tokens: Tensor) -> Ragged:
    """Put the tokens at new ``columns`` ``[N]``, and special ``tokens`` ``[k]`` at the columns ``extra`` ``[B, k]``."""
    lengths = functions.lengths + extra.shape[1]
    offsets = lengths.cumsum(0) - lengths
    values = torch.empty(int(lengths.sum()), dtype=torch.int64)
    values[offsets[functions.rows] + columns] = functions.values
    values[offsets[:, None] + extra] = tokens.expand_as(extra)
    return Ragged(values, lengths)
