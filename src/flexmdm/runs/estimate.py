"""Estimate what an answer of a model takes, memory and time, here and on a GPU, before anything is loaded."""

from __future__ import annotations

import json as json_module
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console

from flexmdm.backbones.folders import foreign, has_extras, stored_config
from flexmdm.backbones.model import FlexMDMConfig, FlexMDMModel
from flexmdm.generation.defaults import STEPS
from flexmdm.tasks.registry import PRETRAINED
from flexmdm.training.models import quiet_transformers

_GIGABYTE = 1e9
_LONGEST = 1024  # tokens of a sequence of a model that was trained on no task
_PROMPT = 1 / 3  # share of a sequence that is given
_MASKED = 0.4  # share of an answer that is masked, at most: 1/e with linear schedules
_PER_LOGIT = 4 + 4 + 8  # bytes beside itself: in single precision, its logarithm, and what a token is drawn from
_PROBE, _ROWS = 0.5, 256  # seconds and rows of products of matrices, to measure what a machine can do
_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "4-bit": 0.55}  # of a weight

# A common GPU: 40% of the 312 TFLOP/s of its data sheet, its memory and bandwidth, some 20 kernels per layer to start.
_GPU, _GPU_FLOPS, _GPU_GIGABYTES, _GPU_BANDWIDTH, _GPU_PER_LAYER = "one A100", 0.4 * 312e12, 80.0, 2.0e12, 1e-4


@dataclass(frozen=True)
class Cost:
    """The cost of an answer on a machine: seconds of an evaluation of the network, and of a token of the answer."""

    seconds_per_evaluation: float
    seconds_per_token: float
    free_gb: float  # memory that is there


@dataclass(frozen=True)
class Estimate:
    """The size of a model and what one of its answers takes.

    Attributes:
        weights, precision: their number, and what they are loaded in.
        entries, answer: tokens of the sequence, and those of them that are found.
        evaluations, flops: evaluations of the network, and what each of them computes.
        memory_gb: of the weights, of what is computed from them, and of the logits.
        machines: the `Cost` here and on a GPU.
    """

    name: str
    weights: int
    precision: str
    entries: int
    answer: int
    evaluations: int
    flops: float
    memory_gb: dict[str, float]
    machines: dict[str, Cost]


def estimate(name: str, steps: int | None = None, device: str | None = None) -> Estimate:
    """Estimate what an answer takes of a model in a folder, or by its name on the Hub or in the package.

    The sequence is as long as the model has learned, the first third of it given. The answer takes one evaluation of
    the network for each of the ``steps``, all as large as the last.
    """
    quiet_transformers()
    model, precision = _shape(name)
    config, network = model.config, model.network
    entries = int((config.task or {}).get("max_length") or config.most_entries or _LONGEST)
    answer, evaluations = entries - int(_PROMPT * entries), steps or STEPS
    hidden, layers = config.hidden_size, config.num_layers
    inner = getattr(getattr(config, "encoder_config", None), "intermediate_size", 4 * hidden)
    logits = int(_MASKED * answer) * config.vocab_size
    count = model.count_parameters()["total"]
    in_blocks = sum(p.numel() for p in network.blocks.parameters()) * layers // len(network.blocks)
    flops = 2.0 * (in_blocks * entries + logits * hidden) + 4.0 * layers * hidden * entries**2
    each = _BYTES[precision]
    memory = {
        "weights": count * each,
        "activations": entries * (12 * hidden + 3 * inner) * max(each, 2),
        "logits": logits * (max(each, 2) + _PER_LOGIT),
    }
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    here = flops / _measured(min(entries, _ROWS), hidden, inner, precision, device)
    there = max(flops / _GPU_FLOPS, memory["weights"] / _GPU_BANDWIDTH) + layers * _GPU_PER_LAYER
    free = _free_memory(device)
    return Estimate(
        name=name,
        weights=count,
        precision=precision,
        entries=entries,
        answer=answer,
        evaluations=evaluations,
        flops=flops,
        memory_gb={part: value / _GIGABYTE for part, value in memory.items()},
        machines={
            f"this machine's {torch.device(device).type.upper()}": Cost(here, evaluations * here / answer, free),
            _GPU: Cost(there, evaluations * there / answer, _GPU_GIGABYTES),
        },
    )


def dry_run(name: str, steps: int | None = None, json: Path | None = None, device: str | None = None) -> None:
    """Print what an answer takes, and perhaps write it to a file."""
    found = estimate(name, steps, device)
    console, memory = Console(highlight=False, soft_wrap=True), sum(found.memory_gb.values())
    parts = ", ".join(f"{part} {value:.3g}" for part, value in found.memory_gb.items())
    console.print(f"{name}: {found.weights / 1e6:,.1f}M weights in {found.precision}", markup=False)
    console.print(f"memory of one answer at a time, an estimate: {memory:.3g} GB ({parts})")
    console.print(
        f"{found.answer:,} tokens in a sequence of {found.entries:,}: {found.evaluations:,} evaluations (--steps) of "
        f"{found.flops / 1e12:.3g} TFLOP"
    )
    for where, cost in found.machines.items():
        enough = "enough" if memory < cost.free_gb else "too little"
        console.print(
            f"  {where}: about {cost.seconds_per_evaluation:.2g} s per evaluation, {cost.seconds_per_token:.2g} s per "
            f"token; {cost.free_gb:.1f} GB of memory, {enough}"
        )
    if json is not None:
        json.write_text(json_module.dumps(asdict(found), indent=1) + "\n")


def _shape(name: str) -> tuple[FlexMDMModel, str]:
    """Return a model without weights, and the precision that they are loaded in."""
    from flexmdm.backbones import published
    from flexmdm.backbones.retrofit import RetrofitConfig, RetrofitModel

    known = published.SHAPES.get(name)  # for which no Hub is needed
    bundled = PRETRAINED / name
    stored = known or stored_config(bundled if bundled.is_dir() and not Path(name).exists() else name)
    precision = str(stored.get("dtype") or stored.get("torch_dtype") or "float32")
    if known or has_extras(name):
        return RetrofitModel.without_weights(published.config_of(stored)), precision
    if stored.get("model_type") == RetrofitConfig.model_type:
        config = RetrofitConfig.from_dict(stored)
        return RetrofitModel.without_weights(config), config.base_dtype or precision
    if stored.get("model_type") == FlexMDMConfig.model_type:
        with torch.device("meta"):
            return FlexMDMModel(FlexMDMConfig.from_dict(stored)), "float32"  # whatever they are stored in
    raise foreign(name, stored)


def _measured(rows: int, hidden: int, inner: int, precision: str, device: str) -> float:
    """Measure how many FLOP per second a device has in products of matrices as large as those of a network."""
    dtype = getattr(torch, precision, torch.bfloat16)
    a, b = (torch.ones(shape, dtype=dtype, device=device) for shape in ((rows, hidden), (hidden, inner)))
    (a @ b)[0, 0].item()  # the first takes longer
    start, times = time.perf_counter(), 0
    while not times or time.perf_counter() - start < _PROBE:
        (a @ b)[0, 0].item()  # waits for a GPU
        times += 1
    return 2.0 * rows * hidden * inner * times / (time.perf_counter() - start)


def _free_memory(device: str) -> float:
    """Return the gigabytes that are free on a device."""
    from flexmdm.backbones.bases import free_memory

    return free_memory({"": device} if torch.device(device).type == "cuda" else None) / _GIGABYTE
