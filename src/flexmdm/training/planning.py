"""What training a retrofitted model takes, known from its shape alone: weights by part, memory per GPU."""

from __future__ import annotations

from typing import Any

import torch

from flexmdm.backbones.retrofit import RetrofitConfig, RetrofitModel

_FROZEN = {"float32": 4.0, "bfloat16": 2.0, "4-bit": 0.55}  # bytes of a frozen weight
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


def memory_per_gpu(
    model: RetrofitModel, gpus: int, sequences: int, mean_length: int, precision: str = "bfloat16"
) -> dict[str, float]:
    """Gigabytes on each of ``gpus`` GPUs under FSDP with gradient checkpointing.

    Args:
        model: its weights are only counted.
        gpus: how many.
        sequences: of one pass on each GPU.
        mean_length: entries of a state, on average; half of the tokens of a sequence.
        precision: of the frozen weights.
    """
    network, config = model.network, model.config
    frozen, rows = _FROZEN[precision], sequences * mean_length
    outside = _bytes(network, frozen) - sum(_bytes(block, frozen) for block in network.blocks)
    held = sum((_TRAINED if p.requires_grad else frozen) * p.numel() for p in network.parameters()) / gpus
    gathered = 0 if gpus == 1 else outside + 2 * _bytes(network.blocks[0], frozen)  # one at work, the next on its way
    kept = rows * config.hidden_size * (config.num_layers + 2 * config.groups)  # what enters blocks, and modulations
    inside = rows * (12 * config.hidden_size + 3 * config.encoder_config.intermediate_size)  # of one block at a time
    activations = _ACTIVATION * (kept + inside) + rows // 2 * config.vocab_size * _PER_LOGIT
    parts = {"weights, gradients and moments": held, "gathered weights": gathered, "activations": activations}
    sizes = {name: round(value / _GIGABYTE, 2) for name, value in parts.items()}
    loading = _bytes(network, frozen) / _GIGABYTE  # each GPU holds all weights before they are cut up
    return {**sizes, "total": round(sum(parts.values()) / _GIGABYTE, 2), "while loading": round(loading, 2)}


def _bytes(module: torch.nn.Module, frozen: float) -> float:
    """Of the weights as a forward pass needs them."""
    return sum(p.numel() * (4 if p.requires_grad else frozen) for p in module.parameters())
