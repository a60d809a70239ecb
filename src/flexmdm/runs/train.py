"""A run from beginning to end: build the task and the network, train, keep the averaged weights."""

from __future__ import annotations

import math
import resource
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from rich.console import Console
from rich.markup import escape
from transformers import TrainerCallback

from flexmdm.backbones.model import FlexMDMConfig, FlexMDMModel
from flexmdm.interpolants import FlexMDMInterpolant
from flexmdm.runs.config import RUN_FILE, RunConfig
from flexmdm.tasks.loading import load
from flexmdm.tasks.previews import Preview
from flexmdm.tasks.registry import task_of
from flexmdm.tasks.task import Task
from flexmdm.training.checkpoints import checkpoints, latest, step_of, was_finished
from flexmdm.training.collation import Collator
from flexmdm.training.models import WEIGHTS_FILE, quiet_transformers
from flexmdm.training.optimizers import make_optimizer
from flexmdm.training.progress import LOG_FILE, FileLog, Interruption, LiveProgress, TimeLimit, draw_curves, read_log
from flexmdm.training.recipe import Network, Recipe
from flexmdm.training.sharding import set_timeout
from flexmdm.training.trainer import DECAYING, FlexMDMTrainer, runs_on_cpu

CURVES_FILE = "loss.png"
_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes that the system counts memory in
_PROBE = 2.0  # seconds of steps, to say how long training takes
_PATIENCE = timedelta(days=2)  # processes wait while one of them prepares the data
_LOST = 1800.0  # seconds without a word from a process, once all are training


def build(config: RunConfig, task: Task | None = None) -> tuple[Task, FlexMDMModel]:
    """The task of a run (if it is not at hand already) and its model as it is before training."""
    task = task_of(config.task) if task is None else task
    torch.manual_seed(config.recipe.seed)
    interpolant = FlexMDMInterpolant.from_dict(config.interpolant)
    inserts = task.layout.inserts
    common: dict[str, Any] = {
        "insertions": inserts,
        "expected_gap": _expected_gap(task, interpolant) if inserts else 1.0,
        "regions": _regions(task) if inserts and config.network.insertion_head == "count" else None,
        "interpolant": config.interpolant,
        "task": config.task,
    }
    network = config.network
    if network.lora and network.base is None:
        raise ValueError("network.lora_rank needs a model to adapt: network.base (--from)")
    if network.base is not None:
        return task, _from_base(network, task, common)
    if network.architecture == "llada":
        from flexmdm.backbones.llada import shape
        from flexmdm.backbones.retrofit import untrained

        body = shape(task.vocab_size + 1, network.hidden, network.layers, network.heads)
        return task, untrained(body, mask_id=task.vocab_size, groups=min(network.groups, network.layers), **common)
    model = FlexMDMModel(
        FlexMDMConfig(
            vocab_size=task.vocab_size,
            hidden_size=network.hidden,
            num_layers=network.layers,
            num_heads=network.heads,
            condition_size=network.condition,
            dropout=network.dropout,
            neighbours=network.neighbours,
            clock=network.clock,
            **common,
        )
    )
    return task, model


def _from_base(network: Network, task: Task, common: dict[str, Any]) -> FlexMDMModel:
    from flexmdm.backbones.bases import stored_config
    from flexmdm.backbones.retrofit import retrofit

    base = network.base or ""
    if network.lora_rank == 0 and stored_config(base).get("lora"):
        raise ValueError(
            f"{base} has adapters: go on with these (leave out --lora-rank), or merge them first, so that all weights "
            f"can be trained (flexmdm retrofit {base} --merge --out FOLDER)"
        )
    task.check_base(base)
    options: dict[str, Any] = {
        "dtype": torch.float32 if network.base_dtype == "float32" or not network.lora else torch.bfloat16,
        "four_bit": network.base_dtype == "4-bit",
        "mask_id": network.mask_id,
    }
    if torch.cuda.is_available() and network.lora:  # straight to this process's GPU, not through everybody's memory
        options["device_map"] = {"": torch.cuda.current_device()}
    model = retrofit(base, groups=network.groups, lora=network.lora, **options, **common)
    task.check_base(base, model.config.vocab_size)
    return model


