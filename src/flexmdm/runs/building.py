"""Build what a run needs before training: its task with everything chosen, and its model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape

from flexmdm.backbones.model import FlexMDMConfig, FlexMDMModel
from flexmdm.interpolants import FlexMDMInterpolant
from flexmdm.runs.config import RunConfig
from flexmdm.tasks.registry import task_of
from flexmdm.tasks.task import Task
from flexmdm.training.recipe import Network

_MEASURED = 65_536  # training sequences whose regions are counted


def settle(config: RunConfig, folder: Path | None, console: Console) -> tuple[RunConfig, Task]:
    """Return a configuration with all defaults of task and schedules, so that equal runs are equal, and the task."""
    interpolant = FlexMDMInterpolant.from_dict(config.interpolant)
    task = task_of(config.task, folder).settled(console)
    return replace(config, task=task.to_dict(), interpolant=interpolant.to_dict()), task


def build(config: RunConfig, task: Task | None = None) -> tuple[Task, FlexMDMModel]:
    """Return the task of a run (if it is not at hand already) and its model as it is before training."""
    task = task_of(config.task) if task is None else task
    torch.manual_seed(config.recipe.seed)
    interpolant = FlexMDMInterpolant.from_dict(config.interpolant)
    inserts = task.layout.inserts
    common: dict[str, Any] = {
        "insertions": inserts,
        "expected_gap": _expected_gap(task, interpolant) if inserts else 1.0,
        "regions": _regions(task) if inserts and config.network.insertion_head == "count" else None,
        "interpolant": config.interpolant,
        "task": config.task,
    }
    network = config.network
    if network.lora and network.base is None:
        raise ValueError("network.lora_rank needs a model to adapt: network.base (--from)")
    if network.base is not None:
        return task, _from_base(network, task, common)
    if network.architecture == "llada":
        from flexmdm.backbones.llada import shape
        from flexmdm.backbones.retrofit import untrained

        body = shape(task.vocab_size + 1, network.hidden, network.layers, network.heads)
        return task, untrained(body, mask_id=task.vocab_size, groups=min(network.groups, network.layers), **common)
    new = FlexMDMConfig(
        vocab_size=task.vocab_size,
        hidden_size=network.hidden,
        num_layers=network.layers,
        num_heads=network.heads,
        condition_size=network.condition,
        dropout=network.dropout,
        neighbours=network.neighbours,
        clock=network.clock,
        activation=network.activation,
        pairs=network.pairs,
        **common,
    )
    return task, FlexMDMModel(new)


def _from_base(network: Network, task: Task, common: dict[str, Any]) -> FlexMDMModel:
    from flexmdm.backbones.folders import stored_config
    from flexmdm.backbones.retrofit import retrofit

    base = str(network.base)
    if network.lora_rank == 0 and stored_config(base).get("lora"):
        raise ValueError(
            f"{base} has adapters: go on with these (leave out --lora-rank), or merge them first, so that all weights "
            f"can be trained (flexmdm retrofit {base} --merge --out FOLDER)"
        )
    task.check_base(base)
    options: dict[str, Any] = {
        "dtype": torch.float32 if network.base_dtype == "float32" or not network.lora else torch.bfloat16,
        "four_bit": network.base_dtype == "4-bit",
        "mask_id": network.mask_id,
    }
    if torch.cuda.is_available() and network.lora:  # straight to this process's GPU, not through everybody's memory
        options["device_map"] = {"": torch.cuda.current_device()}
    model = retrofit(base, groups=network.groups, lora=network.lora, **options, **common)
    task.check_base(base, model.config.vocab_size)
    most, needed = model.config.most_entries, task.layout.most_entries
    if most is not None and needed > most:
        raise ValueError(
            f"a sequence may have {needed:,} entries, with all that stands around it, and {base} has positions for "
            f"{most:,}: keep sequences shorter (--max-length {task.max_length + most - needed})"
        )
    return model


def _expected_gap(task: Task, interpolant: FlexMDMInterpolant) -> float:
    """Return how many tokens the insertion head should expect in a gap at alpha = 0, from what is missing half-way."""
    count = min(len(task.train), 256)
    x1, template = task.train.take(torch.arange(count), torch.arange(count))
    half = interpolant.insertion.inverse(torch.tensor(0.5, dtype=torch.float64))
    sample = interpolant.sample(x1, half, template, mask_id=task.vocab_size)
    missing = sample.gaps.values[sample.canvas.open_gaps.values]
    return max(2 * float(missing.double().mean()), 0.1) if len(missing) else 1.0


def _regions(task: Task) -> dict[str, list[float]]:
    """Return the shares of the numbers of free tokens in the open gaps of a task's templates, for a `CountHead`."""
    count = min(len(task.train), _MEASURED)
    _, template = task.train.take(torch.arange(count), torch.arange(count))
    sizes = torch.zeros(len(template.open_gaps.values), dtype=torch.int64)
    sizes.index_add_(0, template.token_gaps[~template.given], torch.ones(int((~template.given).sum())).long())
    rows, is_open = template.open_gaps.rows, template.open_gaps.values
    whole = (template.open_gaps.lengths == 1)[rows]
    found = {"whole": sizes[is_open & whole], "between": sizes[is_open & ~whole]}
    either = sizes[is_open]
    return {name: _shares(of if len(of) else either) for name, of in found.items()}


def _shares(sizes: torch.Tensor) -> list[float]:
    """Return the share of each size from 0 on, rounded to what a configuration should hold."""
    return [round(share, 6) for share in (torch.bincount(sizes).double() / max(len(sizes), 1)).tolist()] or [1.0]


def describe(
    config: RunConfig, task: Task, model: FlexMDMModel, console: Console, minutes: float | None = None
) -> None:
    """Print the size of a model, of its data and of its training, which is of ``minutes`` if these are given."""
    count = model.count_parameters()
    recipe = config.recipe
    if config.network.base is not None:
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        adapters = f" with adapters of rank {config.network.lora_rank}" if config.network.lora else ""
        console.print(
            f"starting from {escape(config.network.base)}{adapters}: {trained / 1e6:.2f}M weights are trained",
            highlight=False,
        )
    embeddings = f"{count['input_embedding'] / 1e6:.2f}"
    several = f" on {recipe.processes} processes" + (", each with its share of the weights" if recipe.shard else "")
    console.print(
        f"{config.task['model']} on {config.task['name']}: {count['total'] / 1e6:.2f}M parameters"
        + (f" ({embeddings}M of them input embeddings)" if float(embeddings) else "")
        + f", {len(task.train):,} training and {len(task.validation):,} held-out sequences, "
        + (f"{recipe.steps:,} steps" if minutes is None else f"{minutes:g} minutes of steps")
        + f" of {recipe.sequences} sequences"
        + (several if recipe.processes > 1 else "")
    )
