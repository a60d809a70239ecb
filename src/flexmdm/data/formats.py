"""The rows of text files and tables, one after the other, each with where it is in its file.

A reader yields ``(where, row)``. A row is a list of cells, for .jsonl the object; or, so that reading can go on behind
it, the `BadRecord` that says what is wrong with it. Files may be compressed: .gz, and .zst by the package zstandard.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import reprlib
import shutil
import tempfile
import tokenize
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import chain, groupby
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

SURROGATE = re.compile("[\ud800-\udfff]")
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_BUFFER, _INPUT = 1 << 20, 1 << 14  # bytes of a buffer, and of what zstd gets at a time, which may become much more
_WINDOW = 1 << 31  # the most that zstd --long looks back
_LONGEST_CSV_FIELD = 2**31 - 1


class BadRecord(ValueError):
    """A line, row or program that cannot be read; an error unless bad ones are to be skipped."""


class NotPython(BadRecord):
    """A program that cannot be parsed, which is counted and left out in any case."""


Row = tuple[str, Any]
Select = Callable[[Sequence[str]], list[str]]  # from the names of a table's columns those to read


def read_jsonl(path: Path, fields: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a .jsonl, each with where it is (``PATH, line N``); they must have ``fields``, as strings.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "samples.jsonl"
    ...     _ = path.write_text('{"task_id": "a"}\\n{"task": "b"}\\n')
    ...     list(read_jsonl(path, ["task_id"]))
    Traceback (most recent call last):
    ValueError: ...samples.jsonl, line 2: there is no field 'task_id', only 'task'
    """
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    with path.open("rb", buffering=0) as file, decompressed(file, path) as handle:
        for line, row in _json_rows(handle):
            where = f"{path}, {line}"
            if isinstance(row, BadRecord):
                raise ValueError(f"{where}: {row}")
            for field in fields:
                if field not in row:
                    raise ValueError(f"{where}: there is no field {field!r}, only {listed(row)}")
                if not isinstance(row[field], str):
                    raise ValueError(f"{where}: the field {field!r} is {reprlib.repr(row[field])}, which is no string")
            yield where, row


def check_text(value: Any, what: str = "text") -> str:
    """Return the value of a field if it is a text, and raise `BadRecord` otherwise."""
    if not isinstance(value, str):
        raise BadRecord(f"the {what} is {reprlib.repr(value)}, which is no string; leave it out or put it in quotes")
    if SURROGATE.search(value):
        raise BadRecord(f"the {what} has half a surrogate pair (\\ud800 to \\udfff), which is no character; remove it")
    return value


def listed(names: Any) -> str:
    """Return names in quotes, with commas between them."""
    return ", ".join(map(repr, names)) or "nothing"


# Compressed files -----------------------------------------------------------------------------------------------------


def inner_ending(path: Path) -> str:
    """Return the ending that a file has when it is not compressed, in small letters: .jsonl of ``Data.JSONL.GZ``."""
    return (path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path).suffix.lower()


@contextmanager
def decompressed(file: io.FileIO, path: Path) -> Generator[BinaryIO]:
    """Read a file that may be compressed; one that is cut off or damaged is an error."""
    compression = COMPRESSIONS.get(path.suffix.lower())
    damage: tuple[type[Exception], ...] = (EOFError, gzip.BadGzipFile, zlib.error)
    content: Any = io.BufferedReader(file, _BUFFER)
    if compression == "gzip":
        content = io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=content)), _BUFFER)
    elif compression == "zstd":
        try:
            zstandard = import_module("zstandard")
        except ModuleNotFoundError as error:
            raise ValueError(
                f"{path} is compressed by zstd, which takes a package to read: pip install zstandard"
            ) from error
        decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        content = io.BufferedReader(_ZstdFile(content, decompressor), _BUFFER)
        damage = (*damage, zstandard.ZstdError)
    try:
        yield content
    except damage as error:
        raise ValueError(
            f"{path} is no whole {compression} file ({error}): it was cut off or damaged; make or fetch it again"
        ) from error


