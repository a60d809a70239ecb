"""GSM8K (Cobbe et al., 2021): word problems of grade school with worked solutions, as in the official files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from flexmdm.data.records import records
from flexmdm.tasks.math.answers import extract_answer

_MARKER = "####"
_ANNOTATION = re.compile(r"<<[^<>]*>>")


@dataclass(frozen=True)
class WordProblem:
    """A question and its worked answer, which ends with ``#### 42`` and has calculator annotations.

    >>> problem = WordProblem("How many?", "She has 48/2 = <<48/2=24>>24 clips.\\n#### 24")
    >>> problem.final, problem.worked
    ('24', 'She has 48/2 = 24 clips.\\n#### 24')
    """

    question: str
    answer: str

    @property
    def final(self) -> str:
        """The number, in the form of `extract_answer`."""
        found = extract_answer(self.answer.rpartition(_MARKER)[2])
        if found is None:
            raise ValueError(f"the answer to {self.question!r} ends with no number")
        return found

    @property
    def worked(self) -> str:
        """The answer without annotations: what a model without a calculator learns to write."""
        return without_annotations(self.answer)


def without_annotations(answer: str) -> str:
    """A solution without what a calculator was asked, ``<<48/2=24>>``; the result that follows it stays.

    >>> without_annotations("48/2 = <<48/2=24>>24 clips")
    '48/2 = 24 clips'
    """
    return _ANNOTATION.sub("", answer)


def prompt_for(question: str) -> str:
    """The instruction that a model gets; what it writes next is its answer.

    >>> prompt_for("How many clips?")
    'Question: How many clips?\\nAnswer: '
    """
    return f"Question: {question.strip()}\nAnswer: "


def read_problems(place: Path, split: str = "test") -> list[WordProblem]:
    """Problems in the order of the file.

    Args:
        place: the folder of the official files, ``train.jsonl`` and ``test.jsonl`` (each also as .gz), or one file.
        split: ``train`` or ``test``, from a folder.
    """
    file = _file(Path(place), split)
    problems = []
    for where, record in records(file, ["question", "answer"]):
        head, marker, last = record["answer"].rpartition(_MARKER)
        if not marker or extract_answer(last) is None:
            raise ValueError(f"{where}: the answer must end with {_MARKER} and a number")
        problems.append(WordProblem(record["question"], record["answer"]))
    if not problems:
        raise ValueError(f"there are no problems in {file}")
    return problems


def _file(place: Path, split: str) -> Path:
    if not place.is_dir():
        return place
    for ending in (".jsonl", ".jsonl.gz"):
        if (place / (split + ending)).is_file():
            return place / (split + ending)
    raise FileNotFoundError(
        f"{place} has no {split}.jsonl or {split}.jsonl.gz; it is in github.com/openai/grade-school-math"
    )
