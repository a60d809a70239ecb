"""Word problems and gaps in programs with several samplers: how often each run is right, against steps.

`flexmdm eval --benchmark` does this for one sampler; here every sampler of a model gets its curve. Needs trained runs,
such as those of configs/arithmetic.toml, configs/gsm8k.toml and configs/code.toml, and the problems. What is generated
is kept beside the first run, in NAME.items, so that an interrupted run goes on where it was.
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
from flexmdm.tasks import sweeps
from flexmdm.tasks.code import evaluation as code
from flexmdm.tasks.math import evaluation as math
from flexmdm.training.loading import load_named
from flexmdm.training.progress import LOG_FILE, draw_curves, read_log, training_of

EXAMPLES = """examples:
  python benchmarks/downstream.py gsm8k runs/arithmetic runs/arithmetic-mdm --data arithmetic --name arithmetic
  python benchmarks/downstream.py humaneval-infill runs/code runs/code-mdm --data FOLDER --name code --steps 16 64
"""
RESULTS = Path(__file__).parent / "results"
SAMPLERS = {"flexmdm": ("adaptive", "tau", "spaced"), "mdm": ("low_confidence", "adaptive", "tau")}
MOST = {"spaced": 64}  # steps of a sampler that is made for few; one of its steps takes several evaluations
BENCHMARKS: dict[str, Any] = {"gsm8k": (math.GSM8K, math), "humaneval-infill": (code.HumanEvalInfill, code)}
SHOWN = 8  # items whose texts are written down


def main() -> None:
    """Measure, print, and write benchmarks/results/NAME.{json,md,png}, NAME-loss.png and the training logs."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("runs", type=Path, nargs="+", help="FlexMDM first")
    parser.add_argument("--data", type=Path, required=True, help="folder of the problems")
    parser.add_argument("--name", required=True, help="of the result files")
    parser.add_argument("--steps", type=int, nargs="+", default=[8, 16, 32, 64, 128])
    parser.add_argument("--num", type=int, help="the first so many problems; by default all")
    arguments = parser.parse_args()
    kind, room = BENCHMARKS[arguments.benchmark]
    contest = kind.read(arguments.data)
    points: list[sweeps.Point] = []
    for run in arguments.runs:
        entrant = room.entrant_of(run.name, *load_named(run, None, None))
        for sampler in SAMPLERS[entrant.model]:
            counts = [steps for steps in arguments.steps if steps <= MOST.get(sampler, steps)]
            folder = arguments.runs[0].parent / f"{arguments.name}.items" / sampler
            points += sweeps.sweep(contest, [entrant], counts, arguments.num, folder, sampler=sampler)
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
            {"run": point.run, "sampler": point.options["sampler"], "minus": base.run, "steps": point.steps,
             **vars(difference)}
            for point, base, difference in against_mdm(points)
        ],
        "examples": examples(points),
    }  # fmt: skip
    (RESULTS / "logs").mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{arguments.name}.json").write_text(json.dumps(results, indent=1) + "\n")
    text = markdown(results, contest.measure)
    (RESULTS / f"{arguments.name}.md").write_text(text)
    sweeps.draw(points, contest, RESULTS / f"{arguments.name}.png")
    draw_curves({run.name: read_log(run / LOG_FILE) for run in arguments.runs}, RESULTS / f"{arguments.name}-loss.png")
    for run in arguments.runs:
        shutil.copy(run / LOG_FILE, RESULTS / "logs" / f"{run.name}.jsonl")
    Console().print(text, markup=False, soft_wrap=True)


def against_mdm(points: Sequence[sweeps.Point]) -> list[tuple[sweeps.Point, sweeps.Point, Interval]]:
    """Each FlexMDM against MDM with its first sampler and as many steps, item by item."""
    base = [point for point in points if (point.model, point.options["sampler"]) == ("mdm", SAMPLERS["mdm"][0])]
    known = {point.steps for point in base}
    others = [point for point in points if point.model == "flexmdm" and point.steps in known]
    return [pair for pair in sweeps.differences([*base, *others]) if pair[0].model == "flexmdm"]


def examples(points: Sequence[sweeps.Point]) -> list[dict[str, Any]]:
    """What each run wrote for the first items with the most steps of its first sampler."""
    found = []
    for name in dict.fromkeys(point.run for point in points):
        first = next(point for point in points if point.run == name)
        best = max((p for p in points if (p.run, p.options["sampler"]) == (name, first.options["sampler"])), key=_steps)
        assert best.items is not None
        lines = [json.loads(line) for line in best.items.read_text(encoding="utf-8").splitlines()]
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
        f"| {row['run']} | {row['sampler']} | {row['steps']} | {_percent(row[measure])} | {row['evaluations']:.0f} |"
        for row in results["rows"]
    ]
    differences = [
        f"| {row['run']}, {row['sampler']} - {row['minus']}, {SAMPLERS['mdm'][0]} | {row['steps']} | "
        f"{100 * row['value']:+.1f} ({100 * row['low']:+.1f} to {100 * row['high']:+.1f}) |"
        for row in results["differences"]
    ]
    paired = ["", "| on the same items | steps | points |", "|---|---|---|", *differences] if differences else []
    return "\n".join([
        f"{results['problems']}: {results['rows'][0]['num']:,} items, temperature 0; 95% intervals. Made by "
        f"`{results['command']}`.",
        "", *trained, "",
        f"| run | sampler | steps | {measure} | evaluations |", "|---|---|---|---|---|", *rows, *paired,
    ]) + "\n"  # fmt: skip


def _steps(point: sweeps.Point) -> int:
    return point.steps


def _percent(interval: dict[str, float]) -> str:
    return f"{interval['value']:.1%} ({100 * interval['low']:.1f} - {100 * interval['high']:.1f})"


if __name__ == "__main__":
    main()
