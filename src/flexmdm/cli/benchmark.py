"""`flexmdm eval --benchmark`: score a file of samples against the official problems, without a model."""

from __future__ import annotations

import json as json_module
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

BENCHMARKS = ("humaneval-infill", "gsm8k")


def benchmark(
    name: str,
    samples: Path | None,
    data: Path | None,
    split: str | None = None,
    json: Path | None = None,
    workers: int | None = None,
    console: Console | None = None,
) -> None:
    """Score samples, print the result, and write it to ``json`` with the items beside it, in ``NAME.items.jsonl``.

    Args:
        name: one of the `BENCHMARKS`.
        samples: humaneval-infill: a .jsonl in the official format, ``task_id`` and ``completion``; gsm8k: ``number``
            (of the problem, from 0) and ``generation``.
        data: the folder of the official files, or one of them.
        split: single-line, multi-line, random-span or random-span-light; gsm8k: test or train. By default the first.
        json: for machines. An interrupted scoring with the same file goes on where it stopped.
        workers: programs that run at a time; by default one for each core.
        console: where to print.
    """
    if name not in BENCHMARKS:
        raise ValueError(f"there is no benchmark {name!r}; choose from {', '.join(BENCHMARKS)}")
    if samples is None:
        raise ValueError(f"{name} without a run needs samples to score: --samples FILE")
    if data is None:
        raise ValueError(f"{name} needs its official problems: --data FOLDER")
    from rich.console import Console

    console = console or Console()
    items = json.with_suffix(".items.jsonl") if json is not None else None
    if name == "gsm8k":
        figures = _gsm8k(samples, data, split or "test", items, console)
    else:
        figures = _humaneval(samples, data, split or "single-line", items, workers, console)
    if json is not None:
        json.parent.mkdir(parents=True, exist_ok=True)
        head = {"benchmark": name, "command": shlex.join(["flexmdm", *sys.argv[1:]])}
        json.write_text(json_module.dumps(head | figures, indent=2) + "\n")


def _humaneval(
    samples: Path, data: Path, split: str, items: Path | None, workers: int | None, console: Console
) -> dict[str, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from flexmdm.evaluation.sandbox import Sandbox
    from flexmdm.tasks.code import read_problems, read_samples, score

    problems = read_problems(data, split)
    fillings = read_samples(samples, problems)
    with Sandbox() as sandbox:
        guards = str(sandbox.guards)
    columns = (TextColumn("running tests"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=len(fillings))
        scored = score(
            problems,
            fillings,
            results=items,
            workers=workers,
            progress=lambda done, _: progress.update(bar, completed=done),
        )
    console.print(f"HumanEval-infilling, {split}: {len(problems)} tasks, {len(fillings)} samples", highlight=False)
    for k, interval in scored.pass_at.items():
        console.print(f"pass@{k} {_share(interval)}", highlight=False)
    console.print(", ".join(f"{count} {name}" for name, count in scored.outcomes.items()), highlight=False)
    console.print(f"sandbox: {guards}", style="dim", highlight=False)
    return {"split": split, **scored.to_dict(), "sandbox": guards}


def _gsm8k(samples: Path, data: Path, split: str, items: Path | None, console: Console) -> dict[str, Any]:
    from flexmdm.tasks.math import read_items, read_problems, score

    problems = read_problems(data, split)
    scored = score(read_items(samples, problems))
    console.print(f"GSM8K, {split}: {len(problems)} problems", highlight=False)
    console.print(f"accuracy {_share(scored.accuracy)}, {scored.unanswered} without a number", highlight=False)
    if items is not None:
        items.parent.mkdir(parents=True, exist_ok=True)
        items.write_text("".join(json_module.dumps(item.to_dict()) + "\n" for item in scored.items))
    return {"split": split, **scored.to_dict()}


def _share(interval: Any) -> str:
    """In percent, with its interval.

    >>> from flexmdm.evaluation.intervals import Interval
    >>> _share(Interval(0.5, 0.25, 0.75))
    '50.0% (25.0 - 75.0)'
    """
    return f"{interval.value:.1%} ({100 * interval.low:.1f} - {100 * interval.high:.1f})"
