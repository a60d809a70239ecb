"""Pairs are found under the usual names in every kind of file; what is missing or bad is said with its place."""

import gzip
import json
import sys
from types import SimpleNamespace

import pytest

from flexmdm.data.pairs import Pair, PairSource, find_fields
from flexmdm.data.reading import ReadReport, fingerprint, numbered


@pytest.fixture
def write(tmp_path):
    """Put objects, one per line, or text in a file; gives its path."""

    def write(name, content):
        if isinstance(content, list):
            content = "".join(json.dumps(row) + "\n" for row in content)
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
        return str(file)

    return write


def pairs(path, report=None, **settings):
    return [pair for _, pair in numbered(PairSource(path, **settings), report)]


def asked(question, answer):
    return Pair((("user", question),), answer)


@pytest.mark.parametrize(
    "row",
    [
        {"id": 1, "prompt": "1 + 1?", "answer": "2"},
        {"prompt": "1 + 1?", "completion": "2"},
        {"prompt": "1 + 1?", "response": "2"},
        {"answer": "2", "question": "1 + 1?"},
        {"instruction": "1 + 1?", "output": "2"},
        {"instruction": "1 + 1?", "input": "", "output": "2"},
        {"instruction": "1 + 1?", "input": None, "output": "2"},
        {"messages": [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]},
    ],
)
def test_the_usual_names_are_found(write, row):
    assert pairs(write("a.jsonl", [row])) == [asked("1 + 1?", "2")]


def test_annotations_for_a_calculator_are_left_out_of_answers(write):
    file = write("a.jsonl", [{"question": "<<How>> many?", "answer": "48/2 = <<48/2=24>>24 in May.\n#### 24"}])
    assert pairs(file, remove="<<[^<>]*>>") == [asked("<<How>> many?", "48/2 = 24 in May.\n#### 24")]
    with pytest.raises(ValueError, match="line 1: the answer of this pair is empty"):
        pairs(file, remove="(?s).*")


def test_an_instruction_takes_its_input_along(write):
    rows = [
        {"instruction": "Translate.", "input": "le chat", "output": "the cat"},
        {"instruction": "Say hi.", "output": "hi"},
    ]
    expected = [asked("Translate.\n\nle chat", "the cat"), asked("Say hi.", "hi")]
    assert pairs(write("a.jsonl", rows)) == expected
    named = pairs(write("b.jsonl", rows), prompt_field="instruction", answer_field="output")
    assert named[0] == asked("Translate.", "the cat")  # what was named, and nothing else


def test_the_last_turn_of_the_assistant_is_the_answer(write):
    roles = ["system", "user", "assistant", "user", "assistant", "user"]
    messages = [{"role": role, "content": f"{role} {number}"} for number, role in enumerate(roles)]
    (pair,) = pairs(write("a.jsonl", [{"prompt": "not this", "messages": messages}]))
    assert pair.answer == "assistant 4"
    assert pair.messages == tuple((role, f"{role} {number}") for number, role in enumerate(roles[:4]))


def test_named_fields_are_taken_and_one_name_is_enough(write):
    file = write("a.jsonl", [{"prompt": "a", "answer": "b", "task": "c", "gold": "d"}])
    assert pairs(file, prompt_field="task", answer_field="gold") == [asked("c", "d")]
    assert pairs(file, prompt_field="task") == [asked("c", "b")]
    assert pairs(file, answer_field="gold") == [asked("a", "d")]
    assert find_fields(["a", "b"]) is None and find_fields(["a"], answer="gold") is None


QUESTIONS = [("Où est le café?", "là-bas"), ('with "quotes",\nand a line', "y"), ("漢字 😀", "x")]


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "csv", "csv.gz", "parquet"])
def test_every_kind_of_file_gives_the_same_pairs(write, tmp_path, ending):
    file = tmp_path / f"data.{ending}"
    if ending.startswith("jsonl"):
        write(file.name, [{"question": question, "answer": answer} for question, answer in QUESTIONS])
    elif ending.startswith("csv"):
        quoted = [[cell.replace('"', '""') for cell in pair] for pair in QUESTIONS]
        write(file.name, "answer,id,question\n" + "".join(f'"{a}",7,"{q}"\n' for q, a in quoted))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow.parquet import write_table

        columns = {"answer": [a for _, a in QUESTIONS], "id": [7] * 3, "question": [q for q, _ in QUESTIONS]}
        write_table(pyarrow.table(columns), file, row_group_size=2)
    assert pairs(str(file)) == [asked(*pair) for pair in QUESTIONS]


def test_conversations_are_read_from_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    write_table(pyarrow.table({"messages": [messages]}), tmp_path / "a.parquet")
    assert pairs(str(tmp_path / "a.parquet")) == [asked("hi", "hello")]


def test_a_folder_is_read_without_its_texts(write, tmp_path):
    write("data/a.jsonl", [{"prompt": "a", "answer": "b"}])
    write("data/README.txt", "not a pair")
    assert pairs(str(tmp_path / "data")) == [asked("a", "b")]


