"""What training a retrofitted model takes, known from its shape alone: weights by part, memory per GPU."""

from __future__ import annotations

from typing import Any

import torch

from flexmdm.backbones.retrofit import RetrofitConfig, RetrofitModel

_FROZEN = 2  # bytes of a frozen weight, bfloat16
_TRAINED = 4 + 4 + 8 + 4  # of a trained one: itself, its gradient, two moments, its average
_ACTIVATION = 2  # bfloat16
_PER_LOGIT = 2 + 4 + 4  # itself, its logarithm and the gradient of that, in single precision
_GIGABYTE = 1e9


def shape_only(config: RetrofitConfig) -> RetrofitModel:
    """The model without any memory behind its weights."""
    with torch.device("meta"):
        return RetrofitModel(config)


def count_weights(model: RetrofitModel) -> dict[str, Any]:
    """All weights, and the trained ones by part."""
    trained, total = model.count_trained(), model.count_parameters()["total"]
    added = sum(count for part, count in trained.items() if part != "pretrained")
    return {
        "total": total,
        "pretrained": total - added,
        "trained": trained,
        "trained_total": sum(trained.values()),
    }


def memory_per_gpu(model: RetrofitModel, gpus: int, batch_size: int, mean_length: int) -> dict[str, float]:
    """Gigabytes on each of ``gpus`` GPUs under FSDP with gradient checkpointing.

    Args:
        model: its weights are only counted.
        gpus: how many.
        batch_size: sequences of a step, over all GPUs.
        mean_length: entries of a state, on average; half of the tokens of a sequence.
    """
    network = model.network
    rows = max(batch_size // gpus, 1) * mean_length
    per_block = _bytes(network.blocks[0])
    outside = _bytes(network) - sum(map(_bytes, network.blocks))
    shared = sum(_FROZEN * p.numel() if not p.requires_grad else _TRAINED * p.numel() for p in network.parameters())
    gathered = 0 if gpus == 1 else outside + 2 * per_block  # FSDP fetches the next block while one is at work
    hidden, body = model.config.hidden_size, model.config.encoder_config
    kept = rows * hidden * (model.config.num_layers + 2 * model.config.groups)  # what enters blocks, and modulations
    inside = rows * (12 * hidden + 3 * body.intermediate_size)  # one block is computed again at a time
    logits = rows // 2 * model.config.vocab_size * _PER_LOGIT
    parts = {
        "weights, gradients and moments": shared / gpus,
        "gathered weights": gathered,
        "activations": _ACTIVATION * (kept + inside) + logits,
    }
    sizes = {name: round(value / _GIGABYTE, 2) for name, value in parts.items()}
    return {**sizes, "total": round(sum(parts.values()) / _GIGABYTE, 2)}


def _bytes(module: torch.nn.Module) -> int:
    """Of the weights as a forward pass needs them."""
    return sum(p.numel() * (4 if p.requires_grad else _FROZEN) for p in module.parameters())
