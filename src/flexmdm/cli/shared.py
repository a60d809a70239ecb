"""Options that several commands have, and how a command loads a run."""

from __future__ import annotations

import json as json_module
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flexmdm.settings import setting
from flexmdm.tasks.registry import PRETRAINED

if TYPE_CHECKING:
    from flexmdm.backbones.model import FlexMDMModel
    from flexmdm.tasks.task import Task

Run = Annotated[str | None, typer.Argument(help="A folder that `flexmdm train --out` wrote, or OWNER/NAME on the Hub.")]
Pretrained = Annotated[str | None, typer.Option(help="Weights that come with flexmdm, by name.")]
Watch = Annotated[bool, typer.Option("--watch", help="Show how masks appear and turn into tokens.")]
Film = Annotated[
    Path | None,
    typer.Option(help="Also write how the answers came about: .html, with a slider, or .gif.", dir_okay=False),
]
Json = Annotated[Path | None, typer.Option(help="Also write the results to this file.", dir_okay=False)]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Run a job: this .jsonl gets a line for each line of --file, or for each sample. If interrupted, the "
        "same command goes on.",
        dir_okay=False,
        rich_help_panel="Jobs",
    ),
]
Workers = Annotated[int, typer.Option(min=1, help="Processes of a job.", rich_help_panel="Jobs")]
Engine = Annotated[
    str,
    typer.Option(
        help="Where the workers of a job are: local, or ray for Ray Data, on this machine or its cluster.",
        rich_help_panel="Jobs",
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of generation.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or mps. [default: what there is]")]
STEP = "A step of spaced may take several evaluations of the network, and likeliest one more for every token."
DEFAULT_SAMPLER = "FlexMDM: spaced; MDM: tau on text, low_confidence on mazes"
_SAMPLERS = (  # a test knows that there are no others
    "tau", "adaptive", "spaced", "entropy_bounded", "dilated", "likeliest", "low_confidence",
)  # fmt: skip
_QUALITIES = ("fast", "balanced", "exact")  # likewise


def _sampler(text: str) -> str:
    if text not in _SAMPLERS:
        raise ValueError(f"--sampler {text}: there is none such; choose from {', '.join(_SAMPLERS)}")
    return text


def _quality(text: str) -> str:
    if text not in _QUALITIES:
        raise ValueError(f"--quality {text}: there is none such; choose from {', '.join(_QUALITIES)}")
    return text


def _window(text: str) -> tuple[float, int]:
    try:
        share, most = text.split(",")
        return float(share), int(most)
    except ValueError:
        raise ValueError(f"--window is two numbers such as 5,64; got {text!r}") from None


def _schedule(text: str) -> str:
    """Check the text of a schedule, which stays a text: journals of benchmarks keep it."""
    from flexmdm.schedules import Schedule

    Schedule.parse(text)
    return text


@dataclass(frozen=True)
class Sampling:
    """The options of a sampler."""

    sampler: str | None = setting(
        None,
        help="tau, adaptive, spaced, entropy_bounded, dilated, likeliest, or (MDM only) low_confidence. "
        f"[default: {DEFAULT_SAMPLER}]",
        parse=_sampler,
    )
    quality: str | None = setting(
        None, help="fast, balanced or exact, which is 8, 32 or 128 steps. --steps wins over it.", parse=_quality
    )
    steps: int | None = setting(
        None, help=f"Steps of the sampler. {STEP} [default: 64, or 32 to fill gaps of texts]", min=1
    )
    temperature: float | None = setting(
        None, help="0 takes the most probable token. [default: 1; gaps of texts: 0.8; maze: 0]", min=0.0
    )
    top_p: float | None = setting(None, help="Draw from the most probable tokens of this mass.", min=0.0, max=1.0)
    confidence: str | None = setting(
        None,
        help="What is revealed first: random, top_prob, margin, entropy, left_to_right. "
        "[default: of spaced random, of adaptive top_prob]",
    )
    window: tuple[float, int] | None = setting(
        None,
        help="adaptive: reveal among the leftmost masks only, as 5,64: five for each to reveal, at most 64. "
        "[default: among all]",
        parse=_window,
    )
    block: int | None = setting(
        None, help="low_confidence: tokens per block, from the left. [default: all in one]", min=1
    )
    bound: float | None = setting(
        None,
        help="entropy_bounded: nats by which the summed entropy of what is revealed at once may exceed the largest. "
        "[default: 0.1]",
        min=0.0,
    )
    insertion_schedule: str | None = setting(
        None,
        help="Schedule of the insertions, such as linear, cosine or power:2.9 for 1 - (1 - t)^2.9. [default: of the "
        "training]",
        parse=_schedule,
    )
    unmasking_schedule: str | None = setting(
        None, help="Schedule of the reveals, likewise. [default: of the training]", parse=_schedule
    )


def examples(lines: str) -> str:
    """Return the examples at the end of a help, one per line, as the paragraphs that typer wants."""
    return "\n\n".join(["**Examples**", *(f"* {line}" for line in lines.strip().splitlines())])


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
    folder = PRETRAINED / pretrained if pretrained is not None else Path(run or "")
    for name in ("config.json", "run.json"):
        try:
            return json_module.loads((folder / name).read_text())["task"]["name"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # if it is no run at all, loading it says so
    return None


def load(run: str | None, pretrained: str | None, device: str | None, sampler: str | None) -> tuple[Task, FlexMDMModel]:
    """Load the task and the model of a run, which must be of a kind that the sampler is for."""
    if (run or pretrained) and sys.stderr.isatty():  # at once: importing the libraries takes seconds
        print("loading", *(one for one in (run, pretrained) if one), "...", file=sys.stderr, flush=True)
    from flexmdm.tasks.loading import load_named

    task, model = load_named(Path(run) if run else None, pretrained, device)
    if sampler == "low_confidence" and task.layout.inserts:
        raise ValueError(
            f"--sampler low_confidence is for MDM only, and {run or pretrained} is a FlexMDM: "
            "take spaced, adaptive or tau"
        )
    return task, model
