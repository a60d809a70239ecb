"""`flexmdm sample`: let a run do what it learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

EXAMPLES = """
**Examples**

* `flexmdm sample runs/maze11 --through 1,1 5,3 9,9`: a path from cell to cell, drawn here and as path.png

* `flexmdm sample --pretrained maze41 --through 1,1 --through 39,39 --output plan.png`

* `flexmdm sample runs/maze11`: a held-out problem
"""


def sample(
    run: Annotated[str | None, typer.Argument(help="A folder that `flexmdm train --out` wrote.")] = None,
    cells: Annotated[list[str] | None, typer.Argument(help="More cells behind --through.")] = None,
    through: Annotated[list[str] | None, typer.Option(help="maze: the cells to connect, each as row,column.")] = None,
    pretrained: Annotated[str | None, typer.Option(help="Weights that come with flexmdm, by name.")] = None,
    num: Annotated[int, typer.Option(min=1, help="How many paths.")] = 1,
    sampler: Annotated[str | None, typer.Option(help="tau, adaptive, spaced. [default: spaced]")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of the sampler.")] = None,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the most probable token.")] = 0.0,
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture.", dir_okay=False)] = Path("path.png"),
    json: Annotated[Path | None, typer.Option(help="Also write the paths to this file.", dir_okay=False)] = None,
    seed: Annotated[int, typer.Option(help="Seed of generation.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps. [default: cpu]")] = None,
) -> None:
    """Plan paths, and draw them in the terminal and as a picture."""
    extra = list(cells or [])
    if pretrained is not None and run is not None:  # with --pretrained there is no run: what stands there is a cell
        extra, run = [run, *extra], None
    if extra and not through:
        raise ValueError(f"what is {extra[0]!r}? Cells come behind --through, as row,column")
    from flexmdm.tasks.maze import report
    from flexmdm.training.run import load_named

    task, model = load_named(Path(run) if run else None, pretrained, device)
    wanted = [_cell(text) for text in [*(through or []), *extra]]
    options: dict[str, Any] = {"sampler": sampler, "steps": steps, "temperature": temperature, "seed": seed}
    report.sample(task, model, wanted, num, output, json, **options)


def _cell(text: str) -> tuple[int, int]:
    try:
        row, column = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"a cell is row,column such as 3,5; got {text!r}") from None
    return row, column
