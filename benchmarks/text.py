"""The paper's text experiment in small: FlexMDM against MDM, what they write and how many bits they need.

Both write as many texts with the same samplers: lengths, perplexity under a reference model and entropy beside those of
real texts, evaluations and seconds. Both need bits for the same held-out texts, and are compared text by text.

Needs trained runs (see configs/enwik8.toml and configs/sentences.toml) and, for the perplexity, the reference model
(the extra `eval`). Texts and bits are written down as they come, in NAME.items beside the first run, and every row as
soon as it is measured, so that an interrupted run goes on where it was, and a run that comes later stands beside what
was measured of others; --fresh starts again.
"""

from __future__ import annotations

import argparse
import json
import shutil
from itertools import cycle, product
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from rich.console import Console

from flexmdm.evaluation.fluency import ReferenceLM, perplexity_ratio, read, unigram_entropy
from flexmdm.evaluation.intervals import bootstrap
from flexmdm.evaluation.lengths import length_floor
from flexmdm.jobs.journal import Journal
from flexmdm.progress import ProgressBar
from flexmdm.reports.benchmarks import command_of
from flexmdm.reports.charts import COLOURS, MARKERS, draw_losses
from flexmdm.sweeps.sweep import fingerprint, journal_of, measured
from flexmdm.sweeps.text import OPENING, Judge, Samples, TextScore
from flexmdm.tasks.likelihoods import Bits, nats_of
from flexmdm.tasks.models import FLEXMDM
from flexmdm.tasks.text.pipeline import TextPipeline
from flexmdm.training.progress import LOG_FILE, read_log, read_logs, training_of
from flexmdm.training.recipe import RUN_FILE

EXAMPLES = """examples:
  python benchmarks/text.py runs/enwik8 runs/enwik8-mdm --name enwik8
  python benchmarks/text.py runs/enwik8 --name enwik8 --reference none    lengths and likelihood only
  python benchmarks/text.py runs/other --name enwik8 --num 200 --steps 64 --samplers tau    one more run, one row of it
  python benchmarks/text.py text --data PATH/sentences.txt.gz --name trial --quick    the weights of the package
"""
RESULTS = Path(__file__).parent / "results"
STEPS = (16, 64, 256)
SAMPLERS = ("tau", "adaptive", "spaced")  # the first is the paper's Algorithm 1, for MDM the usual sampler
MOST = {"spaced": 64}  # steps of a sampler that is made for few; one of its steps takes several evaluations
TIMES, SEED = 64, 0  # of a likelihood, at so many times per text; of all that is drawn
LEAST = 1  # tokens of a text that has a perplexity
QUICK = {"num": 50, "likelihoods": 20, "steps": [16], "name": "{}-quick"}
Results = dict[str, Any]


