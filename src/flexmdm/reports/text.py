"""The evaluation of text models for a person: a table for the terminal, and a page that stands on its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape as plain
from rich.table import Table

from flexmdm.evaluation.distances import Estimate
from flexmdm.evaluation.intervals import Interval, by_name
from flexmdm.evaluation.lengths import ENOUGH, Lengths, length_floor, length_histogram
from flexmdm.sweeps.scores import LikelihoodScore, TextScore
from flexmdm.tasks.text.pipeline import TextPipeline

SHOWN = 20  # samples of each score


def evaluate(
    runs: dict[str, TextPipeline],
    steps: Sequence[int],
    num: int,
    reference: str = "auto",
    likelihoods: int = 200,
    num_times: int = 64,
    page: Path | None = None,
    command: str = "",
    console: Console | None = None,
    keep: Callable[[list[dict[str, Any]]], object] | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Judge runs that were trained on the same data, print the table, write the page, and return the figures.

    Args:
        runs: by name; the held-out sequences of the first are what all are compared with.
        steps: of the sampler, one score for each.
        num: samples per score.
        reference: of `flexmdm.evaluation.fluency.ReferenceLM`; ``auto`` for the default one if it is installed,
            ``none`` for no perplexity.
        likelihoods: held-out sequences for the likelihood; 0 leaves it out.
        num_times: times per sequence for it.
        page: a file to write.
        command: what the page says it was made by.
        console: where the table goes.
        keep: called with the figures before the page is written, so that they are there whatever becomes of it.
        options: of `flexmdm.generate`.
    """
    from flexmdm.sweeps.text import Judge, check, held_out_bits, measure

    console = console or Console()
    for name, pipeline in runs.items():
        check(name, pipeline, steps, **options)
    first = next(iter(runs.values()))
    if len({pipeline.task.compared_on for pipeline in runs.values()}) > 1:
        raise ValueError(
            f"{' and '.join(runs)} learned from other data, hold out other data or have other tokens: compare them "
            "one by one"
        )
    judge = Judge.of(first, _reference(reference, console, str(first.model.device)))
    scores = [judge.held_out(num)]
    for name, pipeline in runs.items():
        scores += [measure(name, pipeline, judge, num, count, **options) for count in steps]
    table = table_of(scores, f"{num:,} samples each, against {len(judge.texts):,} held-out sequences")
    table.caption = f"{table.caption}{_truncated(scores)}{_few(min(num, len(judge.texts)))}"
    console.print(table)
    _say_openings(scores, console)
    if judge.lm is not None and all(math.isnan(score.generative_perplexity.value) for score in scores):
        console.print("no perplexity: every text has at most 10 tokens of the reference model, too few to judge")
    known = [held_out_bits(name, pipeline, likelihoods, num_times) for name, pipeline in runs.items() if likelihoods]
    xz = judge.xz()
    for score in known:
        console.print(
            f"{score.model}: {_bits(score.bits_per_sequence)} bits per sequence, "
            f"{_bits(score.bits_per_character)} per character, by the likelihood of {score.num} held-out sequences "
            f"(standard errors; xz: {xz:.2f} per character)",
            highlight=False,
        )
    bits_of = {score.model: score.to_dict() for score in known}
    rows = []
    for score in scores[1:]:
        bits = bits_of.get(score.model, {"num": 0})
        figures = {**bits, "likelihood_num": bits["num"], **score.to_dict(), "xz_bits_per_character": xz}
        rows.append(by_name(figures))
    if keep is not None:
        keep(rows)
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        lengths = [len(tokens) for tokens in judge.tokens]
        write_page(page, "Text: " + " and ".join(runs), scores, known, lengths, xz, command)
        console.print(f"the page is {page}")
    return rows


def _reference(name: str, console: Console, device: str) -> Any:
    from flexmdm.evaluation.fluency import ReferenceLM

    if name == "none":
        return None
    try:
        with Console(stderr=True).status("loading the reference model"), redirect_stderr(StringIO()):  # it has bars
            return ReferenceLM.load(None if name == "auto" else name, device)
    except ValueError as error:
        if name != "auto":
            raise
        console.print(f"no perplexity: {error}", markup=False, highlight=False)
        return None


