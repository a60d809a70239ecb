import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from flexmdm.evaluation.intervals import rate
from flexmdm.tasks.maze.checker import check, fault, legal_moves
from flexmdm.tasks.maze.grid import Maze
from flexmdm.tasks.maze.paths import choose_subgoals, make_paths

#   0  1  2  3
#   4  ■  6  ■
#   8  9 10 11
#  12  ■ 14 15
GRID = np.array([[1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 1, 1], [1, 0, 1, 1]], dtype=bool)


def slow_walk(passable, sequence):
    """Straight from the definition, one cell at a time."""
    height, width = passable.shape
    cells = [(token // width, token % width) for token in sequence]
    if not cells or any(not (0 <= r < height and passable[r][c]) for r, c in cells):
        return False
    return all(cells[i + 1] in _around(*cells[i]) for i in range(len(cells) - 1))


def _around(row, column):
    return {(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)}


def slow_order(sequence, goals):
    """Is there any way to place the goals at increasing positions, the first and the last at the ends?"""
    ends = {-1}
    for goal in goals:
        ends = {later for later, token in enumerate(sequence) if token == goal and any(p < later for p in ends)}
    return bool(ends) and sequence[0] == goals[0] and sequence[-1] == goals[-1]


@st.composite
def walks(draw):
    """A walk with a few errors in it, and subgoals most of which are on it."""
    token = draw(st.sampled_from([0, 1, 2, 6, 8, 10, 15]))
    sequence = [token]
    for step in draw(st.lists(st.sampled_from([-4, 4, -1, 1]), max_size=12)):
        if slow_walk(GRID, [sequence[-1], sequence[-1] + step]):
            sequence.append(sequence[-1] + step)
    for position, error in draw(st.lists(st.tuples(st.integers(0, 12), st.integers(-2, 18)), max_size=2)):
        sequence[position : position + 1] = [error]
    sequence = sequence[draw(st.integers(0, 1)) :]
    positions = sorted(draw(st.sets(st.integers(0, 12), max_size=4)))
    goals = [sequence[position] for position in positions if position < len(sequence)]
    goals = sequence[:1] + goals[1:] + sequence[-1:] if draw(st.booleans()) else goals
    return sequence, goals or [draw(st.integers(0, 15))]


@given(st.lists(walks(), min_size=1, max_size=5))
@settings(max_examples=150, deadline=None)
def test_the_checker_agrees_with_the_definition(cases):
    checked = check(GRID, [sequence for sequence, _ in cases], [goals for _, goals in cases])
    assert checked.valid.tolist() == [slow_walk(GRID, sequence) for sequence, _ in cases]
    assert checked.in_order.tolist() == [slow_order(sequence, goals) for sequence, goals in cases]
    assert checked.success.tolist() == (checked.valid & checked.in_order).tolist()
    assert checked.success.tolist() == [fault(GRID, sequence, goals) is None for sequence, goals in cases]


@pytest.mark.parametrize(
    "case, sequence, goals, valid, in_order",
    [
        ("a right path", [0, 1, 2, 6, 10], [0, 2, 10], True, True),
        ("only its ends asked", [0, 4, 8, 9, 10], [0, 10], True, True),
        ("a single cell", [6], [6], True, True),
        ("there and back", [0, 1, 0], [0, 1, 0], True, True),
        ("over a wall cell", [0, 1, 5, 9], [0, 9], False, True),
        ("a jump through a wall", [0, 1, 9], [0, 9], False, True),
        ("a jump over open cells", [0, 2, 6], [0, 6], False, True),
        ("a diagonal move", [1, 6], [1, 6], False, True),
        ("around the edge of the grid", [2, 3, 4, 8], [2, 8], False, True),
        ("a cell repeated", [0, 0, 1], [0, 1], False, True),
        ("a token behind the grid", [0, 1, 16], [0, 1], False, False),
        ("a token before the grid", [-1, 0, 1], [-1, 1], False, True),
        ("a single wall cell", [5], [5], False, True),
        ("nothing", [], [0, 1], False, False),
        ("a subgoal missing", [0, 1, 2, 6, 10], [0, 8, 10], True, False),
        ("subgoals in the wrong order", [0, 1, 2, 6, 10], [0, 6, 2, 10], True, False),
        ("out of order first, then in order", [1, 2, 1, 0, 1, 2, 6], [1, 0, 2, 6], True, True),
        ("cells behind the goal", [0, 1, 2, 6], [0, 2], True, False),
        ("cells before the start", [0, 1, 2, 6], [1, 6], True, False),
        ("stops before the goal", [0, 1, 2], [0, 2, 6], True, False),
        ("the goal first", [2, 1, 0], [0, 1, 2], True, False),
        ("a subgoal twice but visited once", [0, 1, 2], [0, 1, 1, 2], True, False),
    ],
)
def test_cases_that_must_not_pass_for_another(case, sequence, goals, valid, in_order):
    checked = check(GRID, [sequence], [goals])
    assert (bool(checked.valid[0]), bool(checked.in_order[0])) == (valid, in_order), case
    assert slow_walk(GRID, sequence) == valid and slow_order(sequence, goals) == in_order
    assert bool(checked.success[0]) == (valid and in_order)


@pytest.mark.parametrize(
    "sequence, goals, words",
    [
        ([], [0, 1], "it is empty"),
        ([0, 1, 5, 9], [0, 9], "it goes into the wall at 1,1"),
        ([0, 1, 16], [0, 1], "it has a token for no cell"),
        ([0, 1, 9], [0, 9], "it jumps from 0,1 to 2,1"),
        ([0, 0, 1], [0, 1], "it stays at 0,0"),
        ([1, 2], [0, 2], "it starts at 0,1 and not at 0,0"),
        ([0, 1, 2], [0, 1], "it ends at 0,2 and not at 0,1"),
        ([0, 1, 2, 6, 10], [0, 8, 10], "it does not pass subgoal 2 at 2,0"),
        ([0, 1, 2, 6, 10], [0, 6, 2, 10], "it does not pass subgoal 3 at 0,2 after the one before it"),
        ([0, 1, 2, 6, 10], [0, 2, 10], None),
    ],
)
def test_a_fault_is_called_what_it_is(sequence, goals, words):
    assert fault(GRID, sequence, goals) == words


def test_the_paths_of_the_data_pass_and_broken_ones_do_not():
    maze = Maze.division(21)
    paths = make_paths(maze, pairs=200).paths
    paths = paths[paths.lengths > 4]
    marks = choose_subgoals(paths, paths.lengths.clamp(max=5), 0, paths.lengths.cumsum(0))
    sequences, goals = paths.tolist(), paths.keep(marks).tolist()
    assert check(maze.passable, sequences, goals).success.all()
    assert not check(maze.passable, [path[:2] + path[3:] for path in sequences], goals).valid.any()
    assert not check(maze.passable, [path[::-1] for path in sequences], goals).in_order.any()
    assert not check(maze.passable, [path[:-1] for path in sequences], goals).success.any()


def test_legal_moves_points_at_the_moves_that_are_not():
    assert legal_moves(GRID, [0, 1, 5, 6, 10, 15]).tolist() == [True, False, False, True, False]


@pytest.mark.parametrize("successes, n", [(0, 1), (0, 50), (1, 7), (97, 100), (1000, 1000), (640, 1000)])
def test_wilson_is_the_score_interval(successes, n):
    expected = binomtest(successes, n).proportion_ci(0.95, method="wilson")
    found = rate(successes, n)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-4)


def test_more_successes_than_trials_are_refused():
    with pytest.raises(ValueError, match="got 3 of 2"):
        rate(3, 2)
