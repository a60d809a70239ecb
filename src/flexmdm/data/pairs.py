"""Prompts with their answers from files, folders and Hugging Face datasets: which fields hold them, and what is bad."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from flexmdm.data.formats import BadRecord, check_text, listed
from flexmdm.data.reading import RecordSource

USUAL = (
    ("prompt", "answer"),
    ("prompt", "completion"),
    ("prompt", "response"),
    ("question", "answer"),
    ("instruction", "output"),
    ("instruction", "response"),
)
_INPUT = "input"

Messages = tuple[tuple[str, str], ...]  # (role, content) of each


@dataclass(frozen=True)
class Pair:
    """A prompt and its answer."""

    messages: Messages  # all that was said before the answer; a plain prompt is one message of a ``user``
    answer: str

    def __len__(self) -> int:
        """Return how many characters it has."""
        return sum(len(content) for _, content in self.messages) + len(self.answer)


@dataclass(frozen=True)
class PairSource(RecordSource):
    """Pairs to read.

    Args:
        prompt_field, answer_field: where the prompt and its answer are; by default the first usual names that are there
            (`USUAL`; to an instruction belongs its ``input``, if it has one), or ``messages``, a conversation with
            roles whose last turn of the assistant is the answer.
        remove: a regular expression; what it finds in answers is left out, such as the annotations of GSM8K for a
            calculator, ``<<48/2=24>>``.
    """

    prompt_field: str | None = None
    answer_field: str | None = None
    skip_bad: bool = False  # count lines that cannot be read, or lack a prompt or an answer, rather than stop there
    remove: str | None = None
    endings: ClassVar[tuple[str, ...]] = (".jsonl", ".csv", ".parquet")

    def columns(self, names: Sequence[str], header: bool = False) -> list[str]:
        found = find_fields(names, self.prompt_field, self.answer_field)
        if found is None:
            missing = [repr(name) for name in (self.prompt_field, self.answer_field) if name and name not in names]
            what = f"no field {' and no field '.join(missing)}" if missing else "no fields with the usual names"
            raise BadRecord(
                f"{what}, only {listed(names)}; "
                "say which hold the prompt and the answer (--prompt-field, --answer-field)"
            )
        return found

    def parts(self, cells: Sequence[Any]) -> list[Pair]:
        if len(cells) == 1:
            *turns, (_, answer) = _turns_to_answer(cells[0])
        else:
            answer = check_text(cells[1], "answer")
            extra = [check_text(cell, _INPUT) for cell in cells[2:] if cell is not None and cell != ""]
            turns = [("user", "\n\n".join([check_text(cells[0], "prompt"), *extra]))]
        answer = re.sub(self.remove, "", answer) if self.remove else answer
        empty = [] if any(content.strip() for _, content in turns) else ["prompt"]
        empty += [] if answer.strip() else ["answer"]
        if empty:
            raise BadRecord(
                f"the {' and the '.join(empty)} of this pair {'is' if len(empty) == 1 else 'are'} empty; "
                "write something there, or leave such pairs out and count them (--skip-bad)"
            )
        return [Pair(tuple(turns), answer)]


def find_fields(names: Sequence[str], prompt: str | None = None, answer: str | None = None) -> list[str] | None:
    """Return the fields of the prompt, the answer and, if there is one, the input of an instruction.

    Of a whole conversation it is that field alone; it is ``None`` if nobody can tell.

    >>> find_fields(["instruction", "input", "output"]), find_fields(["prompt", "messages"])
    (['instruction', 'output', 'input'], ['messages'])
    """
    for usual_prompt, usual_answer in USUAL:
        pair = [prompt or usual_prompt, answer or usual_answer]
        if set(pair) <= set(names):
            # an instruction often has something to work on beside it
            return [*pair, _INPUT] if prompt is None and pair[0] == "instruction" and _INPUT in names else pair
    conversation = prompt or "messages"
    return [conversation] if answer is None and conversation in names else None


def _turns_to_answer(messages: Any) -> Messages:
    """Return the (role, content) of a conversation up to the last turn of the assistant, which is the answer."""
    if not isinstance(messages, list):
        raise BadRecord(
            f"a list of messages with role and content belongs here, not {reprlib.repr(messages)}; "
            "if the answer has a field of its own, name it (--answer-field)"
        )
    for message in messages:
        if not isinstance(message, dict) or not {"role", "content"} <= set(message):
            raise BadRecord(f"a message has a role and a content, this one is {reprlib.repr(message)}")
    roles = [message["role"] for message in messages]
    if "assistant" not in roles[1:]:
        raise BadRecord(f"the assistant answers nobody: the roles are {', '.join(map(str, roles)) or 'none'}")
    turns = [(role, check_text(m["content"], f"turn of the {role}")) for role, m in zip(roles, messages, strict=True)]
    return tuple(turns[: len(roles) - roles[::-1].index("assistant")])
