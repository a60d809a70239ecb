import itertools
import json
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from flexmdm.sandbox import BROKE
from flexmdm.tasks.code import scoring
from flexmdm.tasks.code.problems import Problem, Sample
from flexmdm.tasks.code.scoring import pass_at_k, score


@pytest.fixture
def problems(rows):
    return {row["task_id"]: Problem(**row) for row in rows}


def canonical(problems):
    return [Sample(problem.task_id, problem.canonical_solution) for problem in problems.values()]


def test_canonical_solutions_pass_and_empty_ones_do_not(problems):
    scored = score(problems, canonical(problems), workers=2)
    assert scored.outcomes == {"passed": 3, "failed": 0, "timed out": 0}
    assert scored.pass_at[1].value == 1 and 0.4 < scored.pass_at[1].low < 0.5
    empty = score(problems, [Sample(task_id, "") for task_id in problems], workers=1)
    assert [item.result for item in empty.items] == ["failed: NameError: name 'y' is not defined"] * 3
    assert empty.pass_at[1].value == 0 and empty.to_dict()["outcomes"]["failed"] == 3


def test_a_filling_cannot_change_the_helpers_of_the_tests(problems):
    cheat = "    global helper\n    helper = lambda x: 7\n    y = 7\n"
    scored = score(problems, [Sample(task_id, cheat) for task_id in problems], workers=1)
    assert scored.outcomes["passed"] == 0


def test_a_line_that_goes_on_ends_as_in_one_text_with_the_tests(problems):
    """A backslash at the end joins the next line: a blank one, or the first of the tests."""
    first, second, _ = (Problem(**(vars(problem) | {"suffix": ""})) for problem in problems.values())
    texts = [Sample(first.task_id, "    return x \\"), Sample(second.task_id, "    return x + 1 \\")]
    scored = score({first.task_id: first, second.task_id: second}, texts, workers=1)
    assert [item.passed for item in scored.items] == [False, True]


def test_pass_at_k_of_several_samples(problems):
    right = canonical(problems)
    wrong = [Sample(task_id, "    y = None\n") for task_id in problems]
    scored = score(problems, right[:2] * 2 + wrong[:2] * 3 + wrong[2:] * 5 + right[:2] * 5 + wrong[2:] * 5, workers=2)
    assert scored.pass_at.keys() == {1, 10}
    assert scored.pass_at[1].value == pytest.approx((0.7 + 0.7 + 0) / 3)
    assert scored.pass_at[10].value == pytest.approx(2 / 3)
    assert [item.completion_id for item in scored.items[:6]] == [0, 0, 1, 1, 2, 2]


def test_no_right_sample_does_not_mean_that_there_can_be_none(problems):
    scored = score(problems, [Sample(task_id, "") for task_id in problems] * 10, workers=2)
    for k in (1, 10):
        assert (scored.pass_at[k].value, scored.pass_at[k].low) == (0, 0) and 0.5 < scored.pass_at[k].high < 0.6


