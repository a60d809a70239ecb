"""How well a model plans: success on held-out problems, with its price."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from flexmdm.denoiser import Denoiser
from flexmdm.evaluation.intervals import wilson
from flexmdm.generation import generate
from flexmdm.generation.defaults import DEFAULTS
from flexmdm.tasks.maze.checker import check
from flexmdm.tasks.maze.task import MazeTask

BATCH = 128  # problems worked on at a time


@dataclass(frozen=True)
class MazeScore:
    """What came of ``num`` held-out problems.

    Attributes:
        model, size, subgoals, num, sampler, steps, temperature, seed, confidence: what was asked (``confidence`` is
            None where it was left to the sampler).
        success: share of paths that are valid and pass all subgoals in order; ``low``, ``high``: its 95% interval.
        valid: share of paths whose every step goes to an adjacent open cell.
        in_order: share of paths that start, pass and end as they should.
        excess: how much longer successful paths are than the shortest through their subgoals, in cells, on average.
        evaluations: of the network, per path.
        seconds: per path, in batches.
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


def settings_of(task: MazeTask, **options: Any) -> dict[str, Any]:
    """Return the options of `generate` for a maze: those that were given, and else what plans best.

    >>> settings_of(MazeTask(size=7, subgoals=(2, 4), model="mdm"), steps=None, temperature=1.0)
    {'sampler': 'low_confidence', 'steps': 64, 'temperature': 1.0}
    """
    given = {name: value for name, value in options.items() if value is not None}
    longest = {"max_length": task.max_length} if task.layout.inserts else {}
    return DEFAULTS["planning"].options(task.layout.inserts) | longest | given


def plan(
    task: MazeTask,
    denoiser: Denoiser,
    subgoals: int,
    num: int = 500,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Plans:
    """Solve ``num`` held-out problems with ``subgoals`` subgoals each and check the answers.

    Args:
        task: the maze.
        denoiser: the trained model.
        subgoals: K, start and goal included.
        num: how many problems.
        seed: of the problems and of generation.
        progress: called with (problems done, problems in all).
        options: of `generate`; default: `settings_of`.
    """
    problems = task.problems(num, subgoals, seed)
    settings = settings_of(task, **options)
    began = time.perf_counter()
    paths, evaluations = [], 0
    for start in range(0, num, BATCH):
        prompts = [task.prompt(problem) for problem in problems[start : start + BATCH]]
        out = generate(denoiser, prompts=prompts, seed=seed, first_sequence=start, **settings)
        paths += [task.path(sequence) for sequence in out.sequences]
        evaluations += sum(out.evaluations)
        if progress is not None:
            progress(len(paths), num)
    seconds = (time.perf_counter() - began) / num
    checked = check(task.maze.passable, paths, problems)
    low, high = wilson(int(checked.success.sum()), num)
    excess = np.array([len(path) for path in paths]) - shortest(task, problems)
    score = MazeScore(
        model=task.model,
        size=task.size,
        subgoals=subgoals,
        num=num,
        sampler=settings["sampler"],
        steps=settings["steps"],
        temperature=settings["temperature"],
        seed=seed,
        success=float(checked.success.mean()),
        low=low,
        high=high,
        valid=float(checked.valid.mean()),
        in_order=float(checked.in_order.mean()),
        excess=float(excess[checked.success].mean()) if checked.success.any() else None,
        evaluations=evaluations / num,
        seconds=seconds,
        confidence=settings.get("confidence"),
    )
    return Plans(problems, paths, checked.success, score)


def shortest(task: MazeTask, problems: Sequence[Sequence[int]]) -> np.ndarray:
    """Cells of the shortest walk through the subgoals of each problem."""
    index, distances = task.maze.open_index, task.maze.distances
    cells = np.array([index[list(problem)] for problem in problems])  # [num, K]
    return 1 + distances[cells[:, :-1], cells[:, 1:]].sum(1, dtype=np.int64)


def problem_through(task: MazeTask, cells: Sequence[tuple[int, int]]) -> list[int]:
    """Return the tokens of cells to connect; an error if no path of this model can."""
    if len(cells) < 2:
        raise ValueError(f"a path needs a start and a goal: give at least two cells, got {len(cells)}")
    tokens = [task.maze.token(row, column) for row, column in cells]
    index, distances = task.maze.open_index, task.maze.distances
    for (a, b), (start, goal) in zip(
        zip(tokens, tokens[1:], strict=False), zip(cells, cells[1:], strict=False), strict=True
    ):
        if distances[index[a], index[b]] < 0:
            raise ValueError(f"there is no way from {start} to {goal} in this maze")
        if a == b:
            raise ValueError(f"cell {start} stands twice in a row: leave one out")
    if task.model == "mdm" and len(tokens) > task.subgoals[1]:
        raise ValueError(f"this MDM was trained with at most {task.subgoals[1]} subgoals, got {len(tokens)}")
    most = task.longest_path if task.model == "mdm" else task.max_length
    (needed,) = shortest(task, [tokens])
    if needed > most:
        raise ValueError(
            f"the shortest path through these {len(tokens)} cells has {needed}, and this model makes none of more than "
            f"{most} cells: leave some out, or plan in parts"
        )
    return tokens
