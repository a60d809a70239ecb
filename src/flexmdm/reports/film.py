"""A trace as a film: the sequence after each step, and in the terminal masks that appear and turn into words."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from rich.console import Console
from rich.live import Live
from rich.text import Text

from flexmdm.generation.trace import Event
from flexmdm.tasks.pipeline import Answer
from flexmdm.tasks.task import Task

_SECONDS, _LINES = 6.0, 12  # of a film, and of its strip where nothing moves


@dataclass(frozen=True)
class Entry:
    """One entry of a frame: its identity, its token (``None``: a mask), and whether it is new or newly revealed."""

    identity: int
    token: int | None
    new: bool


@dataclass(frozen=True)
class Frame:
    """The sequence after so many steps, at this clock."""

    steps: int
    alpha: float
    entries: tuple[Entry, ...]


def frames_of(events: Sequence[Event], start: Sequence[int | None] = ()) -> list[Frame]:
    """Return the sequence after every step in which something happened; the first is ``start``, the tokens of a prompt.

    >>> events = [Event(0, 0.5, "insert", 0, entry=0), Event(2, 1.0, "reveal", 0, entry=0, token=4)]
    >>> [(frame.steps, frame.alpha, [entry.token for entry in frame.entries]) for frame in frames_of(events)]
    [(0, 0.0, []), (1, 0.5, [None]), (3, 1.0, [4])]
    """
    frames = [Frame(0, 0.0, tuple(Entry(number, token, False) for number, token in enumerate(start)))]
    for step in sorted({event.step for event in events}):
        happened = [event for event in events if event.step == step]
        entries = [replace(entry, new=False) for entry in frames[-1].entries]
        # Positions are those after the step: from left to right, each insertion finds its place.
        for event in sorted((e for e in happened if e.kind == "insert"), key=lambda e: e.position):
            entries.insert(event.position, Entry(event.entry, None, True))
        for event in (e for e in happened if e.kind == "reveal"):
            entries[event.position] = replace(entries[event.position], token=event.token, new=True)
        frames.append(Frame(step + 1, happened[0].alpha, tuple(entries)))
    return frames


def thin_out(frames: Sequence[Frame], rows: int) -> list[Frame]:
    """Return at most ``rows`` of the frames, evenly, the last one included; new is new since the one before."""
    frames = list(frames)
    if len(frames) > rows:
        frames = [frames[round(i * (len(frames) - 1) / (rows - 1))] for i in range(rows)]
    result, before = [], {}
    for frame in frames:
        entries = tuple(replace(e, new=before.get(e.identity, ...) != e.token) for e in frame.entries)
        result.append(replace(frame, entries=entries))
        before = {entry.identity: entry.token for entry in frame.entries}
    return result


def play(task: Task, answer: Answer, console: Console) -> None:
    """Show how an answer came about (it must have a trace): as a film, or as a strip if this is no terminal.

    What it came to is not shown: the film goes when it is over, and the strip ends before it.
    """
    frames = frames_of(answer.events, answer.prompt.tokens)
    if not console.is_terminal:
        for frame in thin_out(frames, _LINES)[:-1]:
            console.print(picture(task, frame, answer), highlight=False)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for frame in frames:
            live.update(picture(task, frame, answer), refresh=True)
            time.sleep(_SECONDS / max(len(frames), 12))


def picture(task: Task, frame: Frame, answer: Answer) -> Text:
    """Return one frame: given text dim, masks as grey dots, what was found plain, and the newest green."""
    given = {number for number, token in enumerate(answer.prompt.tokens) if token is not None}

    def style(entry: Entry) -> str:
        if entry.token is None:
            return "grey50"
        return "dim" if entry.identity in given else "bold green" if entry.new else ""

    text = Text(f"clock {frame.alpha:4.2f} ", style="dim")
    for same, entries in groupby(frame.entries, style):  # decoded together: a character may be several tokens
        text.append(task.show([entry.token for entry in entries]), style=same)
    return text
