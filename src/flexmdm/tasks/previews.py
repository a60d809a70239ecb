"""Previews of a model while it trains: two answers, and the likelihood of held-out sequences."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.tasks.likelihoods import bits
from flexmdm.tasks.pipeline import EMPTY
from flexmdm.tasks.task import Task
from flexmdm.training.sharding import is_sharded

SAMPLES_FILE = "samples.txt"
_SAMPLES, _SEQUENCES, _TIMES = 2, 32, 8


class Preview:
    """Shows samples and measures bits; called with the averaged model and the step at every evaluation."""

    def __init__(self, task: Task, folder: Path, console: Console) -> None:
        self.task, self.file, self.console = task, folder / SAMPLES_FILE, console

    def __call__(self, model: FlexMDMModel, step: int) -> dict[str, float]:
        # How many steps sampling takes, no two processes of a sharded model agree on.
        samples = [] if is_sharded(model) else self.task.pipeline(model).preview(_SAMPLES, seed=step)
        for line in (line for text in samples for line in (text or EMPTY).split("\n")):
            self.console.print(f"  [dim]|[/] {escape(line)}", highlight=False, overflow="ellipsis", no_wrap=True)
        if not self.console.quiet:
            with self.file.open("a") as file:
                file.writelines(f"--- step {step}\n{text}\n" for text in samples)
        score = bits(model, self.task, self.task.validation.some(_SEQUENCES), _TIMES)
        figures = {"eval_bits_per_token": score.per_token, "eval_bits_per_character": score.per_character}
        errors = {f"{name}_standard_error": figure.standard_error for name, figure in figures.items()}
        return {name: figure.value for name, figure in figures.items()} | errors
