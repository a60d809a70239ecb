"""GSM8K (Cobbe et al., 2021): word problems of grade school with worked solutions, as in the official files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flexmdm.data.formats import read_jsonl
from flexmdm.tasks.math.answers import extract_answer

SIZES = {"test": 1319, "train": 7473}
"""The official splits, and how many problems they have."""

_MARKER = "####"


@dataclass(frozen=True)
class WordProblem:
    """A question and its worked answer, which ends with ``#### 42`` and has calculator annotations.

    >>> problem = WordProblem("How many?", "She has 48/2 = <<48/2=24>>24 clips.\\n#### 24")
    >>> problem.final
    '24'
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


def read_problems(place: Path, split: str = "test") -> list[WordProblem]:
    """Problems in the order of the file.

    Args:
        place: the folder of the official files, ``train.jsonl`` and ``test.jsonl`` (each also as .gz), or one file.
        split: ``train`` or ``test``, from a folder.
    """
    file = file_of(Path(place), split)
    problems = []
    for where, record in read_jsonl(file, ["question", "answer"]):
        head, marker, last = record["answer"].rpartition(_MARKER)
        if not marker or extract_answer(last) is None:
            raise ValueError(f"{where}: the answer must end with {_MARKER} and a number")
        problems.append(WordProblem(record["question"], record["answer"]))
    if not problems:
        raise ValueError(f"there are no problems in {file}")
    return problems


def file_of(place: Path, split: str = "test") -> Path:
    """Where the problems of a split are, see `read_problems`."""
    if not place.is_dir():
        return place
    for ending in (".jsonl", ".jsonl.gz"):
        if (place / (split + ending)).is_file():
            return place / (split + ending)
    raise FileNotFoundError(
        f"{place} has no {split}.jsonl or {split}.jsonl.gz (--split); GSM8K, in github.com/openai/grade-school-math, "
        f"has {' and '.join(SIZES)}"
    )
