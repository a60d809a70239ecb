"""Texts with marked regions made into token sequences on disk, and where in them each region is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexmdm.data import Preparation, TextTokenizer
from flexmdm.data.encoding import Encoder
from flexmdm.data.reading import Marked


@dataclass(frozen=True)
class MarkedPreparation(Preparation):
    """The way from marked texts to sequences."""

    def texts(self, record: Any) -> list[str]:
        return [record.text]

    def encoder(self, tokenizer: TextTokenizer, folder: Path) -> Encoder:
        return _MarkedEncoder(self, tokenizer, folder)


class _MarkedEncoder(Encoder):
    def sequences(self, records: list[Marked]) -> Iterator[list[tuple]]:
        rows = super().sequences([record.text for record in records])
        for record, found in zip(records, rows, strict=True):
            if any(len(ids) != characters for ids, characters in found):
                raise ValueError("regions are marked in characters: take a tokenizer of those (--tokenizer characters)")
            yield [(*one, 0, [place for span in record.ranges for place in span]) for one in found]
