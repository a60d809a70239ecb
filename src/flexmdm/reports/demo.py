"""The page of `flexmdm demo maze`: two models plan through one maze."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from flexmdm.evaluation.intervals import Interval, rate
from flexmdm.generation import Event
from flexmdm.reports.charts import COLOURS, INK, SOFT, draw_lengths, inline_svg, loss_figure
from flexmdm.reports.film import frames_of
from flexmdm.reports.maze import FLOOR, WALL, WRONG, Move, Picture, course_colours, planned, point_of
from flexmdm.reports.pages import render
from flexmdm.sweeps.maze import Plans
from flexmdm.tasks.maze.grid import Maze
from flexmdm.tasks.models import FLEXMDM, TITLES

STRIP = 8  # frames of the film strip
SHOWN = 2  # problems shown for each number of subgoals


@dataclass(frozen=True)
class Contender:
    """One model: the sampler in words, how it was trained, and what it planned for each number of subgoals."""

    model: str
    sampler: str
    parameters: int
    steps: int
    seconds: float
    log: Sequence[Mapping[str, float]]
    plans: Sequence[Plans]

    @property
    def name(self) -> str:
        return TITLES[self.model]

    @property
    def colour(self) -> str:
        return COLOURS[list(TITLES).index(self.model)]

    @property
    def num(self) -> int:
        return sum(len(plans.paths) for plans in self.plans)

    @property
    def rates(self) -> dict[str, Interval]:
        """Return the share of problems solved, by their number of subgoals, and of all."""
        solved = {f"{plans.score.subgoals} subgoals": int(plans.success.sum()) for plans in self.plans}
        each = {name: rate(count, self.num // len(solved)) for name, count in solved.items()}
        return each | {"all": rate(sum(solved.values()), self.num)}

    @property
    def evaluations(self) -> float:
        return sum(plans.score.evaluations for plans in self.plans) / len(self.plans)

    @property
    def lengths(self) -> list[int]:
        return [len(path) for plans in self.plans for path in plans.paths]

    @property
    def mean_length(self) -> float:
        return sum(self.lengths) / len(self.lengths)

    @property
    def held_out_loss(self) -> float | None:
        return next((line["eval_loss"] for line in reversed(self.log) if "eval_loss" in line), None)


def page_of(
    maze: Maze,
    contenders: Sequence[Contender],
    growths: Mapping[str, Growth],
    held_out: Mapping[int, float],
    **more: Any,
) -> str:
    """Return the page: FlexMDM and MDM, how each came to its answer to one problem, and what they planned.

    ``held_out`` are the shares of the lengths of the held-out paths that the problems are made from; ``more`` are the
    cells of the ``longest`` path (the masks of MDM), the number of ``training_paths``, ``minutes`` of training,
    ``facts`` as names and values, and the ``command`` that made the page.
    """
    growth = growths[FLEXMDM]
    count = min(STRIP, growth.frames)
    return render(
        "demo.html",
        maze=maze,
        contenders=contenders,
        growths=growths,
        growth=growth,
        strip=[round(i * (growth.frames - 1) / max(count - 1, 1)) for i in range(count)],
        shown=SHOWN,
        mean_length=mean_of(held_out),
        length_charts={one.model: _length_chart(one, held_out) for one in contenders},
        loss_charts={one.model: _loss_chart(one) for one in contenders},
        planned=planned,
        growing=growing,
        wall=WALL,
        floor=FLOOR,
        wrong=WRONG,
        **more,
    )


def mean_of(shares: Mapping[int, float]) -> float:
    """Return the mean of numbers, given the share of each."""
    return sum(number * share for number, share in shares.items())


def _length_chart(contender: Contender, held_out: Mapping[int, float]) -> str:
    lengths = contender.lengths
    every = range(min([*lengths, *held_out]), max([*lengths, *held_out]) + 1)
    figure = draw_lengths(
        edges=[length - 0.5 for length in [*every, every.stop]],
        area=[lengths.count(length) / len(lengths) for length in every],
        outlines=[(INK, [held_out.get(length, 0.0) for length in every])],
        across="cells of the path",
        colour=contender.colour,
    )
    means = f"{contender.mean_length:.1f} cells on average, held-out paths {mean_of(held_out):.1f}"
    return inline_svg(figure, f"Lengths of the paths of {contender.name}: {means}")


def _loss_chart(contender: Contender) -> str:
    figure = loss_figure({contender.name: contender.log}, [contender.colour], 5.2, 2.5)
    end = "" if contender.held_out_loss is None else f", {contender.held_out_loss:.1f} at the end"
    return inline_svg(figure, f"Loss of {contender.name} against minutes of training{end}")


@dataclass(frozen=True)
class Box:
    """One entry of a finished sequence: what it became, and when.

    Attributes:
        token: the cell, or None for padding.
        subgoal: its number from 1, or 0.
        born, shown: the first frames that have it, as a mask and revealed.
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

    def at(self, frame: int, before: int) -> list[tuple[Box, bool, bool]]:
        """Return the boxes of a frame, each with whether it is revealed, and whether that is new since ``before``."""
        there = [(box, box.shown <= frame) for box in self.boxes if box.born <= frame]
        return [(box, shown, (box.shown if shown else box.born) > max(before, 0)) for box, shown in there]


