"""Marked regions of sequences, such as the loops of antibodies, cut out and found again by a run on sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

from flexmdm.data.reading import Marked, Source, numbered
from flexmdm.sweeps.gaps import Gaps
from flexmdm.tasks.pipeline import Answer
from flexmdm.tasks.text.cutting import Cut


class _Sequences(Source):
    default_field: ClassVar[str] = "sequence"


@dataclass(frozen=True)
class Regions(Gaps):
    """Regions as a benchmark: a sequence is right if every region holds just the characters that were cut out.

    >>> benchmark = Regions.of([Marked("QVKARDYW", ((0, 2), (3, 7)))])
    >>> benchmark.items, benchmark.truth, benchmark.sizes
    ([('', 'K', 'W')], [('QV', 'ARDY')], [[2, 4]])
    """

    split: str = ""
    file: Path | None = None
    name = "regions"
    asks = "these are sequences with regions cut out"

    @classmethod
    def of(cls, sequences: Sequence[Marked], split: str = "", file: Path | None = None) -> Self:
        """Return the benchmark of some sequences: all their regions are cut out together."""
        cuts = []
        for one in sequences:
            places = [0, *(place for span in one.ranges for place in span), len(one.text)]
            parts = [one.text[begin:end] for begin, end in zip(places, places[1:], strict=False)]
            cuts.append(Cut(tuple(parts[::2]), tuple(parts[1::2])))
        return cls(cuts, split=split, file=file)

    @classmethod
    def read(cls, data: Path, split: str | None = None) -> Self:
        """Read a table with the column ``sequence``; ``split`` says which regions to cut out, as h3 or h1,h2,h3."""
        if not split:
            raise ValueError("say which regions are cut out: --split NAME, or several at once, as --split h1,h2,h3")
        source = _Sequences((str(data),), regions=tuple(split.split(",")))
        return cls.of([record for _, record in numbered(source)], split, data)

    @property
    def title(self) -> str:
        return f"{len(self.cuts):,} sequences without {self.split}"

    @cached_property
    def sizes(self) -> Sequence[Sequence[int]]:
        return [list(map(len, gaps)) for gaps in self.truth]

    def compared(self, gap: str) -> str:
        return gap

    def found_sizes(self, answer: Answer) -> list[int]:
        return list(map(len, answer.gaps))
