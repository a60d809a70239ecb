"""Mazes on a square grid, built by recursive division, and the distances in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from random import Random

import numpy as np


@dataclass(frozen=True, eq=False)
class Maze:
    """A square grid of open cells and walls. Cell (r, c) has token r · size + c, whether it is open or not.

    >>> maze = Maze.division(7)
    >>> print("\\n".join("".join(".#"[not cell] for cell in row) for row in maze.passable))
    #######
    #.....#
    #.#.#.#
    #.....#
    #.#..##
    #.....#
    #######
    >>> maze.token(3, 1), maze.cell(22), len(maze.tokens)
    (22, (3, 1), 21)
    >>> int(maze.open_index[22]), maze.links[8]  # above, below, a wall to the left, right
    (8, array([ 5, 13, -1,  9]))
    >>> int(maze.distances[maze.open_index[8], maze.open_index[40]])  # from (1, 1) to (5, 5)
    8
    """

    passable: np.ndarray  # [size, size] bool, true where a cell is open

    @classmethod
    @lru_cache(maxsize=8)  # the same arguments give the same maze, so that what is cached of one is found again
    def division(cls, size: int, seed: int = 2025, extra_doors: float = 0.5) -> Maze:
        """Make the paper's maze: recursive division, then a share ``extra_doors`` of the thin walls opened for loops.

        Size 41 with the other arguments as they are is the maze of the paper's appendix.
        """
        if size < 5 or size % 2 == 0:
            raise ValueError(f"the size must be odd and at least 5 (rooms and walls alternate), got {size}")
        if not 0 <= extra_doors <= 1:
            raise ValueError(f"extra_doors is a share of the walls and lies in [0, 1], got {extra_doors}")
        rng = Random(seed)
        passable = np.zeros((size, size), dtype=bool)
        passable[1:-1, 1:-1] = True
        _divide(passable[1:-1, 1:-1], rng)
        above, below, left, right = _sides(passable, False)
        doors = np.argwhere(~passable & ((above & below) | (left & right))).tolist()  # walls between two open cells
        for row, column in rng.sample(doors, k=int(len(doors) * extra_doors)):
            passable[row, column] = True
        passable.setflags(write=False)
        return cls(passable)

    @property
    def size(self) -> int:
        return self.passable.shape[0]

    def token(self, row: int, column: int) -> int:
        """Return the token of an open cell."""
        inside = 0 <= row < self.size and 0 <= column < self.size
        if not inside or not self.passable[row, column]:
            cells = np.argwhere(self.passable)
            nearest = cells[np.abs(cells - [row, column]).sum(1).argmin()]
            where = "a wall" if inside else f"outside the {self.size} x {self.size} maze"
            raise ValueError(f"cell ({row}, {column}) is {where}; the nearest open cell is {tuple(nearest.tolist())}")
        return row * self.size + column

    def cell(self, token: int) -> tuple[int, int]:
        """Return the (row, column) of a token."""
        return divmod(int(token), self.size)

    @cached_property
    def tokens(self) -> np.ndarray:
        """Return ``[n_open]``, the tokens of the open cells, ascending."""
        return np.flatnonzero(self.passable)

    @cached_property
    def open_index(self) -> np.ndarray:
        """Return ``[size²]``, the index of each token in ``tokens``; -1 for a wall."""
        index = np.full(self.size**2, -1)
        index[self.tokens] = np.arange(len(self.tokens))
        return index

    @cached_property
    def links(self) -> np.ndarray:
        """Return ``[n_open, 4]``, the cells above, below, left and right as indices into ``tokens``; -1 for a wall."""
        return _sides(self.open_index.reshape(self.passable.shape), -1)[:, self.passable].T

    @cached_property
    def distances(self) -> np.ndarray:
        """Return ``[n_open, n_open]`` int16, steps of the shortest path between any two open cells; -1 for no path."""
        count = len(self.tokens)
        distances = np.full((count, count), -1, dtype=np.int16)
        frontier = np.zeros((count + 1, count), dtype=bool)  # [cell, source]; the last row stands for "no neighbour"
        np.fill_diagonal(frontier, True)
        steps = 0
        while frontier.any():  # all sources at once
            distances[frontier[:-1]] = steps
            frontier[:-1] = frontier[self.links].any(1) & (distances < 0)
            steps += 1
        return distances


def _divide(room: np.ndarray, rng: Random) -> None:
    """Cut a room (a view of the grid) in two across its longer side, by a wall with one door, and then both parts."""
    if min(room.shape) <= 2:
        return
    upright = room.shape[0] <= room.shape[1]
    halls = room.T if upright else room  # seen so that the wall is a row
    wall = rng.randrange(1, halls.shape[0] - 1, 2)
    door = rng.randrange(0, halls.shape[1], 2)
    halls[wall, :door] = halls[wall, door + 1 :] = False
    for part in (halls[:wall], halls[wall + 1 :]):
        _divide(part.T if upright else part, rng)


def _sides(grid: np.ndarray, outside: int) -> np.ndarray:
    """Return ``[4, size, size]``: what is above, below, left and right of each cell."""
    around = np.pad(grid, 1, constant_values=outside)
    return np.stack([around[:-2, 1:-1], around[2:, 1:-1], around[1:-1, :-2], around[1:-1, 2:]])