def _truncated(scores: Sequence[TextScore]) -> str:
    """For the note of the table: how many texts were too long for the reference model."""
    cut = sum(score.truncated for score in scores)
    return f"; {cut:,} texts were cut to the reference model's window" if cut else ""


def _few(num: int) -> str:
    """For the note of the table: if there are too few lengths for their intervals."""
    few = f"; the intervals of W1 and KS are too narrow, as they need {ENOUGH} samples and as many held-out sequences"
    return few if num < ENOUGH else ""


def _say_openings(scores: Sequence[TextScore], console: Console) -> None:
    """The entropy that does not grow with the length, if there are texts that are long enough for it."""
    from flexmdm.sweeps.text import OPENING

    known = [score for score in scores if not math.isnan(score.opening_entropy.value)]
    if known:
        values = "; ".join(f"{score.label} {score.opening_entropy}" for score in known)
        console.print(
            f"entropy of the first {OPENING} tokens, which does not grow with the length, in nats: {values}",
            highlight=False,
            markup=False,
        )


def _bits(estimate: Any) -> str:
    return f"{estimate.value:.2f} ± {estimate.standard_error:.2f}"


def table_of(scores: Sequence[TextScore], title: str = "") -> Table:
    """One row per score, of two lines: the values, and below them their 95% intervals. It fits into 80 columns."""
    table = Table(title=title or None, box=SIMPLE_HEAD, padding=0, show_edge=False)
    table.title_justify, table.title_style, table.caption_justify = "left", "bold", "left"
    with_perplexity = _have_perplexity(scores)
    about = ("perplexity",) if with_perplexity else ()
    for heading in ("model", "sampler", *about, "W1", "KS", "entropy", "distinct", "evals"):
        table.add_column(heading, justify="left" if heading in ("model", "sampler") else "right", overflow="fold")
    for s in scores:
        sampler = plain(s.sampler) + ("" if s.temperature == 1 else f" T={s.temperature:g}")
        steps = f"{s.steps:,} steps" if s.steps else ""
        kept = f"\n[dim]kept {_percent(s.kept)}[/]" if with_perplexity else ""
        fluency = (_two_lines(s.generative_perplexity),) if with_perplexity else ()
        table.add_row(
            plain(s.model) + kept, f"{sampler}\n[dim]{steps}[/]", *fluency,
            _two_lines(s.length_w1), _two_lines(s.length_ks), _two_lines(s.entropy),
            f"2: {_percent(s.distinct_2)}\n3: {_percent(s.distinct_3)}",
            f"{_number(s.evaluations)}\n[dim]{_number(s.seconds)} s[/]",
        )  # fmt: skip
    table.caption = (
        ("perplexity of the texts long enough to score (kept); " if with_perplexity else "")
        + "W1 (tokens) and KS: distances of the lengths; entropy in nats; distinct: different 2-grams and 3-grams as a "
        "share of all; evaluations and seconds per text; below the values their 95% intervals"
    )
    return table


def _have_perplexity(scores: Sequence[TextScore]) -> bool:
    return not all(math.isnan(score.generative_perplexity.value) for score in scores)


def _percent(share: float) -> str:
    """About two digits.

    >>> [_percent(share) for share in (0.00921, 0.0347, 0.126, 1.0, math.nan)]
    ['0.92%', '3.5%', '13%', '100%', '–']
    """
    if math.isnan(share):
        return "–"
    return f"{100 * share:.0f}%" if share >= 0.0995 else f"{100 * share:.1f}%" if share >= 0.00995 else f"{share:.2%}"


def _two_lines(interval: Interval) -> str:
    if math.isnan(interval.value):
        return "–"
    return f"{_number(interval.value)}\n[dim]{_number(interval.low)}-{_number(interval.high)}[/]"


