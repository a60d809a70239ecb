"""`flexmdm demo oracle`: samplers against the truth, on two sources whose exact denoiser is known."""

from __future__ import annotations

import json as json_format
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

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
from flexmdm.reports.tables import results_table

SAMPLERS = (Trial("tau", 1), Trial("adaptive", 1, confidence="top_prob"), Trial("spaced", 1))
CHAIN_SHARE = 8  # one sequence of the chain, of some 33 tokens, for so many words
Results = dict[Subject, list[Outcome]]


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
        results = run_all(samples, steps, seed, console)
        growth = growth_picture(seed)
    for subject, outcomes in results.items():
        console.print(table_of(subject, outcomes), "")
    files = [output / "quality.png", output / "quality.svg", output / "growth.png"]
    panels = [quality_panel(s.name.capitalize(), found, s.noise, s.samples) for s, found in results.items()]
    title = "The same exact denoiser, three samplers: error against evaluations"
    save_figure(draw_panels(panels, title), *files[:2])
    save_figure(growth, *files[2:])
    if json is not None:
        json.write_text(json_format.dumps(report_of(results, seed, steps), indent=2) + "\n")
        files.append(json)
    console.print(summary_of(results, steps), highlight=False)
    console.print("\nWritten:", ", ".join(map(str, files)), highlight=False, soft_wrap=True)


def run_all(samples: int, steps: Sequence[int], seed: int, console: Console) -> Results:
    """Run every sampler with every number of steps on both sources."""
    results: Results = {words_subject(samples): [], chain_subject(max(2, samples // CHAIN_SHARE)): []}
    work = [(subject, replace(trial, steps=n)) for subject in results for trial in SAMPLERS for n in steps]
    run_trials(work, seed, console, lambda subject, outcome: results[subject].append(outcome))
    return results


def table_of(subject: Subject, outcomes: Sequence[Outcome]) -> Table:
    """Return the results on one source; the caption says what as many exact samples would show."""
    noise = subject.noise
    title = f"{subject.name.capitalize()}, {subject.samples:,} sequences"
    caption = f"Exact samples would show {_error(noise)}, length error (W1, in tokens) {noise.length_error:.2f}."
    measure = "total\nvariation" if noise.excess is None else "excess nats\nper token"
    figures = ("steps", "evalu-\nations", measure, "length\nerror", "off\nsupport", "seconds")
    look = {"box": SIMPLE_HEAD, "padding": (0, 1, 0, 0)}  # fits in 80 columns
    table = results_table(title, ("sampler",), figures, caption, **look)
    for outcome in outcomes:
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
    excess = quality.excess
    if excess is None:
        return f"{quality.error:.3f}"
    return "none" if math.isnan(excess.value) else f"{excess.value:.3f} ± {excess.standard_error:.3f}"


def summary_of(results: Results, steps: Sequence[int]) -> str:
    """Return plain sentences made from the figures: every sampler at the same budget of evaluations."""
    budget = steps[len(steps) // 2] + 4  # steps, and a few evaluations to reveal what is left
    sentences = [
        "The denoiser is exact, so every error here is the sampler's: what it does in one step it decides at once, "
        "as if one token did not depend on another. An evaluation is one question to the denoiser."
    ]
    for subject, outcomes in results.items():
        within = [outcome for outcome in outcomes if outcome.evaluations <= budget]
        most = {o.trial.label: o for o in sorted(within, key=lambda o: o.evaluations)}  # the last of each sampler stays
        ranked = sorted(most.values(), key=lambda o: math.inf if math.isnan(o.quality.error) else o.quality.error)
        measure = "total variation" if subject.noise.excess is None else "excess nats per token"
        parts = [f"{_error(o.quality)} for {o.trial.sampler} ({o.evaluations:.0f})" for o in ranked]
        sentences.append(
            f"With at most {budget} evaluations on the {subject.name} the {measure} is {', '.join(parts)}; "
            f"exact samples would show {_error(subject.noise)}."
        )
    return " ".join(sentences)


def report_of(results: Results, seed: int, steps: Sequence[int]) -> dict:
    """Return settings and figures for machines."""
    versions = {"flexmdm": version("flexmdm"), "torch": torch.__version__}
    sources = [
        {
            "name": subject.name,
            "samples": subject.samples,
            "noise": without_nan(asdict(subject.noise)),
            "outcomes": [outcome.to_dict() for outcome in outcomes],
        }
        for subject, outcomes in results.items()
    ]
    return {"settings": {"seed": seed, "steps": list(steps), **versions}, "sources": sources}


def growth_picture(seed: int) -> Figure:
    """Draw one sequence of the chain, of about 18 tokens, as it grows."""
    out = generate(phased_chain().denoiser(), 64, sampler="spaced", steps=16, trace=True, seed=seed)
    assert out.trace is not None
    chosen = min(range(len(out.sequences)), key=lambda i: (not out.possible[i], abs(len(out.sequences[i]) - 18)))
    return draw_growth(out.trace[chosen], LETTERS, "One sequence grows: grey boxes are masks, what is new is outlined")
