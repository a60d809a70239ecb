"""Prompts with their answers as a task: the prompt fixed in the interpolant, for FlexMDM and MDM."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from torch import Tensor

from flexmdm.canvas import Prompt, Template
from flexmdm.data import PairSource
from flexmdm.data.pairs import Messages
from flexmdm.sequences import Ragged
from flexmdm.tasks.prepared import PreparedTask, StoredExamples, padded
from flexmdm.tasks.sft.formats import PLAIN, PromptFormat
from flexmdm.tasks.sft.preparation import PairPreparation
from flexmdm.tasks.sft.templates import prompt_templates

if TYPE_CHECKING:
    from flexmdm.backbones.model import FlexMDMModel


@dataclass(frozen=True)
class SFTTask(PreparedTask):
    """Instruction fine-tuning on pairs of a prompt and its answer.

    The tokens of the prompt are fixed: FlexMDM inserts and reveals the answer behind them, and MDM reveals as many
    masks as fill the width of the longest pair, the answer and then PAD. Nothing but the end (FlexMDM) or PAD (MDM) is
    put behind an answer, also with a chat template.

    Args:
        prompt_field, answer_field, remove: of the `PairSource`.
        format: how a prompt is written, see `PromptFormat`.
        pad_id: the token that is PAD for MDM; by default a new one behind those of the tokenizer. LLaDA's is its end
            of text.

    The others are those of `PreparedTask`. Pairs longer than ``max_length`` are dropped.
    """

    prompt_field: str | None = None
    answer_field: str | None = None
    format: str = PLAIN
    pad_id: int | None = None
    remove: str | None = None
    name: str = field(default="sft", init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        PromptFormat(self.format)  # says what is wrong with it
        if self.pad_id is not None and self.pad_id < 0:
            raise ValueError(f"pad_id is a token, from 0 on; got {self.pad_id}")
        try:
            re.compile(self.remove or "")
        except re.error as error:
            raise ValueError(f"what to remove is a regular expression, and {self.remove!r} is none: {error}") from error

    # Data -------------------------------------------------------------------------------------------------------------

    @property
    def _preparation(self) -> PairPreparation:
        fields = self.prompt_field, self.answer_field, self.skip_bad, self.remove
        return PairPreparation(
            source=PairSource(self.data, *fields),
            tokenizer=self.tokenizer,
            vocab_size=self.vocabulary,
            max_length=self.max_length,
            held_out=self.held_out,
            held_out_source=PairSource(self.held_out_data, *fields) if self.held_out_data else None,
            seed=self.data_seed,
            style=self.format,
        )

    @property
    def pad(self) -> int:
        return self.text.size if self.pad_id is None else self.pad_id

    @property
    def vocab_size(self) -> int:
        """The tokens, for MDM with PAD; a pretrained model may know more."""
        return max(self.text.size, self.pad + 1) if self.model == "mdm" else self.text.size

    @cached_property
    def train(self) -> PairExamples:
        return PairExamples(self, self.prepared.train)

    @cached_property
    def validation(self) -> PairExamples:
        return PairExamples(self, self.prepared.validation)

    # Prompts and answers ----------------------------------------------------------------------------------------------

    def encode(self, messages: Messages) -> list[int]:
        """The tokens of a prompt, as in training."""
        self.text.refuse_unknown(content for _, content in messages)
        return PromptFormat(self.format).encode(self.text, [messages])[0].tolist()

    def prompt(self, tokens: Sequence[int]) -> Prompt:
        """What generation starts from: these tokens, and the answer to find behind them."""
        most = self.max_length if self.model == "flexmdm" else self.width
        if len(tokens) >= most:
            raise ValueError(
                f"the prompt leaves no room for an answer: it has {len(tokens)} tokens, "
                f"and this model was trained on at most {most}; ask more briefly, or train with a larger --max-length"
            )
        if self.model == "flexmdm":
            return Prompt.prefix(tokens)
        masks = self.width - len(tokens)
        return Prompt((*tokens, *[None] * masks), (False,) * (self.width + 1))

    def answer(self, sequence: Sequence[int], prompt_length: int) -> list[int]:
        """The tokens of the answer: behind the prompt, and for MDM up to the first PAD."""
        tokens = list(sequence[prompt_length:])
        if self.model == "mdm" and self.pad in tokens:
            tokens = tokens[: tokens.index(self.pad)]
        return self.clean(tokens)

    def preview(self, folder: Path, console: Console) -> Callable[[FlexMDMModel, int], dict[str, float]]:
        """The answers to two held-out prompts, and the likelihood of some held-out answers."""
        from flexmdm.tasks.sft.preview import AnswerPreview

        return AnswerPreview(self, folder, console)


@dataclass(frozen=True, eq=False)
class PairExamples(StoredExamples):
    """Pairs with the prompt fixed; nothing about them is random."""

    task: SFTTask

    def take(self, index: Tensor, numbers: Tensor) -> tuple[Ragged, Template]:
        """The pairs ``index`` ``[B]``, whatever their ``numbers`` ``[B]``."""
        x1 = self.store.take(index)
        template = prompt_templates(x1, self.store.prompts[index])
        return (x1, template) if self.task.model == "flexmdm" else padded(x1, self.task, template.roles)

    @property
    def answer_lengths(self) -> Tensor:
        """``[S]``: tokens of each answer."""
        return self.store.lengths - self.store.prompts
