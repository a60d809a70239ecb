"""`flexmdm retrofit`: a pretrained masked diffusion model learns to insert."""

from __future__ import annotations

import json as json_module
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from flexmdm.cli import options, shared
from flexmdm.cli import train as training
from flexmdm.tasks.registry import DEFAULT_TASK, task_of

if TYPE_CHECKING:
    from flexmdm.runs.config import RunConfig

EXAMPLES = shared.examples("""
`flexmdm retrofit llada-8b --dry-run`: what the paper's retrofit trains, and what memory it takes
`flexmdm retrofit GSAI-ML/LLaDA-8B-Base --data hf:OWNER/WEB hf:OWNER/MATH --out runs/llada-flex`: a base from the Hub
`torchrun --nproc-per-node 8 $(which flexmdm) retrofit BASE --config configs/llada8b.toml --accumulation 2 --out RUN`
`flexmdm retrofit runs/mdm --out runs/flex`: an MDM of your own, on its own data, all weights
`flexmdm retrofit runs/llada-flex --merge --out merged`: adapters into the weights, which then stand alone
""")

_SHAPE = "llada-8b"
_MERGED = "stands alone, with its weights in the precision they had"
_AS_LLADA = "is a checkpoint of LLaDA: the pretrained weights as they are now, under its names"
_Task, _Network, _Recipe = training.settings(
    lambda: [DEFAULT_TASK],
    leave_out=("hidden", "layers", "heads", "dropout", "architecture"),  # of a new network
    defaults={
        "tokenizer": "BASE's",
        "max_length": "1024, if BASE has so many positions; a run: its own",
        "lora_rank": "128; a run: its own, else all weights",
        "steps": "200,000; a run: its own",
        "learning_rate": "1e-4; a run: its own, adapters 1e-3",
        "dtype": "bfloat16; a run: its own",
    },
)


