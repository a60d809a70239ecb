"""The settings of functions with a gap: options, configuration and what a run stores of its task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flexmdm.settings import setting
from flexmdm.tasks.settings import FileSettings, weights

WEIGHTS = {"line": 0.5, "lines": 0.25, "span": 0.25}


@dataclass(frozen=True)
class CodeSettings(FileSettings):
    """The settings of Python functions with a gap; the data is that of a `flexmdm.data.CodeSource`.

    ``max_length`` counts up to 3 special tokens too; for the mixture see `flexmdm.tasks.code.cutting.Cutting`.
    """

    field: str | None = setting(None, help="Field or column to read. [default: text; code: code]")
    long: Literal["split", "drop"] = setting(
        "split", help="Treatment of longer sequences: split or drop. [default: split]"
    )
    mixture: dict[str, float] = setting(
        default_factory=lambda: dict(WEIGHTS),
        help="Weights of what is cut out, such as line=2,lines=1,span=1. [default: all]",
        parse=weights,
    )
    name: str = setting("code", init=False)
