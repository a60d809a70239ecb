"""Python functions with a gap as a task: what stands before and behind it is fixed, for FlexMDM and MDM.

A function is written as in the paper's appendix. FlexMDM reads ``prefix [SEP] middle [SEP] suffix`` and finds the
middle in the gap between the separators. MDM reads ``[PRE] prefix [SUF] suffix [SEP] middle`` and then PAD, so that the
number of masks does not tell the length. The paper sometimes puts an instruction in front, the same for every example,
which would say no more than the separators do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from flexmdm.canvas import Template
from flexmdm.data.functions import CodeSource
from flexmdm.sequences import Ragged
from flexmdm.tasks.code.cutting import Cutter, Cutting, Parts
from flexmdm.tasks.code.preparation import CodePreparation
from flexmdm.tasks.code.settings import WEIGHTS, CodeSettings
from flexmdm.tasks.layouts import gap_examples
from flexmdm.tasks.prepared import PreparedTask, StoredExamples
from flexmdm.tasks.settings import full_mixture

NUM_SPECIALS = 3  # that a function gets at most


class Specials(NamedTuple):
    """The special tokens, which are no text.

    >>> Specials(100, 101, 102, 103).around([1, 2], [3], inserts=True)
    ([1, 2, 100], [100, 3])
    >>> Specials(100, 101, 102, 103).around([1, 2], [3], inserts=False)
    ([101, 1, 2, 102, 3, 100], [])
    """

    sep: int
    pre: int
    suf: int
    pad: int

    def around(self, prefix: Sequence[int], suffix: Sequence[int], inserts: bool) -> tuple[list[int], list[int]]:
        """Return the tokens left and right of the middle, for FlexMDM (which inserts) or for MDM."""
        if inserts:
            return [*prefix, self.sep], [self.sep, *suffix]
        return [self.pre, *prefix, self.suf, *suffix, self.sep], []


@dataclass(frozen=True, eq=False)
class CodeExamples(StoredExamples):
    """Functions that are cut anew each time they are seen."""

    task: CodeTask

    def cut(self, index: Tensor, numbers: Tensor, cutting: Cutting | None = None) -> list[Parts]:
        """Cut the functions ``index`` ``[B]`` in three; the cuts belong to the ``numbers`` ``[B]``."""
        task, functions = self.task, self.store.take(index)
        longest = task.width - NUM_SPECIALS
        return Cutter(task.text)(functions, cutting or task._cutting, longest, task.data_seed, numbers)

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
    """Filling gaps in Python functions, which are cut anew every time they are seen (`flexmdm.tasks.code.cutting`).

    The arguments are those of `CodeSettings`.
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

    def around(self, prefix: Sequence[int], suffix: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the tokens left and right of the middle as its kind of model reads them."""
        return self.specials.around(prefix, suffix, self.layout.inserts)
