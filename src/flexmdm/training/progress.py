"""Show how far a run is, by a bar and a log, and end it when it is interrupted."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers import TrainerCallback

from flexmdm.progress import ProgressBar
from flexmdm.training.timing import TimeLimit

_BITS = {"eval_bits_per_token": "bits per token", "eval_bits_per_character": "bits per character"}
LOG_FILE = "log.jsonl"


class LiveProgress(TrainerCallback):
    """A bar with the loss, tokens per second and the time left; one line per evaluation. Plain lines off a terminal.

    The bar shows the steps, or with a ``limit`` the time.
    """

    def __init__(self, console: Console, title: str, limit: TimeLimit | None = None) -> None:
        self.console, self.title, self.limit, self.last_line = console, title, limit, 0.0
        self.bar = ProgressBar(title, counts=limit is None, elapsed=True, console=console, transient=False)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.began, self.first = time.monotonic(), state.global_step
        steps = state.max_steps, state.global_step
        self.bar.restart(self.title, *(steps if self.limit is None else (self.limit.seconds,)))
        self.bar.progress.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.limit is None:
            return self.bar.update(state.global_step)
        passed = time.monotonic() - self.began
        return self.bar.update(passed, passed + self._left(state))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if not logs or "loss" not in logs:
            return
        figures = f"loss {logs['loss']:.3f}  {logs.get('tokens_per_second', 0):,.0f} tokens/s"
        step = f"{state.global_step}/{state.max_steps}" if self.limit is None else f"step {state.global_step:,}"
        self.bar.update(figures=figures if self.limit is None else f"{step}  {figures}")
        if not self.console.is_interactive and time.monotonic() - self.last_line > 30:
            self.last_line = time.monotonic()
            left = self._left(state)
            soon = f"{left:.0f} s" if left < 60 else f"{left / 60:.0f} min"
            self.console.print(f"{self.title} {step}  {figures}  {soon} left")

    def _left(self, state: Any) -> float:
        """Return the seconds until all steps are done, or until the time is up."""
        done = state.global_step - self.first
        left = (time.monotonic() - self.began) / max(done, 1) * (state.max_steps - state.global_step)
        return left if self.limit is None else min(left, self.limit.left)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        terms = f" (unmasking {metrics['eval_unmasking']:.3f}, insertion {metrics['eval_insertion']:.3f})"
        bits = {words: (metrics[n], metrics[f"{n}_standard_error"]) for n, words in _BITS.items() if n in metrics}
        if len(set(bits.values())) < len(bits):  # tokens are characters
            del bits["bits per token"]
        self.console.print(
            f"{self.title} step {state.global_step}: held-out loss {metrics['eval_loss']:.3f}"
            + (terms if metrics["eval_insertion"] else "")  # MDM has no insertions
            + "".join(f", {value:.3f} ± {error:.3f} {words}" for words, (value, error) in bits.items())
        )

    def stop(self, *_: Any, **__: Any) -> None:
        self.bar.progress.stop()

    on_train_end = stop


class FileLog(TrainerCallback):
    """One JSON object per line: step, losses, speed, sequences seen, and the seconds spent in training so far."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / LOG_FILE

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Forget what came after the checkpoint that the run goes on from."""
        kept = [line for line in read_log(self.file) if line["step"] <= state.global_step] if state.global_step else []
        self.file.parent.mkdir(parents=True, exist_ok=True)
        draft = self.file.with_suffix(".new")
        draft.write_text("".join(json.dumps(line) + "\n" for line in kept))
        draft.replace(self.file)
        self.before = kept[-1]["seconds"] if kept else 0.0
        self.began = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if not logs or not {"loss", "eval_loss"} & set(logs):
            return
        seconds = self.before + time.monotonic() - self.began
        line = {"step": state.global_step, "seconds": round(seconds, 2), **logs}
        line.pop("epoch", None)
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")


class Interruption(TrainerCallback):
    """The first Ctrl-C (or SIGTERM) ends training after the step and saves it; a second one ends it at once."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        if threading.current_thread() is threading.main_thread():  # no other may
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)

    def _ask(self, number: int, frame: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.asked:
            control.should_save = control.should_training_stop = True

    def release(self) -> None:
        """Restore the handlers of signals that were there before training."""
        for number, handler in self._before.items():
            signal.signal(number, handler)


def read_log(file: Path) -> list[dict[str, float]]:
    """Return the lines of a log without a last line that was cut off."""
    if not file.is_file():
        return []
    lines = []
    for text in file.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines


def training_of(folder: Path, before: Sequence[Path] = ()) -> dict[str, float] | None:
    """Return the hours, steps and sequences that a run has been trained for; ``None`` if it has no log.

    Those of a run that went on from the weights of others are counted from their logs on: ``before``.
    """
    log = read_logs([*before, folder / LOG_FILE])
    last = log[-1] if log else None
    return last and {"hours": round(last["seconds"] / 3600, 2), "steps": last["step"], "sequences": last["sequences"]}


def read_logs(files: Sequence[Path]) -> list[dict[str, float]]:
    """Return the logs of trainings that went on from each other as one: steps, seconds and sequences are counted on."""
    lines: list[dict[str, float]] = []
    for file in files:
        past = {name: lines[-1][name] if lines else 0 for name in ("step", "seconds", "sequences")}
        lines += [{**line, **{name: line[name] + count for name, count in past.items()}} for line in read_log(file)]
    return lines
