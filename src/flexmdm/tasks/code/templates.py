"""How a cut function is written for each model, as in the paper's appendix but for its instruction.

FlexMDM reads ``prefix [SEP] middle [SEP] suffix`` and finds the middle in the gap between the separators. MDM reads
``[PRE] prefix [SUF] suffix [SEP] middle`` and then PAD, so that the number of masks does not tell the length. The paper
sometimes puts an instruction in front, the same for every example, which would say no more than the separators do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
