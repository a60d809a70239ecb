"""The beginning of `flexmdm train` and `flexmdm retrofit`: options of both, the model to start from, its settings."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flexmdm.cli.shared import trained_on
from flexmdm.tasks.registry import PRETRAINED

if TYPE_CHECKING:
    from flexmdm.cli.options import Given
    from flexmdm.runs.config import RunConfig

Out = Annotated[Path | None, typer.Option(help="Folder of the run.", file_okay=False)]
Config = Annotated[
    Path | None,
    typer.Option(help="TOML file with [task], [network], [recipe], [interpolant].", exists=True, dir_okay=False),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the latest whole checkpoint of --out.")]
Minutes = Annotated[float | None, typer.Option(min=0.01, help="Time to train for, instead of --steps.")]
_OF_ONE_RUN = ("model", "tokenizer", "vocabulary", "contents", "longest")


def defaults(base: str, adapters: bool = False) -> dict[str, Any]:
    """Return the settings to start from a base with: those of a run; for weights of ours alone the recipe of a tiny
    network, for any other base the paper's.

    Muon is for the network's own matrices: adapters get AdamW, at a rate for it.
    """
    from flexmdm.runs.config import RUN_FILE, RunConfig

    if not (Path(base) / RUN_FILE).is_file():
        return _tiny() if trained_on(base) else _paper()
    run = RunConfig.read(Path(base)).to_dict()
    task = {key: value for key, value in run["task"].items() if key not in _OF_ONE_RUN}
    muon = run["recipe"]["optimizer"] == "muon"
    recipe = run["recipe"] | ({"optimizer": "adamw", "learning_rate": 1e-3} if adapters and muon else {})
    network = {"insertion_head": run["network"]["insertion_head"]}
    return {"task": task, "network": network, "recipe": recipe, "interpolant": run["interpolant"]}


def _tiny() -> dict[str, Any]:
    from flexmdm.tasks.text.sizes import SIZES

    return {"recipe": asdict(SIZES["tiny"][1])}


def _paper() -> dict[str, Any]:
    """Return the paper's transfer recipe; a GPU has four sequences per pass, so that sixteen have its batch of 64."""
    return {
        "network": {"lora_rank": 128, "lora_alpha": 128, "lora_dropout": 0.1, "groups": 4, "base_dtype": "bfloat16"},
        "recipe": {
            "steps": 200_000, "batch_size": 4, "learning_rate": 1e-4, "weight_decay": 0.1, "beta2": 0.999,
            "schedule": "restarts", "warmup": 1000, "ema": 0.9999, "eval_every": 2000, "save_every": 1000,
            "gradient_checkpointing": True, "dtype": "bfloat16",
        },
    }  # fmt: skip


def absolute(base: str | None) -> str | None:
    """Return a folder, or weights of the package, as they are found from anywhere; a name on the Hub as it is."""
    if not base:
        return base
    folder = Path(base) if Path(base).exists() else PRETRAINED / base
    return str(folder.resolve()) if folder.exists() else base


def existing(out: Path | None) -> Path:
    """Return the folder of a run that goes on; raise if there is none."""
    if out is None or not out.is_dir():
        raise ValueError(f"{out} is not a run: there is no such folder")
    return out


def check_resumed(run: RunConfig, base: str | None, config: Path | None) -> None:
    """Raise if a run that goes on is asked to start from something else."""
    if base is not None and base != absolute(run.network.base):
        raise ValueError(
            f"the run was started from {run.network.base}, not from {base}: leave it out, or begin a new run"
        )
    if config is not None:
        typer.echo(f"a run goes on with its own configuration: {config} is not read again", err=True)


def check_base(run: RunConfig) -> dict[str, Any]:
    """Raise if a run cannot start from its base, before anything is loaded or prepared; return its config.json."""
    from flexmdm.backbones.bases import check_base

    network = run.network
    return check_base(network.base or "", network.mask_id, network.base_dtype == "4-bit", network.lora is not None)


def sized(run: RunConfig, size: str) -> RunConfig:
    """Return a run with the network and the recipe of a size, by its name."""
    from flexmdm.tasks.text.sizes import SIZES

    if size not in SIZES:
        raise ValueError(f"--size is one of {', '.join(SIZES)}, or of a maze its cells per side; got {size!r}")
    network, recipe = SIZES[size]
    return replace(run, network=network, recipe=recipe)


def changed(run: RunConfig, given: Given, task: dict[str, Any], resume: bool) -> RunConfig:
    """Return a run with a task and with the settings of network and recipe that were given."""
    recipe = replace(run.recipe, **given["recipe"])
    if not resume and "steps" in given["recipe"] and recipe.warmup * 5 > recipe.steps:
        recipe = replace(recipe, warmup=recipe.steps // 10)  # leaves most of the steps that were asked for
    return replace(run, task=task, network=replace(run.network, **given["network"]), recipe=recipe)


def of_baseline(run: RunConfig) -> RunConfig:
    """Return a run with linear schedules, for an MDM instead of the FlexMDM that a configuration is for.

    Where masks are not inserted, nothing is gained by revealing them late.
    """
    from flexmdm.interpolants import FlexMDMInterpolant
    from flexmdm.runs.config import RunConfig

    linear = RunConfig(run.task).interpolant
    if FlexMDMInterpolant.from_dict(run.interpolant).to_dict() != linear:
        typer.echo("[interpolant] is for FlexMDM: this MDM gets linear schedules", err=True)
    return replace(run, interpolant=linear)
