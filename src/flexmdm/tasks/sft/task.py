"""Prompts with their answers as a task: the prompt fixed in the interpolant, for FlexMDM and MDM."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from flexmdm.canvas import Template
from flexmdm.data import PairSource
from flexmdm.data.pairs import Messages
from flexmdm.sequences import Ragged
from flexmdm.tasks.layouts import gap_examples
from flexmdm.tasks.prepared import PreparedTask, StoredExamples
from flexmdm.tasks.sft.preparation import PairPreparation, PromptFormat
from flexmdm.tasks.sft.settings import SFTSettings


@dataclass(frozen=True, eq=False)
class PairExamples(StoredExamples):
    """Pairs with the prompt fixed; nothing about them is random."""

    task: SFTTask

    def take(self, index: Tensor, numbers: Tensor) -> tuple[Ragged, Template]:
        """Return the pairs ``index`` ``[B]`` as examples, whatever their ``numbers`` ``[B]``."""
        pairs = zip(self.store.take(index).tolist(), self.store.prompts[index].tolist(), strict=True)
        parts = [(tokens[:prompt], tokens[prompt:], []) for tokens, prompt in pairs]
        return self.task.layout.example(*gap_examples(parts))

    def to_find(self, index: Tensor) -> tuple[Ragged, Template, Tensor, Tensor]:
        """Return the pairs ``index`` ``[B]``, and the tokens and characters of their answers."""
        answers = (self.store.lengths - self.store.prompts)[index]
        return *self.take(index, index), answers, self.store.characters[index]


@dataclass(frozen=True)
class SFTTask(SFTSettings, PreparedTask):
    """Instruction fine-tuning on pairs of a prompt and its answer.

    The tokens of the prompt are fixed: FlexMDM inserts and reveals the answer behind them, and MDM reveals as many
    masks as fill the width of the longest pair, the answer and then PAD. Nothing but the end (FlexMDM) or PAD (MDM) is
    put behind an answer, also with a chat template. The arguments are those of `SFTSettings`.
    """

    nouns: ClassVar[str] = "prompts and answers (sft)"
    examples: ClassVar[type[StoredExamples]] = PairExamples

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("before", "behind"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        _ = self._format  # raises if it is none
        if self.pad_id is not None and self.pad_id < 0:
            raise ValueError(f"pad_id is a token, from 0 on; got {self.pad_id}")
        try:
            re.compile(self.remove or "")
        except re.error as error:
            raise ValueError(f"what to remove is a regular expression, and {self.remove!r} is none: {error}") from error

    @property
    def _preparation(self) -> PairPreparation:
        fields = self.prompt_field, self.answer_field, self.skip_bad, self.remove
        return PairPreparation(
            **self._common(PairSource, *fields), style=self.format, before=self.before, behind=self.behind
        )

    @property
    def _format(self) -> PromptFormat:
        return PromptFormat(self.format, self.before, self.behind)

    @property
    def pad(self) -> int:
        return self.text.size if self.pad_id is None else self.pad_id

    def encode(self, messages: Messages) -> list[int]:
        """Return the tokens of a prompt, as in training."""
        self.text.refuse_unknown(content for _, content in messages)
        return self._format.encode(self.text, [messages])[0].tolist()

    def answer(self, sequence: Sequence[int], prompt_length: int) -> list[int]:
        """Return the tokens of the answer: behind the prompt, and for MDM up to the first PAD."""
        return self.clean(self.layout.found(sequence[prompt_length:]))
