"""Spans of 1 to 8 tokens cut out of held-out functions and filled again: FlexMDM, MDM and n-grams on the same spans.

Needs trained runs:

  flexmdm train --config configs/code.toml --out runs/code
  flexmdm train --config configs/code.toml --model mdm --out runs/code-mdm
  python benchmarks/infilling.py runs/code runs/code-mdm

With --humaneval FOLDER it also says how many single lines of HumanEval-infilling the n-grams fill rightly, the floor of
`flexmdm eval --benchmark humaneval-infill`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from flexmdm.evaluation.intervals import Interval, share
from flexmdm.evaluation.ngrams import NgramFiller
from flexmdm.evaluation.spans import SpanScores, span_differences, span_scores
from flexmdm.sweeps.humaneval import score_with_bar
from flexmdm.tasks.code.cutting import Cutting
from flexmdm.tasks.code.pipeline import CodePipeline
from flexmdm.tasks.code.problems import Problem, Sample, read_problems
from flexmdm.tasks.code.task import CodeTask
from flexmdm.tasks.pipeline import progress_bar
from flexmdm.training.progress import LOG_FILE

RESULTS = Path(__file__).parent / "results"
SPANS = Cutting(line=0, lines=0, span=1, most_tokens=8, inside=0)
MOST = SPANS.most_tokens
FLOOR = "4-grams"
LINE = 24  # tokens of a line at most
SAMPLERS: dict[str, list[dict[str, Any]]] = {
    "flexmdm": [
        {"sampler": "likeliest", "steps": 12},  # and an evaluation for every token
        {"sampler": "spaced", "steps": 16},
        {"sampler": "adaptive", "steps": 16, "confidence": "top_prob"},
    ],
    "mdm": [{"sampler": "low_confidence", "steps": 16}, {"sampler": "adaptive", "steps": 16, "confidence": "top_prob"}],
}


def cut(task: CodeTask, num: int) -> list[tuple[list[int], list[int], list[int]]]:
    """Tokens before, in and behind a span of each of ``num`` held-out functions."""
    if num > len(task.validation):
        raise SystemExit(f"there are {len(task.validation):,} held-out functions, too few for {num:,} spans")
    return task.validation.cut(task.validation.some(num), torch.arange(num), SPANS)


def by_network(pipeline: CodePipeline, pairs: list[tuple[str, str]], what: str, options: dict[str, Any]) -> list:
    """What a model puts there, greedily."""
    with progress_bar(len(pairs), what) as bar:
        return pipeline.fill(pairs, temperature=0.0, callback=bar, **options)


def by_counting(filler: NgramFiller, gaps: list[tuple[list[int], list[int]]], most: int) -> list[list[int]]:
    """What n-grams put there, 1 to ``most`` tokens."""
    rows = track(gaps, FLOOR, console=Console(stderr=True))
    return [filler.fill(before, after, 1, most, beam=8) for before, after in rows]


def floor_of_lines(filler: NgramFiller, task: CodeTask, problems: dict[str, Problem]) -> dict[str, Any]:
    """pass@1 of the n-grams on single lines of HumanEval-infilling, which have a line feed at their end."""
    before, after = (
        task.text.encode([getattr(problem, side) for problem in problems.values()]) for side in ("prompt", "suffix")
    )
    lines = map(task.text.decode, by_counting(filler, list(zip(before, after, strict=True)), LINE))
    samples = [Sample(name, line.split("\n")[0] + "\n") for name, line in zip(problems, lines, strict=True)]
    scored = score_with_bar(problems, samples)
    return {"num": len(problems), "pass@1": asdict(scored.pass_at[1])}


def row_of(
    model: str, label: str, scores: SpanScores, same_length: list[bool], evaluations: float, seconds: float
) -> dict[str, Any]:
    """One measurement."""
    return {
        "model": model, "sampler": label, "exact": asdict(scores.exact), "similarity": asdict(scores.similarity),
        "length": asdict(share(np.array(same_length, dtype=float))), "evaluations": evaluations, "seconds": seconds,
    }  # fmt: skip


def percent(interval: dict[str, float]) -> str:
    """A share with its interval."""
    return Interval(**interval).percent()


def main() -> None:
    """Measure, print, and write benchmarks/results/infilling.{json,md} and the training logs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--num", type=int, default=2000, help="spans")
    parser.add_argument("--humaneval", type=Path, help="folder of the official files")
    arguments = parser.parse_args()
    if len({run.name for run in arguments.runs}) < len(arguments.runs):
        raise SystemExit("the runs need different names, as they stand in the table by them")
    problems = read_problems(arguments.humaneval) if arguments.humaneval else None  # if they are not there, say so now
    pipelines = {run.name: CodePipeline.from_pretrained(run) for run in arguments.runs}
    task = next(iter(pipelines.values())).task
    if len({pipeline.task.compared_on for pipeline in pipelines.values()}) > 1:
        raise SystemExit("these runs have other functions or other tokens: they cannot be compared on the same spans")
    spans = cut(task, arguments.num)
    functions = task.train.store.take(torch.arange(len(task.train.store)))
    filler, learned = NgramFiller.fit(functions, task.text.size), set(map(tuple, functions.tolist()))
    shortened = 0
    seen = sum((*before, *middle, *after) in learned for before, middle, after in spans)
    texts = [tuple(map(task.text.decode, parts)) for parts in spans]
    truth, pairs = [middle for _, middle, _ in texts], [(before, after) for before, _, after in texts]
    sizes = [len(middle) for _, middle, _ in spans]
    counted = by_counting(filler, [(before, after) for before, _, after in spans], MOST)
    fillings = {FLOOR: list(map(task.text.decode, counted))}
    same_length = [len(tokens) == size for tokens, size in zip(counted, sizes, strict=True)]
    rows = [row_of("n-grams", FLOOR, span_scores(truth, fillings[FLOOR]), same_length, 0, 0)]
    for name, pipeline in pipelines.items():
        for options in SAMPLERS[pipeline.task.model]:
            label = f"{name}, {options['sampler']} {options['steps']}"
            began = time.perf_counter()
            found = by_network(pipeline, pairs, label, options)
            seconds = (time.perf_counter() - began) / len(pairs)
            fillings[label] = [one.text for one in found]
            evaluations = sum(one.evaluations for one in found) / len(found)
            same_length = [len(one.tokens) == size for one, size in zip(found, sizes, strict=True)]
            scores = span_scores(truth, fillings[label])
            shortened = max(shortened, sum(one.shortened for one in found))
            rows.append(row_of(name, label, scores, same_length, evaluations, seconds))
    best = {row["model"]: row for row in sorted(rows, key=lambda row: row["exact"]["value"])}  # the last one stays
    first = best[arguments.runs[0].name]["sampler"]
    differences = {}
    for row in best.values():
        if row["sampler"] != first:
            scores = span_differences(truth, fillings[first], fillings[row["sampler"]])
            differences[f"{first} - {row['sampler']}"] = {
                name: asdict(value) for name, value in scores._asdict().items()
            }
    command = f"python benchmarks/infilling.py {' '.join(map(str, arguments.runs))} --num {arguments.num}"
    command += " --humaneval FOLDER" if arguments.humaneval else ""
    lines = [
        f"{arguments.num:,} spans of 1 to {MOST} tokens in held-out functions, the same for all; temperature 0; 95% "
        f"intervals, in which parts of one long function count as independent. The n-grams are told that a span has 1 "
        f"to {MOST} tokens; the networks have to learn how long one is, lines too. Of {shortened:,} spans "
        f"the networks saw only a part of what is around. {seen} of the functions, or parts of long ones, stand word "
        f"for word in the training data as well. Made by `{command}`.",
        "",
        "| filled by | exact | edit similarity | right length | evaluations |",
        "|---|---|---|---|---|",
        *(
            f"| {row['sampler']} | {percent(row['exact'])} | {percent(row['similarity'])} | {percent(row['length'])} | "
            f"{row['evaluations']:.0f} |"
            for row in rows
        ),
        "",
        "| on the same spans, the sampler of each that did better on them | exact | edit similarity |",
        "|---|---|---|",
        *(f"| {pair} | {percent(row['exact'])} | {percent(row['similarity'])} |" for pair, row in differences.items()),
    ]
    floor = floor_of_lines(filler, task, problems) if problems else None
    if floor is not None:
        passed = percent(floor["pass@1"])
        lines += ["", f"{FLOOR} on {floor['num']:,} single lines of HumanEval-infilling: pass@1 {passed}."]
    examples = [dict(zip(("before", "cut", "after"), parts, strict=True)) for parts in texts[:20]]
    for number, example in enumerate(examples):
        example["filled"] = {name: found[number] for name, found in fillings.items()}
    content = {
        "command": command,
        "num": arguments.num,
        "rows": rows,
        "differences": differences,
        "humaneval": floor,
        "examples": examples,
    }
    (RESULTS / "logs").mkdir(parents=True, exist_ok=True)
    (RESULTS / "infilling.json").write_text(json.dumps(content, indent=1) + "\n")
    (RESULTS / "infilling.md").write_text("\n".join(lines) + "\n")
    for run in arguments.runs:
        shutil.copy(run / LOG_FILE, RESULTS / "logs" / f"{run.name}.jsonl")
    Console().print("\n".join(lines), markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
