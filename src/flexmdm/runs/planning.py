"""Plan a training: its steps within a time, and of a retrofitted model weights and memory per GPU."""

from __future__ import annotations

import math
import resource
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.markup import escape

from flexmdm.evaluation.trials import threads
from flexmdm.runs.building import build, describe, settle
from flexmdm.runs.config import RunConfig
from flexmdm.runs.probing import choose_threads, seconds_per_step
from flexmdm.training.collation import Collator
from flexmdm.training.learning_rate import LearningRate
from flexmdm.training.models import quiet_transformers
from flexmdm.training.recipe import Recipe
from flexmdm.training.timing import CHECKPOINTS, EVALUATIONS
from flexmdm.training.trainer import runs_on_cpu

if TYPE_CHECKING:  # with all of peft
    from flexmdm.backbones.retrofit import RetrofitModel

_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes that the system counts memory in
_PROBE = 2.0  # seconds of steps, to say how long training takes
_STEPPING = 0.95  # share of the time of a training that its steps take; evaluations and checkpoints take the rest

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
    number = torch.get_num_threads()
    if where == "cpu":
        number = choose_threads(config, task, model, console, minutes=minutes)
    with threads(number):
        each = seconds_per_step(config, task, model, _PROBE, where)
    if minutes is not None:
        steps = max(int(_STEPPING * 60 * minutes / each), 1)
        config = replace(config, recipe=replace(config.recipe, steps=steps))
    describe(config, task, model, console)
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


def planned(recipe: Recipe, rate: LearningRate) -> Recipe:
    """Return a recipe with the steps and the warm-up that the clock has led to, and intervals to match.

    Its learning rate goes on from that of ``rate``.
    """
    steps = max(math.floor(rate.steps), 1)
    return replace(
        recipe,
        steps=steps,
        warmup=math.ceil(rate.warmup),
        eval_every=min(recipe.eval_every, math.ceil(steps / EVALUATIONS)),
        save_every=min(recipe.save_every, max(steps // CHECKPOINTS, 1)),
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
