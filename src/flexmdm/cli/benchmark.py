"""`flexmdm eval --benchmark`: the official problems, solved by runs at several numbers of steps, or by a file."""

from __future__ import annotations

import json as json_module
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flexmdm.evaluation.intervals import by_name

if TYPE_CHECKING:
    from rich.console import Console

_FIGURES = (".png", ".svg")


def compete(
    name: str,
    runs: dict[str, tuple[Any, Any]],
    data: Path | None,
    split: str | None = None,
    steps: Sequence[int] = (64,),
    num: int | None = None,
    json: Path | None = None,
    page: Path | None = None,
    console: Console | None = None,
    workers: int | None = None,
    paths: Mapping[str, str | None] | None = None,
    **options: Any,
) -> None:
    """Let runs generate, score what they wrote, print the table and write figures.

    Args:
        name: one of `flexmdm.sweeps.registry.benchmark_names`.
        runs: task and model of each, by name.
        data, split: as in `benchmark`.
        steps: of the sampler, several for a sweep.
        num: the first so many items; by default all.
        json: for machines. All generations go to a folder beside it, ``NAME.items``, from where an interrupted call
            goes on.
        page: a figure of the results against the evaluations, as .png or .svg.
        console: where to print.
        workers: programs that run at a time; by default one for each core that this process may use.
        paths: what the JSON calls each run; by default its name.
        options: of `flexmdm.sweeps.sweep.sweep`.
    """
    source = check(name, data, page)
    from rich.console import Console

    from flexmdm.reports.benchmarks import draw, table_of
    from flexmdm.sweeps import sweep as sweeps
    from flexmdm.sweeps.registry import benchmark_class

    console = console or Console()
    contest = benchmark_class(name).read(source, split, **({"workers": workers} if workers else {}))
    entrants = [contest.entrant(run, *loaded) for run, loaded in runs.items()]
    folder = None if json is None else json.with_suffix(".items")
    points = sweeps.sweep(contest, entrants, steps, num, folder, **options)
    console.print(table_of(points, contest))
    if "sandbox" in points[0].figures:
        _say_guards(points[0].figures["sandbox"], console)
    compared, paths = [], paths or {}
    for point, base, difference in sweeps.differences(points):
        console.print(
            f"{point.run} - {base.run} at {point.steps} steps: {100 * difference.value:+.1f} points "
            f"({100 * difference.low:+.1f} to {100 * difference.high:+.1f}), item by item",
            highlight=False,
        )
        pair = {"run": paths.get(point.run, point.run), "minus": paths.get(base.run, base.run)}
        compared.append({**pair, "steps": point.steps, **vars(difference)})
    if json is not None:
        rows = [by_name(point.to_dict(contest.measure)) for point in points]
        results = [{**row, "run": paths.get(row["run"], row["run"])} for row in rows]
        figures = {"data": str(contest.file), "split": contest.split, "seed": options.get("seed", 0)}
        _write(json, name, f"{folder}/", {**figures, "results": results}, compared)
    if page is not None:
        draw(points, contest, page)
        console.print(f"the figure is {page}", highlight=False)


def check(name: str, data: Path | None, page: Path | None = None) -> Path:
    """Return the folder or file of the problems; raise at once, before anything is loaded, if something is wrong."""
    from flexmdm.sweeps.registry import benchmark_names

    known = benchmark_names(reads_files=True)
    if name not in known:
        raise ValueError(f"there is no benchmark {name!r}; choose from {', '.join(known)}")
    if data is None:
        raise ValueError(f"{name} needs its official problems: --data FOLDER")
    if not data.exists():
        raise FileNotFoundError(f"--data {data}: no such folder or file")
    if page is not None and page.suffix not in _FIGURES:
        raise ValueError(f"--page of a benchmark is a figure, {' or '.join(_FIGURES)}; got {page}")
    return data


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
        name: one of `flexmdm.sweeps.registry.benchmark_names`.
        samples: humaneval-infill: a .jsonl in the official format, ``task_id`` and ``completion``; gsm8k: ``number``
            (of the problem, from 0) and ``generation``.
        data: the folder of the official files, or one file.
        split: of a folder: single-line, multi-line, random-span or random-span-light; gsm8k: test or train. By default
            the first.
        json: for machines. An interrupted scoring with the same file goes on where it stopped.
        workers: programs that run at a time; by default one for each core that this process may use.
        console: where to print.
    """
    source = check(name, data)
    if samples is None:
        raise ValueError(f"{name} without a run needs samples to score: --samples FILE")
    from rich.console import Console

    console = console or Console()
    items = json.with_suffix(".items.jsonl") if json is not None else None
    if name == "gsm8k":
        figures = _gsm8k(samples, source, split, items, console)
    else:
        figures = _humaneval(samples, source, split, items, workers, console)
    if json is not None:
        _write(json, name, str(items), figures)


def _write(json: Path, name: str, items: str, figures: dict[str, Any], compared: Sequence[dict[str, Any]] = ()) -> None:
    json.parent.mkdir(parents=True, exist_ok=True)
    head = {"benchmark": name, "command": shlex.join(["flexmdm", *sys.argv[1:]])}
    tail = {"differences": compared} if compared else {}
    json.write_text(json_module.dumps(head | by_name(figures) | tail, indent=2) + "\n")
    print(f"written to {json}, items in {items}", file=sys.stderr)


def _humaneval(
    samples: Path, data: Path, split: str | None, items: Path | None, workers: int | None, console: Console
) -> dict[str, Any]:
    from flexmdm.sandbox import Sandbox
    from flexmdm.sweeps.humaneval import HumanEvalInfill, score_with_bar
    from flexmdm.tasks.code.problems import read_samples

    contest = HumanEvalInfill.read(data, split)
    problems = dict(contest.problems)
    fillings = read_samples(samples, problems)
    with Sandbox() as sandbox:
        guards = str(sandbox.guards)
    scored = score_with_bar(problems, fillings, items, workers)
    functions = len(set(contest.groups))
    counts = f"{len(problems)} tasks of {functions} functions, {len(fillings)} samples"
    console.print(f"{contest.title}: {counts}", highlight=False, markup=False)
    for k, interval in scored.pass_at.items():
        console.print(f"pass@{k} {interval.percent()}", highlight=False)
    console.print(", ".join(f"{count} {name}" for name, count in scored.outcomes.items()), highlight=False)
    _say_guards(guards, console)
    figures = {"data": str(contest.file), "split": contest.split, "functions": functions}
    return {**figures, **scored.to_dict(), "sandbox": guards}


def _gsm8k(samples: Path, data: Path, split: str | None, items: Path | None, console: Console) -> dict[str, Any]:
    from flexmdm.sweeps.gsm8k import GSM8K
    from flexmdm.tasks.math.scoring import read_items, score

    contest = GSM8K.read(data, split)
    scored = score(read_items(samples, contest.problems))
    console.print(f"{contest.title}: {len(contest.problems)} problems", highlight=False, markup=False)
    console.print(f"accuracy {scored.accuracy.percent()}, {scored.unanswered} without a number", highlight=False)
    if items is not None:
        items.parent.mkdir(parents=True, exist_ok=True)
        items.write_text("".join(json_module.dumps(item.to_dict()) + "\n" for item in scored.items))
    return {"data": str(contest.file), "split": contest.split, **scored.to_dict()}


def _say_guards(guards: str, console: Console) -> None:
    """Print what guards the sandbox has: where there are no namespaces, the user must know."""
    console.print(f"sandbox: {guards}", style="dim", highlight=False)
