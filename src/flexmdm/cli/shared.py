"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Run = Annotated[str | None, typer.Argument(help="A folder that `flexmdm train --out` wrote.")]
Pretrained = Annotated[str | None, typer.Option(help="Weights that come with flexmdm, by name.")]
Sampler = Annotated[
    str | None, typer.Option(help="tau, adaptive, spaced, low_confidence. [default: spaced; mdm: tau, maze: adaptive]")
]
Steps = Annotated[int | None, typer.Option(min=1, help="Steps of the sampler. [default: 64]")]
Temperature = Annotated[
    float | None, typer.Option(min=0.0, help="0 takes the most probable token. [default: 1; maze: 0]")
]
TopP = Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Draw from the most probable tokens of this mass.")]
Confidence = Annotated[
    str | None, typer.Option(help="What is revealed first: random, top_prob, margin, entropy, left_to_right.")
]
Watch = Annotated[bool, typer.Option("--watch", help="Show how masks appear and turn into tokens.")]
Json = Annotated[Path | None, typer.Option(help="Also write the results to this file.", dir_okay=False)]
Seed = Annotated[int, typer.Option(help="Seed of generation.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or mps. [default: cpu]")]


def options(
    sampler: str | None, steps: int | None, temperature: float | None, top_p: float | None, confidence: str | None
) -> dict[str, Any]:
    """Those that were given."""
    named = {
        "sampler": sampler,
        "steps": steps,
        "temperature": temperature,
        "top_p": top_p,
        "confidence": confidence,
    }
    return {name: value for name, value in named.items() if value is not None}
