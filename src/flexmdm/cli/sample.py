"""`flexmdm sample`: let a run do what it learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flexmdm.cli import shared
from flexmdm.tasks.registry import settings_class, task_names

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
    through: Annotated[list[str] | None, typer.Option(help="maze: Cells to connect, each as row,column.")] = None,
    pretrained: shared.Pretrained = None,
    num: Annotated[
        int,
        typer.Option("--num", "-n", min=1, help="Number of samples; maze: one is the first right one of 4 tries."),
    ] = 1,
    sampler: shared.Sampler = None,
    steps: shared.Steps = None,
    temperature: shared.Temperature = None,
    top_p: shared.TopP = None,
    confidence: shared.Confidence = None,
    watch: shared.Watch = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="maze: Picture. [default: path.png]", dir_okay=False)
    ] = None,
    json: shared.Json = None,
    seed: shared.Seed = 0,
    device: shared.Device = None,
) -> None:
    """Sample sequences, or plan paths through a maze."""
    options = shared.options(sampler, steps, temperature, top_p, confidence) | {"seed": seed}
    extra = list(cells or [])
    if pretrained is not None and run is not None:  # with --pretrained there is no run: what stands there is a cell
        extra, run = [run, *extra], None
    if extra and not through:
        raise ValueError(f"what is {extra[0]!r}? Cells come behind --through, as row,column")
    own = {name: value for name, value in (("through", through), ("output", output)) if value}
    _check_options(own, run, pretrained)
    own |= {"through": _cells([*(through or []), *extra])} if through else {}
    shared.check_writable(json, output)
    task, model = shared.load(run, pretrained, device, sampler)
    from flexmdm.cli import dispatch

    dispatch.sample(task, model, num, json, watch, own, options)


def _check_options(own: dict[str, Any], run: str | None, pretrained: str | None) -> None:
    """Raise, before anything is loaded, if an option is for runs on another task."""
    name = shared.trained_on(run, pretrained) if own else None
    for option in own:
        tasks = [task for task in task_names() if option in settings_class(task).sample_options]
        if name is not None and name not in tasks:
            raise ValueError(
                f"--{option} is for runs on {' or '.join(tasks)}, and {run or pretrained} was trained on {name}"
            )


def _cells(texts: list[str]) -> list[tuple[int, int]]:
    """Return the cells that a path is to go through; none at all stand for a problem of the maze's own."""
    if len(texts) == 1:
        raise ValueError(f"a path needs a start and a goal: give at least two cells, got {_cell(texts[0])}")
    return [_cell(text) for text in texts]


def _cell(text: str) -> tuple[int, int]:
    try:
        row, column = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"a cell is row,column such as 3,5; got {text!r}") from None
    return row, column
