"""Benchmarks of trained runs: every item generated once, at several numbers of steps, and scored.

What is generated is written down batch by batch, so that an interrupted sweep goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from rich.console import Console

from flexmdm.data.tokenizers import Unanswerable
from flexmdm.evaluation.intervals import Interval, paired
from flexmdm.generation.decoding import Decoding
from flexmdm.generation.defaults import Defaults
from flexmdm.generation.generate import SAMPLERS, sampler_named
from flexmdm.generation.samplers import Grid
from flexmdm.jobs.journal import Journal
from flexmdm.tasks.pipeline import BATCH, Answer, Callback, Pipeline, progress_bar
from flexmdm.tasks.task import Task

if TYPE_CHECKING:
    from flexmdm.backbones.model import FlexMDMModel

OF_SAMPLERS = ("confidence", "window", "spacing", "block", "bound")  # options that only some samplers have
_SAMPLE = 1024  # numbers of each tensor that go into its digest


@dataclass(frozen=True)
class Refused:
    """The place of an answer to an item that the model cannot take, such as a prompt that is too long."""

    why: str
    text: str = ""
    tokens: tuple[int, ...] = ()
    evaluations: int = 0
    hit_max_length: bool = False
    shortened: bool = False


Writer = Callable[..., Sequence[Answer]]
"""Answers each item; takes ``seed``, ``first_sequence``, ``callback`` and options of `flexmdm.generate`."""


@dataclass(frozen=True)
class Entrant:
    """A run that takes part; ``model`` is its kind, and ``weights`` their `fingerprint`."""

    name: str
    model: str
    inserts: bool
    weights: str
    write: Writer


@dataclass(frozen=True)
class Scored:
    """The worth of the answers of a run.

    Attributes:
        measured: the main figure, of which `Benchmark.measure` is the name, with its 95% interval: where items are
            right or wrong, the share that is right.
        right: which items are right; empty where none is right or wrong.
        figures: all other figures, by name.
    """

    measured: Interval
    right: list[bool]
    figures: dict[str, Any]


class Benchmark(ABC):
    """Items, who can be asked them, and what the answers are worth.

    Attributes:
        name, measure: of the benchmark, and of its main figure.
        defaults: samplers of a model that inserts and of one that does not.
        pipelines: those of the runs that can be asked.
        asks: what is asked, for a run that cannot be.
        title: name of the items, see `title_of`.
        items: requests to a writer, as JSON.
        groups: for each item which others are made of the same, such as of one function; ``None`` if no two are.
    """

    name: ClassVar[str]
    measure: ClassVar[str]
    defaults: ClassVar[Defaults]
    pipelines: ClassVar[tuple[type[Pipeline], ...]]
    asks: ClassVar[str]

    @property
    @abstractmethod
    def title(self) -> str: ...

    @property
    @abstractmethod
    def items(self) -> Sequence[Any]: ...

    @property
    def groups(self) -> Sequence[str] | None:
        return None

    def entrant(self, name: str, task: Task, model: FlexMDMModel) -> Entrant:
        """Return a run as an entrant; raise if its task cannot be asked these items."""
        pipeline = task.pipeline(model)
        if not isinstance(pipeline, self.pipelines):
            raise ValueError(f"{name} was trained on the task {task.name}, and {self.asks}")
        return Entrant(name, task.model, task.layout.inserts, fingerprint(model), self.writer(name, pipeline))

    @abstractmethod
    def writer(self, name: str, pipeline: Any) -> Writer:
        """Return what answers the items for a run of this name, which has one of the `pipelines`."""

    @abstractmethod
    def line(self, number: int, answer: Answer | Refused) -> dict[str, Any]:
        """Return the record of the answer to an item."""

    @abstractmethod
    def score(self, lines: Sequence[dict[str, Any]], file: Path | None = None) -> Scored:
        """Return the worth of the lines of the first items; ``file`` is where they are written."""


@dataclass(frozen=True)
class Point:
    """One run with one number of steps: what the `Entrant` is, how it was `Scored`, and counts.

    Attributes:
        evaluations, seconds: per item, of those that were not refused.
        refused: items that the model could not take; they count as wrong.
        hit_max_length: texts that wanted to grow beyond the longest.
        items: the file with all of them.
        shortened: items of which the model saw only a part; ``None`` if the file is older than this count.
        groups: of the items, see `Benchmark`.
    """

    run: str
    model: str
    options: dict[str, Any]
    num: int
    measured: Interval
    evaluations: float
    seconds: float
    refused: int
    hit_max_length: int
    figures: dict[str, Any]
    items: Path | None = None
    right: list[bool] = field(default_factory=list, repr=False)
    shortened: int | None = 0
    groups: Sequence[str] | None = field(default=None, repr=False)

    @property
    def steps(self) -> int:
        return self.options["steps"]

    def to_dict(self, measure: str) -> dict[str, Any]:
        head = {"run": self.run, "model": self.model, **self.options, "num": self.num, measure: asdict(self.measured)}
        counts = ("evaluations", "seconds", "refused", "shortened", "hit_max_length")
        items = None if self.items is None else f"{self.items.parent.name}/{self.items.name}"
        return {**head, **self.figures, **{name: getattr(self, name) for name in counts}, "items": items}


def sweep(
    benchmark: Benchmark,
    entrants: Sequence[Entrant],
    steps: Sequence[int],
    num: int | None = None,
    folder: Path | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    console: Console | None = None,
    **options: Any,
) -> list[Point]:
    """Measure every run with every number of steps.

    Args:
        benchmark, entrants, steps: what to do, who does it, and with how many steps of the sampler.
        num: the first so many items; by default all.
        folder: gets a .jsonl with the items of each run and number of steps. What it holds already of the same weights,
            items, options and seed is not generated again; what it holds of others is moved aside, see `Journal`.
        batch_size: items at a time, and written down at once.
        console: where to say what is reused.
        options: of `flexmdm.generate`; by default those of the paper, see `options_of`.
    """
    console = console or Console(stderr=True)
    num = len(benchmark.items) if num is None else min(num, len(benchmark.items))
    batch_size = batch_size or BATCH
    chosen = options_of(entrants, benchmark.defaults, options)
    points = []
    for entrant, count in itertools.product(entrants, steps):
        settings = {**chosen[entrant.name], "steps": count}
        Grid(count)  # says what is wrong with it
        journal = journal_of(benchmark, entrant, settings, seed, folder)
        what = f"{entrant.name}, {count} steps"
        _say(journal, what, num, console)
        try:
            points.append(measured(benchmark, entrant, settings, seed, num, journal, batch_size))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_kept(journal, what, num, batch_size)) from None
    return points


def journal_of(
    benchmark: Benchmark,
    entrant: Entrant,
    options: Mapping[str, Any],
    seed: int = 0,
    folder: Path | None = None,
    name: str | None = None,
) -> Journal:
    """Return the journal of a run with some options in a folder; its ``name`` is by default of the run and the steps.

    It is of just these items, weights, options and seed: what stood there of others is moved aside, see `Journal`.
    """
    if folder is None:
        return Journal(None, {})
    # Items with their records, such as the right answers: what tells them from others.
    items = [[item, benchmark.line(number, Refused(""))] for number, item in enumerate(benchmark.items)]
    digest = hashlib.sha256(json.dumps(items).encode()).hexdigest()[:16]
    file = re.sub(r"[^\w.-]+", "_", name or f"{entrant.name}-{options['steps']}") + ".jsonl"
    made_with = {"benchmark": benchmark.name, "problems": digest, "seed": seed}
    return Journal(folder / file, {**made_with, "weights": entrant.weights, **options})


def _say(journal: Journal, what: str, num: int, console: Console) -> None:
    there = min(len(journal.lines), num)
    if journal.changed:
        moved = f"; what was there is now in {journal.moved}" if journal.moved else ""
        anew = f"{what}: begun anew, as these have changed: {', '.join(journal.changed)}{moved}"
        console.print(anew, highlight=False, soft_wrap=True, markup=False)
    elif there:
        console.print(f"{what}: {there:,} of {num:,} were there already", highlight=False)
    if there < num and not console.is_terminal:  # where no bar is seen
        console.print(f"{what}: {num - there:,} to write ...", highlight=False)


def _kept(journal: Journal, what: str, num: int, batch_size: int) -> str:
    """Return a sentence on what is left of an interrupted sweep."""
    if journal.file is None:
        return "nothing is kept without --json"
    there = min(len(journal.lines), num)
    when = "" if there else f" ({batch_size:,} are written down at a time: --batch-size)"
    return f"{what}: {there:,} of {num:,} items are kept in {journal.file.parent}{when}; the same command goes on"


def measured(
    benchmark: Benchmark,
    entrant: Entrant,
    options: dict[str, Any],
    seed: int = 0,
    num: int | None = None,
    journal: Journal | None = None,
    batch_size: int = BATCH,
) -> Point:
    """Ask one run the first ``num`` items (by default all) that its journal does not have, and score its answers.

    The options are those of `flexmdm.generate`, known to be right.
    """
    num = len(benchmark.items) if num is None else num
    journal = journal or Journal(None, {})
    there = len(journal.lines)
    for answers, seconds in asked(entrant, benchmark.items[:num], there, batch_size, seed=seed, **options):
        numbered = enumerate(answers, len(journal.lines))
        journal.add([_line(benchmark, number, one, seconds) for number, one in numbered])
    lines = journal.lines[:num]
    taken = [line for line in lines if "refused" not in line]
    if not taken:
        raise ValueError(f"{entrant.name} could take none of the {num} items; the first: {lines[0]['refused']}")
    scored = benchmark.score(lines, journal.file)
    counted = all("shortened" in line for line in taken)
    return Point(
        run=entrant.name,
        model=entrant.model,
        options=options,
        num=num,
        evaluations=sum(line["evaluations"] for line in taken) / len(taken),
        seconds=sum(line["seconds"] for line in taken) / len(taken),
        refused=num - len(taken),
        hit_max_length=sum(line["hit_max_length"] for line in taken),
        items=journal.file,
        shortened=sum(line["shortened"] for line in taken) if counted else None,
        groups=None if benchmark.groups is None else benchmark.groups[:num],
        **vars(scored),
    )


def _line(benchmark: Benchmark, number: int, one: Answer | Refused, seconds: float) -> dict[str, Any]:
    counts = {name: getattr(one, name) for name in ("evaluations", "hit_max_length", "shortened")}
    refused = {"refused": one.why} if isinstance(one, Refused) else {}
    return {**benchmark.line(number, one), **counts, "seconds": round(seconds, 6), **refused}


def asked(
    entrant: Entrant, items: Sequence[Any], first: int = 0, batch_size: int = BATCH, **options: Any
) -> Iterator[tuple[list[Answer | Refused], float]]:
    """Yield the answers to the items from ``first`` on, batch by batch, and the seconds that each took; show a bar.

    Batches begin at the same items wherever the first one is. The options are those of `flexmdm.generate`, known to be
    right.
    """
    if first >= len(items):
        return
    with progress_bar(len(items) - first, f"{entrant.name}, {options['sampler']} {options['steps']}") as show:
        for start in [first, *range((first // batch_size + 1) * batch_size, len(items), batch_size)]:
            part = items[start : (start // batch_size + 1) * batch_size]
            began = time.perf_counter()
            answers = written(
                entrant.write, part, start, lambda n, step: show(n - first, step), batch_size=batch_size, **options
            )
            yield answers, (time.perf_counter() - began) / len(part)


def written(
    write: Writer, items: Sequence[Any], first: int, callback: Callback, **options: Any
) -> list[Answer | Refused]:
    """Return an answer for each item, or a `Refused`; ``first`` is the number of the first of them.

    A pipeline refuses a batch that has an item it cannot take by `Unanswerable`; then its halves are tried. Random
    numbers belong to an item by its number, so the others come out the same. Every other error is nobody's answer.
    ``callback`` is called with (the number of the next item to complete, `flexmdm.generation.Progress`).
    """
    try:
        answers = write(items, first_sequence=first, callback=lambda n, step: callback(first + n, step), **options)
        return list(answers)
    except Unanswerable as error:
        if len(items) == 1:
            return [Refused(str(error))]
    half = len(items) // 2
    before = written(write, items[:half], first, callback, **options)
    return before + written(write, items[half:], first + half, callback, **options)


def options_of(entrants: Sequence[Entrant], defaults: Defaults, given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the options of each run by its name: those given, else the defaults.

    An option that only some samplers have goes to the runs that use these; steps are left to the caller.

    >>> from flexmdm.generation.defaults import DEFAULTS
    >>> runs = [Entrant("mine", "FlexMDM", True, "", list), Entrant("theirs", "MDM", False, "", list)]
    >>> chosen = options_of(runs, DEFAULTS["gsm8k"], {"window": (2.0, 8)})
    >>> chosen["mine"]
    {'sampler': 'adaptive', 'temperature': 0.0, 'confidence': 'top_prob', 'window': (2.0, 8)}
    >>> chosen["theirs"]
    {'sampler': 'low_confidence', 'temperature': 0.0, 'block': 32}
    """
    chosen: dict[str, dict[str, Any]] = {}
    for entrant in entrants:
        name = defaults.options(entrant.inserts, sampler=given.get("sampler"))["sampler"]
        sampler_named(name, Grid(1))  # says if there is none
        if name == "low_confidence" and entrant.inserts:
            raise ValueError(
                f"low_confidence is a sampler for MDM, and {entrant.name} is a FlexMDM: take spaced, adaptive or tau"
            )
        own = {f.name for f in fields(SAMPLERS[name])}
        mine = {key: value for key, value in given.items() if key not in OF_SAMPLERS or key in own}
        usual = {"sampler": name, "temperature": defaults.temperature, **defaults.settings.get(name, {})}
        chosen[entrant.name] = usual | mine
        check_sampler(chosen[entrant.name])
    unused = [key for key in given if key in OF_SAMPLERS and not any(key in mine for mine in chosen.values())]
    if unused:
        names = " and ".join(sorted({mine["sampler"] for mine in chosen.values()}))
        raise ValueError(f"the sampler {names} has no {', '.join(unused)}; leave it out or take another --sampler")
    return chosen


