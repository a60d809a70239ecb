"""Word problems and gaps in programs with several samplers: how often each run is right, against steps.

`flexmdm eval --benchmark` does this for one sampler; here every sampler of a model gets its curve. Needs trained runs,
such as those of configs/arithmetic.toml, configs/gsm8k.toml and configs/code.toml, and the problems. What is generated
is kept beside the first run, in NAME.items, so that an interrupted run goes on where it was; --fresh starts again.

Each row of FlexMDM is compared item by item with MDM's better sampler at the fewest steps that take about as many
evaluations.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from flexmdm.evaluation.intervals import Interval
from flexmdm.reports.benchmarks import draw
from flexmdm.reports.charts import draw_losses
from flexmdm.sweeps import sweep as sweeps
from flexmdm.sweeps.registry import benchmark_class, benchmark_names
from flexmdm.tasks.loading import load_named
from flexmdm.training.progress import LOG_FILE, read_log, training_of

EXAMPLES = """examples:
  python benchmarks/downstream.py gsm8k runs/arithmetic runs/arithmetic-mdm --data arithmetic --name arithmetic
  python benchmarks/downstream.py humaneval-infill runs/code runs/code-mdm --data FOLDER --name code --steps 16 64
"""
RESULTS = Path(__file__).parent / "results"
SAMPLERS = {"flexmdm": ("adaptive", "tau", "spaced"), "mdm": ("low_confidence", "adaptive")}
MOST = {"spaced": 64}  # steps of a sampler that is made for few; one of its steps takes several evaluations
SHOWN = 8  # items whose texts are written down
AS_MANY = 0.9  # of the evaluations, that are about as many


def main() -> None:
    """Measure, print, and write benchmarks/results/NAME.{json,md,png}, NAME-loss.png and the training logs."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("benchmark", choices=benchmark_names(reads_files=True))
    parser.add_argument("runs", type=Path, nargs="+", help="FlexMDM first")
    parser.add_argument("--data", type=Path, required=True, help="folder of the problems")
    parser.add_argument("--name", required=True, help="of the result files")
    parser.add_argument("--steps", type=int, nargs="+", default=[8, 16, 32, 64, 128])
    parser.add_argument("--num", type=int, help="the first so many problems; by default all")
    parser.add_argument("--fresh", action="store_true", help="generate everything again")
    arguments = parser.parse_args()
    if len({run.name for run in arguments.runs}) < len(arguments.runs):
        raise SystemExit("the runs need different names, as they stand in the table by them")
    items = arguments.runs[0].parent / f"{arguments.name}.items"
    if arguments.fresh:
        shutil.rmtree(items, ignore_errors=True)
    contest = benchmark_class(arguments.benchmark).read(arguments.data)
    points: list[sweeps.Point] = []
    for run in arguments.runs:
        entrant = contest.entrant(run.name, *load_named(run, None, None))
        for sampler in SAMPLERS[entrant.model]:
            counts = [steps for steps in arguments.steps if steps <= MOST.get(sampler, steps)]
            points += sweeps.sweep(contest, [entrant], counts, arguments.num, items / sampler, sampler=sampler)
    command = (
        f"python benchmarks/downstream.py {arguments.benchmark} {' '.join(map(str, arguments.runs))} --data FOLDER "
        f"--name {arguments.name} --steps {' '.join(map(str, arguments.steps))}"
        + (f" --num {arguments.num}" if arguments.num else "")
    )
    results = {
        "command": command,
        "problems": contest.title,
        "runs": {run.name: training_of(run) for run in arguments.runs},
        "rows": [point.to_dict(contest.measure) for point in points],
        "differences": [
            {"run": point.run, **_settings(point), "minus": {"run": base.run, **_settings(base)}, **vars(difference)}
            for point, base, difference in against_mdm(points)
        ],
        "examples": examples(points),
    }  # fmt: skip
    (RESULTS / "logs").mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{arguments.name}.json").write_text(json.dumps(results, indent=1) + "\n")
    text = markdown(results, contest.measure)
    (RESULTS / f"{arguments.name}.md").write_text(text)
    draw(points, contest, RESULTS / f"{arguments.name}.png")
    draw_losses({run.name: read_log(run / LOG_FILE) for run in arguments.runs}, RESULTS / f"{arguments.name}-loss.png")
    for run in arguments.runs:
        shutil.copy(run / LOG_FILE, RESULTS / "logs" / f"{run.name}.jsonl")
    Console().print(text, markup=False, soft_wrap=True)


