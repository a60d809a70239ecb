"""Mazes, sequences and charts as SVG, to stand in a page: no file, no font, no address."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from matplotlib.colors import to_hex

from flexmdm.generation import Event
from flexmdm.reports.charts import COLOURS, INK, SOFT
from flexmdm.reports.maze import COURSE, FLOOR, WALL, WRONG
from flexmdm.tasks.maze import Maze
from flexmdm.tasks.maze.checker import legal_moves, open_cells

MODEL_COLOURS = {"flexmdm": COLOURS[0], "mdm": COLOURS[1]}
MASK, GRID = "#c3cad3", "#e4e7eb"
CELL = 10  # side of a cell, in the units of a drawing
BOXES = 12  # of a sequence in one line
_WIDE, _HIGH, _LEFT, _TOP, _BOTTOM = 520, 250, 46, 12, 40  # of a chart


@dataclass(frozen=True)
class Box:
    """One entry of a finished sequence: what it became, and when.

    Attributes:
        token: the cell, or None for padding.
        subgoal: its number from 1, or 0.
        born: in which frame it is first there, as a mask.
        shown: in which frame it is first revealed.
        colour: of the cell.
    """

    token: int | None
    subgoal: int
    born: int
    shown: int
    colour: str


@dataclass(frozen=True)
class Growth:
    """A sequence from the first frame (number 0) to the last, and its subgoals."""

    boxes: tuple[Box, ...]
    subgoals: tuple[int, ...]
    frames: int

    def there(self, frame: int) -> list[Box]:
        return [box for box in self.boxes if box.born <= frame]


def course_colours(length: int) -> list[str]:
    """Colours from the start of a path to its goal."""
    return [to_hex(COURSE(share)) for share in np.linspace(0, 1, length)]


def drawing(content: str, width: float, height: float, label: str, kind: str = "") -> str:
    """An SVG as wide as its place, with a text for those who cannot see it."""
    return (
        f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">'
        f"{content}</svg>"
    )


# Mazes ----------------------------------------------------------------------------------------------------------------


def maze_symbol(maze: Maze) -> str:
    """The maze without paths, once in a page: the drawings of `maze_with` and others refer to it."""
    side = maze.size * CELL
    walls = []
    for row, cells in enumerate(~maze.passable):  # one rectangle per run of walls, so that no seams show
        starts = np.flatnonzero(cells & ~np.concatenate([[False], cells[:-1]]))
        ends = np.flatnonzero(cells & ~np.concatenate([cells[1:], [False]])) + 1
        for start, wide in zip(CELL * starts, CELL * (ends - starts), strict=True):
            walls.append(f"M{start} {CELL * row}h{wide}v{CELL}h-{wide}z")
    for column, cells in enumerate(~maze.passable.T):
        pairs = np.flatnonzero(cells[:-1] & cells[1:])
        walls += [f"M{CELL * column} {CELL * row + CELL // 2}h{CELL}v{CELL}h-{CELL}z" for row in pairs]
    return (
        '<svg class="symbols" width="0" height="0" aria-hidden="true"><defs>'
        f'<symbol id="maze" viewBox="0 0 {side} {side}"><rect width="{side}" height="{side}" rx="4" fill="{FLOOR}"/>'
        f'<clipPath id="frame"><rect width="{side}" height="{side}" rx="4"/></clipPath>'
        f'<path clip-path="url(#frame)" fill="{WALL}" d="{"".join(walls)}"/></symbol></defs></svg>'
    )


def maze_with(maze: Maze, path: Sequence[int], subgoals: Sequence[int], label: str) -> str:
    """A path coloured from start to goal; moves and cells that the maze does not allow and missed subgoals are red."""
    path = [token for token in path if 0 <= token < maze.size**2]
    colours = course_colours(len(path))
    parts = []
    legal = legal_moves(maze.passable, path) if len(path) > 1 else ()
    for (a, b), fine, colour in zip(zip(path, path[1:], strict=False), legal, colours[1:], strict=True):
        parts.append(_line(maze, a, b, colour if fine else WRONG, "" if fine else "wrong"))
    for token, fine in zip(path, open_cells(maze.passable, path), strict=True):
        if not fine:
            x, y = _centre(maze, token)
            parts.append(f'<path class="cross" d="M{x - 3} {y - 3}l6 6m0 -6l-6 6"/>')
    rings = {token: colours[path.index(token)] if token in path else WRONG for token in subgoals}
    parts += _subgoals(maze, subgoals, rings)
    return _on_maze(maze, "".join(parts), label)


def maze_at(maze: Maze, growth: Growth, frame: int, label: str) -> str:
    """What is revealed of a path in one frame."""
    return _on_maze(maze, "".join(_growing(maze, growth, frame)), label)


def maze_stage(maze: Maze, growth: Growth, label: str) -> str:
    """All of a growing path at once, each part marked with the frame that shows it, for a script to play."""
    return _on_maze(maze, "".join(_growing(maze, growth, None)), label)


def _growing(maze: Maze, growth: Growth, frame: int | None) -> list[str]:
    """Cells and moves that are revealed by a frame; without a frame all, with the frame in which they appear."""
    parts = []
    for a, b in zip(growth.boxes, growth.boxes[1:], strict=False):
        when = max(a.shown, b.shown)
        if a.token is None or b.token is None or (frame is not None and when > frame):
            continue
        (row, column), (other_row, other_column) = maze.cell(a.token), maze.cell(b.token)
        if abs(row - other_row) + abs(column - other_column) <= 1:
            parts.append(_timed(_line(maze, a.token, b.token, b.colour), when, frame))
        elif frame is None or frame == growth.frames - 1:  # only at the end is it certain that nothing comes between
            parts.append(_timed(_line(maze, a.token, b.token, WRONG, "wrong"), growth.frames - 1, frame))
    for box in growth.boxes:
        if box.token is not None and not box.subgoal and (frame is None or box.shown <= frame):
            x, y = _centre(maze, box.token)
            dot = f'<rect x="{x - 3:g}" y="{y - 3:g}" width="6" height="6" rx="2" fill="{box.colour}"/>'
            parts.append(_timed(dot, box.shown, frame))
    rings = {box.token: box.colour for box in reversed(growth.boxes) if box.token is not None}
    return parts + _subgoals(maze, growth.subgoals, rings)


def _timed(part: str, when: int, frame: int | None) -> str:
    return part if frame is not None else f'<g class="later" data-shown="{when}">{part}</g>'


def _on_maze(maze: Maze, content: str, label: str) -> str:
    side = maze.size * CELL
    return drawing(f'<use href="#maze" width="{side}" height="{side}"/>{content}', side, side, label, "maze")


def _centre(maze: Maze, token: int) -> tuple[float, float]:
    row, column = maze.cell(token)
    return CELL * (column + 0.5), CELL * (row + 0.5)


def _line(maze: Maze, a: int, b: int, colour: str, kind: str = "") -> str:
    (x, y), (to_x, to_y) = _centre(maze, a), _centre(maze, b)
    return f'<path class="move {kind}" stroke="{colour}" d="M{x:g} {y:g}L{to_x:g} {to_y:g}"/>'


def _subgoals(maze: Maze, subgoals: Sequence[int], rings: Mapping[int, str]) -> list[str]:
    parts = []
    for number, token in enumerate(subgoals, start=1):
        x, y = _centre(maze, token)
        parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="4.4" fill="{rings.get(token, SOFT)}"/>')
        parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="3.3" fill="#fff"/>')
        parts.append(f'<text class="number" x="{x:g}" y="{y + 1.9:g}">{number}</text>')
    return parts


# Sequences ------------------------------------------------------------------------------------------------------------


def sequence_at(growth: Growth, frame: int, before: int, label: str) -> str:
    """The sequence of one frame as boxes: grey for masks, the colour of the cell for what is revealed.

    What was inserted or revealed after the frame ``before`` has an edge.
    """
    parts = []
    for place, box in enumerate(growth.there(frame)):
        row, column = divmod(place, BOXES)
        revealed = box.shown <= frame
        new = (box.shown if revealed else box.born) > max(before, 0)
        parts.append(_box(box, CELL * column, CELL * row, revealed, new))
    rows = math.ceil(max(len(growth.boxes), 1) / BOXES)
    return drawing("".join(parts), CELL * BOXES, CELL * rows, label, "sequence")


def _box(box: Box, x: float, y: float, revealed: bool, new: bool) -> str:
    edge = INK if new else "none"
    text = _number(box, x + 5, y + 6.9) if revealed else ""
    return (
        f'<rect x="{x + 0.9:g}" y="{y + 0.9:g}" width="8.2" height="8.2" rx="1.8" '
        f'fill="{box.colour if revealed else MASK}" stroke="{edge}" stroke-width="0.9"/>{text}'
    )


def _number(box: Box, x: float, y: float) -> str:
    return f'<text class="number on" x="{x:g}" y="{y:g}">{box.subgoal}</text>' if box.subgoal else ""


def sequence_stage(growth: Growth, label: str) -> str:
    """All boxes of a growing sequence, each with its frames, for a script to place and colour."""
    parts = []
    for box in growth.boxes:
        kind = "box pad" if box.token is None else "box"
        parts.append(
            f'<g class="{kind}" data-born="{box.born}" data-shown="{box.shown}" style="--cell:{box.colour}">'
            f'<rect x="0.9" y="0.9" width="8.2" height="8.2" rx="1.8"/>{_number(box, 5, 6.9)}</g>'
        )
    return drawing("".join(parts), CELL * max(len(growth.boxes), BOXES), CELL, label, "sequence stage")


def grown(events: Sequence[Event], subgoals: Sequence[int]) -> Growth:
    """What became of the subgoals of `Prompt.through`: which entries were inserted and revealed, and when.

    >>> events = [Event(0, 0.5, "insert", 1, entry=2), Event(3, 1.0, "reveal", 1, entry=2, token=9)]
    >>> growth = grown(events, subgoals=[8, 10])
    >>> [(box.token, box.subgoal, box.born, box.shown) for box in growth.boxes], growth.frames
    ([(8, 1, 0, 0), (9, 0, 1, 2), (10, 2, 0, 0)], 3)
    """
    numbers = {step: number for number, step in enumerate(sorted({event.step for event in events}), start=1)}
    order = list(range(len(subgoals)))  # entries from left to right
    born, shown = dict.fromkeys(order, 0), dict.fromkeys(order, 0)
    tokens: dict[int, int | None] = dict(enumerate(subgoals))
    # Positions are those after the step: from left to right, each insertion finds its place.
    for event in sorted(events, key=lambda event: (event.step, event.position)):
        if event.kind == "insert":
            order.insert(event.position, event.entry)
            born[event.entry] = numbers[event.step]
        else:
            shown[event.entry], tokens[event.entry] = numbers[event.step], event.token
    colours = course_colours(len(order))
    boxes = [
        Box(tokens[entry], entry + 1 if entry < len(subgoals) else 0, born[entry], shown[entry], colour)
        for entry, colour in zip(order, colours, strict=True)
    ]
    return Growth(tuple(boxes), tuple(subgoals), len(numbers) + 1)


def filled(events: Sequence[Event], subgoals: Sequence[int], first: int, frames: int, pad: int) -> Growth:
    """How an MDM filled its row of masks, which begins at entry ``first``, spread over as many frames as asked for.

    >>> events = [Event(5, 0.5, "reveal", 3, entry=3, token=8), Event(9, 1.0, "reveal", 4, entry=4, token=99)]
    >>> [(box.token, box.shown) for box in filled(events, [8, 10], first=3, frames=5, pad=99).boxes]
    [(8, 2), (None, 4)]
    """
    numbers = {step: number for number, step in enumerate(sorted({event.step for event in events}), start=1)}
    events = sorted((event for event in events if event.entry >= first), key=lambda event: event.entry)
    cells = course_colours(sum(event.token != pad for event in events))
    boxes = []
    for event in events:
        shown = math.ceil(numbers[event.step] * (frames - 1) / len(numbers))
        token = None if event.token is None or event.token >= pad - 1 else event.token
        colour = cells.pop(0) if event.token != pad else "#fff"
        boxes.append(Box(token, 0, 0, shown, colour))
    return Growth(tuple(boxes), tuple(subgoals), frames)


# Charts ---------------------------------------------------------------------------------------------------------------


def length_chart(generated: Sequence[int], held_out: Mapping[int, float], colour: str, label: str) -> str:
    """Shares of lengths: bars for what was generated, a grey outline for held-out paths."""
    lengths = [*generated, *held_out]
    low, high = min(lengths), max(lengths)
    share = {n: sum(length == n for length in generated) / len(generated) for n in range(low, high + 1)}
    top = 1.1 * max([*share.values(), *held_out.values()])
    wide, high_ = _WIDE - _LEFT - 10, _HIGH - _TOP - _BOTTOM
    step = wide / (high - low + 1)

    def place(n: float, value: float) -> tuple[float, float]:
        return _LEFT + step * (n - low), _TOP + high_ * (1 - value / top)

    parts = _axes([(v, f"{v:.0%}") for v in _ticks(top)], lambda v: place(low, v)[1])
    for n, value in share.items():
        x, y = place(n, value)
        parts.append(
            f'<rect x="{x + 0.12 * step:.1f}" y="{y:.1f}" width="{0.76 * step:.1f}" '
            f'height="{_TOP + high_ - y:.1f}" fill="{colour}" rx="1"/>'
        )
    outline = f"M{_LEFT} {_TOP + high_}"
    for n in range(low, high + 1):
        x, y = place(n, held_out.get(n, 0.0))
        outline += f"L{x:.1f} {y:.1f}h{step:.1f}"
    parts.append(f'<path class="outline" d="{outline}V{_TOP + high_}"/>')
    every = 1 if high - low < 14 else 2 if high - low < 30 else 5
    for n in range(low, high + 1):
        if n % every == 0:
            parts.append(_tick_below(place(n + 0.5, 0)[0], str(n)))
    parts.append(_under("cells of the path"))
    return drawing("".join(parts), _WIDE, _HIGH, label, "chart")


def loss_chart(logs: Mapping[str, Sequence[Mapping[str, float]]], label: str) -> str:
    """The loss against the minutes of training: faint dots for batches, a line for held-out sequences."""
    points = {
        name: (
            [(line["seconds"] / 60, line["loss"]) for line in log if "loss" in line],
            [(line["seconds"] / 60, line["eval_loss"]) for line in log if "eval_loss" in line],
        )
        for name, log in logs.items()
    }
    everything = [point for pair in points.values() for part in pair for point in part if point[1] > 0]
    last = max((x for x, _ in everything), default=1.0) or 1.0
    low = min((y for _, y in everything), default=1.0) / 1.15
    high = max((y for _, y in everything), default=10.0) * 1.15
    wide, tall = _WIDE - _LEFT - 10, _HIGH - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return _LEFT + wide * x / last, _TOP + tall * (math.log(high / y) / math.log(high / low))

    marks = [m * 10.0**k for k in range(-3, 5) for m in (1, 2, 5)]
    parts = _axes([(v, f"{v:g}") for v in marks if low <= v <= high], lambda v: place(0, v)[1])
    for name, (batches, held_out) in points.items():
        colour = MODEL_COLOURS[name]
        dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in (place(*point) for point in batches if point[1] > 0))
        parts.append(f'<path class="dots" stroke="{colour}" d="{dots}"/>')
        if held_out:
            line = "L".join(f"{x:.1f} {y:.1f}" for x, y in (place(*point) for point in held_out))
            parts.append(f'<path class="curve" stroke="{colour}" d="M{line}"/>')
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{colour}" stroke="#fff"/>'
                for x, y in (place(*point) for point in held_out)
            ]
    for minutes in _ticks(last, 6):
        parts.append(_tick_below(place(minutes, low)[0], f"{minutes:g}"))
    parts.append(_under("minutes of training"))
    return drawing("".join(parts), _WIDE, _HIGH, label, "chart")


def rate_bar(success: float, low: float, high: float, colour: str) -> str:
    """A rate as a bar with its interval; what it says stands beside it in words."""
    return (
        '<svg class="rate" viewBox="0 0 200 14" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="200" height="14" fill="#eef1f4"/><rect width="{200 * success:.1f}" height="14" fill="{colour}"/>'
        f'<rect x="{200 * low:.1f}" y="5.5" width="{max(200 * (high - low), 0.5):.1f}" height="3" fill="{INK}" '
        'opacity="0.55"/></svg>'
    )


def _axes(marks: Sequence[tuple[float, str]], height: Callable[[float], float]) -> list[str]:
    parts = []
    for value, text in marks:
        y = height(value)
        parts.append(f'<path class="rule" d="M{_LEFT} {y:.1f}H{_WIDE - 10}"/>')
        parts.append(f'<text class="tick" text-anchor="end" x="{_LEFT - 7}" y="{y + 4:.1f}">{text}</text>')
    return parts


def _tick_below(x: float, text: str) -> str:
    return f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{_HIGH - 24}">{text}</text>'


def _under(text: str) -> str:
    return f'<text class="tick" text-anchor="middle" x="{(_LEFT + _WIDE - 10) / 2}" y="{_HIGH - 5}">{text}</text>'


def _ticks(top: float, most: int = 5) -> list[float]:
    """0 and multiples of a round step, up to the top."""
    step = next(m * 10.0**k for k in range(-3, 6) for m in (1, 2, 2.5, 5) if top / (m * 10.0**k) <= most)
    return [step * n for n in range(int(top / step + 1e-9) + 1)]
