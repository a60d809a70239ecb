"""The paper's text experiment in small: lengths and fluency of samples of FlexMDM and MDM against steps.

Needs trained runs (see configs/enwik8.toml) and, for the perplexity, the reference model (the extra `eval`). Every row
is written as soon as it is measured, so that an interrupted run goes on where it was, and a run that comes later stands
beside what was measured of others; --fresh starts again.
"""

from __future__ import annotations

import argparse
import json
import shutil
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from rich.console import Console

from flexmdm.evaluation.fluency import ReferenceLM
from flexmdm.evaluation.lengths import length_floor
from flexmdm.reports.charts import COLOURS, MARKERS, draw_losses
from flexmdm.sweeps.text import Judge, held_out_bits, measure
from flexmdm.tasks.text.pipeline import TextPipeline
from flexmdm.training.progress import LOG_FILE, read_log, training_of

EXAMPLES = """examples:
  python benchmarks/text.py runs/enwik8 runs/enwik8-mdm --name enwik8
  python benchmarks/text.py runs/enwik8 --name enwik8 --reference none    lengths and likelihood only
  python benchmarks/text.py runs/other --name enwik8 --num 200 --steps 64 --samplers tau    one more run, one row of it
"""
RESULTS = Path(__file__).parent / "results"
STEPS = (16, 64, 256)
LONG, FEW = 1024, 5  # the paper also has MDM at 1024 steps; here with a fifth of the samples
MORE = 3  # times as many samples of FlexMDM, which are cheap: its lengths are near what exact samples would show
SAMPLERS = {"flexmdm": ("tau", "adaptive", "spaced"), "mdm": ("tau", "adaptive")}
MOST = {"spaced": 64}  # steps of a sampler that is made for few; one of its steps takes several evaluations
LIKELIHOODS = 200
MEASURES = ("length_w1", "generative_perplexity", "entropy", "opening_entropy")


