"""The beginning of `flexmdm train` and `flexmdm retrofit`: options of both, the model to start from, its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flexmdm.cli.options import Given, Options
from flexmdm.cli.shared import trained_on
from flexmdm.tasks.registry import PRETRAINED, settings_class
from flexmdm.training.recipe import RUN_FILE, Network, Recipe

if TYPE_CHECKING:
    from flexmdm.runs.config import RunConfig

Out = Annotated[Path | None, typer.Option(help="Folder of the run.", file_okay=False)]
Config = Annotated[
    Path | None,
    typer.Option(help="TOML file with [task], [network], [recipe], [interpolant].", exists=True, dir_okay=False),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the latest whole checkpoint of --out.")]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.01, help="Time to train for, instead of --steps; with --resume it ends at whichever comes first."
    ),
]
# Numbers of a new network, which one that starts from a base does not take from them.
OF_NEW_NETWORKS = ("hidden", "layers", "heads", "condition", "dropout", "clock", "neighbours", "architecture")
_OF_ONE_RUN = ("model", "tokenizer", "vocabulary", "contents", "longest")
# The paper's transfer recipe; a GPU has four sequences per pass, so that sixteen have its batch of 64.
_PAPER = {
    "network": {"lora_rank": 128, "lora_alpha": 128, "lora_dropout": 0.1, "groups": 4, "base_dtype": "bfloat16"},
    "recipe": {
        "steps": 200_000, "batch_size": 4, "learning_rate": 1e-4, "weight_decay": 0.1, "beta2": 0.999,
        "schedule": "restarts", "warmup": 1000, "ema": 0.9999, "eval_every": 2000, "save_every": 1000,
        "gradient_checkpointing": True, "dtype": "bfloat16",
    },
}  # fmt: skip


def settings(names: Callable[[], Iterable[str]], **changes: Any) -> tuple[Options, Options, Options]:
    """Return the options of the settings of tasks, of `Network` and of `Recipe`; ``changes`` are of `Options`."""
    return (
        Options(lambda: {name: settings_class(name) for name in names()}, "Task", **changes),
        Options(lambda: {"": Network}, "Network", **changes),
        Options(lambda: {"": Recipe}, "Recipe", **changes),
    )


def is_run(base: str) -> bool:
    """Return whether a base is the folder of a run."""
    return (Path(base) / RUN_FILE).is_file()


def defaults(base: str, adapters: bool = False) -> dict[str, Any]:
    """Return the settings to start from a base with: those of a run; for weights of ours alone the recipe of a tiny
    network, for any other base the paper's.

    Muon is for the network's own matrices: adapters get AdamW, at a rate for it.
    """
    from flexmdm.runs.config import RunConfig
    from flexmdm.tasks.text.sizes import SIZES

    if not is_run(base):
        return {"recipe": asdict(SIZES["tiny"][1])} if trained_on(base) else _PAPER
    run = RunConfig.read(Path(base)).to_dict()
    task = {key: value for key, value in run["task"].items() if key not in _OF_ONE_RUN}
    muon = run["recipe"]["optimizer"] == "muon"
    recipe = run["recipe"] | ({"optimizer": "adamw", "learning_rate": 1e-3} if adapters and muon else {})
    network = {"insertion_head": run["network"]["insertion_head"]}
    return {"task": task, "network": network, "recipe": recipe, "interpolant": run["interpolant"]}


def absolute(base: str | None) -> str | None:
    """Return a folder, or weights of the package, as they are found from anywhere; a name on the Hub as it is."""
    if not base:
        return base
    folder = Path(base) if Path(base).exists() else PRETRAINED / base
    return str(folder.resolve()) if folder.exists() else base


def resumed(out: Path | None, base: str | None, config: Path | None) -> RunConfig:
    """Return the configuration of a run that goes on; raise if there is none, or if it began with another base."""
    from flexmdm.runs.config import RunConfig

    if out is None or not out.is_dir():
        raise ValueError(f"{out} is not a run: there is no such folder")
    run = RunConfig.read(out)
    if base is not None and base != absolute(run.network.base):
        raise ValueError(
            f"the run was started from {run.network.base}, not from {base}: leave it out, or begin a new run"
        )
    if config is not None:
        typer.echo(f"a run goes on with its own configuration: {config} is not read again", err=True)
    return run


def check_base(run: RunConfig) -> dict[str, Any]:
    """Raise if a run cannot start from its base, before anything is loaded or prepared; return its config.json."""
    from flexmdm.backbones.bases import check_base

    network = run.network
    return check_base(network.base or "", network.mask_id, network.base_dtype == "4-bit", network.lora is not None)


def changed(run: RunConfig, network: Given, recipe: Given, resume: bool, minutes: float | None) -> RunConfig:
    """Return a run with the settings that were given; raise if a new one is to be of so many steps and of some time."""
    new = replace(run.recipe, **recipe)
    if not resume and "steps" in recipe:
        if minutes is not None:
            raise ValueError("--steps or --minutes? A new run has as many steps as fit in its --minutes: leave one out")
        if new.warmup * 5 > new.steps:
            new = replace(new, warmup=new.steps // 10)  # leaves most of the steps that were asked for
    return replace(run, network=replace(run.network, **network), recipe=new)


def share_or_file(text: str | None) -> dict[str, Any]:
    """Return the settings of ``--held-out``: '0.1' is a share of the documents, anything else a file."""
    if text is None:
        return {}
    try:
        return {"held_out": float(text), "held_out_data": []}
    except ValueError:
        return {"held_out_data": [text]}