def test_a_dataset_of_the_hub_is_read(monkeypatch):
    def load_dataset(name, split, streaming):
        return [{"question": f"{name} {split}", "answer": "yes"}]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    assert pairs("hf:gsm8k:test") == [asked("gsm8k test", "yes")]


# What is wrong --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "settings", "message"),
    [
        (
            "a.jsonl",
            [{"title": "a", "body": "b"}],
            {},
            "line 1: no fields with the usual names, only 'title', 'body'; s",
        ),
        ("a.csv", "title,body\na,b\n", {}, "a.csv has no fields with the usual names, only 'title', 'body'"),
        ("a.jsonl", [{"prompt": "a", "answer": "b"}], {"prompt_field": "q"}, "no field 'q', only 'prompt', 'answer'"),
        ("a.csv", "prompt,answer\na,b\n", {"answer_field": "gold"}, "no field 'gold', only 'prompt', 'answer'"),
        (
            "a.jsonl",
            [{"prompt": "a", "answer": "b"}, {"prompt": "a"}],
            {},
            "line 2: no fields .*, only 'prompt'",
        ),
        ("a.jsonl", '{"prompt": "a", "answer": "b"}\n{"prompt": \n', {}, "line 2: malformed JSON"),
        ("a.jsonl", [["a", "b"]], {}, "line 1: a JSON object belongs here, not"),
        ("a.jsonl", [{"prompt": "a", "answer": 7}], {}, "line 1: the answer is 7, which is no string"),
        ("a.jsonl", '{"prompt": "\\ud800", "answer": "b"}', {}, "line 1: the prompt has half a surrogate pair"),
        ("a.jsonl", [{"instruction": "a", "input": 7, "output": "b"}], {}, "the input is 7, which is no string"),
        ("a.jsonl", [{"messages": "hi"}], {}, r"a list of messages .* not 'hi'.*--answer-field"),
        ("a.jsonl", [{"messages": [{"text": "hi"}]}], {}, "a message has a role and a content, this one is"),
        ("a.jsonl", [{"messages": [{"role": "assistant", "content": "hi"}]}], {}, "answers nobody.*assistant"),
        ("a.jsonl", [{"messages": []}], {}, "answers nobody.*none"),
        ("a.csv", "prompt,answer\na,b\nc\n", {}, "line 3: the row has 1 columns, the header 2"),
        ("a.csv", "prompt,answer\na,b\nc,\n", {}, "a.csv, line 3: the answer of this pair is empty; write something"),
        ("a.jsonl", [{"prompt": " \n", "answer": "b"}], {}, r"line 1: the prompt of this pair is empty.*--skip-bad"),
        ("a.jsonl", [{"prompt": "", "answer": ""}], {}, "line 1: the prompt and the answer of this pair are empty"),
        (
            "a.jsonl",
            [{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}]}],
            {},
            "line 1: the answer of this pair is empty",
        ),
        ("a.txt", "a", {}, r"a.txt has an ending that cannot be read.*\.jsonl, \.csv, \.parquet"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(write, name, content, settings, message):
    with pytest.raises(ValueError, match=message):
        pairs(write(name, content), **settings)


def test_bad_lines_can_be_skipped_and_are_counted(write):
    rows = [{"title": "a"}, {"prompt": "a", "answer": "b"}, {"prompt": "a"}, {"prompt": "c", "answer": "d"}]
    report = ReadReport()
    assert pairs(write("a.jsonl", rows), report, skip_bad=True) == [asked("a", "b"), asked("c", "d")]
    assert (report.documents, report.skipped) == (2, 2) and "line 1" in report.first_problem


def test_pairs_with_an_empty_side_count_as_bad_lines(write):
    rows = [{"prompt": "a", "answer": "b"}, {"prompt": "a", "answer": ""}, {"prompt": " ", "answer": "d"}]
    report = ReadReport()
    assert pairs(write("a.jsonl", rows), report, skip_bad=True) == [asked("a", "b")]
    assert (report.documents, report.skipped) == (1, 2)
    assert "line 2: the answer of this pair is empty" in report.first_problem


def test_an_input_that_only_later_rows_have_is_not_lost(write):
    rows = [{"instruction": "Say hi.", "output": "hi"}, {"instruction": "Say", "input": "it.", "output": "it"}]
    assert pairs(write("a.jsonl", rows)) == [asked("Say hi.", "hi"), asked("Say\n\nit.", "it")]


def test_an_input_without_an_instruction_is_a_prompt(write):
    row = {"instruction": "", "input": "le chat", "output": "the cat"}
    assert pairs(write("a.jsonl", [row])) == [asked("\n\nle chat", "the cat")]


def test_a_fingerprint_changes_with_the_fields(write):
    file = write("a.jsonl", [{"prompt": "a", "answer": "b"}])
    named = [(None, None), ("prompt", None), (None, "answer"), ("answer", None)]
    sources = [PairSource(file, prompt, answer) for prompt, answer in named]
    assert len({fingerprint(source) for source in sources}) == 4