@options.Command
def retrofit(
    *,
    base: Annotated[
        str | None,
        typer.Argument(
            help="The MDM, or an encoder such as BERT: a folder, a name on the Hub, a run; llada-8b is the shape "
            "alone, for --dry-run."
        ),
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="Corpora to learn from, in equal parts. [default: of a run, what it learned from]"),
    ] = None,
    out: training.Out = None,
    config: training.Config = None,
    resume: training.Resume = False,
    merge: Annotated[
        bool,
        typer.Option(
            "--merge",
            help="Write BASE to --out so that it stands alone: a run with its adapters in its weights, or a "
            "FlexMDM that others published.",
        ),
    ] = False,
    as_llada: Annotated[
        bool,
        typer.Option(
            "--as-llada", help="Write the run BASE to --out as a checkpoint of LLaDA, without what was added."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be trained, and stop.")] = False,
    held_out: Annotated[
        str | None, typer.Option(help="Share of the documents to hold out, or a file. [default: 0.05]")
    ] = None,
    four_bit: Annotated[
        bool, typer.Option("--four-bit", help="Frozen weights in 4 bits; needs bitsandbytes and a GPU.")
    ] = False,
    minutes: training.Minutes = None,
    json: shared.Json = None,
    device: shared.Device = None,
    of_task: Annotated[options.Given, _Task],
    network: Annotated[options.Given, _Network],
    recipe: Annotated[options.Given, _Recipe],
) -> None:
    """Turn a pretrained masked diffusion model, or an encoder, into a FlexMDM and train what that adds to it."""
    if base is None and config is None and not resume:
        raise typer.BadParameter("which model is to be retrofitted? Give its folder or its name on the Hub: BASE")
    if out is None and not dry_run:
        raise typer.BadParameter("say where the run goes: --out runs/NAME")
    if more and not data:
        raise typer.BadParameter(f"{' '.join(more)} stands behind BASE: are these --data?")
    base = training.absolute(base)
    if merge or as_llada:
        from flexmdm.runs.export import export

        export(Path(base or ""), cast(Path, out), as_llada)
        typer.echo(f"{out} {_AS_LLADA if as_llada else _MERGED}")
        return None
    from flexmdm.backbones.bases import brings

    run = training.resumed(out, base, config) if resume else _new_run(base, config, bool(network.get("lora_rank")))
    precision = "4-bit" if four_bit else recipe.get("dtype")
    network |= {"base_dtype": precision} if precision else {}
    run = training.changed(run, network, recipe, resume, minutes)
    if dry_run and not training.is_run(run.network.base or ""):
        return _dry_run(run, json)
    if run.network.base == _SHAPE:
        raise ValueError(f"{_SHAPE} is a shape without weights, for --dry-run: give a folder or a name on the Hub")
    stored = training.check_base(run)
    if stored.get("insertions") and not resume:
        typer.echo(f"{run.network.base} is a FlexMDM already: it goes on as it is", err=True)
    task = {"tokenizer": run.network.base, "max_length": 1024, "balanced": True, **brings(stored), **run.task}
    task |= {"data": [*data, *(more or [])], "balanced": True} if data else {}
    task |= of_task | training.share_or_file(held_out)
    run = replace(run, task=task_of(task).to_dict())
    if dry_run:
        from flexmdm.runs.planning import dry_run as plan

        return plan(run, device, None if resume else minutes)
    from flexmdm.runs.train import train

    train(run, cast(Path, out), resume, minutes, device)
    return None


def _new_run(base: str | None, config: Path | None, adapters: bool) -> RunConfig:
    """Return the configuration to retrofit a base with, from a file or by default."""
    from flexmdm.runs.config import RunConfig, read_config_file

    stored: dict[str, Any] = read_config_file(config) if config else training.defaults(base or "", adapters)
    network = {**stored.get("network", {}), **({"base": base} if base else {})}
    if base is not None and Path(base).is_file():
        raise ValueError(
            f"{base} is a file, and BASE is the folder or the name of a model: it comes first, as in flexmdm "
            "retrofit BASE --data FILE FILE"
        )
    if not network.get("base"):
        raise ValueError("which model is to be retrofitted? Give BASE, or network.base in the --config")
    task = {"name": DEFAULT_TASK, **stored.get("task", {})}
    run = RunConfig.from_dict({**stored, "task": task, "network": network})
    if not options.has_setting(run.task["name"], "balanced"):
        raise ValueError(
            f"{base} was trained on the task {run.task['name']}, and runs on text are retrofitted: "
            f"flexmdm train --from {base} goes on with it"
        )
    return run


def _dry_run(run: RunConfig, json: Path | None) -> None:
    """Count weights and memory from the shape of a base alone."""
    from flexmdm.backbones import bases, llada
    from flexmdm.backbones.folders import stored_config
    from flexmdm.runs.planning import plan_of_shape

    base, precision = run.network.base or "", run.network.base_dtype
    stored = llada.SHAPE_8B if base == _SHAPE else stored_config(base)
    bases.check_no_extras(base)
    run = replace(run, task={**bases.brings(stored), **run.task})
    plan = plan_of_shape(run, stored)
    weights = plan["weights"]
    typer.echo(
        f"{base}: {weights['pretrained'] / 1e9:.3f}B pretrained weights; "
        f"{weights['trained_total'] / 1e6:.1f}M weights are trained:"
    )
    for part, count in weights["trained"].items():
        typer.echo(f"  {part:<30} {count / 1e6:8.2f}M")
    typer.echo(
        f"memory of each GPU in GB (estimates): it must hold the larger of two numbers. Frozen weights in "
        f"{precision}, gradient checkpointing, {run.recipe.batch_size} states of up to "
        f"{run.task.get('max_length', 1024)} entries on each GPU at a time; several GPUs under FSDP:"
    )
    for gpus, parts in plan["memory_gb"].items():
        described = ", ".join(f"{name} {parts[name]:.1f}" for name in parts if name not in ("total", "while loading"))
        typer.echo(
            f"  {gpus:>2} GPU{'' if gpus == '1' else 's'}: {parts['total']:.1f} in training ({described}), "
            f"{parts['while loading']:.1f} while the base is loaded"
        )
    if json:
        json.write_text(json_module.dumps(plan, indent=1))
