"""Rapid transfer: a retrofitted MDM against a FlexMDM from scratch, at equal further steps.

    python benchmarks/transfer.py runs/transfer-scratch runs/transfer-all runs/transfer-lora

The runs and the commands that train them are those of configs/transfer.toml. Of some checkpoints of each, likelihood
and lengths of samples are measured against the same held-out paragraphs, and written with the losses of the logs to
benchmarks/results/transfer.{json,md,png}. What is in the json already is not measured again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from flexmdm.evaluation.lengths import length_fidelity, length_floor
from flexmdm.runs.config import RunConfig
from flexmdm.tasks import task_of
from flexmdm.tasks.likelihoods import bits
from flexmdm.tasks.text import TextPipeline
from flexmdm.training.models import averaged, quiet_transformers
from flexmdm.training.progress import LOG_FILE, read_log

RESULTS = Path(__file__).parent / "results" / "transfer.json"
AT = (100, 200, 400, 600, 1000)
NUM, LIKELIHOODS, TIMES = 500, 200, 32


def main() -> None:
    """Measure what is not measured yet, and write table and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    arguments = parser.parse_args()
    quiet_transformers()
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {"runs": {}}
    for run in arguments.runs:
        entry = results["runs"].setdefault(run.name, {"points": {}})
        entry["log"] = [_figures(line) for line in read_log(run / LOG_FILE) if "eval_loss" in line]
        for step in AT:
            if str(step) not in entry["points"]:
                entry["points"][str(step)] = measured(run, step)
                print(run.name, step, entry["points"][str(step)], flush=True)
                results |= {"samples": NUM, "likelihoods": LIKELIHOODS, "command": "benchmarks/transfer.py"}
                RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    task = task_of(RunConfig.read(arguments.runs[0]).task, arguments.runs[0])
    results["w1_floor"] = length_floor(task.validation.store.lengths.tolist(), NUM)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    RESULTS.with_suffix(".md").write_text(table(results))
    draw(results, RESULTS.with_suffix(".png"))


def _figures(line: dict[str, Any]) -> dict[str, float]:
    return {key: line[key] for key in ("step", "seconds", "eval_loss", "eval_unmasking", "eval_insertion")}


def measured(run: Path, step: int) -> dict[str, float]:
    """Bits and lengths of the averaged weights after so many steps."""
    task = task_of(RunConfig.read(run).task, run)
    model = averaged(run / f"checkpoint-{step}")
    score = bits(model, task, task.validation.some(LIKELIHOODS), TIMES)
    samples = TextPipeline(task, model).fill([["", ""]] * NUM, steps=64, seed=step)
    fidelity = length_fidelity([len(s.tokens) for s in samples], task.validation.store.lengths.tolist())
    return {
        "bits_per_character": score.per_character.value,
        "standard_error": score.per_character.standard_error,
        "length_w1": fidelity.w1,
        "w1_low": fidelity.w1_low,
        "w1_high": fidelity.w1_high,
    }


def table(results: dict[str, Any]) -> str:
    """What docs quote."""
    lines = [
        f"Made by `{results['command']}` from the runs of configs/transfer.toml. Bits per character of "
        f"{results['likelihoods']} held-out paragraphs with standard errors; Wasserstein-1 of the lengths of "
        f"{results['samples']} samples (`spaced`, 64 steps) with 95% intervals, floor {results['w1_floor']:.2f}.",
        "",
        "| run | " + " | ".join(f"{step} steps" for step in AT) + " |",
        "|---|" + "---|" * len(AT),
    ]
    for run, entry in results["runs"].items():
        points = [entry["points"][str(step)] for step in AT]
        cells = [f"{p['bits_per_character']:.3f} +- {p['standard_error']:.3f}" for p in points]
        lines.append(f"| {run}: bits per character | {' | '.join(cells)} |")
        cells = [f"{p['length_w1']:.1f} ({p['w1_low']:.1f}-{p['w1_high']:.1f})" for p in points]
        lines.append(f"| {run}: length W1 | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw(results: dict[str, Any], file: Path) -> None:
    """How fast each falls."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), constrained_layout=True)
    for run, entry in results["runs"].items():
        label = run.removeprefix("transfer-")
        axes[0].plot(*zip(*((p["step"], p["eval_loss"]) for p in entry["log"]), strict=True), "o-", ms=3, label=label)
        for axis, name in ((axes[1], "bits_per_character"), (axes[2], "length_w1")):
            axis.plot(AT, [entry["points"][str(step)][name] for step in AT], "o-", ms=3, label=label)
    axes[2].axhline(results["w1_floor"], color="grey", lw=0.8, ls=":")
    for axis, title in zip(axes, ("held-out loss", "bits per character", "Wasserstein-1 of lengths"), strict=True):
        axis.set(title=title, xlabel="further steps")
    axes[0].legend()
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
