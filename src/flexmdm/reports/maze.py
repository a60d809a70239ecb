"""Mazes for a person: paths drawn with matplotlib and in characters, the table of an evaluation, and samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, ListedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Circle, FancyBboxPatch, PathPatch
from matplotlib.textpath import TextPath
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flexmdm.generation.defaults import DEFAULTS
from flexmdm.reports.answers import write_json
from flexmdm.reports.charts import INK, SOFT
from flexmdm.reports.tables import results_table
from flexmdm.sweeps.maze import MazeScore, plan, problem_through, shortest
from flexmdm.tasks.maze.checker import fault, legal_moves, open_cells
from flexmdm.tasks.maze.grid import Maze
from flexmdm.tasks.maze.task import MazeTask

if TYPE_CHECKING:
    from flexmdm.backbones.model import FlexMDMModel

TRIES = 4  # who asks for one path gets the first of these that is one
PICKED = 4  # subgoals of a problem that nobody chose, if the model knows so many
WALL, FLOOR, WRONG = "#39444f", "#f5f6f8", "#e0182d"
COURSE = LinearSegmentedColormap.from_list("course", ["#0057a8", "#00a38d", "#f0b400"])  # from the start to the goal
_FONT = FontProperties(family="DejaVu Sans", weight="bold")
# Walls, and a path by the sides on which it goes on (above 1, below 2, left 4, right 8) and between two cells.
_SIGNS, _ASCII_SIGNS = ("██", "•╹╻┃╸┛┓┫╺┗┏┣━┻┳╋", " ━"), ("##", "o|||-+++-+++-+++", " -")
Point = tuple[int, int]  # column and row


@dataclass(frozen=True)
class Move:
    """A line from cell to cell, and the frame of a film that shows it first."""

    start: Point
    end: Point
    colour: str
    frame: int | None = None

    @property
    def wrong(self) -> bool:
        return self.colour == WRONG


@dataclass(frozen=True)
class Picture:
    """A path in a maze: its moves, cells in walls, subgoals with colours, and cells with colour and first frame."""

    moves: Sequence[Move]
    blocked: Sequence[Point]
    rings: Sequence[tuple[Point, str]]
    cells: Sequence[tuple[Point, str, int]] = ()


def planned(maze: Maze, path: Sequence[int], subgoals: Sequence[int], missed: str = WRONG) -> Picture:
    """Return a whole path; moves and cells that the maze does not allow are red, missed subgoals have their colour."""
    path = _cells_only(maze, path)
    colours, at = course_colours(len(path)), [point_of(maze, token) for token in path]
    legal = legal_moves(maze.passable, path)
    moves = [Move(at[k], at[k + 1], colours[k + 1] if fine else WRONG) for k, fine in enumerate(legal)]
    blocked = [point for point, fine in zip(at, open_cells(maze.passable, path), strict=True) if not fine]
    rings = [(point_of(maze, token), colours[path.index(token)] if token in path else missed) for token in subgoals]
    return Picture(moves, blocked, rings)


def point_of(maze: Maze, token: int) -> Point:
    """Return the column and the row of a cell."""
    return maze.cell(token)[::-1]


def course_colours(length: int) -> list[str]:
    """Return colours from the start of a path to its goal."""
    return [to_hex(COURSE(share)) for share in np.linspace(0, 1, length)]


def _cells_only(maze: Maze, path: Sequence[int]) -> list[int]:
    """Return a path without the tokens that stand for no cell, such as SEP."""
    return [token for token in path if 0 <= token < maze.size**2]


def draw_maze(
    axes: Axes,
    maze: Maze,
    path: Sequence[int] = (),
    subgoals: Sequence[int] = (),
    title: str = "",
) -> None:
    """Draw a maze, a path coloured from start to goal, and numbered subgoals; everything scales with the axes.

    Illegal moves and cells are red, and so is the ring of a subgoal that the path misses.
    """
    axes.imshow(maze.passable, cmap=ListedColormap([WALL, FLOOR]), vmin=0, vmax=1, zorder=0)
    axes.set_title(title, loc="left", fontsize=11, color=INK, pad=8)
    axes.spines[:].set_visible(False)
    axes.tick_params(colors=SOFT, labelsize=8, length=2)
    for axis, name in ((axes.xaxis, "column"), (axes.yaxis, "row")):
        axis.set_major_locator(MaxNLocator(9, steps=[1, 2, 5, 10], integer=True))
        axis.set_label_text(name, color=SOFT, fontsize=9)
    picture = planned(maze, path, subgoals, WRONG if path else SOFT)
    for move in picture.moves:
        _draw_line(axes, move.start, move.end, move.colour, *((0.2, 3) if move.wrong else (0.42, 2)))
    for x, y in picture.blocked:
        for slope in (0.28, -0.28):
            _draw_line(axes, (x - 0.28, y - slope), (x + 0.28, y + slope), WRONG, 0.2, zorder=3)
    radius = float(np.clip(maze.size / 45, 0.4, 0.9))  # in cells; on a large maze a number needs more than one
    for number, (point, colour) in enumerate(picture.rings, start=1):
        # Every ring lies below every disc, so that neighbours do not hide each other's numbers.
        axes.add_patch(Circle(point, radius, facecolor=colour, linewidth=0, zorder=4))
        axes.add_patch(Circle(point, 0.78 * radius, facecolor="white", linewidth=0, zorder=5))
        digits = TextPath((0, 0), str(number), size=1, prop=_FONT)
        box = digits.get_extents()
        scale = min(0.8 * radius / box.height, 1.1 * radius / box.width)
        centred = Affine2D().translate(-box.x0 - box.width / 2, -box.y0 - box.height / 2).scale(scale, -scale)
        transform = centred.translate(*point) + axes.transData
        axes.add_patch(PathPatch(digits, transform=transform, facecolor=INK, linewidth=0, zorder=6))


def _draw_line(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, width: float, zorder: int
) -> None:
    """Draw a line with round ends, as wide as a share of a cell."""
    across, down = end[0] - start[0], end[1] - start[1]
    style = f"round,pad={width / 2},rounding_size={width / 2}"
    line = FancyBboxPatch((0, 0), math.hypot(across, down), 0, style, facecolor=colour, linewidth=0, zorder=zorder)
    line.set_transform(Affine2D().rotate(math.atan2(down, across)).translate(*start) + axes.transData)
    axes.add_patch(line)


def terminal(maze: Maze, path: Sequence[int] = (), subgoals: Sequence[int] = (), ascii_only: bool = False) -> Text:
    """Return the maze in coloured characters, two for each cell.

    Lines are legal moves, x is where an illegal move arrives, and subgoals have their numbers.

    >>> maze = Maze.division(7)
    >>> path = [8, 15, 22, 23, 24, 17, 10]
    >>> print(terminal(maze, path, subgoals=[8, 24, 10], ascii_only=True))
    ##############
    ##1   3     ##
    ##| ##| ##  ##
    ##+---2     ##
    ##  ##    ####
    ##          ##
    ##############
    """
    wall, lines, ahead = _ASCII_SIGNS if ascii_only else _SIGNS
    is_open = maze.passable.flatten()
    texts, styles = np.where(is_open, "  ", wall).astype(object), np.where(is_open, "", SOFT).astype(object)
    path = _cells_only(maze, path)
    legal = legal_moves(maze.passable, path)
    sides = np.zeros(len(is_open), dtype=int)  # on which legal moves go on, as bits
    bits = {-maze.size: (1, 2), maze.size: (2, 1), -1: (4, 8), 1: (8, 4)}  # of the cell left and of the cell entered
    for move in np.flatnonzero(legal):
        start, end = path[move : move + 2]
        leaving, entering = bits[end - start]
        sides[start] |= leaving
        sides[end] |= entering
    fine = open_cells(maze.passable, path)
    fine[1:] &= legal
    wrong = {token for token, is_fine in zip(path, fine, strict=True) if not is_fine}
    for token, colour in zip(path, course_colours(len(path)), strict=True):
        texts[token] = ("x" if token in wrong else lines[sides[token]]) + ahead[sides[token] >> 3]
        styles[token] = WRONG if token in wrong else colour
    for number, token in enumerate(subgoals, start=1):
        texts[token] = (str(number) + ahead[sides[token] >> 3])[:2]
        styles[token] = f"bold white on {styles[token] or (WRONG if path else SOFT)}"
    rows = zip(texts.reshape(maze.passable.shape), styles.reshape(maze.passable.shape), strict=True)
    return Text("\n").join(Text.assemble(*zip(*row, strict=True)) for row in rows)


def legend(ascii_only: bool = False) -> str:
    """Return the meaning of the characters of `terminal`, in a line."""
    wall, _, line = _ASCII_SIGNS if ascii_only else _SIGNS
    return f"1, 2, ... the subgoals   {line[1]} the path   x a wrong step   {wall} wall"


def evaluate(task: MazeTask, model: FlexMDMModel, counts: Sequence[int], num: int, **options: Any) -> list[MazeScore]:
    """Plan through held-out problems with each number of subgoals, and print the table."""
    scores = [plan(task, model, count, num, **options).score for count in counts]
    Console().print(table_of(scores, f"{task.size} x {task.size} maze, {task.model}, {num} held-out problems each"))
    return scores


def table_of(scores: Sequence[MazeScore], title: str) -> Table:
    """Return a table with one row per score."""
    caption = "success with its 95% interval; excess: cells above the shortest path; evaluations and ms per path"
    figures = ("K", "success", "valid", "in order", "excess", "evals", "ms")
    table = results_table(title, ("model", "sampler"), figures, caption)
    for s in scores:
        table.add_row(
            s.model, f"{s.sampler} {s.steps} T={s.temperature:g}", str(s.subgoals),
            f"{s.success:.1%} ({100 * s.low:.0f}-{100 * s.high:.0f})", f"{s.valid:.1%}", f"{s.in_order:.1%}",
            "-" if s.excess is None else f"{s.excess:+.1f}", f"{s.evaluations:.0f}", f"{1000 * s.seconds:.0f}",
        )  # fmt: skip
    return table


def sample(
    task: MazeTask,
    model: FlexMDMModel,
    cells: Sequence[tuple[int, int]],
    num: int,
    output: Path,
    json: Path | None = None,
    seed: int = 0,
    **options: Any,
) -> None:
    """Connect ``cells`` (or the subgoals of a held-out problem) by ``num`` paths, and draw them.

    Several paths are shown as they come. One path is the first of four tries that is right, or the first of all if none
    is; how many are right is said.
    """
    console = Console(highlight=False)
    subgoals = problem_through(task, cells) if cells else _picked(task, seed, console)
    (least,) = shortest(task, [subgoals])
    if least > task.longest_path:
        console.print(
            f"the shortest path through these cells has {least}, more than any path that this model learned from "
            f"({task.longest_path}): it may well fail"
        )
    settings = DEFAULTS["planning"].options(task.layout.inserts, **options)
    tries = TRIES if num == 1 else num
    paths = [list(answer.tokens) for answer in task.pipeline(model).plan([subgoals], tries, seed=seed, **settings)]
    faults = [fault(task.maze.passable, path, subgoals) for path in paths]
    shown = list(zip(paths, faults, strict=True))
    if num == 1:
        shown = [min(shown, key=lambda one: one[1] is not None)]  # the first of the best
    ascii_only = "utf" not in (console.encoding or "").lower()
    for path, wrong in shown:
        console.print(terminal(task.maze, path, subgoals, ascii_only), soft_wrap=True)
        verdict = "[green]reaches every subgoal in order[/]" if wrong is None else f"[red]fails[/]: {wrong}"
        console.print(f"{len(path)} cells; {verdict}")
    console.print(legend(ascii_only), style="dim")
    console.print(_tally(paths, faults, num, settings["steps"]))
    output.parent.mkdir(parents=True, exist_ok=True)
    _picture(task, shown, subgoals).savefig(output, dpi=150)
    console.print(f"drawn in {output}")
    if json is not None:
        found = [
            {
                "path": [task.maze.cell(token) if token < task.size**2 else None for token in path],
                "success": wrong is None,
                "fault": wrong,
            }
            for path, wrong in shown
        ]
        through = [task.maze.cell(token) for token in subgoals]
        write_json(json, {"through": through, "paths": found, "tries": tries, "successes": faults.count(None)})


def _picked(task: MazeTask, seed: int, console: Console) -> list[int]:
    """Return the subgoals of a held-out problem, and print them."""
    low, high = task.subgoals
    subgoals = task.problems(1, min(max(PICKED, low), high), seed)[0]
    cells = " ".join("{},{}".format(*task.maze.cell(token)) for token in subgoals)
    console.print(f"no cells were given, so this is a held-out problem: --through {cells}", soft_wrap=True)
    return subgoals


def _tally(paths: Sequence[Sequence[int]], faults: Sequence[str | None], num: int, steps: int) -> str:
    """Return how many of all tries are right, and what to do if none is."""
    good, tries = faults.count(None), len(paths)
    words = f"{good} of {tries} {'tries' if num == 1 else 'paths'} {'is' if good == 1 else 'are'} right"
    alike = tries > 1 and len(set(map(tuple, paths))) == 1
    if alike:
        words += " (they are all the same)"
    elif num == 1:
        words += {0: ": this is the first try", 1: ": this one"}.get(good, ": this is the first of them")
    if good:
        return words
    other = "--temperature 1" if alike else "another --seed"
    return f"{words}. To try: {other}, more --steps than {steps}, or --num {2 * tries} to see more paths"


def _picture(task: MazeTask, shown: Sequence[tuple[Sequence[int], str | None]], subgoals: Sequence[int]) -> Figure:
    """Return a figure of paths and their faults, four beside each other."""
    columns = min(len(shown), 4)
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(4.6 * columns, 4.8 * rows), layout="constrained", facecolor="white")
    for number, (path, wrong) in enumerate(shown, start=1):
        title = f"{'valid' if wrong is None else 'not valid'}: {len(path)} cells" + (f"; {wrong}" if wrong else "")
        draw_maze(figure.add_subplot(rows, columns, number), task.maze, path, subgoals, "\n".join(wrap(title, 48)))
    return figure
