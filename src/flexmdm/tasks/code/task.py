"""Python functions with a gap as a task: what stands before and behind it is fixed, for FlexMDM and MDM."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from torch import Tensor

from flexmdm.canvas import Prompt, Template
from flexmdm.data.functions import CodeSource
from flexmdm.sequences import Ragged
from flexmdm.tasks.code.cutting import Cut, Cutter, Cutting
from flexmdm.tasks.code.preparation import CodePreparation, encode_lines
from flexmdm.tasks.code.templates import NUM_SPECIALS, Specials, behind, in_place
from flexmdm.tasks.prepared import PreparedTask, StoredExamples, padded

if TYPE_CHECKING:
    from flexmdm.backbones.model import FlexMDMModel

_WEIGHTS = ("line", "lines", "span")
_ROOM = 1 / 8  # of the longest function, for a middle at least: the text around it is shortened if need be


@dataclass(frozen=True)
class CodeTask(PreparedTask):
    """Filling gaps in Python functions.

    Every time a function is seen it is cut anew into prefix, middle and suffix (see `flexmdm.tasks.code.cutting`). The
    formats are those of the paper's appendix (see `flexmdm.tasks.code.templates`), without an instruction.

    Args:
        data: of the `CodeSource`: .py files, files with code in a field, folders, data sets, or ``stdlib``.
        field: of the `CodeSource`.
        long: of the `CodePreparation`.
        mixture: how often ``line``, ``lines`` and ``span`` are cut out, see `Cutting`.
        max_length: tokens of a function at most, with up to 3 special ones.

    The others are those of `PreparedTask`.
    """

    tokenizer: str = "bpe"
    field: str | None = None
    long: Literal["split", "drop"] = "split"
    mixture: dict[str, float] = dataclasses.field(default_factory=lambda: _weights(Cutting()))
    name: str = dataclasses.field(default="code", init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not set(self.mixture) <= set(_WEIGHTS):
            raise ValueError(f"a mixture has the weights {', '.join(_WEIGHTS)}; got {', '.join(self.mixture)}")
        object.__setattr__(self, "mixture", {name: float(self.mixture.get(name, 0.0)) for name in _WEIGHTS})
        _ = self._cutting  # says what is wrong with it
        if self.max_length <= NUM_SPECIALS:
            raise ValueError(f"max_length leaves no room for a function beside {NUM_SPECIALS} special tokens")

    @property
    def _cutting(self) -> Cutting:
        return Cutting(line=self.mixture["line"], lines=self.mixture["lines"], span=self.mixture["span"])

    # Data -------------------------------------------------------------------------------------------------------------

    @property
    def _preparation(self) -> CodePreparation:
        settings = self.field, self.skip_bad
        return CodePreparation(
            source=CodeSource(self.data, *settings),
            tokenizer="bpe" if self.tokenizer == "auto" else self.tokenizer,
            vocab_size=self.vocabulary,
            max_length=self.max_length - NUM_SPECIALS,
            long=self.long,
            held_out=self.held_out,
            held_out_source=CodeSource(self.held_out_data, *settings) if self.held_out_data else None,
            seed=self.data_seed,
        )

    @property
    def specials(self) -> Specials:
        return Specials(self.text.size)

    @property
    def pad(self) -> int:
        return self.specials.pad

    @property
    def vocab_size(self) -> int:
        """The tokens, with the special ones that the model sees."""
        return self.specials.sep + 1 if self.model == "flexmdm" else self.specials.pad + 1

    @property
    def never_found(self) -> tuple[int, ...]:
        """The special tokens that are always given."""
        specials = self.specials
        return (specials.sep,) if self.model == "flexmdm" else (specials.sep, specials.pre, specials.suf)

    @property
    def width(self) -> int:
        """Tokens of the longest function with its special tokens."""
        return self.max_length if self.longest is None else self.longest + NUM_SPECIALS

    @cached_property
    def cutter(self) -> Cutter:
        return Cutter(self.text)

    @cached_property
    def train(self) -> CodeExamples:
        return CodeExamples(self, self.prepared.train)

    @cached_property
    def validation(self) -> CodeExamples:
        return CodeExamples(self, self.prepared.validation)

    # Prompts and answers ----------------------------------------------------------------------------------------------

    def encode(self, prefix: str, suffix: str) -> tuple[list[int], list[int]]:
        """The tokens before and behind a gap, as in training: each line on its own.

        Where they leave less than an eighth of the longest function to the middle, the lines that are farthest from
        the gap are left out; in training, long functions are seen in windows too.
        """
        self.text.refuse_unknown([prefix, suffix])
        before, after = ([line.tolist() for line in lines] for lines in encode_lines(self.text, [prefix, suffix]))
        most = self.width - NUM_SPECIALS
        before, after = _nearest(before, after, most - math.ceil(most * _ROOM))
        return sum(before, []), sum(after, [])

    def prompt(self, prefix: Sequence[int], suffix: Sequence[int]) -> Prompt:
        """What generation starts from."""
        if len(prefix) + len(suffix) + NUM_SPECIALS >= self.width:
            raise ValueError(
                f"prefix and suffix leave no room for a middle: they have {len(prefix) + len(suffix)} tokens, "
                f"and this model was trained on at most {self.width} with {NUM_SPECIALS} special ones"
            )
        if self.model == "flexmdm":
            return Prompt.infill(self.specials.in_place(prefix, suffix))
        ahead = self.specials.ahead(prefix, suffix)
        return Prompt((*ahead, *[None] * (self.width - len(ahead))), (False,) * (self.width + 1))

    def middle(self, sequence: Sequence[int], prefix: Sequence[int], suffix: Sequence[int]) -> list[int]:
        """The tokens of the middle: between the separators, or for MDM behind everything else and up to PAD."""
        if self.model == "flexmdm":
            tokens = list(sequence[len(prefix) + 1 : len(sequence) - len(suffix) - 1])
        else:
            tokens = list(sequence[len(prefix) + len(suffix) + NUM_SPECIALS :])
            tokens = tokens[: tokens.index(self.pad)] if self.pad in tokens else tokens
        return self.clean(tokens)

    def preview(self, folder: Path, console: Console) -> Callable[[FlexMDMModel, int], dict[str, float]]:
        """Two held-out functions with their middles filled, and the likelihood of some held-out middles."""
        from flexmdm.tasks.code.preview import CodePreview

        return CodePreview(self, folder, console)


@dataclass(frozen=True, eq=False)
class CodeExamples(StoredExamples):
    """Functions that are cut anew each time they are seen."""

    task: CodeTask

    def cut(self, index: Tensor, numbers: Tensor, cutting: Cutting | None = None) -> Cut:
        """The functions ``index`` ``[B]`` cut in three; the cuts belong to the ``numbers`` ``[B]``."""
        task = self.task
        longest = task.width - NUM_SPECIALS
        return task.cutter(self.store.take(index), cutting or task._cutting, longest, task.data_seed, numbers)

    def take(self, index: Tensor, numbers: Tensor) -> tuple[Ragged, Template]:
        """The functions ``index`` ``[B]`` as examples; the same cuts for both models."""
        cut = self.cut(index, numbers)
        if self.task.model == "flexmdm":
            return in_place(cut, self.task.specials)
        x1, roles = behind(cut, self.task.specials)
        return padded(x1, self.task, roles)

    def triples(self, index: Tensor, numbers: Tensor, cutting: Cutting | None = None) -> list[tuple[str, str, str]]:
        """Prefix, middle and suffix as text, to ask a `CodePipeline` with."""
        decode = self.task.text.decode
        parts = self.cut(index, numbers, cutting).parts()
        return [(decode(prefix), decode(middle), decode(suffix)) for prefix, middle, suffix in parts]


def _weights(cutting: Cutting) -> dict[str, float]:
    return dict(zip(_WEIGHTS, cutting.weights, strict=True))


def _nearest(before: list[list[int]], after: list[list[int]], most: int) -> tuple[list[list[int]], list[list[int]]]:
    """The lines nearest to the gap, ``most`` tokens of them: the farthest line of the longer side goes first."""
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
