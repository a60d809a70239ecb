import hashlib
from collections import deque

import numpy as np
import pytest

from flexmdm.tasks.maze.grid import Maze

MAZES = [Maze.division(5), Maze.division(11, seed=3), Maze.division(21, seed=7, extra_doors=0), Maze.division(41)]


def breadth_first(passable, start):
    """Steps from ``start`` to every cell that can be reached, one cell after the other."""
    steps, queue = {start: 0}, deque([start])
    while queue:
        row, column = queue.popleft()
        for cell in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            if passable[cell] and cell not in steps:  # the border is wall: no index is outside
                steps[cell] = steps[row, column] + 1
                queue.append(cell)
    return steps


def loops(maze):
    """Independent cycles of a connected maze: edges - cells + 1."""
    return int((maze.links >= 0).sum()) // 2 - len(maze.tokens) + 1


def test_size_41_is_the_maze_of_the_paper():
    # The hash of the grid that the listing of the paper's appendix prints for division_maze(20, 20).
    digest = hashlib.sha256(np.packbits(Maze.division(41).passable).tobytes()).hexdigest()
    assert digest == "a98fd717be0b8695a19cd3835da9e4a38abc34d386849c5cba8c52c926bad2ca"


@pytest.mark.parametrize("maze", MAZES, ids=lambda maze: f"{maze.size}")
def test_the_border_is_wall_and_all_open_cells_are_connected(maze):
    inner = maze.passable[1:-1, 1:-1]
    assert inner.sum() == maze.passable.sum() and inner[::2, ::2].all()
    assert len(breadth_first(maze.passable, (1, 1))) == len(maze.tokens)


def test_the_seed_decides_the_maze():
    assert Maze.division(21, seed=5) == Maze.division(21, seed=5)
    assert Maze.division(21, seed=5) != Maze.division(21, seed=6)
    assert len({Maze.division(11), Maze.division(11), Maze.division(11, seed=1)}) == 2


def test_without_extra_doors_there_are_no_loops_and_more_doors_make_more():
    counts = [loops(Maze.division(21, extra_doors=share)) for share in (0, 0.25, 0.5, 1)]
    assert counts[0] == 0 and counts == sorted(set(counts))


@pytest.mark.parametrize("maze", MAZES, ids=lambda maze: f"{maze.size}")
def test_distances_are_those_of_a_plain_search(maze):
    for start in np.random.default_rng(0).choice(maze.tokens, 10):
        found = breadth_first(maze.passable, maze.cell(start))
        expected = [found[maze.cell(token)] for token in maze.tokens]
        assert maze.distances[maze.open_index[start]].tolist() == expected
    assert maze.distances.dtype == np.int16 and (maze.distances == maze.distances.T).all()


def test_cells_that_no_way_connects_have_no_distance():
    maze = Maze(np.array([[1, 0, 1], [1, 0, 1], [0, 0, 1]], dtype=bool))
    assert maze.distances[maze.open_index[0]].tolist() == [0, -1, 1, -1, -1]


@pytest.mark.parametrize("maze", MAZES, ids=lambda maze: f"{maze.size}")
def test_links_are_the_open_cells_one_step_away(maze):
    for token, around in zip(maze.tokens.tolist(), maze.links.tolist(), strict=True):
        row, column = divmod(token, maze.size)
        sides = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
        expected = [r * maze.size + c if maze.passable[r, c] else None for r, c in sides]
        assert [None if index < 0 else int(maze.tokens[index]) for index in around] == expected


def test_tokens_and_cells_go_back_and_forth():
    maze = Maze.division(11)
    assert all(maze.token(*maze.cell(token)) == token for token in maze.tokens.tolist())
    assert (maze.tokens[maze.open_index[maze.tokens]] == maze.tokens).all()


def test_a_maze_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        Maze.division(7).passable[0, 0] = True


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: Maze.division(10), "must be odd and at least 5.*got 10"),
        (lambda: Maze.division(3), "must be odd and at least 5.*got 3"),
        (lambda: Maze.division(7, extra_doors=1.5), r"lies in \[0, 1\], got 1.5"),
        (lambda: Maze.division(7).token(0, 2), r"cell \(0, 2\) is a wall; the nearest open cell is \(1, 2\)"),
        (lambda: Maze.division(7).token(9, 5), r"cell \(9, 5\) is outside the 7 x 7 maze; .* is \(5, 5\)"),
        (lambda: Maze.division(7).token(-1, 1), r"cell \(-1, 1\) is outside .* is \(1, 1\)"),
    ],
)
def test_errors_say_what_is_wrong_and_what_to_do(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
