"""How exact are the samplers, and at how many evaluations? Both sources have an exact denoiser, so all error is theirs.

(a) Nine words: every sampler with every policy at 1024 steps must come within 0.02 of what as many exact samples would
    show, in total variation of the words and of the lengths. Then a sweep over the steps.
(b) Phased chains of 33, 100 and 300 tokens: excess nats per token, pairs of neighbours and lengths against evaluations.

A full run takes hours. Results are written after every trial; those already there with the same settings are kept.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console

import flexmdm
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
from flexmdm.generation import POLICIES
from flexmdm.reports.charts import draw_panels, quality_panel, save_figure

EXAMPLES = """examples:
  python benchmarks/samplers.py --quick            a few minutes, to see that it works (samplers-quick.*)
  python benchmarks/samplers.py                    everything; goes on where it stopped
  python benchmarks/samplers.py --only words       part (a); also: chain-33, chain-100, chain-300; parts may be run at
                                                   the same time, one process each
  python benchmarks/samplers.py --fresh --seed 1   forget what is there, other random numbers
"""
MARGIN = 0.02
CURVES = (Trial("tau", 1), Trial("adaptive", 1, confidence="top_prob"), Trial("spaced", 1))
EVERY = (
    Trial("tau", 1),
    *(Trial("adaptive", 1, confidence=policy) for policy in POLICIES),
    *(Trial("spaced", 1, confidence=policy) for policy in POLICIES),
)


@dataclass(frozen=True)
class Plan:
    """One part of the benchmark: a subject, the trials that must pass, and the trials that make up the curves."""

    part: str
    subject: Subject
    checks: list[Trial]
    sweep: list[Trial]

    @property
    def noise(self) -> Quality:
        return self.subject.noise

    @property
    def trials(self) -> list[Trial]:
        return [*self.checks, *self.sweep]


def every_plan(quick: bool) -> list[Plan]:
    """What there is to run."""
    check_steps, words = (256, 2000) if quick else (1024, 20_000)
    chains = {"chain-33": (0.82, 2000), "chain-100": (0.94, 500), "chain-300": (0.98, 100)}
    if quick:
        chains = {"chain-33": (0.82, 100), "chain-100": (0.94, 50)}
    leaps, spaced = ((16, 64), (4, 16)) if quick else ((16, 64, 128, 256, 512), (4, 8, 16, 32, 64))
    sweep = [
        replace(trial, steps=steps) for trial in CURVES for steps in (spaced if trial.sampler == "spaced" else leaps)
    ]
    result = [Plan("words", words_subject(words), [replace(trial, steps=check_steps) for trial in EVERY], sweep)]
    sweep = [trial for trial in sweep if trial.sampler != "adaptive"]  # on the chains close to tau, and as slow
    return result + [Plan(part, chain_subject(samples, stay), [], sweep) for part, (stay, samples) in chains.items()]


class Results:
    """The JSON file: one record per trial, found again by its settings. Runs of different parts may share it."""

    def __init__(self, path: Path, seed: int, noise: dict[str, dict]) -> None:
        self.path, self.seed, self.noise = path, seed, noise
        self.read()

    def read(self) -> None:
        """What is on disk now."""
        self.records = json.loads(self.path.read_text())["trials"] if self.path.exists() else []

    def find(self, subject: Subject, trial: Trial) -> Outcome | None:
        """The outcome of a trial with just these settings, if it is there."""
        settings = self._settings(subject, trial)
        for record in self.records:
            if record["settings"] == settings:
                return Outcome.from_dict(record["outcome"])
        return None

    def add(self, subject: Subject, outcome: Outcome) -> None:
        """Remember an outcome, on disk too."""
        record = {"settings": self._settings(subject, outcome.trial), "code": fingerprint(), "machine": machine()}
        self.read()
        self.records.append({**record, "outcome": outcome.to_dict()})
        self.write()

    def forget(self, subject: Subject, trials: Sequence[Trial]) -> None:
        """Drop what is known of these trials."""
        settings = [self._settings(subject, trial) for trial in trials]
        self.records = [record for record in self.records if record["settings"] not in settings]
        self.write()

    def write(self) -> None:
        """All of it, so that a run that is stopped leaves either the old file or the new one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(f".{os.getpid()}.part")
        unfinished.write_text(json.dumps({"noise": self.noise, "trials": self.records}, indent=1) + "\n")
        unfinished.replace(self.path)

    def outdated(self) -> int:
        """How many records were made by another version of the samplers or the oracle."""
        return sum(record["code"] != fingerprint() for record in self.records)

    def _settings(self, subject: Subject, trial: Trial) -> dict:
        options = {key: value for key, value in asdict(trial).items() if key != "bound"}  # earlier records have none
        return {"source": subject.name, "samples": subject.samples, "seed": self.seed, **options}


