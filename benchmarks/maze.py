"""The paper's maze table: FlexMDM and MDM on held-out problems with K = 2, 7 and 12 subgoals, by sampler.

Needs trained runs (`flexmdm train --config configs/maze21.toml --out runs/maze21`, and with --model mdm for the
baseline), or the weights that come with the package. Every row is written as soon as it is measured, so that an
interrupted run goes on where it was; --fresh starts again. Rows of two models are never mixed under one --name.
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console

from flexmdm.reports.charts import draw_loss, dress, new_figure, save_figure
from flexmdm.reports.maze import table_of
from flexmdm.sweeps.maze import MazeScore, plan
from flexmdm.tasks.loading import load_named
from flexmdm.training.progress import LOG_FILE, read_log, training_of

EXAMPLES = """examples:
  python benchmarks/maze.py runs/maze21 --mdm runs/maze21-mdm --name maze21
  python benchmarks/maze.py --pretrained maze41 --name maze41-pretrained --num 500
"""
RESULTS = Path(__file__).parent / "results"
PAPER = {"mdm": {2: 0.684, 7: 0.293, 12: 0.242}, "flexmdm": {2: 0.923, 7: 0.904, 12: 0.900}}  # 41 x 41, 256 steps
COUNTS = (2, 7, 12)
FLEXMDM: list[dict[str, Any]] = [
    {"sampler": "spaced", "steps": 64, "temperature": 0.0},
    {"sampler": "spaced", "steps": 32, "temperature": 0.0},
    {"sampler": "spaced", "steps": 16, "temperature": 0.0},
    {"sampler": "spaced", "steps": 48, "temperature": 1.0},
    {"sampler": "spaced", "steps": 32, "temperature": 1.0},
    {"sampler": "spaced", "steps": 16, "temperature": 1.0},
    {"sampler": "tau", "steps": 256, "temperature": 1.0},
    {"sampler": "tau", "steps": 256, "temperature": 0.0},
    {"sampler": "adaptive", "steps": 256, "confidence": "top_prob", "temperature": 0.0},
    {"sampler": "tau", "steps": 64, "temperature": 1.0},
    {"sampler": "adaptive", "steps": 64, "confidence": "top_prob", "temperature": 0.0},
]
MDM: list[dict[str, Any]] = [
    {"sampler": "low_confidence", "steps": 64, "temperature": 0.0},
    {"sampler": "adaptive", "steps": 64, "confidence": "top_prob", "temperature": 0.0},
    {"sampler": "adaptive", "steps": 256, "confidence": "top_prob", "temperature": 0.0},
    {"sampler": "tau", "steps": 64, "temperature": 1.0},
]


CONFIDENCE = {"adaptive": "top_prob", "spaced": "random"}  # what a sampler takes where nothing is said
DISTINCT = "distinct"  # how rows name their problems; older rows drew paths and say nothing
COLUMNS = (
    "model", "sampler", "temperature", "K", "success", "95% interval", "valid", "excess", "evaluations", "ms per path"
)  # fmt: skip


def key_of(row: dict[str, Any]) -> tuple:
    """What makes two rows the same measurement."""
    asked = tuple(row[name] for name in ("model", "subgoals", "num", "sampler", "steps", "temperature", "seed"))
    return *asked, row.get("confidence") or CONFIDENCE.get(row["sampler"])


def check_origin(rows: list[dict[str, Any]], model: str, trained: dict[str, float] | None, name: str) -> None:
    """Refuse to put rows of one model beside those of another, or in their place."""
    others = [row.get("trained") for row in rows if row["model"] == model and row.get("trained") != trained]
    if others:
        raise SystemExit(
            f"{RESULTS / name}.json holds {len(others)} rows of another {model} ({_told(others[0])}; this one: "
            f"{_told(trained)}): choose another --name, or measure everything again with --fresh"
        )


def _told(trained: dict[str, float] | None) -> str:
    if trained is None:
        return "weights of the package"
    return f"{trained['hours']} hours, {trained['steps']:,} steps, {trained['sequences']:,} sequences"


def main() -> None:
    """Evaluate, print, and write benchmarks/results/NAME.{json,md}, NAME-loss.png and the training logs."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="?", type=Path, help="a FlexMDM run")
    parser.add_argument("--pretrained", help="or the weights that come with the package")
    parser.add_argument("--mdm", type=Path, help="an MDM run")
    parser.add_argument("--name", required=True, help="of the result files")
    parser.add_argument("--num", type=int, default=500, help="problems for each K")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    arguments = parser.parse_args()
    console, file = Console(), RESULTS / f"{arguments.name}.json"
    stored = json.loads(file.read_text()) if file.is_file() and not arguments.fresh else {"rows": []}
    rows: list[dict[str, Any]] = stored["rows"]
    contenders = [(arguments.run, arguments.pretrained, FLEXMDM)]
    if arguments.mdm is not None:
        contenders.append((arguments.mdm, None, MDM))
    loaded = [
        (*load_named(run, pretrained), run and training_of(run), samplers) for run, pretrained, samplers in contenders
    ]
    for task, _, trained, _ in loaded:
        check_origin(rows, task.model, trained, arguments.name)
    for task, model, trained, samplers in loaded:
        for options in samplers:
            for count in COUNTS:
                wanted = {"model": task.model, "subgoals": count, "num": arguments.num, "seed": 0, **options}
                if key_of(wanted) in map(key_of, rows):
                    continue
                score = plan(task, model, count, arguments.num, **options).score
                console.print(table_of([score], ""), highlight=False)
                rows.append({**score.to_dict(), "trained": trained, "problems": DISTINCT})
                write(rows, arguments)
    write(rows, arguments)
    runs = {n: f for n, f in (("FlexMDM", arguments.run), ("MDM", arguments.mdm)) if f}
    if runs:
        logs = {n: read_log(f / LOG_FILE) for n, f in runs.items()}
        save_figure(learning_curves(logs), RESULTS / f"{arguments.name}-loss.png")
    (RESULTS / "logs").mkdir(exist_ok=True)
    for model, folder in runs.items():
        shutil.copy(folder / LOG_FILE, RESULTS / "logs" / f"{arguments.name}-{model.lower()}.jsonl")
    console.print(f"written to {RESULTS / arguments.name}.{{json,md}} and {RESULTS / 'logs'}")


