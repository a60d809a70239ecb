"""How a run starts: from which model, with which settings, and what of that may be said again when it goes on."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flexmdm.cli.shared import PRETRAINED, trained_on

if TYPE_CHECKING:
    from flexmdm.runs.config import RunConfig

_OF_ONE_RUN = ("model", "tokenizer", "vocabulary", "contents", "longest")


def defaults(base: str, adapters: bool = False) -> dict[str, Any]:
    """What a run of ours was trained with and on; for weights of ours alone the recipe of a tiny network, for any other
    base the paper's.

    Muon is for the network's own matrices: adapters get AdamW, at a rate for it.
    """
    from flexmdm.runs.config import RUN_FILE, RunConfig

    if not (Path(base) / RUN_FILE).is_file():
        return _tiny() if trained_on(base) else _paper()
    run = RunConfig.read(Path(base)).to_dict()
    task = {key: value for key, value in run["task"].items() if key not in _OF_ONE_RUN}
    muon = run["recipe"]["optimizer"] == "muon"
    recipe = run["recipe"] | ({"optimizer": "adamw", "learning_rate": 1e-3} if adapters and muon else {})
    return {"task": task, "recipe": recipe, "interpolant": run["interpolant"]}


def _tiny() -> dict[str, Any]:
    from flexmdm.tasks.text.sizes import SIZES

    return {"recipe": asdict(SIZES["tiny"][1])}


def _paper() -> dict[str, Any]:
    """The paper's transfer recipe; one pass of a GPU has four sequences, so that sixteen have its batch of 64."""
    return {
        "network": {"lora_rank": 128, "lora_alpha": 128, "lora_dropout": 0.1, "groups": 4, "base_dtype": "bfloat16"},
        "recipe": {
            "steps": 200_000, "batch_size": 4, "learning_rate": 1e-4, "weight_decay": 0.1, "beta2": 0.999,
            "schedule": "restarts", "warmup": 1000, "ema": 0.9999, "eval_every": 2000, "save_every": 1000,
            "gradient_checkpointing": True, "dtype": "bfloat16",
        },
    }  # fmt: skip


def absolute(place: str | None) -> str | None:
    """A folder, or weights that come with the package, as they are found from anywhere; a name on the Hub as it is."""
    if not place:
        return place
    folder = Path(place) if Path(place).exists() else PRETRAINED / place
    return str(folder.resolve()) if folder.exists() else place


def existing(out: Path | None) -> Path:
    """The folder of a run that goes on."""
    if out is None or not out.is_dir():
        raise ValueError(f"{out} is not a run: there is no such folder")
    return out


def check_resumed(run: RunConfig, base: str | None, config: Path | None) -> None:
    """Say so if a run that goes on is asked to start from something else."""
    if base is not None and base != absolute(run.network.base):
        raise ValueError(
            f"the run was started from {run.network.base}, not from {base}: leave it out, or begin a new run"
        )
    if config is not None:
        typer.echo(f"a run goes on with its own configuration: {config} is not read again", err=True)


def with_short_warmup(run: RunConfig, steps: int | None) -> RunConfig:
    """If ``steps`` were asked for, a warm-up that leaves most: a tenth, where it would take more than a fifth."""
    if steps is None or run.recipe.warmup * 5 <= steps:
        return run
    return replace(run, recipe=replace(run.recipe, warmup=steps // 10))


def of_baseline(run: RunConfig) -> RunConfig:
    """An MDM instead of the FlexMDM that a configuration is for: where masks are not inserted, nothing is gained by
    revealing them late, so that its schedules are linear."""
    from flexmdm.interpolants import FlexMDMInterpolant
    from flexmdm.runs.config import RunConfig

    linear = RunConfig(run.task).interpolant
    if FlexMDMInterpolant.from_dict(run.interpolant).to_dict() != linear:
        typer.echo("[interpolant] is for FlexMDM: this MDM gets linear schedules", err=True)
    return replace(run, interpolant=linear)
