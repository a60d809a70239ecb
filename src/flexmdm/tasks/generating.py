"""From prompts to sequences with a trained model: the defaults of its task, batches, and a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from torch import Tensor

from flexmdm.canvas import Canvas, Prompt
from flexmdm.denoiser import Denoiser, Prediction
from flexmdm.generation import Event, Progress, generate
from flexmdm.tasks.prepared import PreparedTask

if TYPE_CHECKING:  # seconds to import; whoever has a model has done so
    from flexmdm.backbones.model import FlexMDMModel

STEPS = 64
BATCH = 64


@dataclass(frozen=True)
class Generated:
    """One sequence.

    Attributes:
        prompt: the number of the prompt that it began as.
        sequence, given, evaluations, hit_max_length, events: of `flexmdm.Generation`; no events without a trace.
    """

    prompt: int
    sequence: list[int]
    given: list[bool]
    evaluations: int
    hit_max_length: bool
    events: tuple[Event, ...]


def generated(
    task: PreparedTask,
    model: FlexMDMModel,
    prompts: Sequence[Prompt],
    num: int = 1,
    trace: bool = False,
    seed: int = 0,
    first_sequence: int = 0,
    batch_size: int | None = None,
    callback: Callable[[int, Progress], None] | None = None,
    **options: Any,
) -> Iterator[Generated]:
    """``num`` sequences for each prompt, some at a time; FlexMDM stays within the task's ``max_length``.

    Args:
        task, model: what was trained.
        prompts: what to start from.
        num: sequences per prompt.
        trace: keep the events.
        seed: of generation.
        first_sequence: of `flexmdm.generate`, for who draws a run in several parts.
        batch_size: sequences at a time; by default 64.
        callback: called with (sequences already complete, `flexmdm.generation.Progress`) after every step.
        options: of `flexmdm.generate`; by default 64 steps of ``spaced``, for MDM of ``tau``.
    """
    options = {"sampler": "spaced" if task.model == "flexmdm" else "tau", "steps": STEPS, **options}
    if task.model == "flexmdm":
        most = task.max_length
        options["max_length"] = min(options.get("max_length") or most, most)
    jobs = [number for number in range(len(prompts)) for _ in range(num)]
    size = BATCH if batch_size is None else batch_size
    if size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    denoiser: Denoiser = model.denoiser()
    if task.never_found:
        denoiser = Without(denoiser, task.never_found)
    for start in range(0, len(jobs), size):
        part = jobs[start : start + size]
        out = generate(
            denoiser,
            prompts=[prompts[number] for number in part],
            seed=seed,
            first_sequence=first_sequence + start,
            trace=trace,
            callback=None if callback is None else lambda progress, done=start: callback(done, progress),
            **options,
        )
        for row, number in enumerate(part):
            events = tuple(out.trace[row]) if out.trace is not None else ()
            measured = out.evaluations[row], out.hit_max_length[row]
            yield Generated(number, out.sequences[row], out.given[row], *measured, events)


class Without:
    """A denoiser that gives some tokens no chance, and all others theirs given that."""

    def __init__(self, denoiser: Denoiser, tokens: Sequence[int]) -> None:
        self.denoiser, self.tokens = denoiser, tokens
        self.vocab_size, self.mask_id = denoiser.vocab_size, denoiser.mask_id
        self.interpolant, self.device = (getattr(denoiser, name, None) for name in ("interpolant", "device"))

    def __call__(self, canvas: Canvas, alpha: Tensor) -> Prediction:
        prediction = self.denoiser(canvas, alpha)
        never = torch.tensor(self.tokens, device=prediction.log_probs.device)
        return replace(prediction, log_probs=prediction.log_probs.index_fill(1, never, -torch.inf).log_softmax(1))


def bar_on_stderr(*columns: ProgressColumn) -> Bar:
    """A bar on standard error that is gone when it is over; off a terminal it writes nothing, not even a line feed."""
    console = Console(stderr=True)
    return Bar(*columns, console=console, transient=True, disable=not console.is_interactive)


@contextmanager
def progress_bar(total: int, what: str = "writing") -> Generator[Callable[[int, Progress], None]]:
    """A bar on standard error, by the callback that moves it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%"),
        TimeRemainingColumn(),
    )
    with bar_on_stderr(*columns) as progress:
        bar = progress.add_task(what, total=total)

        def show(done: int, step: Progress) -> None:
            under_way = float(step.alpha.sum()) if len(step.alpha) else 0.0
            progress.update(bar, completed=min(done + step.finished + 0.9 * under_way, total))

        yield show
