"""The settings of sequences from files: options, configuration and what a run stores of its task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flexmdm.settings import setting
from flexmdm.tasks.settings import FileSettings, full_mixture, weights

WEIGHTS = {"unconditional": 0.5, "prefix": 0.15, "spans": 0.3, "known_length": 0.05}
REGIONS_WEIGHT = 0.5  # of marked regions beside these, where there are any


def names(text: str) -> tuple[str, ...]:
    """Return the names that a text such as ``h1,h2,h3`` lists."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


@dataclass(frozen=True)
class TextSettings(FileSettings):
    """The settings of sequences of tokens; for the mixture see `flexmdm.tasks.text.templates.Mixture`."""

    field: str | None = setting(None, help="Field or column to read. [default: text; code: code]")
    paragraphs: bool = setting(False, help="Split files at blank lines instead of line by line.")
    long: Literal["split", "drop"] = setting(
        "split", help="Treatment of longer sequences: split or drop. [default: split]"
    )
    regions: tuple[str, ...] = setting(
        (),
        help="Regions to cut out, one or all at a time: a,b if columns a_start, a_end, b_start and b_end mark them.",
        parse=names,
    )
    mixture: dict[str, float] = setting(
        default_factory=lambda: dict(WEIGHTS),
        help="Weights of templates, such as unconditional=1 or prefix=1,spans=2. [default: all]",
        parse=weights,
    )
    framed: bool = False  # put what a pretrained tokenizer has around a text ([CLS], [SEP]) around every sequence
    balanced: bool = False  # learn from each entry of `data` equally often, however large it is
    name: str = setting("text", init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "regions", tuple(self.regions))
        mixture = self.mixture | ({"regions": REGIONS_WEIGHT} if self.regions and self.mixture == WEIGHTS else {})
        object.__setattr__(self, "mixture", full_mixture(mixture, [*WEIGHTS, *(["regions"] if self.regions else [])]))
