"""A benchmark as a table and as a chart: the share of right items, and the evaluations of the network."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from flexmdm.reports.charts import Curve, Panel, draw_panels, save_figure
from flexmdm.reports.tables import results_table
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


def table_of(points: Sequence[Point], benchmark: Benchmark) -> Table:
    """Return a table with one row per point."""
    notes = [f"{benchmark.measure} with its 95% interval; evaluations of the network and seconds per item"]
    counted: dict[str, list[int]] = {}
    if points[0].groups is not None:
        num = len(set(points[0].groups))
        notes.append(f"the items are of {num:,} functions, and those of one count as less than as many of others")
    if any(point.refused for point in points):
        counted["refused"] = [point.refused for point in points]
        notes.append("refused: the model cannot take these items, and they count as wrong")
    if "unanswered" in points[0].figures:
        counted["no answer"] = [point.figures["unanswered"] for point in points]
        notes.append("no answer: texts without one, which count as wrong")
    caption = "; ".join(notes)
    for name, what in (
        ("shortened", "items of which the model saw only a part, as it was trained on shorter ones (--max-length)"),
        ("hit_max_length", "texts that wanted to grow beyond the longest"),
    ):
        some = [point for point in points if getattr(point, name)]
        counts = [f"{getattr(p, name):,} of {p.num:,} ({p.run}, {p.steps} steps)" for p in some]
        caption += f"\n{what}: {', '.join(counts)}" if counts else ""
    title, figures = f"{benchmark.title}: {points[0].num:,} items", (benchmark.measure, *counted, "evals", "s")
    table = results_table(title, ("run", "model", "sampler"), figures, caption)
    for row, point in enumerate(points):
        temperature = point.options["temperature"]
        table.add_row(
            point.run,
            point.model,
            f"{point.options['sampler']} {point.steps}" + (f" T={temperature:g}" if temperature else ""),
            point.measured.percent(),
            *(str(counts[row]) for counts in counted.values()),
            f"{point.evaluations:.0f}",
            f"{point.seconds:.2f}",
        )
    return table


def command_of(program: str) -> str:
    """Return the command that is running, as its results say it: folders of this machine alone are left out of it.

    >>> sys.argv, before = ["text.py", "runs/a", "--before", "a=/home/me/log.jsonl,b.jsonl", "--data", "/x"], sys.argv
    >>> command_of("benchmarks/text.py")
    'python benchmarks/text.py runs/a --before a=PATH/log.jsonl,b.jsonl --data PATH/x'
    >>> sys.argv = before
    """
    return shlex.join(["python", program, *(re.sub(r"(^|[=,])/([^=,]*/)?", r"\1PATH/", one) for one in sys.argv[1:])])