def write_page(
    path: Path,
    title: str,
    scores: Sequence[TextScore],
    likelihoods: Sequence[LikelihoodScore],
    held_out_lengths: Lengths,
    xz: float | None,
    command: str,
) -> None:
    """Write one HTML file with everything in it: it needs no network and no other file.

    Args:
        path: of the file.
        title: its heading.
        scores: rows of the table; those with the same model, sampler and temperature make a curve over the steps.
        likelihoods: one per model; may be empty.
        held_out_lengths: what the lengths are compared with, in tokens.
        xz: bits per character of `xz_bits_per_character`, for scale.
        command: what made the page.
    """
    if not scores:
        raise ValueError("a page needs at least one score")
    series = list(dict.fromkeys(score.series for score in scores if score.steps))
    sections = [
        _opening(title, scores),
        _table(scores),
        _bits_section(likelihoods, xz),
        _lengths(scores, series, held_out_lengths),
        _curves(scores, series, held_out_lengths),
        _samples(scores),
        f'<section id="command"><h2>Again</h2><pre><code>{escape(command)}</code></pre></section>',
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    html = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        # Nothing is fetched and no script runs, whatever a model wrote into its samples.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        'img-src data:">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n<style>{_css()}</style>\n</head>\n'
        f"<body>\n<main>\n{chr(10).join(section for section in sections if section)}\n</main>\n</body>\n</html>\n"
    )
    path.write_text(html, encoding="utf-8", errors="replace")


# The sections, from top to bottom -------------------------------------------------------------------------------------


def _opening(title: str, scores: Sequence[TextScore]) -> str:
    models = list(dict.fromkeys(score.model for score in scores if score.steps))
    texts = sum(score.num for score in scores if score.steps)
    measures = "for fluency, for variety" if _have_perplexity(scores) else "for variety"
    return (
        f'<header><p class="kicker">flexmdm eval</p><h1>{escape(title)}</h1>'
        f'<p class="lead">{texts:,} texts generated by {escape(" and ".join(models)) or "no model"}, measured '
        f"{measures} and for how well their lengths match those of held-out texts.</p></header>"
    )


def _table(scores: Sequence[TextScore]) -> str:
    with_perplexity = _have_perplexity(scores)
    about = (("perplexity", "of the reference model"), ("kept", "long enough")) if with_perplexity else ()
    openings = any(not math.isnan(score.opening_entropy.value) for score in scores)
    opening = (("entropy", "of the first 32 tokens"),) if openings else ()
    headings = (
        ("model, sampler", ""), ("texts", ""), *about, ("length W1", "tokens"), ("length KS", "0 to 1"),
        ("entropy", "nats"), *opening, ("distinct", "1 / 2 / 3"), ("evaluations", "per text"), ("seconds", "per text"),
    )  # fmt: skip
    head = "".join(f'<th scope="col">{name}<span>{unit}</span></th>' for name, unit in headings)
    rows = "".join(
        f'<tr><th scope="row">{escape(s.series)}<span>{f"{s.steps:,} steps" if s.steps else "not sampled"}</span></th>'
        f"<td>{s.num:,}</td>"
        + (f"{_cell(s.generative_perplexity)}<td>{_percent(s.kept)}</td>" if with_perplexity else "")
        + f"{_cell(s.length_w1)}{_cell(s.length_ks)}{_cell(s.entropy)}"
        + (_cell(s.opening_entropy) if openings else "")
        + f"<td>{' / '.join(_percent(share) for share in (s.distinct_1, s.distinct_2, s.distinct_3))}</td>"
        f"<td>{_number(s.evaluations)}</td><td>{_number(s.seconds)}</td></tr>"
        for s in scores
    )
    fluency = """Perplexity: how surprising the texts are to a reference language model, over all tokens of the texts
that are long enough to be scored (kept). It is low for fluent texts, and also for texts that repeat themselves; those
have a low entropy. """
    alike = ", and that of the first 32 tokens does not" if openings else ""
    return f"""<section id="scores"><h2>Scores</h2>
<p>{fluency if with_perplexity else ""}W1 and KS: distances between the lengths of generated and held-out texts.
Entropy: that of the tokens within a text; it grows with the length{alike}. Distinct: different n-grams as a share of
all, over all texts together. Below a value, its 95% interval.</p>
<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>"""


def _cell(interval: Interval) -> str:
    if math.isnan(interval.value):
        return "<td>–</td>"
    return f"<td>{_number(interval.value)}<span>{_number(interval.low)} – {_number(interval.high)}</span></td>"


