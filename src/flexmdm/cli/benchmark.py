"""`flexmdm eval --benchmark`: the official problems, solved by runs at several numbers of steps, or by a file."""

from __future__ import annotations

import json as json_module
import shlex
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flexmdm.evaluation.intervals import by_name

if TYPE_CHECKING:
    from rich.console import Console

_FIGURES = (".png", ".svg")
_Say = Callable[..., None]


def compete(
    name: str,
    runs: dict[str, tuple[Any, Any]],
    paths: Mapping[str, str | None],
    data: Path,
    split: str | None = None,
    json: Path | None = None,
    page: Path | None = None,
    workers: int | None = None,
    **options: Any,
) -> None:
    """Let runs generate, score what they wrote, print the table and write figures.

    Args:
        name, data, split, json, workers: as in `benchmark`; all generations go to a folder beside ``json``,
            ``NAME.items``, from where an interrupted call goes on.
        runs: task and model of each, by name.
        paths: what the JSON calls each run.
        page: a figure of the results against the evaluations, as .png or .svg.
        options: of `flexmdm.sweeps.sweep.sweep`.
    """
    from rich.console import Console

    from flexmdm.reports.benchmarks import draw, table_of
    from flexmdm.sweeps import sweep as sweeps
    from flexmdm.sweeps.registry import benchmark_class

    console = Console()
    say = partial(console.print, highlight=False)
    contest = benchmark_class(name).read(data, split, **({"workers": workers} if workers else {}))
    entrants = [contest.entrant(run, *loaded) for run, loaded in runs.items()]
    folder = None if json is None else json.with_suffix(".items")
    points = sweeps.sweep(contest, entrants, folder=folder, **options)
    console.print(table_of(points, contest))
    if "sandbox" in points[0].figures:
        _say_guards(points[0].figures["sandbox"], say)
    compared = []
    for point, base, difference in sweeps.differences(points):
        say(
            f"{point.run} - {base.run} at {point.steps} steps: {100 * difference.value:+.1f} points "
            f"({100 * difference.low:+.1f} to {100 * difference.high:+.1f}), item by item"
        )
        pair = {"run": paths[point.run], "minus": paths[base.run], "steps": point.steps}
        compared.append(pair | vars(difference))
    if json is not None:
        results = [by_name(point.to_dict(contest.measure)) | {"run": paths[point.run]} for point in points]
        figures = {"data": str(contest.file), "split": contest.split, "seed": options["seed"], "results": results}
        _write(json, name, f"{folder}/", by_name(figures) | ({"differences": compared} if compared else {}))
    if page is not None:
        draw(points, contest, page)
        say(f"the figure is {page}")


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
        name, data, split, workers: as in the options of `flexmdm eval`.
        samples: humaneval-infill: a .jsonl in the official format, ``task_id`` and ``completion``; gsm8k: ``number``
            (of the problem, from 0) and ``generation``.
        json: for machines. An interrupted scoring with the same file goes on where it stopped.
        console: where to print.
    """
    source = check(name, data)
    if samples is None:
        raise ValueError(f"{name} without a run needs samples to score: --samples FILE")
    from rich.console import Console

    from flexmdm.sweeps.registry import benchmark_class

    say = partial((console or Console()).print, highlight=False)
    contest = benchmark_class(name).read(source, split)
    items = json.with_suffix(".items.jsonl") if json is not None else None
    if name == "gsm8k":
        scored = _gsm8k(contest, samples, items, say)
    else:
        scored = _humaneval(contest, samples, items, workers, say)
    if json is not None:
        _write(json, name, str(items), by_name({"data": str(contest.file), "split": contest.split, **scored}))


def _write(json: Path, name: str, items: str, figures: dict[str, Any]) -> None:
    json.parent.mkdir(parents=True, exist_ok=True)
    head = {"benchmark": name, "command": shlex.join(["flexmdm", *sys.argv[1:]])}
    json.write_text(json_module.dumps(head | figures, indent=2) + "\n")
    print(f"written to {json}, items in {items}", file=sys.stderr)


def _humaneval(contest: Any, samples: Path, items: Path | None, workers: int | None, say: _Say) -> dict[str, Any]:
    from flexmdm.sandbox import Sandbox
    from flexmdm.sweeps.humaneval import score_with_bar
    from flexmdm.tasks.code.problems import read_samples

    problems = dict(contest.problems)
    fillings = read_samples(samples, problems)
    with Sandbox() as sandbox:
        guards = str(sandbox.guards)
    scored = score_with_bar(problems, fillings, items, workers)
    functions = len(set(contest.groups))
    say(f"{contest.title}: {len(problems)} tasks of {functions} functions, {len(fillings)} samples", markup=False)
    for k, interval in scored.pass_at.items():
        say(f"pass@{k} {interval.percent()}")
    say(", ".join(f"{count} {name}" for name, count in scored.outcomes.items()))
    _say_guards(guards, say)
    return {"functions": functions, **scored.to_dict(), "sandbox": guards}


def _gsm8k(contest: Any, samples: Path, items: Path | None, say: _Say) -> dict[str, Any]:
    from flexmdm.tasks.math.scoring import read_items, score

    scored = score(read_items(samples, contest.problems))
    say(f"{contest.title}: {len(contest.problems)} problems", markup=False)
    say(f"accuracy {scored.accuracy.percent()}, {scored.unanswered} without a number")
    if items is not None:
        items.parent.mkdir(parents=True, exist_ok=True)
        items.write_text("".join(json_module.dumps(item.to_dict()) + "\n" for item in scored.items))
    return scored.to_dict()


def _say_guards(guards: str, say: _Say) -> None:
    """Print what guards the sandbox has: where there are no namespaces, the user must know."""
    say(f"sandbox: {guards}", style="dim")
