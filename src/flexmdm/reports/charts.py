"""The chart kit: curves with error bars, histograms of lengths and losses, as files or inside a page."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from io import StringIO
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, PercentFormatter

from flexmdm.evaluation.intervals import Interval
from flexmdm.evaluation.trials import Outcome, Quality

INK, SOFT, FAINT, GREY, BAND = "#1f2933", "#5f6b7a", "#e4e7eb", "#d5dae0", "#eef1f4"
# Distinct with any kind of colour sight, the last two by their markers.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#7a6a00", "#444444", "#5aa9d6", "#a8432f")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
GLYPHS = "●■▲◆▼✚✖◀"  # the markers as characters, for a legend in a page
THEME = {INK: "ink", SOFT: "soft", FAINT: "line", GREY: "grey", BAND: "band", "#ffffff": "paper"}
THEME |= {colour: f"c{number}" for number, colour in enumerate(COLOURS)}  # names of the variables in a style sheet
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.5,
    "svg.hashsalt": "flexmdm",  # the same chart gives the same file
    "text.parse_math": False,  # names of runs are no formulas
}
Numbers = Sequence[float] | np.ndarray
Logs = Mapping[str, Sequence[Mapping[str, float]]]  # by the name of the run, as `read_log` gives them
_DOTS: dict[str, Any] = {"markersize": 6.5, "markeredgecolor": "white", "markeredgewidth": 0.8}
_LABEL_DISTANCE = 15.0  # points between the baselines of two labels


@dataclass(frozen=True)
class Curve:
    """One sampler or model: values with their intervals, such as those of a quality, in the order of ``x``."""

    label: str
    x: Sequence[float]
    y: Sequence[Interval]


@dataclass(frozen=True)
class Panel:
    """One chart of a figure.

    Attributes:
        quality, across: what the vertical and the horizontal axis show.
        floor, floor_label: everything below is noise: exact samples would show as much.
        scale: of the vertical axis: ``share`` (from 0 to 1, and more is better), ``error`` (linear in the noise,
            logarithmic above it) or ``log``.
        references: values for comparison, by name, each a dashed line.
    """

    title: str
    quality: str
    curves: Sequence[Curve]
    floor: float = 0.0
    floor_label: str = ""
    across: str = "evaluations of the denoiser per sequence"
    scale: str = "share"
    references: Mapping[str, float] = field(default_factory=dict)


# Files and pages ------------------------------------------------------------------------------------------------------


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of so many inches."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1), facecolor="white")


@rc_context(STYLE)
def save_figure(figure: Figure, *paths: Path) -> None:
    """Write a figure, in the format that each name ends in, without date or machine."""
    for path in paths:
        figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})


def inline_svg(figure: Figure, label: str) -> str:
    """Return a figure as an SVG element that fills its column of a page, with a text for who cannot see it.

    Its colours are the variables of `THEME`, so that a page with a dark style sheet has dark charts. It has no
    identifiers that another chart may have, and refers to nothing outside.
    """
    for artist in figure.findobj():
        artist.set_clip_on(False)
    buffer = StringIO()
    # Definitions are named by a hash of their content, and here also of the label.
    with rc_context(STYLE | {"svg.fonttype": "none", "svg.hashsalt": label}):
        figure.savefig(buffer, format="svg", transparent=True)
    found = re.search(r'<svg [^>]*viewBox="([^"]*)"[^>]*>(.*)</svg>', buffer.getvalue(), re.DOTALL)
    assert found is not None
    box, content = found.groups()
    unused = r"<style.*?</style>|<metadata>.*?</metadata>|<!--.*?-->|\n\s*| id=\"[\w.]+_\d+\""
    content = re.sub(unused, "", content, flags=re.DOTALL)
    for colour, name in THEME.items():
        content = content.replace(colour, f"var(--{name}, {colour})")
    return f'<svg class="chart" viewBox="{box}" role="img" aria-label="{escape(label)}">{content}</svg>'


# Quality against evaluations ------------------------------------------------------------------------------------------


def quality_panel(title: str, outcomes: Sequence[Outcome], noise: Quality, samples: int) -> Panel:
    """Return the outcomes of trials on one source, one curve per sampler, with the noise of as many exact samples.

    Outcomes without a single sample on the support are left out.
    """
    curves = []
    for label in dict.fromkeys(outcome.trial.label for outcome in outcomes):
        mine = [o for o in outcomes if o.trial.label == label and math.isfinite(o.quality.error)]
        mine.sort(key=lambda outcome: outcome.evaluations)
        values = []
        for quality in (outcome.quality for outcome in mine):
            spread = 0.0 if quality.excess is None else quality.excess.standard_error
            values.append(Interval(quality.error, quality.error - spread, quality.error + spread))
        if mine:
            curves.append(Curve(label.split(" (")[0], [o.evaluations for o in mine], values))
    return Panel(
        title=title,
        quality="total variation from the truth" if noise.excess is None else "excess nats per token",
        curves=curves,
        floor=noise.error if noise.excess is None else 2 * noise.excess.standard_error,
        floor_label=f"noise: what {samples:,} exact samples would show",
        scale="error",
    )


@rc_context(STYLE)
def draw_panels(panels: Sequence[Panel], title: str) -> Figure:
    """Return a figure with one chart per panel, two beside each other; a curve looks the same in all."""
    names = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = new_figure(5.6 * columns, 4.1 * rows + 0.7)
    figure.suptitle(title, x=0.012, ha="left", fontsize=14, fontweight="bold", color=INK)
    for number, panel in enumerate(panels, start=1):
        _draw_panel(figure.add_subplot(rows, columns, number), panel, names)
    figure.draw_without_rendering()  # lays everything out, so that the labels know where they are
    for axes, panel in zip(figure.axes, panels, strict=True):
        _label_curves(axes, panel, names)
    return figure


@rc_context(STYLE)
def draw_panel(panel: Panel, names: list[str]) -> Figure:
    """Return a figure of one chart without labels: the page has a legend, in the order of ``names``."""
    figure = new_figure(5.2, 2.7)
    _draw_panel(figure.subplots(), panel, names)
    return figure


def _draw_panel(axes: Axes, panel: Panel, names: list[str]) -> None:
    across = [x for curve in panel.curves for x in curve.x] or [1.0]
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(across) / 1.25, max(across) * 1.25)
    powers = [2.0**k for k in range(16) if min(across) / 1.3 <= 2.0**k <= max(across) * 1.3]
    axes.set_xticks(powers, [f"{x:g}" for x in powers])
    for curve in panel.curves:
        number = names.index(curve.label)
        values = [one.value for one in curve.y]
        errors = np.array([(one.value - one.low, one.high - one.value) for one in curve.y]).T  # [2, N]
        look = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
        axes.errorbar(curve.x, values, errors, linewidth=1.8, elinewidth=1.0, zorder=3, **_DOTS, **look)
    for name, value in panel.references.items():
        axes.axhline(value, color=SOFT, linewidth=1.2, linestyle=(0, (5, 4)), zorder=2)
        text = f"{name}: {value:.3g}".encode(errors="replace").decode()
        _note(axes, text, (1.0, value), (-4, 4), ha="right", xycoords=axes.get_yaxis_transform())
    {"share": _share_axis, "error": _error_axis, "log": _log_axis}[panel.scale](axes, panel)
    axes.set_title(panel.title, loc="left", fontsize=11, color=INK, pad=10)
    dress(axes, panel.across, panel.quality)


def _share_axis(axes: Axes, panel: Panel) -> None:
    """Go from 0 to above all intervals, with room for a marker at 0."""
    top = min(axes.get_ylim()[1], 1.02)
    axes.set_ylim(-0.04 * top, top)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))


def _error_axis(axes: Axes, panel: Panel) -> None:
    """Be linear in the noise, and logarithmic above it."""
    floor = panel.floor if panel.floor > 0 else 1e-3  # a single sample has no standard error
    axes.set_yscale("symlog", linthresh=floor, linscale=0.6)
    lowest = min([0.0, *(one.value for curve in panel.curves for one in curve.y)])
    highest = max([3 * floor, *_values(panel)])
    bottom = -floor if lowest < 0 else 0.0
    axes.set_ylim(min(1.1 * lowest, bottom), highest * 1.5)
    axes.axhspan(bottom, floor, color=BAND, zorder=0, linewidth=0)
    _note(axes, panel.floor_label, (0.0, 0.0), (6, 6), xycoords="axes fraction")
    _set_ticks(axes, [0.0, *(tick for tick in _round_numbers(floor, highest * 1.5) if tick > floor)])


def _log_axis(axes: Axes, panel: Panel) -> None:
    values = [value for value in _values(panel) if value > 0] or [1.0]
    low, high = min(values) / 1.2, max(values) * 1.2
    axes.set_yscale("log", nonpositive="clip")
    axes.set_ylim(low, high)
    _set_ticks(axes, _round_numbers(low, high))


def _values(panel: Panel) -> list[float]:
    """Return all finite values that a panel shows, the ends of the error bars included."""
    ends = [end for curve in panel.curves for one in curve.y for end in (one.low, one.high)]
    return [value for value in (*panel.references.values(), *ends) if math.isfinite(value)]


def _round_numbers(low: float, high: float) -> list[float]:
    """Return round numbers for a logarithmic axis, more of them where there would be few.

    >>> _round_numbers(0.3, 25), _round_numbers(2.5, 6)
    ([0.5, 1.0, 2.0, 5.0, 10.0, 20.0], [3.0, 4.0, 5.0])
    """
    for marks in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        ticks = [m * 10.0**k for k in range(-5, 9) for m in marks if low <= m * 10.0**k <= high]
        if len(ticks) >= 3:
            return ticks
    return [tick for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]


def _set_ticks(axes: Axes, ticks: Sequence[float]) -> None:
    axes.set_yticks(ticks, [f"{tick:,.6g}" for tick in ticks])


def _note(axes: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **options: Any) -> None:
    options = {"textcoords": "offset points", "va": "bottom", "fontsize": 9, "color": SOFT, **options}
    axes.annotate(text, at, xytext=offset, **options).set_in_layout(False)


def dress(axes: Axes, across: str, upwards: str = "") -> None:
    """Name the axes, and leave a grid and the line below."""
    axes.set_xlabel(across, color=SOFT)
    axes.set_ylabel(upwards, color=SOFT)
    axes.minorticks_off()
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=SOFT, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GREY)


def _label_curves(axes: Axes, panel: Panel, names: list[str]) -> None:
    """Write the name of each curve at the right edge, in its colour; names that would collide move apart."""
    scale = 72.0 / axes.figure.dpi
    lowest = -math.inf
    for end, label in sorted((curve.y[-1].value, curve.label) for curve in panel.curves):
        height = axes.transData.transform((1.0, end))[1] * scale
        shift = max(lowest - height, 0.0)
        lowest = height + shift + _LABEL_DISTANCE
        axes.annotate(
            label,
            (1.0, end),
            xycoords=axes.get_yaxis_transform(),  # the width of the axes, and data upwards
            xytext=(9, shift),
            textcoords="offset points",
            va="center",
            color=COLOURS[names.index(label) % len(COLOURS)],
            fontweight="bold",
            annotation_clip=False,
        )


# Lengths and losses ---------------------------------------------------------------------------------------------------


@rc_context(STYLE)
def draw_lengths(
    edges: Numbers,
    area: Numbers,
    outlines: Sequence[tuple[str, Numbers]],
    across: str,
    colour: str = GREY,
    width: float = 5.2,
    height: float = 2.5,
) -> Figure:
    """Return a figure of shares by length: one filled histogram in a colour, and outlines of others in theirs."""
    figure = new_figure(width, height)
    axes = figure.subplots()
    axes.stairs(area, edges, fill=True, color=colour)
    for other, shares in outlines:
        axes.stairs(shares, edges, color=other, linewidth=1.6)
    axes.set_xlim(edges[0], edges[-1])
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    dress(axes, across)
    return figure


def draw_loss(axes: Axes, logs: Logs, key: str, unit: float, colours: Sequence[str] = COLOURS) -> None:
    """Draw the loss of each run against ``key`` of its log: dots for batches, a line for held-out sequences."""
    losses = []
    for colour, (name, log) in zip(cycle(colours), logs.items(), strict=False):
        batches, held_out = (
            np.array([(line[key] / unit, line[loss]) for line in log if line.get(loss, 0) > 0]).reshape(-1, 2)
            for loss in ("loss", "eval_loss")
        )
        axes.plot(*batches.T, ".", color=colour, markersize=3.5, alpha=0.3)
        axes.plot(*held_out.T, "-o", color=colour, markersize=3.5, linewidth=1.6, label=name)
        losses += [*batches[:, 1], *held_out[:, 1]]
    axes.set_yscale("log")
    if losses:
        axes.set_ylim(min(losses) / 1.15, max(losses) * 1.15)
        _set_ticks(axes, _round_numbers(*axes.get_ylim()))
        axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(6))


@rc_context(STYLE)
def loss_figure(logs: Logs, colours: Sequence[str] = COLOURS, width: float = 7.2, height: float = 4.0) -> Figure:
    """Return a figure of the loss against the hours (or minutes) of training; several runs have a legend."""
    longest = max((log[-1]["seconds"] for log in logs.values() if log), default=0.0)
    unit, name = (3600, "hours") if longest > 5400 else (60, "minutes")
    figure = new_figure(width, height)
    axes = figure.subplots()
    draw_loss(axes, logs, "seconds", unit, colours)
    dress(axes, f"{name} of training", "loss (nats per sequence)")
    if len(axes.get_legend_handles_labels()[0]) > 1:
        axes.legend(frameon=False, labelcolor=INK)
    return figure


def draw_losses(logs: Logs, file: Path) -> None:
    """Write a picture of the loss of runs, by name, against the time of training."""
    save_figure(loss_figure(logs), file)
