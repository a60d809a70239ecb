"""Python functions with a gap as a task: what stands before and behind it is fixed, for FlexMDM and MDM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from flexmdm.canvas import Prompt, Template
from flexmdm.data.functions import CodeSource
from flexmdm.data.tokenizers import Unanswerable
from flexmdm.sequences import Ragged
from flexmdm.tasks.code.cutting import Cutter, Cutting, Parts
from flexmdm.tasks.code.preparation import CodePreparation, encode_lines
from flexmdm.tasks.code.settings import WEIGHTS, CodeSettings
from flexmdm.tasks.code.templates import NUM_SPECIALS, Specials
from flexmdm.tasks.layouts import gap_examples
from flexmdm.tasks.prepared import PreparedTask, StoredExamples
from flexmdm.tasks.settings import full_mixture

_ROOM = 1 / 8  # of the longest function, for a middle at least: the text around it is shortened if need be


@dataclass(frozen=True, eq=False)
class CodeExamples(StoredExamples):
    """Functions that are cut anew each time they are seen."""

    task: CodeTask

    def cut(self, index: Tensor, numbers: Tensor, cutting: Cutting | None = None) -> list[Parts]:
        """Cut the functions ``index`` ``[B]`` in three; the cuts belong to the ``numbers`` ``[B]``."""
        task = self.task
        longest = task.width - NUM_SPECIALS
        return task.cutter(self.store.take(index), cutting or task._cutting, longest, task.data_seed, numbers)

    def take(self, index: Tensor, numbers: Tensor) -> tuple[Ragged, Template]:
        """Return the functions ``index`` ``[B]`` as examples; the same cuts for both models."""
        written = []
        for prefix, middle, suffix in self.cut(index, numbers):
            left, right = self.task.around(prefix, suffix)
            written.append((left, middle, right))
        return self.task.layout.example(*gap_examples(written))

    def to_find(self, index: Tensor) -> tuple[Ragged, Template, Tensor, Tensor]:
        """Return the functions ``index`` ``[B]``, cut in the same way each time, and the sizes of their middles."""
        middles = [middle for _, middle, _ in self.cut(index, index)]
        tokens = torch.tensor([len(middle) for middle in middles])
        characters = torch.tensor([len(self.task.text.decode(middle)) for middle in middles])
        return *self.take(index, index), tokens, characters

    def triples(self, index: Tensor, numbers: Tensor, cutting: Cutting | None = None) -> list[tuple[str, str, str]]:
        """Return prefix, middle and suffix as text, to ask a `CodePipeline` with."""
        decode = self.task.text.decode
        cuts = self.cut(index, numbers, cutting)
        return [(decode(prefix), decode(middle), decode(suffix)) for prefix, middle, suffix in cuts]


@dataclass(frozen=True)
class CodeTask(CodeSettings, PreparedTask):
    """Filling gaps in Python functions.

    Every time a function is seen it is cut anew into prefix, middle and suffix (see `flexmdm.tasks.code.cutting`). The
    formats are those of the paper's appendix (see `flexmdm.tasks.code.templates`), without an instruction. The
    arguments are those of `CodeSettings`.
    """

    nouns: ClassVar[str] = "gaps in functions (code)"
    examples: ClassVar[type[StoredExamples]] = CodeExamples

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "mixture", full_mixture(self.mixture, WEIGHTS))
        _ = self._cutting  # raises if a weight is wrong
        if self.max_length <= NUM_SPECIALS:
            raise ValueError(f"max_length leaves no room for a function beside {NUM_SPECIALS} special tokens")

    @property
    def _cutting(self) -> Cutting:
        return Cutting(line=self.mixture["line"], lines=self.mixture["lines"], span=self.mixture["span"])

    @property
    def _preparation(self) -> CodePreparation:
        tokenizer = "bpe" if self.tokenizer == "auto" else self.tokenizer
        ours: dict[str, Any] = {"tokenizer": tokenizer, "max_length": self.max_length - NUM_SPECIALS, "long": self.long}
        return CodePreparation(**self._common(CodeSource, self.field, self.skip_bad) | ours)

    @property
    def specials(self) -> Specials:
        """Return the special tokens, which stand behind those of the tokenizer."""
        return Specials(*range(self.text.size, self.text.size + 4))

    @property
    def pad(self) -> int:
        return self.specials.pad

    @property
    def vocab_size(self) -> int:
        """Return the number of tokens, with the special ones that the model sees."""
        return self.layout.vocabulary(self.specials.sep + 1)

    @property
    def never_found(self) -> tuple[int, ...]:
        """Return the special tokens that the model sees: they are always given and never generated."""
        return self.specials[: 1 if self.layout.inserts else NUM_SPECIALS]

    @property
    def width(self) -> int:
        """Return the number of tokens of the longest function with its special tokens."""
        return self.max_length if self.longest is None else self.longest + NUM_SPECIALS

    @cached_property
    def cutter(self) -> Cutter:
        return Cutter(self.text)

    def encode(self, prefix: str, suffix: str) -> tuple[list[int], list[int]]:
        """Return the tokens before and behind a gap, as in training: each line on its own.

        Where they leave less than an eighth of the longest function to the middle, the lines that are farthest from
        the gap are left out; in training, long functions are seen in windows too.
        """
        self.text.refuse_unknown([prefix, suffix])
        before, after = ([line.tolist() for line in lines] for lines in encode_lines(self.text, [prefix, suffix]))
        most = self.width - NUM_SPECIALS
        before, after = _nearest(before, after, most - math.ceil(most * _ROOM))
        return sum(before, []), sum(after, [])

    def around(self, prefix: Sequence[int], suffix: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the tokens left and right of the middle as its kind of model reads them."""
        return self.specials.around(prefix, suffix, self.layout.inserts)

    def prompt(self, prefix: Sequence[int], suffix: Sequence[int]) -> Prompt:
        """Return what generation starts from."""
        if len(prefix) + len(suffix) + NUM_SPECIALS >= self.width:
            raise Unanswerable(
                f"prefix and suffix leave no room for a middle: they have {len(prefix) + len(suffix)} tokens, "
                f"and this model was trained on at most {self.width} with {NUM_SPECIALS} special ones"
            )
        return self.layout.between(self.around(prefix, suffix))

    def middle(self, sequence: Sequence[int], prefix: Sequence[int], suffix: Sequence[int]) -> list[int]:
        """Return the tokens of the middle: between the separators, or for MDM behind everything else and up to PAD."""
        left, right = self.around(prefix, suffix)
        return self.clean(self.layout.found(sequence[len(left) : len(sequence) - len(right)]))


def _nearest(before: list[list[int]], after: list[list[int]], most: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return the lines nearest to the gap, ``most`` tokens of them: the farthest line of the longer side goes first."""
    before, after = list(before), list(after)
    while (left := sum(map(len, before))) + (right := sum(map(len, after))) > most:
        side, farthest = (before, 0) if left >= right else (after, -1)
        if len(side) > 1:
            side.pop(farthest)
        elif side is before:
            before = [before[0][left - max(most - right, most // 2) :]]
        else:
            after = [after[0][: max(most - left, most // 2)]]
    return before, after
