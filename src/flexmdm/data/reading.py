"""Texts from files, folders and Hugging Face datasets, one after the other, with errors that say where they are."""

from __future__ import annotations

import hashlib
import json
import os
import re
import reprlib
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from flexmdm.data.formats import (
    COMPRESSIONS,
    READERS,
    BadRecord,
    NotPython,
    Row,
    check_text,
    decompressed,
    inner_ending,
    listed,
    read_paragraphs,
)
from flexmdm.data.splitting import split_paragraphs

_BY_SCRIPT, _CONVERTED = "Dataset scripts are no longer supported", "refs/convert/parquet"
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


@dataclass
class ReadReport:
    """Counts of what was read and what was left out; `numbered` keeps them up to date."""

    documents: int = 0
    skipped: int = 0  # bad lines
    first_problem: str | None = None  # what was wrong with the first of them, and where
    first_guess: str | None = None  # what was taken for granted about a file, of the first such
    bytes: int = 0  # of the files


@dataclass(frozen=True)
class RecordSource:
    """A source of records: `Source` reads texts, `PairSource` prompts with their answers, `CodeSource` functions.

    Args:
        paths: files with one of the ``endings`` (each also as .gz or .zst), folders of such files, or Hugging Face
            datasets as ``hf:NAME`` or ``hf:NAME:SPLIT`` (or plainly ``OWNER/NAME``); where a dataset has several
            configurations, ``hf:OWNER/NAME/CONFIGURATION``.
    """

    paths: tuple[str, ...]
    endings: ClassVar[tuple[str, ...]]
    unit: ClassVar[str] = "line"  # what is counted if it cannot be read
    if_empty: ClassVar[str] = "it has no text"  # what is wrong with files that hold no record
    libraries: ClassVar[Mapping[str, Path]] = {}  # folders that have a name, and of which tests are left out

    def __post_init__(self) -> None:
        paths = (self.paths,) if isinstance(self.paths, str | Path) else self.paths
        object.__setattr__(self, "paths", tuple(str(path) for path in paths))
        if not self.paths:
            raise ValueError("there is nothing to read: give at least one file, folder or dataset")

    def columns(self, names: Sequence[str], header: bool = False) -> list[str]:
        """Return which of the fields of a row (of all rows if it is a header) to read, or raise `BadRecord`."""
        raise NotImplementedError

    def parts(self, cells: Sequence[Any]) -> list[Any]:
        """Return what a record consists of, from its `columns` or its text, or raise `BadRecord`."""
        raise NotImplementedError

    def resolve(self, path: str) -> Path:
        """Return the file or folder that a path names."""
        return self.libraries.get(path) or Path(path).expanduser()


@dataclass(frozen=True)
class FieldSource(RecordSource):
    """Records that are a single text, in tables in ``field``: by default ``default_field``, or the only column."""

    field: str | None = None
    default_field: ClassVar[str]

    def columns(self, names: Sequence[str], header: bool = False) -> list[str]:
        chosen = self.field or (names[0] if header and len(names) == 1 else self.default_field)
        if chosen not in names:
            raise BadRecord(
                f"no field {chosen!r}, only {listed(names)}; say which field holds the {self.default_field} (--field)"
            )
        return [chosen]


@dataclass(frozen=True)
class Marked:
    """A text, and the half-open range of each of its regions, in characters."""

    text: str
    ranges: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        """Return how many characters it has."""
        return len(self.text)


@dataclass(frozen=True)
class Source(FieldSource):
    """Texts to read; with marked regions each is a `Marked`."""

    paragraphs: bool = False  # split texts at blank lines; without it, each line of a .txt is a text
    skip_bad: bool = False  # count lines that cannot be read and go on, rather than stop at the first
    regions: tuple[str, ...] = ()  # NAME for each that columns NAME_start and NAME_end mark, in the order of the text
    endings: ClassVar[tuple[str, ...]] = (".txt", ".jsonl", ".csv", ".parquet", ".fasta", ".fa")
    default_field: ClassVar[str] = "text"

    def columns(self, names: Sequence[str], header: bool = False) -> list[str]:
        marks = [f"{region}_{side}" for region in self.regions for side in ("start", "end")]
        if missing := [name for name in marks if name not in names]:
            raise BadRecord(f"no field {missing[0]!r}, only {listed(names)}; say which regions are marked (--regions)")
        return [*super().columns([name for name in names if name not in marks], header), *marks]

    def parts(self, cells: Sequence[Any]) -> list[Any]:
        text = check_text(cells[0])
        if self.regions:
            return [_marked(text, cells[1:], 2 * len(self.regions))]
        return (split_paragraphs(text) or [""]) if self.paragraphs else [text]


