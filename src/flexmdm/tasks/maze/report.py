"""What a person sees of a maze run: the table of an evaluation, and paths in the terminal and as a picture."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.generation import generate
from flexmdm.tasks.maze.checker import check
from flexmdm.tasks.maze.drawing import draw_maze, terminal
from flexmdm.tasks.maze.evaluation import STEPS, MazeScore, plan
from flexmdm.tasks.maze.task import MazeTask


def evaluate(
    task: MazeTask,
    model: FlexMDMModel,
    counts: Sequence[int],
    num: int,
    json: Path | None = None,
    console: Console | None = None,
    **options: Any,
) -> list[MazeScore]:
    """Plan through held-out problems with each number of subgoals, print the table and write the figures."""
    console = console or Console()
    denoiser, scores = model.denoiser(), []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for count in counts:
            bar = progress.add_task(f"K = {count}", total=num)
            plans = plan(
                task,
                denoiser,
                count,
                num,
                progress=lambda done, _, bar=bar: progress.update(bar, completed=done),
                **options,
            )
            scores.append(plans.score)
    console.print(table_of(scores, f"{task.size} x {task.size} maze, {task.model}, {num} held-out problems each"))
    if json is not None:
        figures = [score.to_dict() for score in scores]
        json.parent.mkdir(parents=True, exist_ok=True)
        json.write_text(json_module.dumps(figures[0] if len(figures) == 1 else figures, indent=2) + "\n")
    return scores


def table_of(scores: Sequence[MazeScore], title: str) -> Table:
    """One row per score."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in ("model", "K", "sampler", "success", "valid", "in order", "excess", "evals", "ms"):
        table.add_column(heading, justify="left" if heading in ("model", "sampler") else "right")
    for s in scores:
        sampler = (
            s.sampler + (f" {s.steps}" if s.steps else "") + ("" if s.temperature == 1 else f" T={s.temperature:g}")
        )
        table.add_row(
            s.model, str(s.subgoals), sampler, f"{s.success:.1%} ({100 * s.low:.0f}-{100 * s.high:.0f})",
            f"{s.valid:.1%}", f"{s.in_order:.1%}", "-" if s.excess is None else f"{s.excess:+.1f}",
            f"{s.evaluations:.0f}", f"{1000 * s.seconds:.0f}",
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
    """Connect ``cells`` (or the subgoals of a held-out problem) by ``num`` paths, and draw them."""
    console = console or Console()
    subgoals = problem_through(task, cells) if cells else task.problems(1, min(4, task.subgoals[1]), seed)[0]
    options["sampler"] = options.get("sampler") or ("spaced" if task.model == "flexmdm" else "adaptive")
    options["steps"] = options.get("steps") or STEPS
    options.setdefault("temperature", 0.0)
    if task.model == "flexmdm":
        options["max_length"] = task.max_length
    out = generate(model.denoiser(), num, prompts=[task.prompt(subgoals)], seed=seed, **options)
    paths = [task.path(sequence) for sequence in out.sequences]
    good = check(task.maze.passable, paths, [subgoals] * num)
    for path, valid, in_order in zip(paths, good.valid, good.in_order, strict=True):
        console.print(
            terminal(task.maze, path, subgoals, ascii_only=not _unicode(console), markup=True), soft_wrap=True
        )
        verdict = "[green]reaches every subgoal in order[/]" if valid and in_order else "[red]fails[/]: "
        if not valid:
            verdict += "it makes a move that the maze does not allow"
        elif not in_order:
            verdict += "it misses a subgoal"
        console.print(f"{len(path)} cells; {verdict}")
    output.parent.mkdir(parents=True, exist_ok=True)
    _picture(task, paths, subgoals).savefig(output, dpi=150)
    console.print(f"drawn in {output}")
    if json is not None:
        rows = [
            {"path": [task.maze.cell(t) if t < task.size**2 else None for t in path], "success": bool(success)}
            for path, success in zip(paths, good.success, strict=True)
        ]
        json.parent.mkdir(parents=True, exist_ok=True)
        json.write_text(json_module.dumps({"through": [task.maze.cell(t) for t in subgoals], "paths": rows}) + "\n")
    return paths


def problem_through(task: MazeTask, cells: Sequence[tuple[int, int]]) -> list[int]:
    """The tokens of cells to connect; an error if there is no way."""
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
    if len(tokens) > task.size**2:
        raise ValueError("more subgoals than cells")
    return tokens


def _picture(task: MazeTask, paths: Sequence[Sequence[int]], subgoals: Sequence[int]) -> Figure:
    columns = min(len(paths), 4)
    rows = -(-len(paths) // columns)
    figure = Figure(figsize=(4.2 * columns, 4.2 * rows), layout="constrained", facecolor="white")
    for number, path in enumerate(paths):
        draw_maze(figure.add_subplot(rows, columns, number + 1), task.maze, path, subgoals)
    return figure


def _unicode(console: Console) -> bool:
    return "utf" in (console.encoding or "").lower()
