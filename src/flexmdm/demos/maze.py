"""`flexmdm demo maze`: train FlexMDM and MDM on a small maze for the same time, compare them, and make a page of it."""

from __future__ import annotations

import json as json_format
import platform
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from flexmdm.demos.race import race
from flexmdm.reports.demo import Contender, Growth, grown, mean_of, page_of
from flexmdm.reports.tables import results_table
from flexmdm.runs.config import RunConfig
from flexmdm.sweeps.maze import plan
from flexmdm.tasks.loading import load_as
from flexmdm.tasks.maze.task import MazeTask
from flexmdm.tasks.models import FLEXMDM, MDM, TITLES
from flexmdm.tasks.pipeline import generated
from flexmdm.training.progress import LOG_FILE, read_log
from flexmdm.training.recipe import Network, Recipe

NETWORK = Network(hidden=128, layers=3, heads=4, condition=128, dropout=0.0)
RECIPE = Recipe(
    batch_size=128,
    optimizer="muon",
    learning_rate=7e-3,
    beta2=0.99,
    warmup=100,
    ema=0.995,
    eval_size=256,
    keep=1,
    log_every=10,
)
SAMPLERS = {"spaced": "spaced, the default", "low_confidence": "low_confidence, LLaDA's: the surest masks first"}
RESULTS_FILE, PAGE_FILE, CONFIG_FILE, RUNS = "results.json", "index.html", "recipe.toml", "runs"


