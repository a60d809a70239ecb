"""How well a model plans: success on held-out problems, with its price."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from flexmdm.backbones.denoiser import Denoiser
from flexmdm.evaluation.intervals import wilson
from flexmdm.generation import generate
from flexmdm.tasks.maze.checker import check
from flexmdm.tasks.maze.task import MazeTask

BATCH = 128  # problems worked on at a time
STEPS = 64  # of a sampler, by default: a path allows no mistake


@dataclass(frozen=True)
class MazeScore:
    """What came of ``num`` held-out problems.

    Attributes:
        model, size, subgoals, num, sampler, steps, temperature, seed: what was asked.
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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Plans:
    """The problems, the answers to them, and the score."""

    problems: list[list[int]]
    paths: list[list[int]]
    success: np.ndarray
    score: MazeScore


def plan(
    task: MazeTask,
    denoiser: Denoiser,
    subgoals: int,
    num: int = 500,
    sampler: str | None = None,
    steps: int | None = None,
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
        sampler, steps: of `generate`; default: ``spaced``, for an MDM ``adaptive``, with 64 steps.
        seed: of the problems and of generation.
        progress: called with (problems done, problems in all).
        options: further options of `generate`; ``temperature`` is 0 by default: one wants the best path.
    """
    problems = task.problems(num, subgoals, seed)
    sampler = sampler or ("spaced" if task.model == "flexmdm" else "adaptive")
    steps = steps or STEPS
    if task.model == "mdm" and sampler == "adaptive":
        options.setdefault("confidence", "top_prob")
    options.setdefault("temperature", 0.0)
    if task.model == "flexmdm":
        options["max_length"] = task.max_length
    began = time.perf_counter()
    paths, evaluations = [], 0
    for start in range(0, num, BATCH):
        prompts = [task.prompt(problem) for problem in problems[start : start + BATCH]]
        out = generate(
            denoiser, prompts=prompts, sampler=sampler, steps=steps, seed=seed, first_sequence=start, **options
        )
        paths += [task.path(sequence) for sequence in out.sequences]
        evaluations += sum(out.evaluations)
        if progress is not None:
            progress(len(paths), num)
    seconds = (time.perf_counter() - began) / num
    checked = check(task.maze.passable, paths, problems)
    low, high = wilson(int(checked.success.sum()), num)
    excess = np.array([len(path) for path in paths]) - _shortest(task, problems)
    score = MazeScore(
        model=task.model,
        size=task.size,
        subgoals=subgoals,
        num=num,
        sampler=sampler,
        steps=steps,
        temperature=options["temperature"],
        seed=seed,
        success=float(checked.success.mean()),
        low=low,
        high=high,
        valid=float(checked.valid.mean()),
        in_order=float(checked.in_order.mean()),
        excess=float(excess[checked.success].mean()) if checked.success.any() else None,
        evaluations=evaluations / num,
        seconds=seconds,
    )
    return Plans(problems, paths, checked.success, score)


def _shortest(task: MazeTask, problems: list[list[int]]) -> np.ndarray:
    """Cells of the shortest walk through the subgoals of each problem."""
    index, distances = task.maze.open_index, task.maze.distances
    cells = np.array([index[problem] for problem in problems])  # [num, K]
    return 1 + distances[cells[:, :-1], cells[:, 1:]].sum(1, dtype=np.int64)
