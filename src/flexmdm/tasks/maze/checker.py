"""The check that a sequence of tokens is a way through the maze, from the grid alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Checked:
    """What `check` found, one entry per sequence.

    Attributes:
        valid: ``[B]`` bool, not empty, all cells open and every move to one of the four neighbours.
        in_order: ``[B]`` bool, from the first subgoal to the last, with all others on the way in their order.
    """

    valid: np.ndarray
    in_order: np.ndarray

    @property
    def success(self) -> np.ndarray:
        """Return ``[B]`` bool, valid and in order."""
        return self.valid & self.in_order


def check(passable: np.ndarray, sequences: Sequence[Sequence[int]], subgoals: Sequence[Sequence[int]]) -> Checked:
    """Check each sequence against the grid and against its own subgoals.

    >>> passable = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=bool)
    >>> through_the_wall, around = [0, 1, 4, 7], [0, 1, 2, 5, 8, 7]
    >>> checked = check(passable, [through_the_wall, around, around], [[0, 7], [0, 2, 7], [0, 3, 7]])
    >>> checked.valid, checked.in_order, checked.success
    (array([False,  True,  True]), array([ True,  True, False]), array([False,  True, False]))
    """
    return Checked(
        valid=np.array([_is_walk(passable, sequence) for sequence in sequences], dtype=bool),
        in_order=np.array([_meets(s, goals) for s, goals in zip(sequences, subgoals, strict=True)], dtype=bool),
    )


def fault(passable: np.ndarray, sequence: Sequence[int], subgoals: Sequence[int]) -> str | None:
    """Return the first fault of a sequence in words; ``None`` if `check` calls it a success.

    >>> passable = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=bool)
    >>> fault(passable, [0, 1, 4, 7], [0, 7])
    'it goes into the wall at 1,1'
    >>> fault(passable, [0, 1, 2, 5, 8, 7], [0, 3, 7])
    'it does not pass subgoal 2 at 1,0'
    """

    def cell(token: int) -> str:
        return "{},{}".format(*divmod(int(token), passable.shape[1]))

    if not len(sequence):
        return "it is empty"
    blocked, wrong = ~open_cells(passable, sequence), ~legal_moves(passable, sequence)
    if blocked.any():
        token = sequence[int(blocked.argmax())]
        return f"it goes into the wall at {cell(token)}" if 0 <= token < passable.size else "it has a token for no cell"
    if wrong.any():
        here, there = sequence[int(wrong.argmax()) :][:2]
        return f"it stays at {cell(here)}" if here == there else f"it jumps from {cell(here)} to {cell(there)}"
    if sequence[0] != subgoals[0]:
        return f"it starts at {cell(sequence[0])} and not at {cell(subgoals[0])}"
    if sequence[-1] != subgoals[-1]:
        return f"it ends at {cell(sequence[-1])} and not at {cell(subgoals[-1])}"
    rest = iter(sequence)
    for number, goal in enumerate(subgoals, start=1):
        if goal not in rest:  # uses up rest as far as the goal
            early = " after the one before it" if goal in sequence else ""
            return f"it does not pass subgoal {number} at {cell(goal)}{early}"
    return None


def open_cells(passable: np.ndarray, sequence: Sequence[int]) -> np.ndarray:
    """Return ``[L]`` bool, true for tokens that are open cells inside the grid."""
    tokens = np.asarray(sequence, dtype=np.int64)
    inside = (tokens >= 0) & (tokens < passable.size)
    return inside & passable.reshape(-1)[np.where(inside, tokens, 0)]


def legal_moves(passable: np.ndarray, sequence: Sequence[int]) -> np.ndarray:
    """Return ``[L - 1]`` bool, true for moves from an open cell to an open cell above, below, left or right of it."""
    is_open = open_cells(passable, sequence)
    rows, columns = np.divmod(np.asarray(sequence, dtype=np.int64), passable.shape[1])
    steps = np.abs(np.diff(rows)) + np.abs(np.diff(columns))
    return is_open[:-1] & is_open[1:] & (steps == 1)


def _is_walk(passable: np.ndarray, sequence: Sequence[int]) -> bool:
    is_open, legal = open_cells(passable, sequence), legal_moves(passable, sequence)
    return len(sequence) > 0 and bool(is_open.all() and legal.all())


def _meets(sequence: Sequence[int], subgoals: Sequence[int]) -> bool:
    if not len(sequence) or sequence[0] != subgoals[0] or sequence[-1] != subgoals[-1]:
        return False
    rest = iter(sequence)
    return all(goal in rest for goal in subgoals)  # "in" uses up rest as far as the goal, so the next comes later
