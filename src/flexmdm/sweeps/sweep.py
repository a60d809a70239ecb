"""Benchmarks of trained runs: every item generated once, at several numbers of steps, and scored.

What is generated is written down batch by batch, so that an interrupted sweep goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flexmdm.evaluation.intervals import Interval, paired
from flexmdm.generation.decoding import Decoding
from flexmdm.generation.defaults import Defaults
from flexmdm.generation.generate import SAMPLERS, sampler_named
from flexmdm.generation.samplers import Grid
from flexmdm.sweeps.journal import Journal
from flexmdm.tasks.pipeline import BATCH, progress_bar

if TYPE_CHECKING:
    from flexmdm.backbones.model import FlexMDMModel

_PAPER: dict[str, dict[str, Any]] = {
    "adaptive": {"confidence": "top_prob", "window": (5.0, 64)},
    "low_confidence": {"block": 32},
}
OF_SAMPLERS = ("confidence", "window", "spacing", "block")  # options that only some samplers have
_SAMPLE = 1024


class Written(Protocol):
    """What a pipeline returns for an item; if it may leave out a part of one, also whether it was ``shortened``."""

    @property
    def text(self) -> str: ...
    @property
    def evaluations(self) -> int: ...
    @property
    def hit_max_length(self) -> bool: ...


@dataclass(frozen=True)
class Refused:
    """In the place of what was written for an item that the model cannot take, such as a prompt that is too long."""

    why: str
    text: str = ""
    evaluations: int = 0
    hit_max_length: bool = False


Writer = Callable[..., Sequence[Written]]
"""Writes one text for each item; takes ``seed``, ``first_sequence``, ``callback`` and options of `flexmdm.generate`."""


@dataclass(frozen=True)
class Entrant:
    """A run that takes part.

    Attributes:
        name: of the run.
        model: its kind, for tables.
        inserts: whether it inserts tokens.
        weights: tells them from others, see `fingerprint`.
        write: its pipeline.
    """

    name: str
    model: str
    inserts: bool
    weights: str
    write: Writer


@dataclass(frozen=True)
class Scored:
    """What the texts of a run are worth.

    Attributes:
        share: of the items that are right, with its 95% interval, which knows of the groups of items.
        right: which they are.
        figures: whatever else was found, for the JSON.
    """

    share: Interval
    right: list[bool]
    figures: dict[str, Any]


class Benchmark(Protocol):
    """Items, and what makes a text for one of them right."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str:
        """See `title_of`."""
        ...

    @property
    def measure(self) -> str:
        """What the share of right items is called."""
        ...

    @property
    def defaults(self) -> Defaults:
        """Return the samplers by default, of a model that inserts and of one that does not."""
        ...

    @property
    def items(self) -> Sequence[Any]:
        """What a writer gets, as JSON."""
        ...

    @property
    def groups(self) -> Sequence[str] | None:
        """For each item which others are made of the same, such as of one function; ``None`` if no two are."""
        ...

    def line(self, number: int, text: str) -> dict[str, Any]:
        """What is written down about the text for an item."""
        ...

    def score(self, lines: Sequence[dict[str, Any]], file: Path | None) -> Scored:
        """The worth of the lines of the first items; ``file`` is where they are written."""
        ...


