"""The settings of sequences from files: options, configuration and what a run stores of its task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flexmdm.settings import setting
from flexmdm.tasks.settings import FileSettings, weights

WEIGHTS = {"unconditional": 0.5, "prefix": 0.15, "spans": 0.3, "known_length": 0.05}


@dataclass(frozen=True)
class TextSettings(FileSettings):
    """The settings of sequences of tokens; for the mixture see `flexmdm.tasks.text.templates.Mixture`."""

    field: str | None = setting(None, help="Field or column to read. [default: text; code: code]")
    paragraphs: bool = setting(False, help="Split files at blank lines instead of line by line.")
    long: Literal["split", "drop"] = setting(
        "split", help="Treatment of longer sequences: split or drop. [default: split]"
    )
    mixture: dict[str, float] = setting(
        default_factory=lambda: dict(WEIGHTS),
        help="Weights of templates, such as unconditional=1 or prefix=1,spans=2. [default: all]",
        parse=weights,
    )
    framed: bool = False  # put what a pretrained tokenizer has around a text ([CLS], [SEP]) around every sequence
    balanced: bool = False  # learn from each entry of `data` equally often, however large it is
    name: str = setting("text", init=False)
