"""Plan a training: steps within a time, seconds per step, and of a retrofitted model weights and memory per GPU."""

from __future__ import annotations

import math
import resource
import sys
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.markup import escape

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.runs.building import build, describe, settle
from flexmdm.runs.config import RunConfig
from flexmdm.tasks.task import Task
from flexmdm.training.collation import Collator
from flexmdm.training.models import quiet_transformers
from flexmdm.training.optimizers import make_optimizer
from flexmdm.training.recipe import Recipe
from flexmdm.training.trainer import runs_on_cpu

if TYPE_CHECKING:  # with all of peft
    from flexmdm.backbones.retrofit import RetrofitModel

_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes that the system counts memory in
_PROBE = 2.0  # seconds of steps, to say how long training takes

_FROZEN = {"float32": 4.0, "bfloat16": 2.0, "4-bit": 0.55}  # bytes of a frozen weight in a block
_TABLES = {**_FROZEN, "4-bit": 2.0}  # and of one in the embedding and the head, which are never quantised
_TRAINED = 4 + 4 + 8 + 4  # of a trained one: itself, its gradient, two moments, its average
_ACTIVATION = 2  # bfloat16
_MASKED = 0.4  # share of a sequence that is masked, at most: 1/e with linear schedules
_PER_LOGIT = 2 + 4 + 4  # itself, its logarithm and the gradient of that, in single precision
_GIGABYTE = 1e9
_GPUS = (1, 8, 16)  # that a retrofit is planned for


def dry_run(config: RunConfig, device: str | None = None, minutes: float | None = None) -> None:
    """Print what training would do: parameters, steps (as many as fit in ``minutes``), time, and the first states."""
    console = Console()
    quiet_transformers()
    config, task = settle(config, None, console)
    task, model = build(config, task)
    where = "cpu" if runs_on_cpu(device) else device or "cuda"
    if minutes is not None:
        steps = steps_within(60 * minutes, config, task, model, where)
        config = replace(config, recipe=with_steps(config.recipe, steps))
    describe(config, task, model, console)
    each = seconds_per_step(config, task, model, _PROBE, where)
    hours = each * config.recipe.steps / 3600
    console.print(
        f"about {each:.2f} s per step on this machine's {where.upper()}: "
        + (f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes")
        + f" for {config.recipe.steps:,} steps; "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT / 2**30:.1f} GB of memory"
    )
    collate = Collator(task.train, model.interpolant, model.config.mask_id, seed=config.recipe.seed)
    batch = collate(list(range(config.recipe.batch_size)))
    model.to("cpu")
    console.print(f"first batch: {len(batch)} states with {batch.num_tokens} entries; three of them (· is a mask):")
    for tokens, alpha in list(zip(batch.sample.canvas.tokens.tolist(), batch.sample.alpha.tolist(), strict=True))[:3]:
        shown = task.show([None if token == model.config.mask_id else token for token in tokens])
        console.print(f"  alpha {alpha:.2f}: {escape(shown)}", highlight=False)


def steps_within(
    seconds: float, config: RunConfig, task: Task, model: FlexMDMModel, device: torch.device | str = "cpu"
) -> int:
    """Return how many steps fit in a time, with a little left for what is between them."""
    each = seconds_per_step(config, task, model, min(0.03 * seconds, 20.0), device)
    return max(int(0.95 * seconds / each), 1)