def grown(
    events: Sequence[Event], subgoals: Sequence[int], masks: int = 0, frames: int | None = None, pad: float = math.inf
) -> Growth:
    """Return what grew from the subgoals of `Prompt.through`: which entries were inserted and revealed, and when.

    Of an MDM the row of ``masks`` is shown, which follows its subgoals and a separator, filled within so many
    ``frames``; a box of padding has no token.

    >>> events = [Event(0, 0.5, "insert", 1, entry=2), Event(3, 1.0, "reveal", 1, entry=2, token=9)]
    >>> growth = grown(events, subgoals=[8, 10])
    >>> [(box.token, box.subgoal, box.born, box.shown) for box in growth.boxes], growth.frames
    ([(8, 1, 0, 0), (9, 0, 1, 2), (10, 2, 0, 0)], 3)
    >>> events = [Event(5, 0.5, "reveal", 3, entry=3, token=8), Event(9, 1.0, "reveal", 4, entry=4, token=99)]
    >>> [(box.token, box.shown) for box in grown(events, [8, 10], masks=2, frames=5, pad=99).boxes]
    [(8, 2), (None, 4)]
    """
    row = [None] * (1 + masks) if masks else []  # the separator, and what is to be found
    film = frames_of(events, [*subgoals, *row])
    frames = frames or len(film)
    number = {frame.steps: math.ceil(k * (frames - 1) / max(len(film) - 1, 1)) for k, frame in enumerate(film)}
    when = {(event.entry, event.kind): number[event.step + 1] for event in events}
    entries = film[-1].entries[len(subgoals) + 1 if masks else 0 :]
    colours = iter(course_colours(sum(entry.token != pad for entry in entries)))
    boxes = []
    for entry in entries:
        subgoal = entry.identity + 1 if entry.identity < len(subgoals) else 0
        born, shown = (when.get((entry.identity, kind), 0) for kind in ("insert", "reveal"))
        token = None if entry.token is None or entry.token >= pad - 1 else entry.token  # pad - 1 is the separator
        boxes.append(Box(token, subgoal, born, shown, "#fff" if entry.token == pad else next(colours)))
    return Growth(tuple(boxes), tuple(subgoals), frames)


def growing(maze: Maze, growth: Growth, frame: int | None = None) -> Picture:
    """Return what is revealed of a path by a frame, or all of it, each part with the frame that shows it."""
    last = growth.frames - 1 if frame is None else frame
    known = [(box, point_of(maze, box.token)) for box in growth.boxes if box.token is not None]
    moves = []
    for box, after in pairwise(growth.boxes):
        if box.token is not None and after.token is not None:
            start, end = point_of(maze, box.token), point_of(maze, after.token)
            near = math.dist(start, end) <= 1
            # Of cells that are no neighbours it is certain only at the end that nothing comes between.
            when = max(box.shown, after.shown) if near else growth.frames - 1
            if when <= last:
                moves.append(Move(start, end, after.colour if near else WRONG, when))
    cells = [(point, box.colour, box.shown) for box, point in known if not box.subgoal and box.shown <= last]
    colours = {box.token: box.colour for box, _ in reversed(known)}
    rings = [(point_of(maze, token), colours.get(token, SOFT)) for token in growth.subgoals]
    return Picture(moves, [], rings, cells)
