import json

import pytest

from flexmdm.tasks.math.problems import WordProblem
from flexmdm.tasks.math.scoring import judged, read_items, score

PROBLEMS = [
    WordProblem(f"What is {n} + {n}?", f"{n} + {n} = <<{n}+{n}={2 * n}>>{2 * n}\n#### {2 * n}") for n in range(4)
]
GENERATIONS = ["#### 0", "The answer is 2.", "It is 5.", "no idea"]


def test_accuracy_by_hand():
    scored = score([judged(n, PROBLEMS[n], text) for n, text in enumerate(GENERATIONS)])
    assert [item.correct for item in scored.items] == [True, True, False, False]
    assert scored.accuracy.value == 0.5 and 0.1 < scored.accuracy.low < 0.2 < 0.8 < scored.accuracy.high < 0.9
    assert scored.unanswered == 1
    assert [item.strict for item in scored.items] == [True, False, False, False] and scored.strict.value == 0.25
    written = scored.to_dict()
    assert (written["problems"], written["accuracy"]["value"], written["strict"]["value"]) == (4, 0.5, 0.25)
    assert scored.items[1].to_dict() == {
        "number": 1, "question": "What is 1 + 1?", "generation": "The answer is 2.", "answer": "2", "gold": "2",
        "strict_answer": None, "correct": True, "strict": False,
    }  # fmt: skip


def test_items_are_judged_anew_from_their_file(tmp_path):
    file = tmp_path / "items.jsonl"
    items = [judged(n, PROBLEMS[n], text) for n, text in enumerate(GENERATIONS)]
    file.write_text("".join(json.dumps(item.to_dict()) + "\n" for item in reversed(items)))
    assert read_items(file, PROBLEMS) == items


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (['{"number": 4, "generation": ""}'], "line 1: the field 'number' must be from 0 to 3, got 4"),
        (['{"generation": ""}'], "line 1: the field 'number' must be from 0 to 3, got None"),
        (['{"number": 0, "generation": ""}'] * 2, "line 2: there is already a generation for problem 0"),
        (['{"number": 1, "generation": ""}'], "no generation for 3 of 4 problems, the first being 0"),
        (["", '{"number": 0'], "line 2: malformed JSON"),
        (['{"number": 0, "generation": 1}'], "line 1: the field 'generation' is 1, which is no string"),
    ],
)
def test_bad_items_are_errors_that_say_where(tmp_path, lines, problem):
    file = tmp_path / "items.jsonl"
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=problem):
        read_items(file, PROBLEMS)


def test_nothing_has_no_accuracy():
    with pytest.raises(ValueError, match="nothing to score"):
        score([])
