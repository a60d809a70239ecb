"""Try a few steps before a training: how long one takes, and with how many CPU threads it is fastest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from statistics import median

import torch
from rich.console import Console

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.evaluation.trials import threads
from flexmdm.runs.config import RunConfig
from flexmdm.tasks.task import Task
from flexmdm.training.collation import Collator
from flexmdm.training.optimizers import make_optimizer
from flexmdm.training.timing import FEW_STEPS

_TOLD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # by the environment
_PROBE, _SHARE = 1.5, 0.02  # seconds of steps to compare numbers of threads, and the most of the time for training


def seconds_per_step(
    config: RunConfig, task: Task, model: FlexMDMModel, probe: float, device: torch.device | str = "cpu"
) -> float:
    """Measure the seconds of a step, by a few steps (for about ``probe`` seconds) that are taken back."""
    durations: list[float] = []
    begin = time.perf_counter()
    with rehearsal(config, task, model, device) as seconds_of:
        while len(durations) < 3 or (time.perf_counter() - begin < probe and len(durations) < 50):
            durations.append(seconds_of(len(durations)))
    return median(durations) * config.recipe.accumulation


@contextmanager
def rehearsal(
    config: RunConfig, task: Task, model: FlexMDMModel, device: torch.device | str = "cpu"
) -> Generator[Callable[[int], float]]:
    """Give a function that takes a step of one pass, by its number, and returns its seconds; then take all back."""
    recipe = config.recipe
    before = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
    model.to(device).train()
    if recipe.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    optimizer = make_optimizer(model, recipe)
    collate = Collator(
        task.train, model.interpolant, model.config.mask_id, recipe.targets == "marginalised", recipe.seed
    )

    def seconds_of(number: int) -> float:
        start = time.perf_counter()
        first = number * recipe.batch_size
        batch = collate(list(range(first, first + recipe.batch_size))).to(device)
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=recipe.dtype == "bfloat16"):
            output = model(**batch.inputs(model.config.mask_id))
            loss = batch.loss(output.logits, output.insertions, model.interpolant).total.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()  # waits for a GPU
        return time.perf_counter() - start

    yield seconds_of
    with torch.no_grad():
        for name, value in before.items():
            model.get_parameter(name).copy_(value)


def choose_threads(
    config: RunConfig,
    task: Task,
    model: FlexMDMModel,
    console: Console,
    resume: bool = False,
    minutes: float | None = None,
) -> int:
    """Return the number of threads to train with on this CPU, and say why.

    The environment comes first, then the recipe, which knows with how many a run was started. Of a new run one thread
    is compared with all, by a few steps that are taken back: on cores that are busy one can be several times faster. A
    training of few steps takes as many as there are.
    """
    told, most = config.recipe.threads, torch.get_num_threads()
    if any(os.environ.get(name) for name in _TOLD):
        chosen = most
    elif told is not None:
        chosen = min(told, _cores())
    elif most == 1 or resume or (minutes is None and config.recipe.steps < FEW_STEPS):
        chosen = most
    else:
        probe = _PROBE if minutes is None else min(_PROBE, _SHARE * 60 * minutes)
        with rehearsal(config, task, model) as seconds_of:
            measured = compare_threads(seconds_of, (1, most), probe)
        chosen = min(measured, key=lambda number: measured[number])
        figures = " and ".join(f"{seconds:.3g} s with {_count(number)}" for number, seconds in measured.items())
        console.print(f"training with {_count(chosen)}, as a pass takes {figures}; OMP_NUM_THREADS says otherwise")
    if told not in (None, chosen):
        console.print(
            f"training with {_count(chosen)}, where recipe.threads says {told}: results agree up to rounding, not to "
            "the last bit"
        )
    return chosen


def compare_threads(
    seconds_of: Callable[[int], float], numbers: Sequence[int], probe: float = _PROBE
) -> dict[int, float]:
    """Measure the seconds of a step with each of some numbers of threads, in turn and for about ``probe`` seconds.

    Args:
        seconds_of: takes a step, by its number, and returns its seconds.
        numbers: of threads.
        probe: seconds to measure for; each number of threads has at least one step.
    """
    seconds_of(0)  # the first one allocates memory
    durations: dict[int, list[float]] = {number: [] for number in numbers}
    end, step = time.perf_counter() + probe, 0
    while step == 0 or time.perf_counter() < end:
        for number in numbers:
            with threads(number):
                durations[number].append(seconds_of(step))
        step += 1
    return {number: median(of_number) for number, of_number in durations.items()}


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _count(number: int) -> str:
    return "1 thread" if number == 1 else f"{number} threads"