def _marked(text: str, cells: Sequence[Any], count: int) -> Marked:
    if len(cells) != count:
        raise BadRecord("regions are marked in tables alone (.csv, .jsonl, .parquet): leave them out (--regions)")
    try:
        marks = [int(cell) for cell in cells]
    except (TypeError, ValueError):
        raise BadRecord(f"regions begin and end with whole numbers, these with {listed(map(str, cells))}") from None
    if sorted([0, *marks, len(text)]) != [0, *marks, len(text)]:
        raise BadRecord(f"regions lie in the text, one behind the other; these are {marks}, of {len(text)} characters")
    return Marked(text, tuple(zip(marks[::2], marks[1::2], strict=True)))


def numbered(source: RecordSource, report: ReadReport | None = None) -> Iterator[tuple[int, Any]]:
    """Yield the texts (pairs, functions) of a source, each with the number of the record that it is a part of.

    A .txt has no records: there each line, or each paragraph, has its own number.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "names.txt"
    ...     _ = path.write_text("Ada\\nGrace\\n")
    ...     list(numbered(Source(path)))
    [(0, 'Ada'), (1, 'Grace')]
    """
    report, number = report or ReadReport(), 0
    for path in source.paths:
        first, skipped = number, report.skipped
        for parts in _records(path, source, report):
            for part in parts:
                report.documents += 1
                yield number, part
            number += 1
        if number == first:
            raise ValueError(f"there is nothing to read in {path}: {_why_empty(path, source, report, skipped)}")


def _records(path: str, source: Any, report: ReadReport) -> Iterator[list[Any]]:
    """Yield the parts of each record that has some; a bad one is an error, or only counted."""
    for name, where, row in _rows(path, source, report):
        try:
            if isinstance(row, BadRecord):
                raise row
            cells = [row.get(column) for column in source.columns(list(row))] if isinstance(row, dict) else row
            parts = source.parts(cells)
        except BadRecord as error:
            problem = f"{name}, {where}: {error}" if where else f"{name}, {error}"
            if not (source.skip_bad or isinstance(error, NotPython)):
                raise ValueError(problem) from None
            report.skipped += 1
            report.first_problem = report.first_problem or problem
            continue
        if parts:
            yield parts


def _rows(path: str, source: Any, report: ReadReport) -> Iterator[tuple[str, str, Any]]:
    """Yield the rows of the files, or of the dataset, that a path names: the file, where in it, and the row."""
    name = dataset_name(path)
    if name is not None:
        yield from ((path, *row) for row in _dataset_rows(path, name))
        return
    for file in _files(path, source):
        ending, before = inner_ending(file), report.bytes
        reader = read_paragraphs if ending == ".txt" and source.paragraphs else READERS[ending]
        with file.open("rb", buffering=0) as opened, decompressed(opened, file) as handle:
            for row in reader(handle, file, partial(_select, source, report, file)):
                report.bytes = before + opened.tell()
                yield str(file), *row
        report.bytes = before + file.stat().st_size


def _select(source: RecordSource, report: ReadReport, file: Path, header: Sequence[str]) -> list[str]:
    try:
        chosen = source.columns(header, header=True)
    except BadRecord as error:
        raise ValueError(f"{file} has {error}") from None
    if (
        isinstance(source, FieldSource)
        and inner_ending(file) == ".csv"
        and chosen[0] not in (source.field, source.default_field)
    ):
        report.first_guess = report.first_guess or (
            f"{file}: the first line, {reprlib.repr(header[0])}, was taken for the name of its only column; "
            f"if it is no name, put a line with one above it, such as {source.default_field}"
        )
    return chosen


def _dataset_rows(path: str, name: str) -> Iterator[Row]:
    """Yield the rows of the dataset ``name``, which a source calls ``path``, streamed from the hub or from a folder.

    Of a dataset that only a loading script can read, they are what the hub converted of it.
    """
    name, _, split = name.partition(":")
    parts = re.fullmatch(r"([\w.-]+/[\w.-]+)/([\w.-]+)", name) if not Path(name).exists() else None
    name, configuration = parts.groups() if parts else (name, None)
    fetch = f"fetch its files (hf download {name} --repo-type dataset --local-dir FOLDER) and give the folder"
    wanted: dict[str, Any] = {"split": split or "train", "streaming": True}
    try:
        from datasets import load_dataset

        try:
            rows: Any = load_dataset(*filter(None, (name, configuration)), **wanted)
        except RuntimeError as error:
            if _BY_SCRIPT not in str(error):
                raise
            try:  # where configurations are folders
                rows = load_dataset(name, data_dir=configuration, revision=_CONVERTED, **wanted)
            except Exception:
                raise error from None  # which says more
            warnings.warn(
                f"{path} has a loading script, which datasets does not run any more: reading what the Hub converted to "
                f"parquet instead, which of a large dataset is only the beginning; for all of it {fetch}",
                stacklevel=1,
            )
        for number, row in enumerate(rows, 1):
            yield f"row {number}", row
    except Exception as error:  # of any kind: network, hub, file formats
        no_file = "" if path.startswith("hf:") else "there is no such file or folder, and "
        problem = f"{path}: {no_file}the Hugging Face dataset cannot be read ({type(error).__name__}: {error})"
        if _BY_SCRIPT in str(error):
            problem += f", nor what the Hub converted it to (revision {_CONVERTED}): {fetch}"
        raise ValueError(problem) from error


