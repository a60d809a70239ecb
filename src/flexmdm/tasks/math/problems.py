"""GSM8K (Cobbe et al., 2021): word problems of grade school with worked solutions, as in the official files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from flexmdm.data.formats import read_jsonl
from flexmdm.tasks.math.answers import normalise

SIZES = {"test": 1319, "train": 7473}  # problems of the official splits
_FINAL = re.compile(r"####\s*(-?[$0-9.,]*[0-9]\.?)\s*$")


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
        """Return the number behind the last ``####``, in the form of `extract_answer`."""
        found = _FINAL.search(self.answer)
        if found is None:
            raise ValueError(f"the answer to {self.question!r} must end with #### and a number")
        return normalise(found[1])


def read_problems(path: Path, split: str = "test") -> list[WordProblem]:
    """Read problems in the order of the file: one file, or that of a split in the folder of the official files."""
    file = file_of(Path(path), split)
    problems = []
    for where, record in read_jsonl(file, ["question", "answer"]):
        if not _FINAL.search(record["answer"]):
            raise ValueError(f"{where}: the answer must end with #### and a number")
        problems.append(WordProblem(record["question"], record["answer"]))
    if not problems:
        raise ValueError(f"there are no problems in {file}")
    return problems


def file_of(path: Path, split: str = "test") -> Path:
    """Return the file of a split, ``train`` or ``test``, in a folder; or the file that was given."""
    if not path.is_dir():
        return path
    for ending in (".jsonl", ".jsonl.gz"):
        if (path / (split + ending)).is_file():
            return path / (split + ending)
    raise FileNotFoundError(
        f"{path} has no {split}.jsonl or {split}.jsonl.gz (--split); GSM8K, in github.com/openai/grade-school-math, "
        f"has {' and '.join(SIZES)}"
    )
