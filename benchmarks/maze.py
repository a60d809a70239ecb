"""The paper's maze table: FlexMDM and MDM on held-out problems with K = 2, 7 and 12 subgoals, by sampler.

Needs trained runs (`flexmdm train --config configs/maze21.toml --out runs/maze21`, and with --model mdm for the
baseline), or the weights that come with the package. Every row is written as soon as it is measured, so that an
interrupted run goes on where it was; --fresh starts again.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from rich.console import Console

from flexmdm.tasks.maze.evaluation import MazeScore, plan
from flexmdm.tasks.maze.report import table_of
from flexmdm.training.loading import load_named
from flexmdm.training.progress import LOG_FILE, draw_curves, read_log

EXAMPLES = """examples:
  python benchmarks/maze.py runs/maze21 --mdm runs/maze21-mdm --name maze21
  python benchmarks/maze.py --pretrained maze41 --name maze41 --num 500
"""
RESULTS = Path(__file__).parent / "results"
PAPER = {"mdm": {2: 0.684, 7: 0.293, 12: 0.242}, "flexmdm": {2: 0.923, 7: 0.904, 12: 0.900}}  # 41 x 41, 256 steps
COUNTS = (2, 7, 12)
FLEXMDM: list[dict[str, Any]] = [
    {"sampler": "spaced", "steps": 64, "temperature": 0.0},
    {"sampler": "spaced", "steps": 32, "temperature": 0.0},
    {"sampler": "spaced", "steps": 16, "temperature": 0.0},
    {"sampler": "spaced", "steps": 16, "temperature": 1.0},
    {"sampler": "tau", "steps": 256, "temperature": 1.0},
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


def key_of(row: dict[str, Any]) -> tuple:
    """What makes two rows the same measurement."""
    return tuple(row[name] for name in ("model", "subgoals", "num", "sampler", "steps", "temperature", "seed"))


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
    settings = [(arguments.run, arguments.pretrained, FLEXMDM)]
    if arguments.mdm is not None:
        settings.append((arguments.mdm, None, MDM))
    for folder, pretrained, samplers in settings:
        task, model = load_named(folder, pretrained)
        trained = _training(folder) if folder is not None else None
        rows[:] = [row for row in rows if row["model"] != task.model or row.get("trained") == trained]
        denoiser = model.denoiser()
        for options in samplers:
            for count in COUNTS:
                wanted = {"model": task.model, "subgoals": count, "num": arguments.num, "seed": 0}
                wanted |= options
                if key_of(wanted) in {key_of(row) for row in rows}:
                    continue
                score = plan(task, denoiser, count, arguments.num, **options).score
                console.print(table_of([score], ""), highlight=False)
                rows.append({**score.to_dict(), "trained": trained})
                write(rows, arguments)
    write(rows, arguments)
    runs = {n: f for n, f in (("FlexMDM", arguments.run), ("MDM", arguments.mdm)) if f}
    if runs:
        draw_curves({n: read_log(f / LOG_FILE) for n, f in runs.items()}, RESULTS / f"{arguments.name}-loss.png")
    (RESULTS / "logs").mkdir(exist_ok=True)
    for model, folder in runs.items():
        shutil.copy(folder / LOG_FILE, RESULTS / "logs" / f"{arguments.name}-{model.lower()}.jsonl")
    console.print(f"written to {RESULTS / arguments.name}.{{json,md}} and {RESULTS / 'logs'}")


def write(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    """What has been measured so far, for machines and for people."""
    command = _command(arguments)
    (RESULTS / f"{arguments.name}.json").write_text(json.dumps({"command": command, "rows": rows}, indent=1) + "\n")
    (RESULTS / f"{arguments.name}.md").write_text(markdown(rows, command))


def _training(folder: Path) -> dict[str, float] | None:
    """How long the model was trained: hours, steps, sequences seen."""
    log = read_log(folder / LOG_FILE)
    last = log[-1] if log else None
    return last and {"hours": round(last["seconds"] / 3600, 2), "steps": last["step"], "sequences": last["sequences"]}


def _command(arguments: argparse.Namespace) -> str:
    parts = ["python benchmarks/maze.py", arguments.run, arguments.mdm and f"--mdm {arguments.mdm}"]
    parts += [arguments.pretrained and f"--pretrained {arguments.pretrained}", f"--name {arguments.name}"]
    return " ".join(str(part) for part in [*parts, f"--num {arguments.num}"] if part)


def markdown(rows: list[dict[str, Any]], command: str) -> str:
    """The table, with the paper's beside it where the maze is the paper's."""
    scores = [MazeScore(**{k: v for k, v in row.items() if k != "trained"}) for row in rows]
    size = scores[0].size
    lines = [f"Maze {size} x {size}, {scores[0].num} held-out problems for each K. Made by `{command}`.", ""]
    for model in ("flexmdm", "mdm"):
        trained = next((row["trained"] for row in rows if row["model"] == model and row.get("trained")), None)
        if trained:
            lines.append(
                f"{model}: {trained['hours']} hours, {trained['steps']:,} steps, {trained['sequences']:,} sequences.  "
            )
    lines += ["", "| model | sampler | K | success | 95% interval | valid | excess | evaluations | ms per path |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for s in scores:
        name = f"{s.sampler}, {s.steps} steps" + ("" if s.temperature == 1 else ", temperature 0")
        excess = "" if s.excess is None else f"{s.excess:+.2f}"
        lines.append(
            f"| {s.model} | {name} | {s.subgoals} | {s.success:.1%} | {s.low:.1%} - {s.high:.1%} | {s.valid:.1%} "
            f"| {excess} | {s.evaluations:.0f} | {1000 * s.seconds:.0f} |"
        )
    if size == 41:
        for model, values in PAPER.items():
            lines += [f"| {model}, the paper | 256 steps | {k} | {value:.1%} | | | | |" for k, value in values.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
