"""Marginalised against sampled training targets, at equal wall-clock time: both train at once, one thread each.

Everything but the targets is the same: maze, network, recipe, seed, and the minutes (the dynamic programme of the
marginalised targets included). Each run is then measured on held-out problems.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import track

from flexmdm.reports.maze import table_of
from flexmdm.sweeps.maze import plan
from flexmdm.tasks.loading import load
from flexmdm.training.progress import read_log

EXAMPLES = """examples:
  python benchmarks/targets.py                           two seeds of four minutes each, about ten minutes in all
  python benchmarks/targets.py --minutes 1 --seeds 1     a quick look
"""
RESULTS = Path(__file__).parent / "results"
TARGETS = ("marginalised", "sampled")


def train_both(folder: Path, seed: int, arguments: argparse.Namespace) -> None:
    """One run for each kind of targets, at the same time."""
    common = [
        sys.executable, "-c", "from flexmdm.cli import main; main()", "train", "--task", "maze",
        "--size", str(arguments.size), "--subgoals", arguments.subgoals, "--minutes", str(arguments.minutes),
        "--hidden", "128", "--layers", "4", "--heads", "4", "--dropout", "0", "--batch-size", "64",
        "--optimizer", "muon", "--lr", "5e-3", "--seed", str(seed), "--device", "cpu",
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    runs = [
        subprocess.Popen(
            [*common, "--targets", targets, "--out", str(folder / f"{targets}-{seed}")],
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        for targets in TARGETS
    ]
    for targets, run in zip(TARGETS, runs, strict=True):
        if run.wait():
            raise SystemExit(f"training on {targets} targets failed: run the same command by hand to see why")


def main() -> None:
    """Train, measure, print, and write benchmarks/results/targets.{json,md}."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--size", type=int, default=11)
    parser.add_argument("--subgoals", default="2-6")
    parser.add_argument("--num", type=int, default=1000)
    arguments = parser.parse_args()
    console, rows, scores = Console(), [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for seed in track(range(arguments.seeds), description="training", console=Console(stderr=True)):
            train_both(folder, seed, arguments)
        for seed in range(arguments.seeds):
            for targets in TARGETS:
                run = folder / f"{targets}-{seed}"
                task, model = load(run)
                log = read_log(run / "log.jsonl")
                for options in ({}, {"sampler": "tau", "steps": 256}):
                    score = plan(task, model, 4, arguments.num, **options).score
                    scores.append(score)
                    rows.append({
                        "targets": targets, "run": seed, "minutes": arguments.minutes,
                        "training_steps": log[-1]["step"], "sequences": log[-1]["sequences"],
                        "held_out_loss": log[-1]["eval_loss"], **score.to_dict(),
                    })  # fmt: skip
    console.print(table_of(scores, "marginalised, then sampled targets, by seed"))
    command = f"python benchmarks/targets.py --minutes {arguments.minutes:g} --seeds {arguments.seeds}"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "targets.json").write_text(json.dumps({"command": command, "rows": rows}, indent=1) + "\n")
    lines = [
        f"Maze {arguments.size} x {arguments.size}, K = 4, {arguments.num} held-out problems; "
        f"{arguments.minutes:g} minutes of training on one core each, both at once. Made by `{command}`.",
        "",
        "| targets | run | training steps | held-out loss | sampler | temperature | success | 95% interval "
        "| evaluations |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['targets']} | {row['run']} | {row['training_steps']} | {row['held_out_loss']:.2f} "
            f"| {row['sampler']}, {row['steps']} steps | {row['temperature']:g} | {row['success']:.1%} "
            f"| {row['low']:.1%} - {row['high']:.1%} | {row['evaluations']:.0f} |"
        )
    (RESULTS / "targets.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
