"""`flexmdm train`: train a model on a task, or go on with a run; and what `flexmdm retrofit` begins with too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from flexmdm.cli import options, shared
from flexmdm.cli.options import Given, Options
from flexmdm.tasks.registry import DEFAULT_TASK, PRETRAINED, settings_class, task_names, task_of
from flexmdm.training.recipe import RUN_FILE, Network, Recipe

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

Out = Annotated[Path | None, typer.Option(help="Folder of the run.", file_okay=False)]
Config = Annotated[
    Path | None,
    typer.Option(help="TOML file with [task], [network], [recipe], [interpolant].", exists=True, dir_okay=False),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the latest whole checkpoint of --out.")]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        help="Time to train for, instead of --steps: as many steps as fit, and the learning rate follows the clock. "
        "With --resume training ends at whichever comes first.",
    ),
]
# Settings of a new network; one that starts from a base has those of the base.
OF_NEW_NETWORKS = ("hidden", "layers", "heads", "condition", "dropout", "clock", "neighbours", "architecture")
_OF_ONE_RUN = ("model", "tokenizer", "vocabulary", "contents", "longest")
# The paper's transfer recipe; a GPU has four sequences per pass, so that sixteen have its batch of 64.
_PAPER = {
    "network": {"lora_rank": 128, "lora_alpha": 128, "lora_dropout": 0.1, "groups": 4, "base_dtype": "bfloat16"},
    "recipe": {
        "steps": 200_000, "batch_size": 4, "learning_rate": 1e-4, "weight_decay": 0.1, "beta2": 0.999,
        "schedule": "restarts", "warmup": 1000, "ema": 0.9999, "eval_every": 2000, "save_every": 1000,
        "gradient_checkpointing": True, "dtype": "bfloat16",
    },
}  # fmt: skip


def settings(names: Callable[[], Iterable[str]], **changes: Any) -> tuple[Options, Options, Options]:
    """Return the options of the settings of tasks, of `Network` and of `Recipe`; ``changes`` are of `Options`."""
    return (
        Options(lambda: {name: settings_class(name) for name in names()}, "Task", **changes),
        Options(Network, "Network", **changes),
        Options(Recipe, "Recipe", **changes),
    )


# How the fields are given that have no option of their own.
_SPELLINGS = {"data": "a file", "held_out_data": "--held-out", "size": "--size", "model": "--model"}
_Task, _Network, _Recipe = settings(task_names)


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
    out: Out = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="Task to learn: text, sft (prompts and answers), code (gaps in functions), or maze. [default: text]"
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model: flexmdm, or the baseline mdm. [default: flexmdm]")] = None,
    config: Config = None,
    resume: Resume = False,
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
    minutes: Minutes = None,
    log: Annotated[
        list[str] | None, typer.Option(help="Further logs: tensorboard, trackio or wandb; repeat for several.")
    ] = None,
    device: shared.Device = None,
    of_task: Annotated[Given, _Task],
    network: Annotated[Given, _Network],
    recipe: Annotated[Given, _Recipe],
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
    from flexmdm.tasks.models import FLEXMDM, inserts

    start = absolute(start)
    run = resumed(out, start, config) if resume else RunConfig.from_dict(_configuration(config, start))
    asked: dict[str, Any] = {"name": task, "model": model, "data": data, **of_task, **share_or_file(held_out)}
    asked = {key: value for key, value in asked.items() if value is not None}
    stored = {**({"name": DEFAULT_TASK} if data else {}), **run.task, **asked}
    if "name" not in stored:
        raise ValueError("what to learn? Give a file, or --task maze, or a --config that says it")
    name: str = stored["name"]
    options.check_task_options(name, asked, _SPELLINGS)
    if size is not None and options.has_setting(name, "size"):
        stored["size"], size = _cells(size), None
    if start is not None and not resume:
        of_new = [f"--{key}" for key in OF_NEW_NETWORKS if key in network] + (["--size"] if size else [])
        if of_new:
            raise ValueError(f"{', '.join(of_new)} is for a new network: with --from it is that of {start}")
        if config is None:
            run = RunConfig.from_dict({**defaults(start), "task": {}})
        if options.has_setting(name, "tokenizer"):
            stored["tokenizer"] = asked.get("tokenizer", start)
    elif not resume and config is None and not options.has_setting(name, "size"):
        run = _sized(run, size or "tiny")
    elif size is not None:
        raise ValueError("--size is for a new run without a --config: change the numbers of [network] there")
    network |= {"base": start} if start is not None else {}
    run = changed(run, network, recipe, resume, minutes)
    if start is not None and not resume:
        from flexmdm.backbones.bases import brings

        theirs = check_base(run)
        framed = brings(theirs)["framed"]
        if options.has_setting(name, "before"):
            task_then = theirs.get("task") or {}
            stored = {key: task_then[key] for key in ("before", "behind") if key in task_then} | stored
        if options.has_setting(name, "framed") and inserts(stored.get("model", FLEXMDM)):
            stored = {"framed": framed, **stored}
    run = replace(run, task=task_of(stored).to_dict())
    if not resume and model is not None and not inserts(model):
        run = _of_baseline(run)
    if dry_run:
        from flexmdm.runs.planning import dry_run as plan

        return plan(run, device, None if resume else minutes)
    from flexmdm.runs import train as training

    training.train(run, cast(Path, out), resume, minutes, device, log)
    return None


def _configuration(file: Path | None, base: str | None) -> dict[str, Any]:
    """Return the tables of a configuration file, without what a base brings with it: its tokens and its network."""
    from flexmdm.runs.config import read_config_file

    stored: dict[str, Any] = {"task": {}, **(read_config_file(file) if file else {})}
    if base is not None:
        brought = {"task": ("tokenizer", "vocabulary"), "network": OF_NEW_NETWORKS}
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


def is_run(base: str) -> bool:
    """Return whether a base is the folder of a run."""
    return (Path(base) / RUN_FILE).is_file()


def defaults(base: str, adapters: bool = False) -> dict[str, Any]:
    """Return the settings to start from a base with: those of a run; for weights of ours alone the recipe of a tiny
    network, for any other base the paper's.

    Muon is for the network's own matrices: adapters get AdamW, at a rate for it.
    """
    from flexmdm.runs.config import RunConfig
    from flexmdm.tasks.text.sizes import SIZES

    if not is_run(base):
        return {"recipe": asdict(SIZES["tiny"][1])} if shared.trained_on(base) else _PAPER
    run = RunConfig.read(Path(base)).to_dict()
    task = {key: value for key, value in run["task"].items() if key not in _OF_ONE_RUN}
    muon = run["recipe"]["optimizer"] == "muon"
    recipe = run["recipe"] | ({"optimizer": "adamw", "learning_rate": 1e-3} if adapters and muon else {})
    network = {"insertion_head": run["network"]["insertion_head"]}
    return {"task": task, "network": network, "recipe": recipe, "interpolant": run["interpolant"]}


def absolute(base: str | None) -> str | None:
    """Return a folder, or weights of the package, as they are found from anywhere; a name on the Hub as it is."""
    if not base:
        return base
    folder = Path(base) if Path(base).exists() else PRETRAINED / base
    return str(folder.resolve()) if folder.exists() else base


def resumed(out: Path | None, base: str | None, config: Path | None) -> RunConfig:
    """Return the configuration of a run that goes on; raise if there is none, or if it began with another base."""
    from flexmdm.runs.config import RunConfig

    if out is None or not out.is_dir():
        raise ValueError(f"{out} is not a run: there is no such folder")
    run = RunConfig.read(out)
    if base is not None and base != absolute(run.network.base):
        raise ValueError(
            f"the run was started from {run.network.base}, not from {base}: leave it out, or begin a new run"
        )
    if config is not None:
        typer.echo(f"a run goes on with its own configuration: {config} is not read again", err=True)
    return run


def check_base(run: RunConfig) -> dict[str, Any]:
    """Raise if a run cannot start from its base, before anything is loaded or prepared; return its config.json."""
    from flexmdm.backbones.bases import check_base

    network = run.network
    return check_base(network.base or "", network.mask_id, network.base_dtype == "4-bit", network.lora is not None)


def changed(run: RunConfig, network: Given, recipe: Given, resume: bool, minutes: float | None) -> RunConfig:
    """Return a run with the settings that were given; raise if a new one is to be of so many steps and of some time."""
    new = replace(run.recipe, **recipe)
    if not resume and "steps" in recipe:
        if minutes is not None:
            raise ValueError("--steps or --minutes? A new run has as many steps as fit in its --minutes: leave one out")
        if new.warmup * 5 > new.steps:
            new = replace(new, warmup=new.steps // 10)  # leaves most of the steps that were asked for
    return replace(run, network=replace(run.network, **network), recipe=new)


def share_or_file(text: str | None) -> dict[str, Any]:
    """Return the settings of ``--held-out``: '0.1' is a share of the documents, anything else a file."""
    if text is None:
        return {}
    try:
        return {"held_out": float(text), "held_out_data": []}
    except ValueError:
        return {"held_out_data": [text]}