def against_mdm(points: Sequence[sweeps.Point]) -> list[tuple[sweeps.Point, sweeps.Point, Interval]]:
    """Each FlexMDM against MDM's better sampler at the fewest steps with about as many evaluations, item by item."""
    mdm = sorted((point for point in points if point.model == "mdm"), key=_steps)
    pairs = []
    for point in (point for point in points if point.model == "flexmdm" and mdm):
        enough = [other.steps for other in mdm if other.evaluations >= AS_MANY * point.evaluations]
        steps = enough[0] if enough else mdm[-1].steps
        base = max((other for other in mdm if other.steps == steps), key=lambda other: other.measured.value)
        pairs.append((point, base, sweeps.difference(point, base)))
    return pairs


def examples(points: Sequence[sweeps.Point]) -> list[dict[str, Any]]:
    """What each run wrote for the first items with the most steps of its first sampler."""
    found = []
    for name in dict.fromkeys(point.run for point in points):
        first = next(point for point in points if point.run == name)
        best = max((p for p in points if (p.run, p.options["sampler"]) == (name, first.options["sampler"])), key=_steps)
        assert best.items is not None
        with open(best.items, encoding="utf-8") as journal:  # lines end at line feeds alone
            lines = [json.loads(line) for line in journal]
        texts = [line for line in lines if "generation" in line or "completion" in line][:SHOWN]
        found.append({"run": name, "sampler": best.options["sampler"], "steps": best.steps, "items": texts})
    return found


def markdown(results: dict[str, Any], measure: str) -> str:
    """For people."""
    trained = [
        f"{name}: {of['steps']:,} steps, {of['sequences']:,} sequences, {of['hours']} hours.  "
        for name, of in results["runs"].items()
    ]
    rows = [
        f"| {row['run']} | {row['sampler']} | {row['steps']} | {Interval(**row[measure]).percent()} | "
        f"{row['evaluations']:.0f} |"
        for row in results["rows"]
    ]
    differences = [
        f"| {_label(row)} | {_label(row['minus'])} | "
        f"{100 * row['value']:+.1f} ({100 * row['low']:+.1f} to {100 * row['high']:+.1f}) |"
        for row in results["differences"]
    ]
    head = ["", "| on the same items (evaluations) | against (evaluations) | points |", "|---|---|---|"]
    paired = [*head, *differences] if differences else []
    return "\n".join([
        f"{results['problems']}: {results['rows'][0]['num']:,} items, temperature 0; 95% intervals. Made by "
        f"`{results['command']}`.",
        "", *trained, *notes(results["rows"]), "",
        f"| run | sampler | steps | {measure} | evaluations |", "|---|---|---|---|---|", *rows, *paired,
    ]) + "\n"  # fmt: skip


def notes(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What kept the runs from being asked in full: in how many items at most, of any row."""
    kinds = {
        "shortened": "of which it saw only a part", "refused": "that it could not take",
        "hit_max_length": "that grew to its limit", "unanswered": "without a number",
    }  # fmt: skip
    lines = []
    for run in dict.fromkeys(row["run"] for row in rows):
        most = {kind: max(row.get(kind) or 0 for row in rows if row["run"] == run) for kind in kinds}
        told = [f"{most[kind]:,} {what}" for kind, what in kinds.items() if most[kind]]
        lines += [f"{run}: items {', '.join(told)} (at most, of the rows below).  "] if told else []
    return lines


def _steps(point: sweeps.Point) -> int:
    return point.steps


def _settings(point: sweeps.Point) -> dict[str, Any]:
    return {"sampler": point.options["sampler"], "steps": point.steps, "evaluations": point.evaluations}


def _label(row: dict[str, Any]) -> str:
    return f"{row['run']}, {row['sampler']} {row['steps']} ({row['evaluations']:.0f})"


if __name__ == "__main__":
    main()
