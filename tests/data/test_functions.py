"""Functions out of programs: which, as what text, and what becomes of what is no Python."""

import ast
import json

import pytest

from flexmdm.data.functions import CodeSource, functions_of, lines_of
from flexmdm.data.reading import ReadReport, files, numbered

GOOD = "def one(x):\n    y = x + 1\n    return y\n"


def test_functions_and_methods_come_dedented_with_their_decorators():
    program = (
        "@cache\ndef f(x):\r\n    return x\n\nclass A:\n    class B:\n        async def g(self):\n"
        "            def h():\n                pass\n            return h\n\nif True:\n"
        "    try:\n        def k(a,\n              b):\n"
        "            return (a +\n  b)\n    except ValueError:\n        pass\n"
    )
    found = functions_of(program)
    assert found == [
        "@cache\ndef f(x):\n    return x\n",
        "async def g(self):\n    def h():\n        pass\n    return h\n",
        "def k(a,\n      b):\n    return (a +\n  b)\n",
    ]
    for text in found:
        (node,) = ast.parse(text).body
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    assert functions_of(program, min_lines=4) == found[1:]
    assert functions_of("def f(): pass\nx = 1\n") == []


def test_what_stands_left_of_the_margin_is_no_obstacle():
    program = (
        "class A:\n    def f(self):\n        return [1,\n2,\n3]\n\n"
        "    def g(self):\n        '''\nleft'''\n        return 1\n\n"
        "    def h(self):\n      # comment\n  # less\n      return 1\n"
    )
    assert [text.split("(")[0] for text in functions_of(program)] == ["def f", "def g", "def h"]
    with pytest.raises(ValueError, match="no Python"):
        functions_of("class A:\n    def f(self):\n        x = 1\n\treturn x\n")


def test_only_line_feeds_end_a_line():
    text = "a\x0c\u2028b\r\n\n c"
    assert lines_of(text) == ["a\x0c\u2028b\r\n", "\n", " c"] and "".join(lines_of(text)) == text
    assert lines_of("") == []


def test_files_that_are_no_python_are_counted_and_skipped(tmp_path):
    (tmp_path / "a.py").write_text(GOOD + "\n" + GOOD.replace("one", "two"))
    (tmp_path / "b.py").write_text("print 'two'\n")
    (tmp_path / "c.py").write_bytes(b"# coding: latin-1\n" + GOOD.replace("y", "\u00e9").encode("latin-1"))
    (tmp_path / "d.py").write_bytes(b"x = '\xff'\n")
    (tmp_path / "e.py").write_text("x = 1\n")
    report = ReadReport()
    found = list(numbered(CodeSource((str(tmp_path),)), report))
    assert [number for number, _ in found] == [0, 0, 1]  # a file is held out as a whole
    assert found[2][1] == GOOD.replace("y", "é")
    assert report.skipped == 2 and "b.py, it is no Python (line 1: " in report.first_problem
    assert report.bytes > 0 and report.documents == 3


def test_rows_have_their_code_in_a_field(tmp_path):
    file = tmp_path / "code.jsonl"
    rows = [{"code": GOOD, "id": 1}, {"code": "def (", "id": 2}, {"code": GOOD + GOOD, "id": 3}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = ReadReport()
    assert list(numbered(CodeSource((str(file),)), report)) == [(0, GOOD), (1, GOOD), (1, GOOD)]
    assert report.skipped == 1 and "line 2: it is no Python" in report.first_problem
    with pytest.raises(ValueError, match=r"no field 'text', only 'code', 'id'; say which field holds the code"):
        list(numbered(CodeSource((str(file),), field="text")))
    with pytest.raises(ValueError, match="line 1: the text is 1, which is no string"):
        list(numbered(CodeSource((str(file),), field="id")))


def test_a_source_without_functions_says_so(tmp_path):
    file = tmp_path / "a.py"
    for content, reason in [
        ("x = 1\n", "no function that is long enough"),
        ("x = = 1\n", "every program is bad; the first bad program: .*a.py, it is no Python"),
        ("", "it is empty"),
    ]:
        file.write_text(content)
        with pytest.raises(ValueError, match=reason):
            list(numbered(CodeSource((str(file),))))


def test_the_standard_library_is_read_without_tests_and_what_was_installed():
    there = files(CodeSource(("stdlib",)))
    names = {file.name for file in there}
    assert {"textwrap.py", "fractions.py"} <= names and len(there) > 200
    parts = {part for file in there for part in file.parts}
    assert not parts & {"site-packages", "test", "tests", "idle_test"}


def test_a_configuration_of_a_dataset_can_be_named(monkeypatch):
    import sys
    from types import SimpleNamespace

    asked = []

    def load_dataset(*which, split, streaming):
        asked.append((*which, split))
        return [{"code": GOOD}]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    for name in ("hf:owner/name/part", "hf:owner/name:test", "owner/name"):
        assert list(numbered(CodeSource((name,)))) == [(0, GOOD)]
    assert asked == [("owner/name", "part", "train"), ("owner/name", "test"), ("owner/name", "train")]
