"""How a cut function is written for each model, as in the paper's appendix but for its instruction.

FlexMDM reads ``prefix [SEP] middle [SEP] suffix`` and finds the middle in the gap between the separators. MDM reads
``[PRE] prefix [SUF] suffix [SEP] middle`` and then PAD, so that the number of masks does not tell the length. The paper
sometimes puts an instruction in front, the same for every example, which would say no more than the separators do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from flexmdm.canvas import Template
from flexmdm.sequences import Ragged
from flexmdm.tasks.code.cutting import Parts

NUM_SPECIALS = 3  # that a function gets at most


class Specials(NamedTuple):
    """The special tokens, which are no text.

    >>> Specials(100, 101, 102, 103).around([1, 2], [3], inserts=True)
    ([1, 2, 100], [100, 3])
    >>> Specials(100, 101, 102, 103).around([1, 2], [3], inserts=False)
    ([101, 1, 2, 102, 3, 100], [])
    """

    sep: int
    pre: int
    suf: int
    pad: int

    def around(self, prefix: Sequence[int], suffix: Sequence[int], inserts: bool) -> tuple[list[int], list[int]]:
        """Return the tokens left and right of the middle, for FlexMDM (which inserts) or for MDM."""
        if inserts:
            return [*prefix, self.sep], [self.sep, *suffix]
        return [self.pre, *prefix, self.suf, *suffix, self.sep], []


def examples(parts: Sequence[Parts]) -> tuple[Ragged, Template]:
    """Return sequences of three parts in which all is fixed but the middle, and only its gap is open.

    >>> x1, template = examples([([1, 2, 100], [7], [100, 3])])
    >>> x1.tolist(), template.roles.tolist(), template.open_gaps.tolist()
    ([[1, 2, 100, 7, 100, 3]], [[2, 2, 2, 0, 2, 2]], [[False, False, False, True, False, False]])
    """
    x1 = Ragged.from_lists([[*left, *middle, *right] for left, middle, right in parts])
    sizes = [(len(left), len(middle), len(right)) for left, middle, right in parts]
    fixed = [[True] * left + [False] * middle + [True] * right for left, middle, right in sizes]
    gaps = [[False] * left + [True] + [False] * right for left, _, right in sizes]
    fixed, gaps = (Ragged.from_lists(rows, dtype=torch.bool) for rows in (fixed, gaps))
    return x1, Template.fixed(x1, fixed.values, gaps)
