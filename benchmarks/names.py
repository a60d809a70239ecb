"""A small file of your own: a FlexMDM on first names against letter bigrams with add-one smoothing, and its lengths.

It needs a run on a file with a name per line, here the 32,033 of Karpathy's makemore:

  flexmdm train path/to/names.txt --out runs/names
  python benchmarks/names.py runs/names
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from flexmdm import TextPipeline
from flexmdm.data import TokenStore
from flexmdm.evaluation.distances import Estimate
from flexmdm.evaluation.lengths import length_fidelity
from flexmdm.sequences import Ragged
from flexmdm.sweeps.text import held_out_bits
from flexmdm.tasks.pipeline import progress_bar
from flexmdm.training.progress import training_of

RESULTS = Path(__file__).parent / "results"


def steps_of(sequences: Ragged, size: int) -> tuple[Tensor, Tensor]:
    """Each letter with the one before it; the edge of a name, ``size``, stands before its first and behind its last."""
    padded = torch.full((len(sequences), int(sequences.lengths.max()) + 2), size)
    padded[sequences.rows, sequences.columns + 1] = sequences.values
    there = torch.arange(padded.shape[1] - 1) <= sequences.lengths[:, None]
    return padded[:, :-1][there], padded[:, 1:][there]


def bigram_bits(train: TokenStore, held_out: Ragged, size: int) -> Tensor:
    """``[B]``: bits of each held-out sequence by the bigrams of the training data, each counted once more."""
    before, after = steps_of(train.take(torch.arange(len(train))), size)
    counts = torch.ones(size + 1, size + 1, dtype=torch.float64).index_put_(
        (before, after), torch.ones(len(before), dtype=torch.float64), accumulate=True
    )
    cost = -(counts / counts.sum(1, keepdim=True)).log2()
    before, after = steps_of(held_out, size)
    rows = torch.arange(len(held_out)).repeat_interleave(held_out.lengths + 1)
    return torch.zeros(len(held_out), dtype=torch.float64).index_add_(0, rows, cost[before, after])


def main() -> None:
    """Measure, print, and write benchmarks/results/names.{json,md}."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--num", type=int, default=1000, help="samples, for the lengths")
    parser.add_argument("--likelihoods", type=int, default=400, help="held-out names, for the bits")
    arguments = parser.parse_args()
    pipeline = TextPipeline.from_pretrained(arguments.run)
    examples = pipeline.task.validation
    held_out = examples.store.take(examples.some(arguments.likelihoods))  # as held_out_bits takes them
    counted = bigram_bits(pipeline.task.train.store, held_out, pipeline.task.text.size)
    ours = held_out_bits(arguments.run.name, pipeline, arguments.likelihoods)
    with progress_bar(arguments.num, "sampling") as bar:
        answers = pipeline.fill([["", ""]], arguments.num, callback=bar)
    lengths = length_fidelity([len(answer.tokens) for answer in answers], examples.store.lengths)
    floor = Estimate(float(counted.mean()), float(counted.std()) / math.sqrt(len(counted)))
    content: dict[str, Any] = {
        "command": f"python benchmarks/names.py {arguments.run} --num {arguments.num} --likelihoods {len(counted)}",
        "trained": training_of(arguments.run),
        "bits_per_name": {"flexmdm": asdict(ours.bits_per_sequence), "bigrams": asdict(floor)},
        "length": asdict(lengths), "num": arguments.num, "held_out": len(counted),
        "samples": [answer.text for answer in answers[:20]],
    }  # fmt: skip
    text = (
        f"Held-out names ({len(counted)}), bits per name: FlexMDM {ours.bits_per_sequence.value:.2f} ± "
        f"{ours.bits_per_sequence.standard_error:.2f}, letter bigrams with add-one smoothing {floor.value:.2f} ± "
        f"{floor.standard_error:.2f}. Lengths of {arguments.num} samples: W1 {lengths.w1:.2f} ({lengths.w1_low:.2f} - "
        f"{lengths.w1_high:.2f}), of as many exact ones {lengths.floor:.2f}. Trained for "
        f"{content['trained']['steps']:,} steps. Made by `{content['command']}`.\n"
    )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "names.json").write_text(json.dumps(content, indent=1) + "\n")
    (RESULTS / "names.md").write_text(text)
    Console().print(text, markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
