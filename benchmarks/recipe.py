"""One change of the recipe at a time: bits per character of held-out lines, for equal steps.

A small FlexMDM learns the lines of a file by a common recipe, and again with one setting changed. Differences are
paired: the same texts are measured at the same times. Processor time says what a change costs beside what it brings.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from flexmdm import likelihood
from flexmdm.evaluation.intervals import mean
from flexmdm.runs.config import RunConfig
from flexmdm.runs.train import train
from flexmdm.tasks.registry import task_of

EXAMPLES = """examples:
  python benchmarks/recipe.py PATH/sentences.txt.gz                 the committed results, hours on one core; goes on
                                                                    where it stopped
  python benchmarks/recipe.py PATH/sentences.txt.gz --only "learning rate 8e-3" --seeds 0    one row, minutes
"""
RESULTS = Path(__file__).parent / "results"
TEXTS, TIMES = 500, 16
COMMON: dict[str, dict[str, Any]] = {
    "task": {
        "name": "text", "tokenizer": "bpe", "vocabulary": 2048, "max_length": 64, "long": "drop", "held_out": 0.02,
    },
    "network": {
        "hidden": 128, "layers": 4, "heads": 4, "condition": 64, "dropout": 0.0, "insertion_head": "count",
        "clock": "logarithms",
    },
    "recipe": {
        "batch_size": 256, "optimizer": "muon", "learning_rate": 4e-3, "clip": 50.0, "warmup": 50, "ema": 0.99,
        "schedule": "trapezoid", "keep": 1, "largest_weight": 1.0,
    },
    "interpolant": {
        "insertion": {"name": "early", "exponent": 4.0}, "unmasking": {"name": "polynomial", "exponent": 3.0},
    },
}  # fmt: skip
LINEAR = {"name": "linear"}
CHANGES: dict[str, dict[str, Any]] = {
    "": {},
    "learning rate 2e-3": {"recipe.learning_rate": 2e-3},
    "learning rate 8e-3": {"recipe.learning_rate": 8e-3},
    "AdamW, learning rate 1e-3": {"recipe.optimizer": "adamw", "recipe.learning_rate": 1e-3},
    "AdamW, learning rate 3e-3": {"recipe.optimizer": "adamw", "recipe.learning_rate": 3e-3},
    "gradients clipped at 1": {"recipe.clip": 1.0},
    "weights of states as in the likelihood": {"recipe.largest_weight": None},
    "weights of states up to 4": {"recipe.largest_weight": 4.0},
    "weights of states up to 0.2": {"recipe.largest_weight": 0.2},
    "pairs of neighbours": {"network.pairs": 16384},
    "squared ReLU": {"network.activation": "squared_relu"},
    "weight decay 0.1": {"recipe.weight_decay": 0.1},
    "dropout 0.1": {"network.dropout": 0.1},
    "cosine": {"recipe.schedule": "cosine"},
    "batches of 128, twice the steps": {"recipe.batch_size": 128, "recipe.steps": 2.0},
    "batches of 512, half the steps": {"recipe.batch_size": 512, "recipe.steps": 0.5},
    "one drawn alignment": {"recipe.targets": "sampled"},
    "linear schedules": {"interpolant.insertion": LINEAR, "interpolant.unmasking": LINEAR},
    "sine and t^3": {"interpolant.insertion": {"name": "sine"}},
    "head per gap": {"network.insertion_head": "gap"},
    "clock of waves": {"network.clock": "waves"},
    "no neighbour heads": {"network.neighbours": False},
    "8 layers, 96 wide": {"network.layers": 8, "network.hidden": 96},
    "2 layers, 192 wide": {"network.layers": 2, "network.hidden": 192},
    "vocabulary 1,024": {"task.vocabulary": 1024},
    "vocabulary 4,096": {"task.vocabulary": 4096},
}


def changed(data: Path, steps: int, seed: int, changes: Mapping[str, Any]) -> RunConfig:
    """Return the common configuration with some settings changed; a change of the steps is a factor."""
    tables = {section: dict(values) for section, values in COMMON.items()}
    tables["task"]["data"] = [str(data)]
    for name, value in changes.items():
        section, _, key = name.partition(".")
        tables[section][key] = value
    steps = round(steps * tables["recipe"].pop("steps", 1))
    tables["recipe"] |= {"steps": steps, "seed": seed, "eval_every": steps, "eval_size": 64, "save_every": steps}
    return RunConfig.from_dict({**tables, "task": task_of(tables["task"]).to_dict()})


def measure(config: RunConfig) -> dict[str, Any]:
    """Train once; return the seconds of processor time, the weights, and the bits and characters of each text."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        model = train(config, Path(folder) / "run", device="cpu", console=Console(quiet=True))
        seconds = time.process_time() - began
        task = task_of(RunConfig.read(Path(folder) / "run").task, Path(folder) / "run")
        x1, template, _, characters = task.validation.to_find(task.validation.some(TEXTS))
    found = likelihood(model.denoiser(), x1, num_times=TIMES, seed=1, template=template)
    return {
        "seconds": round(max(seconds, 0.1), 1),
        "weights": model.count_parameters()["total"],
        "bits": [round(value, 2) for value in (found.nats / math.log(2)).tolist()],
        "characters": characters.tolist(),
    }


def table(rows: list[dict[str, Any]], command: str) -> str:
    """Return the results as a page: each change against the common recipe of the same seed."""
    common = {row["seed"]: row for row in rows if not row["change"]}
    lines = [
        " ".join(__doc__.strip().split()),
        f"{TEXTS} texts at {TIMES} times each. Made by `{command}`.",
        "",
        "| change | seed | weights | bits per character | difference, paired | processor time |",
        "|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (list(CHANGES).index(row["change"]), row["seed"])):
        bits, characters, base = np.array(row["bits"]), np.array(row["characters"]), common[row["seed"]]
        difference = mean((bits - np.array(base["bits"])) / characters.mean(), seed=0)
        shown = f"{difference.value:+.3f} ({difference.low:+.3f} to {difference.high:+.3f})" if row["change"] else ""
        lines.append(
            f"| {row['change'] or 'the common recipe'} | {row['seed']} | {row['weights'] / 1e6:.1f}M | "
            f"{bits.sum() / characters.sum():.3f} | {shown} | {row['seconds'] / base['seconds']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Train, and write benchmarks/results/recipe.{json,md} after each training."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="a file of text, one document per line")
    parser.add_argument("--only", nargs="+", choices=list(CHANGES)[1:], help="some of the changes")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--name", default="recipe", help="of the result files")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    file = RESULTS / f"{arguments.name}.json"
    stored = json.loads(file.read_text()) if file.exists() else {"steps": arguments.steps, "rows": []}
    if stored["steps"] != arguments.steps:
        parser.error(f"{file} has {stored['steps']} steps: say --steps {stored['steps']}, or another --name")
    rows = stored["rows"]
    done = {(row["change"], row["seed"]) for row in rows}
    for seed in arguments.seeds:
        for change in ["", *(arguments.only or list(CHANGES)[1:])]:
            if (change, seed) in done:
                continue
            found = measure(changed(arguments.data, arguments.steps, seed, CHANGES[change]))
            rows.append({"change": change, "seed": seed, **found})
            print(f"{change or 'the common recipe'}, seed {seed}: {found['seconds']} s", flush=True)
            file.write_text(json.dumps(stored) + "\n")
            command = f"python benchmarks/recipe.py PATH/{arguments.data.name} --steps {arguments.steps}"
            file.with_suffix(".md").write_text(table(rows, command))


if __name__ == "__main__":
    main()