def test_lines_of_one_function_tell_less_than_functions(problems):
    """Four tasks, of four functions or of two; the same are right."""
    two = list(problems.values())[:2]

    def scored(*names):
        some = [replace(two[number // 2], task_id=name) for number, name in enumerate(names)]
        fillings = [Sample(name, "    y = x + 0\n") for name in names]
        return score({one.task_id: one for one in some}, fillings, workers=2)

    apart, together = (
        scored("a/F/0/1", "a/F/1/1", "a/F/2/1", "a/F/3/1"),
        scored("a/F/0/1", "a/F/0/2", "a/F/1/1", "a/F/1/2"),
    )
    assert apart.pass_at[1].value == together.pass_at[1].value == 0.5
    assert together.pass_at[1].low < apart.pass_at[1].low - 0.05


def test_programs_run_on_the_cores_that_we_may_use(problems, monkeypatch):
    asked = []

    def run_all(programs, workers):
        asked.append(workers)
        return [(number, SimpleNamespace(result="passed")) for number in range(len(programs))]

    monkeypatch.setattr(scoring, "run_all", run_all)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 7}, raising=False)
    score(problems, canonical(problems))
    score(problems, canonical(problems), workers=5)
    monkeypatch.delattr(os, "sched_getaffinity")  # not every system has it
    monkeypatch.setattr(os, "cpu_count", lambda: 9)
    score(problems, canonical(problems))
    assert asked == [3, 5, 9]


def test_of_one_task_only_its_own_samples_tell(problems):
    task_id, problem = next(iter(problems.items()))
    samples = [Sample(task_id, problem.canonical_solution)] * 3 + [Sample(task_id, "")] * 7
    scored = score({task_id: problem}, samples, workers=1)
    assert scored.pass_at[1].value == 0.3 and 0.1 < scored.pass_at[1].low < scored.pass_at[1].high < 0.61
    assert (scored.pass_at[10].value, scored.pass_at[10].low, scored.pass_at[10].high) == (1, 0, 1)


def test_pass_at_k_by_counting():
    for num, right, k in ((5, 2, 2), (6, 0, 3), (6, 6, 1), (7, 3, 5)):
        draws = list(itertools.combinations([True] * right + [False] * (num - right), k))
        assert pass_at_k(num, right, k) == pytest.approx(sum(any(draw) for draw in draws) / len(draws))
    with pytest.raises(ValueError, match="k = 3"):
        pass_at_k(2, 1, 3)


def test_results_are_in_the_order_of_the_samples_and_scoring_goes_on(problems, tmp_path):
    results, samples = tmp_path / "deep" / "results.jsonl", canonical(problems)
    seen = []
    first = score(problems, samples, results=results, workers=2, progress=lambda *numbers: seen.append(numbers))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    lines = results.read_text().splitlines()
    assert [json.loads(line)["task_id"] for line in lines] == list(problems)
    assert json.loads(lines[0])["passed"] is True

    marked = lines[1].replace("passed", "failed: marked", 1)  # stands for what was found before
    results.write_text(marked + "\n" + lines[0][:20])  # the second is cut off
    second = score(problems, samples, results=results, workers=1)
    assert [item.result for item in second.items] == ["passed", json.loads(marked)["result"], "passed"]
    assert len(first.items) == len(results.read_text().splitlines()) == 3


def test_results_of_other_samples_are_an_error(problems, tmp_path):
    results = tmp_path / "results.jsonl"
    score(problems, canonical(problems), results=results, workers=1)
    with pytest.raises(ValueError, match=r"results.jsonl, line 1: this is the result of another sample; delete"):
        score(problems, [Sample(task_id, "") for task_id in problems], results=results)


def test_unknown_tasks_and_no_samples_are_errors(problems):
    with pytest.raises(ValueError, match="no task 'X'"):
        score(problems, [Sample("X", "")])
    with pytest.raises(ValueError, match="nothing to score"):
        score(problems, [])


def test_verdicts_of_other_tests_are_not_taken_over(problems, tmp_path):
    results, samples = tmp_path / "results.jsonl", canonical(problems)
    assert score(problems, samples, results=results, workers=1).pass_at[1].value == 1
    harder = {name: replace(problem, test="def check(f):\n    assert False") for name, problem in problems.items()}
    assert score(harder, samples, results=results, workers=1).pass_at[1].value == 0
    assert len(results.read_text().splitlines()) == len(samples)


def test_an_error_of_ours_counts_against_no_sample(problems, tmp_path, monkeypatch):
    """The disk is full after the first; what was found is kept."""
    results, samples = tmp_path / "results.jsonl", canonical(problems)

    def run_all(programs, workers):
        yield 1, SimpleNamespace(result="failed: marked")
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(scoring, "run_all", run_all)
        said = r"not all of the 3 samples could be tested \(No space left on device\); 1 verdicts are kept in .*results"
        with pytest.raises(OSError, match=said):
            score(problems, samples, results=results, workers=1)
    scored = score(problems, samples, results=results, workers=1)
    assert [item.result for item in scored.items] == ["passed", "failed: marked", "passed"]


def test_a_sandbox_that_broke_is_tried_again(problems, tmp_path):
    results, samples = tmp_path / "results.jsonl", canonical(problems)
    score(problems, samples, results=results, workers=1)
    results.write_text(results.read_text().replace('"result": "passed"', f'"result": "{BROKE}"', 1))
    assert BROKE in results.read_text()
    assert score(problems, samples, results=results, workers=1).outcomes["passed"] == 3
    assert BROKE not in results.read_text() and len(results.read_text().splitlines()) == 3
