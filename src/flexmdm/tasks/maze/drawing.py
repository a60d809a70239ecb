"""Pictures of mazes and paths, for matplotlib and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, ListedColormap, to_hex
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Circle, PathPatch
from matplotlib.textpath import TextPath
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D

from flexmdm.evaluation.charts import INK, SOFT
from flexmdm.tasks.maze.checker import legal_moves, open_cells
from flexmdm.tasks.maze.grid import Maze

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
        colours = _course_colours(len(path))
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
    """The maze in characters, two for each cell; ``markup`` adds colours for rich.

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
    for token, colour in zip(path, _course_colours(len(path)), strict=True):
        cell = maze.cell(token)
        texts[cell] = ("x" if cell in wrong else lines[sides[cell]]) + ahead[sides[cell] >> 3]
        styles[cell] = WRONG if cell in wrong else colour
    for number, token in enumerate(subgoals or (), start=1):
        cell = maze.cell(token)
        texts[cell] = (str(number) + ahead[sides[cell] >> 3])[:2]
        styles[cell] = f"bold white on {styles[cell] or (WRONG if path else SOFT)}"
    return "\n".join(_row(*row, markup) for row in zip(texts, styles, strict=True))


def legend(ascii_only: bool = False) -> str:
    """What the characters of `terminal` mean, in a line."""
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
    places = np.stack(np.divmod(path, maze.size)[::-1], axis=1)  # [L, 2] as x, y
    moves = np.stack([places[:-1], places[1:]], axis=1)  # [L - 1, 2, 2]
    legal = legal_moves(maze.passable, path)
    _CellLines(axes, moves[legal], 0.42, np.array(colours)[1:][legal].tolist(), zorder=2)
    _CellLines(axes, moves[~legal], 0.2, [WRONG], zorder=3)
    blocked = places[~open_cells(maze.passable, path)].astype(float)
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
    place = Affine2D().translate(-box.x0 - box.width / 2, -box.y0 - box.height / 2).scale(scale, -scale)
    place = place.translate(column, row) + axes.transData
    axes.add_patch(PathPatch(digits, transform=place, facecolor=INK, linewidth=0, zorder=6))


def _course_colours(length: int) -> list[str]:
    return [to_hex(COURSE(share)) for share in np.linspace(0, 1, length)]


def _wrong_arrivals(maze: Maze, path: list[int]) -> list[int]:
    """The tokens of a path that stand on a wall or that an illegal move leads to."""
    arrived = np.concatenate([[True], legal_moves(maze.passable, path)])[: len(path)]
    return [token for token, fine in zip(path, arrived & open_cells(maze.passable, path), strict=True) if not fine]


def _sides(maze: Maze, path: list[int]) -> np.ndarray:
    """``[size, size]``: on which sides of each cell the legal moves of a path go on, as the bits of ``_LINES``."""
    sides = np.zeros(maze.passable.shape, dtype=int)
    bits = {-maze.size: (1, 2), maze.size: (2, 1), -1: (4, 8), 1: (8, 4)}  # of the cell left and of the cell entered
    for move in np.flatnonzero(legal_moves(maze.passable, path)):
        start, end = path[move], path[move + 1]
        leaving, entering = bits[end - start]
        sides[maze.cell(start)] |= leaving
        sides[maze.cell(end)] |= entering
    return sides


def _row(texts: np.ndarray, styles: np.ndarray, markup: bool) -> str:
    """One line of characters; with markup, neighbours of the same style share a tag."""
    if not markup:
        return "".join(texts)
    runs = groupby(zip(styles, texts, strict=True), key=lambda cell: cell[0])
    joined = [(style, "".join(text for _, text in run)) for style, run in runs]
    return "".join(f"[{style}]{text}[/]" if style else text for style, text in joined)
