"""Charts of quality against the number of evaluations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator, PercentFormatter

from flexmdm.evaluation.trials import Outcome, Quality

INK, SOFT, FAINT = "#1f2933", "#5f6b7a", "#e4e7eb"
# Told apart with any kind of colour sight, the last two by their markers.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#7a6a00", "#444444", "#5aa9d6", "#a8432f")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
_LABEL_DISTANCE = 15.0  # points between the baselines of two labels
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.5,
    "svg.hashsalt": "flexmdm",  # the same chart gives the same file
}


@dataclass(frozen=True)
class Curve:
    """One sampler or model: points (evaluations, quality), in the order of the evaluations.

    Attributes:
        errors: for each point its standard error, or how far its interval reaches down and up.
    """

    label: str
    evaluations: Sequence[float]
    quality: Sequence[float]
    errors: Sequence[float] | Sequence[tuple[float, float]] | None = None


@dataclass(frozen=True)
class Panel:
    """One chart of a figure.

    Attributes:
        title: what is sampled.
        quality: what the vertical axis shows.
        curves: one per sampler or model.
        floor: everything below is noise: exact samples would show as much. Without one the quality is a share, from
            0 to 1, and more is better.
        floor_label: what the band of noise is called.
    """

    title: str
    quality: str
    curves: Sequence[Curve]
    floor: float | None = None
    floor_label: str = ""


def quality_panel(title: str, outcomes: Sequence[Outcome], noise: Quality, samples: int) -> Panel:
    """The outcomes of trials on one source, one curve per sampler, with the noise of as many exact samples.

    Outcomes without a single sample on the support have no place in the chart.
    """
    curves = []
    for label in dict.fromkeys(outcome.trial.label for outcome in outcomes):
        mine = [o for o in outcomes if o.trial.label == label and math.isfinite(o.quality.error)]
        mine.sort(key=lambda outcome: outcome.evaluations)
        excesses = [outcome.quality.excess for outcome in mine]
        errors = [excess.standard_error for excess in excesses if excess is not None] or None
        if mine:
            short = label.split(" (")[0]
            curves.append(Curve(short, [o.evaluations for o in mine], [o.quality.error for o in mine], errors))
    return Panel(
        title=title,
        quality="total variation from the truth" if noise.excess is None else "excess nats per token",
        curves=curves,
        floor=noise.error if noise.excess is None else 2 * noise.excess.standard_error,
        floor_label=f"noise: what {samples:,} exact samples would show",
    )


def draw_panels(panels: Sequence[Panel], title: str, columns: int = 2) -> Figure:
    """A figure with one chart per panel, ``columns`` beside each other; a curve looks the same in all of them."""
    names = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
    with rc_context(_STYLE):
        columns = min(columns, len(panels))
        rows = math.ceil(len(panels) / columns)
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
        figure = Figure(figsize=(5.6 * columns, 4.1 * rows + 0.7), layout=layout, facecolor="white")
        figure.suptitle(title, x=0.012, ha="left", fontsize=14, fontweight="bold", color=INK)
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_panel(axes, panel, names)
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_visible(False)
        figure.draw_without_rendering()  # places everything, so that the labels know where they are
        for axes, panel in zip(grid.flat, panels, strict=False):
            _label_curves(axes, panel, names)
    return figure


def save_figure(figure: Figure, paths: Sequence[Path]) -> None:
    """Write a figure, in the format that each name ends in, without date or machine."""
    with rc_context(_STYLE):
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
            figure.savefig(path, dpi=160, metadata=metadata)


def _draw_panel(axes: Axes, panel: Panel, names: list[str]) -> None:
    axes.set_xscale("log", base=2)
    if panel.floor is not None:
        _error_axis(axes, panel, panel.floor if panel.floor > 0 else 1e-3)  # a single sample has no standard error
    evaluations = [x for curve in panel.curves for x in curve.evaluations] or [1.0]
    axes.set_xlim(min(evaluations) / 1.25, max(evaluations) * 1.25)
    for curve in panel.curves:
        number = names.index(curve.label)
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        axes.errorbar(
            curve.evaluations,
            curve.quality,
            yerr=None if curve.errors is None else np.array(curve.errors).T,  # [N], or [2, N]
            color=colour,
            marker=marker,
            markersize=6.5,
            markeredgecolor="white",
            markeredgewidth=0.8,
            linewidth=1.8,
            elinewidth=1.0,
            zorder=3,
        )
    if panel.floor is None:
        _share_axis(axes)
    axes.set_title(panel.title, loc="left", fontsize=11, color=INK, pad=10)
    axes.set_xlabel("evaluations of the denoiser per sequence", color=SOFT)
    axes.set_ylabel(panel.quality, color=SOFT)
    powers = [2.0**k for k in range(0, 16) if min(evaluations) / 1.3 <= 2.0**k <= max(evaluations) * 1.3]
    axes.xaxis.set_major_locator(FixedLocator(powers))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=SOFT, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#b8c1cc")


def _error_axis(axes: Axes, panel: Panel, floor: float) -> None:
    """Linear in the noise, logarithmic above it."""
    axes.set_yscale("symlog", linthresh=floor, linscale=0.6)
    values = [y for curve in panel.curves for y in curve.quality if not math.isnan(y)]
    lowest, highest = min([0.0, *values]), max([3 * floor, *values])
    bottom = -floor if lowest < 0 else 0.0
    axes.set_ylim(min(1.1 * lowest, bottom), highest * 1.5)
    axes.axhspan(bottom, floor, color="#eef1f4", zorder=0, linewidth=0)
    axes.annotate(
        panel.floor_label,
        (0.0, 0.0),
        xycoords="axes fraction",
        xytext=(6, 6),
        textcoords="offset points",
        va="bottom",
        fontsize=9,
        color=SOFT,
    )
    axes.yaxis.set_major_locator(FixedLocator(_nice_ticks(floor, highest * 1.5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))


def _share_axis(axes: Axes) -> None:
    """From 0 to above all intervals of the curves that are drawn, with room for a marker at 0."""
    top = min(axes.get_ylim()[1], 1.02)
    axes.set_ylim(-0.04 * top, top)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))


def _nice_ticks(floor: float, top: float) -> list[float]:
    """0 and the numbers 1, 2, 5 times a power of ten from the floor to the top."""
    ticks = [m * 10.0**k for k in range(-5, 3) for m in (1, 2, 5)]
    return [0.0, *(tick for tick in ticks if floor < tick <= top)]


def _label_curves(axes: Axes, panel: Panel, names: list[str]) -> None:
    """The name of each curve at the right edge, in its colour; names that would collide move apart."""
    scale = 72.0 / axes.figure.dpi
    ends = []
    for curve in panel.curves:
        _, height = axes.transData.transform((curve.evaluations[-1], curve.quality[-1])) * scale
        ends.append((height, names.index(curve.label), curve))
    ends.sort(key=lambda end: end[0])
    places: list[float] = []
    for height, _, _ in ends:
        places.append(max(height, places[-1] + _LABEL_DISTANCE) if places else height)
    for place, (height, number, curve) in zip(places, ends, strict=True):
        axes.annotate(
            curve.label,
            (1.0, curve.quality[-1]),
            xycoords=axes.get_yaxis_transform(),  # the width of the axes, and data upwards
            xytext=(9, place - height),
            textcoords="offset points",
            va="center",
            color=COLOURS[number % len(COLOURS)],
            fontweight="bold",
            annotation_clip=False,
        )


def draw_losses(logs: Mapping[str, Sequence[Mapping[str, float]]], file: Path) -> None:
    """The loss against the hours (or minutes) of training: dots for batches, a line for held-out sequences."""
    longest = max((log[-1]["seconds"] for log in logs.values() if log), default=0.0)
    unit, name = (3600, "hours") if longest > 5400 else (60, "minutes")
    figure = Figure(figsize=(7.2, 4.0), layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    for colour, (label, log) in zip(cycle(("#3d7dca", "#e07b39", "#2f9e77", "#b5529c")), logs.items(), strict=False):
        train = [(line["seconds"] / unit, line["loss"]) for line in log if "loss" in line]
        held_out = [(line["seconds"] / unit, line["eval_loss"]) for line in log if "eval_loss" in line]
        if train:
            axes.plot(*zip(*train, strict=True), ".", color=colour, alpha=0.25, markersize=3)
        if held_out:
            axes.plot(*zip(*held_out, strict=True), "-o", color=colour, markersize=3.5, label=label)
    axes.set(xlabel=f"{name} of training", ylabel="loss (nats per sequence)", yscale="log")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=SOFT, which="both")
    axes.xaxis.label.set_color(INK)
    axes.grid(alpha=0.15)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)
    figure.savefig(file, dpi=150)
