"""Folders that are either whole or not there, whoever makes them and however that ends."""

from __future__ import annotations

import os
import platform
import shutil
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

_UNFINISHED = "unfinished"


def default_cache() -> Path:
    """Return $FLEXMDM_CACHE, or ``flexmdm`` in the user's cache folder."""
    chosen = os.environ.get("FLEXMDM_CACHE")
    general = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(chosen).expanduser() if chosen else general / "flexmdm"


@contextmanager
def unfinished(cache: Path) -> Generator[Path]:
    """Make a new folder for work that may be interrupted, and remove those of processes that are gone."""
    host = platform.node()
    draft = cache / f"{_UNFINISHED}-{host}-{os.getpid()}-{uuid.uuid4().hex}"
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        raise OSError(
            f"prepared data cannot be kept in {cache} ({error.strerror}): "
            "set FLEXMDM_CACHE to a folder you can write to"
        ) from error
    for left in cache.glob(f"{_UNFINISHED}-*"):
        owner, process, _ = left.name.removeprefix(f"{_UNFINISHED}-").rsplit("-", 2)
        if owner == host and not _is_alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # gone already if all went well


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def publish(draft: Path, folder: Path, is_whole: Callable[[Path], object]) -> None:
    """Move finished work to its folder, unless another process was first; what is there but not whole is replaced."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists() and not is_whole(folder):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        draft.rename(folder)
    except OSError:
        if not folder.exists():
            raise
