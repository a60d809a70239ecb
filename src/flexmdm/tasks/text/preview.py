"""What one sees of a text model while it trains: two samples, and the likelihood of held-out sequences."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.tasks.text.likelihoods import bits
from flexmdm.tasks.text.pipeline import TextPipeline
from flexmdm.tasks.text.task import TextTask

SAMPLES_FILE = "samples.txt"
SAMPLES, SEQUENCES, TIMES, STEPS = 2, 32, 8, 32


class Preview:
    """Called with the averaged model and the step at every evaluation."""

    def __init__(self, task: TextTask, folder: Path, console: Console) -> None:
        self.task, self.file, self.console = task, folder / SAMPLES_FILE, console

    def __call__(self, model: FlexMDMModel, step: int) -> dict[str, float]:
        samples = TextPipeline(self.task, model).sample(SAMPLES, steps=STEPS, seed=step)
        for text in samples:
            self.console.print(f"  [dim]|[/] {escape(text)}", highlight=False, overflow="ellipsis", no_wrap=True)
        if not self.console.quiet:
            with self.file.open("a") as file:
                file.writelines(f"--- step {step}\n{text}\n" for text in samples)
        score = bits(model, self.task, self.task.validation.some(SEQUENCES), TIMES)
        return {
            "eval_bits_per_token": score.per_token.value,
            "eval_bits_per_character": score.per_character.value,
        }
