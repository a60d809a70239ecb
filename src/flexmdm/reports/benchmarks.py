"""A chart of a benchmark: the share of right items against the evaluations of the network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flexmdm.reports.charts import Curve, Panel, draw_panels, save_figure
from flexmdm.sweeps.sweep import Benchmark, Point


def draw(points: Sequence[Point], benchmark: Benchmark, file: Path) -> None:
    """Draw the share of right items against the evaluations, one curve per run and sampler, as .png or .svg."""
    lines: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        lines.setdefault((point.run, point.options["sampler"]), []).append(point)
    several = len(lines) > len({run for run, _ in lines})  # samplers of one run
    curves = []
    for (run, sampler), mine in lines.items():
        mine.sort(key=lambda point: point.evaluations)
        label = f"{run}, {sampler}" if several else run
        curves.append(Curve(label, [point.evaluations for point in mine], [point.measured for point in mine]))
    samplers = [] if several else sorted({f"{point.model}: {point.options['sampler']}" for point in points})
    panel = Panel("; ".join([f"{points[0].num:,} items", *samplers]), benchmark.measure, curves)
    file.parent.mkdir(parents=True, exist_ok=True)
    save_figure(draw_panels([panel], benchmark.title), file)
