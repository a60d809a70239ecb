"""Pairs made into token sequences on disk: the prompt and behind it the answer, each tokenised on its own.

A prompt is written by the `PromptFormat` in the same way in training and in generation, token for token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from flexmdm.data import Pair, Preparation, TextTokenizer
from flexmdm.data.encoding import Encoder
from flexmdm.data.pairs import Messages
from flexmdm.data.tokenizers import KINDS

PLAIN, CHAT = "plain", "chat"
_PROMPT = "{prompt}"


@dataclass(frozen=True)
class PromptFormat:
    r"""Writes prompts, in one of three styles.

    ``plain`` is the prompt and a line break; a text of your own has ``{prompt}`` in it; ``chat`` is the chat template
    of the tokenizer. In the first two, the turns of a longer conversation become lines. The tokens ``before``
    and ``behind`` stand around every prompt, and are no text.

    >>> PromptFormat("Q: {prompt} A:").write((("user", "1 + 1?"),))
    'Q: 1 + 1? A:'
    >>> PromptFormat().write((("system", "Be brief."), ("user", "Who?")))
    'Be brief.\nWho?\n'
    """

    style: str = PLAIN
    before: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.style not in (PLAIN, CHAT) and _PROMPT not in self.style:
            raise ValueError(
                f"a format is {PLAIN}, {CHAT}, or a text with {_PROMPT} where the prompt goes; got {self.style!r}"
            )

    @property
    def is_chat(self) -> bool:
        return self.style == CHAT

    @property
    def text(self) -> str:
        """Return the text with ``{prompt}`` in it; a chat has none."""
        return _PROMPT + "\n" if self.style == PLAIN else self.style

    def write(self, messages: Messages) -> str:
        """Return the prompt as text; a chat is written by its tokenizer, see `encode`."""
        return self.text.replace(_PROMPT, "\n".join(content for _, content in messages))

    def encode(self, tokenizer: TextTokenizer, prompts: Sequence[Messages]) -> list[np.ndarray]:
        """Return the tokens of each prompt."""
        if self.is_chat:
            chats = [[{"role": role, "content": content} for role, content in messages] for messages in prompts]
            found = tokenizer.encode_chats(list(map(tokenizer.write_chat, chats)))
        else:
            found = tokenizer.encode_arrays(list(map(self.write, prompts)))
        before, behind = (np.array(side, dtype=np.uint32) for side in (self.before, self.behind))
        return [np.concatenate([before, ids, behind]) for ids in found]


@dataclass(frozen=True)
class PairPreparation(Preparation):
    """The way from pairs to sequences; ``style``, ``before`` and ``behind`` are those of the `PromptFormat`."""

    long: Literal["split", "drop"] = "drop"  # half an answer would be a wrong one
    style: str = PLAIN
    before: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()
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
        return PromptFormat(self.style, self.before, self.behind)

    @property
    def contents(self) -> str:
        return f"the data with its prompts written as {self.format.text!r}"

    def texts(self, record: Any) -> list[str]:
        said = [content for _, content in record.messages]
        return [*(said if self.format.is_chat else [self.format.write(record.messages)]), record.answer]

    def encoder(self, tokenizer: TextTokenizer, folder: Path) -> Encoder:
        return _PairEncoder(self, tokenizer, folder)


class _PairEncoder(Encoder):
    preparation: PairPreparation

    def sequences(self, records: list[Pair]) -> Iterator[list[tuple]]:
        prompts = self.preparation.format.encode(self.tokenizer, [pair.messages for pair in records])
        answers = self.tokenizer.encode_arrays([pair.answer for pair in records])
        for pair, prompt, answer in zip(records, prompts, answers, strict=True):
            if len(prompt) + len(answer) > self.preparation.max_length:
                self.counts["dropped"] += 1
                yield []
            else:
                yield [(np.concatenate([prompt, answer]), len(pair.answer), len(prompt))]

    def advice_on_unknown(self, unknown: Sequence[str]) -> str:
        around = set(unknown) <= set(self.preparation.format.text)
        return super().advice_on_unknown(unknown) + (
            ", or choose a --format without them, such as '{prompt} '" if around else ""
        )
