"""Options that several commands have, and how a command loads a run."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flexmdm.tasks.registry import PRETRAINED

if TYPE_CHECKING:
    from flexmdm.backbones.model import FlexMDMModel
    from flexmdm.tasks.task import Task

Run = Annotated[str | None, typer.Argument(help="A folder that `flexmdm train --out` wrote.")]
Pretrained = Annotated[str | None, typer.Option(help="Weights that come with flexmdm, by name.")]
SAMPLERS = "tau, adaptive, spaced, likeliest, or (MDM only) low_confidence."
_SAMPLERS = ("tau", "adaptive", "spaced", "likeliest", "low_confidence")  # a test knows that there are no others
STEP = "A step of spaced may take several evaluations of the network, and likeliest one more for every token."
DEFAULT_SAMPLER = "FlexMDM: spaced; MDM: tau on text, low_confidence on mazes"
Sampler = Annotated[str | None, typer.Option(help=f"{SAMPLERS} [default: {DEFAULT_SAMPLER}]")]
Steps = Annotated[int | None, typer.Option(min=1, help=f"Steps of the sampler. {STEP} [default: 64]")]
Temperature = Annotated[
    float | None, typer.Option(min=0.0, help="0 takes the most probable token. [default: 1; maze: 0]")
]
TopP = Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Draw from the most probable tokens of this mass.")]
REVEALED = "What is revealed first: random, top_prob, margin, entropy, left_to_right."
Confidence = Annotated[str | None, typer.Option(help=f"{REVEALED} [default: of spaced random, of adaptive top_prob]")]
LEFTMOST = "adaptive: reveal among the leftmost masks only, as 5,64: five for each to reveal, at most 64."
Window = Annotated[str | None, typer.Option(help=f"{LEFTMOST} [default: among all]")]
Watch = Annotated[bool, typer.Option("--watch", help="Show how masks appear and turn into tokens.")]
Json = Annotated[Path | None, typer.Option(help="Also write the results to this file.", dir_okay=False)]
Seed = Annotated[int, typer.Option(help="Seed of generation.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or mps. [default: what there is]")]


def announce(*runs: str | None) -> None:
    """Print at once what is being loaded: importing the libraries takes seconds."""
    if any(runs) and sys.stderr.isatty():
        print("loading", *(run for run in runs if run), "...", file=sys.stderr, flush=True)


def check_writable(*files: Path | None) -> None:
    """Raise now, before any work is done, if one of the files cannot be written; makes their folders."""
    for file in files:
        if file is None or file.is_fifo() or file.is_char_device():  # which must be opened once only
            continue
        path = file.resolve()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                path.open("ab").close()
            else:
                path.touch()
                path.unlink()
        except OSError as error:
            raise OSError(
                f"{file} cannot be written ({error.strerror}: {error.filename}); give another file"
            ) from error


def trained_on(run: str | None, pretrained: str | None = None) -> str | None:
    """Return the name of the task of a run, or of a model that was saved alone, without loading it, if it is known."""
    folder = PRETRAINED / pretrained if pretrained is not None else Path(run) if run is not None else None
    if folder is None:
        return None
    for name in ("config.json", "run.json"):
        try:
            return json_module.loads((folder / name).read_text())["task"]["name"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # if it is no run at all, loading it says so
    return None


def load(run: str | None, pretrained: str | None, device: str | None, sampler: str | None) -> tuple[Task, FlexMDMModel]:
    """Load the task and the model of a run, which must be of a kind that the sampler is for."""
    announce(run, pretrained)
    from flexmdm.tasks.loading import load_named

    task, model = load_named(Path(run) if run else None, pretrained, device)
    if sampler == "low_confidence" and task.layout.inserts:
        raise ValueError(
            f"--sampler low_confidence is for MDM only, and {run or pretrained} is a FlexMDM: "
            "take spaced, adaptive or tau"
        )
    return task, model


def options(
    sampler: str | None,
    steps: int | None,
    temperature: float | None,
    top_p: float | None,
    confidence: str | None,
    window: str | None = None,
    block: int | None = None,
) -> dict[str, Any]:
    """Return the options of a sampler that were given; raise if there is no such sampler."""
    if sampler is not None and sampler not in _SAMPLERS:
        raise ValueError(f"--sampler {sampler}: there is none such; choose from {', '.join(_SAMPLERS)}")
    named = {
        "sampler": sampler,
        "steps": steps,
        "temperature": temperature,
        "top_p": top_p,
        "confidence": confidence,
        "window": _window(window),
        "block": block,
    }
    return {name: value for name, value in named.items() if value is not None}


def _window(text: str | None) -> tuple[float, int] | None:
    if text is None:
        return None
    try:
        share, most = text.split(",")
        return float(share), int(most)
    except ValueError:
        raise ValueError(f"--window is two numbers such as 5,64; got {text!r}") from None