def _expected_gap(task: Task, interpolant: FlexMDMInterpolant) -> float:
    """How many tokens the insertion head should expect in a gap at alpha = 0, from what is missing half-way."""
    count = min(len(task.train), 256)
    x1, template = task.train.take(torch.arange(count), torch.arange(count))
    half = interpolant.insertion.inverse(torch.tensor(0.5, dtype=torch.float64))
    sample = interpolant.sample(x1, half, template, mask_id=task.vocab_size)
    missing = sample.gaps.values[sample.canvas.open_gaps.values]
    return max(2 * float(missing.double().mean()), 0.1) if len(missing) else 1.0


def _regions(task: Task) -> tuple[float, float]:
    """Return the mean and variance of the number of free tokens in an open gap of the task's templates."""
    count = min(len(task.train), 4096)
    _, template = task.train.take(torch.arange(count), torch.arange(count))
    sizes = torch.zeros(len(template.open_gaps.values), dtype=torch.float64)
    sizes.index_add_(0, template.token_gaps[~template.given], torch.ones(int((~template.given).sum())).double())
    sizes = sizes[template.open_gaps.values]
    if len(sizes) < 2:
        return 1.0, 1.0
    return max(float(sizes.mean()), 0.1), max(float(sizes.var()), 0.1)


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
        device: ``cpu``, ``cuda`` or ``mps``.
        report_to: loggers by name.
        console: where to report.
    """
    if minutes is not None and minutes <= 0:
        raise ValueError(f"minutes must be positive, got {minutes}")
    quiet_transformers()
    processes = PartialState(
        cpu=runs_on_cpu(device), timeout=_PATIENCE
    )  # those that torchrun started, or this one alone
    console = (console or Console(stderr=True)) if processes.is_main_process else Console(quiet=True)
    _check_place(folder, resume)
    if config.recipe.shard and processes.num_processes == 1:
        console.print("--shard cuts weights over processes, and there is one: start several by torchrun")
    config = _for_processes(config, folder if resume else None, processes.num_processes, console)
    with processes.local_main_process_first():  # which prepares the data, for the others to find
        config, task = _in_full(config, folder if resume else None, console)
    set_timeout(_LOST)
    checkpoint = _starting_point(config, folder, console) if resume else None
    task, model = build(config, task)
    if minutes is not None and checkpoint is None:
        if config.recipe.shard:
            raise ValueError(
                "how many steps fit in --minutes cannot be tried out before weights are cut up: use --steps"
            )
        steps = steps_within(minutes * 60, config, task, model, processes.device or "cpu")
        config = replace(config, recipe=_planned(config.recipe, broadcast_object_list([steps])[0]))
    _describe(config, task, model, console)
    live = LiveProgress(console, config.task["model"])
    callbacks: list[TrainerCallback] = [FileLog(folder), live] if processes.is_main_process else []
    if minutes is not None:
        callbacks.append(TimeLimit(minutes * 60))
    stop = Interruption()
    if processes.num_processes == 1:  # several would not stop at the same step
        callbacks.append(stop)
    trainer = FlexMDMTrainer(
        model,
        config.recipe,
        task.train,
        task.validation,
        folder,
        callbacks,
        device,
        report_to or (),
        Preview(task, folder, console) if task.previews else None,
    )
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
        _keep_weights(model, folder, weights)
        draw_curves({config.task["model"]: read_log(folder / LOG_FILE)}, folder / CURVES_FILE)
        console.print(f"weights, log and {CURVES_FILE} are in {escape(str(folder))}")
    return model.eval()


def _in_full(config: RunConfig, folder: Path | None, console: Console) -> tuple[RunConfig, Task]:
    """With everything that the task and the schedules have defaults for, so that equal runs have equal words."""
    interpolant = FlexMDMInterpolant.from_dict(config.interpolant)
    task = task_of(config.task, folder).settled(console)
    return replace(config, task=task.to_dict(), interpolant=interpolant.to_dict()), task


def _for_processes(config: RunConfig, run: Path | None, processes: int, console: Console) -> RunConfig:
    """With the number of processes there are; a run goes on with as many sequences in a step as it had."""
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


def _keep_weights(model: FlexMDMModel, folder: Path, weights: dict[str, torch.Tensor] | None) -> None:
    """Put weights and configuration in the folder of the run, the weights last and never half of them."""
    draft = folder / "weights.new"
    model.save_pretrained(draft, state_dict=weights)
    for file in sorted(draft.iterdir(), key=lambda file: file.name == WEIGHTS_FILE):
        file.replace(folder / file.name)
    draft.rmdir()


def keep_merged(run: Path, out: Path) -> None:
    """Write a run with adapters as one that needs neither them nor its base."""
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty: choose another --out")
    from flexmdm.backbones.retrofit import RetrofitModel

    task, model = load(run)
    if not isinstance(model, RetrofitModel) or model.config.lora is None:
        raise ValueError(f"{run} has no adapters to merge")
    out.mkdir(parents=True, exist_ok=True)
    _keep_weights(model.merged(), out, None)
    task.save(out)


def keep_as_llada(run: Path, out: Path) -> None:
    """Write the pretrained part of a run in LLaDA's shape, adapters merged, as a checkpoint of LLaDA."""
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty: choose another --out")
    from flexmdm.backbones import llada
    from flexmdm.backbones.retrofit import RetrofitModel

    task, model = load(run, "cpu")
    encoder = getattr(model.config, "encoder_config", None)
    if not isinstance(model, RetrofitModel) or getattr(encoder, "model_type", "") != "llama":
        raise ValueError(f"{run} is not in the shape of LLaDA: only what is can be written under its names")
    model = model.merged() if model.config.lora is not None else model
    llada.export(model.network, cast(Any, encoder), model.config.mask_id, out, getattr(task, "pad_id", None))
    task.save(out)