@dataclass(frozen=True)
class Point:
    """One run with one number of steps.

    Attributes:
        run, model: of the `Entrant`.
        options: of generation.
        num: items.
        share, right, figures: of the `Scored`.
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
    share: Interval
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
        return {
            "run": self.run,
            "model": self.model,
            **self.options,
            "num": self.num,
            measure: asdict(self.share),
            **self.figures,
            "evaluations": self.evaluations,
            "seconds": self.seconds,
            "refused": self.refused,
            "shortened": self.shortened,
            "hit_max_length": self.hit_max_length,
            "items": None if self.items is None else f"{self.items.parent.name}/{self.items.name}",
        }


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
    """Every run with every number of steps.

    Args:
        benchmark: what to do.
        entrants: who does it.
        steps: of the sampler.
        num: the first so many items; by default all.
        folder: gets a .jsonl with the items of each run and number of steps. What it holds already of the same weights,
            items, options and seed is not generated again; what it holds of others is moved aside, see `Journal`.
        seed: of generation.
        batch_size: items at a time, and written down at once.
        console: where to say what is reused.
        options: of `flexmdm.generate`; by default those of the paper, see `options_of`.
    """
    console = console or Console(stderr=True)
    num = len(benchmark.items) if num is None else min(num, len(benchmark.items))
    chosen = options_of(entrants, benchmark.defaults, options)
    made_with = {"benchmark": benchmark.name, "problems": _digest(benchmark), "seed": seed}
    points = []
    for entrant in entrants:
        for count in steps:
            settings = {**chosen[entrant.name], "steps": count}
            Grid(count)  # says what is wrong with it
            file = None if folder is None else folder / _file_name(entrant.name, count)
            journal = Journal(file, {**made_with, "weights": entrant.weights, **settings})
            what = f"{entrant.name}, {count} steps"
            _say(journal, what, num, console)
            try:
                _complete(journal, benchmark, entrant, num, batch_size or BATCH, seed=seed, **settings)
                points.append(_point(benchmark, entrant, journal, num, settings))
            except KeyboardInterrupt:
                raise KeyboardInterrupt(_kept(journal, what, num, batch_size or BATCH)) from None
    return points


def options_of(entrants: Sequence[Entrant], defaults: Defaults, given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The options of each run by its name: those given, else the paper's.

    That is temperature 0; for ``adaptive`` the highest probability first, in a window (5, 64); for ``low_confidence``
    blocks of 32 tokens. An option that only some samplers have goes to the runs that use these.

    Args:
        entrants: the runs.
        defaults: the samplers, unless one is given.
        given: options of `flexmdm.generate`.

    >>> runs = [Entrant("mine", "FlexMDM", True, "", list), Entrant("theirs", "MDM", False, "", list)]
    >>> chosen = options_of(runs, Defaults("adaptive", "low_confidence", temperature=0.0), {"window": (2.0, 8)})
    >>> chosen["mine"]
    {'sampler': 'adaptive', 'temperature': 0.0, 'confidence': 'top_prob', 'window': (2.0, 8)}
    >>> chosen["theirs"]
    {'sampler': 'low_confidence', 'temperature': 0.0, 'block': 32}
    """
    chosen: dict[str, dict[str, Any]] = {}
    for entrant in entrants:
        usual = defaults.options(entrant.inserts)
        name = given.get("sampler") or usual["sampler"]
        sampler_named(name, Grid(1))  # says if there is none
        if name == "low_confidence" and entrant.inserts:
            raise ValueError(
                f"low_confidence is a sampler for MDM, and {entrant.name} is a FlexMDM: take spaced, adaptive or tau"
            )
        own = {f.name for f in fields(SAMPLERS[name])}
        mine = {key: value for key, value in given.items() if key not in OF_SAMPLERS or key in own}
        temperature = {"temperature": usual["temperature"]}
        options: dict[str, Any] = {"sampler": name, **temperature, **_PAPER.get(name, {}), **mine}
        decoding = Decoding(options["temperature"], options.get("top_k"), options.get("top_p"))
        sampler_named(name, Grid(1), decoding, **{key: options[key] for key in OF_SAMPLERS if key in options})
        chosen[entrant.name] = options
    unused = [key for key in given if key in OF_SAMPLERS and not any(key in mine for mine in chosen.values())]
    if unused:
        names = " and ".join(sorted({mine["sampler"] for mine in chosen.values()}))
        raise ValueError(f"the sampler {names} has no {', '.join(unused)}; leave it out or take another --sampler")
    return chosen


