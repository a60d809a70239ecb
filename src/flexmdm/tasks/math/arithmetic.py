"""Generated word problems with worked solutions of different lengths, which a small model can learn to solve.

    python -m flexmdm.tasks.math.arithmetic --num 50000 --out arithmetic.jsonl
    python -m flexmdm.tasks.math.arithmetic --num 1000 --split test --out arithmetic-test.jsonl

A problem is a chain of one to five events, such as ``Mia has 7 pens, gets 5, gets 2 boxes of 4, doubles them.`` Its
solution has a line for each calculation, ``7+5=12``, ``2*4=8``, ``12+8=20``, ``20*2=40``, and ends with ``#### 40``, as
those of GSM8K. All numbers are from 1 to ``--largest``, 99 unless said otherwise: the smaller they are, the sooner a
network knows all sums and products. Boxes take two lines, so a question does not tell at a glance how long its
solution is.

Whether a problem is for training or for the test is decided by a hash of its solution: whatever the seeds, the two
share no solution, also not under other names. In the test every solution stands once, so that its problems are
independent of each other.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import asdict
from pathlib import Path
from zlib import crc32

from flexmdm.tasks.math.problems import WordProblem

SPLITS = ("train", "test")
_TEST_SHARE = 10  # one in so many
_LARGEST = 99
_AMOUNT = 20  # at most, of what is had at first, got or lost
_MOST_MISSES = 500  # tries without a new problem
_NAMES = ("Ann", "Ben", "Eva", "Ida", "Leo", "Mia", "Sam", "Tom")
_THINGS = ("pens", "eggs", "nuts", "cups", "keys", "figs", "caps", "pins")


def problems(
    num: int, seed: int = 0, split: str = "train", events: tuple[int, int] = (1, 5), largest: int = _LARGEST
) -> list[WordProblem]:
    r"""Draw ``num`` different problems of a split, of which fewer are the first of more with the same seed.

    A chain has from one of ``events`` to the other. Each number is drawn equally often, but of short chains there are
    not many different ones, so that they are rarer among what is found. No number is above ``largest``.

    >>> problem = problems(1, seed=4)[0]
    >>> problem.question, problem.answer
    ('Leo has 13 eggs, gets 16, loses 18.', '13+16=29\n29-18=11\n#### 11')
    """
    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r}; choose from {', '.join(SPLITS)}")
    low, high = events
    if num < 0 or not 1 <= low <= high:
        raise ValueError(f"num is not negative, and a chain has at least one event; got {num} and {low} to {high}")
    if largest < 2:
        raise ValueError(f"the largest number must be at least 2, got {largest}")
    rng = random.Random(seed)
    found: dict[str, WordProblem] = {}
    misses = 0
    while len(found) < num:
        problem = _problem(rng, rng.randint(low, high), largest)
        misses += 1
        what = problem.answer if split == "test" else problem.question
        if split_of(problem) == split and what not in found:
            found[what], misses = problem, 0
        if misses > _MOST_MISSES:
            raise ValueError(
                f"there are not {num:,} problems with {low} to {high} events: ask for fewer or longer ones"
            )
    return list(found.values())


def split_of(problem: WordProblem) -> str:
    """Return ``train`` or ``test``, by the solution alone."""
    return "test" if crc32(problem.answer.encode()) % _TEST_SHARE == 0 else "train"


def _problem(rng: random.Random, events: int, largest: int) -> WordProblem:
    name, thing = rng.choice(_NAMES), rng.choice(_THINGS)
    number = rng.randint(1, min(_AMOUNT, largest))
    phrases, worked = [f"{name} has {number} {thing}"], []
    for _ in range(events):
        event, lines, number = rng.choice(_possible(rng, number, largest))
        phrases.append(event)
        worked += lines
    return WordProblem(", ".join(phrases) + ".", "\n".join([*worked, f"#### {number}"]))


def _possible(rng: random.Random, number: int, largest: int) -> list[tuple[str, list[str], int]]:
    """Return the possible next events: a phrase, the calculations, and the number after it."""
    more, fewer = rng.randint(1, _AMOUNT), rng.randint(1, _AMOUNT)
    boxes, each = rng.randint(2, 5), rng.randint(2, 9)
    if number < largest:
        more = (more - 1) % (largest - number) + 1  # at least one of the two is always possible
    if number > 1:
        fewer = (fewer - 1) % (number - 1) + 1
    inside = boxes * each
    every = [
        (f"gets {more}", [], f"{number}+{more}", number + more),
        (f"loses {fewer}", [], f"{number}-{fewer}", number - fewer),
        ("doubles them", [], f"{number}*2", number * 2),
        (f"gets {boxes} boxes of {each}", [f"{boxes}*{each}={inside}"], f"{number}+{inside}", number + inside),
    ]
    return [
        (event, [*before, f"{formula}={after}"], after)
        for event, before, formula, after in every
        if 1 <= after <= largest
    ]


def main() -> None:
    """Write problems to a file."""
    parser = argparse.ArgumentParser(description="Generated word problems with worked solutions, as JSON lines.")
    parser.add_argument("--num", type=int, default=50_000, help="how many")
    parser.add_argument("--out", type=Path, required=True, help="the .jsonl to write")
    parser.add_argument("--split", choices=SPLITS, default="train")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--events", type=int, nargs=2, default=(1, 5), metavar=("FROM", "TO"))
    parser.add_argument("--largest", type=int, default=_LARGEST, help="of all numbers")
    options = parser.parse_args()
    try:
        written = problems(options.num, options.seed, options.split, tuple(options.events), options.largest)
    except ValueError as error:
        parser.error(str(error))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("".join(json.dumps(asdict(problem)) + "\n" for problem in written), encoding="utf-8")
    print(f"{len(written):,} problems in {options.out}")


if __name__ == "__main__":
    main()
