"""Gaps in the answer to a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flexmdm.tasks.text.task import TextTask


@dataclass(frozen=True)
class AnswerTask(TextTask):
    """The answers to one prompt, as texts that a model may write: the prompt stands before each of them.

    Attributes:
        prompt: its tokens, with those around it.
        never: tokens that are no part of an answer.
    """

    prompt: tuple[int, ...] = ()
    never: tuple[int, ...] = ()

    @property
    def frame(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.prompt, ()

    @property
    def never_found(self) -> tuple[int, ...]:
        return self.never

    def clean(self, sequence: Sequence[int]) -> list[int]:
        """Return the tokens of a generated sequence that are text, of the prompt too: an answer may repeat them."""
        return [token for token in sequence if token < self.text.size]
