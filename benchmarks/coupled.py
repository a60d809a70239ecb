"""Show where samplers fail: sources in which distance does not mean independence, and lengths that are hard to hit.

All have an exact denoiser, so every error is the sampler's: palindromes, balanced brackets, copies at a distance (also
with the length given, as an MDM has it), parity, one letter repeated, words of two lengths, one fixed length, a few or
many tokens, a long tail; beside them the nine words and the phased chain of `benchmarks/samplers.py`. One table per
source of errors against evaluations, and one of `spaced` against what it was before, at equal evaluations.

Results are written after every trial; those already there are kept.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from flexmdm import Prompt, Ragged, generate
from flexmdm.evaluation import sources
from flexmdm.evaluation.trials import Quality, Subject, chain_subject, threads

EXAMPLES = """examples:
  python benchmarks/coupled.py --quick               a minute, to see that it works (coupled-quick.*)
  python benchmarks/coupled.py                       everything, half an hour; goes on where it stopped
  python benchmarks/coupled.py --only parity         one source
  PYTHONPATH=OTHER/src python benchmarks/coupled.py --before
                                                     spaced of another version (with this one's evaluation/sources.py),
                                                     to compare with; the next run without it writes the tables
"""
RESULTS = Path(__file__).parent / "results"
BEFORE = "spaced, before"
TRIALS: dict[str, tuple[dict[str, Any], Sequence[int]]] = {  # by the name in the table
    "spaced": ({"sampler": "spaced"}, (4, 6, 8, 12, 16, 32, 40, 128)),
    "entropy_bounded, 0.1": ({"sampler": "entropy_bounded", "bound": 0.1}, (8, 16)),
    "entropy_bounded, 1": ({"sampler": "entropy_bounded", "bound": 1.0}, (16,)),
    "dilated": ({"sampler": "dilated"}, (8, 16)),
    "tau": ({"sampler": "tau"}, (16, 32)),
    "adaptive": ({"sampler": "adaptive"}, (32,)),
}
MANY, CHEAP = 100, 10_000  # so many steps only for sources that are cheap enough for so many samples
COMPARED = (8, 16, 32)  # steps of the sampler before; the new one is judged at the evaluations that these took
Record = dict[str, Any]


def subjects(quick: bool) -> dict[str, tuple[Subject, Prompt]]:
    """Return every source with its number of samples, and what each sample starts from."""
    finite = {
        "palindromes": (sources.palindromes(), 10_000),
        "brackets": (sources.balanced_brackets(), 10_000),
        "parity": (sources.even_parity(6), 10_000),
        "repeated letters": (sources.repeated_letters(), 10_000),
        "two lengths": (sources.two_lengths(), 10_000),
        "nine words": (sources.nine_words(), 10_000),
        "fixed length": (sources.fixed_length(), 2000),
        "3 or 24 tokens": (sources.bimodal_lengths(3, 24), 2000),
        "long tail": (sources.long_tailed_lengths(30), 2000),
        "copies": (sources.far_copies(letters=3), 1000),
    }
    made = {name: (finite_subject(name, *one, quick), Prompt.empty()) for name, one in finite.items()}
    known = finite_subject("copies, length given", sources.far_copies(letters=3), 1000, quick)
    made[known.name] = known, Prompt.masks(18)
    chain = chain_subject(50 if quick else 1000)
    return made | {"chain of 33": (chain, Prompt.empty())}


def finite_subject(name: str, source: sources.FiniteDistribution, samples: int, quick: bool) -> Subject:
    """Return a finite source as what samplers are tried on."""
    return Subject(name, source, source.length_distribution(), 200 if quick else samples)


def measured(subject: Subject, prompt: Prompt, steps: int, seed: int, **options: Any) -> Record:
    """Draw samples and return how far they are from the source, and what they took."""
    start = time.perf_counter()
    out = generate(
        subject.source.denoiser(), subject.samples, prompts=[prompt], steps=steps, seed=seed, batch_size=4000, **options
    )
    quality = subject.judge(Ragged.from_lists(out.sequences), torch.tensor(out.possible))
    return {
        "evaluations": sum(out.evaluations) / len(out.evaluations),
        "error": None if math.isnan(quality.error) else quality.error,
        "standard_error": None if quality.excess is None else quality.excess.standard_error,
        "length_error": quality.length_error,
        "off_support": quality.off_support,
        "seconds": time.perf_counter() - start,
    }


def read(file: Path) -> list[Record]:
    """Return the records that are there."""
    return json.loads(file.read_text())["trials"] if file.exists() else []


def write(file: Path, text: str) -> None:
    """Write a file at once, so that a run that is stopped leaves either the old one or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{os.getpid()}.part")
    unfinished.write_text(text)
    unfinished.replace(file)


def run(file: Path, quick: bool, before: bool, only: str | None, seed: int) -> None:
    """Measure what is not there yet."""
    trials = {BEFORE: ({"sampler": "spaced"}, COMPARED)} if before else TRIALS
    known = subjects(quick)
    work = [
        (steps > MANY, list(trials).index(label), name, label, steps)
        for label, (_, counts) in trials.items()
        for steps in (counts[:1] if quick else counts)
        for name, (subject, _) in known.items()
        if only in (None, name) and (steps <= MANY or subject.samples >= CHEAP)
    ]
    for *_, name, label, steps in sorted(work, key=lambda one: one[:2]):  # what takes longest comes last
        subject, prompt = known[name]
        key = {"source": name, "sampler": label, "steps": steps, "samples": subject.samples, "seed": seed}
        records = read(file)
        if not any(key.items() <= record.items() for record in records):
            record = key | measured(subject, prompt, steps, seed, **trials[label][0])
            write(file, json.dumps({"trials": [*records, record]}, indent=1) + "\n")
            print(f"{name:<22} {label:<22} {steps:>3} steps  {cells(record)}", flush=True)


def cells(record: Record) -> str:
    """Return the figures of a trial, as a part of a row of a table."""
    error = "-" if record["error"] is None else f"{record['error']:.4f}"
    if record["standard_error"] is not None:
        error += f" ± {record['standard_error']:.4f}"
    ends = f"{record['length_error']:.3f} | {record['off_support']:.1%} | {record['seconds']:.0f}"
    return f"{record['evaluations']:.1f} | {error} | {ends}"


def at(records: Sequence[Record], evaluations: float, value: Callable[[Record], float]) -> float | None:
    """Return a figure at a number of evaluations, between two trials log-linearly; None outside of them."""
    points = sorted((math.log(r["evaluations"]), value(r)) for r in records)
    wanted = math.log(evaluations)
    for (x, y), (x2, y2) in zip(points[:-1], points[1:], strict=True):
        if x - 1e-9 <= wanted <= x2 + 1e-9:
            share = (wanted - x) / max(x2 - x, 1e-12)
            return y ** (1 - share) * y2**share if min(y, y2) > 0 else (1 - share) * y + share * y2
    return None


def comparison(records: Sequence[Record], noises: dict[str, Quality]) -> list[str]:
    """Return the table of `spaced` against what it was, at equal evaluations."""
    lines = [
        "## `spaced` at the evaluations that it took before",
        "",
        "The new one lies between two numbers of steps, log-linearly. Error: total variation of the words, excess nats "
        "per token of the chain; length error: W1 in tokens; noise: what as many exact samples would show.",
        "",
        "| source | evaluations | error before | now | noise | length error before | now | noise |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, noise in noises.items():
        mine = [r for r in records if r["source"] == name]
        old = {r["steps"]: r for r in mine if r["sampler"] == BEFORE}
        new = [r for r in mine if r["sampler"] == "spaced"]
        for steps in COMPARED:
            if steps not in old or len(new) < 2:
                continue
            was = old[steps]
            figures = [f"{was['evaluations']:.1f}"]
            floor = noise.error if noise.excess is None else noise.excess.standard_error
            for figure, least, digits in (("error", floor, 3), ("length_error", noise.length_error, 2)):
                now = at(new, was["evaluations"], lambda r, figure=figure: r[figure])
                shown = "-" if now is None else f"{now:.{digits}f}"
                figures += [f"{was[figure]:.{digits}f}", shown, f"{least:.{digits}f}"]
            lines.append(f"| {name} | {' | '.join(figures)} |")
    return lines


def markdown(records: Sequence[Record], quick: bool, seed: int) -> str:
    """Return the tables of the report."""
    known = {name: subject for name, (subject, _) in subjects(quick).items()}
    noises = {name: subject.noise for name, subject in known.items() if any(r["source"] == name for r in records)}
    lines = [
        "# Samplers on coupled sources, with an exact denoiser",
        "",
        f"Made by `python benchmarks/coupled.py` with seed {seed}, torch {torch.__version__}, one thread of a shared "
        'core (seconds include the exact denoiser). "before": `spaced` of commit fd60bf2.',
        "",
        *comparison(records, noises),
    ]
    order = [*TRIALS, BEFORE]
    for name, noise in noises.items():
        floor = noise.error if noise.excess is None else noise.excess.standard_error
        kind = "total variation" if noise.excess is None else "excess nats per token"
        lines += [
            "",
            f"## {name.capitalize()}, {known[name].samples:,} samples",
            "",
            f"Noise: {kind} {floor:.4f}, lengths {noise.length_error:.3f}.",
            "",
            f"| sampler | steps | evaluations | {kind} | length error (W1) | off support | seconds |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
        mine = [r for r in records if r["source"] == name]
        for record in sorted(mine, key=lambda r: (order.index(r["sampler"]), r["steps"])):
            lines.append(f"| {record['sampler']} | {record['steps']} | {cells(record)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Parse the command line, run, and write JSON and tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few samples and steps, to see that everything works")
    parser.add_argument("--before", action="store_true", help="measure spaced alone, as what it was before")
    parser.add_argument("--only", metavar="SOURCE", help="one source by its name in the tables, such as 'two lengths'")
    parser.add_argument("--seed", type=int, default=0, help="of all randomness (default 0)")
    options = parser.parse_args()
    file = RESULTS / ("coupled-quick.json" if options.quick else "coupled.json")
    with threads(1):
        run(file, options.quick, options.before, options.only, options.seed)
        if not options.before:
            write(file.with_suffix(".md"), markdown(read(file), options.quick, options.seed))


if __name__ == "__main__":
    main()
