"""How fast a training step is in float32 and in bfloat16, compiled or not, by the width of the network.

A step is all of it: states, alignment, forward and backward, Muon. Half precision gains where the CPU has instructions
for products of bfloat16 matrices: AMX or AVX512-BF16. Everything is measured in turns within one run, and medians are
compared.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import torch

from flexmdm import EarlySchedule, FlexMDMConfig, FlexMDMInterpolant, FlexMDMModel, PolynomialSchedule, Ragged, Template
from flexmdm.training.collation import Collator
from flexmdm.training.optimizers import make_optimizer
from flexmdm.training.recipe import Recipe

EXAMPLES = """examples:
  python benchmarks/precision.py                       the committed results, a few minutes
  python benchmarks/precision.py --widths 384          another width
"""
RESULTS = Path(__file__).parent / "results"
WAYS = {"float32": ("float32", False), "bfloat16": ("bfloat16", False), "bfloat16, compiled": ("bfloat16", True)}
TOKENS, SEQUENCES, WARM = 4096, 512, 3


class Examples:
    """Sequences with the lengths of short sentences, nothing given."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        lengths = (torch.randn(20_000, generator=generator) * 0.4 + 2.2).exp().round().long().clamp(3, 60)
        self.x1 = Ragged(torch.randint(TOKENS, (int(lengths.sum()),), generator=generator), lengths)

    def __len__(self) -> int:
        return len(self.x1)

    def take(self, index: torch.Tensor, numbers: torch.Tensor) -> tuple[Ragged, Template]:
        """Return the sequences ``index``."""
        return self.x1[index], Template.free(self.x1[index])


class Way:
    """A training in one precision, which takes a step at a time."""

    def __init__(self, width: int, dtype: str, compiled: bool, examples: Examples) -> None:
        self.interpolant = FlexMDMInterpolant(EarlySchedule(4.0), PolynomialSchedule(3.0))
        config = FlexMDMConfig(
            vocab_size=TOKENS, hidden_size=width, num_layers=6, num_heads=max(width // 32, 2), condition_size=64,
            dropout=0.0, activation="squared_relu", interpolant=self.interpolant.to_dict(),
        )  # fmt: skip
        torch.manual_seed(0)
        self.model = FlexMDMModel(config).train()
        self.optimizer = make_optimizer(self.model, Recipe(optimizer="muon", dtype=dtype))
        self.collate = Collator(examples, self.interpolant, config.mask_id)
        self.half, self.taken = dtype == "bfloat16", 0
        if compiled:
            self.model.network.compile_blocks()

    def step(self) -> float:
        """Take a step; return its seconds."""
        began = time.perf_counter()
        batch = self.collate(range(self.taken * SEQUENCES, (self.taken + 1) * SEQUENCES))
        with torch.autocast("cpu", torch.bfloat16) if self.half else nullcontext():
            output = self.model(**batch.inputs(self.model.config.mask_id))
            loss = batch.loss(output.logits, output.insertions, self.interpolant).total.mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.taken += 1
        return time.perf_counter() - began


def measure(width: int, repeats: int, examples: Examples) -> dict[str, Any]:
    """Return the median seconds of a step of each way."""
    ways = {name: Way(width, *how, examples) for name, how in WAYS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(WARM + repeats):
        for name, way in ways.items():
            taken = way.step()
            if repeat >= WARM:
                seconds[name].append(taken)
    weights = sum(p.numel() for p in ways["float32"].model.parameters())
    return {"width": width, "weights": weights, "seconds": {name: median(all_of) for name, all_of in seconds.items()}}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the results as a page."""
    amx = torch.cpu.get_capabilities().get("amx_bf16", False)
    lines = [
        " ".join((__doc__ or "").split()),
        f"Batches of {SEQUENCES} short sequences, 6 layers, one thread on {platform.machine()} "
        f"{'with' if amx else 'without'} AMX, torch {torch.__version__}. Made by `python benchmarks/precision.py`.",
        "",
        f"| width | weights | {' | '.join(f'{name}, seconds' for name in WAYS)} | ratio | ratio, compiled |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: row["width"]):
        full, half, compiled = (row["seconds"][name] for name in WAYS)
        lines.append(
            f"| {row['width']} | {row['weights'] / 1e6:.1f}M | {full:.2f} | {half:.2f} | {compiled:.2f} | "
            f"{full / half:.2f} | {full / compiled:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write benchmarks/results/precision.{json,md}."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--widths", nargs="+", type=int, default=[64, 128, 256, 512])
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    examples = Examples()
    rows = [measure(width, arguments.repeats, examples) for width in arguments.widths]
    page = table(rows)
    print(page)
    (RESULTS / "precision.json").write_text(json.dumps(rows, indent=1) + "\n")
    (RESULTS / "precision.md").write_text(page)


if __name__ == "__main__":
    main()