def write(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    """What has been measured so far, for machines and for people."""
    command = _command(arguments)
    (RESULTS / f"{arguments.name}.json").write_text(json.dumps({"command": command, "rows": rows}, indent=1) + "\n")
    (RESULTS / f"{arguments.name}.md").write_text(markdown(rows, command))


def _command(arguments: argparse.Namespace) -> str:
    parts = ["python benchmarks/maze.py", arguments.run, arguments.mdm and f"--mdm {arguments.mdm}"]
    parts += [arguments.pretrained and f"--pretrained {arguments.pretrained}", f"--name {arguments.name}"]
    return " ".join(str(part) for part in [*parts, f"--num {arguments.num}"] if part)


def markdown(rows: list[dict[str, Any]], command: str) -> str:
    """The table, with the paper's beside it where the maze is the paper's."""
    size, num = rows[0]["size"], rows[0]["num"]
    lines = [f"Maze {size} x {size}, {num} held-out problems for each K. Made by `{command}`.", ""]
    for model in ("flexmdm", "mdm"):
        lines += [f"{model}: {_told(row.get('trained'))}.  " for row in rows if row["model"] == model][:1]
    if any(row.get("problems") != DISTINCT for row in rows):
        lines.append("Rows with * drew held-out paths, not problems: at K = 2 some problems count several times.")
    lines += ["", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for row in rows:
        s = MazeScore(**{f.name: row[f.name] for f in fields(MazeScore) if f.name in row})
        confidence = "" if key_of(row)[-1] == CONFIDENCE.get(s.sampler) else f" ({s.confidence})"
        name = f"{s.sampler}{confidence}, {s.steps} steps" + ("" if row.get("problems") == DISTINCT else " *")
        cells = [s.model, name, f"{s.temperature:g}", str(s.subgoals), f"{s.success:.1%}"]
        cells += [f"{s.low:.1%} - {s.high:.1%}", f"{s.valid:.1%}", "" if s.excess is None else f"{s.excess:+.2f}"]
        lines.append(f"| {' | '.join([*cells, f'{s.evaluations:.0f}', f'{1000 * s.seconds:.0f}'])} |")
    for model, values in PAPER.items() if size == 41 else ():
        for k, value in values.items():
            cells = [f"{model}, the paper", "256 steps", "", str(k), f"{value:.1%}"]
            lines.append(f"| {' | '.join(cells + [''] * (len(COLUMNS) - len(cells)))} |")
    return "\n".join(lines) + "\n"


def learning_curves(logs: dict[str, list[dict[str, float]]]) -> Figure:
    """Draw the loss of each run against the sequences it saw and against its hours."""
    figure = new_figure(11, 4.2)
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, key, unit, label in ((left, "sequences", 1000, "thousand sequences"), (right, "seconds", 3600, "hours")):
        draw_loss(axes, logs, key, unit)
        dress(axes, f"{label} of training", "loss (nats per sequence)" if axes is left else "")
    left.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main()
