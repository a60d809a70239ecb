"""`flexmdm eval`: how good is a run at its task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

EXAMPLES = """
**Examples**

* `flexmdm eval runs/maze41 --subgoals 2,7,12`: success on 500 held-out problems each, with the default sampler

* `flexmdm eval runs/maze41 --subgoals 7 --sampler tau --steps 256 --json tau.json`: as in the paper

* `flexmdm eval --pretrained maze41 --subgoals 7 --num 200`: the weights that come with flexmdm
"""


def evaluate(
    run: Annotated[Path | None, typer.Argument(help="A folder that `flexmdm train --out` wrote.")] = None,
    pretrained: Annotated[str | None, typer.Option(help="Weights that come with flexmdm, by name.")] = None,
    subgoals: Annotated[str, typer.Option(help="maze: how many subgoals; several with commas.")] = "7",
    num: Annotated[int, typer.Option(min=1, help="Problems for each number of subgoals.")] = 500,
    sampler: Annotated[
        str | None, typer.Option(help="tau, adaptive, spaced, low_confidence. [default: spaced; mdm: adaptive]")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of the sampler. [default: 64]")] = None,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the most probable token.")] = 0.0,
    confidence: Annotated[
        str | None, typer.Option(help="What is revealed first: random, top_prob, margin, entropy, left_to_right.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Also write the figures to this file.", dir_okay=False)] = None,
    seed: Annotated[int, typer.Option(help="Seed of problems and generation.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps. [default: cpu]")] = None,
) -> None:
    """Measure a trained model on held-out problems, with 95% intervals."""
    counts = _numbers(subgoals)
    from flexmdm.tasks.maze import report
    from flexmdm.training.run import load_named

    task, model = load_named(run, pretrained, device)
    options: dict[str, Any] = {"sampler": sampler, "steps": steps, "temperature": temperature, "seed": seed}
    if confidence is not None:
        options["confidence"] = confidence
    report.evaluate(task, model, counts, num, json, **options)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--subgoals is a number or several with commas, such as 2,7,12; got {text!r}") from None
