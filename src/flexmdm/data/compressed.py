"""Compressed files, read as if they were not: .gz, and .zst by the package zstandard (Python 3.14 has its own)."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, cast

_KINDS = {".gz": "gzip", ".zst": "zstd"}
ENDINGS = tuple(_KINDS)
_BUFFER, _INPUT = 1 << 20, 1 << 14  # bytes of a buffer, and of what zstd gets at a time, which may become much more
_WINDOW = 31  # two to this power is the most that zstd --long looks back


def without_ending(name: str) -> str:
    """The name of a file as if it were not compressed, in small letters.

    >>> without_ending("Data.jsonl.GZ"), without_ending("data.csv")
    ('data.jsonl', 'data.csv')
    """
    name = name.lower()
    return name.removesuffix(_ending(name))


def is_compressed(name: str) -> bool:
    """Whether a file of this name is."""
    return bool(_ending(name))


def _ending(name: str) -> str:
    return next((ending for ending in ENDINGS if name.lower().endswith(ending)), "")


@contextmanager
def unpacked(file: Path, raw: BinaryIO) -> Generator[BinaryIO]:
    """The content of an open file, decompressed if its name says so; an error if it is damaged."""
    ending = _ending(file.name)
    if not ending:
        yield raw
        return
    inner = gzip.GzipFile(fileobj=raw) if ending == ".gz" else _Zstd(raw, *_zstd(file))
    try:
        yield cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, inner), _BUFFER))
    except (EOFError, gzip.BadGzipFile, zlib.error, _Damaged) as error:
        raise ValueError(
            f"{file} is no whole {_KINDS[ending]} file ({error}): it was cut off or damaged; make or fetch it again"
        ) from error


class _Damaged(Exception):
    """What was read is no zstd."""


class _Zstd(io.RawIOBase):
    """The bytes in a file of zstd frames.

    Args:
        raw: the file.
        new: makes a decompressor of one frame, with ``decompress``, ``eof`` and ``unused_data``.
        problem: what that raises.
    """

    def __init__(self, raw: BinaryIO, new: Callable[[], Any], problem: type[Exception]) -> None:
        self.raw, self.new, self.problem = raw, new, problem
        self.frame: Any = None
        self.packed, self.ready = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self.ready:
            self.packed = self.packed or self.raw.read(_INPUT)
            if self.packed:
                self._go_on()
            elif self.frame is not None:
                raise EOFError("it ends in the middle of a frame")
            else:
                return 0
        given, self.ready = self.ready[: len(buffer)], self.ready[len(buffer) :]
        buffer[: len(given)] = given
        return len(given)

    def _go_on(self) -> None:
        """Decompress what was read, up to the end of the frame."""
        self.frame = self.frame or self.new()
        try:
            self.ready = memoryview(self.frame.decompress(self.packed))
        except self.problem as error:
            raise _Damaged(error) from error
        self.packed = b""
        if self.frame.eof:
            self.packed, self.frame = self.frame.unused_data, None


def _zstd(file: Path) -> tuple[Callable[[], Any], type[Exception]]:
    """What makes a decompressor, and the error that it raises."""
    try:
        ours = import_module("compression.zstd")
        options = {ours.DecompressionParameter.window_log_max: _WINDOW}
        return lambda: ours.ZstdDecompressor(options=options), ours.ZstdError
    except ModuleNotFoundError:  # before Python 3.14
        pass
    try:
        package = import_module("zstandard")
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{file} is compressed by zstd, which takes a package to read: pip install zstandard"
        ) from error
    return lambda: package.ZstdDecompressor(max_window_size=1 << _WINDOW).decompressobj(), package.ZstdError
