"""Dispatch `flexmdm sample` and `flexmdm eval` on the task: by default they do what every task can do.

A task that has more to show registers an implementation of its own, here or where it is defined.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any

from rich.console import Console

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.evaluation.intervals import by_name
from flexmdm.generation.defaults import STEPS
from flexmdm.reports.answers import show
from flexmdm.sweeps.registry import benchmark_for
from flexmdm.tasks.likelihoods import bits
from flexmdm.tasks.maze.task import MazeTask
from flexmdm.tasks.pipeline import progress_bar
from flexmdm.tasks.task import Task
from flexmdm.tasks.text.task import TextTask


@singledispatch
def sample(
    task: Task,
    model: FlexMDMModel,
    num: int,
    json: Path | None,
    watch: bool,
    own: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Print samples of a model.

    Args:
        task, model: what was trained.
        num: samples.
        json: a file for them.
        watch: show how each came about.
        own: options that only this task has.
        options: of the pipeline.
    """
    pipeline = task.pipeline(model)
    with progress_bar(num) as bar:
        answers = pipeline.sample(num, full=True, trace=watch, callback=bar, **options)
    show(pipeline, answers, (), json, watch)


@sample.register
def _(
    task: MazeTask,
    model: FlexMDMModel,
    num: int,
    json: Path | None,
    watch: bool,
    own: dict[str, Any],
    options: dict[str, Any],
) -> None:
    from flexmdm.cli.shared import check_writable
    from flexmdm.reports import maze as report

    output = own.get("output", Path("path.png"))
    check_writable(output)
    report.sample(task, model, own.get("through", []), num, output, json, **options)


@dataclass(frozen=True)
class Evaluation:
    """The request for an evaluation; ``None`` leaves it to the task.

    Attributes:
        num: samples, or problems.
        steps: of the sampler.
        seed: of generation.
        subgoals: numbers of subgoals of the problems of a maze.
        reference, page: of a report on texts.
        likelihoods: held-out sequences for the likelihood.
        sampling: further options of the sampler.
        write: writes the results, each the name of its run and its figures, as soon as they are there.
    """

    num: int | None
    steps: list[int]
    seed: int
    subgoals: list[int]
    reference: str | None
    likelihoods: int | None
    page: Path | None
    sampling: dict[str, Any]
    write: Callable[[list[tuple[str, dict[str, Any]]]], None]


def evaluate(runs: dict[str, tuple[Task, FlexMDMModel]], asked: Evaluation) -> None:
    """Measure runs, by name, on what they were trained on: all on the same task."""
    tasks = {name: task.name for name, (task, _) in runs.items()}
    if len(set(tasks.values())) > 1:
        learned = ", ".join(f"{run} on {task}" for run, task in tasks.items())
        raise ValueError(
            f"these runs were trained on different tasks ({learned}): evaluate those of one task at a time"
        )
    evaluate_task(next(iter(runs.values()))[0], runs, asked)


@singledispatch
def evaluate_task(task: Task, runs: dict[str, tuple[Any, FlexMDMModel]], asked: Evaluation) -> None:
    """Measure the likelihood of held-out sequences, in bits, and print it; what a task does that has no other figures.

    Args:
        task: that of the first run.
        runs: tasks and models by name.
        asked: the rest.
    """
    benchmark = benchmark_for(task.name, reads_files=True)
    if benchmark is not None:
        raise ValueError(
            f"{', '.join(runs)}: a run on {task.name} is measured by --benchmark {benchmark} --data FOLDER"
        )
    unused = {
        "--num": asked.num, "--steps": asked.steps or None, "--page": asked.page, "--reference": asked.reference,
        **{f"--{name.replace('_', '-')}": value for name, value in asked.sampling.items()},
    }  # fmt: skip
    given = [option for option, value in unused.items() if value is not None]
    if given:
        raise ValueError(
            f"{', '.join(given)}: a run on {task.name} is measured by the likelihood of held-out sequences "
            "(--likelihoods of them), and no samples are drawn; leave that out"
        )
    if asked.likelihoods == 0:
        raise ValueError(f"--likelihoods 0 leaves nothing to measure of a run on {task.name}: leave it out")
    rows = []
    for name, (own, model) in runs.items():
        index = own.validation.some(200 if asked.likelihoods is None else asked.likelihoods)
        found = bits(model, own, index, seed=asked.seed)
        each = found.per_token
        Console().print(
            f"{name}: {each.value:.2f} ± {each.standard_error:.2f} bits per token, by the likelihood of "
            f"{found.sequences} held-out sequences",
            highlight=False,
        )
        figures = {f"bits_{part}": asdict(getattr(found, part)) for part in ("per_sequence", "per_token")}
        rows.append((name, by_name({"likelihood_num": found.sequences, **figures})))
    asked.write(rows)


@evaluate_task.register
def _(task: MazeTask, runs: dict[str, tuple[MazeTask, FlexMDMModel]], asked: Evaluation) -> None:
    from flexmdm.reports import maze as report

    if len(runs) > 1:
        raise ValueError(f"runs on mazes are evaluated one by one, and these are {len(runs)}: give one")
    if len(asked.steps) > 1:
        raise ValueError("a maze is evaluated with one number of steps at a time")
    ((name, (_, model)),) = runs.items()
    options: dict[str, Any] = asked.sampling | ({"steps": asked.steps[0]} if asked.steps else {})
    scores = report.evaluate(task, model, asked.subgoals, asked.num or 500, seed=asked.seed, **options)
    asked.write([(name, score.to_dict()) for score in scores])


@evaluate_task.register
def _(task: TextTask, runs: dict[str, tuple[TextTask, FlexMDMModel]], asked: Evaluation) -> None:
    from flexmdm.reports import text as report

    report.evaluate(
        {name: task.pipeline(model) for name, (task, model) in runs.items()},
        asked.steps or [STEPS],
        asked.num or 500,
        "auto" if asked.reference is None else asked.reference,
        200 if asked.likelihoods is None else asked.likelihoods,
        page=asked.page,
        command=shlex.join(["flexmdm", *sys.argv[1:]]),
        keep=lambda rows: asked.write([(row["model"], row) for row in rows]),
        seed=asked.seed,
        **asked.sampling,
    )
