"""`flexmdm train`: train a model on a task, or go on with a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """
**Examples**

* `flexmdm train --task maze --size 11 --subgoals 2-6 --minutes 3 --out runs/maze11`: a model in three minutes

* `flexmdm train --config configs/maze41.toml --out runs/maze41`: an experiment of the paper

* `flexmdm train --config configs/maze41.toml --model mdm --out runs/maze41-mdm`: its baseline

* `flexmdm train --out runs/maze41 --resume`: go on after an interruption, exactly where it was

* `flexmdm train --task maze --size 41 --dry-run`: what it would do, and how long it would take

* `torchrun --nproc-per-node 4 $(which flexmdm) train --config configs/maze41.toml --out runs/maze41`: four GPUs
"""


def train(
    out: Annotated[Path | None, typer.Option(help="Folder of the run.", file_okay=False)] = None,
    task: Annotated[str | None, typer.Option(help="What to learn: maze.")] = None,
    model: Annotated[str | None, typer.Option(help="flexmdm, or the baseline mdm. [default: flexmdm]")] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with [task], [network], [recipe].", exists=True, dir_okay=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the latest whole checkpoint of --out.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and stop.")] = False,
    size: Annotated[int | None, typer.Option(help="maze: cells per side, odd. [default: 41]")] = None,
    subgoals: Annotated[
        str | None, typer.Option(help="maze: how many subgoals, from-to or one number. [default: 2-12]")
    ] = None,
    pairs: Annotated[int | None, typer.Option(help="maze: start-goal pairs. [default: 15000]")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Train for about so long instead.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Sequences per pass (and device).")] = None,
    accumulation: Annotated[int | None, typer.Option(min=1, help="Passes per optimizer step.")] = None,
    learning_rate: Annotated[float | None, typer.Option("--learning-rate", "--lr", help="At its highest.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="adamw, or muon.")] = None,
    schedule: Annotated[str | None, typer.Option(help="cosine, constant or trapezoid.")] = None,
    targets: Annotated[str | None, typer.Option(help="marginalised, or sampled.")] = None,
    hidden: Annotated[int | None, typer.Option(min=8, help="Width of the network.")] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Its blocks.")] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="Its attention heads.")] = None,
    dropout: Annotated[float | None, typer.Option(min=0.0, max=0.9, help="Its dropout.")] = None,
    save_every: Annotated[int | None, typer.Option(min=1, help="Steps between checkpoints.")] = None,
    eval_every: Annotated[int | None, typer.Option(min=1, help="Steps between evaluations.")] = None,
    log: Annotated[
        list[str] | None, typer.Option(help="Also log to tensorboard, trackio or wandb; repeat for several.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all randomness.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps. [default: what there is]")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, or bfloat16 for mixed precision.")] = None,
    compile: Annotated[bool | None, typer.Option("--compile", help="Compile the blocks of the network.")] = None,
) -> None:
    """Train a model, with checkpoints, a log and loss curves in its folder."""
    if out is None and not dry_run:
        raise typer.BadParameter("say where the run goes: --out runs/NAME")
    if resume and out is None:
        raise typer.BadParameter("say which run to go on with: --out runs/NAME --resume")
    from flexmdm.training.config import RunConfig, override, read_config_file

    if resume:
        base = RunConfig.read(_existing(out))
        stored, network, recipe, interpolant = base.task, base.network, base.recipe, base.interpolant
    else:
        read = RunConfig.from_dict({"task": {}, **(read_config_file(config) if config else {})})
        stored, network, recipe, interpolant = read.task, read.network, read.recipe, read.interpolant
    network = override(network, {"hidden": hidden, "layers": layers, "heads": heads, "dropout": dropout})
    changes = {
        "steps": steps, "batch_size": batch_size, "accumulation": accumulation, "learning_rate": learning_rate,
        "optimizer": optimizer, "schedule": schedule, "targets": targets, "save_every": save_every,
        "eval_every": eval_every, "seed": seed, "dtype": dtype, "compile": compile,
    }  # fmt: skip
    recipe = override(recipe, changes)
    named = {"name": task, "model": model, "size": size, "pairs": pairs, "subgoals": _span(subgoals)}
    stored = {**stored, **{key: value for key, value in named.items() if value is not None}}
    if "name" not in stored:
        raise ValueError("what to learn? Give --task maze, or a --config that says it")
    from flexmdm.tasks import task_of

    run = RunConfig(task_of(stored).to_dict(), network, recipe, interpolant)
    from flexmdm.training import run as running

    if dry_run:
        running.dry_run(run, device=device)
        return
    running.train(run, _existing(out, False), resume, minutes, device, log)


def _existing(out: Path | None, must: bool = True) -> Path:
    if out is None or (must and not out.is_dir()):
        raise ValueError(f"{out} is not a run: there is no such folder")
    return out


def _span(text: str | None) -> list[int] | None:
    """'2-12' is from 2 to 12, '7' is 7 only."""
    if text is None:
        return None
    try:
        low, _, high = text.partition("-")
        return [int(low), int(high or low)]
    except ValueError:
        raise ValueError(f"--subgoals is a number or a range such as 2-12, got {text!r}") from None
