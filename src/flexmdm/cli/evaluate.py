"""`flexmdm eval`: how good is a run at its task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flexmdm.cli import shared

EXAMPLES = """
**Examples**

* `flexmdm eval runs/names --num 1000`: lengths, variety and likelihood of a text model

* `flexmdm eval runs/enwik8 runs/enwik8-mdm --num 1000 --steps 16 64 256 --sampler tau --page report.html`: two models

* `flexmdm eval runs/maze41 --subgoals 2,7,12`: success on 500 held-out problems each, with the default sampler

* `flexmdm eval runs/maze41 --subgoals 7 --sampler tau --steps 256 --json tau.json`: as in the paper

* `flexmdm eval --pretrained maze41 --subgoals 7 --num 200`: the weights that come with flexmdm

* `flexmdm eval runs/flex runs/mdm --benchmark gsm8k --data FOLDER --steps 64 128 256 --json OUT --page PNG`: accuracy

* `flexmdm eval runs/code --benchmark humaneval-infill --split single-line --data FOLDER --json OUT`: pass@1

* `flexmdm eval --benchmark humaneval-infill --split single-line --samples FILE --data FOLDER --json OUT`: fillings
"""


def evaluate(
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
    sampler: Annotated[
        str | None,
        typer.Option(
            help=f"{shared.SAMPLERS} [default: {shared.DEFAULT_SAMPLER}; --benchmark: adaptive, gsm8k of an MDM: "
            "low_confidence]"
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(min=0.0, help="0 takes the most probable token. [default: 1; maze, --benchmark: 0]"),
    ] = None,
    top_p: shared.TopP = None,
    confidence: Annotated[
        str | None,
        typer.Option(help=f"{shared.REVEALED} [default: of spaced random; of adaptive, so of --benchmark, top_prob]"),
    ] = None,
    window: Annotated[
        str | None, typer.Option(help=f"{shared.LEFTMOST} [default: among all; --benchmark: 5,64]")
    ] = None,
    block: Annotated[
        int | None,
        typer.Option(
            min=1, help="low_confidence: tokens per block, from the left. [default: all in one; --benchmark: 32]"
        ),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="--benchmark: items at a time. [default: 64]")] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="humaneval-infill: programs at a time. [default: one for each core we may use]"),
    ] = None,
    subgoals: Annotated[
        str | None, typer.Option(help="maze: how many subgoals; several with commas. [default: 7]")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="text: causal language model for perplexities, by path or name; none for no perplexity. "
            "[default: auto]"
        ),
    ] = None,
    likelihoods: Annotated[
        int | None,
        typer.Option(min=0, help="text: held-out sequences for the likelihood; 0 leaves it out. [default: 200]"),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="text: also write a page with figures; --benchmark: a figure, .png or .svg.", dir_okay=False),
    ] = None,
    benchmark: Annotated[
        str | None, typer.Option(help="humaneval-infill or gsm8k: of runs, or to score --samples.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Of a folder: single-line, multi-line, random-span, random-span-light; gsm8k: test, train."),
    ] = None,
    samples: Annotated[
        Path | None,
        typer.Option(help="A .jsonl with task_id and completion; gsm8k: number and generation.", dir_okay=False),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the benchmark's official files, or one file.")] = None,
    json: Annotated[
        Path | None,
        typer.Option(
            help="Also write the figures to this file: an object for one result, a list for several (of --subgoals, "
            "--steps or runs), each with its run; --benchmark: an object with a list, results. What a --benchmark has "
            "generated is kept beside it: after an interruption (Ctrl-C) the same command goes on.",
            dir_okay=False,
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of generation. [default: 0]")] = None,
    device: shared.Device = None,
) -> None:
    """Measure trained models on held-out data, with 95% intervals."""
    folders, counts = _runs_and_steps(runs or [], steps)
    of_tasks: dict[str, Any] = {"--subgoals": subgoals, "--reference": reference, "--likelihoods": likelihoods}
    of_benchmarks = {"--data": data, "--split": split, "--batch-size": batch_size, "--workers": workers}
    if benchmark == "gsm8k":
        _refuse({"--workers": workers}, "for humaneval-infill, and no programs are run for gsm8k")
    if benchmark is not None and not folders and pretrained is None:
        from flexmdm.cli.benchmark import benchmark as score_samples

        of_runs: dict[str, Any] = {
            "--num": num, "--steps": counts or None, "--sampler": sampler, "--temperature": temperature, "--page": page,
            "--top-p": top_p, "--confidence": confidence, "--window": window, "--block": block,
            "--batch-size": batch_size, **of_tasks, "--seed": seed, "--device": device,
        }  # fmt: skip
        if samples is not None:
            _refuse(of_runs, "for runs, and --samples are scored as they are")
        shared.check_writable(json)
        score_samples(benchmark, samples, data, split, json, workers)
        return
    if samples is not None:
        raise ValueError("--samples are scored on their own, with --benchmark and without a run")
    if benchmark is not None:
        from flexmdm.cli.benchmark import check

        check(benchmark, data, page)
        _refuse(of_tasks, "for what a run was trained on, and --benchmark measures it on other problems")
    else:
        _refuse(of_benchmarks, "for --benchmark, and there is none")
    options = shared.options(sampler, None, temperature, top_p, confidence, window, block)
    subgoal_counts = _numbers("7" if subgoals is None else subgoals)
    names = _names(folders, pretrained)
    shared.check_writable(json, page)
    loaded = {name: shared.load(folder, pretrained, device, sampler) for name, folder in names.items()}
    paths = {name: folder or pretrained for name, folder in names.items()}
    if benchmark is not None:
        from flexmdm.cli.benchmark import compete

        options |= {"seed": seed or 0, "batch_size": batch_size, "workers": workers}
        compete(benchmark, loaded, data, split, counts or [64], num, json, page, paths=paths, **options)
        return
    from flexmdm.cli import dispatch

    def write(results: list[tuple[str, dict[str, Any]]]) -> None:
        _write(json, [{"run": paths[name], **figures} for name, figures in results])

    dispatch.evaluate(
        loaded,
        dispatch.Evaluation(num, counts, seed or 0, subgoal_counts, reference, likelihoods, page, options, write),
    )


def _refuse(options: dict[str, Any], why: str) -> None:
    """Raise if an option was given that would change nothing."""
    given = [option for option, value in options.items() if value is not None]
    if given:
        raise ValueError(f"{', '.join(given)}: {why}; leave that out")


def _write(file: Path | None, rows: list[dict[str, Any]]) -> None:
    from flexmdm.reports.answers import write_json

    if file is not None:
        write_json(file, rows[0] if len(rows) == 1 else rows)


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


def _numbers(text: str, option: str = "--subgoals", example: str = "2,7,12") -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise ValueError(f"{option} is a number or several with commas, such as {example}; got {text!r}")
    return numbers
