import gzip
import json

import pytest

from flexmdm.tasks.math.problems import WordProblem, read_problems

ROWS = [
    {"question": "How many clips?", "answer": "48/2 = <<48/2=24>>24 in May.\n48+24 = <<48+24=72>>72.\n#### 72"},
    {"question": "How much?", "answer": "It is $<<1000*2=2000>>2,000.\n#### 2,000"},
]


def write(file, rows):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
    return file


@pytest.mark.parametrize("name", ["test.jsonl", "test.jsonl.gz"])
def test_official_files_are_read_from_their_folder(tmp_path, name):
    file = write(tmp_path / name, ROWS)
    for path in (tmp_path, file):
        problems = read_problems(path, "test")
        assert [problem.final for problem in problems] == ["72", "2000"]
        assert problems[0] == WordProblem(**ROWS[0])


@pytest.mark.parametrize(
    ("answer", "number"),
    [("#### -5", "-5"), ("####42", "42"), ("#### $1,200.", "1200"), ("#### 5\n#### .75 \n", ".75"), ("#### 7\n", "7")],
)
def test_the_number_stands_behind_the_last_marker(answer, number):
    assert WordProblem("?", answer).final == number


def test_errors_say_where(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no train.jsonl or train.jsonl.gz"):
        read_problems(tmp_path, "train")
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_problems(tmp_path / "missing.jsonl")
    with pytest.raises(ValueError, match=r"bad.jsonl, line 2: the answer must end with #### and a number"):
        read_problems(write(tmp_path / "bad.jsonl", [ROWS[0], {"question": "?", "answer": "42"}]))
    for answer in ("#### 42\nSo it is.", "#### 42 clips", "#### 3/4", "####"):
        with pytest.raises(ValueError, match=r"bad.jsonl, line 1: the answer must end with #### and a number"):
            read_problems(write(tmp_path / "bad.jsonl", [{"question": "?", "answer": answer}]))
        with pytest.raises(ValueError, match=r"the answer to '\?' must end with #### and a number"):
            _ = WordProblem("?", answer).final
    with pytest.raises(ValueError, match=r"line 1: there is no field 'answer', only 'question'"):
        read_problems(write(tmp_path / "bad.jsonl", [{"question": "?"}]))
    with pytest.raises(ValueError, match="there are no problems"):
        read_problems(write(tmp_path / "none.jsonl", []))
