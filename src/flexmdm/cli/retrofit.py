"""`flexmdm retrofit`: a pretrained masked diffusion model learns to insert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flexmdm.cli import shared, starting

if TYPE_CHECKING:
    from flexmdm.runs.config import RunConfig

EXAMPLES = """
**Examples**

* `flexmdm retrofit llada-8b --dry-run`: what the paper's retrofit trains, and what memory it takes

* `flexmdm retrofit GSAI-ML/LLaDA-8B-Base --data hf:OWNER/WEB hf:OWNER/MATH --out runs/llada-flex`: a base from the Hub

* `torchrun --nproc-per-node 8 $(which flexmdm) retrofit BASE --config configs/llada8b.toml --accumulation 2 --out RUN`

* `flexmdm retrofit runs/mdm --out runs/flex`: an MDM of your own, on its own data, all weights

* `flexmdm retrofit runs/llada-flex --merge --out merged`: adapters into the weights, which then stand alone
"""

_SHAPE = "llada-8b"
_GPUS = (1, 8, 16)


def retrofit(
    base: Annotated[
        str | None,
        typer.Argument(help="The MDM: a folder, a name on the Hub, a run; llada-8b is the shape alone, for --dry-run."),
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="Corpora to learn from, in equal parts. [default: of a run, what it learned from]"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.", file_okay=False)] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with [task], [network], [recipe].", exists=True, dir_okay=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the latest whole checkpoint of --out.")] = False,
    merge: Annotated[
        bool, typer.Option("--merge", help="Write the run BASE with its adapters in its weights to --out.")
    ] = False,
    as_llada: Annotated[
        bool,
        typer.Option(
            "--as-llada", help="Write the run BASE to --out as a checkpoint of LLaDA, without what was added."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be trained, and stop.")] = False,
    lora_rank: Annotated[
        int | None,
        typer.Option(
            min=0, help="Rank of the adapters; 0 trains all weights. [default: 128; a run: its own, else all weights]"
        ),
    ] = None,
    lora_alpha: Annotated[
        int | None, typer.Option(min=1, help="What they add is multiplied by this over their rank. [default: the rank]")
    ] = None,
    groups: Annotated[
        int | None, typer.Option(min=1, help="Groups of layers with an AdaLN of their own. [default: 4]")
    ] = None,
    mask_id: Annotated[int | None, typer.Option(min=0, help="The mask token, if BASE does not say it.")] = None,
    four_bit: Annotated[
        bool, typer.Option("--four-bit", help="Frozen weights in 4 bits; needs bitsandbytes and a GPU.")
    ] = False,
    field: Annotated[str | None, typer.Option(help="The field or column to read. [default: text]")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Of the data. [default: BASE's]")] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a sequence at most. [default: 1024; a run: its own]")
    ] = None,
    held_out: Annotated[
        str | None, typer.Option(help="Share of the documents to hold out, or a file. [default: 0.05]")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Optimizer steps. [default: 200,000; a run: its own]")
    ] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Train for about so long instead.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Sequences per pass (and device).")] = None,
    accumulation: Annotated[int | None, typer.Option(min=1, help="Passes per optimizer step.")] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option("--learning-rate", "--lr", help="At its highest. [default: 1e-4; a run: its own, adapters 1e-3]"),
    ] = None,
    optimizer: Annotated[str | None, typer.Option(help="adamw, or muon.")] = None,
    schedule: Annotated[str | None, typer.Option(help="restarts, cosine, constant or trapezoid.")] = None,
    save_every: Annotated[int | None, typer.Option(min=1, help="Steps between checkpoints.")] = None,
    eval_every: Annotated[int | None, typer.Option(min=1, help="Steps between evaluations.")] = None,
    shard: Annotated[bool | None, typer.Option("--shard", help="Cut the weights over the processes (FSDP).")] = None,
    json: shared.Json = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all randomness.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps. [default: what there is]")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Of the frozen weights and of computation: float32 or bfloat16.")
    ] = None,
) -> None:
    """Turn a pretrained masked diffusion model into a FlexMDM and train what that adds to it."""
    from flexmdm.runs.config import RunConfig, override, read_config_file

    if base is None and config is None and not resume:
        raise typer.BadParameter("which model is to be retrofitted? Give its folder or its name on the Hub: BASE")
    if out is None and not dry_run:
        raise typer.BadParameter("say where the run goes: --out runs/NAME")
    if more and not data:
        raise typer.BadParameter(f"{' '.join(more)} stands behind BASE: are these --data?")
    base = starting.absolute(base)
    if merge or as_llada:
        return _keep(Path(base or ""), Path(out or ""), as_llada)
    if resume:
        run = RunConfig.read(starting.existing(out))
        starting.check_resumed(run, base, config)
    else:
        stored = read_config_file(config) if config else starting.defaults(base or "", adapters=bool(lora_rank))
        stored["network"] = {**stored.get("network", {}), **({"base": base} if base else {})}
        if base is not None and Path(base).is_file():
            raise ValueError(
                f"{base} is a file, and BASE is the folder or the name of a model: it comes first, as in flexmdm "
                "retrofit BASE --data FILE FILE"
            )
        if not stored["network"].get("base"):
            raise ValueError("which model is to be retrofitted? Give BASE, or network.base in the --config")
        run = RunConfig.from_dict({**stored, "task": {"name": "text", **stored.get("task", {})}})
        if run.task["name"] != "text":
            raise ValueError(
                f"{base} was trained on the task {run.task['name']}, and runs on text are retrofitted: "
                f"flexmdm train --from {base} goes on with it"
            )
    precision = "4-bit" if four_bit else dtype
    network = {
        "lora_rank": lora_rank, "lora_alpha": lora_alpha, "groups": groups, "mask_id": mask_id,
        "base_dtype": precision,
    }  # fmt: skip
    recipe = {
        "steps": steps, "batch_size": batch_size, "accumulation": accumulation, "learning_rate": learning_rate,
        "optimizer": optimizer, "schedule": schedule, "save_every": save_every, "eval_every": eval_every,
        "shard": shard, "seed": seed, "dtype": dtype,
    }  # fmt: skip
    run = RunConfig(run.task, override(run.network, network), override(run.recipe, recipe), run.interpolant)
    if not resume:
        run = starting.with_short_warmup(run, steps)
    if dry_run and not _is_ours(run.network.base or ""):
        return _dry_run(run, json)
    if run.network.base == _SHAPE:
        raise ValueError(f"{_SHAPE} is a shape without weights, for --dry-run: give a folder or a name on the Hub")
    from flexmdm.backbones.bases import check_base
    from flexmdm.cli.train import share_or_file
    from flexmdm.runs import train as running
    from flexmdm.tasks import task_of

    adapters = run.network.lora is not None
    kind = check_base(run.network.base or "", run.network.mask_id, four_bit, adapters)  # before data is prepared
    if kind.get("insertions") and not resume:
        typer.echo(f"{run.network.base} is a FlexMDM already: it goes on as it is", err=True)
    corpora = [*(data or []), *(more or [])] or None
    task = {"tokenizer": run.network.base, "max_length": 1024, **run.task}
    task["balanced"] = True if corpora else task.get("balanced", True)
    named = {
        "data": corpora,
        "field": field,
        "tokenizer": tokenizer,
        "max_length": max_length,
        **share_or_file(held_out),
    }
    task |= {key: value for key, value in named.items() if value is not None}
    run = RunConfig(task_of(task).to_dict(), run.network, run.recipe, run.interpolant)
    if dry_run:
        running.dry_run(run, device)
    else:
        running.train(run, Path(out or ""), resume, minutes, device)
    return None


def _is_ours(base: str) -> bool:
    from flexmdm.runs.config import RUN_FILE

    return (Path(base) / RUN_FILE).is_file()


def _keep(run: Path, out: Path, as_llada: bool) -> None:
    from flexmdm.runs.train import keep_as_llada, keep_merged

    if as_llada:
        keep_as_llada(run, out)
        typer.echo(f"{out} is a checkpoint of LLaDA: the pretrained weights as they are now, under its names")
    else:
        keep_merged(run, out)
        typer.echo(f"{out} stands alone: its weights, in the precision they had, hold what the adapters learned")


def _dry_run(run: RunConfig, json: Path | None) -> None:
    """Count weights and memory from the shape of a base alone."""
    import json as notation

    from flexmdm.backbones import bases, llada
    from flexmdm.backbones.retrofit import RetrofitConfig
    from flexmdm.runs import planning
    from flexmdm.training.models import quiet_transformers

    quiet_transformers()
    place = run.network.base or ""
    stored = llada.SHAPE_8B if place == _SHAPE else bases.stored_config(place)
    encoder = bases.encoder_config_of(stored)
    mask = run.network.mask_id if run.network.mask_id is not None else stored.get("mask_token_id", 0)
    groups = min(run.network.groups, encoder.num_hidden_layers)
    config = RetrofitConfig(
        encoder=bases.as_stored(encoder),
        anatomy=bases.anatomy_of(stored).to_dict(),
        groups=groups,
        lora=run.network.lora,
        base=place,
        mask_id=mask,
    )
    model = planning.shape_only(config)
    weights = planning.count_weights(model)
    typer.echo(
        f"{place}: {weights['pretrained'] / 1e9:.3f}B pretrained weights; "
        f"{weights['trained_total'] / 1e6:.1f}M weights are trained:"
    )
    for part, count in weights["trained"].items():
        typer.echo(f"  {part:<30} {count / 1e6:8.2f}M")
    length, sequences = run.task.get("max_length", 1024), run.recipe.batch_size
    typer.echo(
        f"memory of each GPU in GB (estimates): it must hold the larger of two numbers. Frozen weights in "
        f"{run.network.base_dtype}, gradient checkpointing, {sequences} states of up to {length} entries on each GPU "
        "at a time; several GPUs under FSDP:"
    )
    precision = run.network.base_dtype
    memory = {gpus: planning.memory_per_gpu(model, gpus, sequences, length, precision) for gpus in _GPUS}
    for gpus, parts in memory.items():
        described = ", ".join(f"{name} {parts[name]:.1f}" for name in parts if name not in ("total", "while loading"))
        typer.echo(
            f"  {gpus:>2} GPU{'s' if gpus > 1 else ''}: {parts['total']:.1f} in training ({described}), "
            f"{parts['while loading']:.1f} while the base is loaded"
        )
    if json:
        memory_by_name = {str(gpus): parts for gpus, parts in memory.items()}
        json.write_text(notation.dumps({"base": place, "weights": weights, "memory_gb": memory_by_name}, indent=1))