def _bits_section(likelihoods: Sequence[LikelihoodScore], xz: float | None) -> str:
    if not likelihoods and xz is None:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(s.model)}</th><td>{_estimate(s.bits_per_sequence)}</td>'
        f"<td>{_number(s.bits_per_token)}</td><td>{_estimate(s.bits_per_character, 3)}</td><td>{s.num:,}</td></tr>"
        for s in likelihoods
    )
    if xz is not None:
        rows += f'<tr><th scope="row">xz -9e, for scale</th><td>–</td><td>–</td><td>{xz:.3f}</td><td>–</td></tr>'
    head = "".join(
        f'<th scope="col">{name}</th>' for name in ("bits per sequence", "per token", "per character", "texts")
    )
    return f"""<section id="bits"><h2>Bits for held-out texts</h2>
<p>How many bits an ideal coder with the model needs at most, the end of each text included; fewer are better. ± is one
standard error.</p><div class="wide"><table class="narrow"><thead><tr><th scope="col">model</th>{head}</tr></thead>
<tbody>{rows}</tbody></table></div></section>"""


def _lengths(scores: Sequence[TextScore], series: list[str], held_out: Lengths) -> str:
    best: dict[str, TextScore] = {}
    for score in sorted(scores, key=lambda score: score.steps):
        if score.steps and score.lengths:
            best[score.series] = score
    chosen = [best[name] for name in series if name in best]
    chart = _length_chart(chosen, series, held_out)
    truth = f"held-out: mean {sum(map(int, held_out)) / len(held_out):.0f}"
    names = [(series.index(s.series), f"{s.label}: mean {sum(s.lengths) / len(s.lengths):.0f}") for s in chosen]
    return f"""<section id="lengths"><h2>How long the texts are</h2>
<p>The grey area is held-out texts. Each line is one model with one sampler, at its largest number of steps. The longest
1% may lie beyond the right edge.</p>{_legend(names, truth)}
<figure class="wide">{chart}</figure></section>"""


def _curves(scores: Sequence[TextScore], series: list[str], held_out: Lengths) -> str:
    if not series:
        return ""
    floor = length_floor(held_out, min(score.num for score in scores if score.steps), resamples=200)
    fluency = ""
    if _have_perplexity(scores):
        label = "Perplexity against the number of steps"
        chart = _step_chart(scores, series, lambda s: s.generative_perplexity, label, logarithmic=True)
        fluency = f"<figure><figcaption><b>Perplexity</b> of the reference model</figcaption>{chart}</figure>"
    fidelity = _step_chart(
        scores, series, lambda s: s.length_w1, "W1 distance of the lengths against the number of steps", floor=floor
    )
    return f"""<section id="steps"><h2>More steps</h2>
<p>Vertical lines are 95% intervals; a dashed line is what was not sampled, such as held-out texts. In the grey band, at
{_number(floor)} tokens, lengths are no further off than those of exact samples.</p>{_legend(list(enumerate(series)))}
<div class="pair">{fluency}
<figure><figcaption><b>Length error</b>: W1, in tokens</figcaption>{fidelity}</figure></div></section>"""


def _samples(scores: Sequence[TextScore]) -> str:
    groups = []
    first = next((score for score in scores if score.samples and score.steps), None)
    for score in (score for score in scores if score.samples):
        texts = score.samples[:SHOWN]
        lengths = [f"{length} tokens" for length in score.lengths[: len(texts)]]
        lengths += [""] * (len(texts) - len(lengths))
        items = "".join(
            f"<li><span>{length}</span>{escape(text) if text.strip() else '<i>(empty)</i>'}</li>"
            for text, length in zip(texts, lengths, strict=True)
        )
        groups.append(
            f"<details{' open' if score is first else ''}><summary>{escape(score.label)} <span>{len(texts)} of "
            f'{score.num:,}</span></summary><ol class="samples">{items}</ol></details>'
        )
    if not groups:
        return ""
    return f"""<section id="samples"><h2>Samples</h2><p>The first ones, not chosen.</p>{"".join(groups)}</section>"""


def _legend(names: Iterable[tuple[int, str]], held_out: str | None = None) -> str:
    swatch = '<svg viewBox="0 0 28 14" aria-hidden="true">{}</svg>'
    line, area = '<path class="line" d="M0 7h28"/>', '<path class="area" d="M0 2h28v10H0z"/>'
    grey = "" if held_out is None else f"<li>{swatch.format(area)}{held_out}</li>"
    items = "".join(
        f'<li class="c{number % 6}">{swatch.format(line + (_marker(number, 14, 7) if held_out is None else ""))}'
        f"{escape(name)}</li>"
        for number, name in names
    )
    return f'<ul class="legend">{grey}{items}</ul>'


