"""What a person sees of a maze run: the table of an evaluation, and paths in the terminal and as a picture."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.generation import generate
from flexmdm.sweeps.maze import MazeScore, plan, settings_of, shortest
from flexmdm.tasks.maze.checker import fault
from flexmdm.tasks.maze.drawing import draw_maze, legend, terminal
from flexmdm.tasks.maze.task import MazeTask

TRIES = 4  # who asks for one path gets the first of these that is one
PICKED = 4  # subgoals of a problem that nobody chose, if the model knows so many


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
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for count in counts:
            bar = progress.add_task(f"K = {count}", total=num)
            plans = plan(
                task,
                model,
                count,
                num,
                progress=lambda done, _, bar=bar: progress.update(bar, completed=done),
                **options,
            )
            scores.append(plans.score)
    console.print(table_of(scores, f"{task.size} x {task.size} maze, {task.model}, {num} held-out problems each"))
    return scores


def table_of(scores: Sequence[MazeScore], title: str) -> Table:
    """One row per score."""
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
    """Subgoals that nobody chose."""
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
    """How many of all tries are right, and what to do if none is."""
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
    most = task.longest_path if task.model == "mdm" else task.max_length
    (needed,) = shortest(task, [tokens])
    if needed > most:
        raise ValueError(
            f"the shortest path through these {len(tokens)} cells has {needed}, and this model makes none of more than "
            f"{most} cells: leave some out, or plan in parts"
        )
    return tokens


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
