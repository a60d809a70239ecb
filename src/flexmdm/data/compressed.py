"""Files that may be compressed: .gz, and .zst by the package zstandard (Python 3.14 has its own)."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, cast

_FORMATS = {".gz": "gzip", ".zst": "zstd"}
ENDINGS = tuple(_FORMATS)
_BUFFER, _INPUT = 1 << 20, 1 << 14  # bytes of a buffer, and of what zstd gets at a time, which may become much more
_WINDOW = 31  # two to this power is the most that zstd --long looks back


def is_compressed(path: Path) -> bool:
    """Return whether the ending of a file says that it is compressed."""
    return path.suffix.lower() in ENDINGS


def inner_ending(path: Path) -> str:
    """Return the ending that a file has when it is not compressed, in small letters.

    >>> inner_ending(Path("Data.JSONL.GZ")), inner_ending(Path("data.csv"))
    ('.jsonl', '.csv')
    """
    return (path.with_suffix("") if is_compressed(path) else path).suffix.lower()


@contextmanager
def open_decompressed(path: Path, on_read: Callable[[int], object] = lambda count: None) -> Generator[BinaryIO]:
    """Open a file to read its content, decompressed; one that is cut off or damaged is an error.

    Args:
        path: the file.
        on_read: called with how many more bytes of the file have been read.
    """
    ending = path.suffix.lower()
    with io.BufferedReader(_CountedFile(path, on_read), _BUFFER) as file:
        if not is_compressed(path):
            yield cast(BinaryIO, file)
            return
        raw = gzip.GzipFile(fileobj=file) if ending == ".gz" else _ZstdFile(cast(BinaryIO, file), *_zstd(path))
        try:
            yield cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, raw), _BUFFER))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{path} is no whole {_FORMATS[ending]} file ({error}): it was cut off or damaged; "
                "make or fetch it again"
            ) from error


class _CountedFile(io.FileIO):
    def __init__(self, path: Path, on_read: Callable[[int], object]) -> None:
        super().__init__(path)
        self.on_read = on_read

    def readinto(self, buffer: Any, /) -> int:
        count = super().readinto(buffer) or 0
        self.on_read(count)
        return count


class _ZstdFile(io.RawIOBase):
    """The content of a file of zstd frames.

    Args:
        file: the compressed file.
        decompressor: makes a decompressor of one frame, with ``decompress``, ``eof`` and ``unused_data``.
        problem: the exception that it raises.
    """

    def __init__(self, file: BinaryIO, decompressor: Callable[[], Any], problem: type[Exception]) -> None:
        self.file, self.decompressor, self.problem = file, decompressor, problem
        self.frame: Any = None
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
            self.frame = self.frame or self.decompressor()
            try:
                self.ready = memoryview(self.frame.decompress(self.packed))
            except self.problem as error:
                raise EOFError(error) from error
            self.packed = b""
            if self.frame.eof:
                self.packed, self.frame = self.frame.unused_data, None
        part, self.ready = self.ready[: len(buffer)], self.ready[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def _zstd(path: Path) -> tuple[Callable[[], Any], type[Exception]]:
    """Return what makes a decompressor, and the exception that it raises."""
    try:
        module = import_module("compression.zstd")
        options = {module.DecompressionParameter.window_log_max: _WINDOW}
        return lambda: module.ZstdDecompressor(options=options), module.ZstdError
    except ModuleNotFoundError:  # before Python 3.14
        pass
    try:
        package = import_module("zstandard")
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{path} is compressed by zstd, which takes a package to read: pip install zstandard"
        ) from error
    return lambda: package.ZstdDecompressor(max_window_size=1 << _WINDOW).decompressobj(), package.ZstdError