# Charts ---------------------------------------------------------------------------------------------------------------

_HIGH, _LEFT, _TOP, _BOTTOM, _RIGHT = 270, 58, 12, 42, 14


def _length_chart(scores: Sequence[TextScore], series: list[str], held_out: Lengths) -> str:
    wide = 1080
    edges, shares = length_histogram({**{s.label: s.lengths for s in scores}, "held-out": held_out})
    top = 1.08 * max(float(share.max()) for share in shares.values())
    across = (wide - _LEFT - _RIGHT) / float(edges[-1] - edges[0])

    def x(length: float) -> float:
        return _LEFT + across * (length - float(edges[0]))

    def y(share: float) -> float:
        return _TOP + (_HIGH - _TOP - _BOTTOM) * (1 - share / top)

    def outline(values: Iterable[float]) -> str:
        steps = zip(edges[:-1], edges[1:], values, strict=True)
        return "".join(f"L{x(a):.1f} {y(share):.1f}H{x(b):.1f}" for a, b, share in steps)

    parts = [_rule(y(tick), wide, f"{tick:.3g}" if tick else "0") for tick in _ticks(top)]
    floor = f"{y(0):.1f}"
    parts.append(f'<path class="area" d="M{_LEFT} {floor}{outline(shares["held-out"])}V{floor}z"/>')
    for score in scores:
        line = "M" + outline(shares[score.label])[1:]
        parts.append(f'<g class="c{series.index(score.series) % 6}"><path class="line" d="{line}"/></g>')
    parts += [_below(x(tick), f"{tick:g}") for tick in _ticks(float(edges[-1]), 12) if tick >= edges[0]]
    parts.append(_axis_name("length in tokens (share of the texts per token of length)", wide))
    return _svg("".join(parts), wide, "Shares of the texts by their length, generated and held-out")


def _step_chart(
    scores: Sequence[TextScore],
    series: list[str],
    measure: Callable[[TextScore], Interval],
    label: str,
    logarithmic: bool = False,
    floor: float | None = None,
) -> str:
    wide = 520
    scores = [score for score in scores if math.isfinite(measure(score).value)]
    sampled = [score for score in scores if score.steps]
    steps = sorted({score.steps for score in sampled}) or [1]
    values = [v for score in scores for v in (measure(score).value, measure(score).low, measure(score).high)]
    values = [v for v in values if math.isfinite(v) and (v > 0 or not logarithmic)] or [1.0]
    low, high = (
        (min(values) / 1.2, max(values) * 1.2) if logarithmic else (0.0, 1.1 * max([*values, floor or 0.0, 1e-9]))
    )
    first, last = math.log(steps[0]) - 0.25, math.log(steps[-1]) + 0.25

    def x(step: float) -> float:
        return _LEFT + (wide - _LEFT - _RIGHT) * (math.log(step) - first) / (last - first)

    def y(value: float) -> float:
        share = math.log(max(value, low) / low) / math.log(high / low) if logarithmic else value / high
        return _TOP + (_HIGH - _TOP - _BOTTOM) * (1 - share)

    parts = [] if floor is None else [_band(y(floor), y(0), wide)]
    parts += [_rule(y(tick), wide, f"{tick:,g}") for tick in (_log_ticks(low, high) if logarithmic else _ticks(high))]
    for score in (score for score in scores if not score.steps):
        height, text = y(measure(score).value), f"{score.label}: {_number(measure(score).value)}"
        parts.append(
            f'<path class="reference" d="M{_LEFT} {height:.1f}H{wide - _RIGHT}"><title>{escape(text)}</title></path>'
        )
        parts.append(
            f'<text class="tick" text-anchor="end" x="{wide - _RIGHT}" y="{height - 6:.1f}">{escape(text)}</text>'
        )
    for number, name in enumerate(series):
        mine = sorted((score for score in sampled if score.series == name), key=lambda score: score.steps)
        points = [(x(score.steps), measure(score), score) for score in mine]
        line = "L".join(f"{place:.1f} {y(value.value):.1f}" for place, value, _ in points)
        parts.append(f'<g class="c{number % 6}">' + (f'<path class="line" d="M{line}"/>' if line else ""))
        for place, value, score in points:
            if math.isfinite(value.low) and math.isfinite(value.high):
                parts.append(f'<path class="error" d="M{place:.1f} {y(value.low):.1f}V{y(value.high):.1f}"/>')
            said = f"{score.label}: {_interval(value)}"
            parts.append(_marker(number, place, y(value.value), said))
        parts.append("</g>")
    parts += [_below(x(step), f"{step:,}") for step in steps]
    parts.append(_axis_name("steps of the sampler", wide))
    return _svg("".join(parts), wide, label)