def written(
    write: Writer,
    items: Sequence[Any],
    first: int = 0,
    callback: Callable[..., None] | None = None,
    **options: Any,
) -> list[Written]:
    """A text for each item, or a `Refused`.

    A pipeline refuses a batch that has an item it cannot take; then its halves are tried. Random numbers belong to an
    item by its number, so the others come out the same.

    Args:
        write: of an `Entrant`.
        items: some of a benchmark's.
        first: the number of the first of them.
        callback: called with (items already complete, `flexmdm.generation.Progress`).
        options: of `flexmdm.generate`, known to be right.
    """
    try:
        return list(write(items, first_sequence=first, callback=callback, **options))
    except ValueError as error:
        if len(items) == 1:
            return [Refused(str(error))]
    half = len(items) // 2

    def later(done: int, step: Any) -> None:
        if callback is not None:
            callback(half + done, step)

    return [
        *written(write, items[:half], first, callback, **options),
        *written(write, items[half:], first + half, later, **options),
    ]


def fingerprint(model: FlexMDMModel) -> str:
    """Tells the weights of a model from others: a digest of some numbers of each tensor."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().flatten()
        some = flat[:: max(len(flat) // _SAMPLE, 1)].float().cpu()
        digest.update(f"{name} {tuple(tensor.shape)}".encode() + some.numpy().tobytes())
    return digest.hexdigest()[:16]


def differences(points: Sequence[Point]) -> Iterator[tuple[Point, Point, Interval]]:
    """Each run against the first one with the same number of steps: by how much its share is higher, item by item."""
    for point in points:
        base = next(other for other in points if other.steps == point.steps)
        if base is not point:
            yield point, base, difference(point, base)


def difference(point: Point, base: Point) -> Interval:
    """By how much the share of ``point`` is above that of ``base``, item by item; both have the same items."""
    return paired(np.array(point.right), np.array(base.right), groups=point.groups)


# Generating -----------------------------------------------------------------------------------------------------------


def _file_name(run: str, steps: int) -> str:
    return re.sub(r"[^\w.-]+", "_", run) + f"-{steps}.jsonl"


def _digest(benchmark: Benchmark) -> str:
    """Tells the items, and what is written down about them, such as the right answer, from others."""
    items = [[item, benchmark.line(number, "")] for number, item in enumerate(benchmark.items)]
    return hashlib.sha256(json.dumps(items).encode()).hexdigest()[:16]


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
    """What is left of an interrupted sweep."""
    if journal.file is None:
        return "nothing is kept without --json"
    there = min(len(journal.lines), num)
    when = "" if there else f" ({batch_size:,} are written down at a time: --batch-size)"
    return f"{what}: {there:,} of {num:,} items are kept in {journal.file.parent}{when}; the same command goes on"


def _complete(
    journal: Journal, benchmark: Benchmark, entrant: Entrant, num: int, batch_size: int, **options: Any
) -> None:
    """Generate what the journal does not have; batches begin at the same items whenever it was interrupted."""
    there = len(journal.lines)
    if there >= num:
        return
    with progress_bar(num - there, f"{entrant.name}, {options['sampler']} {options['steps']}") as show:
        start = there
        while start < num:
            end = min((start // batch_size + 1) * batch_size, num)
            began = time.perf_counter()
            texts = written(
                entrant.write,
                benchmark.items[start:end],
                start,
                lambda done, step, start=start: show(start - there + done, step),
                **options,
            )
            seconds = (time.perf_counter() - began) / len(texts)
            journal.add([_line(benchmark, start + row, one, seconds) for row, one in enumerate(texts)])
            start = end


def _line(benchmark: Benchmark, number: int, one: Written, seconds: float) -> dict[str, Any]:
    line = {
        **benchmark.line(number, one.text),
        "evaluations": one.evaluations,
        "hit_max_length": one.hit_max_length,
        "shortened": getattr(one, "shortened", False),
        "seconds": round(seconds, 6),
    }
    return {**line, "refused": one.why} if isinstance(one, Refused) else line


def _point(benchmark: Benchmark, entrant: Entrant, journal: Journal, num: int, options: dict[str, Any]) -> Point:
    lines = journal.lines[:num]
    asked = [line for line in lines if "refused" not in line]
    if not asked:
        raise ValueError(f"{entrant.name} could take none of the {num} items; the first: {lines[0]['refused']}")
    scored = benchmark.score(lines, journal.file)
    counted = all("shortened" in line for line in asked)
    groups = benchmark.groups
    return Point(
        run=entrant.name,
        model=entrant.model,
        options=options,
        num=num,
        share=scored.share,
        evaluations=sum(line["evaluations"] for line in asked) / len(asked),
        seconds=sum(line["seconds"] for line in asked) / len(asked),
        refused=num - len(asked),
        hit_max_length=sum(line["hit_max_length"] for line in asked),
        figures=scored.figures,
        items=journal.file,
        right=scored.right,
        shortened=sum(line["shortened"] for line in asked) if counted else None,
        groups=None if groups is None else groups[:num],
    )


# Showing --------------------------------------------------------------------------------------------------------------


def title_of(benchmark: str, split: str, num: int, official: Mapping[str, int], file: Path | None) -> str:
    """What items are called: by their benchmark only if there are as many as it has, else by the file they are from.

    >>> title_of("GSM8K", "test", 1319, {"test": 1319}, Path("gsm8k/test.jsonl"))
    'GSM8K, test'
    >>> title_of("GSM8K", "test", 200, {"test": 1319}, Path("sums/test.jsonl"))
    'sums/test.jsonl (in the form of GSM8K)'
    """
    if official.get(split) == num:
        return f"{benchmark}, {split}"
    place = "items" if file is None else "/".join(file.resolve().parts[-2:])
    return f"{place} (in the form of {benchmark})"


def split_of(data: Path, given: str | None, default: str, files: Mapping[str, str]) -> str:
    """Which split the items of a folder or a file are: of a file what its name says, else this name.

    Args:
        data: the folder or file.
        given: the split that was asked for, if any; a file must be this one.
        default: of a folder.
        files: what the file of each split is called, without its ending.

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


