"""Pairs made into token sequences on disk: the prompt and behind it the answer, each tokenised on its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from flexmdm.data import Pair, Preparation, TextTokenizer
from flexmdm.data.encoding import Encoder
from flexmdm.data.tokenizers import KINDS
from flexmdm.tasks.sft.formats import PLAIN, PromptFormat


@dataclass(frozen=True)
class PairPreparation(Preparation):
    """How pairs become sequences.

    Args:
        source, held_out_source: of pairs.
        long: pairs that are longer than ``max_length`` are dropped, as half an answer would be a wrong one.
        style: of the `PromptFormat`.

    The others are those of `Preparation`.
    """

    long: Literal["split", "drop"] = "drop"
    style: str = PLAIN
    noun: ClassVar[str] = "pair"
    record: ClassVar[str] = "pair"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format.is_chat and self.tokenizer in ("auto", *KINDS):
            raise ValueError(
                f"the chat format is the template of a Hugging Face tokenizer, and the tokenizer is {self.tokenizer}: "
                "name one that has a chat template (--tokenizer), or leave the chat format out"
            )

    @property
    def format(self) -> PromptFormat:
        return PromptFormat(self.style)

    @property
    def contents(self) -> str:
        return f"the data with its prompts written as {self.format.text!r}"

    def texts(self, record: Any) -> list[str]:
        said = [content for _, content in record.messages]
        return [*(said if self.format.is_chat else [self.format.write(record.messages)]), record.answer]

    def encoder(self, tokenizer: TextTokenizer, folder: Path) -> Encoder:
        return _PairEncoder(self, self.format, tokenizer, folder)


class _PairEncoder(Encoder):
    def __init__(
        self, preparation: Preparation, prompt_format: PromptFormat, tokenizer: TextTokenizer, folder: Path
    ) -> None:
        super().__init__(preparation, tokenizer, folder)
        self.format = prompt_format

    def sequences(self, records: list[Pair]) -> Iterator[list[tuple]]:
        prompts = self.format.encode(self.tokenizer, [pair.messages for pair in records])
        answers = self.tokenizer.encode_arrays([pair.answer for pair in records])
        for pair, prompt, answer in zip(records, prompts, answers, strict=True):
            if len(prompt) + len(answer) > self.preparation.max_length:
                self.counts["dropped"] += 1
                yield []
            else:
                yield [(np.concatenate([prompt, answer]), len(pair.answer), len(prompt))]

    def advice_on_unknown(self, unknown: Sequence[str]) -> str:
        around = set(unknown) <= set(self.format.text)
        return super().advice_on_unknown(unknown) + (
            ", or choose a --format without them, such as '{prompt} '" if around else ""
        )