# Which files ----------------------------------------------------------------------------------------------------------


def dataset_name(path: str) -> str | None:
    """Return ``NAME`` or ``NAME:SPLIT`` of a Hugging Face dataset; ``None`` if the path is a file or folder."""
    if path.startswith("hf:"):
        return path.removeprefix("hf:")
    looks_like_one = re.fullmatch(r"\w[\w.-]*/[\w.-]+", path) and inner_ending(Path(path)) not in READERS
    return path if looks_like_one and not Path(path).exists() else None


def files(source: RecordSource) -> list[Path]:
    """Return every file of a source, in the order of reading; none for Hugging Face datasets."""
    return [file for path in source.paths if dataset_name(path) is None for file in _files(path, source)]


def _files(path: str, source: RecordSource) -> list[Path]:
    readers = f"there are readers for {', '.join(source.endings)}, each also with {' or '.join(COMPRESSIONS)}"
    resolved = source.resolve(path)
    if not resolved.exists():
        raise FileNotFoundError(f"no such file or folder: {path}")
    if not resolved.is_dir():
        if inner_ending(resolved) not in source.endings:
            raise ValueError(f"{path} has an ending that cannot be read; {readers}")
        return [resolved]
    inside = visible_files(resolved, _LEFT_OUT if resolved in source.libraries.values() else ())
    readable = [file for file in inside if inner_ending(file) in source.endings]
    if not readable:
        names = ", ".join(str(file.relative_to(resolved)) for file in inside[:5]) + (", ..." if len(inside) > 5 else "")
        raise ValueError(f"there is nothing to read in the folder {path}: it has {names or 'no files'}; {readers}")
    return readable


def visible_files(folder: Path, left_out: Collection[str] = ()) -> list[Path]:
    """Return the files of a folder and of those in it, sorted; none that is hidden or in a folder to leave out."""
    found = []
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in left_out]
        found += [Path(where) / name for name in names if not name.startswith(".")]
    return sorted(filter(Path.is_file, found))


def _why_empty(path: str, source: RecordSource, report: ReadReport, skipped_before: int) -> str:
    if report.skipped > skipped_before:
        return f"every {source.unit} is bad; the first bad {source.unit}: {report.first_problem}"
    if dataset_name(path) is None and not any(file.stat().st_size for file in _files(path, source)):
        return "it is empty"
    return source.if_empty


# What tells one source from another -----------------------------------------------------------------------------------


def fingerprint(source: RecordSource) -> str:
    """Return a hash that changes when the source or one of its files does; datasets of the hub go by their name."""
    datasets: list[Any] = []
    for name in filter(None, map(dataset_name, source.paths)):
        folder = Path(name.partition(":")[0])
        if folder.is_absolute() and not folder.is_dir():  # no name of the hub
            raise FileNotFoundError(f"no such folder: {folder}")
        datasets.append((name, states(visible_files(folder))) if folder.is_dir() else name)
    settings = [value for name, value in vars(source).items() if name != "paths"]
    return hashlib.sha256(json.dumps([*settings, states(files(source)), datasets]).encode()).hexdigest()


def states(files: Sequence[Path]) -> list[tuple[str, int, int]]:
    """Return the path, the size and the time of the last change of each file."""
    return [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def address(source: RecordSource) -> dict[str, Any]:
    """Return a source by where it is, which stays the same when its files change or are gone."""
    paths = [absolute(p) if dataset_name(p) is not None else str(source.resolve(p).resolve()) for p in source.paths]
    return {**asdict(source), "paths": paths}


def absolute(path: str) -> str:
    """Return a path that means the same in any folder, ``hf:FOLDER`` too; names of datasets stay."""
    if not path.startswith("hf:"):
        file = Path(path).expanduser()
        return str(file.resolve()) if file.exists() else path
    name, colon, split = path.removeprefix("hf:").partition(":")
    return f"hf:{Path(name).resolve()}{colon}{split}" if name and Path(name).exists() else path
