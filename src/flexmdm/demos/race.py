"""Trainings side by side, each in a process of its own with one thread, under one live display."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from flexmdm.runs.config import RUN_FILE, RunConfig
from flexmdm.training.progress import LOG_FILE, read_log

_TRAIN = "from flexmdm.cli import main; main()"
_TAIL = 15  # lines of a failed run that are shown
_POLL, _LINE_EVERY = 0.25, 20.0  # seconds between looks at the runs, and between lines where there is no terminal


@dataclass
class Runner:
    """A run of `flexmdm train`, and how far its folder says it is."""

    name: str
    folder: Path
    process: subprocess.Popen
    seconds: float | None
    planned: int | None = None
    log: list[dict[str, float]] = field(default_factory=list)

    @property
    def step(self) -> int:
        return int(self.log[-1]["step"]) if self.log else 0

    def look(self) -> None:
        """Read its folder again."""
        if self.planned is None and (self.folder / RUN_FILE).is_file():
            self.planned = RunConfig.read(self.folder).recipe.steps
        self.log = [line for line in read_log(self.folder / LOG_FILE) if "loss" in line]

    @property
    def total(self) -> float | None:
        """Return what `done` is counted to: the seconds of a training by the clock, else the steps."""
        return self.planned if self.seconds is None else self.seconds

    @property
    def done(self) -> float:
        """Return how much of the total is done."""
        return self.step if self.seconds is None or not self.log else self.log[-1]["seconds"]

    @property
    def figures(self) -> str:
        """Return loss, speed and time left."""
        if not self.log or not self.total:
            return "getting ready"
        line = self.log[-1]
        left = line["seconds"] * (self.total / max(self.done, 0.01) - 1)
        minutes, seconds = divmod(round(max(left, 0)), 60)
        rest = f"{minutes}:{seconds:02} left" if self.process.poll() is None else "done"
        return f"loss {line['loss']:5.1f}  {line['tokens_per_second']:6,.0f} tokens/s  {rest}"


def race(
    folders: Mapping[str, Path],
    arguments: Mapping[str, Sequence[str]],
    console: Console,
    seconds: float | None = None,
) -> None:
    """Train all at the same time, and show how far they are; if one fails, so does this, and the others are ended.

    Args:
        folders: where each run goes, by the name to show.
        arguments: further arguments of `flexmdm train` for each.
        console: where to show it: bars on a terminal, else a line now and then.
        seconds: how long training may take, if that is known.
    """
    columns = (TextColumn("[bold]{task.description:8}"), BarColumn(bar_width=24), TextColumn("{task.fields[figures]}"))
    bars = Progress(*columns, console=console, disable=not console.is_terminal)
    with runners(folders, arguments, seconds) as everyone, bars:
        tasks = [bars.add_task(runner.name, total=None, figures="starting") for runner in everyone]
        said, going = time.monotonic(), True
        while going:
            time.sleep(_POLL)
            going = any(runner.process.poll() is None for runner in everyone)
            for task, runner in zip(tasks, everyone, strict=True):
                runner.look()
                if runner.process.poll():
                    messages = runner.folder.with_suffix(".txt")
                    lines = messages.read_text(errors="replace").splitlines()[-_TAIL:]
                    console.print(*lines, sep="\n", markup=False, highlight=False, soft_wrap=True)
                    raise ChildProcessError(
                        f"training {runner.name} failed with exit code {runner.process.returncode}; "
                        f"its last words are above, all of them in {messages}"
                    )
                completed = runner.total if runner.process.poll() == 0 else runner.done
                bars.update(task, total=runner.total, completed=completed, figures=runner.figures)
            if not console.is_terminal and (not going or time.monotonic() - said > _LINE_EVERY):
                said = time.monotonic()
                for runner in everyone:
                    step = f"{runner.step}/{runner.planned or '?'}" if seconds is None else f"step {runner.step}"
                    console.print(f"{runner.name:8} {step:>9}  {runner.figures}", highlight=False)


@contextmanager
def runners(
    folders: Mapping[str, Path], arguments: Mapping[str, Sequence[str]], seconds: float | None = None
) -> Generator[list[Runner]]:
    """Start the processes; whatever happens, none outlives this."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "COLUMNS": "120"}
    started: list[Runner] = []
    try:
        for name, folder in folders.items():
            command = [sys.executable, "-c", _TRAIN, "train", "--out", str(folder), *arguments[name]]
            with folder.with_suffix(".txt").open("w") as messages:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=messages, stderr=subprocess.STDOUT, env=environment
                )
            started.append(Runner(name, folder, process, seconds))
        yield started
    finally:
        for runner in started:
            runner.process.terminate()  # no harm where it has ended
        for runner in started:
            try:
                runner.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                runner.process.kill()
                runner.process.wait()
