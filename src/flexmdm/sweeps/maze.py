"""Success of a model that plans on held-out problems, with its price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flexmdm.evaluation.intervals import rate
from flexmdm.generation.defaults import DEFAULTS
from flexmdm.jobs.journal import Journal
from flexmdm.sweeps.sweep import Benchmark, Refused, Scored, Writer, measured
from flexmdm.tasks.maze.checker import check
from flexmdm.tasks.maze.task import MazePipeline, MazeTask
from flexmdm.tasks.models import TITLES
from flexmdm.tasks.pipeline import Answer

if TYPE_CHECKING:
    from flexmdm.backbones.model import FlexMDMModel

BATCH = 128  # problems worked on at a time


@dataclass(frozen=True)
class MazeScore:
    """Measures of ``num`` held-out problems, with what was asked (``confidence`` is None if left to the sampler).

    Attributes:
        success: share of paths that are valid and pass all subgoals in order; ``low``, ``high``: its 95% interval.
        valid: share of paths whose every step goes to an adjacent open cell.
        in_order: share of paths that start, pass and end as they should.
        excess: how much longer successful paths are than the shortest through their subgoals, in cells, on average.
        evaluations, seconds: of the network per path; seconds in batches.
    """

    model: str
    size: int
    subgoals: int
    num: int
    sampler: str
    steps: int
    temperature: float
    seed: int
    success: float
    low: float
    high: float
    valid: float
    in_order: float
    excess: float | None
    evaluations: float
    seconds: float
    confidence: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Plans:
    """The problems, the answers to them, and the score."""

    problems: list[list[int]]
    paths: list[list[int]]
    success: np.ndarray
    score: MazeScore


@dataclass(frozen=True)
class Problems(Benchmark):
    """Held-out problems of a maze with K = ``subgoals``, start and goal included; a path is right if it solves one."""

    task: MazeTask
    subgoals: int
    num: int = 500
    seed: int = 0
    name = "maze"
    measure = "success"
    defaults = DEFAULTS["planning"]
    pipelines = (MazePipeline,)
    asks = "these are problems of a maze"

    @property
    def title(self) -> str:
        return f"{self.task.size} x {self.task.size} maze, {self.subgoals} subgoals"

    @cached_property
    def items(self) -> list[list[int]]:
        """Return the subgoals of each problem."""
        return self.task.problems(self.num, self.subgoals, self.seed)

    def writer(self, name: str, pipeline: Any) -> Writer:
        if not np.array_equal(pipeline.task.maze.passable, self.task.maze.passable):
            raise ValueError(f"{name} was trained on another maze than that of these problems")
        return pipeline.plan

    def line(self, number: int, answer: Answer | Refused) -> dict[str, Any]:
        return {"subgoals": self.items[number], "path": list(answer.tokens)}

    def score(self, lines: Sequence[dict[str, Any]], file: Path | None = None) -> Scored:
        paths, problems = [line["path"] for line in lines], self.items[: len(lines)]
        checked = check(self.task.maze.passable, paths, problems)
        excess = np.array([len(path) for path in paths]) - shortest(self.task, problems)
        success = checked.success
        figures = {
            "valid": float(checked.valid.mean()),
            "in_order": float(checked.in_order.mean()),
            "excess": float(excess[success].mean()) if success.any() else None,
        }
        return Scored(rate(int(success.sum()), len(lines)), success.tolist(), figures)


def plan(task: MazeTask, model: FlexMDMModel, subgoals: int, num: int = 500, seed: int = 0, **options: Any) -> Plans:
    """Solve ``num`` held-out problems with ``subgoals`` subgoals each, check the answers, and show how far that is.

    The seed is that of the problems and of generation; the options are those of `generate`.
    """
    benchmark, settings = Problems(task, subgoals, num, seed), Problems.defaults.options(task.layout.inserts, **options)
    entrant = benchmark.entrant(f"{TITLES[task.model]}, K = {subgoals}", task, model)
    journal = Journal(None, {})
    point = measured(benchmark, entrant, settings, seed, num, journal, BATCH)
    score = MazeScore(
        model=task.model,
        size=task.size,
        subgoals=subgoals,
        num=num,
        seed=seed,
        success=point.measured.value,
        low=point.measured.low,
        high=point.measured.high,
        evaluations=point.evaluations,
        seconds=point.seconds,
        **point.figures,
        **{name: settings.get(name) for name in ("sampler", "steps", "temperature", "confidence")},
    )
    return Plans(benchmark.items, [line["path"] for line in journal.lines], np.array(point.right), score)


def shortest(task: MazeTask, problems: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the cells of the shortest walk through the subgoals of each problem."""
    index, distances = task.maze.open_index, task.maze.distances
    cells = np.array([index[list(problem)] for problem in problems])  # [num, K]
    return 1 + distances[cells[:, :-1], cells[:, 1:]].sum(1, dtype=np.int64)


def problem_through(task: MazeTask, cells: Sequence[tuple[int, int]]) -> list[int]:
    """Return the tokens of cells to connect; an error if no path of this model can."""
    if len(cells) < 2:
        raise ValueError(f"a path needs a start and a goal: give at least two cells, got {len(cells)}")
    tokens = [task.maze.token(row, column) for row, column in cells]
    index, distances = task.maze.open_index, task.maze.distances
    for (a, b), (start, goal) in zip(pairwise(tokens), pairwise(cells), strict=True):
        if distances[index[a], index[b]] < 0:
            raise ValueError(f"there is no way from {start} to {goal} in this maze")
        if a == b:
            raise ValueError(f"cell {start} stands twice in a row: leave one out")
    if not task.layout.inserts and len(tokens) > task.subgoals[1]:
        raise ValueError(f"this MDM was trained with at most {task.subgoals[1]} subgoals, got {len(tokens)}")
    most = task.max_length if task.layout.inserts else task.longest_path
    (needed,) = shortest(task, [tokens])
    if needed > most:
        raise ValueError(
            f"the shortest path through these {len(tokens)} cells has {needed}, and this model makes none of more than "
            f"{most} cells: leave some out, or plan in parts"
        )
    return tokens
