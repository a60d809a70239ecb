"""Generated problems: every line is right, the last is the answer, and training and test share no solution."""

import json
import re
import sys

import pytest

from flexmdm.tasks.math.answers import extract_answer
from flexmdm.tasks.math.arithmetic import main, problems, split_of
from flexmdm.tasks.math.problems import read_problems


def solved(question):
    """What comes out, from the question alone."""
    start, *events = question.removesuffix(".").split(", ")
    number = int(start.split()[2])
    for event in events:
        match event.split():
            case ["doubles", "them"]:
                number *= 2
            case ["gets", boxes, "boxes", "of", each]:
                number += int(boxes) * int(each)
            case ["gets", more]:
                number += int(more)
            case ["loses", fewer]:
                number -= int(fewer)
            case _:
                raise AssertionError(event)
    return number


def test_every_problem_is_right():
    for problem in problems(2000, seed=1):
        *lines, last = problem.answer.split("\n")
        for line in lines:
            left, right = line.split("=")
            assert re.fullmatch(r"\d+[-+*]\d+", left) and eval(left) == int(right)
        assert last == f"#### {solved(problem.question)}" and lines[-1].endswith(f"={problem.final}")
        assert extract_answer(problem.answer) == problem.final
        assert all(1 <= int(number) <= 99 for number in re.findall(r"\d+", problem.question + problem.answer))


@pytest.mark.parametrize("largest", [2, 9, 30])
def test_no_number_is_larger_than_it_may_be(largest):
    for problem in problems(40, events=(1, 3), largest=largest):
        numbers = list(map(int, re.findall(r"\d+", problem.answer)))
        assert max(numbers) <= largest and min(numbers) >= 1 and solved(problem.question) == int(problem.final)


def test_solutions_have_different_lengths_also_for_questions_of_one_length():
    found = problems(2000)
    assert {problem.answer.count("\n") for problem in found} >= set(range(1, 9))
    three = {problem.answer.count("\n") for problem in found if problem.question.count(",") == 3}
    assert three >= {3, 4, 5}


def test_training_and_test_share_no_solution_whatever_the_seeds():
    train = {problem.answer for problem in problems(3000, seed=0)}
    test = {problem.answer for problem in problems(500, seed=1, split="test")}
    assert not train & test
    assert {split_of(problem) for problem in problems(50, split="test")} == {"test"}


def test_problems_are_different_and_belong_to_the_seed():
    found = problems(1000)
    assert len({problem.question for problem in found}) == 1000
    assert problems(10) == found[:10] != problems(10, seed=1)
    assert all(problem.question.count(",") == 2 for problem in problems(20, events=(2, 2)))


def test_problems_are_written_to_a_file(tmp_path, monkeypatch, capsys):
    file = tmp_path / "new" / "arithmetic.jsonl"
    monkeypatch.setattr(sys, "argv", ["arithmetic", "--num", "20", "--split", "test", "--out", str(file)])
    main()
    assert read_problems(file) == problems(20, split="test")
    assert list(json.loads(file.read_text().splitlines()[0])) == ["question", "answer"]
    monkeypatch.setattr(sys, "argv", ["arithmetic", "--events", "3", "2", "--out", str(file)])
    with pytest.raises(SystemExit):
        main()
    assert "at least one event" in capsys.readouterr().err


def test_what_there_is_not_is_said(monkeypatch):
    monkeypatch.setattr("flexmdm.tasks.math.arithmetic._MOST_MISSES", 50)
    with pytest.raises(ValueError, match="no split 'dev'"):
        problems(1, split="dev")
    with pytest.raises(ValueError, match="there are not 50,000 problems with 1 to 1 events"):
        problems(50_000, split="test", events=(1, 1))
