"""What training a retrofitted model takes, known from its shape alone: weights by part, memory per GPU."""

from __future__ import annotations

from typing import Any

import torch

from flexmdm.backbones.retrofit import RetrofitConfig, RetrofitModel

_FROZEN = {"float32": 4.0, "bfloat16": 2.0, "4-bit": 0.55}  # bytes of a frozen weight in a block
_TABLES = {**_FROZEN, "4-bit": 2.0}  # and of one in the embedding and the head, which are never quantised
_TRAINED = 4 + 4 + 8 + 4  # of a trained one: itself, its gradient, two moments, its average
_ACTIVATION = 2  # bfloat16
_MASKED = 0.4  # share of a sequence that is masked, at most: 1/e with linear schedules
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
    model: RetrofitModel, gpus: int, sequences: int, length: int, precision: str = "bfloat16"
) -> dict[str, float]:
    """Gigabytes that each of ``gpus`` GPUs needs at most, under FSDP with gradient checkpointing.

    Args:
        model: its weights are only counted.
        gpus: how many.
        sequences: of one pass on each GPU.
        length: entries of a state at most.
        precision: of the frozen weights.
    """
    network, config = model.network, model.config
    rows = sequences * length
    trained = sum(p.numel() for p in network.parameters() if p.requires_grad)
    blocks = [_frozen_bytes(block, _FROZEN[precision]) for block in network.blocks]
    tables = sum(_frozen_bytes(part, _TABLES[precision]) for name, part in network.named_children() if name != "blocks")
    held = (_TRAINED * trained + sum(blocks) + tables) / gpus
    outside = tables + 4 * (trained - sum(_trained(block) for block in network.blocks))
    gathered = 0 if gpus == 1 else outside + 2 * (blocks[0] + 4 * _trained(network.blocks[0]))  # one works, one comes
    kept = rows * config.hidden_size * (config.num_layers + 2 * config.groups)  # what enters blocks, and modulations
    inside = rows * (12 * config.hidden_size + 3 * config.encoder_config.intermediate_size)  # of one block at a time
    activations = _ACTIVATION * (kept + inside) + int(_MASKED * rows) * config.vocab_size * _PER_LOGIT
    parts = {"weights, gradients and moments": held, "gathered weights": gathered, "activations": activations}
    sizes = {name: round(value / _GIGABYTE, 2) for name, value in parts.items()}
    loading = (sum(blocks) + tables + 8 * trained) / _GIGABYTE  # all of them and their average, before they are cut up
    return {**sizes, "total": round(sum(parts.values()) / _GIGABYTE, 2), "while loading": round(loading, 2)}


def _frozen_bytes(module: torch.nn.Module, each: float) -> float:
    return sum(each * p.numel() for p in module.parameters() if not p.requires_grad)


def _trained(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if p.requires_grad)