def run(
    output: Path,
    minutes: float,
    size: int,
    subgoals: tuple[int, int],
    num: int,
    seed: int,
    json: Path | None = None,
    steps: int | None = None,
) -> None:
    """Train both models, measure them on held-out problems, and leave a page, the figures and the runs in a folder.

    There are ``num`` problems for each of three numbers of subgoals, from the fewest to the most of ``subgoals``. If
    ``steps`` are given, training takes so many instead of ``minutes``.
    """
    began = time.monotonic()
    console = Console()
    config = config_of(size, subgoals, seed)
    task = MazeTask.from_dict(config.task)
    counts = sorted({subgoals[0], sum(subgoals) // 2, subgoals[1]})
    for count in counts:
        task.problems(1, count)  # says so if there are none, before the work
    make_room(output, config)
    if json is not None:
        json.parent.mkdir(parents=True, exist_ok=True)
    train_both(output, config, minutes, steps, console)
    timings = {"training": time.monotonic() - began}
    contenders = [measure(output / RUNS / model, counts, num, seed) for model in TITLES]
    timings["evaluation"] = time.monotonic() - began - timings["training"]
    console.print(table_of(contenders, size))
    command = f"flexmdm demo maze --size {size} --subgoals {subgoals[0]}-{subgoals[1]} --seed {seed}"
    command += f" --minutes {minutes:g}" if steps is None else f" --steps {steps}"
    held_out = _held_out_lengths(task, counts)
    page = page_of(
        task.maze,
        contenders,
        growths_of(output, contenders, seed),
        held_out,
        longest=task.longest_path,
        training_paths=len(task.train),
        minutes=minutes if steps is None else max(c.seconds for c in contenders) / 60,
        facts=facts_of(config, task, contenders),
        command=command,
    )
    (output / PAGE_FILE).write_text(page, encoding="utf-8")
    timings["all"] = time.monotonic() - began
    report = report_of(config, contenders, command, mean_of(held_out), timings)
    for file in (output / RESULTS_FILE, *([json] if json else [])):
        file.write_text(json_format.dumps(report, indent=2) + "\n")
    console.print(f"Done in {timings['all'] / 60:.1f} minutes. All figures are in {output / RESULTS_FILE}; look at")
    console.print(f"  {(output / PAGE_FILE).resolve().as_uri()}", soft_wrap=True, highlight=False)


def config_of(size: int, subgoals: tuple[int, int], seed: int) -> RunConfig:
    """Return the configuration that both models are trained with."""
    return RunConfig(MazeTask(size=size, subgoals=subgoals).to_dict(), NETWORK, replace(RECIPE, seed=seed))


def make_room(output: Path, config: RunConfig) -> None:
    """Make a folder for the demo, without what an earlier demo left; anything else in its way is an error."""
    runs = [output / RUNS / model for model in TITLES]
    mine = [output / name for name in (RESULTS_FILE, PAGE_FILE, CONFIG_FILE)]
    found = [path for path in (*mine, *runs, *(folder.with_suffix(".txt") for folder in runs)) if path.exists()]
    if found and not _is_demo(output):
        raise ValueError(f"{found[0]} is not from an earlier demo and would be overwritten: choose another --output")
    (output / RUNS).mkdir(parents=True, exist_ok=True)
    (output / RESULTS_FILE).write_text('{"demo": "maze"}\n')  # so that it is known as a demo whenever it is interrupted
    for path in found[1:]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (output / CONFIG_FILE).write_text(toml_of(config))


def _is_demo(output: Path) -> bool:
    try:
        return json_format.loads((output / RESULTS_FILE).read_text())["demo"] == "maze"
    except (OSError, ValueError, KeyError, TypeError):
        return False


def toml_of(config: RunConfig) -> str:
    """Return a configuration as `flexmdm train --config` reads it; the model is left to ``--model``."""
    stored = config.to_dict()
    del stored["task"]["model"], stored["interpolant"]
    lines = ["# flexmdm train --config recipe.toml --model flexmdm --out runs/NAME"]
    for part, values in stored.items():
        said = {key: value for key, value in values.items() if value is not None}  # TOML has no word for nothing
        lines += ["", f"[{part}]", *(f"{key} = {json_format.dumps(value)}" for key, value in said.items())]
    return "\n".join(lines) + "\n"


def train_both(output: Path, config: RunConfig, minutes: float, steps: int | None, console: Console) -> None:
    """Train FlexMDM and MDM side by side."""
    option, length = ("--minutes", f"{minutes:g}") if steps is None else ("--steps", str(steps))
    size = config.task["size"]
    console.print(
        f"Training FlexMDM and MDM on a {size} x {size} maze: {length} {option[2:]}, side by side, one CPU core each"
    )
    shared = ["--config", str(output / CONFIG_FILE), "--device", "cpu", option, length]
    race(
        folders={title: output / RUNS / model for model, title in TITLES.items()},
        arguments={title: [*shared, "--model", model] for model, title in TITLES.items()},
        console=console,
        seconds=60 * minutes if steps is None else None,
    )


def measure(folder: Path, counts: Sequence[int], num: int, seed: int) -> Contender:
    """Let a run plan through held-out problems, by the sampler that suits it best."""
    task, model = load_as("maze", folder)
    log = read_log(folder / LOG_FILE)
    plans = [plan(task, model, count, num, seed=seed) for count in counts]
    score = plans[0].score
    return Contender(
        model=task.model,
        sampler=f"{SAMPLERS[score.sampler]}, {score.steps} steps, temperature {score.temperature:g}",
        parameters=model.count_parameters()["total"],
        steps=int(log[-1]["step"]),
        seconds=log[-1]["seconds"],
        log=log,
        plans=plans,
    )


def table_of(contenders: Sequence[Contender], size: int) -> Table:
    """Return a table of success with its 95% interval, for each number of subgoals and overall."""
    num = contenders[0].num // len(contenders[0].plans)
    title = f"Success on held-out problems of the {size} x {size} maze, {num:,} each, with 95% intervals"
    caption = "\n".join(f"{c.name}: {c.sampler}; {c.evaluations:.0f} evaluations per path" for c in contenders)
    table = results_table(title, (), ("problems", *(c.name for c in contenders)), caption, box=SIMPLE_HEAD)
    for problems in contenders[0].rates:
        table.add_row(problems, *(c.rates[problems].percent(each=True) for c in contenders))
    table.rows[-2].end_section, table.rows[-1].style = True, "bold"
    return table


def facts_of(config: RunConfig, task: MazeTask, contenders: Sequence[Contender]) -> dict[str, str]:
    """Return what was run, for the page."""
    network, recipe = config.network, config.recipe
    low, high = task.subgoals
    return {
        "maze": f"{task.size} x {task.size}, {len(task.maze.tokens)} open cells; {low} to {high} subgoals",
        "paths": f"{len(task.train):,} to learn from, {len(task.validation):,} held out (no start-goal pair in both)",
        "network": f"{network.layers} blocks, {network.hidden} wide, {network.heads} heads; "
        + ", ".join(f"{c.name} {c.parameters / 1e6:.2f}M parameters" for c in contenders),
        "recipe": f"{recipe.optimizer}, learning rate {recipe.learning_rate:g}, batches of {recipe.batch_size}; "
        "recipe.toml has all of it",
        "steps": ", ".join(f"{c.name} {c.steps:,} in {c.seconds:.0f} s" for c in contenders),
        "evaluations": ", ".join(f"{c.name} {c.evaluations:.0f} per path" for c in contenders),
        "seed": str(recipe.seed),
        "versions": f"flexmdm {version('flexmdm')}, torch {torch.__version__}, Python {platform.python_version()}",
    }


def growths_of(output: Path, contenders: Sequence[Contender], seed: int) -> dict[str, Growth]:
    """Return how both models answer one problem: one whose path by FlexMDM is long, and right if any is."""
    plans = contenders[0].plans[len(contenders[0].plans) // 2]
    simple = [len(set(path)) == len(path) for path in plans.paths]
    number = max(range(len(simple)), key=lambda n: (plans.success[n], simple[n], len(plans.paths[n])))
    problem = plans.problems[number]
    traces = {}
    for model_name in TITLES:
        task, model = load_as("maze", output / RUNS / model_name)
        prompts = [task.prompt(problem)]
        # As the first sequence has this number, it gets the same random numbers, so the same path.
        found = generated(task, model, prompts, 1, True, seed, first_sequence=number, purpose="planning")
        traces[model_name] = next(found).events
    growth = grown(traces[FLEXMDM], problem)
    return {FLEXMDM: growth, MDM: grown(traces[MDM], problem, task.longest_path, growth.frames, task.pad)}


def _held_out_lengths(task: MazeTask, counts: Sequence[int]) -> dict[int, float]:
    """Return the shares of the lengths of the paths that problems come from.

    For each K, every held-out pair with paths of at least K cells gives as many problems, from any of those paths.
    """
    data = task.validation.data
    shares: dict[int, float] = {}
    for count in counts:
        enough = data.paths.lengths >= count
        lengths, pair = data.paths.lengths[enough], data.pair[enough]
        paths = pair.bincount()  # of each pair
        each = 1 / (paths[pair] * (paths > 0).sum() * len(counts))
        for length, share in enumerate(lengths.bincount(each).tolist()):
            if share:
                shares[length] = shares.get(length, 0.0) + share
    return shares


def report_of(
    config: RunConfig, contenders: Sequence[Contender], command: str, mean_length: float, timings: dict[str, float]
) -> dict[str, Any]:
    """Return settings and figures for machines."""
    models = {
        c.model: {
            "success": c.rates["all"].value,
            "low": c.rates["all"].low,
            "high": c.rates["all"].high,
            "num": c.num,
            "sampler": c.sampler,
            "by_subgoals": [plans.score.to_dict() for plans in c.plans],
            "training": {name: getattr(c, name) for name in ("parameters", "steps", "seconds", "held_out_loss")},
            "mean_length": c.mean_length,
        }
        for c in contenders
    }
    return {
        "demo": "maze",
        "settings": {
            "command": command,
            "task": config.task,
            "network": asdict(config.network),
            "recipe": asdict(config.recipe),
            "flexmdm": version("flexmdm"),
            "torch": torch.__version__,
        },
        "held_out_mean_length": mean_length,
        "models": models,
        "seconds": {name: round(value, 1) for name, value in timings.items()},
    }
