"""The scorers on the official data: canonical, empty and example fillings of HumanEval-infilling, answers of GSM8K.

It needs the official files (github.com/openai/human-eval-infilling, folder data; github.com/openai/grade-school-math):

  python benchmarks/scorers.py --humaneval path/to/data --gsm8k path/to/data
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from flexmdm.data.formats import read_jsonl
from flexmdm.sweeps.humaneval import score_with_bar
from flexmdm.tasks.code.problems import SPLITS, Problem, Sample, read_problems, read_samples
from flexmdm.tasks.math.answers import extract_answer
from flexmdm.tasks.math.problems import SIZES, file_of

RESULTS = Path(__file__).parent / "results"


def fillings(folder: Path, split: str) -> list[dict[str, Any]]:
    """What the canonical solutions score, and the empty ones of the single lines."""
    problems = read_problems(folder, split)
    rows = [_row(split, "canonical", problems, [Sample(p.task_id, p.canonical_solution) for p in problems.values()])]
    if split == "single-line":
        rows.append(_row(split, "empty", problems, [Sample(name, "") for name in problems]))
    return rows


def example(folder: Path) -> list[dict[str, Any]]:
    """The official example: samples of one problem."""
    problems = read_problems(folder / "example_problem.jsonl")
    return [_row("example", "official", problems, read_samples(folder / "example_samples.jsonl", problems))]


def _row(split: str, what: str, problems: dict[str, Problem], samples: list[Sample]) -> dict[str, Any]:
    began = time.perf_counter()
    scored = score_with_bar(problems, samples)
    return {"split": split, "fillings": what, **scored.to_dict(), "seconds": round(time.perf_counter() - began, 1)}


def gold(folder: Path, split: str) -> dict[str, Any]:
    """Count the official answers that both rules extract as they are written behind the last ####."""
    answers = [record["answer"] for _, record in read_jsonl(file_of(folder, split), ["question", "answer"])]
    written = [answer.rpartition("####")[2].strip().replace(",", "") for answer in answers]
    exact = sum(
        extract_answer(answer) == extract_answer(answer, strict=True) == number
        for answer, number in zip(answers, written, strict=True)
    )
    return {"split": split, "answers": len(answers), "exact": exact}


def main() -> None:
    """Measure, print, and write benchmarks/results/scorers.{json,md}."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--humaneval", type=Path, required=True, help="folder of the official files")
    parser.add_argument("--gsm8k", type=Path, required=True, help="folder of the official files")
    parser.add_argument("--splits", nargs="+", choices=SPLITS, default=list(SPLITS))
    arguments = parser.parse_args()
    rows = [row for split in arguments.splits for row in fillings(arguments.humaneval, split)]
    rows += example(arguments.humaneval)
    answers = [gold(arguments.gsm8k, split) for split in SIZES]
    command = "python benchmarks/scorers.py --humaneval FOLDER --gsm8k FOLDER"
    lines = [
        f"Made by `{command}`.", "",
        "| split | fillings | tasks | samples | passed | failed | timed out | pass@1 | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {row['split']} | {row['fillings']} | {row['tasks']:,} | {row['samples']:,} | "
            + " | ".join(f"{row['outcomes'][name]:,}" for name in ("passed", "failed", "timed out"))
            + f" | {row['pass@1']['value']:.1%} | {row['seconds']:.0f} |"
            for row in rows
        ),
        "",
        *(f"GSM8K, {row['split']}: {row['exact']:,} of {row['answers']:,} answers exact.  " for row in answers),
    ]  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    content = {"command": command, "humaneval": rows, "gsm8k": answers}
    (RESULTS / "scorers.json").write_text(json.dumps(content, indent=1) + "\n")
    (RESULTS / "scorers.md").write_text("\n".join(lines) + "\n")
    Console().print("\n".join(lines), markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
