"""`flexmdm eval`: how good is a run at its task."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from flexmdm.cli import options, shared
from flexmdm.settings import setting
from flexmdm.tasks.registry import PLANS, WRITES

EXAMPLES = shared.examples("""
`flexmdm eval runs/names --num 1000`: lengths, variety and likelihood of a text model
`flexmdm eval runs/enwik8 runs/enwik8-mdm --num 1000 --steps 16 64 256 --sampler tau --page report.html`: two models
`flexmdm eval runs/maze41 --subgoals 2,7,12`: success on 500 held-out problems each, with the default sampler
`flexmdm eval runs/maze41 --subgoals 7 --sampler tau --steps 256 --json tau.json`: as in the paper
`flexmdm eval --pretrained maze41 --subgoals 7 --num 200`: the weights that come with flexmdm
`flexmdm eval runs/flex runs/mdm --benchmark gsm8k --data FOLDER --steps 64 128 256 --json OUT --page PNG`: accuracy
`flexmdm eval runs/code --benchmark humaneval-infill --split single-line --data FOLDER --json OUT`: pass@1
`flexmdm eval --benchmark humaneval-infill --split single-line --samples FILE --data FOLDER --json OUT`: fillings
""")


def _numbers(text: str, option: str = "--subgoals", example: str = "2,7,12") -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise ValueError(f"{option} is a number or several with commas, such as {example}; got {text!r}")
    return numbers


@dataclass(frozen=True)
class Evaluation(shared.Sampling):
    """The options of an evaluation: of a sampler, of a benchmark, of some tasks, and what to read and write."""

    batch_size: int | None = setting(None, help="--benchmark: items at a time. [default: 64]", min=1)
    workers: int | None = setting(
        None, help="humaneval-infill: programs at a time. [default: one for each core we may use]", min=1
    )
    subgoals: list[int] | None = setting(
        None, help="maze: how many subgoals; several with commas. [default: 7]", parse=_numbers
    )
    reference: str | None = setting(
        None,
        help="text: causal language model for perplexities, by path or name; none for no perplexity. [default: auto]",
    )
    likelihoods: int | None = setting(
        None, help="text: held-out sequences for the likelihood; 0 leaves it out. [default: 200]", min=0
    )
    page: Path | None = setting(
        None, help="text: also write a page with figures; --benchmark: a figure, .png or .svg.", dir_okay=False
    )
    benchmark: str | None = setting(None, help="humaneval-infill or gsm8k: of runs, or to score --samples.")
    split: str | None = setting(
        None, help="Of a folder: single-line, multi-line, random-span, random-span-light; gsm8k: test, train."
    )
    samples: Path | None = setting(
        None, help="A .jsonl with task_id and completion; gsm8k: number and generation.", dir_okay=False
    )
    data: Path | None = setting(None, help="Folder of the benchmark's official files, or one file.")
    json: Path | None = setting(
        None,
        help="Also write the figures to this file: an object for one result, a list for several (of --subgoals, "
        "--steps or runs), each with its run; --benchmark: an object with a list, results. What a --benchmark has "
        "generated is kept beside it: after an interruption (Ctrl-C) the same command goes on.",
        dir_okay=False,
    )
    seed: int | None = setting(None, help="Seed of generation. [default: 0]")
    device: str | None = setting(None, help="cpu, cuda or mps. [default: what there is]")


_OF_BENCHMARKS, _OF_TASKS = ("data", "split", "batch_size", "workers"), ("subgoals", "reference", "likelihoods")
_SAMPLING = [one.name for one in fields(shared.Sampling)]
_DEFAULTS = {
    "sampler": f"{shared.DEFAULT_SAMPLER}; --benchmark: adaptive, gsm8k of an MDM: low_confidence",
    "temperature": "1; maze, --benchmark: 0",
    "confidence": "of spaced random; of adaptive, so of --benchmark, top_prob",
    "window": "among all; --benchmark: 5,64",
    "block": "all in one; --benchmark: 32",
}


@options.Command
def evaluate(
    *,
    runs: Annotated[
        list[str] | None,
        typer.Argument(help="Folders that `flexmdm train --out` wrote; text, --benchmark: several to compare."),
    ] = None,
    pretrained: shared.Pretrained = None,
    num: Annotated[
        int | None,
        typer.Option(
            min=1, help="Samples, or problems per number of subgoals. [default: 500; --benchmark: all, else the first]"
        ),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            help=f"Steps of the sampler; text, --benchmark: several, as 16 64 256. {shared.STEP} [default: 64]"
        ),
    ] = None,
    asked: Annotated[Evaluation, options.Options(Evaluation, leave_out=("steps", "quality"), defaults=_DEFAULTS)],
) -> None:
    """Measure trained models on held-out data, with 95% intervals."""
    folders, counts = _runs_and_steps(runs or [], steps)
    given: options.Given = {"num": num, "steps": None, **vars(asked)} | {"steps": counts or None}
    given = {name: value for name, value in given.items() if value is not None}
    benchmark, json = asked.benchmark, asked.json
    if benchmark == "gsm8k":
        _refuse(given, ("workers",), "for humaneval-infill, and no programs are run for gsm8k")
    if benchmark is not None and not folders and pretrained is None:
        from flexmdm.cli.benchmark import benchmark as score_samples

        if asked.samples is not None:
            of_runs = ("num", *_SAMPLING, "batch_size", *_OF_TASKS, "page", "seed", "device")
            _refuse(given, of_runs, "for runs, and --samples are scored as they are")
        shared.check_writable(json)
        score_samples(benchmark, asked.samples, asked.data, asked.split, json, asked.workers)
        return
    if asked.samples is not None:
        raise ValueError("--samples are scored on their own, with --benchmark and without a run")
    if benchmark is not None:
        from flexmdm.cli.benchmark import check

        check(benchmark, asked.data, asked.page)
        _refuse(given, _OF_TASKS, "for what a run was trained on, and --benchmark measures it on other problems")
    else:
        _refuse(given, _OF_BENCHMARKS, "for --benchmark, and there is none")
    names = _names(folders, pretrained)
    shared.check_writable(json, asked.page)
    loaded = {name: shared.load(one, pretrained, asked.device, asked.sampler) for name, one in names.items()}
    paths = {name: folder or pretrained for name, folder in names.items()}
    given = {"seed": 0} | {name: given[name] for name in given if name not in ("benchmark", "json", "device")}
    if benchmark is not None:
        from flexmdm.cli.benchmark import compete

        given.setdefault("steps", [64])
        compete(benchmark, loaded, paths, json=json, **given)
        return

    def write(results: Iterable[tuple[str, dict[str, Any]]]) -> None:
        from flexmdm.reports.answers import write_json

        rows = [{"run": paths[name], **figures} for name, figures in results]
        if json is not None:
            write_json(json, rows[0] if len(rows) == 1 else rows)

    tasks = {run: task.name for run, (task, _) in loaded.items()}
    if len(set(tasks.values())) > 1:
        learned = ", ".join(f"{run} on {task}" for run, task in tasks.items())
        raise ValueError(
            f"these runs were trained on different tasks ({learned}): evaluate those of one task at a time"
        )
    task = next(iter(tasks.values()))
    measure, of_it, how = _MEASURES.get(task, _BY_LIKELIHOOD)
    if task not in _MEASURES:
        from flexmdm.sweeps.registry import benchmark_for

        if (other := benchmark_for(task, reads_files=True)) is not None:
            raise ValueError(f"{', '.join(loaded)}: a run on {task} is measured by --benchmark {other} --data FOLDER")
    others = [name for name in given if name not in ("seed", *of_it)]
    _refuse(given, others, f"a run on {task} is measured by {how}")
    measure(loaded, write, **given)


Runs = dict[str, tuple[Any, Any]]  # tasks and models by name
Writer = Callable[[Iterable[tuple[str, dict[str, Any]]]], None]  # takes the name and the figures of each result


def by_likelihood(runs: Runs, write: Writer, seed: int, likelihoods: int = 200) -> None:
    """Measure the likelihood of held-out sequences, in bits, and print it."""
    from rich.console import Console

    from flexmdm.evaluation.intervals import by_name
    from flexmdm.tasks.likelihoods import bits

    if likelihoods == 0:
        raise ValueError("--likelihoods 0 leaves nothing to measure of these runs: leave it out")
    rows = []
    for name, (task, model) in runs.items():
        found = bits(model, task, task.validation.some(likelihoods), seed=seed)
        each = found.per_token
        Console().print(
            f"{name}: {each.value:.2f} ± {each.standard_error:.2f} bits per token, by the likelihood of "
            f"{found.sequences} held-out sequences",
            highlight=False,
        )
        figures = {f"bits_{part}": asdict(getattr(found, part)) for part in ("per_sequence", "per_token")}
        rows.append((name, by_name({"likelihood_num": found.sequences, **figures})))
    write(rows)


def by_paths(
    runs: Runs, write: Writer, subgoals: Sequence[int] = (7,), num: int = 500, steps: Sequence[int] = (), **more: Any
) -> None:
    """Measure how many of the paths through a maze are right, and print it."""
    from flexmdm.reports import maze as report

    if len(runs) > 1:
        raise ValueError(f"runs on mazes are evaluated one by one, and these are {len(runs)}: give one")
    if len(steps) > 1:
        raise ValueError("a maze is evaluated with one number of steps at a time")
    ((name, (task, model)),) = runs.items()
    more |= {"steps": steps[0]} if steps else {}
    scores = report.evaluate(task, model, subgoals, num, **more)
    write((name, score.to_dict()) for score in scores)


def by_samples(runs: Runs, write: Writer, num: int = 500, steps: Sequence[int] = (), **more: Any) -> None:
    """Measure texts that were sampled, and the likelihood of held-out ones, and print a report."""
    from flexmdm.generation.defaults import STEPS
    from flexmdm.reports import text as report

    pipelines = {name: task.pipeline(model) for name, (task, model) in runs.items()}
    more |= {"command": shlex.join(["flexmdm", *sys.argv[1:]])}
    more |= {"keep": lambda rows: write((row["model"], row) for row in rows)}
    report.evaluate(pipelines, steps or [STEPS], num, **more)


# Of each task: what measures its runs, the options that it takes, and how. All other tasks are measured by likelihood.
_DRAWN = ("num", *_SAMPLING)
_MEASURES: dict[str, tuple[Callable[..., None], tuple[str, ...], str]] = {
    WRITES: (by_samples, (*_DRAWN, "reference", "likelihoods", "page"), "its samples and its likelihood"),
    PLANS: (by_paths, (*_DRAWN, "subgoals"), "the paths that it finds"),
}
_BY_LIKELIHOOD = (
    by_likelihood,
    ("likelihoods",),
    "the likelihood of held-out sequences (--likelihoods of them), and no samples are drawn",
)


def _refuse(given: options.Given, names: Iterable[str], why: str) -> None:
    """Raise if one of some options was given, as it would change nothing."""
    found = [f"--{name.replace('_', '-')}" for name in names if name in given]
    if found:
        raise ValueError(f"{', '.join(found)}: {why}; leave that out")


def _runs_and_steps(arguments: list[str], steps: str | None) -> tuple[list[str], list[int]]:
    """Return the runs and the steps; numbers among the runs belong to --steps, as in --steps 16 64 256."""
    folders = [one for one in arguments if not one.isdigit() or Path(one).exists()]
    text = ",".join([*([steps] if steps else []), *(one for one in arguments if one not in folders)])
    return folders, _numbers(text, "--steps", "16,64,256") if text else []


def _names(folders: list[str], pretrained: str | None) -> dict[str, str | None]:
    """Return the folders by name: that of the folder, or all of its path if two have the same."""
    if pretrained is not None or not folders:
        return {pretrained or "": folders[0] if folders else None}
    short = [Path(folder).name for folder in folders]
    return {name if short.count(name) == 1 else folder: folder for name, folder in zip(short, folders, strict=True)}
