"""What one sees of a text model while it trains: two samples, and the likelihood of held-out sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.tasks.answers import EMPTY
from flexmdm.tasks.likelihoods import Bits, bits
from flexmdm.tasks.text.pipeline import TextPipeline
from flexmdm.training.sharding import is_sharded

SAMPLES_FILE = "samples.txt"
SAMPLES, SEQUENCES, TIMES, STEPS = 2, 32, 8, 32


class Preview:
    """Called with the averaged model and the step at every evaluation."""

    def __init__(self, task: Any, folder: Path, console: Console) -> None:
        self.task, self.file, self.console = task, folder / SAMPLES_FILE, console

    def samples(self, model: FlexMDMModel, step: int) -> list[str]:
        """What to show."""
        return TextPipeline(self.task, model).sample(SAMPLES, steps=STEPS, seed=step)

    def bits(self, model: FlexMDMModel) -> Bits:
        """Of some held-out sequences."""
        return bits(model, self.task, self.task.validation.some(SEQUENCES), TIMES)

    def __call__(self, model: FlexMDMModel, step: int) -> dict[str, float]:
        samples = [] if is_sharded(model) else self.samples(model, step)  # how many steps that takes, no two agree on
        for line in (line for text in samples for line in (text or EMPTY).split("\n")):
            self.console.print(f"  [dim]|[/] {escape(line)}", highlight=False, overflow="ellipsis", no_wrap=True)
        if not self.console.quiet:
            with self.file.open("a") as file:
                file.writelines(f"--- step {step}\n{text}\n" for text in samples)
        score = self.bits(model)
        figures = {"eval_bits_per_token": score.per_token, "eval_bits_per_character": score.per_character}
        errors = {f"{name}_standard_error": figure.standard_error for name, figure in figures.items()}
        return {name: figure.value for name, figure in figures.items()} | errors
