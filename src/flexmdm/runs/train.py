"""Start a run or go on with one: train, and keep the averaged weights."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from rich.console import Console
from rich.markup import escape
from transformers import TrainerCallback

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.reports.charts import draw_losses
from flexmdm.runs.building import build, describe, settle
from flexmdm.runs.config import RUN_FILE, RunConfig
from flexmdm.runs.export import save_weights
from flexmdm.runs.planning import steps_within, with_steps
from flexmdm.tasks.previews import Preview
from flexmdm.training.checkpoints import checkpoints, latest, step_of, was_finished
from flexmdm.training.models import quiet_transformers
from flexmdm.training.progress import LOG_FILE, FileLog, Interruption, LiveProgress, TimeLimit, read_log
from flexmdm.training.sharding import set_timeout
from flexmdm.training.trainer import DECAYING, FlexMDMTrainer, runs_on_cpu

CURVES_FILE = "loss.png"
LOGGERS = ("tensorboard", "trackio", "wandb")
_PREPARATION = timedelta(days=2)  # processes wait while one of them prepares the data
_FEW_STEPS = 200  # that a training should have at least
_LOST = 1800.0  # seconds without a word from a process, once all are training


def train(
    config: RunConfig,
    folder: Path,
    resume: bool = False,
    minutes: float | None = None,
    device: str | None = None,
    report_to: list[str] | None = None,
    console: Console | None = None,
) -> FlexMDMModel:
    """Train (or go on with) a run, and leave the averaged weights, the log and the loss curves in its folder.

    Under torchrun every process calls this.

    Args:
        config: what to train.
        folder: the run.
        resume: go on from the latest whole checkpoint; the configuration must be the run's, as `RunConfig.read` gives
            it (``steps`` and what is only looked at may change).
        minutes: plan the steps so that training takes about so long, and end it then. On resume: only end it then.
        device, report_to, console: ``cpu``, ``cuda`` or ``mps``; loggers by name; where to report.
    """
    if minutes is not None and minutes <= 0:
        raise ValueError(f"minutes must be positive, got {minutes}")
    _check_loggers(report_to or [])
    quiet_transformers()
    # Those that torchrun started, or this one alone.
    processes = PartialState(cpu=runs_on_cpu(device), timeout=_PREPARATION)
    console = (console or Console(stderr=True)) if processes.is_main_process else Console(quiet=True)
    _check_folder(folder, resume)
    if config.recipe.shard and processes.num_processes == 1:
        console.print("--shard cuts weights over processes, and there is one: start several by torchrun")
    config = _for_processes(config, folder if resume else None, processes.num_processes, console)
    with processes.local_main_process_first():  # which prepares the data, for the others to find
        config, task = settle(config, folder if resume else None, console)
    set_timeout(_LOST)
    checkpoint = _starting_point(config, folder, console) if resume else None
    task, model = build(config, task)
    if minutes is not None and not resume:
        if config.recipe.shard:
            raise ValueError(
                "how many steps fit in --minutes cannot be tried out before weights are cut up: use --steps"
            )
        steps = steps_within(minutes * 60, config, task, model, processes.device or "cpu")
        config = replace(config, recipe=with_steps(config.recipe, broadcast_object_list([steps])[0]))
        if config.recipe.steps < _FEW_STEPS:
            console.print(
                f"[yellow]warning:[/] {config.recipe.steps:,} steps fit in {minutes:g} minutes, and fewer than "
                f"{_FEW_STEPS} teach little: give more --minutes, or take a smaller network or --batch-size"
            )
    describe(config, task, model, console)
    live = LiveProgress(console, config.task["model"])
    callbacks: list[TrainerCallback] = [FileLog(folder), live] if processes.is_main_process else []
    callbacks += [TimeLimit(minutes * 60)] if minutes is not None else []
    stop = Interruption()
    callbacks += [stop] if processes.num_processes == 1 else []  # several would not stop at the same step
    preview = Preview(task, folder, console) if task.previews else None
    data = task.train, task.validation
    trainer = FlexMDMTrainer(model, config.recipe, *data, folder, callbacks, device, report_to or (), preview)
    processes.wait_for_everyone()  # nobody may take what the main process writes now for an earlier run
    if processes.is_main_process:
        config.write(folder)
        task.save(folder)
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        if stop.asked:
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        live.stop()
        last = latest(folder)
        console.print(
            f"interrupted; go on with flexmdm train --out {escape(str(folder))} --resume "
            f"(from {last.name if last else 'the beginning'})"
        )
        raise SystemExit(130) from None
    finally:
        live.stop()
        stop.release()
    trainer.ema.apply()
    weights = trainer.whole_weights()
    model.config.step = trainer.state.global_step
    if processes.is_main_process:
        save_weights(model, folder, weights)
        draw_losses({config.task["model"]: read_log(folder / LOG_FILE)}, folder / CURVES_FILE)
        step = model.config.step
        why = "all steps are done" if step >= config.recipe.steps else "the time is up"
        console.print(f"{why} at step {step:,}; weights, log and {CURVES_FILE} are in {escape(str(folder))}")
    return model.eval()


def _check_loggers(names: list[str]) -> None:
    """Raise if there is no such logger, or if its package is not installed."""
    for name in names:
        if name not in LOGGERS:
            raise ValueError(f"there is no logger {name!r}; choose from {', '.join(LOGGERS)}")
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _for_processes(config: RunConfig, run: Path | None, processes: int, console: Console) -> RunConfig:
    """Return a configuration for as many processes; a run goes on with as many sequences in a step as it had."""
    recipe = replace(config.recipe, processes=processes)
    if run is not None:
        before = RunConfig.read(run).recipe
        same = (recipe.batch_size, recipe.accumulation) == (before.batch_size, before.accumulation)
        if same and processes != before.processes and before.sequences % (recipe.batch_size * processes) == 0:
            recipe = replace(recipe, accumulation=before.sequences // (recipe.batch_size * processes))
            console.print(
                f"{before.processes} processes then, {processes} now: {recipe.accumulation} passes per step, so that "
                f"it has {before.sequences} sequences as before"
            )
        if recipe.sequences != before.sequences:
            raise ValueError(
                f"a step of {run} has {before.sequences} sequences, and here it would have {recipe.sequences}: choose "
                f"--batch-size and --accumulation so that with {processes} processes it is the same"
            )
    return replace(config, recipe=recipe)


def _check_folder(folder: Path, resume: bool) -> None:
    """Raise if a new run has no folder of its own, or if there is no run to go on with."""
    exists = (folder / RUN_FILE).is_file()
    if resume and not exists:
        raise ValueError(f"{folder} is not a run (no {RUN_FILE}), so there is nothing to resume; leave --resume out")
    if not resume and exists:
        raise ValueError(f"{folder} already holds a run: go on with --resume, or choose another --out")
    if not resume and folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty and not a run: choose another --out")


def _starting_point(config: RunConfig, folder: Path, console: Console) -> Path | None:
    """Return the checkpoint to go on from."""
    begun, steps = RunConfig.read(folder), config.recipe.steps
    if different := begun.differences(config):
        raise ValueError(f"{folder} was started with another configuration: {'; '.join(different)}")
    checkpoint = latest(folder, lambda message: console.print(f"[yellow]warning:[/] {escape(message)}"))
    if checkpoint is None:
        if damaged := [found.name for found in checkpoints(folder) if was_finished(found)]:
            raise ValueError(
                f"no checkpoint of {folder} can be used, and to start again would lose the run: {', '.join(damaged)} "
                "are damaged. Put back a copy of one, or delete them to start from the beginning"
            )
        console.print(f"{escape(str(folder))} has no finished checkpoint yet: starting from the beginning")
        return None
    done = step_of(checkpoint)
    if done > steps:
        raise ValueError(f"{folder} is at step {done} already: give at least as many steps, not {steps}")
    # The share of the steps in which the learning rate depends on how many there will be.
    decaying = {"constant": 0.0, "trapezoid": DECAYING}.get(begun.recipe.schedule, 1.0)
    if steps > begun.recipe.steps and done > int((1 - decaying) * begun.recipe.steps):
        console.print(
            f"[yellow]warning:[/] the learning rate has been falling towards the end at step {begun.recipe.steps:,}; "
            f"with {steps:,} steps it goes up again"
        )
    all_done = f"all {steps:,} steps are done; --steps with a larger number goes on"
    console.print(all_done if done == steps else f"going on from step {done}")
    return checkpoint
