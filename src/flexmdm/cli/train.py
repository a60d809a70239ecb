"""`flexmdm train`: train a model on a task, or go on with a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from flexmdm.cli import options, shared, starting
from flexmdm.tasks.registry import DEFAULT_TASK, task_of

EXAMPLES = """
**Examples**

* `flexmdm train names.txt --out runs/names`: a model of the lines of a file

* `flexmdm train articles.jsonl.gz --field text --paragraphs --size small --out runs/articles`: of paragraphs

* `flexmdm train molecules.csv --field SMILES --dry-run`: what it would do, and how long it would take

* `flexmdm train questions.jsonl --task sft --out runs/answers`: answers to prompts, which stay fixed

* `flexmdm train questions.jsonl --task sft --from runs/text --out runs/answers`: by a model that can write already

* `flexmdm train hf:OWNER/NAME --task sft --format chat --tokenizer OWNER/MODEL --dry-run`: with a chat template

* `flexmdm train stdlib --task code --max-length 512 --out runs/code`: gaps in functions of the standard library

* `flexmdm train hf:OWNER/NAME/CONFIGURATION --task code --field code --out runs/code`: of a data set

* `flexmdm train --task maze --size 11 --subgoals 2-6 --minutes 3 --out runs/maze11`: a model in three minutes

* `flexmdm train --config configs/maze41.toml --out runs/maze41`: an experiment of the paper

* `flexmdm train --config configs/maze41.toml --model mdm --steps 3200 --out runs/maze41-mdm`: its baseline

* `flexmdm train --out runs/maze41 --resume`: go on after an interruption, exactly where it was

* `torchrun --nproc-per-node 4 $(which flexmdm) train --config configs/maze41.toml --out runs/maze41`: four GPUs
"""

# How the fields are given that have no option of their own.
_SPELLINGS = {"data": "a file", "held_out_data": "--held-out", "size": "--size", "model": "--model"}


@options.with_settings()
def train(
    given: options.Given,
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
) -> None:
    """Train a model, with checkpoints, a log and loss curves in its folder.

    With --task sft the data are prompts with their answers: a prompt stays as it is, and the answer is what is learned.
    With --task code lines and spans are cut out of Python functions, and learned from what stands around them.
    """
    if out is None and not dry_run:
        raise typer.BadParameter("say where the run goes: --out runs/NAME")
    if resume and out is None:
        raise typer.BadParameter("say which run to go on with: --out runs/NAME --resume")
    from flexmdm.runs.config import RunConfig, read_config_file
    from flexmdm.tasks.models import inserts

    start = starting.absolute(start)
    if resume:
        run = RunConfig.read(starting.existing(out))
        starting.check_resumed(run, start, config)
    else:
        run = RunConfig.from_dict({"task": {}, **(read_config_file(config) if config else {})})
    asked: dict[str, Any] = {"name": task, "model": model, "data": data, **given["task"], **share_or_file(held_out)}
    asked = {key: value for key, value in asked.items() if value is not None}
    stored = {**({"name": DEFAULT_TASK} if data else {}), **run.task, **asked}
    if "name" not in stored:
        raise ValueError("what to learn? Give a file, or --task maze, or a --config that says it")
    name: str = stored["name"]
    options.check_task_options(name, asked, _SPELLINGS)
    if size is not None and options.has_setting(name, "size"):
        stored["size"], size = _cells(size), None
    fresh = not resume and config is None
    if fresh and start is not None:
        if size is not None:
            raise ValueError(f"--size is for a new network: with --from it is that of {start}")
        run = RunConfig.from_dict({**starting.defaults(start), "task": {}})
    elif fresh and not options.has_setting(name, "size"):
        run = starting.sized(run, size or "tiny")
    elif size is not None:
        raise ValueError("--size is for a new run without a --config: change the numbers of [network] there")
    if start is not None and not resume and options.has_setting(name, "tokenizer"):
        stored = {**stored, "tokenizer": asked.get("tokenizer", start)}
    if start is not None:
        given["network"]["base"] = start
    run = starting.changed(run, given, task_of(stored).to_dict(), resume)
    if start is not None and not resume:
        starting.check_base(run)
    if not resume and model is not None and not inserts(model):
        run = starting.of_baseline(run)
    if dry_run:
        from flexmdm.runs.planning import dry_run as plan

        plan(run, device=device)
        return
    from flexmdm.runs.train import train as start_training

    start_training(run, cast(Path, out), resume, minutes, device, log)


def _cells(text: str) -> int:
    """Return the number of cells per side of a maze."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--size is the number of cells per side of a maze, such as 41; got {text!r}") from None


def share_or_file(text: str | None) -> dict[str, Any]:
    """Return the settings of ``--held-out``: '0.1' is a share of the documents, anything else a file."""
    if text is None:
        return {}
    try:
        return {"held_out": float(text), "held_out_data": []}
    except ValueError:
        return {"held_out_data": [text]}
