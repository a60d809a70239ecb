"""Texts from files, folders and Hugging Face datasets, one after the other, with errors that say where they are."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import reprlib
import shutil
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple, cast

from flexmdm.data.compressed import ENDINGS, is_compressed, unpacked, without_ending
from flexmdm.data.splitting import split_paragraphs

_LONGEST_CSV_FIELD = 2**31 - 1
SURROGATE = re.compile("[\ud800-\udfff]")
_BUFFER = 1 << 20
_BY_SCRIPT, _CONVERTED = "Dataset scripts are no longer supported", "refs/convert/parquet"


@dataclass(frozen=True)
class Records:
    """Where records come from.

    `Source` reads texts, `flexmdm.data.PairSource` prompts with their answers, `flexmdm.data.CodeSource` functions.

    Attributes:
        paths: files, folders and datasets.
        endings: of the files that hold such records.
        unit: what is counted if it cannot be read.
        nothing: what is wrong with files that hold no record.
    """

    paths: tuple[str, ...]
    endings: ClassVar[tuple[str, ...]]
    unit: ClassVar[str] = "line"
    nothing: ClassVar[str] = "it has no text"

    def __post_init__(self) -> None:
        paths = (self.paths,) if isinstance(self.paths, str | Path) else self.paths
        object.__setattr__(self, "paths", tuple(str(path) for path in paths))
        if not self.paths:
            raise ValueError("there is nothing to read: give at least one file, folder or dataset")

    def opened(self, name: str, report: ReadReport) -> RecordFile:
        """A file, or a dataset, to read such records from."""
        raise NotImplementedError

    def parts(self, record: Any) -> list[Any]:
        """What to make of one record."""
        return [record]

    def place(self, path: str) -> Path:
        """The file or folder that a path names."""
        return Path(path).expanduser()

    def inside(self, folder: Path) -> list[Path]:
        """The files of a folder and of those in it, in the order of reading; none that is hidden."""
        return _inside(folder)


@dataclass(frozen=True)
class Source(Records):
    """What to read.

    Args:
        paths: files (.txt, .jsonl, .csv, .parquet, .fasta, .fa; each also as .gz or .zst), folders of such files, or
            Hugging Face datasets as ``hf:NAME`` or ``hf:NAME:SPLIT`` (or plainly ``OWNER/NAME``); where a dataset has
            several configurations, ``hf:OWNER/NAME/CONFIGURATION``.
        field: where the text is in .jsonl, .csv, .parquet and datasets; by default ``text``, or the only column.
        paragraphs: split texts at blank lines. Without it, each line of a .txt is a text.
        skip_bad: count lines that cannot be read and go on, rather than stop at the first.
    """

    field: str | None = None
    paragraphs: bool = False
    skip_bad: bool = False
    endings: ClassVar[tuple[str, ...]] = (".txt", ".jsonl", ".csv", ".parquet", ".fasta", ".fa")

    def opened(self, name: str, report: ReadReport) -> RecordFile:
        return TextFile(name, self, report)

    def parts(self, record: str) -> list[str]:
        return (split_paragraphs(record) or [""]) if self.paragraphs else [record]


@dataclass
class ReadReport:
    """What happened while reading; `documents` keeps it up to date.

    Attributes:
        documents: texts that were read.
        skipped: bad lines that were left out (only with ``skip_bad``).
        first_problem: what was wrong with the first of them, and where.
        first_guess: what was taken for granted about a file, of the first such.
        bytes: how much of the files was read.
    """

    documents: int = 0
    skipped: int = 0
    first_problem: str | None = None
    first_guess: str | None = None
    bytes: int = 0


def documents(source: Source, report: ReadReport | None = None) -> Iterator[str]:
    """The texts of a source, in order.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "names.txt"
    ...     _ = file.write_text("Ada\\nGrace\\n")
    ...     list(documents(Source((str(file),))))
    ['Ada', 'Grace']
    """
    for _, text in numbered(source, report):
        yield text


def numbered(source: Records, report: ReadReport | None = None) -> Iterator[tuple[int, Any]]:
    """The texts (or pairs) of a source with the number of the record each is from: paragraphs of one record share it.

    A .txt has no records: there each line, or each paragraph, has its own number.
    """
    report = report or ReadReport()
    number = 0
    for path in source.paths:
        first, skipped = number, report.skipped
        for record in _records(path, source, report):
            for part in source.parts(record):
                report.documents += 1
                yield number, part
            number += 1
        if number == first:
            raise ValueError(f"there is nothing to read in {path}: {_why_nothing(path, source, report, skipped)}")


def files(source: Records) -> list[Path]:
    """Every file of a source, in the order of reading; none for Hugging Face datasets."""
    return [file for path in source.paths if _dataset_name(path) is None for file in _files(path, source)]


def address(source: Records) -> dict[str, Any]:
    """A source by where it is, which stays the same when its files change or are gone."""
    paths = [in_any_folder(p) if _dataset_name(p) is not None else str(source.place(p).resolve()) for p in source.paths]
    return {**asdict(source), "paths": paths}


def in_any_folder(path: str) -> str:
    """A path that means the same in any folder, ``hf:FOLDER`` too; names of datasets stay.

    >>> in_any_folder("hf:someone/stories:test")
    'hf:someone/stories:test'
    """
    if not path.startswith("hf:"):
        place = Path(path).expanduser()
        return str(place.resolve()) if place.exists() else path
    name, colon, split = path.removeprefix("hf:").partition(":")
    return f"hf:{Path(name).resolve()}{colon}{split}" if name and Path(name).exists() else path


def fingerprint(source: Records) -> str:
    """A hash that changes when the source or one of its files does; datasets of the hub go by their name."""
    states = [_state(file) for file in files(source)]
    datasets = [_dataset_state(name) for path in source.paths if (name := _dataset_name(path)) is not None]
    settings = [value for name, value in vars(source).items() if name != "paths"]
    everything = [*settings, states, datasets]
    return hashlib.sha256(json.dumps(everything).encode()).hexdigest()


def _state(file: Path) -> tuple[str, int, int]:
    return str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns


def _dataset_state(name: str) -> Any:
    """The name; of a folder also what is in it."""
    folder = Path(name.partition(":")[0])
    if folder.is_dir():
        return name, [_state(file) for file in _inside(folder)]
    if folder.is_absolute():  # no name of the hub
        raise FileNotFoundError(f"no such folder: {folder}")
    return name


# Which files ----------------------------------------------------------------------------------------------------------


def _dataset_name(path: str) -> str | None:
    """``NAME`` or ``NAME:SPLIT`` of a Hugging Face dataset; ``None`` if the path is a file or folder."""
    if path.startswith("hf:"):
        return path.removeprefix("hf:")
    looks_like_one = re.fullmatch(r"\w[\w.-]*/[\w.-]+", path) and _ending(Path(path)) not in _READERS
    return path if looks_like_one and not Path(path).exists() else None


def _ending(file: Path) -> str:
    return Path(without_ending(file.name)).suffix


def _files(path: str, source: Records) -> list[Path]:
    place = source.place(path)
    if not place.exists():
        raise FileNotFoundError(f"no such file or folder: {path}")
    if not place.is_dir():
        if _ending(place) not in source.endings:
            raise ValueError(f"{path} has an ending that cannot be read; {_known_endings(source)}")
        return [place]
    inside = source.inside(place)
    readable = [file for file in inside if _ending(file) in source.endings]
    if not readable:
        names = ", ".join(str(file.relative_to(place)) for file in inside[:5]) + (", ..." if len(inside) > 5 else "")
        raise ValueError(
            f"there is nothing to read in the folder {path}: it has {names or 'no files'}; {_known_endings(source)}"
        )
    return readable


def _inside(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and not _is_hidden(file, folder))


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _known_endings(source: Records) -> str:
    return f"there are readers for {', '.join(source.endings)}, each also with {' or '.join(ENDINGS)}"


def _why_nothing(path: str, source: Records, report: ReadReport, skipped_before: int) -> str:
    if report.skipped > skipped_before:
        return f"every {source.unit} is bad; the first bad {source.unit}: {report.first_problem}"
    if _dataset_name(path) is None and not any(file.stat().st_size for file in _files(path, source)):
        return "it is empty"
    return source.nothing


# From files to records ------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """A line without its line feed: its number, from 1, and what is wrong with it if it is no UTF-8."""

    number: int
    text: str
    problem: str | None = None


@dataclass
class RecordFile:
    """A file, or a dataset, that is being read.

    What a record is, its methods ``columns``, ``of_cells``, ``of_row`` and (for .py) ``of_bytes`` say.
    """

    name: str
    source: Any
    report: ReadReport
    line: int = 0

    def bad(self, problem: str) -> None:
        """A line or row that cannot be read: an error, or only counted."""
        if not self.source.skip_bad:
            raise ValueError(f"{self.name}, {problem}")
        self.skip(problem)

    def skip(self, problem: str) -> None:
        """Something to leave out, whatever the settings say; it is counted."""
        self.report.skipped += 1
        self.report.first_problem = self.report.first_problem or f"{self.name}, {problem}"

    def lines(self, handle: BinaryIO) -> Iterator[str]:
        """The good lines without their line feed; ``self.line`` is the number of the last one, from 1."""
        for line in self.all_lines(handle):
            self.line = line.number
            if line.problem:
                self.bad(line.problem)
            else:
                yield line.text

    def all_lines(self, handle: BinaryIO) -> Iterator[Line]:
        """The lines, also those that are no UTF-8; of these the bytes that are none become surrogates."""
        end = 0
        for number, raw in enumerate(handle, 1):
            start, end, problem = end, end + len(raw), None
            raw = raw.removesuffix(b"\n")
            try:
                text = raw.decode()
            except UnicodeDecodeError as error:
                byte, offset = raw[error.start], start + error.start
                problem = f"line {number}: byte 0x{byte:02x} at byte offset {offset} is not UTF-8; save it as UTF-8"
                text = raw.decode(errors="surrogateescape")
            yield Line(number, text.removeprefix("\ufeff") if number == 1 else text, problem)

    def is_text(self, value: Any, where: str, what: str = "text") -> bool:
        """Whether the value of a field is a text; otherwise the record is bad."""
        if not isinstance(value, str):
            self.bad(
                f"{where}: the {what} is {reprlib.repr(value)}, which is no string; leave it out or put it in quotes"
            )
        elif SURROGATE.search(value):
            self.bad(
                f"{where}: the {what} has half a surrogate pair (\\ud800 to \\udfff), which is no character; remove it"
            )
        else:
            return True
        return False

    def columns(self, names: Sequence[str]) -> list[str]:
        """Which of the columns of a table to read."""
        raise NotImplementedError

    def header(self, names: Sequence[str]) -> list[str]:
        """Which columns to read of a table whose first line should be their names."""
        return self.columns(names)

    def of_cells(self, cells: Sequence[Any], where: str) -> Iterator[Any]:
        """The record, if it is a good one, in the cells of these columns."""
        raise NotImplementedError

    def of_row(self, row: Any, where: str) -> Iterator[Any]:
        """The record, if it is a good one, in what should be a JSON object."""
        raise NotImplementedError

    def of_bytes(self, content: bytes) -> Iterator[Any]:
        """The record, if it is a good one, that a whole file is."""
        raise NotImplementedError


class TextFile(RecordFile):
    """Each record is a text."""

    default_field: ClassVar[str] = "text"

    def columns(self, names: Sequence[str]) -> list[str]:
        chosen = self.source.field or (names[0] if len(names) == 1 else self.default_field)
        if chosen not in names:
            raise ValueError(f"{self.name} has {self._no_field(chosen, names)}")
        return [chosen]

    def header(self, names: Sequence[str]) -> list[str]:
        chosen = self.columns(names)
        if self.source.field is None and chosen != [self.default_field]:
            self.report.first_guess = self.report.first_guess or (
                f"{self.name}: the first line, {reprlib.repr(chosen[0])}, was taken for the name of its only column; "
                f"if it is no name, put a line with one above it, such as {self.default_field}"
            )
        return chosen

    def of_cells(self, cells: Sequence[Any], where: str) -> Iterator[Any]:
        if self.is_text(cells[0], where):
            yield cells[0]

    def of_row(self, row: Any, where: str) -> Iterator[str]:
        field = self.source.field or self.default_field
        if not isinstance(row, dict):
            self.bad(f"{where}: a JSON object with the field {field!r} belongs here, not {reprlib.repr(row)}")
        elif field not in row:
            self.bad(f"{where}: {self._no_field(field, list(row))}")
        else:
            yield from self.of_cells([row[field]], where)

    def _no_field(self, field: str, names: Sequence[str]) -> str:
        there = ", ".join(map(repr, names)) or "nothing"
        return f"no field {field!r}, only {there}; say which field holds the {self.default_field} (--field)"


class _Counted(io.FileIO):
    """A file that reports how many of its bytes have been read."""

    def __init__(self, file: Path, report: ReadReport) -> None:
        super().__init__(file)
        self.report = report

    def readinto(self, buffer: Any, /) -> int:
        count = super().readinto(buffer) or 0
        self.report.bytes += count
        return count


def _records(path: str, source: Records, report: ReadReport) -> Iterator[Any]:
    name = _dataset_name(path)
    if name is not None:
        yield from _read_dataset(source.opened(path, report), name)
        return
    for file in _files(path, source):
        with io.BufferedReader(_Counted(file, report), _BUFFER) as raw, unpacked(file, cast(BinaryIO, raw)) as handle:
            yield from _READERS[_ending(file)](source.opened(str(file), report), handle)


def _read_txt(file: RecordFile, handle: BinaryIO) -> Iterator[str]:
    lines = (line.removesuffix("\r") for line in file.lines(handle))
    if not file.source.paragraphs:
        yield from (line for line in lines if line and not line.isspace())
        return
    paragraph: list[str] = []
    for line in lines:
        if line and not line.isspace():
            paragraph.append(line)
        elif paragraph:
            yield "\n".join(paragraph)
            paragraph = []
    if paragraph:
        yield "\n".join(paragraph)


def _read_jsonl(file: RecordFile, handle: BinaryIO) -> Iterator[Any]:
    for line in file.lines(handle):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            file.bad(f"line {file.line}: malformed JSON ({error}); each line must be one JSON object")
            continue
        yield from file.of_row(row, f"line {file.line}")


def _read_csv(file: RecordFile, handle: BinaryIO) -> Iterator[Any]:
    csv.field_size_limit(_LONGEST_CSV_FIELD)
    places: list[int] = []
    width = 0
    for number, row in _csv_rows(file, handle):
        if not places:
            places, width = [row.index(name) for name in file.header(row)], len(row)
        elif any(cell.strip() for cell in row[width:]):  # empty ones come of commas at the end
            file.bad(
                f"line {number}: the row has {len(row)} columns, the header {width}; put a text with commas, or what "
                "else separates the columns, in quotes"
            )
        elif max(places) < len(row):
            yield from file.of_cells([row[place] for place in places], f"line {number}")
        else:
            file.bad(f"line {number}: the row ends before the field, after {len(row)} of its columns")


def _csv_rows(file: RecordFile, handle: BinaryIO) -> Iterator[tuple[int, list[str]]]:
    """The good rows that are not empty, each with the line where it begins; a malformed one costs that line alone."""
    fresh = file.all_lines(handle)
    header = next((line for line in fresh if line.text.strip()), Line(1, ""))
    waiting, delimiter = deque([header]), _delimiter(header.text)
    taken: list[Line] = []  # of the row that is being read

    def feed() -> Iterator[str]:
        while (line := waiting.popleft() if waiting else next(fresh, None)) is not None:
            taken.append(line)
            yield line.text + "\n"

    while True:
        try:
            for row in csv.reader(feed(), delimiter=delimiter, strict=True):
                problem = next((line.problem for line in taken if line.problem), None)
                if problem:
                    file.bad(problem)
                elif row:
                    yield taken[0].number, row
                taken.clear()
            return
        except csv.Error as error:
            file.bad(_malformed(taken[0].number, taken[-1].number, error))
            waiting.extendleft(reversed(taken[1:]))
            taken.clear()


def _delimiter(header: str) -> str:
    """What stands between the names of the columns: a comma, unless there is none and another usual one."""
    unquoted = re.sub('"[^"]*"', "", header)
    return next((one for one in ",;\t" if one in unquoted), ",")


def _malformed(first: int, last: int, error: csv.Error) -> str:
    """About a row that takes up these lines."""
    if "unexpected end of data" in str(error):
        reason = "a quote that is opened here is never closed"
    else:
        reason = str(error) if first == last else f"in line {last}: {error}"
    return f"line {first}: malformed CSV ({reason}); look for a quote that is not closed or not doubled"


def _read_parquet(file: RecordFile, handle: BinaryIO) -> Iterator[Any]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    with tempfile.TemporaryFile() as unzipped:
        if is_compressed(file.name):  # parquet is read from its end
            shutil.copyfileobj(handle, unzipped)
            handle = cast(BinaryIO, unzipped)
        try:
            table = ParquetFile(handle)
            names = file.columns(table.schema_arrow.names)
            batches = table.iter_batches(1000, columns=names)
            rows = (row for batch in batches for row in zip(*map(batch.column, names), strict=True))
            for number, row in enumerate(rows, 1):
                try:
                    yield from file.of_cells([value.as_py() for value in row], f"row {number}")
                except UnicodeDecodeError:
                    file.bad(f"row {number}: the text is not UTF-8; save it as UTF-8")
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(
                f"{file.name} is no whole parquet file ({error}): it was cut off or damaged; make or fetch it again"
            ) from error


def _read_fasta(file: RecordFile, handle: BinaryIO) -> Iterator[str]:
    parts: list[str] | None = None
    for line in map(str.strip, file.lines(handle)):
        if line.startswith(";"):  # a comment
            continue
        if line.startswith(">"):
            if parts is not None:
                yield "".join(parts)
            parts = []
        elif parts is not None:
            parts.append(line)
        elif line:
            file.bad(f"line {file.line}: a FASTA record begins with a line that starts with '>'")
    if parts is not None:
        yield "".join(parts)


def _read_py(file: RecordFile, handle: BinaryIO) -> Iterator[Any]:
    yield from file.of_bytes(b"".join(iter(lambda: handle.read(_BUFFER), b"")))  # in steps that are counted


def _read_dataset(file: RecordFile, name: str) -> Iterator[Any]:
    name, _, split = name.partition(":")
    named = re.fullmatch(r"([\w.-]+/[\w.-]+)/([\w.-]+)", name) if not Path(name).exists() else None
    name, configuration = named.groups() if named else (name, None)
    try:
        rows = iter(_dataset(file.name, name, configuration, split or "train"))
    except Exception as error:  # of any kind: network, hub, file formats
        raise ValueError(_no_dataset(file.name, name, error)) from error
    for number in range(1, 1 << 63):
        try:
            row = next(rows)
        except StopIteration:
            return
        except Exception as error:
            raise ValueError(_no_dataset(file.name, name, error)) from error
        yield from file.of_row(row, f"row {number}")


def _dataset(path: str, name: str, configuration: str | None, split: str) -> Any:
    """The rows; of a dataset that only a loading script can read, those that the Hub has converted."""
    from datasets import load_dataset

    which = (name,) if configuration is None else (name, configuration)
    try:
        return load_dataset(*which, split=split, streaming=True)
    except RuntimeError as error:
        if _BY_SCRIPT not in str(error):
            raise
        try:  # where configurations are folders
            rows = load_dataset(name, data_dir=configuration, revision=_CONVERTED, split=split, streaming=True)
        except Exception:
            raise error from None  # which says more
    warnings.warn(
        f"{path} has a loading script, which datasets does not run any more: reading what the Hub converted to "
        f"parquet instead, which of a large dataset is only the beginning; for all of it {_fetch(name)}",
        stacklevel=1,
    )
    return rows


def _no_dataset(path: str, name: str, error: Exception) -> str:
    there = "" if path.startswith("hf:") else "there is no such file or folder, and "
    advice = ""
    if _BY_SCRIPT in str(error):
        advice = f", nor what the Hub converted it to (revision {_CONVERTED}): {_fetch(name)}"
    return f"{path}: {there}the Hugging Face dataset cannot be read ({type(error).__name__}: {error}){advice}"


def _fetch(name: str) -> str:
    return f"fetch its files (hf download {name} --repo-type dataset --local-dir FOLDER) and give the folder"


_READERS: dict[str, Callable[[RecordFile, BinaryIO], Iterator[Any]]] = {
    ".txt": _read_txt,
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".fasta": _read_fasta,
    ".fa": _read_fasta,
    ".py": _read_py,
}