class _ZstdFile(io.RawIOBase):
    """The content of a file of zstd frames, where the end of the file in the middle of a frame is an error."""

    def __init__(self, file: BinaryIO, decompressor: Any) -> None:
        self.file, self.decompressor, self.frame = file, decompressor, None
        self.packed, self.ready = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self.ready:
            self.packed = self.packed or self.file.read(_INPUT)
            if not self.packed:
                if self.frame is not None:
                    raise EOFError("it ends in the middle of a frame")
                return 0
            self.frame = self.frame or self.decompressor.decompressobj()
            self.ready, self.packed = memoryview(self.frame.decompress(self.packed)), b""
            if self.frame.eof:
                self.packed, self.frame = self.frame.unused_data, None
        part, self.ready = self.ready[: len(buffer)], self.ready[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


# Readers --------------------------------------------------------------------------------------------------------------


class _Line(NamedTuple):
    number: int  # from 1
    text: str  # without its line feed; bytes that are no UTF-8 are surrogates
    problem: BadRecord | None

    @property
    def bad_row(self) -> Row:
        return f"line {self.number}", self.problem


def _lines(handle: BinaryIO) -> Iterator[_Line]:
    end = 0
    for number, raw in enumerate(handle, 1):
        start, end, problem = end, end + len(raw), None
        raw = raw.removesuffix(b"\n")
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            byte, offset = raw[error.start], start + error.start
            problem = BadRecord(f"byte 0x{byte:02x} at byte offset {offset} is not UTF-8; save it as UTF-8")
            text = raw.decode(errors="surrogateescape")
        yield _Line(number, text.removeprefix("\ufeff") if number == 1 else text, problem)


def _text_lines(handle: BinaryIO, *_: Any) -> Iterator[Row]:
    for line in _lines(handle):
        if line.text.strip():
            yield f"line {line.number}", line.problem or [line.text.removesuffix("\r")]


def read_paragraphs(handle: BinaryIO, *_: Any) -> Iterator[Row]:
    """Yield what stands between the blank lines of a .txt."""
    for is_blank, group in groupby(_lines(handle), lambda line: not line.text.strip()):
        lines = list(group)
        yield from (line.bad_row for line in lines if line.problem)
        paragraph = [line.text.removesuffix("\r") for line in lines if not line.problem]
        if paragraph and not is_blank:
            yield "", ["\n".join(paragraph)]


def _json_rows(handle: BinaryIO, *_: Any) -> Iterator[Row]:
    for where, row in _text_lines(handle):
        if isinstance(row, list):
            try:
                row = json.loads(row[0])
            except (ValueError, RecursionError) as error:
                row = BadRecord(f"malformed JSON ({error}); each line must be one JSON object")
        is_row = isinstance(row, dict | BadRecord)
        yield where, row if is_row else BadRecord(f"a JSON object belongs here, not {reprlib.repr(row)}")


def _csv_rows(handle: BinaryIO, path: Path, select: Select) -> Iterator[Row]:
    width, columns = 0, []
    for where, row in _parsed_csv(handle, path):
        if isinstance(row, BadRecord):
            yield where, row
        elif not width:
            width, columns = len(row), [row.index(name) for name in select(row)]
        elif len(row) < width or any(cell.strip() for cell in row[width:]):  # commas at the end of a line do no harm
            counts = f"the row has {len(row)} columns, the header {width}"
            advice = "put a text with commas, or what else separates the columns, or line breaks in quotes"
            yield where, BadRecord(f"{counts}; {advice}")
        else:
            yield where, [row[column] for column in columns]


def _parsed_csv(handle: BinaryIO, path: Path) -> Iterator[Row]:
    """Yield the rows that are not empty, the header first; commas, or else semicolons or tabs, separate its names."""
    csv.field_size_limit(_LONGEST_CSV_FIELD)
    lines = _lines(handle)
    header = next((line for line in lines if line.text.strip()), _Line(1, "", None))
    taken: list[_Line] = []  # those of the row that is being read

    def feed() -> Iterator[str]:
        for line in chain([header], lines):
            taken.append(line)
            yield line.text + "\n"

    unquoted = re.sub('"[^"]*"', "", header.text)
    rows = csv.reader(feed(), delimiter=next((one for one in ",;\t" if one in unquoted), ","), strict=True)
    while True:
        taken.clear()
        try:
            row: Any = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            first, last = taken[0].number, taken[-1].number
            reason = str(error) if first == last else f"in line {last}: {error}"
            if "unexpected end of data" in str(error):
                reason = "a quote that is opened here is never closed"
            row = BadRecord(f"malformed CSV ({reason}); look for a quote that is not closed or not doubled")
            if first < last:
                unskippable = "it cannot be skipped, as nobody knows where the row ends"
                raise ValueError(f"{path}, line {first}: {row}; {unskippable}") from None
        if row:
            yield next((line.bad_row for line in taken if line.problem), (f"line {taken[0].number}", row))


def _parquet_rows(handle: BinaryIO, path: Path, select: Select) -> Iterator[Row]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    with tempfile.TemporaryFile() as unpacked:
        if path.suffix.lower() in COMPRESSIONS:  # parquet is read from its end
            shutil.copyfileobj(handle, unpacked)
            handle = cast(BinaryIO, unpacked)
        try:
            table = ParquetFile(handle)
            names = select(table.schema_arrow.names)
            batches = table.iter_batches(1000, columns=names)
            rows = (row for batch in batches for row in zip(*map(batch.column, names), strict=True))
            for number, row in enumerate(rows, 1):
                try:
                    cells: Any = [value.as_py() for value in row]
                except UnicodeDecodeError:
                    cells = BadRecord("the text is not UTF-8; save it as UTF-8")
                yield f"row {number}", cells
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(
                f"{path} is no whole parquet file ({error}): it was cut off or damaged; make or fetch it again"
            ) from error


def _fasta_records(handle: BinaryIO, *_: Any) -> Iterator[Row]:
    parts: list[str] | None = None
    for line in chain(_lines(handle), [_Line(0, ">", None)]):
        text = line.text.strip()
        if line.problem:
            yield line.bad_row
        elif text.startswith(">"):
            if parts is not None:
                yield "", ["".join(parts)]
            parts = []
        elif text and parts is None and not text.startswith(";"):
            yield f"line {line.number}", BadRecord("a FASTA record begins with a line that starts with '>'")
        elif parts is not None and not text.startswith(";"):  # which is a comment
            parts.append(text)


def _program(handle: BinaryIO, *_: Any) -> Iterator[Row]:
    content = handle.read()
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(content).readline)[0]
        yield "", [content.decode(encoding)]
    except (SyntaxError, UnicodeDecodeError) as error:
        yield "", NotPython(f"it cannot be decoded ({error})")


READERS: dict[str, Callable[[BinaryIO, Path, Select], Iterator[Row]]] = {
    ".txt": _text_lines,
    ".jsonl": _json_rows,
    ".csv": _csv_rows,
    ".parquet": _parquet_rows,
    ".fasta": _fasta_records,
    ".fa": _fasta_records,
    ".py": _program,
}
