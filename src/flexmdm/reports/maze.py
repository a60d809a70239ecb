"""Mazes for a person: paths drawn with matplotlib and in characters, the table of an evaluation, and samples."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, ListedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Circle, PathPatch
from matplotlib.textpath import TextPath
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D
from rich.console import Console
from rich.table import Table

from flexmdm.generation import generate
from flexmdm.reports.charts import INK, SOFT
from flexmdm.sweeps.maze import MazeScore, plan, problem_through, settings_of, shortest
from flexmdm.tasks.maze.checker import fault, legal_moves, open_cells
from flexmdm.tasks.maze.grid import Maze
from flexmdm.tasks.maze.task import MazeTask
from flexmdm.tasks.pipeline import bar_on_stderr

if TYPE_CHECKING:
    from flexmdm.backbones.model import FlexMDMModel

TRIES = 4  # who asks for one path gets the first of these that is one
PICKED = 4  # subgoals of a problem that nobody chose, if the model knows so many
WALL, FLOOR, WRONG = "#39444f", "#f5f6f8", "#e0182d"
COURSE = LinearSegmentedColormap.from_list("course", ["#0057a8", "#00a38d", "#f0b400"])  # from the start to the goal
_FONT = FontProperties(family="DejaVu Sans", weight="bold")
# By the sides on which a path goes on: above 1, below 2, left 4, right 8.
_LINES, _ASCII_LINES = "•╹╻┃╸┛┓┫╺┗┏┣━┻┳╋", "o|||-+++-+++-+++"


def draw_maze(
    axes: Axes,
    maze: Maze,
    path: Sequence[int] | None = None,
    subgoals: Sequence[int] | None = None,
    title: str | None = None,
    numbered: bool = False,
) -> None:
    """Draw a maze, a path coloured from start to goal, and numbered subgoals; everything scales with the axes.

    Illegal moves and cells are red, and so is the ring of a subgoal that the path misses. ``numbered`` adds the numbers
    of rows and columns.
    """
    axes.imshow(maze.passable, cmap=ListedColormap([WALL, FLOOR]), vmin=0, vmax=1, zorder=0)
    if numbered:
        _number_cells(axes)
    else:
        axes.set_axis_off()
    if title:
        axes.set_title(title, loc="left", fontsize=11, color=INK, pad=8)
    path = [token for token in path or () if 0 <= token < maze.size**2]
    rings = dict.fromkeys(subgoals or (), WRONG if path else SOFT)
    if path:
        colours = course_colours(len(path))
        _draw_path(axes, maze, path, colours)
        rings |= {token: colours[path.index(token)] for token in rings if token in path}
    radius = float(np.clip(maze.size / 45, 0.4, 0.9))  # in cells; on a large maze a number needs more than one
    for number, token in enumerate(subgoals or (), start=1):
        _draw_subgoal(axes, maze, token, number, radius, rings[token])


def terminal(
    maze: Maze,
    path: Sequence[int] | None = None,
    subgoals: Sequence[int] | None = None,
    ascii_only: bool = False,
    markup: bool = False,
) -> str:
    """Return the maze in characters, two for each cell; ``markup`` adds colours for rich.

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
    texts = np.where(maze.passable, "  ", "##" if ascii_only else "██").astype(object)
    styles = np.where(maze.passable, "", SOFT).astype(object)
    path = [token for token in path or () if 0 <= token < maze.size**2]
    sides, wrong = _sides(maze, path), {maze.cell(token) for token in _wrong_arrivals(maze, path)}
    lines, ahead = (_ASCII_LINES, " -") if ascii_only else (_LINES, " ━")
    for token, colour in zip(path, course_colours(len(path)), strict=True):
        cell = maze.cell(token)
        texts[cell] = ("x" if cell in wrong else lines[sides[cell]]) + ahead[sides[cell] >> 3]
        styles[cell] = WRONG if cell in wrong else colour
    for number, token in enumerate(subgoals or (), start=1):
        cell = maze.cell(token)
        texts[cell] = (str(number) + ahead[sides[cell] >> 3])[:2]
        styles[cell] = f"bold white on {styles[cell] or (WRONG if path else SOFT)}"
    return "\n".join(_row(*row, markup) for row in zip(texts, styles, strict=True))


def legend(ascii_only: bool = False) -> str:
    """Return the meaning of the characters of `terminal`, in a line."""
    wall, line = ("##", "-") if ascii_only else ("██", "━")
    return f"1, 2, ... the subgoals   {line} the path   x a wrong step   {wall} wall"


class _CellLines(LineCollection):
    """Lines whose width is a share of a cell, at any size of the axes."""

    def __init__(self, axes: Axes, segments: np.ndarray, width: float, colours: list[str], zorder: int) -> None:
        super().__init__(list(segments), colors=colours, capstyle="round", zorder=zorder)
        self._host, self._width = axes, width
        axes.add_collection(self)

    def draw(self, renderer: RendererBase) -> None:
        (left, _), (right, _) = self._host.transData.transform([(0, 0), (1, 0)])
        self.set_linewidth(self._width * (right - left) * 72 / self._host.figure.dpi)
        super().draw(renderer)


