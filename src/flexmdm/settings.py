"""Settings: fields of a dataclass that carry their own documentation, so that an option is written down once.

A field made by `setting` is a field of the configuration file and of the run, and the command line makes an option of
it. This module imports nothing of the house and nothing heavy: `flexmdm --help` reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, field, fields
from typing import Any


def setting(
    default: Any = MISSING,
    *,
    help: str = "",
    flag: str | None = None,
    parse: Callable[[str], Any] | None = None,
    default_factory: Callable[[], Any] | Any = MISSING,
    init: bool = True,
    **option: Any,
) -> Any:
    """Return a dataclass field with what the command line needs to know of it.

    Args:
        default, default_factory, init: as in `dataclasses.field`.
        help: the help text of its option; without one the command line has no option for it.
        flag: a second name of its option, beside that of the field.
        parse: makes the value from the text of the option, where it is not a plain number, text or flag.
        option: of `typer.Option`, such as the bounds ``min`` and ``max``.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Recipe:
    ...     batch_size: int = setting(64, help="Sequences per pass.")
    >>> flags_of(fields(Recipe)[0]), Recipe().batch_size
    (['--batch-size'], 64)
    """
    metadata = {"help": help, "flag": flag, "parse": parse, "option": option}
    return field(default=default, default_factory=default_factory, init=init, metadata=metadata)


def flags_of(one: Field) -> list[str]:
    """Return the names of the option of a field: its own, and perhaps a second one."""
    names = ["--" + one.name.replace("_", "-"), one.metadata.get("flag")]
    return [name for name in names if name]


def options_of(settings: Any) -> dict[str, Field]:
    """Return the fields of a settings class that the command line has options for, by name."""
    return {one.name: one for one in fields(settings) if one.metadata.get("help")}
