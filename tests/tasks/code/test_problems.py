import json

import pytest

from flexmdm.tasks.code.problems import Problem, Sample, read_problems, read_samples


def test_official_files_are_read_from_their_folder(folder, rows):
    problems = read_problems(folder, "single-line")
    assert list(problems.values()) == [Problem(**row) for row in rows]
    assert read_problems(folder, "random-span") == problems
    assert read_problems(folder / "HumanEval-RandomSpanInfilling.jsonl") == problems


def test_a_program_is_the_function_with_the_gap_filled(rows):
    problem = Problem(**rows[1])
    program = problem.program("    y = 5\n")
    assert program.source == rows[1]["prompt"] + "    y = 5\n    return y\n" + "\n" + "\n\n"
    assert program.context == rows[1]["prompt"] + rows[1]["canonical_solution"] + rows[1]["suffix"]


def test_samples_are_read_in_order(folder, rows, write_samples):
    pairs = [(row["task_id"], f"    y = {number}\n") for number, row in enumerate(rows + rows)]
    assert read_samples(write_samples(pairs), read_problems(folder)) == [Sample(*pair) for pair in pairs]


def test_problem_errors_say_what_to_do(folder, rows, tmp_path):
    with pytest.raises(ValueError, match="no split 'lines'; choose from single-line, multi-line, random-span"):
        read_problems(folder, "lines")
    with pytest.raises(FileNotFoundError, match=r"has no HumanEval-MultiLineInfilling.jsonl.gz; it is in github"):
        read_problems(folder, "multi-line")
    file = tmp_path / "twice.jsonl"
    file.write_text((json.dumps(rows[0]) + "\n") * 2)
    with pytest.raises(ValueError, match=r"twice.jsonl, line 2: the task 'SingleLine.*' stands twice"):
        read_problems(file)
    file.write_text(json.dumps({"task_id": "a"}))
    with pytest.raises(ValueError, match=r"line 1: there is no field 'prompt', only 'task_id'"):
        read_problems(file)
    file.write_text("")
    with pytest.raises(ValueError, match="there are no problems in"):
        read_problems(file)
    (folder / "HumanEval-SingleLineInfilling.jsonl.gz").write_bytes(b"\x1f\x8b\x08cut")
    with pytest.raises(ValueError, match="is no whole gzip file"):
        read_problems(folder)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (
            ['{"task_id": "X/1", "completion": ""}'],
            "line 1: there is no task 'X/1'; the problems are such as 'SingleLi",
        ),
        (["", '{"task_id": "X/1"'], "line 2: malformed JSON"),
        (["[]"], "line 1: a JSON object belongs here"),
        (['{"task_id": "X/1"}'], "line 1: there is no field 'completion', only 'task_id'"),
        (['{"task_id": "X/1", "completion": null}'], "line 1: the field 'completion' is None, which is no string"),
        (
            ['{"task_id": "SingleLineInfilling/Test/1/L0", "completion": ""}'],
            "no completion for 2 of 3 tasks, the first being 'SingleLineInfilling/Test/0/L0'",
        ),
        ([], "no completion for 3 of 3 tasks"),
    ],
)
def test_sample_errors_say_where(folder, tmp_path, lines, problem):
    file = tmp_path / "samples.jsonl"
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=problem):
        read_samples(file, read_problems(folder))