def _number_cells(axes: Axes) -> None:
    for axis, name in ((axes.xaxis, "column"), (axes.yaxis, "row")):
        axis.set_major_locator(MaxNLocator(9, steps=[1, 2, 5, 10], integer=True))
        axis.set_label_text(name, color=SOFT, fontsize=9)
    axes.tick_params(colors=SOFT, labelsize=8, length=2)
    axes.spines[:].set_visible(False)


def _draw_path(axes: Axes, maze: Maze, path: list[int], colours: list[str]) -> None:
    cells = np.stack(np.divmod(path, maze.size)[::-1], axis=1)  # [L, 2] as x, y
    moves = np.stack([cells[:-1], cells[1:]], axis=1)  # [L - 1, 2, 2]
    legal = legal_moves(maze.passable, path)
    _CellLines(axes, moves[legal], 0.42, np.array(colours)[1:][legal].tolist(), zorder=2)
    _CellLines(axes, moves[~legal], 0.2, [WRONG], zorder=3)
    blocked = cells[~open_cells(maze.passable, path)].astype(float)
    for slope in (1, -1):  # a cross
        arm = np.array([0.28, 0.28 * slope])
        _CellLines(axes, np.stack([blocked - arm, blocked + arm], axis=1), 0.2, [WRONG], zorder=3)


def _draw_subgoal(axes: Axes, maze: Maze, token: int, number: int, radius: float, colour: str) -> None:
    row, column = maze.cell(token)
    # Every ring lies below every disc, so that neighbours do not hide each other's numbers.
    axes.add_patch(Circle((column, row), radius, facecolor=colour, linewidth=0, zorder=4))
    axes.add_patch(Circle((column, row), 0.78 * radius, facecolor="white", linewidth=0, zorder=5))
    digits = TextPath((0, 0), str(number), size=1, prop=_FONT)
    box = digits.get_extents()
    scale = min(0.8 * radius / box.height, 1.1 * radius / box.width)
    centred = Affine2D().translate(-box.x0 - box.width / 2, -box.y0 - box.height / 2).scale(scale, -scale)
    transform = centred.translate(column, row) + axes.transData
    axes.add_patch(PathPatch(digits, transform=transform, facecolor=INK, linewidth=0, zorder=6))


def course_colours(length: int) -> list[str]:
    """Return colours from the start of a path to its goal."""
    return [to_hex(COURSE(share)) for share in np.linspace(0, 1, length)]


def _wrong_arrivals(maze: Maze, path: list[int]) -> list[int]:
    """Return the tokens of a path that stand on a wall or that an illegal move leads to."""
    arrived = np.concatenate([[True], legal_moves(maze.passable, path)])[: len(path)]
    return [token for token, fine in zip(path, arrived & open_cells(maze.passable, path), strict=True) if not fine]


def _sides(maze: Maze, path: list[int]) -> np.ndarray:
    """Return ``[size, size]``: the sides of each cell on which legal moves of a path go on, as bits of ``_LINES``."""
    sides = np.zeros(maze.passable.shape, dtype=int)
    bits = {-maze.size: (1, 2), maze.size: (2, 1), -1: (4, 8), 1: (8, 4)}  # of the cell left and of the cell entered
    for move in np.flatnonzero(legal_moves(maze.passable, path)):
        start, end = path[move], path[move + 1]
        leaving, entering = bits[end - start]
        sides[maze.cell(start)] |= leaving
        sides[maze.cell(end)] |= entering
    return sides


def _row(texts: np.ndarray, styles: np.ndarray, markup: bool) -> str:
    """Return one line of characters; with markup, neighbours of the same style share a tag."""
    if not markup:
        return "".join(texts)
    runs = groupby(zip(styles, texts, strict=True), key=lambda cell: cell[0])
    joined = [(style, "".join(text for _, text in run)) for style, run in runs]
    return "".join(f"[{style}]{text}[/]" if style else text for style, text in joined)


def evaluate(
    task: MazeTask,
    model: FlexMDMModel,
    counts: Sequence[int],
    num: int,
    console: Console | None = None,
    **options: Any,
) -> list[MazeScore]:
    """Plan through held-out problems with each number of subgoals, and print the table."""
    console = console or Console()
    scores = []
    with bar_on_stderr() as progress:
        for count in counts:
            bar = progress.add_task(f"K = {count}", total=num)
            options["progress"] = lambda done, _, bar=bar: progress.update(bar, completed=done)
            scores.append(plan(task, model, count, num, **options).score)
    console.print(table_of(scores, f"{task.size} x {task.size} maze, {task.model}, {num} held-out problems each"))
    return scores


