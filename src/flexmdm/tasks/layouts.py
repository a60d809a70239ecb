"""Layouts: how a clean sequence becomes an example, a prompt and an answer, for FlexMDM and for MDM.

FlexMDM grows a sequence as it is (`Grown`). MDM fills masks that are there from the start, so that every sequence is
padded to one width, and PAD is an ordinary token that it has to find (`Padded`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from flexmdm.canvas import Prompt, Role, Template
from flexmdm.sequences import Ragged
from flexmdm.tasks.models import inserts

NO_FRAME: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


def layout_of(
    model: str, longest: int, width: int, pad: int, frame: tuple[tuple[int, ...], tuple[int, ...]] = NO_FRAME
) -> Layout:
    """Return the layout for a kind of model; FlexMDM may grow to ``longest`` tokens, MDM pads to ``width``."""
    if inserts(model):
        return Grown(longest, frame)
    if frame != NO_FRAME:
        raise ValueError(
            "an MDM pads its sequences, and tokens around them would tell where they end: leave out framed"
        )
    return Padded(width, pad)


@dataclass(frozen=True)
class Grown:
    """Sequences as they are, of any length: what FlexMDM learns from.

    >>> Grown(9).between([[7, 8], []])
    Prompt(tokens=(7, 8), open_gaps=(False, False, True))
    >>> Grown(9, frame=((1,), (2,))).between([[7, 8], []])
    Prompt(tokens=(1, 7, 8, 2), open_gaps=(False, False, False, True, False))
    """

    longest: int  # the most tokens of a sequence
    frame: tuple[tuple[int, ...], tuple[int, ...]] = NO_FRAME  # given before and behind every sequence, as [CLS]
    inserts: ClassVar[bool] = True

    @property
    def most_entries(self) -> int:
        """Return the most entries of a state."""
        return self.longest + sum(map(len, self.frame))

    def vocabulary(self, size: int) -> int:
        """Return the size of the vocabulary of a model for ``size`` tokens: just these."""
        return size

    def example(self, x1: Ragged, template: Template) -> tuple[Ragged, Template]:
        """Return what is learned from: the sequences and their templates, within the frame."""
        if self.frame == NO_FRAME:
            return x1, template
        fixed = [[int(Role.FIXED)] * len(side) for side in self.frame]
        closed = [[False] * len(side) for side in self.frame]
        roles = _within(template.roles, *fixed)
        return _within(x1, *self.frame), Template(roles, _within(template.open_gaps, *closed))

    def framed(self, pieces: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the pieces between gaps with the frame around them."""
        before, behind = self.frame
        whole = [list(piece) for piece in pieces]
        whole[0], whole[-1] = [*before, *whole[0]], [*whole[-1], *behind]
        return whole

    def between(self, pieces: Sequence[Sequence[int]], minimum: int = 0, maximum: int | None = None) -> Prompt:
        """Return the prompt with something to find between the pieces, see `Prompt.infill`."""
        return Prompt.infill(self.framed(pieces), minimum, maximum)

    def found(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens that belong to what was found: all of them."""
        return list(tokens)

    def clean(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens that are not of the frame."""
        marks = {*self.frame[0], *self.frame[1]}
        return [token for token in tokens if token not in marks]


@dataclass(frozen=True)
class Padded:
    """Sequences padded to one width, all masks from the start: what MDM learns from.

    >>> layout = Padded(4, pad=9)
    >>> layout.between([[7, 8], []])
    Prompt(tokens=(7, 8, None, None), open_gaps=(False, False, False, False, False))
    >>> layout.found([5, 9, 5])
    [5]
    """

    longest: int  # the width
    pad: int  # the token behind the end of a sequence
    inserts: ClassVar[bool] = False

    @property
    def most_entries(self) -> int:
        """Return the most entries of a state: the width."""
        return self.longest

    def framed(self, pieces: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the pieces between gaps, which no frame is around."""
        return [list(piece) for piece in pieces]

    def vocabulary(self, size: int) -> int:
        """Return the size of the vocabulary of a model for ``size`` tokens: these and PAD."""
        return max(size, self.pad + 1)

    def example(self, x1: Ragged, template: Template) -> tuple[Ragged, Template]:
        """Return the sequences with PAD behind them: fixed tokens stay fixed, all others are masks from the start."""
        size, width = len(x1), self.longest
        tokens = torch.full((size, width), self.pad)
        roles = torch.full((size, width), int(Role.PRESENT))
        tokens[x1.rows, x1.columns] = x1.values
        fixed = template.roles.values == Role.FIXED
        roles[x1.rows[fixed], x1.columns[fixed]] = int(Role.FIXED)
        full = Ragged(tokens.flatten(), torch.full((size,), width))
        return full, Template.of_roles(full.with_values(roles.flatten()))

    def between(self, pieces: Sequence[Sequence[int]], minimum: int = 0, maximum: int | None = None) -> Prompt:
        """Return the prompt with known numbers of masks between the pieces, and PAD behind the last.

        It is always as wide as in training: what follows a text is PAD, known or, behind a prefix, to be found.
        """
        tokens, filling = pieces[0], None
        if len(pieces) > 2 or pieces[1] or minimum or maximum is not None:
            if minimum != maximum or not maximum:
                raise ValueError(
                    "an MDM fills a known number of masks: say how many tokens each gap has by equal --min and --max"
                )
            tokens, filling = Prompt.infill(pieces, minimum, maximum).tokens, self.pad
        return Prompt((*tokens, *[filling] * (self.longest - len(tokens))), (False,) * (self.longest + 1))

    def found(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens up to the first PAD."""
        tokens = list(tokens)
        return tokens[: tokens.index(self.pad)] if self.pad in tokens else tokens

    def clean(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens that are not PAD, wherever it stands."""
        return [token for token in tokens if token != self.pad]


Layout = Grown | Padded


def _within(rows: Ragged, before: Sequence[int], behind: Sequence[int]) -> Ragged:
    """Return sequences with the same values before and behind each."""
    lengths = rows.lengths + len(before) + len(behind)
    ends = lengths.cumsum(0)
    values = rows.values.new_empty(int(lengths.sum()))
    for number, value in enumerate(before):
        values[ends - lengths + number] = value
    for number, value in enumerate(reversed(behind)):
        values[ends - 1 - number] = value
    values[(ends - lengths)[rows.rows] + len(before) + rows.columns] = rows.values
    return Ragged(values, lengths)


def gap_examples(parts: Sequence[tuple[Sequence[int], Sequence[int], Sequence[int]]]) -> tuple[Ragged, Template]:
    """Return sequences of three parts in which all is fixed but the middle, and only its gap is open.

    That gap is open for an empty middle too, so that nothing tells its length.

    >>> x1, template = gap_examples([([5, 6], [7], [8])])
    >>> x1.tolist(), template.roles.tolist(), template.open_gaps.tolist()
    ([[5, 6, 7, 8]], [[2, 2, 0, 2]], [[False, False, True, False]])
    """
    x1 = Ragged.from_lists([[*left, *middle, *right] for left, middle, right in parts])
    fixed = [[True] * len(left) + [False] * len(middle) + [True] * len(right) for left, middle, right in parts]
    gaps = [[False] * len(left) + [True] + [False] * len(right) for left, _, right in parts]
    fixed, gaps = (Ragged.from_lists(flags, dtype=torch.bool) for flags in (fixed, gaps))
    return x1, Template.fixed(x1, fixed.values, gaps)
