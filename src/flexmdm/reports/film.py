"""A trace as a film: the sequence after each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from flexmdm.generation.trace import Event
from flexmdm.reports.charts import INK, SOFT

TOKEN_COLOURS = ("#3d7dca", "#e07b39", "#2f9e77", "#b5529c", "#c9a227", "#6b5bb3")
MASK_COLOUR, THREAD_COLOUR = "#d5dae1", "#d5dae1"
_BOX, _ROW = 0.86, 1.55  # side of a box, distance of two rows, in boxes


@dataclass(frozen=True)
class Entry:
    """One entry of a frame: its identity, its token (``None``: a mask), and whether that is news."""

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
    """The sequence after every step in which something happened, what it grows from (``start``, a prompt) first.

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
    """At most ``rows`` of the frames, evenly, the last one included; what is new is new since the one before."""
    frames = list(frames)
    if len(frames) > rows:
        frames = [frames[round(i * (len(frames) - 1) / (rows - 1))] for i in range(rows)]
    result, before = [], {}
    for frame in frames:
        entries = tuple(replace(e, new=before.get(e.identity, ...) != e.token) for e in frame.entries)
        result.append(replace(frame, entries=entries))
        before = {entry.identity: entry.token for entry in frame.entries}
    return result


def draw_growth(events: Sequence[Event], letters: str, title: str, rows: int = 12) -> Figure:
    """The film strip of a trace: time runs down, grey boxes are masks, and lines follow an entry from row to row."""
    frames = thin_out(frames_of(events), rows)
    width = max(max(len(frame.entries) for frame in frames), 8)
    left, right = -width / 2 - 3.0, width / 2 + 0.3
    height = _ROW * (len(frames) - 1) + 3.3
    with rc_context({"font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"]}):
        scale = 0.36  # inches per box
        figure = Figure(figsize=(scale * (right - left), scale * height), facecolor="white")
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_xlim(left, right)
        axes.set_ylim(height - 2.2, -2.2)
        axes.set_axis_off()
        axes.text(left + 0.3, -1.4, title, fontsize=11.5, fontweight="bold", color=INK, va="center")
        for row, frame in enumerate(frames):
            _draw_frame(axes, frame, row, left, letters)
        for row, (above, below) in enumerate(zip(frames[:-1], frames[1:], strict=True)):
            _draw_threads(axes, above, below, row)
    return figure


def _place(frame: Frame, index: int) -> float:
    return index - (len(frame.entries) - 1) / 2


def _draw_frame(axes: Axes, frame: Frame, row: int, left: float, letters: str) -> None:
    y = row * _ROW
    axes.text(left + 0.3, y, f"α = {frame.alpha:.2f}", fontsize=8.5, color=SOFT, va="center")
    if not frame.entries:
        axes.text(0, y, "nothing yet", fontsize=8.5, color=SOFT, va="center", ha="center", style="italic")
    for index, entry in enumerate(frame.entries):
        x = _place(frame, index)
        colour = MASK_COLOUR if entry.token is None else TOKEN_COLOURS[entry.token % len(TOKEN_COLOURS)]
        axes.add_patch(
            FancyBboxPatch(
                (x - _BOX / 2, y - _BOX / 2),
                _BOX,
                _BOX,
                boxstyle="round,pad=0,rounding_size=0.16",
                facecolor=colour,
                edgecolor=INK if entry.new else "none",
                linewidth=1.3,
                zorder=3,
            )
        )
        if entry.token is not None:
            axes.text(
                x, y - 0.02, letters[entry.token], color="white", fontsize=11, fontweight="bold",
                ha="center", va="center_baseline", zorder=4,
            )  # fmt: skip


def _draw_threads(axes: Axes, above: Frame, below: Frame, row: int) -> None:
    start = {entry.identity: _place(above, index) for index, entry in enumerate(above.entries)}
    for index, entry in enumerate(below.entries):
        if entry.identity in start:
            x = (start[entry.identity], _place(below, index))
            axes.plot(
                x, (row * _ROW + _BOX / 2, (row + 1) * _ROW - _BOX / 2), color=THREAD_COLOUR, linewidth=1.4, zorder=1
            )
