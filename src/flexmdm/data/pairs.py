"""Prompts with their answers from files, folders and Hugging Face datasets: which fields hold them, and what is bad."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from flexmdm.data.reading import ReadReport, RecordFile, Records

USUAL = (
    ("prompt", "answer"),
    ("prompt", "completion"),
    ("prompt", "response"),
    ("question", "answer"),
    ("instruction", "output"),
    ("instruction", "response"),
)
_INPUT = ("instruction", "input")  # an instruction often has something to work on beside it
_CONVERSATION = "messages"

Messages = tuple[tuple[str, str], ...]  # (role, content) of each


@dataclass(frozen=True)
class Pair:
    """A prompt and its answer.

    Attributes:
        messages: (role, content) of everything that was said before the answer; a plain prompt is one of a ``user``.
        answer: to it.
    """

    messages: Messages
    answer: str

    def __len__(self) -> int:
        """How many characters it has."""
        return sum(len(content) for _, content in self.messages) + len(self.answer)


@dataclass(frozen=True)
class PairSource(Records):
    """Which pairs to read.

    Args:
        paths: files (.jsonl, .csv, .parquet; each also as .gz or .zst), folders of such files, or Hugging Face datasets
            as ``hf:NAME`` or ``hf:NAME:SPLIT`` (or plainly ``OWNER/NAME``).
        prompt_field, answer_field: where the prompt and its answer are; by default the first usual names that are there
            (`USUAL`; to an instruction belongs its ``input``, if it has one), or ``messages``, a conversation with
            roles whose last turn of the assistant is the answer.
        skip_bad: count lines that cannot be read, or where the prompt or the answer is empty, and go on, rather than
            stop at the first.
        remove: a regular expression; what it finds in answers is left out, such as the annotations of GSM8K for a
            calculator, ``<<48/2=24>>``.
    """

    prompt_field: str | None = None
    answer_field: str | None = None
    skip_bad: bool = False
    remove: str | None = None
    endings: ClassVar[tuple[str, ...]] = (".jsonl", ".csv", ".parquet")

    def opened(self, name: str, report: ReadReport) -> RecordFile:
        return _PairFile(name, self, report)


@dataclass(frozen=True)
class Fields:
    """Where a pair is in a row; without a field for the answer, the prompt's holds a whole conversation."""

    prompt: str
    answer: str | None = None
    extra: str | None = None

    @property
    def needed(self) -> list[str]:
        return [name for name in (self.prompt, self.answer) if name is not None]


def find_fields(names: Sequence[str], prompt: str | None = None, answer: str | None = None) -> Fields | None:
    """Which of the fields of a row hold the prompt and the answer; ``None`` if nobody can tell.

    >>> find_fields(["id", "question", "answer"])
    Fields(prompt='question', answer='answer', extra=None)
    >>> find_fields(["instruction", "input", "output"])
    Fields(prompt='instruction', answer='output', extra='input')
    >>> find_fields(["task", "answer"], prompt="task")
    Fields(prompt='task', answer='answer', extra=None)
    >>> find_fields(["prompt", "messages"])
    Fields(prompt='messages', answer=None, extra=None)
    """
    if prompt is None and answer is None:
        wanted = list(USUAL)
    else:
        prompts = dict.fromkeys(usual for usual, _ in USUAL) if prompt is None else [prompt]
        answers = dict.fromkeys(usual for _, usual in USUAL) if answer is None else [answer]
        wanted = [(one, other) for one in prompts for other in answers]
    for pair in wanted:
        if set(pair) <= set(names):
            extra = _INPUT[1] if prompt is None and pair[0] == _INPUT[0] and _INPUT[1] in names else None
            return Fields(*pair, extra)
    conversation = prompt or _CONVERSATION
    return Fields(conversation) if answer is None and conversation in names else None


