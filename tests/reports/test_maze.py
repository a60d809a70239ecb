from io import BytesIO

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread

from flexmdm.reports.maze import WRONG, draw_maze, legend, terminal
from flexmdm.tasks.maze.grid import Maze
from flexmdm.tasks.maze.paths import make_paths

MAZE = Maze.division(41)
DATA = make_paths(MAZE, pairs=50)
PATH = DATA.paths[int(DATA.paths.lengths.argmax())].values.tolist()
GOALS = [PATH[0], PATH[5], PATH[20], PATH[-1]]
BROKEN = PATH[:10] + PATH[15:]


SMALL, AROUND = Maze.division(7), [8, 15, 22, 23, 24, 17, 10]  # from (1, 1) to (1, 3)


def red_share(path, goals):
    figure = Figure(figsize=(3, 3))
    draw_maze(figure.subplots(), SMALL, path, goals, title="a maze")
    file = BytesIO()
    figure.savefig(file, format="png")
    file.seek(0)
    return (np.abs(imread(file)[:, :, :3] - to_rgb(WRONG)).max(2) < 0.02).mean()


@pytest.mark.parametrize("path, goals", [([], []), ([], [8, 10]), ([8], [8]), (AROUND, [8, 24, 10])])
def test_what_is_right_is_not_red(path, goals):
    assert red_share(path, goals) == 0


@pytest.mark.parametrize(
    "path, goals",
    [([8, 15, 17, 10], []), ([8, 15, 16], []), (AROUND, [8, 40]), ([0], [])],
    ids=["a jump", "into a wall", "a missed subgoal", "a wall cell alone"],
)
def test_what_is_wrong_is_red(path, goals):
    assert red_share(path, goals) > 0


def test_tokens_that_are_no_cells_are_left_out():
    assert terminal(MAZE, [*PATH, 41**2, 41**2 + 1], GOALS).markup == terminal(MAZE, PATH, GOALS).markup
    assert red_share([49, -1], []) == 0


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("path, goals", [([], []), (PATH, GOALS), (BROKEN, GOALS), ([0, 1], GOALS)])
def test_every_cell_takes_two_characters(path, goals, ascii_only):
    text = terminal(MAZE, path, goals, ascii_only=ascii_only).plain
    assert [len(line) for line in text.split("\n")] == [82] * 41
    assert text.isascii() == ascii_only


def test_the_terminal_shows_lines_numbers_and_errors():
    maze = Maze(np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=bool))
    assert terminal(maze, [0, 1, 2, 5, 8], [0, 8]).plain.split("\n") == ["1━━━┓ ", "  ██┃ ", "    2 "]
    assert terminal(maze, [0, 1, 2, 5, 8], [0, 8], ascii_only=True).plain.split("\n") == ["1---+ ", "  ##| ", "    2 "]
    assert terminal(maze, [0, 1, 4, 7], ascii_only=True).plain.split("\n") == ["--- ".ljust(6), "  x   ", "  x   "]
    assert terminal(maze, [0, 8], ascii_only=True).plain.split("\n") == ["o     ", "  ##  ", "    x "]
    assert terminal(maze, [], [0] * 9 + [2], ascii_only=True).plain.split("\n")[0] == "9   10"


@pytest.mark.parametrize("ascii_only", [False, True])
def test_the_legend_is_one_line_and_names_what_is_drawn(ascii_only):
    drawn = terminal(MAZE, BROKEN, GOALS, ascii_only=ascii_only).plain
    words = legend(ascii_only)
    assert len(words) < 80 and words.isascii() == ascii_only
    assert all(sign in words and sign in drawn for sign in ("1", "x", *(("##", "-") if ascii_only else ("██", "━"))))


def test_rows_and_columns_are_numbered():
    axes = Figure().subplots()
    draw_maze(axes, SMALL, AROUND, [8, 10], "a title")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("column", "row")
    assert set(axes.get_yticks()) <= set(range(-5, 12))
