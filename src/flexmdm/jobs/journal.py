"""Generations on disk as they come, so that an interrupted evaluation or job goes on where it stopped."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

_BLOCK = 2**20  # bytes read at a time


class Journal:
    r"""A .jsonl with one line for each item, in order, and beside it a .json with what they were made with.

    A journal that is opened again with the same ``made_with`` has the lines that were written; with another one it
    begins anew, and the lines that were there are moved aside: NAME.jsonl becomes NAME.1.jsonl, or the next number that
    is free, together with its .json and what was found about the lines, NAME.results.jsonl. A last line that was cut
    off is removed.

    Args:
        file: ends in .jsonl; ``None`` keeps the lines in memory alone.
        made_with: whatever decides what the lines are, as JSON.

    Attributes:
        changed: what differs from the journal that stood there before, by name; empty if nothing does.
        moved: where the lines of that journal are now; ``None`` if there were none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "mine.jsonl"
    ...     Journal(file, {"seed": 0}).add([{"text": "a"}])
    ...     Journal(file, {"seed": 0}).lines, Journal(file, {"seed": 1}).changed
    ([{'text': 'a'}], ['seed'])
    """

    def __init__(self, file: Path | None, made_with: dict[str, Any]) -> None:
        self.file = file
        self.changed: list[str] = []
        self.moved: Path | None = None
        if file is None:
            return
        settings = file.with_suffix(".json")
        before: dict[str, Any] | None = None
        if file.exists():
            before = {"settings": None}  # unknown, so certainly others
            with suppress(OSError, ValueError):
                before = json.loads(settings.read_text(encoding="utf-8"))
        made_with = json.loads(json.dumps(made_with))  # as it will be read
        if before == made_with:
            _drop_cut_line(file)
            return
        if before is not None:
            self.changed = [name for name in {**before, **made_with} if before.get(name) != made_with.get(name)]
            if file.stat().st_size:  # first, so that no line ever stands beside settings that are not its own
                self.moved = _move_aside(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps(made_with, indent=2) + "\n", encoding="utf-8")
        file.touch()

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """Return all lines so far; a job, which may have millions, never asks."""
        if self.file is None:
            return []
        try:
            return [json.loads(line) for line in self.raw()]
        except ValueError as error:
            raise ValueError(f"{self.file} is damaged ({error}): delete it, or name another file") from error

    def raw(self) -> Iterator[bytes]:
        """Yield the lines of the file as they are written."""
        assert self.file is not None
        with open(self.file, "rb") as log:
            yield from log

    def add(self, lines: Iterable[dict[str, Any]]) -> None:
        """Write them at once, and wait until they are on the disk."""
        lines = list(lines)
        if self.file is not None:
            with open(self.file, "ab") as log:
                log.write(b"".join(map(_encoded, lines)))
                log.flush()
                os.fsync(log.fileno())
        if self.file is None or "lines" in vars(self):
            self.lines.extend(lines)

    def keep(self, num: int) -> None:
        """Drop what is behind the first ``num`` lines."""
        assert self.file is not None
        os.truncate(self.file, sum(map(len, itertools.islice(self.raw(), num))))
        vars(self).pop("lines", None)


@contextmanager
def locked(file: Path) -> Generator[None]:
    """Keep a file to oneself, by a lock beside it that ends with the process; raise if another process has it."""
    import fcntl

    lock = file.with_name(f".{file.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ValueError(
                f"another process is writing {file}: wait until it has ended, or give another --out"
            ) from error
        yield
        lock.unlink(missing_ok=True)


def _encoded(line: dict[str, Any]) -> bytes:
    try:
        return (json.dumps(line, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return (json.dumps(line) + "\n").encode()


def _move_aside(file: Path) -> Path:
    names = (file.with_suffix(f".{number}.jsonl") for number in itertools.count(1))
    new = next(name for name in names if not name.exists())
    for ending in (".jsonl", ".json", ".results.jsonl"):
        if file.with_suffix(ending).exists():
            file.with_suffix(ending).rename(new.with_suffix(ending))
    return new


def _drop_cut_line(file: Path) -> None:
    """Remove what is behind the last line feed."""
    with open(file, "r+b") as log:
        end = log.seek(0, os.SEEK_END)
        while end:
            start = max(end - _BLOCK, 0)
            log.seek(start)
            found = log.read(end - start).rfind(b"\n")
            if found >= 0:
                log.truncate(start + found + 1)
                return
            end = start
        log.truncate(0)
