"""The check that a sequence of tokens is a way through the maze, from the grid alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Checked:
    """The findings of `check` for each sequence, ``[B]`` bool."""

    valid: np.ndarray  # not empty, all cells open and every move to one of the four neighbours
    in_order: np.ndarray  # from the first subgoal to the last, with all others on the way in their order

    @property
    def success(self) -> np.ndarray:
        return self.valid & self.in_order


def check(passable: np.ndarray, sequences: Sequence[Sequence[int]], subgoals: Sequence[Sequence[int]]) -> Checked:
    """Check each sequence against the grid and against its own subgoals.

    >>> passable = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=bool)
    >>> through_the_wall, around = [0, 1, 4, 7], [0, 1, 2, 5, 8, 7]
    >>> checked = check(passable, [through_the_wall, around, around], [[0, 7], [0, 2, 7], [0, 3, 7]])
    >>> checked.valid, checked.in_order, checked.success
    (array([False,  True,  True]), array([ True,  True, False]), array([False,  True, False]))
    """
    valid = [_no_walk(passable, s) is None for s in sequences]
    in_order = [_out_of_order(passable, s, goals) is None for s, goals in zip(sequences, subgoals, strict=True)]
    return Checked(np.array(valid, dtype=bool), np.array(in_order, dtype=bool))


def fault(passable: np.ndarray, sequence: Sequence[int], subgoals: Sequence[int]) -> str | None:
    """Return the first fault of a sequence in words; ``None`` if `check` calls it a success.

    >>> passable = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=bool)
    >>> fault(passable, [0, 1, 4, 7], [0, 7])
    'it goes into the wall at 1,1'
    >>> fault(passable, [0, 1, 2, 5, 8, 7], [0, 3, 7])
    'it does not pass subgoal 2 at 1,0'
    """
    return _no_walk(passable, sequence) or _out_of_order(passable, sequence, subgoals)


def _no_walk(passable: np.ndarray, sequence: Sequence[int]) -> str | None:
    """Return why a sequence is no walk over open cells."""
    if not len(sequence):
        return "it is empty"
    blocked, wrong = ~open_cells(passable, sequence), ~legal_moves(passable, sequence)
    if blocked.any():
        token = sequence[int(blocked.argmax())]
        known = 0 <= token < passable.size
        return f"it goes into the wall at {_cell(passable, token)}" if known else "it has a token for no cell"
    if wrong.any():
        here, there = sequence[int(wrong.argmax()) :][:2]
        start, end = _cell(passable, here), _cell(passable, there)
        return f"it stays at {start}" if here == there else f"it jumps from {start} to {end}"
    return None


def _out_of_order(passable: np.ndarray, sequence: Sequence[int], subgoals: Sequence[int]) -> str | None:
    """Return why a sequence does not go from the first subgoal by all others to the last."""
    if not len(sequence):
        return "it is empty"
    if sequence[0] != subgoals[0]:
        return f"it starts at {_cell(passable, sequence[0])} and not at {_cell(passable, subgoals[0])}"
    if sequence[-1] != subgoals[-1]:
        return f"it ends at {_cell(passable, sequence[-1])} and not at {_cell(passable, subgoals[-1])}"
    rest = iter(sequence)
    for number, goal in enumerate(subgoals, start=1):
        if goal not in rest:  # "in" uses up rest as far as the goal, so the next comes later
            early = " after the one before it" if goal in sequence else ""
            return f"it does not pass subgoal {number} at {_cell(passable, goal)}{early}"
    return None


def _cell(passable: np.ndarray, token: int) -> str:
    return "{},{}".format(*divmod(int(token), passable.shape[1]))


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
