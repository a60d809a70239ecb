"""`flexmdm demo oracle`: samplers against the truth, on two sources whose exact denoiser is known."""

from __future__ import annotations

import json as json_format
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from flexmdm.evaluation.distances import Estimate
from flexmdm.evaluation.sources import LETTERS, phased_chain
from flexmdm.evaluation.trials import (
    Outcome,
    Quality,
    Subject,
    Trial,
    chain_subject,
    run_trials,
    threads,
    without_nan,
    words_subject,
)
from flexmdm.generation import generate
from flexmdm.reports.charts import draw_panels, quality_panel, save_figure
from flexmdm.reports.growth import draw_growth

SAMPLERS = (Trial("tau", 1), Trial("adaptive", 1, confidence="top_prob"), Trial("spaced", 1))
CHAIN_SHARE = 8  # one sequence of the chain, of some 33 tokens, for so many words


@dataclass(frozen=True)
class Chapter:
    """One source: what came of the trials on it, and what exact samples would show."""

    subject: Subject
    noise: Quality
    outcomes: list[Outcome]


def run(output: Path, samples: int, seed: int, json: Path | None, steps: list[int]) -> None:
    """Sample two sources with three samplers, print how far each is from the truth, and save the pictures.

    Args:
        output: folder for ``quality.png``, ``quality.svg`` and ``growth.png``.
        samples: words to draw per sampler and number of steps; an eighth as many of the longer sequences of the chain.
        seed: of all randomness.
        json: where to write the figures and settings, if anywhere.
        steps: the step counts of every sampler.
    """
    if samples < 1 or not steps or min(steps) < 1:
        raise ValueError(f"samples and steps must be at least 1, got samples={samples}, steps={steps}")
    steps = sorted(set(steps))
    for folder in (output, *([json.parent] if json else [])):
        folder.mkdir(parents=True, exist_ok=True)  # before the work, so that nothing is lost if it cannot be
    console = Console()
    with threads(1):
        chapters = run_chapters(samples, steps, seed, console)
        growth = growth_picture(seed)
    for chapter in chapters:
        console.print(table_of(chapter), "")
    files = [output / "quality.png", output / "quality.svg", output / "growth.png"]
    save_figure(quality_picture(chapters), *files[:2])
    save_figure(growth, *files[2:])
    if json is not None:
        json.write_text(json_format.dumps(report_of(chapters, seed, steps), indent=2) + "\n")
        files.append(json)
    console.print(summary_of(chapters, steps), highlight=False)
    console.print("\nWritten:", ", ".join(map(str, files)), highlight=False, soft_wrap=True)


def run_chapters(samples: int, steps: Sequence[int], seed: int, console: Console) -> list[Chapter]:
    """Run every sampler with every number of steps on both sources."""
    subjects = [words_subject(samples), chain_subject(max(2, samples // CHAIN_SHARE))]
    chapters = [Chapter(subject, subject.truth.noise(subject.samples), []) for subject in subjects]
    work = [(subject, replace(trial, steps=n)) for subject in subjects for trial in SAMPLERS for n in steps]
    home = {chapter.subject.name: chapter.outcomes for chapter in chapters}
    run_trials(work, seed, console, lambda subject, outcome: home[subject.name].append(outcome))
    return chapters


# What there is to read ------------------------------------------------------------------------------------------------


def table_of(chapter: Chapter) -> Table:
    """Return the results on one source; the caption says what as many exact samples would show."""
    subject, noise = chapter.subject, chapter.noise
    table = Table(
        title=f"{subject.name.capitalize()}, {subject.samples:,} sequences",
        caption=f"Exact samples would show {_error(noise)}, length error (W1, in tokens) {noise.length_error:.2f}.",
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),  # fits in 80 columns
    )
    table.add_column("sampler", no_wrap=True)
    measure = "total\nvariation" if noise.excess is None else "excess nats\nper token"
    for name in ("steps", "evalu-\nations", measure, "length\nerror", "off\nsupport", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for outcome in chapter.outcomes:
        table.add_row(
            outcome.trial.label,
            str(outcome.trial.steps),
            f"{outcome.evaluations:.1f}",
            _error(outcome.quality),
            f"{outcome.quality.length_error:.2f}",
            f"{outcome.quality.off_support:.1%}",
            f"{outcome.seconds:.1f}",
        )
    return table


def _error(quality: Quality) -> str:
    return f"{quality.error:.3f}" if quality.excess is None else _with_error(quality.excess)


def _with_error(estimate: Estimate) -> str:
    return "none" if math.isnan(estimate.value) else f"{estimate.value:.3f} ± {estimate.standard_error:.3f}"


def summary_of(chapters: Sequence[Chapter], steps: Sequence[int]) -> str:
    """Return plain sentences made from the figures: every sampler at the same budget of evaluations."""
    budget = steps[len(steps) // 2] + 4  # steps, and a few evaluations to reveal what is left
    sentences = [
        "The denoiser is exact, so every error here is the sampler's: what it does in one step it decides at once, "
        "as if one token did not depend on another. An evaluation is one question to the denoiser."
    ]
    for chapter in chapters:
        within = [outcome for outcome in chapter.outcomes if outcome.evaluations <= budget]
        most = {o.trial.label: o for o in sorted(within, key=lambda o: o.evaluations)}  # the last of each sampler stays
        ranked = sorted(most.values(), key=lambda o: math.inf if math.isnan(o.quality.error) else o.quality.error)
        measure = "total variation" if chapter.noise.excess is None else "excess nats per token"
        parts = [f"{_error(o.quality)} for {o.trial.sampler} ({o.evaluations:.0f})" for o in ranked]
        sentences.append(
            f"With at most {budget} evaluations on the {chapter.subject.name} the {measure} is {', '.join(parts)}; "
            f"exact samples would show {_error(chapter.noise)}."
        )
    return " ".join(sentences)


def report_of(chapters: Sequence[Chapter], seed: int, steps: Sequence[int]) -> dict:
    """Return settings and figures for machines."""
    return {
        "settings": {
            "seed": seed,
            "steps": list(steps),
            "flexmdm": version("flexmdm"),
            "torch": torch.__version__,
        },
        "sources": [
            {
                "name": chapter.subject.name,
                "samples": chapter.subject.samples,
                "noise": without_nan(asdict(chapter.noise)),
                "outcomes": [outcome.to_dict() for outcome in chapter.outcomes],
            }
            for chapter in chapters
        ],
    }


# What there is to see -------------------------------------------------------------------------------------------------


def quality_picture(chapters: Sequence[Chapter]) -> Figure:
    """Draw error against evaluations, one chart per source."""
    panels = [
        quality_panel(chapter.subject.name.capitalize(), chapter.outcomes, chapter.noise, chapter.subject.samples)
        for chapter in chapters
    ]
    return draw_panels(panels, "The same exact denoiser, three samplers: error against evaluations")


def growth_picture(seed: int) -> Figure:
    """Draw one sequence of the chain, of about 18 tokens, as it grows."""
    out = generate(phased_chain().denoiser(), 64, sampler="spaced", steps=16, trace=True, seed=seed)
    assert out.trace is not None
    chosen = min(range(len(out.sequences)), key=lambda i: (not out.possible[i], abs(len(out.sequences[i]) - 18)))
    return draw_growth(out.trace[chosen], LETTERS, "One sequence grows: grey boxes are masks, what is new is outlined")
