"""The evaluation of text models for a person: a table for the terminal, and a page that stands on its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape as plain
from rich.table import Table

from flexmdm.evaluation.intervals import Interval, by_name
from flexmdm.evaluation.lengths import ENOUGH, Lengths, length_floor, length_histogram
from flexmdm.reports.charts import COLOURS, Curve, Panel, draw_lengths, draw_panel, inline_svg
from flexmdm.reports.pages import number, percent, render
from flexmdm.reports.tables import results_table
from flexmdm.sweeps.text import OPENING, Judge, LikelihoodScore, TextScore, check, held_out_bits, measure
from flexmdm.tasks.text.pipeline import TextPipeline

SHOWN = 20  # samples of each score


def evaluate(
    runs: dict[str, TextPipeline],
    steps: Sequence[int],
    num: int,
    reference: str = "auto",
    likelihoods: int = 200,
    page: Path | None = None,
    command: str = "",
    console: Console | None = None,
    keep: Callable[[list[dict[str, Any]]], object] | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Judge runs that were trained on the same data, print the table, write the page, and return the figures.

    Args:
        runs: by name; the held-out sequences of the first are what all are compared with.
        steps: of the sampler, one score of ``num`` samples for each.
        reference: of `flexmdm.evaluation.fluency.ReferenceLM`; ``auto`` for the default one if it is installed,
            ``none`` for no perplexity.
        likelihoods: held-out sequences for the likelihood; 0 leaves it out.
        page, command: a file to write, and what it says it was made by.
        keep: called with the figures before the page is written, so that they are there whatever becomes of it.
        options: of `flexmdm.generate`.
    """
    console = console or Console()
    for name, pipeline in runs.items():
        check(name, pipeline, steps, **options)
    first = next(iter(runs.values()))
    if len(runs) > 1 and len({pipeline.task.compared_on for pipeline in runs.values()}) > 1:
        raise ValueError(
            f"{' and '.join(runs)} learned from other data, hold out other data or have other tokens: compare them "
            "one by one"
        )
    judge = Judge.of(first, _reference(reference, console, str(first.model.device)))
    if not judge.texts:
        if page is not None:
            raise ValueError(f"a page compares with held-out texts: it needs {', '.join(first.task.data)}")
        console.print(
            f"without {', '.join(first.task.data)}, which it learned from, samples are compared with no held-out texts "
            "and there is no likelihood",
            highlight=False,
        )
        likelihoods = 0
    scores = [judge.held_out(num)] if judge.texts else []
    for name, pipeline in runs.items():
        scores += [measure(name, pipeline, judge, num, count, **options) for count in steps]
    table = table_of(scores, f"{num:,} samples each, against {len(judge.texts):,} held-out sequences")
    cut = sum(score.truncated for score in scores)
    if cut:
        table.caption = f"{table.caption}; {cut:,} texts were cut to the reference model's window"
    if judge.texts and min(num, len(judge.texts)) < ENOUGH:
        few = f"the intervals of W1 and KS are too narrow, as they need {ENOUGH} samples and as many held-out sequences"
        table.caption = f"{table.caption}; {few}"
    console.print(table)
    openings = [f"{one.label} {one.opening_entropy}" for one in scores if not math.isnan(one.opening_entropy.value)]
    if openings:
        console.print(
            f"entropy of the first {OPENING} tokens, which does not grow with the length, in nats: "
            + "; ".join(openings),
            highlight=False,
            markup=False,
        )
    if judge.lm is not None and not _have_perplexity(scores):
        console.print("no perplexity: every text has at most 10 tokens of the reference model, too few to judge")
    known = [held_out_bits(name, pipeline, likelihoods) for name, pipeline in runs.items() if likelihoods]
    xz = judge.xz()
    for score in known:
        console.print(
            f"{score.model}: {_bits(score.bits_per_sequence)} bits per sequence, "
            f"{_bits(score.bits_per_character)} per character, by the likelihood of {score.num} held-out sequences "
            f"(standard errors; xz: {xz:.2f} per character)",
            highlight=False,
        )
    bits_of = {score.model: score.to_dict() | {"likelihood_num": score.num} for score in known}
    rows = [
        by_name(
            {
                **bits_of.get(score.model, {"likelihood_num": 0}),
                **score.to_dict(),
                "xz_bits_per_character": xz if judge.texts else None,
            }
        )
        for score in scores
        if score.steps
    ]
    if keep is not None:
        keep(rows)
    if page is not None:
        lengths = [len(tokens) for tokens in judge.tokens]
        write_page(page, "Text: " + " and ".join(runs), scores, known, lengths, xz, command)
        console.print(f"the page is {page}")
    return rows


def _reference(name: str, console: Console, device: str) -> Any:
    from flexmdm.evaluation.fluency import ReferenceLM

    try:
        with Console(stderr=True).status("loading the reference model"):
            return ReferenceLM.named(name, device)
    except ValueError as error:
        if name != "auto":
            raise
        console.print(f"no perplexity: {error}", markup=False, highlight=False)
        return None


def _bits(estimate: Any) -> str:
    return f"{estimate.value:.2f} ± {estimate.standard_error:.2f}"


