"""Accuracy of generated solutions: the final numbers are compared, the way there is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flexmdm.data.formats import read_jsonl
from flexmdm.evaluation.intervals import Interval, rate
from flexmdm.tasks.math.answers import extract_answer
from flexmdm.tasks.math.problems import WordProblem


@dataclass(frozen=True)
class Item:
    """A generated solution and what it is worth; a line of an evaluation's .jsonl.

    Attributes:
        number: which problem of the file it solves, from 0.
        question: of that problem.
        generation: the whole of what the model wrote.
        answer: the number that was found in it, or ``None``.
        gold: the right one.
    """

    number: int
    question: str
    generation: str
    answer: str | None
    gold: str

    @property
    def correct(self) -> bool:
        return self.answer == self.gold

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"correct": self.correct}


@dataclass(frozen=True)
class MathScore:
    """How many solutions end with the right number.

    Attributes:
        items: in the order in which they were given.
        accuracy: with its 95% Wilson interval.
        unanswered: solutions without any number; they count as wrong.
    """

    items: tuple[Item, ...]
    accuracy: Interval
    unanswered: int

    def to_dict(self) -> dict[str, Any]:
        return {"problems": len(self.items), "accuracy": asdict(self.accuracy), "unanswered": self.unanswered}


def judged(number: int, problem: WordProblem, generation: str) -> Item:
    """The record of one generation.

    >>> item = judged(0, WordProblem("How many clips?", "48 + 24 = 72\\n#### 72"), "She sold 72 clips.")
    >>> item.answer, item.correct
    ('72', True)
    """
    return Item(number, problem.question, generation, extract_answer(generation), problem.final)


def score(items: Sequence[Item]) -> MathScore:
    """The accuracy of judged generations."""
    if not items:
        raise ValueError("there is nothing to score: give at least one generation")
    right = sum(item.correct for item in items)
    return MathScore(tuple(items), rate(right, len(items)), sum(item.answer is None for item in items))


def read_items(file: Path, problems: Sequence[WordProblem]) -> list[Item]:
    """Generations from a .jsonl with ``number`` and ``generation`` on each line, judged anew; one for each problem."""
    items: dict[int, Item] = {}
    for where, record in read_jsonl(Path(file), ["generation"]):
        number = record.get("number")
        if not isinstance(number, int) or not 0 <= number < len(problems):
            raise ValueError(f"{where}: the field 'number' must be from 0 to {len(problems) - 1}, got {number!r}")
        if number in items:
            raise ValueError(f"{where}: there is already a generation for problem {number}")
        items[number] = judged(number, problems[number], record["generation"])
    missing = [number for number in range(len(problems)) if number not in items]
    if missing:
        raise ValueError(
            f"{file} has no generation for {len(missing)} of {len(problems)} problems, the first being {missing[0]}; "
            "every problem needs one, if only an empty string"
        )
    return [items[number] for number in range(len(problems))]