def fingerprint() -> str:
    """A hash of the code that makes the samples."""
    home = Path(flexmdm.__file__).parent
    core = ("alignment", "canvas", "interpolants", "oracle", "randomness", "schedules", "sequences")
    files = [*sorted((home / "generation").glob("*.py")), *(home / f"{name}.py" for name in core)]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def machine() -> dict:
    """Where the seconds come from."""
    return {
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "flexmdm": version("flexmdm"),
    }


def verdict(quality: Quality, noise: Quality) -> bool:
    """Within the margin of exact samples, in words and in lengths."""
    return quality.error <= noise.error + MARGIN and quality.length_variation <= noise.length_variation + MARGIN


def run(chosen: Sequence[Plan], results: Results, console: Console) -> None:
    """Every trial that is not there yet, with one printed line each."""
    plan_of = {plan.subject.name: plan for plan in chosen}

    def show(subject: Subject, outcome: Outcome) -> None:
        plan, result = plan_of[subject.name], ""
        if outcome.trial in plan.checks:
            passed = verdict(outcome.quality, plan.noise)
            result = "  [bold green]PASS" if passed else "  [bold red]FAIL"
        console.print(line_of(subject, outcome, plan.noise) + result, highlight=False, soft_wrap=True)

    def finished(subject: Subject, outcome: Outcome) -> None:
        results.add(subject, outcome)
        show(subject, outcome)

    every = [(plan.subject, trial) for plan in chosen for trial in plan.trials]
    missing = []
    for subject, trial in every:
        known = results.find(subject, trial)
        if known is None:
            missing.append((subject, trial))
        else:
            show(subject, known)
    if len(missing) < len(every):
        console.print(f"{len(every) - len(missing)} of {len(every)} trials were there already.", highlight=False)
    run_trials(missing, results.seed, console, finished)
    for plan in chosen:
        outcomes = [outcome for trial in plan.checks if (outcome := results.find(plan.subject, trial)) is not None]
        passed = sum(verdict(outcome.quality, plan.noise) for outcome in outcomes)
        if outcomes:
            console.print(f"{plan.subject.name}: {passed} of {len(outcomes)} checks pass", highlight=False)


def line_of(subject: Subject, outcome: Outcome, noise: Quality) -> str:
    """One trial in one line."""
    quality = outcome.quality
    start = (
        f"{subject.name:<26} {outcome.trial.label:<24} {outcome.trial.steps:>4} steps "
        f"{outcome.evaluations:>6.1f} evaluations"
    )
    lengths = f"length TV {quality.length_variation:.3f} (noise {noise.length_variation:.3f})"
    if quality.excess is None:
        return f"{start}  TV {quality.error:.3f} (noise {noise.error:.3f})  {lengths}  {outcome.seconds:.0f} s"
    excess = f"{quality.excess.value:+.4f} ± {quality.excess.standard_error:.4f}"
    pairs = f"bigrams {quality.bigrams:.3f} (noise {noise.bigrams:.3f})"
    lengths = f"length W1 {quality.length_error:.2f} (noise {noise.length_error:.2f})"
    off = f"off support {quality.off_support:.1%}"
    return f"{start}  excess {excess}  {pairs}  {lengths}  {off}  {outcome.seconds:.0f} s"


