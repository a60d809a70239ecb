import gzip

import pytest

from flexmdm.data.formats import read_jsonl


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_objects_come_with_their_place(tmp_path, name):
    file, text = tmp_path / name, b'{"a": "x"}\n\n{"a": "y", "b": 1}\r\n'
    file.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert list(read_jsonl(file, ["a"])) == [(f"{file}, line 1", {"a": "x"}), (f"{file}, line 3", {"a": "y", "b": 1})]


def test_a_file_that_was_cut_off_is_an_error(tmp_path):
    file = tmp_path / "rows.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"a": "x"}\n' * 100)[:-20])
    with pytest.raises(ValueError, match="rows.jsonl.gz is no whole gzip file"):
        list(read_jsonl(file, ["a"]))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"a": "x"}\n{"a": ', "line 2: malformed JSON"),
        (b"\xff\n", "line 1: byte 0xff at byte offset 0 is not UTF-8"),
        (b"[" * 100_000, "line 1: malformed JSON"),
        (b"3", "line 1: a JSON object belongs here, not 3"),
        (b'{"b": "x"}', "line 1: there is no field 'a', only 'b'"),
        (b'{"a": 1}', "line 1: the field 'a' is 1, which is no string"),
    ],
)
def test_errors_say_where(tmp_path, text, problem):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(text)
    with pytest.raises(ValueError, match=problem):
        list(read_jsonl(file, ["a"]))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        list(read_jsonl(tmp_path / "none.jsonl", []))
