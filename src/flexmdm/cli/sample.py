"""`flexmdm sample`: let a run do what it learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flexmdm.cli import shared

EXAMPLES = """
**Examples**

* `flexmdm sample runs/names --num 10`: ten new names

* `flexmdm sample runs/articles --watch`: see a paragraph grow

* `flexmdm sample runs/articles --num 100 --sampler tau --steps 256 --json samples.json`

* `flexmdm sample runs/maze11 --through 1,1 5,3 9,9`: a path from cell to cell, drawn here and as path.png

* `flexmdm sample --pretrained maze41 --through 1,1 --through 39,39 --output plan.png`
"""


def sample(
    run: shared.Run = None,
    cells: Annotated[list[str] | None, typer.Argument(help="maze: more cells behind --through.")] = None,
    through: Annotated[list[str] | None, typer.Option(help="maze: the cells to connect, each as row,column.")] = None,
    pretrained: shared.Pretrained = None,
    num: Annotated[
        int, typer.Option("--num", "-n", min=1, help="How many; maze: one is the first right one of 4 tries.")
    ] = 1,
    sampler: shared.Sampler = None,
    steps: shared.Steps = None,
    temperature: shared.Temperature = None,
    top_p: shared.TopP = None,
    confidence: shared.Confidence = None,
    watch: shared.Watch = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="maze: the picture.", dir_okay=False)] = Path(
        "path.png"
    ),
    json: shared.Json = None,
    seed: shared.Seed = 0,
    device: shared.Device = None,
) -> None:
    """Sample sequences, or plan paths through a maze."""
    options = shared.options(sampler, steps, temperature, top_p, confidence)
    extra = list(cells or [])
    if pretrained is not None and run is not None:  # with --pretrained there is no run: what stands there is a cell
        extra, run = [run, *extra], None
    if extra and not through:
        raise ValueError(f"what is {extra[0]!r}? Cells come behind --through, as row,column")
    _check_task(shared.trained_on(run, pretrained) or "maze", through, run or pretrained)  # before it is loaded
    wanted = _cells([*(through or []), *extra])
    shared.announce(run, pretrained)
    task, model = shared.load(run, pretrained, device, sampler)
    _check_task(task.name, through, run or pretrained)
    shared.check_writable(json, output if task.name == "maze" else None)
    if task.name == "maze":
        from flexmdm.reports import maze

        maze.sample(task, model, wanted, num, output, json, seed=seed, **options)
        return
    from flexmdm.reports import answers

    answers.sample(task, model, num, json=json, watch=watch, seed=seed, **options)


def _check_task(name: str, through: list[str] | None, run: str | None) -> None:
    if through and name != "maze":
        raise ValueError(f"{run} is no maze: it was trained on {name}, and --through is for mazes")
    if name == "sft":
        raise ValueError(f'{run} answers prompts: flexmdm complete {run} "a question"')
    if name == "code":
        raise ValueError(f"{run} fills gaps in programs: flexmdm infill {run} --file program.py")


def _cells(texts: list[str]) -> list[tuple[int, int]]:
    """Where a path is to go; none at all stand for a problem of the maze's own."""
    if len(texts) == 1:
        raise ValueError(f"a path needs a start and a goal: give at least two cells, got {_cell(texts[0])}")
    return [_cell(text) for text in texts]


def _cell(text: str) -> tuple[int, int]:
    try:
        row, column = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"a cell is row,column such as 3,5; got {text!r}") from None
    return row, column