def markdown(plans: Sequence[Plan], results: Results) -> str:
    """The tables of the report."""
    machines = dict.fromkeys(
        "{cpus} CPUs ({threads} used), torch {torch}".format(**record["machine"]) for record in results.records
    )
    lines = [
        "# Samplers with an exact denoiser",
        "",
        f"Made by `python benchmarks/samplers.py` with seed {results.seed} on {'; '.join(machines)}. "
        "*Noise* is what as many exact samples would show.",
    ]
    for plan in plans:
        noise = plan.noise
        lines += ["", f"## {plan.subject.name.capitalize()}, {plan.subject.samples:,} sequences", ""]
        if noise.excess is None:
            lines += [
                f"Noise: total variation {noise.error:.4f}, of lengths {noise.length_variation:.4f}. "
                f"PASS: within {MARGIN} of both.",
                "",
                "| sampler | steps | evaluations | total variation | of lengths | off support | seconds | |",
                "|---|---:|---:|---:|---:|---:|---:|---|",
            ]
        else:
            lines += [
                f"Noise: excess 0 ± {noise.excess.standard_error:.4f}, bigrams {noise.bigrams:.4f}, lengths "
                f"{noise.length_error:.3f}.",
                "",
                "| sampler | steps | evaluations | excess nats per token | bigram total variation | length error (W1) "
                "| off support | seconds |",
                "|---|---:|---:|---:|---:|---:|---:|---:|",
            ]
        for trial in plan.trials:
            outcome = results.find(plan.subject, trial)
            if outcome is not None:
                lines.append(_markdown_row(outcome, noise, trial in plan.checks))
    return "\n".join(lines) + "\n"


def _markdown_row(outcome: Outcome, noise: Quality, check: bool) -> str:
    quality = outcome.quality
    cells = [outcome.trial.label, str(outcome.trial.steps), f"{outcome.evaluations:.1f}"]
    ends = [f"{quality.off_support:.2%}", f"{outcome.seconds:.0f}"]
    if quality.excess is None:
        result = ("PASS" if verdict(quality, noise) else "FAIL") if check else ""
        cells += [f"{quality.error:.4f}", f"{quality.length_variation:.4f}", *ends, result]
    else:
        excess = f"{quality.excess.value:.4f} ± {quality.excess.standard_error:.4f}"
        cells += [excess, f"{quality.bigrams:.4f}", f"{quality.length_error:.3f}", *ends]
    return f"| {' | '.join(cells)} |"


def picture(plans: Sequence[Plan], results: Results, path: Path) -> None:
    """Error against evaluations, one chart per source."""
    panels = []
    for plan in plans:
        outcomes = [outcome for trial in plan.sweep if (outcome := results.find(plan.subject, trial)) is not None]
        panels.append(quality_panel(plan.subject.name.capitalize(), outcomes, plan.noise, plan.subject.samples))
    save_figure(draw_panels(panels, "Samplers with an exact denoiser: error against evaluations"), path)


def main() -> None:
    """Parse the command line, run, and write JSON, tables and picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few samples and steps, to see that everything works")
    parser.add_argument("--fresh", action="store_true", help="measure again what is already in the results")
    parser.add_argument("--only", metavar="PART", help="words, chain-33, chain-100 or chain-300")
    parser.add_argument("--seed", type=int, default=0, help="of all randomness (default 0)")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default 1: the tensors are small)")
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results", help="folder (default benchmarks/results)"
    )
    options = parser.parse_args()
    console = Console()
    name = "samplers-quick" if options.quick else "samplers"
    with threads(options.threads):
        every = every_plan(options.quick)
        parts = [plan.part for plan in every]
        if options.only not in (None, *parts):
            parser.error(f"there is no part {options.only}; the parts are {', '.join(parts)}")
        chosen = [plan for plan in every if options.only in (None, plan.part)]
        noise = {plan.subject.name: without_nan(asdict(plan.noise)) for plan in every}
        results = Results(options.output / f"{name}.json", options.seed, noise)
        if options.fresh:
            for plan in chosen:
                results.forget(plan.subject, plan.trials)
        if results.outdated():
            warning = f"{results.outdated()} trials that are there were made by other code; --fresh measures again."
            console.print(f"[yellow]{warning}")
        run(chosen, results, console)
        results.read()
        started = [plan for plan in every if any(results.find(plan.subject, trial) for trial in plan.sweep)]
        (options.output / f"{name}.md").write_text(markdown(started, results))
        picture(started, results, options.output / f"{name}.png")
    console.print(
        f"Written: {name}.json, {name}.md and {name}.png in {options.output}", highlight=False, soft_wrap=True
    )


if __name__ == "__main__":
    main()