def _svg(content: str, wide: float, label: str) -> str:
    return f'<svg class="chart" viewBox="0 0 {wide} {_HIGH}" role="img" aria-label="{escape(label)}">{content}</svg>'


def _marker(number: int, x: float, y: float, said: str = "") -> str:
    """A point; curves are told apart by its shape as well as by their colour."""
    shapes = (
        f"M{x - 4.5:.1f} {y:.1f}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
        f"M{x - 4:.1f} {y - 4:.1f}h8v8h-8z",
        f"M{x:.1f} {y - 5:.1f}l5 8.6h-10z",
        f"M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
    )
    title = f"<title>{escape(said)}</title>" if said else ""
    return f'<path class="marker" d="{shapes[number % len(shapes)]}">{title}</path>'


def _rule(y: float, wide: float, text: str) -> str:
    line = f'<path class="rule" d="M{_LEFT} {y:.1f}H{wide - _RIGHT}"/>'
    return f'{line}<text class="tick" text-anchor="end" x="{_LEFT - 8}" y="{y + 4:.1f}">{text}</text>'


def _band(top: float, bottom: float, wide: float) -> str:
    return f'<rect class="band" x="{_LEFT}" y="{top:.1f}" width="{wide - _LEFT - _RIGHT}" height="{bottom - top:.1f}"/>'


def _below(x: float, text: str) -> str:
    return f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{_HIGH - 25}">{text}</text>'


def _axis_name(text: str, wide: float) -> str:
    return (
        f'<text class="tick" text-anchor="middle" x="{(_LEFT + wide - _RIGHT) / 2:.1f}" y="{_HIGH - 5}">{text}</text>'
    )


