"""Molecules: validity, uniqueness, novelty and lengths of samples, and infilling of a molecule with a branch cut out.

It needs RDKit (the extra `eval`), two runs on MOSES, and the file that they were trained on:

  flexmdm train path/to/train.csv.gz --config configs/moses.toml --out runs/moses
  flexmdm train path/to/train.csv.gz --config configs/moses.toml --model mdm --out runs/moses-mdm
  python benchmarks/molecules.py runs/moses runs/moses-mdm
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track

from flexmdm import TextPipeline
from flexmdm.evaluation.lengths import length_fidelity
from flexmdm.evaluation.molecules import canonical, canonical_set, judge, scaffold_gaps
from flexmdm.tasks.text.report import fill_with_bar

RESULTS = Path(__file__).parent / "results"


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
    answers = fill_with_bar(pipeline, [["", ""]], num, label, sampler=sampler, steps=steps)
    seconds = (time.perf_counter() - began) / num
    score = judge([answer.text for answer in answers], known)
    lengths = length_fidelity([len(a.tokens) for a in answers], pipeline.task.validation.store.lengths)
    return {
        "model": name, "sampler": sampler, "steps": steps, "num": num, **asdict(score), "length": asdict(lengths),
        "evaluations": sum(a.evaluations for a in answers) / num, "seconds": seconds,
        "samples": [a.text for a in answers[:20]],
    }  # fmt: skip


def infilled(name: str, pipeline: TextPipeline, num: int) -> dict:
    """Held-out molecules with a branch cut out: how often the filling is a molecule, and how often the very same."""
    cut = [gap for n, text in enumerate(held_out(pipeline, 4 * num)) if (gap := scaffold_gaps(text, seed=n))][:num]
    answers = fill_with_bar(pipeline, [gap.pieces for gap in cut], 1, f"{name}, infilling")
    forms = [canonical(answer.text) for answer in answers]
    originals = [canonical(gap.before + gap.removed + gap.after) for gap in cut]
    return {
        "model": name, "num": len(cut),
        "valid": sum(form is not None for form in forms) / len(cut),
        "same": sum(a == b for a, b in zip(forms, originals, strict=True)) / len(cut),
        "examples": [[gap.before, gap.removed, gap.after, a.gaps[0]] for gap, a in zip(cut, answers, strict=True)][:10],
    }  # fmt: skip


def main() -> None:
    """Measure, print, and write benchmarks/results/molecules.{json,md}."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--num", type=int, default=1000, help="samples per row")
    parser.add_argument("--steps", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--samplers", nargs="+", default=["tau", "spaced"], help="of FlexMDM; MDM has tau")
    arguments = parser.parse_args()
    pipelines = {run.name: TextPipeline.from_pretrained(run) for run in arguments.runs}
    known = training_set(next(iter(pipelines.values())))
    rows = []
    for name, pipeline in pipelines.items():
        for sampler in arguments.samplers if pipeline.task.model == "flexmdm" else ["tau"]:
            rows += [sampled(name, pipeline, known, arguments.num, steps, sampler) for steps in arguments.steps]
    filled = [infilled(n, p, arguments.num) for n, p in pipelines.items() if p.task.model == "flexmdm"]
    command = f"python benchmarks/molecules.py {' '.join(map(str, arguments.runs))}"
    lines = [
        f"{arguments.num} samples per row; 95% intervals. Made by `{command}`.", "",
        "| model | sampler | steps | evaluations | valid | unique | novel | length W1 |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in rows:
        shares = " | ".join(
            f"{row[k]['value']:.1%} ({row[k]['low']:.1%} - {row[k]['high']:.1%})" for k in ("valid", "unique", "novel")
        )
        length = row["length"]
        lines.append(
            f"| {row['model']} | {row['sampler']} | {row['steps']} | {row['evaluations']:.0f} | {shares} "
            f"| {length['w1']:.2f} ({length['w1_low']:.2f} - {length['w1_high']:.2f}) |"
        )
    lines += ["", *(f"Infilling by {f['model']}, {f['num']} molecules with a branch cut out: {f['valid']:.1%} valid, "
                    f"{f['same']:.1%} the very same." for f in filled)]  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "molecules.json").write_text(
        json.dumps({"command": command, "rows": rows, "infilling": filled}, indent=1) + "\n"
    )
    (RESULTS / "molecules.md").write_text("\n".join(lines) + "\n")
    Console().print("\n".join(lines), markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
