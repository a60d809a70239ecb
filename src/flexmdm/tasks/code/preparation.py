"""Functions made into token sequences on disk, line by line.

Each line, with its line break, is tokenised on its own, so that no token reaches from one line into the next: a
function cut between two lines has the same tokens before and behind the cut as the whole, in training and later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from flexmdm.data import Delimiter, Preparation, TextTokenizer, chunk
from flexmdm.data.encoding import Encoder
from flexmdm.data.functions import lines_of

_PROBE = "def f(x):\n    return  x\n\n"


@dataclass(frozen=True)
class CodePreparation(Preparation):
    """Turn functions into sequences; one that stands in the data twice is taken once.

    Functions that are longer than ``max_length`` are split between lines (and then they are several windows of a
    function), or dropped, as ``long`` says. One with a single line that is longer is dropped.
    """

    noun: ClassVar[str] = "function"
    record: ClassVar[str] = "program"

    def texts(self, record: Any) -> list[str]:
        return lines_of(record)

    def encoder(self, tokenizer: TextTokenizer, folder: Path) -> Encoder:
        return _FunctionEncoder(self, tokenizer, folder)


def encode_lines(tokenizer: TextTokenizer, texts: Sequence[str]) -> list[list[np.ndarray]]:
    """Return the tokens of the lines of each text."""
    lines = [lines_of(text) for text in texts]
    encoded = iter(tokenizer.encode_arrays([line for some in lines for line in some]))
    return [list(islice(encoded, len(some))) for some in lines]


class _FunctionEncoder(Encoder):
    def __init__(self, preparation: Preparation, tokenizer: TextTokenizer, folder: Path) -> None:
        super().__init__(preparation, tokenizer, folder)
        self.counts["duplicates"] = 0
        self.seen: set[str] = set()
        if tokenizer.kind == "pretrained":
            (lines,) = encode_lines(tokenizer, [_PROBE])
            if tokenizer.decode(np.concatenate(lines)) != _PROBE:
                raise ValueError(
                    f"the tokenizer {preparation.tokenizer} does not give a program back as it was, line by line: "
                    "choose a byte-level one, or bpe"
                )

    def sequences(self, records: list[str]) -> Iterator[list[tuple]]:
        longest = self.preparation.max_length
        for text, lines in zip(records, encode_lines(self.tokenizer, records), strict=True):
            ids = np.concatenate(lines)
            if text in self.seen:
                self.counts["duplicates"] += 1
                yield []
            elif len(ids) <= longest:
                yield [(ids, len(text))]
            elif self.preparation.long == "drop" or max(map(len, lines)) > longest:
                self.counts["dropped"] += 1
                yield []
            else:
                self.counts["split"] += 1
                windows = chunk(ids, longest, [Delimiter(self.tokenizer.newline, "after")])
                shown = [window for window in windows if not self.tokenizer.blank[window].all()]
                yield [(window, int(self.tokenizer.characters[window].sum())) for window in shown]
            self.seen.add(text)