def arguments_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return what was asked for."""
    parser.add_argument("runs", nargs="+", help="runs on the same data with the same tokens, or weights of the package")
    parser.add_argument("--name", required=True, help="of the result files")
    parser.add_argument("--data", type=Path, nargs="+", default=(), help="what they learned from, if it has moved")
    parser.add_argument(
        "--before", nargs="+", default=(), metavar="RUN=LOG[,LOG]", help="logs of the trainings that a run went on from"
    )
    parser.add_argument("--num", type=int, default=500, help="texts per row, of every model")
    parser.add_argument("--likelihoods", type=int, default=500, help="held-out texts whose bits are measured")
    parser.add_argument("--reference", default="auto", help="for perplexities, as of flexmdm eval; none for none")
    parser.add_argument("--steps", type=int, nargs="+", default=[*STEPS], help="which rows to measure")
    parser.add_argument("--samplers", nargs="+", default=[*SAMPLERS], choices=SAMPLERS, help="which rows to measure")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[1.0], help="which rows to measure")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    parser.add_argument("--quick", action="store_true", help="see that it works: few texts, files NAME-quick")
    arguments = parser.parse_args()
    if arguments.quick:
        vars(arguments).update(QUICK | {"name": QUICK["name"].format(arguments.name)})
    if len({Path(run).name for run in arguments.runs}) < len(arguments.runs):
        raise SystemExit("the runs need different names, as they stand in the table by them")
    return arguments


def main() -> None:
    """Measure, print, and write benchmarks/results/NAME.{json,md}, NAME.png, NAME-loss.png and the training logs."""
    arguments = arguments_of(
        argparse.ArgumentParser(
            description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
        )
    )
    file, items = RESULTS / f"{arguments.name}.json", Path(arguments.runs[0]).parent / f"{arguments.name}.items"
    if arguments.fresh:
        file.unlink(missing_ok=True)
        shutil.rmtree(items, ignore_errors=True)
    pipelines = {Path(run).name: TextPipeline.from_pretrained(run, data=arguments.data) for run in arguments.runs}
    first = next(iter(pipelines.values()))
    results = known_results(file, arguments, pipelines)
    keep_logs(results, arguments)
    lengths = results["held_out_lengths"] = first.task.validation.store.lengths.tolist()
    judge = Judge.of(
        first, ReferenceLM.named(arguments.reference), least=LEAST, opening=min(OPENING, int(median(lengths)))
    )
    results |= {"xz": judge.xz(), "floor": length_floor(lengths, arguments.num), "opening": judge.opening}

    def write() -> None:
        file.write_text(json.dumps(results) + "\n")
        file.with_suffix(".md").write_text(markdown(results))

    if not results["rows"]:
        texts, tokens = judge.texts[: arguments.num], judge.tokens[: arguments.num]
        results["rows"] = [judged(judge.held_out(arguments.num), judge, texts, tokens, None)]
    for name, pipeline in pipelines.items():
        likelihoods(results, name, pipeline, arguments.likelihoods, items)
        write()
    for asked in product(sorted(arguments.steps), pipelines, arguments.samplers, arguments.temperatures):
        steps, name, sampler, temperature = asked
        known = [(row["steps"], row["model"], row["sampler"], row["temperature"]) for row in results["rows"]]
        if asked not in known and steps <= MOST.get(sampler, steps):
            options = {"steps": steps, "sampler": sampler, "temperature": temperature}
            results["rows"].append(written(name, pipelines[name], judge, arguments.num, options, results, items))
            write()
            Console().print(_line(results["rows"][-1], results), markup=False, highlight=False)
    write()
    draw(results, RESULTS / f"{arguments.name}.png")
    logs = {name: read_log(_log(arguments.name, name)) for name in results["runs"]}
    draw_losses({name: log for name, log in logs.items() if log}, RESULTS / f"{arguments.name}-loss.png")
    Console().print(markdown(results), markup=False, soft_wrap=True, highlight=False)


# What was measured before, and of what --------------------------------------------------------------------------------


def known_results(file: Path, arguments: argparse.Namespace, pipelines: dict[str, TextPipeline]) -> Results:
    """Return what the file holds already of the same question; raise if it holds the answers to another one."""
    known = json.loads(file.read_text()) if file.is_file() else {}
    data = {pipeline.task.compared_on for pipeline in pipelines.values()}
    if len(data) > 1:
        raise SystemExit("these runs have other data or other tokens: they cannot be compared")
    asked = {"num": arguments.num, "reference": arguments.reference, "data": data.pop()}
    other = [
        f"{name} {known.get(name)}, not {value}" for name, value in asked.items() if known.get(name, value) != value
    ]
    if other or (known and "likelihoods" in known):  # which an earlier version wrote
        why = "; ".join(other) or "the figures of an earlier version"
        raise SystemExit(f"{file} has {why}: ask for the same, take another --name, or --fresh")
    results: Results = {"runs": {}, "commands": {}, "rows": [], "bits": {}} | known | asked | {"seed": SEED}
    command = command_of("benchmarks/text.py")
    for name, pipeline in pipelines.items():
        weights = fingerprint(pipeline.model)
        if results["runs"].get(name, {}).get("weights") != weights:  # it has been trained further since
            results["rows"] = [row for row in results["rows"] if row["model"] != name]
            results["bits"].pop(name, None)
        parameters = sum(parameter.numel() for parameter in pipeline.model.parameters())
        results["runs"][name] = {"model": pipeline.task.model, "parameters": parameters, "weights": weights}
        results["commands"][name] = command
    file.parent.mkdir(parents=True, exist_ok=True)
    return results


def keep_logs(results: Results, arguments: argparse.Namespace) -> None:
    """Write the log of each run to the results, that of the trainings it went on from before it, and what it says."""
    before = dict(one.split("=", 1) for one in arguments.before)
    if unknown := set(before) - {Path(run).name for run in arguments.runs}:
        raise SystemExit(f"--before: there is no run {', '.join(sorted(unknown))}")
    for run in map(Path, arguments.runs):
        earlier = [Path(log) for log in before.get(run.name, "").split(",") if log]
        if missing := [str(log) for log in earlier if not log.is_file()]:
            raise SystemExit(f"--before: there is no file {', '.join(missing)}")
        config = run / RUN_FILE
        base = json.loads(config.read_text())["network"].get("base") if config.is_file() else None
        results["runs"][run.name] |= training_of(run, earlier) or dict.fromkeys(("hours", "steps", "sequences"))
        results["runs"][run.name]["not_counted"] = Path(base).name if base and not earlier else None
        if lines := read_logs([*earlier, run / LOG_FILE]):
            _log(arguments.name, run.name).parent.mkdir(exist_ok=True)
            _log(arguments.name, run.name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def _log(name: str, run: str) -> Path:
    return RESULTS / "logs" / f"{name}-{run}.jsonl"


# Measures -------------------------------------------------------------------------------------------------------------


def likelihoods(results: Results, name: str, pipeline: TextPipeline, num: int, items: Path) -> None:
    """Measure the nats of the first held-out texts that a run has not been asked yet."""
    task, model = pipeline.task, pipeline.model
    made_with = {"weights": fingerprint(model), "data": results["data"], "times": TIMES, "seed": SEED}
    journal = Journal(items / f"{name}-likelihood.jsonl", made_with)
    index = task.validation.some(num)
    with ProgressBar(f"{name}, likelihood", len(index)) as bar:
        for part in nats_of(model, task, index, TIMES, SEED, first=len(journal.lines)):
            rows = zip(*(column.tolist() for column in part), strict=True)
            journal.add([dict(zip(("nats", "tokens", "characters"), row, strict=True)) for row in rows])
            bar.update(len(journal.lines))
    columns = {unit: [line[unit] for line in journal.lines[:num]] for unit in ("nats", "tokens", "characters")}
    found = Bits.of(*map(torch.tensor, columns.values()))
    per = {unit: vars(getattr(found, f"per_{unit}")) for unit in ("sequence", "token", "character")}
    results["bits"][name] = {**per, **columns}


def written(
    name: str,
    pipeline: TextPipeline,
    judge: Judge,
    num: int,
    options: dict[str, Any],
    results: Results,
    items: Path,
) -> dict[str, Any]:
    """Return the row of texts that a run writes, one after the other where that was not done before."""
    samples = Samples(judge, num)
    entrant = samples.entrant(name, pipeline.task, pipeline.model)
    label = f"{name}-{options['sampler']}-{options['steps']}-{options['temperature']:g}"
    journal = journal_of(samples, entrant, options, SEED, items, label)
    score = TextScore.of(measured(samples, entrant, options, SEED, journal=journal))
    lines = journal.lines[:num]
    real = results["rows"][0]["readings"]
    return judged(score, judge, [line["text"] for line in lines], [line["tokens"] for line in lines], real)


def judged(
    score: TextScore, judge: Judge, texts: list[str], tokens: list[list[int]], real: list[list[float]] | None
) -> dict[str, Any]:
    """Return the row of a score, with what the reference model says of each text, and how that is to real ones."""
    pooled = unigram_entropy([[token for text in tokens for token in text]]).value
    row = {**score.to_dict(), "pooled_entropy": pooled, "readings": None, "perplexity_ratio": None}
    if judge.lm is not None:
        readings = read(judge.lm, texts)
        row["readings"] = readings.round(4).tolist()
        if real is not None:
            row["perplexity_ratio"] = vars(perplexity_ratio(readings, np.array(real)))
    return row


def compared(results: Results) -> list[dict[str, Any]]:
    """Return, for each FlexMDM and each MDM, the difference of their bits on the same texts, and of their trainings."""
    runs, bits = results["runs"], results["bits"]
    ours = [name for name in bits if runs[name]["model"] == FLEXMDM]
    found = []
    for name, other in product(ours, [name for name in bits if name not in ours]):
        num = min(len(bits[name]["nats"]), len(bits[other]["nats"]))
        nats, theirs = (np.array(bits[run]["nats"][:num]) / np.log(2) for run in (name, other))
        columns = np.stack([nats - theirs, bits[name]["characters"][:num]], axis=1)
        difference = bootstrap(columns, lambda sums: sums[:, 0] / sums[:, 1])
        pairs = {of: (runs[name][of], runs[other][of]) for of in ("hours", "sequences")}
        times = {of: one / base if one and base else None for of, (one, base) in pairs.items()}
        found.append({"run": name, "minus": other, "num": num, **vars(difference), **times})
    return found


# For people -----------------------------------------------------------------------------------------------------------


def markdown(results: Results) -> str:
    """Return the tables, what the runs learned from, and how all of it was made."""
    made = " and ".join(f"`{command}`" for command in dict.fromkeys(results["commands"].values()))
    lines = [
        f"{results['num']} texts of each model and sampler, seed {results['seed']}, and as many held-out ones; 95% "
        f"intervals. Perplexity: under the reference model ({results['reference']}); of real: over that of the "
        "held-out texts. Entropy in nats: of the tokens of a text, of its first "
        f"{results['opening']} tokens, and of all texts together. The length W1 of as many exact samples is "
        f"{results['floor']:.2f} on average (the floor). Hours are by the clock, from the logs. Made by {made}.",
        "",
        *(_training(name, of) for name, of in results["runs"].items()),
        "",
        "| model | sampler | steps | length W1 | perplexity | of real | entropy | of real | opening | pooled | "
        "evaluations | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
        *(_line(row, results) for row in results["rows"]),
        "",
        f"Bits per character of held-out texts, each at {TIMES} times; xz: {results['xz']:.3f} for all of them.",
        "",
        "| run | bits per character | held-out texts |",
        "|---|---|---|",
    ]
    for name, of in results["bits"].items():
        value = "{value:.3f} ± {standard_error:.3f}".format(**of["character"])
        lines.append(f"| {name} | {value} | {len(of['nats'])} |")
    pairs = compared(results)
    if pairs:
        lines += ["", "| on the same texts | hours | sequences | bits per character |", "|---|---|---|---|"]
    for pair in pairs:
        times = [f"{pair[of]:.2f} times" if pair[of] else "unknown" for of in ("hours", "sequences")]
        difference = "{value:+.3f} ({low:+.3f} to {high:+.3f})".format(**pair)
        lines.append(f"| {pair['run']} - {pair['minus']} | {' | '.join(times)} | {difference} |")
    return "\n".join(lines) + "\n"


def _training(name: str, of: dict[str, Any]) -> str:
    parameters = f"{name}: {of['model']}, {of['parameters']:,} weights"
    if of["steps"] is None:
        return f"{parameters}, trained for no one knows how long.  "
    more = f", and what {of['not_counted']} had learned before" if of["not_counted"] else ""
    return f"{parameters}, {of['steps']:,} steps, {of['sequences']:,} sequences, {of['hours']:.2f} hours{more}.  "


def _line(row: dict[str, Any], results: Results) -> str:
    real = results["rows"][0]
    sampler = row["sampler"] + ("" if row["temperature"] == 1 else f", T={row['temperature']:g}")
    share = "" if row is real else f"{row['entropy']['value'] / real['entropy']['value']:.1%}"
    costs = [
        "" if row[name] is None else f"{row[name]:.{digits}f}" for name, digits in (("evaluations", 0), ("seconds", 2))
    ]
    cells = [
        row["model"], sampler, str(row["steps"] or ""), _interval(row["length_w1"], 2),
        _interval(row["generative_perplexity"], 1), _interval(row["perplexity_ratio"], 2), _interval(row["entropy"], 2),
        share, _interval(row["opening_entropy"], 2), f"{row['pooled_entropy']:.2f}", *costs,
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _interval(found: dict[str, float] | None, digits: int) -> str:
    if found is None or found["value"] is None:
        return ""
    value, low, high = (f"{found[part]:.{digits}f}" for part in ("value", "low", "high"))
    return f"{value} ({low} - {high})"


def draw(results: Results, path: Path) -> None:
    """Draw the paper's two figures: the lengths, and length and fluency against evaluations."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
    left.set(title="lengths: W1 is the area between two curves", xlabel="tokens", ylabel="share of texts up to it")
    curves: dict[str, list[dict[str, Any]]] = {}
    for row in results["rows"][1:]:
        temperature = "" if row["temperature"] == 1 else f", T={row['temperature']:g}"
        curves.setdefault(f"{row['model']}, {row['sampler']}{temperature}", []).append(row)
    looks = dict(zip(curves, cycle(zip(COLOURS, MARKERS, strict=True)), strict=False))
    left.ecdf(results["held_out_lengths"], color="0.8", linewidth=5, label="held-out")
    for name, rows in curves.items():
        most = max(rows, key=lambda row: row["steps"])
        if most["sampler"] != "adaptive":
            left.ecdf(most["lengths"], color=looks[name][0], label=f"{name}, {most['steps']} steps")
    for axes, measure in ((middle, "length_w1"), (right, "generative_perplexity")):
        for name, rows in curves.items():
            points = [(row["evaluations"], *row[measure].values()) for row in rows if row[measure]["value"] is not None]
            if points:
                at, value, low, high = zip(*sorted(points), strict=True)
                colour, marker = looks[name]
                axes.plot(at, value, marker=marker, markersize=5, color=colour, label=name)
                axes.fill_between(at, low, high, alpha=0.1, color=colour, linewidth=0)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("network evaluations")
    middle.axhline(results["floor"], color="0.5", linestyle=":", label=f"{results['num']:,} exact samples")
    middle.set(title="length W1", ylabel="tokens", ylim=(0, None))
    right.set(title="generative perplexity", yscale="log")
    reference = results["rows"][0]["generative_perplexity"]["value"]
    if reference is not None:
        right.axhline(reference, color="0.5", linestyle=":", label="held-out texts")
    for axes in (left, middle):
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