def dry_run(config: RunConfig, device: str | None = None, console: Console | None = None) -> None:
    """Say what training would do: parameters, steps, time, and the first states."""
    console = console or Console()
    quiet_transformers()
    config, task = _in_full(config, None, console)
    task, model = build(config, task)
    _describe(config, task, model, console)
    place = "cpu" if runs_on_cpu(device) else device or "cuda"
    each = seconds_per_step(config, task, model, _PROBE, place)
    hours = each * config.recipe.steps / 3600
    console.print(
        f"about {each:.2f} s per step on this machine's {place.upper()}: {_duration(hours)} for "
        f"{config.recipe.steps:,} steps; "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT / 2**30:.1f} GB of memory"
    )
    collate = Collator(task.train, model.interpolant, model.config.mask_id, seed=config.recipe.seed)
    batch = collate(list(range(config.recipe.batch_size)))
    model.to("cpu")
    console.print(f"first batch: {len(batch)} states with {batch.num_tokens} entries; three of them (· is a mask):")
    for tokens, alpha in list(zip(batch.sample.canvas.tokens.tolist(), batch.sample.alpha.tolist(), strict=True))[:3]:
        shown = task.show([None if token == model.config.mask_id else token for token in tokens])
        console.print(f"  alpha {alpha:.2f}: {escape(shown)}", highlight=False)


