"""`flexmdm train`: train a model on a task, or go on with a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from flexmdm.cli import options, shared, starting
from flexmdm.tasks.registry import DEFAULT_TASK, task_names, task_of

if TYPE_CHECKING:
    from flexmdm.runs.config import RunConfig

EXAMPLES = shared.examples("""
`flexmdm train names.txt --out runs/names`: a model of the lines of a file
`flexmdm train articles.jsonl.gz --field text --paragraphs --size small --out runs/articles`: of paragraphs
`flexmdm train molecules.csv --field SMILES --dry-run`: what it would do, and how long it would take
`flexmdm train questions.jsonl --task sft --out runs/answers`: answers to prompts, which stay fixed
`flexmdm train questions.jsonl --task sft --from runs/text --out runs/answers`: by a model that can write already
`flexmdm train hf:OWNER/NAME --task sft --format chat --tokenizer OWNER/MODEL --dry-run`: with a chat template
`flexmdm train stdlib --task code --max-length 512 --out runs/code`: gaps in functions of the standard library
`flexmdm train hf:OWNER/NAME/CONFIGURATION --task code --field code --out runs/code`: of a data set
`flexmdm train --task maze --size 11 --subgoals 2-6 --minutes 3 --out runs/maze11`: a model in three minutes
`flexmdm train --config configs/maze41.toml --out runs/maze41`: an experiment of the paper
`flexmdm train --config configs/maze41.toml --model mdm --steps 3200 --out runs/maze41-mdm`: its baseline
`flexmdm train --out runs/maze41 --resume`: go on after an interruption, exactly where it was
`torchrun --nproc-per-node 4 $(which flexmdm) train --config configs/maze41.toml --out runs/maze41`: four GPUs
""")

# How the fields are given that have no option of their own.
_SPELLINGS = {"data": "a file", "held_out_data": "--held-out", "size": "--size", "model": "--model"}
_Task, _Network, _Recipe = starting.settings(task_names)


@options.Command
def train(
    *,
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files (.txt, .jsonl, .csv, .parquet, .fasta, also .gz or .zst), folders of them, or hf:NAME of a "
            "data set; code: also .py, or stdlib, the functions of the installed standard library."
        ),
    ] = None,
    out: starting.Out = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="Task to learn: text, sft (prompts and answers), code (gaps in functions), or maze. [default: text]"
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model: flexmdm, or the baseline mdm. [default: flexmdm]")] = None,
    config: starting.Config = None,
    resume: starting.Resume = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and stop.")] = False,
    size: Annotated[
        str | None,
        typer.Option(
            help="Size of a new network: tiny, small, or base, the paper's (171M parameters with the 50,257 tokens of "
            "GPT-2, 106M with 8,192) [default: tiny]; maze: cells per side, odd [default: 41]."
        ),
    ] = None,
    held_out: Annotated[
        str | None,
        typer.Option(help="text, sft, code: Share of the documents to hold out, or a file. [default: 0.05]"),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            "--base",
            help="Model to start from: a run, text (it comes with flexmdm), or a base of `flexmdm retrofit`.",
        ),
    ] = None,
    minutes: starting.Minutes = None,
    log: Annotated[
        list[str] | None, typer.Option(help="Further logs: tensorboard, trackio or wandb; repeat for several.")
    ] = None,
    device: shared.Device = None,
    of_task: Annotated[options.Given, _Task],
    network: Annotated[options.Given, _Network],
    recipe: Annotated[options.Given, _Recipe],
) -> None:
    """Train a model, with checkpoints, a log and loss curves in its folder.

    With --task sft the data are prompts with their answers: a prompt stays as it is, and the answer is what is learned.
    With --task code lines and spans are cut out of Python functions, and learned from what stands around them.
    """
    if out is None and not dry_run:
        raise typer.BadParameter("say where the run goes: --out runs/NAME")
    if resume and out is None:
        raise typer.BadParameter("say which run to go on with: --out runs/NAME --resume")
    from flexmdm.runs.config import RunConfig
    from flexmdm.tasks.models import inserts

    start = starting.absolute(start)
    run = starting.resumed(out, start, config) if resume else RunConfig.from_dict(_configuration(config, start))
    asked: dict[str, Any] = {"name": task, "model": model, "data": data, **of_task, **starting.share_or_file(held_out)}
    asked = {key: value for key, value in asked.items() if value is not None}
    stored = {**({"name": DEFAULT_TASK} if data else {}), **run.task, **asked}
    if "name" not in stored:
        raise ValueError("what to learn? Give a file, or --task maze, or a --config that says it")
    name: str = stored["name"]
    options.check_task_options(name, asked, _SPELLINGS)
    if size is not None and options.has_setting(name, "size"):
        stored["size"], size = _cells(size), None
    if start is not None and not resume:
        of_new = [f"--{key}" for key in starting.OF_NEW_NETWORKS if key in network] + (["--size"] if size else [])
        if of_new:
            raise ValueError(f"{', '.join(of_new)} is for a new network: with --from it is that of {start}")
        if config is None:
            run = RunConfig.from_dict({**starting.defaults(start), "task": {}})
        if options.has_setting(name, "tokenizer"):
            stored["tokenizer"] = asked.get("tokenizer", start)
    elif not resume and config is None and not options.has_setting(name, "size"):
        run = _sized(run, size or "tiny")
    elif size is not None:
        raise ValueError("--size is for a new run without a --config: change the numbers of [network] there")
    network |= {"base": start} if start is not None else {}
    run = replace(starting.changed(run, network, recipe, resume, minutes), task=task_of(stored).to_dict())
    if start is not None and not resume:
        starting.check_base(run)
    if not resume and model is not None and not inserts(model):
        run = _of_baseline(run)
    if dry_run:
        from flexmdm.runs.planning import dry_run as plan

        return plan(run, device, minutes)
    from flexmdm.runs.train import train as start_training

    start_training(run, cast(Path, out), resume, minutes, device, log)
    return None


def _configuration(file: Path | None, base: str | None) -> dict[str, Any]:
    """Return the tables of a configuration file, without what a base brings with it: its tokens and its network."""
    from flexmdm.runs.config import read_config_file

    stored: dict[str, Any] = {"task": {}, **(read_config_file(file) if file else {})}
    if base is not None:
        brought = {"task": ("tokenizer", "vocabulary"), "network": starting.OF_NEW_NETWORKS}
        unused = [(part, key) for part, keys in brought.items() for key in keys if key in stored.get(part, {})]
        for part, key in unused:
            del stored[part][key]
        if unused:
            typer.echo(f"{base} has its own {', '.join(key for _, key in unused)}: not those of {file}", err=True)
    return stored


def _sized(run: RunConfig, size: str) -> RunConfig:
    """Return a run with the network and the recipe of a size, by its name."""
    from flexmdm.tasks.text.sizes import SIZES

    if size not in SIZES:
        raise ValueError(f"--size is one of {', '.join(SIZES)}, or of a maze its cells per side; got {size!r}")
    network, recipe = SIZES[size]
    return replace(run, network=network, recipe=recipe)


def _of_baseline(run: RunConfig) -> RunConfig:
    """Return a run with linear schedules, for an MDM instead of the FlexMDM that a configuration is for.

    Where masks are not inserted, nothing is gained by revealing them late.
    """
    from flexmdm.interpolants import FlexMDMInterpolant

    linear = FlexMDMInterpolant().to_dict()
    if FlexMDMInterpolant.from_dict(run.interpolant).to_dict() != linear:
        typer.echo("[interpolant] is for FlexMDM: this MDM gets linear schedules", err=True)
    return replace(run, interpolant=linear)


def _cells(text: str) -> int:
    """Return the number of cells per side of a maze."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--size is the number of cells per side of a maze, such as 41; got {text!r}") from None
