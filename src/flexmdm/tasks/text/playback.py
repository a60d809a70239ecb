"""A text as it grows, in the terminal: masks appear and turn into words."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from flexmdm.generation.film import Frame, frames_of, thin_out
from flexmdm.tasks.text.pipeline import Filled
from flexmdm.tasks.text.task import TextTask

_SECONDS, _LINES = 6.0, 12  # of a film, and of its strip where nothing moves


def play(task: TextTask, answer: Filled, console: Console | None = None) -> None:
    """Show how an answer came about (it must have a trace): as a film, or as a strip if this is no terminal."""
    console = console or Console()
    frames = frames_of(answer.events, answer.prompt.tokens)
    if not console.is_terminal:
        for frame in thin_out(frames, _LINES):
            console.print(picture(task, frame, answer), highlight=False)
        return
    with Live(console=console, auto_refresh=False) as live:
        for frame in frames:
            live.update(picture(task, frame, answer), refresh=True)
            time.sleep(_SECONDS / max(len(frames), 12))


def picture(task: TextTask, frame: Frame, answer: Filled) -> Text:
    """One frame: given text dim, masks as grey dots, what was found plain, and the newest green."""
    given, fixed = len(answer.prompt.tokens), answer.prompt.tokens
    text = Text(f"{frame.alpha:4.2f} ", style="dim")
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