def main() -> None:
    """Measure, print, and write benchmarks/results/NAME.{json,md}, NAME.png, NAME-loss.png and the training logs."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", help="runs on the same data with the same tokens")
    parser.add_argument("--name", required=True, help="of the result files")
    parser.add_argument(
        "--num", type=int, default=300, help="samples per row, and how many of them the reference reads"
    )
    parser.add_argument("--reference", default="auto", help="for perplexities, as of flexmdm eval; none for none")
    grids, samplers = [*STEPS, LONG], [*SAMPLERS["flexmdm"]]
    parser.add_argument("--steps", type=int, nargs="+", default=grids, choices=grids, help="which rows to measure")
    parser.add_argument("--samplers", nargs="+", default=samplers, choices=samplers, help="which rows to measure")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    arguments = parser.parse_args()
    file = RESULTS / f"{arguments.name}.json"
    known = json.loads(file.read_text()) if file.is_file() and not arguments.fresh else {}
    pipelines = {run.name: TextPipeline.from_pretrained(run) for run in arguments.runs}
    if len({pipeline.task.compared_on for pipeline in pipelines.values()}) > 1:
        raise SystemExit("these runs have other data or other tokens: they cannot be compared")
    reference = arguments.reference
    asked = {"num": arguments.num, "reference": reference, "data": next(iter(pipelines.values())).task.compared_on}
    other = [f"{name} {known[name]}, not {value}" for name, value in asked.items() if known and known[name] != value]
    if other:
        raise SystemExit(f"{file} has {'; '.join(other)}: ask for the same, take another --name, or --fresh")
    results: dict[str, Any] = {"runs": {}, "rows": [], "likelihoods": {}} | known | asked
    for run in arguments.runs:
        _keep_or_forget(results, run)
    lm = None if reference == "none" else ReferenceLM.load(None if reference == "auto" else reference)
    judge = Judge.of(next(iter(pipelines.values())), lm, arguments.num)
    command = (
        f"python benchmarks/text.py {' '.join(map(str, arguments.runs))} --name {arguments.name} "
        f"--num {arguments.num} --reference {reference}"
    )
    if (arguments.steps, arguments.samplers) != (grids, samplers):
        command += f" --steps {' '.join(map(str, arguments.steps))} --samplers {' '.join(arguments.samplers)}"
    results["commands"] = {**results.get("commands", {}), **dict.fromkeys(pipelines, command)}
    results["xz"] = judge.xz()
    lengths = results["held_out_lengths"] = [len(tokens) for tokens in judge.tokens]
    counts = [arguments.num, MORE * arguments.num, arguments.num // FEW]
    floors = {num: length_floor(lengths, num) for num in counts}

    def write() -> None:
        RESULTS.mkdir(exist_ok=True)
        file.write_text(json.dumps(results) + "\n")
        file.with_suffix(".md").write_text(markdown(results))

    if not any(row["model"] == "held-out" for row in results["rows"]):
        results["rows"].append({**judge.held_out(arguments.num).to_dict(), "floor": floors[arguments.num]})
        write()
    for name, pipeline in pipelines.items():
        if name not in results["likelihoods"]:
            results["likelihoods"][name] = held_out_bits(name, pipeline, LIKELIHOODS).to_dict()
            write()
        for sampler, steps in _settings(pipeline.task.model):
            asked_for = sampler in arguments.samplers and steps in arguments.steps
            if asked_for and not any(
                (row["model"], row["sampler"], row["steps"]) == (name, sampler, steps) for row in results["rows"]
            ):
                num = arguments.num // FEW if steps == LONG else arguments.num
                num *= MORE if pipeline.task.model == "flexmdm" else 1
                score = measure(name, pipeline, judge, num, steps, sampler)
                results["rows"].append({**score.to_dict(), "floor": floors[num]})
                write()
                Console().print(_line(results["rows"][-1]), markup=False, highlight=False)
    draw(results, RESULTS / f"{arguments.name}.png")
    (RESULTS / "logs").mkdir(exist_ok=True)
    for run in arguments.runs:
        shutil.copy(run / LOG_FILE, RESULTS / "logs" / f"{run.name}.jsonl")
    logs = {name: read_log(RESULTS / "logs" / f"{name}.jsonl") for name in results["runs"]}
    draw_losses(logs, RESULTS / f"{arguments.name}-loss.png")


def _settings(model: str) -> list[tuple[str, int]]:
    """Samplers and steps, the cheap ones first."""
    settings = [(sampler, steps) for steps in STEPS for sampler in SAMPLERS[model] if steps <= MOST.get(sampler, steps)]
    return [*settings, ("tau", LONG)] if model == "mdm" else settings


def _keep_or_forget(results: dict[str, Any], run: Path) -> None:
    """What was measured of a run that has been trained further since is measured again."""
    trained = training_of(run)
    if results["runs"].get(run.name) != trained:
        results["rows"] = [row for row in results["rows"] if row["model"] != run.name]
        results["likelihoods"].pop(run.name, None)
    results["runs"][run.name] = trained


def markdown(results: dict[str, Any]) -> str:
    """For people."""
    trained = [
        f"{name}: {of['steps']:,} steps, {of['sequences']:,} sequences, {of['hours']} hours.  "
        for name, of in results["runs"].items()
    ]
    bits = [
        f"{name}: {of['bits_per_character']['value']:.3f} ± {of['bits_per_character']['standard_error']:.3f} bits per "
        f"character of {of['num']} held-out texts.  "
        for name, of in results["likelihoods"].items()
    ]
    made = " and ".join(f"`{command}`" for command in dict.fromkeys(results["commands"].values()))
    return "\n".join([
        "Samples against held-out texts, 95% intervals; floor: the W1 of as many exact samples; perplexities of up to "
        f"{results['num']} texts. Made by {made}.",
        "", *trained, *bits, f"xz: {results['xz']:.3f} bits per character of all held-out texts.", "",
        "| model | sampler | steps | texts | length W1 | floor | perplexity | entropy | of 32 tokens | evaluations |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(_line, results["rows"]),
    ]) + "\n"  # fmt: skip


def _line(row: dict[str, Any]) -> str:
    cells = [row["model"], row["sampler"], str(row["steps"] or ""), str(row["num"])]
    for name in MEASURES:
        value = row[name]["value"]
        digits = 2 if "entropy" in name else 1
        ends = "" if value is None else f" ({row[name]['low']:.{digits}f} - {row[name]['high']:.{digits}f})"
        cells.append("" if value is None else f"{value:.{digits}f}{ends}")
        if name == "length_w1":
            cells.append(f"{row['floor']:.1f}")
    cells.append("" if row["evaluations"] is None else f"{row['evaluations']:.0f}")
    return "| " + " | ".join(cells) + " |"


def draw(results: dict[str, Any], path: Path) -> None:
    """The paper's two figures: the lengths, and length and fluency against evaluations."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
    left.set(title="lengths: W1 is the area between two curves", xlabel="tokens", ylabel="share of texts up to it")
    curves: dict[str, list[dict[str, Any]]] = {}
    for row in results["rows"]:
        if row["steps"]:
            curves.setdefault(f"{row['model']}, {row['sampler']}", []).append(row)
    looks = dict(zip(curves, cycle(zip(COLOURS, MARKERS, strict=True)), strict=False))
    left.ecdf(results["held_out_lengths"], color="0.8", linewidth=5, label="held-out")
    for name, rows in curves.items():
        for row in filter(_in_lengths, rows):
            dashes = ":" if row["steps"] == LONG else "-"
            left.ecdf(row["lengths"], color=looks[name][0], linestyle=dashes, label=f"{name}, {row['steps']} steps")
    for axes, measure_name in ((middle, "length_w1"), (right, "generative_perplexity")):
        for name, rows in curves.items():
            points = [
                (r["evaluations"], *r[measure_name].values()) for r in rows if r[measure_name]["value"] is not None
            ]
            if points:
                at, value, low, high = zip(*sorted(points), strict=True)
                colour, marker = looks[name]
                axes.plot(at, value, marker=marker, markersize=5, color=colour, label=name)
                axes.fill_between(at, low, high, alpha=0.1, color=colour, linewidth=0)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("network evaluations")
    floor = next(row for row in results["rows"] if row["model"] == "held-out")["floor"]
    middle.axhline(floor, color="0.5", linestyle=":", label=f"{results['num']:,} exact samples")
    middle.set(title="length W1", ylabel="tokens", ylim=(0, None))
    right.set(title="generative perplexity", yscale="log")
    reference = next(row for row in results["rows"] if row["model"] == "held-out")["generative_perplexity"]["value"]
    if reference is not None:
        right.axhline(reference, color="0.5", linestyle=":", label="held-out texts")
    for axes in (left, middle):
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def _in_lengths(row: dict[str, Any]) -> bool:
    """The most steps that a sampler has, of those that are the paper's or ours."""
    return (row["sampler"], row["steps"]) in (("tau", 256), ("tau", LONG), ("spaced", MOST["spaced"]))


if __name__ == "__main__":
    main()