def table_of(scores: Sequence[TextScore], title: str = "") -> Table:
    """Return a table for 80 columns, with two lines per score: the values, and their 95% intervals below them."""
    with_perplexity = _have_perplexity(scores)
    measures = {"W1": "length_w1", "KS": "length_ks", "entropy": "entropy"}
    if with_perplexity:
        measures = {"perplexity": "generative_perplexity"} | measures
    caption = (
        ("perplexity of the texts long enough to score (kept); " if with_perplexity else "")
        + "W1 (tokens) and KS: distances of the lengths; entropy in nats; distinct: different 2-grams and 3-grams as a "
        "share of all; evaluations and seconds per text; below the values their 95% intervals"
    )
    look = {"box": SIMPLE_HEAD, "padding": 0, "show_edge": False}
    table = results_table(title, ("model", "sampler"), (*measures, "distinct", "evals"), caption, **look)
    for s in scores:
        sampler = plain(s.sampler) + ("" if s.temperature == 1 else f" T={s.temperature:g}")
        steps = f"{s.steps:,} steps" if s.steps else ""
        table.add_row(
            plain(s.model) + (f"\n[dim]kept {percent(s.kept)}[/]" if with_perplexity else ""),
            f"{sampler}\n[dim]{steps}[/]",
            *(_two_lines(getattr(s, name)) for name in measures.values()),
            f"2: {percent(s.distinct_2)}\n3: {percent(s.distinct_3)}",
            f"{number(s.evaluations)}\n[dim]{number(s.seconds)} s[/]",
        )
    return table


def _have_perplexity(scores: Sequence[TextScore]) -> bool:
    return not all(math.isnan(score.generative_perplexity.value) for score in scores)


def _two_lines(interval: Interval) -> str:
    if math.isnan(interval.value):
        return "–"
    return f"{number(interval.value)}\n[dim]{number(interval.low)}-{number(interval.high)}[/]"


def write_page(
    path: Path,
    title: str,
    scores: Sequence[TextScore],
    likelihoods: Sequence[LikelihoodScore],
    held_out_lengths: Lengths,
    xz: float,
    command: str,
) -> None:
    """Write one HTML file with everything in it, which needs no network and no other file.

    The scores are the rows of the table; those with the same model, sampler and temperature make a curve over the
    steps. The bits per character of ``xz`` stand beside the likelihoods, for scale.
    """
    sampled = [score for score in scores if score.steps]
    longest = {score.series: score for score in sorted(sampled, key=lambda score: score.steps)}
    floor = length_floor(held_out_lengths, min(score.num for score in sampled), resamples=200)
    html = render(
        "text.html",
        title=title,
        scores=scores,
        texts=sum(score.num for score in sampled),
        models=" and ".join(dict.fromkeys(score.model for score in sampled)),
        fluency=_have_perplexity(scores),
        openings=any(not math.isnan(score.opening_entropy.value) for score in scores),
        opening=OPENING,
        likelihoods=likelihoods,
        xz=xz,
        longest=longest,
        held_out_mean=sum(map(int, held_out_lengths)) / len(held_out_lengths),
        floor=floor,
        charts=_charts(scores, longest, held_out_lengths, floor),
        samples=[score for score in scores if score.samples],
        first=next((score for score in sampled if score.samples), None),
        shown=SHOWN,
        command=command,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html, encoding="utf-8", errors="replace")


def _charts(
    scores: Sequence[TextScore], longest: dict[str, TextScore], held_out: Lengths, floor: float
) -> dict[str, str]:
    """Return the charts of the page, by name."""
    series = list(longest)
    edges, shares = length_histogram({**{name: score.lengths for name, score in longest.items()}, "held-out": held_out})
    outlines = [(colour, shares[name]) for colour, name in zip(cycle(COLOURS), series, strict=False)]
    across = "length in tokens (share of the texts per token of length)"
    lengths = draw_lengths(edges, shares["held-out"], outlines, across, width=10.8, height=2.7)
    charts = {"lengths": inline_svg(lengths, "Shares of the texts by their length, generated and held-out")}
    panel = _step_panel(scores, series, "length_w1", scale="error", floor=floor)
    label = "W1 distance of the lengths against the number of steps"
    charts["length_error"] = inline_svg(draw_panel(panel, series), label)
    if _have_perplexity(scores):
        panel = _step_panel(scores, series, "generative_perplexity", scale="log")
        charts["perplexity"] = inline_svg(draw_panel(panel, series), "Perplexity against the number of steps")
    return charts


def _step_panel(scores: Sequence[TextScore], series: list[str], measure: str, **options: Any) -> Panel:
    """Return a measure against the steps, one curve for each series, and what was not sampled as references."""
    known = [(score, getattr(score, measure)) for score in scores if math.isfinite(getattr(score, measure).value)]
    curves = []
    for name in series:
        mine = sorted(((score.steps, value) for score, value in known if score.series == name), key=lambda one: one[0])
        if mine:
            curves.append(Curve(name, *zip(*mine, strict=True)))
    references = {score.label: value.value for score, value in known if not score.steps}
    return Panel("", "", curves, across="steps of the sampler", references=references, **options)
