"""`flexmdm sample`: let a run do what it learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flexmdm.cli import options, shared

EXAMPLES = shared.examples("""
`flexmdm sample runs/names --num 10`: ten new names
`flexmdm sample runs/articles --watch`: see a paragraph grow
`flexmdm sample runs/articles --num 100 --sampler tau --steps 256 --json samples.json`
`flexmdm sample runs/maze11 --through 1,1 5,3 9,9`: a path from cell to cell, drawn here and as path.png
`flexmdm sample --pretrained maze41 --through 1,1 --through 39,39 --output plan.png`
""")


@options.Command
def sample(
    *,
    run: shared.Run = None,
    cells: Annotated[list[str] | None, typer.Argument(help="maze: more cells behind --through.")] = None,
    through: Annotated[list[str] | None, typer.Option(help="maze: Cells to connect, each as row,column.")] = None,
    pretrained: shared.Pretrained = None,
    num: Annotated[
        int,
        typer.Option("--num", "-n", min=1, help="Number of samples; maze: one is the first right one of 4 tries."),
    ] = 1,
    sampling: Annotated[options.Given, shared.sampling("window", "block")],
    watch: shared.Watch = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="maze: Picture. [default: path.png]", dir_okay=False)
    ] = None,
    json: shared.Json = None,
    seed: shared.Seed = 0,
    device: shared.Device = None,
) -> None:
    """Sample sequences, or plan paths through a maze."""
    extra = list(cells or [])
    if pretrained is not None and run is not None:  # with --pretrained there is no run: what stands there is a cell
        extra, run = [run, *extra], None
    if extra and not through:
        raise ValueError(f"what is {extra[0]!r}? Cells come behind --through, as row,column")
    name = shared.trained_on(run, pretrained)
    for option, value in {"--through": through, "--output": output}.items():
        if value and name not in ("maze", None):
            raise ValueError(f"{option} is for runs on maze, and {run or pretrained} was trained on {name}")
    way = [_cell(text) for text in [*(through or []), *extra]]
    if len(way) == 1:
        raise ValueError(f"a path needs a start and a goal: give at least two cells, got {way[0]}")
    shared.check_writable(json, output)
    task, model = shared.load(run, pretrained, device, sampling.get("sampler"))
    from flexmdm.tasks.maze.task import MazeTask

    if isinstance(task, MazeTask):
        from flexmdm.reports import maze as report

        output = output or Path("path.png")
        shared.check_writable(output)
        report.sample(task, model, way, num, output, json, seed=seed, **sampling)
        return
    from flexmdm.reports.answers import show
    from flexmdm.tasks.pipeline import progress_bar

    pipeline = task.pipeline(model)
    with progress_bar(num) as bar:
        answers = pipeline.sample(num, full=True, trace=watch, callback=bar, seed=seed, **sampling)
    show(pipeline, answers, (), json, watch)


def _cell(text: str) -> tuple[int, int]:
    try:
        row, column = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"a cell is row,column such as 3,5; got {text!r}") from None
    return row, column