def table_of(points: Sequence[Point], benchmark: Benchmark) -> Table:
    """One row per point."""
    refused = any(point.refused for point in points)
    counted = [*(["refused"] if refused else []), *(["no answer"] if "unanswered" in points[0].figures else [])]
    title = escape(f"{benchmark.title}: {points[0].num:,} items")
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in ("run", "model", "sampler", benchmark.measure, *counted, "evals", "s"):
        table.add_column(heading, justify="left" if heading in ("run", "model", "sampler") else "right")
    for point in points:
        sampler, temperature = f"{point.options['sampler']} {point.steps}", point.options["temperature"]
        table.add_row(
            point.run,
            point.model,
            sampler + (f" T={temperature:g}" if temperature else ""),
            point.share.percent(),
            *(str(point.refused if heading == "refused" else point.figures["unanswered"]) for heading in counted),
            f"{point.evaluations:.0f}",
            f"{point.seconds:.2f}",
        )
    table.caption = f"{benchmark.measure} with its 95% interval; evaluations of the network and seconds per item"
    if points[0].groups is not None:
        num = len(set(points[0].groups))
        table.caption += f"; the items are of {num:,} functions, and those of one count as less than as many of others"
    if refused:
        table.caption += "; refused: the model cannot take these items, and they count as wrong"
    if "no answer" in counted:
        table.caption += "; no answer: texts without one, which count as wrong"
    shortened = "items of which the model saw only a part, as it was trained on shorter ones (--max-length)"
    table.caption += _counted(shortened, "shortened", points)
    table.caption += _counted("texts that wanted to grow beyond the longest", "hit_max_length", points)
    table.caption_justify = "left"
    return table


def _counted(what: str, name: str, points: Sequence[Point]) -> str:
    """A line with how many there are of each point; nothing if there are none."""
    counts = [
        f"{getattr(point, name):,} of {point.num:,} ({point.run}, {point.steps} steps)"
        for point in points
        if getattr(point, name)
    ]
    return escape(f"\n{what}: {', '.join(counts)}") if counts else ""
