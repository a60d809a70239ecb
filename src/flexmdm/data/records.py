"""JSON objects from files with one on each line, with errors that say where they are."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from flexmdm.data.compressed import unpacked


def records(file: Path, fields: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a .jsonl, each with where it stands (``FILE, line N``); blank lines are passed over.

    Args:
        file: to read; it may be compressed (.gz, .zst).
        fields: what every object must have, as strings.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "samples.jsonl"
    ...     _ = file.write_text('{"task_id": "a"}\\n{"task": "b"}\\n')
    ...     list(records(file, ["task_id"]))
    Traceback (most recent call last):
    ValueError: ...samples.jsonl, line 2: there is no field 'task_id', only 'task'
    """
    if not file.is_file():
        raise FileNotFoundError(f"no such file: {file}")
    with file.open("rb") as raw, unpacked(file, raw) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                where = f"{file}, line {number}"
                yield where, _record(line, fields, where)


def _record(line: bytes, fields: Sequence[str], where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: malformed JSON ({error}); each line must be one JSON object") from error
    if not isinstance(record, dict):
        raise ValueError(f"{where}: a JSON object belongs here, not {reprlib.repr(record)}")
    for field in fields:
        if field not in record:
            names = ", ".join(map(repr, record)) or "nothing"
            raise ValueError(f"{where}: there is no field {field!r}, only {names}")
        if not isinstance(record[field], str):
            raise ValueError(f"{where}: the field {field!r} is {reprlib.repr(record[field])}, which is no string")
    return record