@dataclass
class _PairFile(RecordFile):
    """Each record is a `Pair`."""

    fields: Fields | None = None  # those of the first row that has some

    def columns(self, names: Sequence[str]) -> list[str]:
        self.fields = self._find(names)
        if self.fields is None:
            raise ValueError(f"{self.name} has {self._missing(names)}")
        return [*self.fields.needed, *([self.fields.extra] if self.fields.extra else [])]

    def of_cells(self, cells: Sequence[Any], where: str) -> Iterator[Pair]:
        if len(cells) == 1:
            yield from self._of_conversation(cells[0], where)
        elif self.is_text(cells[0], where, "prompt") and self.is_text(cells[1], where, "answer"):
            extras = [cell for cell in cells[2:] if cell is not None and cell != ""]
            if all(self.is_text(extra, where, _INPUT[1]) for extra in extras):
                yield from self._unless_empty(Pair((("user", "\n\n".join([cells[0], *extras])),), cells[1]), where)

    def of_row(self, row: Any, where: str) -> Iterator[Pair]:
        if not isinstance(row, dict):
            self.bad(f"{where}: a JSON object with a prompt and an answer belongs here, not {reprlib.repr(row)}")
            return
        self.fields = self.fields or self._find(list(row))
        if self.fields is None or not set(self.fields.needed) <= set(row):
            self.bad(f"{where}: {self._missing(list(row))}")
            return
        extra = [row.get(self.fields.extra)] if self.fields.extra else []
        yield from self.of_cells([*(row[name] for name in self.fields.needed), *extra], where)

    def _of_conversation(self, messages: Any, where: str) -> Iterator[Pair]:
        """Up to the last turn of the assistant, which is the answer."""
        problem = _problem(messages)
        if problem:
            self.bad(f"{where}: {problem}")
            return
        turns = tuple((message["role"], message["content"]) for message in messages)
        if all(self.is_text(content, where, f"turn of the {role}") for role, content in turns):
            last = max(number for number, (role, _) in enumerate(turns) if role == "assistant")
            yield from self._unless_empty(Pair(turns[:last], turns[last][1]), where)

    def _unless_empty(self, pair: Pair, where: str) -> Iterator[Pair]:
        """The pair without what is to be removed, if both sides of it say something."""
        if self.source.remove:
            pair = replace(pair, answer=re.sub(self.source.remove, "", pair.answer))
        empty = [] if any(content.strip() for _, content in pair.messages) else ["prompt"]
        empty += [] if pair.answer.strip() else ["answer"]
        if empty:
            self.bad(
                f"{where}: the {' and the '.join(empty)} of this pair {'is' if len(empty) == 1 else 'are'} empty; "
                "write something there, or leave such pairs out and count them (--skip-bad)"
            )
        else:
            yield pair

    def _find(self, names: Sequence[str]) -> Fields | None:
        return find_fields(names, self.source.prompt_field, self.source.answer_field)

    def _missing(self, names: Sequence[str]) -> str:
        wanted = self.fields.needed if self.fields else [self.source.prompt_field, self.source.answer_field]
        lost = [repr(name) for name in wanted if name is not None and name not in names]
        what = f"no field {' and no field '.join(lost)}" if lost else "no fields with the usual names"
        there = ", ".join(map(repr, names)) or "nothing"
        return f"{what}, only {there}; say which hold the prompt and the answer (--prompt-field, --answer-field)"


def _problem(messages: Any) -> str | None:
    """What is wrong with a conversation."""
    if not isinstance(messages, list):
        return (
            f"a list of messages with role and content belongs here, not {reprlib.repr(messages)}; "
            "if the answer has a field of its own, name it (--answer-field)"
        )
    for message in messages:
        if not isinstance(message, dict) or not {"role", "content"} <= set(message):
            return f"a message has a role and a content, this one is {reprlib.repr(message)}"
    roles = [message["role"] for message in messages]
    if "assistant" not in roles[1:]:
        return f"the assistant answers nobody: the roles are {', '.join(map(str, roles)) or 'none'}"
    return None