def _duration(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"


def _check_place(folder: Path, resume: bool) -> None:
    """A new run needs a folder of its own, and to go on there must be one."""
    exists = (folder / RUN_FILE).is_file()
    if resume and not exists:
        raise ValueError(f"{folder} is not a run (no {RUN_FILE}), so there is nothing to resume; leave --resume out")
    if not resume and exists:
        raise ValueError(f"{folder} already holds a run: go on with --resume, or choose another --out")
    if not resume and folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty and not a run: choose another --out")


def _starting_point(config: RunConfig, folder: Path, console: Console) -> Path | None:
    """The checkpoint to go on from."""
    different = RunConfig.read(folder).differences(config)
    if different:
        raise ValueError(f"{folder} was started with another configuration: {'; '.join(different)}")
    checkpoint = latest(folder, lambda message: console.print(f"[yellow]warning:[/] {escape(message)}"))
    if checkpoint is None:
        damaged = [found.name for found in checkpoints(folder) if was_finished(found)]
        if damaged:
            raise ValueError(
                f"no checkpoint of {folder} can be used, and to start again would lose the run: {', '.join(damaged)} "
                "are damaged. Put back a copy of one, or delete them to start from the beginning"
            )
        console.print(f"{escape(str(folder))} has no finished checkpoint yet: starting from the beginning")
        return None
    if step_of(checkpoint) > config.recipe.steps:
        raise ValueError(
            f"{folder} is at step {step_of(checkpoint)} already: give at least as many steps, not {config.recipe.steps}"
        )
    before = RunConfig.read(folder).recipe
    if config.recipe.steps > before.steps and step_of(checkpoint) > _before_decay(before):
        console.print(
            f"[yellow]warning:[/] the learning rate has been falling towards the end at step {before.steps:,}; with "
            f"{config.recipe.steps:,} steps it goes up again"
        )
    if step_of(checkpoint) == config.recipe.steps:
        console.print(f"all {config.recipe.steps:,} steps are done; --steps with a larger number goes on")
    else:
        console.print(f"going on from step {step_of(checkpoint)}")
    return checkpoint


def _before_decay(recipe: Recipe) -> int:
    """Up to which step a learning rate does not depend on how many steps there will be."""
    decaying = {"constant": 0.0, "trapezoid": DECAYING}.get(recipe.schedule, 1.0)
    return int((1 - decaying) * recipe.steps)


def steps_within(
    seconds: float, config: RunConfig, task: Task, model: FlexMDMModel, device: torch.device | str = "cpu"
) -> int:
    """How many steps fit in a time, with a little left for what is between them."""
    each = seconds_per_step(config, task, model, min(0.03 * seconds, 20.0), device)
    return max(int(0.95 * seconds / each), 1)


def seconds_per_step(
    config: RunConfig, task: Task, model: FlexMDMModel, probe: float, device: torch.device | str = "cpu"
) -> float:
    """How long a step takes, from a few (for about ``probe`` seconds) that are taken back."""
    recipe = config.recipe
    before = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
    model.to(device).train()
    if recipe.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    optimizer = make_optimizer(model, recipe)
    collate = Collator(
        task.train, model.interpolant, model.config.mask_id, recipe.targets == "marginalised", recipe.seed
    )
    durations = []
    begin = time.perf_counter()
    while len(durations) < 3 or (time.perf_counter() - begin < probe and len(durations) < 50):
        start = time.perf_counter()
        first = len(durations) * recipe.batch_size
        batch = collate(list(range(first, first + recipe.batch_size))).to(device)
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=recipe.dtype == "bfloat16"):
            output = model(**batch.inputs(model.config.mask_id))
            loss = batch.loss(output.logits, output.insertions, model.interpolant).total.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()  # waits for a GPU
        durations.append(time.perf_counter() - start)
    with torch.no_grad():
        for name, value in before.items():
            model.get_parameter(name).copy_(value)
    return sorted(durations)[len(durations) // 2] * recipe.accumulation


def _planned(recipe: Any, steps: int) -> Any:
    every = max(math.ceil(steps / 8), 1)
    return replace(
        recipe,
        steps=steps,
        warmup=min(recipe.warmup, steps // 10),
        eval_every=min(recipe.eval_every, every),
        save_every=min(recipe.save_every, max(steps // 2, 1)),
    )


def _describe(config: RunConfig, task: Task, model: FlexMDMModel, console: Console) -> None:
    count = model.count_parameters()
    recipe = config.recipe
    if config.network.base is not None:
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        adapters = f" with adapters of rank {config.network.lora_rank}" if config.network.lora else ""
        console.print(
            f"starting from {escape(config.network.base)}{adapters}: {trained / 1e6:.2f}M weights are trained",
            highlight=False,
        )
    embeddings = f"{count['input_embedding'] / 1e6:.2f}"
    console.print(
        f"{config.task['model']} on {config.task['name']}: {count['total'] / 1e6:.2f}M parameters"
        + (f" ({embeddings}M of them input embeddings)" if float(embeddings) else "")
        + f", {len(task.train):,} training and "
        f"{len(task.validation):,} held-out sequences, {recipe.steps:,} steps of {recipe.sequences} sequences"
        + (f" on {recipe.processes} processes" if recipe.processes > 1 else "")
        + (", each with its share of the weights" if recipe.shard and recipe.processes > 1 else "")
    )
