"""A picture of one sequence as it grows: masks appear between what is there, and become tokens."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from flexmdm.generation.trace import Event
from flexmdm.reports.charts import COLOURS, GREY, INK, SOFT, STYLE
from flexmdm.reports.film import frames_of, thin_out

_BOX, _ROW = 0.86, 1.55  # side of a box, distance of two rows, in boxes


@rc_context(STYLE)
def draw_growth(events: Sequence[Event], letters: str, title: str, rows: int = 12) -> Figure:
    """Draw the film strip of a trace: time runs down, grey boxes are masks, and lines follow an entry."""
    frames = thin_out(frames_of(events), rows)
    width = max(max(len(frame.entries) for frame in frames), 8)
    left, right = -width / 2 - 3.0, width / 2 + 0.3
    height = _ROW * (len(frames) - 1) + 3.3
    figure = Figure(figsize=(0.36 * (right - left), 0.36 * height), facecolor="white")
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(left, right), ylim=(height - 2.2, -2.2))
    axes.set_axis_off()
    axes.text(left + 0.3, -1.4, title, fontsize=11.5, fontweight="bold", color=INK, va="center")
    above: dict[int, float] = {}  # where each entry is in the row above
    for row, frame in enumerate(frames):
        y, across = row * _ROW, {}
        axes.text(left + 0.3, y, f"α = {frame.alpha:.2f}", fontsize=8.5, color=SOFT, va="center")
        if not frame.entries:
            axes.text(0, y, "nothing yet", fontsize=8.5, color=SOFT, va="center", ha="center", style="italic")
        for number, entry in enumerate(frame.entries):
            x = across[entry.identity] = number - (len(frame.entries) - 1) / 2
            corner = (x - _BOX / 2, y - _BOX / 2)
            box = FancyBboxPatch(corner, _BOX, _BOX, "round,pad=0,rounding_size=0.16", linewidth=1.3, zorder=3)
            box.set_facecolor(GREY if entry.token is None else COLOURS[entry.token % 6])
            box.set_edgecolor(INK if entry.new else "none")
            axes.add_patch(box)
            if entry.token is not None:
                look = {"color": "white", "fontsize": 11, "fontweight": "bold", "ha": "center", "va": "center_baseline"}
                axes.text(x, y - 0.02, letters[entry.token], look, zorder=4)
            if entry.identity in above:
                ends = (y - _ROW + _BOX / 2, y - _BOX / 2)
                axes.plot((above[entry.identity], x), ends, color=GREY, linewidth=1.4, zorder=1)
        above = across
    return figure
