"""Python functions from source files, folders, data sets and the installed standard library."""

from __future__ import annotations

import ast
import re
import sysconfig
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from flexmdm.data.formats import NotPython, check_text
from flexmdm.data.reading import FieldSource

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class CodeSource(FieldSource):
    """Functions to read; a file, or a row, is one record, so that its functions are held out together.

    The path ``stdlib`` is the installed standard library without its tests (``./stdlib`` a folder of that name). Code
    that is no Python is always counted and left out.
    """

    skip_bad: bool = False  # count rows that cannot be read and go on, rather than stop at the first
    min_lines: int = 3  # of a function
    endings: ClassVar[tuple[str, ...]] = (".py", ".jsonl", ".csv", ".parquet")
    unit: ClassVar[str] = "program"
    if_empty: ClassVar[str] = "it has no function that is long enough"
    default_field: ClassVar[str] = "code"
    libraries: ClassVar[Mapping[str, Path]] = {"stdlib": Path(sysconfig.get_paths()["stdlib"])}

    def parts(self, cells: Sequence[Any]) -> list[str]:
        return functions_of(check_text(cells[0]), self.min_lines)


def functions_of(source: str, min_lines: int = 3) -> list[str]:
    r"""Return the functions and methods of a program, with decorators, dedented; those inside others belong to them.

    >>> functions_of("class A:\n    @property\n    def one(self):\n        return 1\n\nx = 2\n")
    ['@property\ndef one(self):\n    return 1\n']
    """
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    lines = source.split("\n")
    found = []
    for node in _outermost(_parsed(source)):
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        own = lines[first - 1 : node.end_lineno]
        if len(own) >= min_lines and (text := _dedented(own)) is not None:
            found.append(text)
    return found


def lines_of(text: str) -> list[str]:
    """Return the lines of a text with their line breaks; no other character than the line feed ends a line."""
    return _LINE.findall(text)


def _parsed(source: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in other people's strings
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
        raise NotPython(f"it is no Python ({where}{reason})") from error


def _outermost(tree: ast.Module) -> Iterator[_Function]:
    """Yield the functions that are in no other function, in order."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _Function):
            yield node
        elif isinstance(node, ast.mod | ast.stmt | ast.ExceptHandler | ast.match_case):
            waiting += reversed(list(ast.iter_child_nodes(node)))


def _dedented(lines: Sequence[str]) -> str | None:
    """Return lines without the margin of the first; ``None`` if that is no Python any more."""
    margin = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    text = "\n".join("" if line.isspace() else line.removeprefix(margin) for line in lines) + "\n"
    if not all(line.startswith(margin) or not line.strip() for line in lines):  # inside a string, mostly
        try:
            _parsed(text)
        except NotPython:
            return None
    return text
