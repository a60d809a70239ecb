"""Start a run or go on with one: train, and keep the averaged weights."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from accelerate import PartialState
from rich.console import Console
from rich.markup import escape
from transformers import TrainerCallback

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.evaluation.trials import threads
from flexmdm.reports.charts import draw_losses
from flexmdm.runs.building import build, describe, settle
from flexmdm.runs.config import RUN_FILE, RunConfig
from flexmdm.runs.export import save_weights
from flexmdm.runs.planning import planned
from flexmdm.runs.probing import choose_threads
from flexmdm.tasks.previews import Preview
from flexmdm.training.checkpoints import checkpoints, latest, step_of, was_finished
from flexmdm.training.learning_rate import DECAYING, LearningRate
from flexmdm.training.models import quiet_transformers
from flexmdm.training.progress import LOG_FILE, FileLog, Interruption, LiveProgress, read_log
from flexmdm.training.sharding import set_timeout
from flexmdm.training.timing import ENDLESS, FEW_STEPS, TOO_FEW, TimeLimit, Timetable, barely_learned
from flexmdm.training.trainer import FlexMDMTrainer, runs_on_cpu

CURVES_FILE = "loss.png"
LOGGERS = ("tensorboard", "trackio", "wandb")
_PREPARATION = timedelta(days=2)  # processes wait while one of them prepares the data
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
        minutes: train for so long, instead of some number of steps: the learning rate, evaluations and checkpoints
            follow the clock, and the run keeps how many steps that were. On resume: only end it then.
        device, report_to, console: ``cpu``, ``cuda`` or ``mps``; loggers by name; where to report.
    """
    if minutes is not None and minutes <= 0:
        raise ValueError(f"minutes must be positive, got {minutes}")
    _check_loggers(report_to or [])
    quiet_transformers()
    # Those that torchrun started, or this one alone.
    processes = PartialState(cpu=runs_on_cpu(device), timeout=_PREPARATION)
    alone = processes.num_processes == 1
    console = (console or Console(stderr=True)) if processes.is_main_process else Console(quiet=True)
    _check_folder(folder, resume)
    if config.recipe.shard and alone:
        console.print("--shard cuts weights over processes, and there is one: start several by torchrun")
    config = _for_processes(config, folder if resume else None, processes.num_processes, console)
    with processes.local_main_process_first():  # which prepares the data, for the others to find
        config, task = settle(config, folder if resume else None, console)
    set_timeout(_LOST)
    checkpoint = _starting_point(config, folder, console) if resume else None
    task, model = build(config, task)
    timed = None if resume else minutes
    number = torch.get_num_threads()
    if alone and runs_on_cpu(device):
        number = choose_threads(config, task, model, console, resume, timed)
        config = replace(config, recipe=replace(config.recipe, threads=number))
    describe(config, task, model, console, timed)
    rate, recipe, warn = LearningRate(config.recipe), config.recipe, partial(_warn, console)
    limit = None if minutes is None else TimeLimit(60 * minutes)
    if timed is not None:
        limit = Timetable(60 * timed, rate, lambda: _write_plan(config, rate, folder), warn, not config.network.base)
        recipe = replace(recipe, steps=ENDLESS)
    live, stop = LiveProgress(console, config.task["model"], limit), Interruption()
    callbacks: list[TrainerCallback] = [FileLog(folder), live] if processes.is_main_process else []
    callbacks += [limit] if limit is not None else []
    callbacks += [stop] if alone else []  # several would not stop at the same step
    preview = Preview(task, folder, console) if task.previews else None
    data = task.train, task.validation
    trainer = FlexMDMTrainer(model, recipe, *data, folder, callbacks, device, report_to or (), preview, rate)
    processes.wait_for_everyone()  # nobody may take what the main process writes now for an earlier run
    if processes.is_main_process:
        config.write(folder)
        task.save(folder)
    try:
        with threads(number):
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
    _keep(trainer, config, folder)
    if processes.is_main_process:
        step = trainer.state.global_step
        why = why_it_ended(step, None if timed else config.recipe.steps)
        console.print(f"{why}; weights, log and {CURVES_FILE} are in {escape(str(folder))}")
        if minutes is not None and step < FEW_STEPS:
            warn(f"{step:,} steps are done, and {TOO_FEW}")
        if not config.network.base and (said := barely_learned(trainer.state.log_history)):
            warn(said)
    return model.eval()


def _keep(trainer: FlexMDMTrainer, config: RunConfig, folder: Path) -> None:
    """Write the averaged weights and the loss curves of a training that has ended; every process calls this."""
    trainer.ema.apply()
    weights = trainer.whole_weights()
    trainer.model.config.step = trainer.state.global_step
    if trainer.args.should_save:
        save_weights(trainer.model, folder, weights)
        draw_losses({config.task["model"]: read_log(folder / LOG_FILE)}, folder / CURVES_FILE)


def why_it_ended(step: int, steps: int | None) -> str:
    """Return why a training ended at a step, of ``steps`` that were given, or of as many as fit in the time.

    >>> why_it_ended(100, 100), why_it_ended(60, None)
    ('all steps are done at step 100', 'the time is up at step 60')
    >>> why_it_ended(60, 100)
    'the time is up at step 60 of 100, and --resume goes on'
    """
    if steps is None or step < steps:
        return f"the time is up at step {step:,}" + ("" if steps is None else f" of {steps:,}, and --resume goes on")
    return f"all steps are done at step {step:,}"


def _warn(console: Console, message: str) -> None:
    console.print(f"[yellow]warning:[/] {escape(message)}")


def _write_plan(config: RunConfig, rate: LearningRate, folder: Path) -> None:
    """Write the configuration of a run with the steps that the clock has led to, if this is the main process."""
    if PartialState().is_main_process:
        replace(config, recipe=planned(config.recipe, rate)).write(folder)


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
        recipe = replace(recipe, threads=recipe.threads or before.threads)
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
    checkpoint = latest(folder, partial(_warn, console))
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
        _warn(
            console,
            f"the learning rate has been falling towards the end at step {begun.recipe.steps:,}; with {steps:,} steps "
            "it goes up again",
        )
    all_done = f"all {steps:,} steps are done; --steps with a larger number goes on"
    console.print(all_done if done == steps else f"going on from step {done}")
    return checkpoint
