"""How a prompt is written before the answer follows: the same in training and in generation, token for token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flexmdm.data import TextTokenizer
from flexmdm.data.pairs import Messages

PLAIN, CHAT = "plain", "chat"
_PROMPT = "{prompt}"
_PLAIN_TEXT = _PROMPT + "\n"


@dataclass(frozen=True)
class PromptFormat:
    r"""Writes prompts.

    Args:
        style: ``plain`` (the prompt and a line break), a text of your own with ``{prompt}`` in it, or ``chat``, the
            chat template of the tokenizer. In the first two, the turns of a longer conversation become lines.

    >>> PromptFormat("Q: {prompt} A:").write((("user", "1 + 1?"),))
    'Q: 1 + 1? A:'
    >>> PromptFormat().write((("system", "Be brief."), ("user", "Who?")))
    'Be brief.\nWho?\n'
    """

    style: str = PLAIN

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
        return _PLAIN_TEXT if self.style == PLAIN else self.style

    def write(self, messages: Messages, tokenizer: TextTokenizer | None = None) -> str:
        """Write the prompt as text; a chat needs the tokenizer."""
        if not self.is_chat:
            return self.text.replace(_PROMPT, "\n".join(content for _, content in messages))
        if tokenizer is None:
            raise ValueError("a chat is written by the template of a tokenizer: give the tokenizer")
        return tokenizer.write_chat([{"role": role, "content": content} for role, content in messages])

    def encode(self, tokenizer: TextTokenizer, prompts: Sequence[Messages]) -> list[np.ndarray]:
        """Return the tokens of each prompt."""
        texts = [self.write(messages, tokenizer) for messages in prompts]
        return tokenizer.encode_chats(texts) if self.is_chat else tokenizer.encode_arrays(texts)
