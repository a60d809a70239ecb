"""Accuracy of generated solutions: only their final numbers are compared."""

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
    """A generated solution and its final number; a line of an evaluation's .jsonl."""

    number: int  # index of the problem in the file
    question: str
    generation: str
    answer: str | None  # the number that was found by the flexible rule
    gold: str
    strict_answer: str | None  # the number that was found by the strict rule

    @property
    def correct(self) -> bool:
        return self.answer == self.gold

    @property
    def strict(self) -> bool:
        return self.strict_answer == self.gold

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"correct": self.correct, "strict": self.strict}


@dataclass(frozen=True)
class MathScore:
    """The share of solutions that end with the right number, with 95% Wilson intervals."""

    items: tuple[Item, ...]
    accuracy: Interval  # by the flexible rule (lm-eval's ``flexible-extract``)
    strict: Interval  # by the strict rule (lm-eval's ``strict-match``)
    unanswered: int  # solutions without any number; they count as wrong

    def to_dict(self) -> dict[str, Any]:
        rates = {"accuracy": asdict(self.accuracy), "strict": asdict(self.strict)}
        return {"problems": len(self.items), **rates, "unanswered": self.unanswered}


def judged(number: int, problem: WordProblem, generation: str) -> Item:
    """Return the record of one generation.

    >>> item = judged(0, WordProblem("How many clips?", "48 + 24 = 72\\n#### 72"), "She sold 72 clips.")
    >>> item.answer, item.correct, item.strict
    ('72', True, False)
    """
    answer, strict_answer = extract_answer(generation), extract_answer(generation, strict=True)
    return Item(number, problem.question, generation, answer, problem.final, strict_answer)


def score(items: Sequence[Item]) -> MathScore:
    """Return the accuracy of judged generations."""
    if not items:
        raise ValueError("there is nothing to score: give at least one generation")
    accuracy = rate(sum(item.correct for item in items), len(items))
    strict = rate(sum(item.strict for item in items), len(items))
    return MathScore(tuple(items), accuracy, strict, sum(item.answer is None for item in items))


def read_items(file: Path, problems: Sequence[WordProblem]) -> list[Item]:
    """Read a .jsonl with ``number`` and ``generation`` on each line, one for each problem, and judge it anew."""
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
