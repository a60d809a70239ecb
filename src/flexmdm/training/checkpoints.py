"""Checkpoints that are whole: sealed with the checksums of their files, and looked at before they are used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from zlib import crc32

SEAL = "complete.json"
_PREFIX = "checkpoint-"
_CHUNK = 1 << 20


def seal(folder: Path) -> None:
    """Write down what belongs to a checkpoint, last of all: one without this file is not complete."""
    files = {file.name: _fingerprint(file) for file in sorted(folder.iterdir()) if file.name != SEAL}
    draft = folder / f"{SEAL}.new"
    draft.write_text(json.dumps(files, indent=1))
    draft.replace(folder / SEAL)


def fault(folder: Path) -> str | None:
    """Return what is wrong with a checkpoint; ``None`` if nothing is."""
    try:
        files = json.loads((folder / SEAL).read_text())
    except FileNotFoundError:
        return "it was not finished"
    except (OSError, ValueError) as error:  # a ValueError if it is no JSON, or no text at all
        return f"its seal cannot be read ({error})"
    if not isinstance(files, dict) or not files:
        return "its seal is damaged"
    for name, expected in files.items():
        try:
            if _fingerprint(folder / name) != expected:
                return f"{name} is damaged"
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read ({error})"
    return None


def was_finished(folder: Path) -> bool:
    """Return whether a checkpoint was once complete; it may be damaged now."""
    return (folder / SEAL).exists()


def _fingerprint(file: Path) -> list[int]:
    size, checksum = 0, 0
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            size, checksum = size + len(chunk), crc32(chunk, checksum)
    return [size, checksum]


def checkpoints(run: Path) -> list[Path]:
    """Return the checkpoints of a run, the latest first, whole or not."""
    found = [f for f in run.glob(f"{_PREFIX}*") if f.is_dir() and f.name.removeprefix(_PREFIX).isdigit()]
    return sorted(found, key=step_of, reverse=True)


def step_of(folder: Path) -> int:
    """Return the number of steps done when a checkpoint was saved."""
    return int(folder.name.removeprefix(_PREFIX))


def latest(run: Path, say: Callable[[str], None] = lambda _: None) -> Path | None:
    """Return the latest checkpoint that is whole; ``say`` is called about those that are not."""
    for folder in checkpoints(run):
        problem = fault(folder)
        if problem is None:
            return folder
        say(f"{folder} cannot be used: {problem}; looking for the one before")
    return None


def keep_latest(run: Path, count: int) -> None:
    """Delete all but the latest ``count`` checkpoints that are whole, so that a damaged one never displaces them."""
    whole = islice((folder for folder in checkpoints(run) if fault(folder) is None), count)
    for folder in set(checkpoints(run)) - set(whole):
        shutil.rmtree(folder, ignore_errors=True)
