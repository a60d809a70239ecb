"""What it takes to use a model: memory, and time per token here and on one GPU, before anything is loaded."""

from __future__ import annotations

import json as json_module
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import torch
from rich.console import Console

from flexmdm.backbones.folders import foreign, has_extras, stored_config
from flexmdm.backbones.model import FlexMDMConfig, FlexMDMModel
from flexmdm.generation.defaults import STEPS
from flexmdm.tasks.registry import PRETRAINED
from flexmdm.training.models import quiet_transformers

_GIGABYTE = 1e9
_MASKED = 0.4  # share of an answer that is masked, at most: 1/e with linear schedules
_LONGEST = 1024  # tokens of a sequence of a model that was trained on no task
_PROMPT = 1 / 3  # share of a sequence that is given
_PROBE = 0.5  # seconds of products of matrices, to say what a machine can do
_PER_LOGIT = 4 + 4 + 8  # beside itself: in single precision, its logarithm, and what a token is drawn from


@dataclass(frozen=True)
class Machine:
    """What computes.

    Attributes:
        flops: per second, in products of matrices.
        bandwidth: bytes per second from its memory.
        per_layer: seconds that a layer takes, however small it is.
    """

    name: str
    flops: float
    bandwidth: float = float("inf")
    per_layer: float = 0.0

    def seconds(self, flops: float, read: float, layers: int) -> float:
        """Return the time of an evaluation with so many FLOP that reads so many bytes of weights."""
        return max(flops / self.flops, read / self.bandwidth) + layers * self.per_layer


# 40% of the 312 TFLOP/s of its data sheet, all of its bandwidth, and some 20 kernels per layer to start.
GPU = Machine("one A100 with 80 GB", 0.4 * 312e12, 2.0e12, 1e-4)


@dataclass(frozen=True)
class Estimate:
    """What one answer takes.

    Attributes:
        weights: their number; in how many bytes each.
        entries: of the sequence, prompt and answer; ``answer`` of them are found.
        memory_gb: of the weights, of what is computed from them, and of the logits.
        free_gb: where it would be loaded.
        evaluations: of the network.
        flops: of one evaluation.
        seconds: of one evaluation by machine; ``per_token`` of one token of the answer.
    """

    name: str
    weights: int
    bytes_per_weight: int
    entries: int
    answer: int
    memory_gb: dict[str, float]
    free_gb: float
    evaluations: int
    flops: float
    seconds: dict[str, float]
    per_token: dict[str, float]


def estimate(name: str, steps: int | None = None, device: str | None = None) -> Estimate:
    """Estimate what an answer takes of a model in a folder, or by its name on the Hub or in the package.

    The sequence is as long as the model has learned, the first third of it given. The answer takes one evaluation for
    each of the ``steps``, each as large as the last: no sampler takes many more.
    """
    quiet_transformers()
    model, dtype = _shape(str(PRETRAINED / name) if (PRETRAINED / name).is_dir() and not Path(name).exists() else name)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    config, network = model.config, model.network
    entries = int((config.task or {}).get("max_length") or config.most_entries or _LONGEST)
    answer, steps = entries - int(_PROMPT * entries), steps or STEPS
    count = model.count_parameters()["total"]
    in_blocks = sum(p.numel() for p in network.blocks.parameters())
    inner = getattr(getattr(config, "encoder_config", None), "intermediate_size", 4 * config.hidden_size)
    masked, hidden, size = int(_MASKED * answer), config.hidden_size, dtype.itemsize
    attention = 4 * entries * entries * hidden * config.num_layers
    flops = 2.0 * (in_blocks * entries + masked * hidden * config.vocab_size) + attention
    memory = {
        "weights": count * size,
        "activations": entries * (12 * hidden + 3 * inner) * size,
        "logits": masked * config.vocab_size * (size + _PER_LOGIT),
    }
    here = _measured(entries, hidden, inner, dtype, device)
    seconds = {one.name: one.seconds(flops, count * size, config.num_layers) for one in (here, GPU)}
    return Estimate(
        name=name,
        weights=count,
        bytes_per_weight=size,
        entries=entries,
        answer=answer,
        memory_gb={part: value / _GIGABYTE for part, value in memory.items()},
        free_gb=_free(device) / _GIGABYTE,
        evaluations=steps,
        flops=flops,
        seconds=seconds,
        per_token={where: steps * each / answer for where, each in seconds.items()},
    )


def print_estimate(name: str, steps: int | None = None, json: Path | None = None, device: str | None = None) -> None:
    """Print what an answer takes, and perhaps write it to a file."""
    one = estimate(name, steps, device)
    console, memory = Console(highlight=False, soft_wrap=True), sum(one.memory_gb.values())
    parts = ", ".join(f"{part} {value:.2f}" for part, value in one.memory_gb.items())
    fits = "enough" if memory < one.free_gb else "not enough: take a machine with more"
    console.print(f"{name}: {one.weights / 1e6:,.1f}M weights of {one.bytes_per_weight} bytes")
    console.print(
        f"memory of an answer at a time: {memory:.2f} GB ({parts}); {one.free_gb:.1f} GB are free here, {fits}"
    )
    console.print(
        f"a sequence of {one.entries:,} tokens, {one.answer:,} of them found in {one.evaluations:,} steps (--steps), "
        f"takes {one.flops / 1e12:.3g} TFLOP in each:"
    )
    for where, each in one.seconds.items():
        console.print(f"  {where}: about {each:.3g} s per step, {one.per_token[where]:.3g} s per token")
    if json is not None:
        json.write_text(json_module.dumps(asdict(one), indent=1) + "\n")


def _shape(name: str) -> tuple[FlexMDMModel, torch.dtype]:
    """Return a model without weights, and the type that they are loaded in."""
    from flexmdm.backbones import published
    from flexmdm.backbones.retrofit import RetrofitConfig, RetrofitModel

    by_name = name in published.SHAPES  # which needs no Hub
    stored = published.SHAPES[name] if by_name else stored_config(name)
    kept = getattr(torch, str(stored.get("dtype") or stored.get("torch_dtype") or "float32"))
    if by_name or has_extras(name):
        return RetrofitModel.without_weights(published.config_of(stored)), kept
    if stored.get("model_type") == RetrofitConfig.model_type:
        return RetrofitModel.without_weights(RetrofitConfig.from_dict(stored)), kept
    if stored.get("model_type") == FlexMDMConfig.model_type:
        with torch.device("meta"):
            return FlexMDMModel(FlexMDMConfig.from_dict(stored)), torch.float32
    raise foreign(name, stored)


def _measured(rows: int, hidden: int, inner: int, dtype: torch.dtype, device: str) -> Machine:
    """Measure how fast this machine multiplies matrices as large as those of a network."""
    a, b = (torch.ones(shape, dtype=dtype, device=device) for shape in ((rows, hidden), (hidden, inner)))
    (a @ b).sum().item()  # the first takes longer
    start, times = time.perf_counter(), 0
    while not times or time.perf_counter() - start < _PROBE:
        (a @ b)[0, 0].item()  # waits for a GPU
        times += 1
    elapsed = time.perf_counter() - start
    return Machine(f"this machine's {torch.device(device).type.upper()}", 2.0 * rows * hidden * inner * times / elapsed)


def _free(device: str) -> int:
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(torch.device(device))[0]
    return psutil.virtual_memory().available
