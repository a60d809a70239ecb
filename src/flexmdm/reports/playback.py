"""A text as it grows, in the terminal: masks appear and turn into words."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from flexmdm.canvas import Prompt
from flexmdm.generation import Event
from flexmdm.reports.film import Frame, frames_of, thin_out
from flexmdm.tasks.task import Task

_SECONDS, _LINES = 6.0, 12  # of a film, and of its strip where nothing moves


class Traced(Protocol):
    """An answer that knows how it came about."""

    @property
    def prompt(self) -> Prompt: ...

    @property
    def events(self) -> Sequence[Event]: ...


def play(task: Task, answer: Traced, console: Console | None = None) -> None:
    """Show how an answer came about (it must have a trace): as a film, or as a strip if this is no terminal.

    What it came to is not shown: the film goes when it is over, and the strip ends before it.
    """
    console = console or Console()
    frames = frames_of(answer.events, answer.prompt.tokens)
    if not console.is_terminal:
        for frame in thin_out(frames, _LINES)[:-1]:
            console.print(picture(task, frame, answer), highlight=False)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for frame in frames:
            live.update(picture(task, frame, answer), refresh=True)
            time.sleep(_SECONDS / max(len(frames), 12))


def picture(task: Task, frame: Frame, answer: Traced) -> Text:
    """Return one frame: given text dim, masks as grey dots, what was found plain, and the newest green."""
    given, fixed = len(answer.prompt.tokens), answer.prompt.tokens
    text = Text(f"clock {frame.alpha:4.2f} ", style="dim")
    styles = []
    for entry in frame.entries:
        if entry.token is None:
            styles.append("grey50")
        elif entry.identity < given and fixed[entry.identity] is not None:
            styles.append("dim")
        else:
            styles.append("bold green" if entry.new else "")
    # Tokens of one style are decoded together: a character may be several tokens.
    begin = 0
    for end in range(1, len(styles) + 1):
        if end == len(styles) or styles[end] != styles[begin]:
            text.append(task.show([entry.token for entry in frame.entries[begin:end]]), style=styles[begin])
            begin = end
    return text