def table_of(scores: Sequence[MazeScore], title: str) -> Table:
    """Return a table with one row per score."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in ("model", "K", "sampler", "success", "valid", "in order", "excess", "evals", "ms"):
        table.add_column(heading, justify="left" if heading in ("model", "sampler") else "right")
    for s in scores:
        table.add_row(
            s.model, str(s.subgoals), f"{s.sampler} {s.steps} T={s.temperature:g}",
            f"{s.success:.1%} ({100 * s.low:.0f}-{100 * s.high:.0f})", f"{s.valid:.1%}", f"{s.in_order:.1%}",
            "-" if s.excess is None else f"{s.excess:+.1f}", f"{s.evaluations:.0f}", f"{1000 * s.seconds:.0f}",
        )  # fmt: skip
    table.caption = "success with its 95% interval; excess: cells above the shortest path; evaluations and ms per path"
    table.caption_justify = "left"
    return table


def sample(
    task: MazeTask,
    model: FlexMDMModel,
    cells: Sequence[tuple[int, int]],
    num: int = 1,
    output: Path = Path("path.png"),
    json: Path | None = None,
    console: Console | None = None,
    seed: int = 0,
    **options: Any,
) -> list[list[int]]:
    """Connect ``cells`` (or the subgoals of a held-out problem) by ``num`` paths, and draw them.

    Several paths are shown as they come. One path is the first of four tries that is right, or the first of all if none
    is; how many are right is said.
    """
    console = console or Console()
    subgoals = problem_through(task, cells) if cells else _picked(task, seed, console)
    _warn(task, subgoals, console)
    settings = settings_of(task, **options)
    tries = TRIES if num == 1 else num
    out = generate(model.denoiser(), tries, prompts=[task.prompt(subgoals)], seed=seed, **settings)
    paths = [task.path(sequence) for sequence in out.sequences]
    faults = [fault(task.maze.passable, path, subgoals) for path in paths]
    shown = [faults.index(None) if None in faults else 0] if num == 1 else range(num)
    ascii_only = "utf" not in (console.encoding or "").lower()
    for number in shown:
        drawing = terminal(task.maze, paths[number], subgoals, ascii_only, markup=True)
        console.print(drawing, soft_wrap=True)
        console.print(f"{len(paths[number])} cells; {_verdict(faults[number])}", highlight=False)
    console.print(legend(ascii_only), style="dim", highlight=False)
    console.print(_tally(paths, faults, num, settings), highlight=False)
    output.parent.mkdir(parents=True, exist_ok=True)
    _picture(task, [paths[n] for n in shown], [faults[n] for n in shown], subgoals).savefig(output, dpi=150)
    console.print(f"drawn in {output}")
    if json is not None:
        rows = [
            {
                "path": [task.maze.cell(t) if t < task.size**2 else None for t in paths[n]],
                "success": faults[n] is None,
                "fault": faults[n],
            }
            for n in shown
        ]
        tally = {"tries": tries, "successes": faults.count(None)}
        json.parent.mkdir(parents=True, exist_ok=True)
        through = [task.maze.cell(t) for t in subgoals]
        json.write_text(json_module.dumps({"through": through, "paths": rows, **tally}) + "\n")
    return [paths[n] for n in shown]


def _picked(task: MazeTask, seed: int, console: Console) -> list[int]:
    """Return the subgoals of a held-out problem, and print them."""
    low, high = task.subgoals
    subgoals = task.problems(1, min(max(PICKED, low), high), seed)[0]
    cells = " ".join("{},{}".format(*task.maze.cell(token)) for token in subgoals)
    words = f"no cells were given, so this is a held-out problem: --through {cells}"
    console.print(words, highlight=False, soft_wrap=True)
    return subgoals


def _warn(task: MazeTask, subgoals: list[int], console: Console) -> None:
    """Say so if the model has never seen a path as long as this one must be."""
    (cells,) = shortest(task, [subgoals])
    if cells > task.longest_path:
        console.print(
            f"the shortest path through these cells has {cells}, more than any path that this model learned from "
            f"({task.longest_path}): it may well fail",
            highlight=False,
        )


def _verdict(wrong: str | None) -> str:
    return "[green]reaches every subgoal in order[/]" if wrong is None else f"[red]fails[/]: {wrong}"


def _tally(paths: Sequence[Sequence[int]], faults: Sequence[str | None], num: int, settings: dict[str, Any]) -> str:
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
    return f"{words}. To try: {other}, more --steps than {settings['steps']}, or --num {2 * tries} to see more paths"


def _picture(
    task: MazeTask, paths: Sequence[Sequence[int]], faults: Sequence[str | None], subgoals: Sequence[int]
) -> Figure:
    columns = min(len(paths), 4)
    rows = -(-len(paths) // columns)
    figure = Figure(figsize=(4.6 * columns, 4.8 * rows), layout="constrained", facecolor="white")
    for number, (path, wrong) in enumerate(zip(paths, faults, strict=True), start=1):
        title = f"{'valid' if wrong is None else 'not valid'}: {len(path)} cells" + (f"; {wrong}" if wrong else "")
        axes = figure.add_subplot(rows, columns, number)
        draw_maze(axes, task.maze, path, subgoals, "\n".join(wrap(title, 48)), numbered=True)
    return figure