def _ticks(top: float, most: int = 5) -> list[float]:
    """0 and multiples of a round step, up to the top."""
    step = next(m * 10.0**k for k in range(-9, 9) for m in (1, 2, 2.5, 5) if top / (m * 10.0**k) <= most)
    return [step * n for n in range(int(top / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between low and high: 1, 2, 5 times a power of ten, or more of them where there would be few."""
    for marks in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        ticks = [m * 10.0**k for k in range(-3, 9) for m in marks if low <= m * 10.0**k <= high]
        if len(ticks) >= 3:
            break
    return ticks


# Words and looks ------------------------------------------------------------------------------------------------------


def _number(value: float) -> str:
    """About three digits.

    >>> [_number(value) for value in (0.1234, 12.345, 1234.5, math.nan)]
    ['0.12', '12.3', '1,234', '–']
    """
    if math.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _interval(interval: Interval) -> str:
    if math.isnan(interval.value):
        return "–"
    return f"{_number(interval.value)} ({_number(interval.low)}-{_number(interval.high)})"


def _estimate(estimate: Estimate, digits: int = 1) -> str:
    return f"{estimate.value:,.{digits}f} <span>± {estimate.standard_error:.{digits}f}</span>"


def _css() -> str:
    from flexmdm.reports.charts import COLOURS

    light = "".join(f"--c{number}: {colour}; " for number, colour in enumerate(COLOURS))
    classes = "".join(f".c{number} {{ --c: var(--c{number}); }}\n" for number in range(len(COLOURS)))
    return _CSS.replace("LIGHT_COLOURS", light).replace("COLOUR_CLASSES", classes)


_CSS = """
:root { color-scheme: light dark; --paper: #fbfcfd; --card: #fff; --ink: #1f2933; --soft: #5f6b7a; --line: #e4e7eb;
  --grey: #d5dae0; --band: #eef1f4; LIGHT_COLOURS}
@media (prefers-color-scheme: dark) { :root { --paper: #13171c; --card: #1a1f26; --ink: #e4e8ee; --soft: #9aa6b4;
  --line: #2c343e; --grey: #3b4550; --band: #20272f; --c0: #5cb3ea; --c1: #ff9455; --c2: #35c39a; --c3: #dd8fd2;
  --c4: #cfbb4e; --c5: #bcc4ce; } }
COLOUR_CLASSES* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI",
  Roboto, "Noto Sans", "DejaVu Sans", sans-serif; -webkit-text-size-adjust: 100%; }
main { max-width: 1120px; margin: 0 auto; padding: 0 24px 64px; }
header { padding: 56px 0 0; }
h1 { font-size: clamp(28px, 5vw, 42px); line-height: 1.12; letter-spacing: -0.02em; margin: 0 0 16px; }
h2 { font-size: 24px; letter-spacing: -0.01em; margin: 0 0 8px; }
p { margin: 0 0 16px; max-width: 78ch; }
.kicker { font: 600 13px ui-monospace, "DejaVu Sans Mono", monospace; color: var(--soft); margin: 0 0 10px; }
.lead { font-size: 19px; max-width: 68ch; }
section { border-top: 1px solid var(--line); margin-top: 40px; padding-top: 32px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 15px; }
table.narrow { max-width: 760px; }
th, td { padding: 9px 0 9px 18px; text-align: right; vertical-align: top; white-space: nowrap; }
th:first-child { text-align: left; padding-left: 0; font-weight: 600; white-space: normal; min-width: 130px; }
thead th { color: var(--soft); font-size: 13px; font-weight: 600; border-bottom: 1px solid var(--line); }
tbody tr + tr > * { border-top: 1px solid var(--line); }
th > span, td > span { display: block; color: var(--soft); font-size: 12.5px; font-weight: 400; line-height: 1.4; }
.narrow td > span { display: inline; }
.pair { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 28px; }
figure { margin: 0; min-width: 0; } figcaption { font-size: 14px; color: var(--soft); margin-bottom: 6px; }
figcaption b { color: var(--ink); }
.chart { display: block; width: 100%; height: auto; overflow: visible; }
.tick { font-size: 12px; fill: var(--soft); } .rule { stroke: var(--line); }
.area { fill: var(--grey); } .band { fill: var(--band); }
.line { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; }
.error { stroke: var(--c); stroke-width: 1.4; opacity: 0.65; }
.marker { fill: var(--c); stroke: var(--paper); stroke-width: 1.2; }
.reference { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 5 4; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 22px; padding: 0; margin: 0 0 12px;
  font-size: 14px; }
.legend svg { width: 28px; height: 14px; vertical-align: -2px; margin-right: 8px; }
details { background: var(--card); border: 1px solid var(--line); border-radius: 10px; margin: 0 0 10px; }
summary { cursor: pointer; font-weight: 600; padding: 11px 18px; }
summary span { color: var(--soft); font-weight: 400; font-size: 14px; margin-left: 8px; }
.samples { margin: 0; padding: 0 22px 10px 52px; }
.samples li { padding: 10px 0; border-top: 1px solid var(--line); white-space: pre-wrap; overflow-wrap: anywhere;
  font: 15px/1.55 Georgia, "Noto Serif", "DejaVu Serif", serif; }
.samples li::marker { color: var(--soft); font: 13px system-ui, sans-serif; }
.samples span { float: right; margin-left: 16px; color: var(--soft);
  font: 12.5px system-ui, "DejaVu Sans", sans-serif; }
.samples i { color: var(--soft); }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 18px; margin: 0;
  white-space: pre-wrap; overflow-wrap: anywhere; }
code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 14px; }
@media (max-width: 760px) {
  main { padding: 0 16px 48px; } header { padding-top: 32px; } .lead { font-size: 17px; }
  .pair { grid-template-columns: minmax(0, 1fr); } .tick { font-size: 15px; } figure.wide > .chart { width: 760px; }
  .samples { padding: 0 14px 10px 36px; }
}
@media print { details { break-inside: avoid; } }
"""
