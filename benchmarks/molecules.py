"""Molecules: validity, uniqueness, novelty and lengths of samples, and infilling of a molecule with a branch cut out.

It needs RDKit (the extra `eval`), two runs on MOSES, and the file that they were trained on:

  flexmdm train path/to/train.csv.gz --config configs/moses.toml --out runs/moses
  flexmdm train path/to/train.csv.gz --config configs/moses.toml --model mdm --out runs/moses-mdm
  python benchmarks/molecules.py runs/moses runs/moses-mdm

Every row is written as soon as it is measured, so that an interrupted run goes on where it was; --fresh starts again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

from flexmdm import TextPipeline
from flexmdm.evaluation.intervals import Interval, rate
from flexmdm.evaluation.lengths import length_fidelity
from flexmdm.evaluation.molecules import canonical, canonical_set, judge, scaffold_gaps
from flexmdm.reports.charts import draw_losses
from flexmdm.tasks.pipeline import progress_bar
from flexmdm.training.progress import LOG_FILE, read_log, training_of

RESULTS = Path(__file__).parent / "results"
SAMPLERS = {"flexmdm": ("tau", "spaced"), "mdm": ("tau",)}


def training_set(pipeline: TextPipeline) -> frozenset[str]:
    """All molecules that were trained on, in canonical form (a few minutes)."""
    store = pipeline.task.train.store
    rows = track(torch.arange(len(store)).split(1000), "reading the training set", console=Console(stderr=True))
    return canonical_set(pipeline.task.text.decode(tokens) for part in rows for tokens in store.take(part).tolist())


def held_out(pipeline: TextPipeline, num: int) -> list[str]:
    """Some of the held-out molecules."""
    examples = pipeline.task.validation
    return [pipeline.task.text.decode(row) for row in examples.store.take(examples.some(num)).tolist()]


def sampled(name: str, pipeline: TextPipeline, known: frozenset[str], num: int, steps: int, sampler: str) -> dict:
    """One row: samples from nothing."""
    began = time.perf_counter()
    label = f"{name}, {sampler} {steps}"
    with progress_bar(num, label) as bar:
        answers = pipeline.fill([["", ""]], num, sampler=sampler, steps=steps, callback=bar)
    seconds = (time.perf_counter() - began) / num
    score = judge([answer.text for answer in answers], known)
    lengths = length_fidelity([len(a.tokens) for a in answers], pipeline.task.validation.store.lengths)
    return {
        "model": name, "sampler": sampler, "steps": steps, **asdict(score), "length": asdict(lengths),
        "evaluations": sum(a.evaluations for a in answers) / num, "seconds": seconds,
        "samples": [a.text for a in answers[:20]],
    }  # fmt: skip


def infilled(name: str, pipeline: TextPipeline, num: int) -> dict:
    """Held-out molecules with a branch cut out: how often the filling makes a molecule of them, and the very same.

    What is left after the cut is a molecule too, and no filling would always be valid: so there is at least one token.
    """
    cut = [gap for n, text in enumerate(held_out(pipeline, 4 * num)) if (gap := scaffold_gaps(text, seed=n))][:num]
    if not cut:
        raise SystemExit(f"{name}: no held-out molecule has a branch that could be cut out")
    with progress_bar(len(cut), f"{name}, infilling") as bar:
        answers = pipeline.fill([gap.pieces for gap in cut], minimum=1, callback=bar)
    forms = [canonical(answer.text) for answer in answers]
    originals = [canonical(gap.before + gap.removed + gap.after) for gap in cut]
    return {
        "model": name, "num": len(cut), "valid": asdict(rate(sum(form is not None for form in forms), len(cut))),
        "same": asdict(rate(sum(a == b for a, b in zip(forms, originals, strict=True)), len(cut))),
        "examples": [[gap.before, gap.removed, gap.after, a.gaps[0]] for gap, a in zip(cut, answers, strict=True)][:10],
    }  # fmt: skip


def main() -> None:
    """Measure, print, and write benchmarks/results/molecules.{json,md,png}, the loss and the training logs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--num", type=int, default=1000, help="samples per row")
    parser.add_argument("--steps", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    arguments = parser.parse_args()
    file = RESULTS / "molecules.json"
    pipelines = {run.name: TextPipeline.from_pretrained(run) for run in arguments.runs}
    if len({pipeline.task.compared_on for pipeline in pipelines.values()}) > 1:
        raise SystemExit("these runs have other data or other tokens: they cannot be compared")
    data = next(iter(pipelines.values())).task.compared_on
    asked = {"num": arguments.num, "data": data, "runs": {run.name: training_of(run) for run in arguments.runs}}
    stored = json.loads(file.read_text()) if file.is_file() and not arguments.fresh else {}
    other = [name for name, value in asked.items() if stored and stored[name] != value]
    if other:
        raise SystemExit(f"{file} was measured with other {', '.join(other)}: ask for the same, or --fresh")
    results: dict[str, Any] = stored or {**asked, "rows": [], "infilling": []}
    results["command"] = (
        f"python benchmarks/molecules.py {' '.join(map(str, arguments.runs))} --num {arguments.num} "
        f"--steps {' '.join(map(str, arguments.steps))}"
    )

    def write(kind: str, row: dict[str, Any]) -> None:
        results[kind].append(row)
        RESULTS.mkdir(exist_ok=True)
        file.write_text(json.dumps(results, indent=1) + "\n")
        file.with_suffix(".md").write_text(markdown(results))

    wanted = [
        (name, sampler, steps)
        for name, pipeline in pipelines.items()
        for sampler in SAMPLERS[pipeline.task.model]
        for steps in arguments.steps
    ]
    measured = {(row["model"], row["sampler"], row["steps"]) for row in results["rows"]}
    missing = [setting for setting in wanted if setting not in measured]
    known = training_set(next(iter(pipelines.values()))) if missing else frozenset()
    for name, sampler, steps in missing:
        write("rows", sampled(name, pipelines[name], known, arguments.num, steps, sampler))
    for name, pipeline in pipelines.items():  # an MDM would have to be told how long the branch is
        if pipeline.task.model == "flexmdm" and not any(one["model"] == name for one in results["infilling"]):
            write("infilling", infilled(name, pipeline, arguments.num))
    draw(results).savefig(file.with_suffix(".png"), dpi=110, metadata={"Software": None})
    draw_losses({run.name: read_log(run / LOG_FILE) for run in arguments.runs}, RESULTS / "molecules-loss.png")
    (RESULTS / "logs").mkdir(exist_ok=True)
    for run in arguments.runs:
        shutil.copy(run / LOG_FILE, RESULTS / "logs" / f"{run.name}.jsonl")
    Console().print(markdown(results), markup=False, soft_wrap=True)


def markdown(results: dict[str, Any]) -> str:
    """For people."""
    lines = [
        f"{results['num']} samples per row; 95% intervals; floor: the W1 of as many exact samples. Made by "
        f"`{results['command']}`.",
        "",
        *(
            f"{name}: {of['steps']:,} steps, {of['sequences']:,} sequences, {of['hours']} hours.  "
            for name, of in results["runs"].items()
        ),
        "",
        "| model | sampler | steps | evaluations | valid | unique | novel | length W1 | floor |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in results["rows"]:
        length = row["length"]
        lines.append(
            f"| {row['model']} | {row['sampler']} | {row['steps']} | {row['evaluations']:.0f} "
            f"| {_percent(row['valid'])} | {row['unique']:.1%} | {_percent(row['novel'])} "
            f"| {length['w1']:.2f} ({length['w1_low']:.2f} - {length['w1_high']:.2f}) | {length['floor']:.2f} |"
        )
    for one in results["infilling"]:
        cut = f"Infilling by {one['model']}, {one['num']} held-out molecules with a branch cut out"
        lines += [
            "",
            f"{cut}: {_percent(one['valid'])} are molecules, {_percent(one['same'])} the very same as before.",
        ]
    return "\n".join(lines) + "\n"


def _percent(share: dict[str, float]) -> str:
    return Interval(**share).percent(each=True)


def draw(results: dict[str, Any]) -> Figure:
    """Validity and lengths against evaluations."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    curves: dict[str, list[dict[str, Any]]] = {}
    for row in results["rows"]:
        curves.setdefault(f"{row['model']}, {row['sampler']}", []).append(row)
    for name, rows in curves.items():
        rows = sorted(rows, key=lambda row: row["evaluations"])
        at = [row["evaluations"] for row in rows]
        left.plot(at, [row["valid"]["value"] for row in rows], marker="o", markersize=4, label=name)
        left.fill_between(at, [row["valid"]["low"] for row in rows], [row["valid"]["high"] for row in rows], alpha=0.15)
        right.plot(at, [row["length"]["w1"] for row in rows], marker="o", markersize=4, label=name)
        right.fill_between(
            at, [row["length"]["w1_low"] for row in rows], [row["length"]["w1_high"] for row in rows], alpha=0.15
        )
    if results["rows"]:
        right.axhline(results["rows"][0]["length"]["floor"], color="0.6", linestyle=":", label="exact samples")
    left.set(title="valid molecules", ylim=(0, 1))
    right.set(title="length W1, in characters", ylim=(0, None))
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("network evaluations")
        axes.legend(frameon=False, fontsize=8)
    return figure


if __name__ == "__main__":
    main()
