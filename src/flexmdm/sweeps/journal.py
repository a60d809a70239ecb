"""Generations on disk as they come, so that an interrupted evaluation goes on where it stopped."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


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
        lines: so far.
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
        self.lines: list[dict[str, Any]] = []
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
            self.lines = _whole_lines(file)
            return
        if before is not None:
            self.changed = [name for name in {**before, **made_with} if before.get(name) != made_with.get(name)]
            if file.stat().st_size:  # first, so that no line ever stands beside settings that are not its own
                self.moved = _move_aside(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps(made_with, indent=2) + "\n", encoding="utf-8")
        file.touch()

    def add(self, lines: Sequence[dict[str, Any]]) -> None:
        """Write them at once."""
        if self.file is not None:
            with open(self.file, "a", encoding="utf-8") as log:
                log.write("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        self.lines += lines


def _move_aside(file: Path) -> Path:
    names = (file.with_suffix(f".{number}.jsonl") for number in itertools.count(1))
    new = next(name for name in names if not name.exists())
    for ending in (".jsonl", ".json", ".results.jsonl"):
        if file.with_suffix(ending).exists():
            file.with_suffix(ending).rename(new.with_suffix(ending))
    return new


def _whole_lines(file: Path) -> list[dict[str, Any]]:
    whole, _, cut = file.read_bytes().rpartition(b"\n")
    if cut:
        file.write_bytes(whole + b"\n" if whole else b"")
    try:
        return [json.loads(line) for line in whole.splitlines()]
    except ValueError as error:
        raise ValueError(f"{file} is damaged ({error}): delete it, or name another file") from error
