"""`flexmdm train`: train a model on a task, or go on with a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from flexmdm.cli import starting

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

_FILES = ("text", "sft", "code")
_TASKS = (*_FILES, "maze")
_OPTIONS = {  # of a task: how they are given, and which tasks have them; a test knows that it is so
    "data": ("a file", _FILES),
    "field": ("--field", ("text", "code")),
    "prompt_field": ("--prompt-field", ("sft",)),
    "answer_field": ("--answer-field", ("sft",)),
    "format": ("--format", ("sft",)),
    "paragraphs": ("--paragraphs", ("text",)),
    "tokenizer": ("--tokenizer", _FILES),
    "vocabulary": ("--vocab-size", _FILES),
    "max_length": ("--max-length", _FILES),
    "long": ("--long", ("text", "code")),
    "held_out_data": ("--held-out", _FILES),
    "skip_bad": ("--skip-bad", _FILES),
    "mixture": ("--mixture", ("text", "code")),
    "subgoals": ("--subgoals", ("maze",)),
    "pairs": ("--pairs", ("maze",)),
}


def train(
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files (.txt, .jsonl, .csv, .parquet, .fasta, also .gz or .zst), folders of them, or hf:NAME of a "
            "data set; code: also .py, or stdlib, the functions of the installed standard library."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.", file_okay=False)] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="What to learn: text, sft (prompts and answers), code (gaps in functions), or maze. [default: text]"
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="flexmdm, or the baseline mdm. [default: flexmdm]")] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with [task], [network], [recipe].", exists=True, dir_okay=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the latest whole checkpoint of --out.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and stop.")] = False,
    size: Annotated[
        str | None,
        typer.Option(
            help="text, sft, code: tiny, small, or base, the paper's (171M parameters with the 50,257 tokens of GPT-2, "
            "106M with 8,192) [default: tiny]; maze: cells per side, odd [default: 41]."
        ),
    ] = None,
    field: Annotated[
        str | None, typer.Option(help="text, code: the field or column to read. [default: text, code]")
    ] = None,
    prompt_field: Annotated[
        str | None,
        typer.Option(help="sft: the field of the prompt. [default: prompt, question, instruction, messages]"),
    ] = None,
    answer_field: Annotated[
        str | None, typer.Option(help="sft: the field of the answer. [default: answer, completion, response, output]")
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            help="sft: how a prompt is written: plain (a line of its own), a text with {prompt} in it, or chat, the "
            "chat template of the tokenizer. [default: plain]"
        ),
    ] = None,
    paragraphs: Annotated[
        bool | None, typer.Option("--paragraphs", help="text: split at blank lines instead of line by line.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="text, sft, code: characters, bytes, bpe, or a Hugging Face tokenizer. "
            "[default: by the data; code: bpe]"
        ),
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option("--vocab-size", min=2, help="text, sft, code: tokens of a BPE.")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="text, sft, code: tokens of a sequence at most. [default: 256]")
    ] = None,
    long: Annotated[str | None, typer.Option(help="text, code: split or drop what is longer. [default: split]")] = None,
    held_out: Annotated[
        str | None, typer.Option(help="text, sft, code: share of the documents to hold out, or a file. [default: 0.05]")
    ] = None,
    skip_bad: Annotated[
        bool | None, typer.Option("--skip-bad", help="text, sft, code: count bad lines and go on.")
    ] = None,
    mixture: Annotated[
        str | None,
        typer.Option(
            help="text: weights of templates, such as unconditional=1 or prefix=1,spans=2; code: of what is cut out, "
            "such as line=2,lines=1,span=1. [default: all]"
        ),
    ] = None,
    subgoals: Annotated[
        str | None, typer.Option(help="maze: how many subgoals, from-to or one number. [default: 2-12]")
    ] = None,
    pairs: Annotated[int | None, typer.Option(help="maze: start-goal pairs. [default: 15000]")] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", help="Start from this: a run, text (it comes with flexmdm), or a base of `flexmdm retrofit`."
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Train for about so long instead.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Sequences per pass (and device).")] = None,
    accumulation: Annotated[int | None, typer.Option(min=1, help="Passes per optimizer step.")] = None,
    learning_rate: Annotated[float | None, typer.Option("--learning-rate", "--lr", help="At its highest.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="adamw, or muon.")] = None,
    schedule: Annotated[str | None, typer.Option(help="cosine, restarts, constant or trapezoid.")] = None,
    shard: Annotated[
        bool | None, typer.Option("--shard", help="Under torchrun: cut the weights over the processes (FSDP).")
    ] = None,
    targets: Annotated[str | None, typer.Option(help="marginalised, or sampled.")] = None,
    hidden: Annotated[int | None, typer.Option(min=8, help="Width of the network.")] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Its blocks.")] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="Its attention heads.")] = None,
    architecture: Annotated[
        str | None, typer.Option(help="dit, or llada for a network in the shape of LLaDA. [default: dit]")
    ] = None,
    dropout: Annotated[float | None, typer.Option(min=0.0, max=0.9, help="Its dropout.")] = None,
    save_every: Annotated[int | None, typer.Option(min=1, help="Steps between checkpoints.")] = None,
    eval_every: Annotated[int | None, typer.Option(min=1, help="Steps between evaluations.")] = None,
    log: Annotated[
        list[str] | None, typer.Option(help="Also log to tensorboard, trackio or wandb; repeat for several.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all randomness.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps. [default: what there is]")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, or bfloat16 for mixed precision.")] = None,
    compile: Annotated[bool | None, typer.Option("--compile", help="Compile the blocks of the network.")] = None,
) -> None:
    """Train a model, with checkpoints, a log and loss curves in its folder.

    With --task sft the data are prompts with their answers: a prompt stays as it is, and the answer is what is learned.
    With --task code lines and spans are cut out of Python functions, and learned from what stands around them.
    """
    if out is None and not dry_run:
        raise typer.BadParameter("say where the run goes: --out runs/NAME")
    if resume and out is None:
        raise typer.BadParameter("say which run to go on with: --out runs/NAME --resume")
    from flexmdm.runs.config import RunConfig, override, read_config_file

    start = starting.absolute(start)
    if resume:
        base = RunConfig.read(starting.existing(out))
        starting.check_resumed(base, start, config)
    else:
        base = RunConfig.from_dict({"task": {}, **(read_config_file(config) if config else {})})
    stored = {"name": "text" if data else None, **base.task}
    named = {
        "name": task, "model": model, "pairs": pairs, "subgoals": _span(subgoals), "data": data, "field": field,
        "paragraphs": paragraphs, "tokenizer": tokenizer, "vocabulary": vocabulary, "max_length": max_length,
        "prompt_field": prompt_field, "answer_field": answer_field, "format": format,
        "long": long, "skip_bad": skip_bad, "mixture": _weights(mixture), **share_or_file(held_out),
    }  # fmt: skip
    stored |= {key: value for key, value in named.items() if value is not None}
    if stored["name"] is None:
        raise ValueError("what to learn? Give a file, or --task maze, or a --config that says it")
    _check_options(stored["name"], [key for key, value in named.items() if value is not None])
    if stored["name"] == "maze" and size is not None:
        stored["size"], size = _number(size), None
    if start is not None and not resume and config is None:
        if size is not None:
            raise ValueError(f"--size is for a new network: with --from it is that of {start}")
        from flexmdm.backbones.bases import check_base

        check_base(start)  # before data is prepared
        theirs = starting.defaults(start)
        base = RunConfig.from_dict({"task": {}, **{part: theirs[part] for part in theirs if part != "task"}})
    elif stored["name"] in ("text", "sft", "code") and not resume and config is None:
        base = replace(base, **dict(zip(("network", "recipe"), _sized(size or "tiny"), strict=True)))
    elif size is not None:
        raise ValueError("--size is for a new run without a --config: change the numbers of [network] there")
    if start is not None and not resume and tokenizer is None and stored["name"] != "maze":
        stored["tokenizer"] = start
    sizes = {
        "hidden": hidden,
        "layers": layers,
        "heads": heads,
        "dropout": dropout,
        "architecture": architecture,
        "base": start,
    }
    network = override(base.network, sizes)
    changes = {
        "steps": steps, "batch_size": batch_size, "accumulation": accumulation, "learning_rate": learning_rate,
        "optimizer": optimizer, "schedule": schedule, "targets": targets, "save_every": save_every,
        "eval_every": eval_every, "seed": seed, "dtype": dtype, "compile": compile, "shard": shard,
    }  # fmt: skip
    recipe = override(base.recipe, changes)
    from flexmdm.tasks import task_of

    run = RunConfig(task_of(stored).to_dict(), network, recipe, base.interpolant)
    if not resume:
        run = starting.with_short_warmup(run, steps)
        run = starting.of_baseline(run) if model == "mdm" else run
    from flexmdm.runs import train as running

    if dry_run:
        running.dry_run(run, device=device)
        return
    running.train(run, cast(Path, out), resume, minutes, device, log)


def _check_options(task: str, given: list[str]) -> None:
    """Say which task an option is for, if it is not for this one."""
    for key in given:
        option, tasks = _OPTIONS.get(key, ("", _TASKS))
        if task in _TASKS and task not in tasks:
            raise ValueError(f"{option} is for --task {' or '.join(tasks)}, and this is {task}: leave it out")


def _sized(name: str) -> tuple[Any, Any]:
    from flexmdm.tasks.text.sizes import SIZES

    if name not in SIZES:
        raise ValueError(f"--size is one of {', '.join(SIZES)} for text, sft and code, got {name!r}")
    return SIZES[name]


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--size is the number of cells per side of a maze, such as 41; got {text!r}") from None


def share_or_file(text: str | None) -> dict[str, Any]:
    """'0.1' is a share of the documents, anything else a file."""
    if text is None:
        return {}
    try:
        return {"held_out": float(text), "held_out_data": []}
    except ValueError:
        return {"held_out_data": [text]}


def _weights(text: str | None) -> dict[str, float] | None:
    """'prefix=1,spans=2'"""
    if text is None:
        return None
    try:
        pairs = (part.split("=") for part in text.split(","))
        return {name.strip(): float(weight) for name, weight in pairs}
    except ValueError:
        raise ValueError(f"--mixture is a list such as unconditional=1,prefix=0.5; got {text!r}") from None


def _span(text: str | None) -> list[int] | None:
    """'2-12' is from 2 to 12, '7' is 7 only."""
    if text is None:
        return None
    try:
        low, _, high = text.partition("-")
        return [int(low), int(high or low)]
    except ValueError:
        raise ValueError(f"--subgoals is a number or a range such as 2-12, got {text!r}") from None