def seconds_per_step(
    config: RunConfig, task: Task, model: FlexMDMModel, probe: float, device: torch.device | str = "cpu"
) -> float:
    """Measure the seconds of a step, by a few steps (for about ``probe`` seconds) that are taken back."""
    recipe = config.recipe
    before = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
    model.to(device).train()
    if recipe.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    optimizer = make_optimizer(model, recipe)
    collate = Collator(
        task.train, model.interpolant, model.config.mask_id, recipe.targets == "marginalised", recipe.seed
    )
    durations = []
    begin = time.perf_counter()
    while len(durations) < 3 or (time.perf_counter() - begin < probe and len(durations) < 50):
        start = time.perf_counter()
        first = len(durations) * recipe.batch_size
        batch = collate(list(range(first, first + recipe.batch_size))).to(device)
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=recipe.dtype == "bfloat16"):
            output = model(**batch.inputs(model.config.mask_id))
            loss = batch.loss(output.logits, output.insertions, model.interpolant).total.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()  # waits for a GPU
        durations.append(time.perf_counter() - start)
    with torch.no_grad():
        for name, value in before.items():
            model.get_parameter(name).copy_(value)
    return sorted(durations)[len(durations) // 2] * recipe.accumulation


def with_steps(recipe: Recipe, steps: int) -> Recipe:
    """Return a recipe of so many steps, with warm-up, evaluations and checkpoints to match."""
    return replace(
        recipe,
        steps=steps,
        warmup=min(recipe.warmup, steps // 10),
        eval_every=min(recipe.eval_every, math.ceil(steps / 8)),
        save_every=min(recipe.save_every, max(steps // 2, 1)),
    )


def plan_of_shape(run: RunConfig, stored: dict[str, Any]) -> dict[str, Any]:
    """Count the weights of a retrofitted base, the trained ones by part, and its memory on some numbers of GPUs.

    Args:
        run: what is to be trained.
        stored: the config.json of its base; no weights are read, and no memory is taken for them.
    """
    from flexmdm.backbones import bases
    from flexmdm.backbones.retrofit import RetrofitConfig, RetrofitModel

    quiet_transformers()
    network, encoder = run.network, bases.encoder_config_of(stored)
    with torch.device("meta"):
        model = RetrofitModel(
            RetrofitConfig(
                encoder=bases.as_stored(encoder),
                anatomy=asdict(bases.anatomy_of(stored)),
                groups=min(network.groups, encoder.num_hidden_layers),
                lora=network.lora,
                base=network.base,
                mask_id=stored.get("mask_token_id", 0) if network.mask_id is None else network.mask_id,
            )
        )
    trained, total = model.count_trained(), model.count_parameters()["total"]
    added = sum(count for part, count in trained.items() if part != "pretrained")
    counts = {"total": total, "pretrained": total - added, "trained": trained, "trained_total": sum(trained.values())}
    states = run.recipe.batch_size, run.task.get("max_length", 1024)
    memory = {str(gpus): _memory_per_gpu(model, gpus, *states, network.base_dtype) for gpus in _GPUS}
    return {"base": network.base, "weights": counts, "memory_gb": memory}


def _memory_per_gpu(model: RetrofitModel, gpus: int, sequences: int, length: int, precision: str) -> dict[str, float]:
    """Return the gigabytes that each of ``gpus`` GPUs needs at most, under FSDP with gradient checkpointing.

    A pass has ``sequences`` states of at most ``length`` entries on each; ``precision`` is that of the frozen weights.
    """
    network, config = model.network, model.config
    rows = sequences * length
    trained = _count(network, True)
    blocks = [_FROZEN[precision] * _count(block, False) for block in network.blocks]
    tables = _TABLES[precision] * sum(
        _count(part, False) for name, part in network.named_children() if name != "blocks"
    )
    held = (_TRAINED * trained + sum(blocks) + tables) / gpus
    outside = tables + 4 * (trained - sum(_count(block, True) for block in network.blocks))
    gathered = (
        0 if gpus == 1 else outside + 2 * (blocks[0] + 4 * _count(network.blocks[0], True))
    )  # one works, one comes
    kept = rows * config.hidden_size * (config.num_layers + 2 * config.groups)  # what enters blocks, and modulations
    inside = rows * (12 * config.hidden_size + 3 * config.encoder_config.intermediate_size)  # of one block at a time
    activations = _ACTIVATION * (kept + inside) + int(_MASKED * rows) * config.vocab_size * _PER_LOGIT
    parts = {"weights, gradients and moments": held, "gathered weights": gathered, "activations": activations}
    sizes = {name: round(value / _GIGABYTE, 2) for name, value in parts.items()}
    loading = (sum(blocks) + tables + 8 * trained) / _GIGABYTE  # all of them and their average, before they are cut up
    return {**sizes, "total": round(sum(parts.values()) / _GIGABYTE, 2), "while loading": round(loading, 2)}


def _count(module: torch.nn.Module, trained: bool) -> int:
    """Return how many weights of a module are trained, or are not."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad == trained)