def check_sampler(options: Mapping[str, Any], steps: int = 1) -> None:
    """Raise if options of `flexmdm.generate` make no sampler."""
    decoding = Decoding(options.get("temperature", 1.0), options.get("top_k"), options.get("top_p"))
    own = {key: options[key] for key in OF_SAMPLERS if key in options}
    sampler_named(options["sampler"], Grid(steps), decoding, **own)


def fingerprint(model: FlexMDMModel) -> str:
    """Return what tells the weights of a model from others: a digest of some numbers of each tensor."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().flatten()
        some = flat[:: max(len(flat) // _SAMPLE, 1)].float().cpu()
        digest.update(f"{name} {tuple(tensor.shape)}".encode() + some.numpy().tobytes())
    return digest.hexdigest()[:16]


def differences(points: Sequence[Point]) -> Iterator[tuple[Point, Point, Interval]]:
    """Compare each run with the first one of the same number of steps: yield both, and their `difference`."""
    for point in points:
        base = next(other for other in points if other.steps == point.steps)
        if base is not point:
            yield point, base, difference(point, base)


def difference(point: Point, base: Point) -> Interval:
    """Return by how much the share of ``point`` is above that of ``base``, item by item; both have the same items."""
    return paired(np.array(point.right), np.array(base.right), groups=point.groups)


def title_of(benchmark: str, split: str, num: int, official: Mapping[str, int], file: Path | None) -> str:
    """Return the name of items: of their benchmark only if there are as many as it has, else of their file.

    >>> title_of("GSM8K", "test", 1319, {"test": 1319}, Path("gsm8k/test.jsonl"))
    'GSM8K, test'
    >>> title_of("GSM8K", "test", 200, {"test": 1319}, Path("sums/test.jsonl"))
    'sums/test.jsonl (in the form of GSM8K)'
    """
    if official.get(split) == num:
        return f"{benchmark}, {split}"
    source = "items" if file is None else "/".join(file.resolve().parts[-2:])
    return f"{source} (in the form of {benchmark})"


def split_of(data: Path, given: str | None, default: str, files: Mapping[str, str]) -> str:
    """Return the split that the items of a folder or a file are: of a file what its name says, else this name.

    A file must be the split that was ``given``, if any; ``files`` says what the file of each is called without ending.

    >>> [split_of(Path(name), None, "test", {"train": "train"}) for name in ("train.jsonl.gz", "sums.jsonl")]
    ['train', 'sums.jsonl']
    """
    if data.is_dir():
        return given or default
    stem = data.name.removesuffix(".gz").removesuffix(".jsonl")
    split = next((split for split, name in files.items() if name == stem), data.name)
    if given not in (None, split):
        raise ValueError(f"--split {given} does not fit --data {data}, which is one file ({split}): leave --split out")
    return split
