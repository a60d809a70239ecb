"""Jobs and ranked answers from the command line."""

import json

import pytest

NAMES = ["anna", "hannah", "joanna", "ann", "marianne", "diana", "nathan", "aidan", "dan", "ian"]
TINY = [
    "--hidden", "16", "--layers", "1", "--heads", "2", "--batch-size", "8", "--max-length", "24", "--device", "cpu",
    "--steps", "2",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory, trained):
    file = tmp_path_factory.mktemp("data") / "names.txt"
    file.write_text("\n".join(NAMES * 10))
    return trained("names", "train", file, *TINY)


def test_a_job_says_how_many_lines_are_bad_and_goes_on_by_the_same_command(run, command, tmp_path):
    file, out = tmp_path / "lines.jsonl", tmp_path / "answers.jsonl"
    file.write_text('{"prompt": "an___", "id": 1}\nnonsense\n{"prompt": "___ia", "id": 2}\n')
    job = ["infill", run, "--file", file, "--out", out, "--steps", "4", "--num", "4", "--best", "1"]
    printed, err, code = command(*job)
    assert (printed, code) == ("", 3) and err == f"3 lines answered, 1 of them with an error: {out}"
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [list(row) for row in rows] == [["prompt", "id", "answers"], ["error", "line"], ["prompt", "id", "answers"]]
    assert all(len(row["answers"]) == 1 for row in rows[::2]) and "log_prob" in rows[0]["answers"][0]
    written = out.read_bytes()
    _, err, code = command(*job)
    assert code == 3 and err.startswith(f"{out}: 3 of 3 lines were there already") and out.read_bytes() == written


def test_a_job_without_bad_lines_ends_well(run, command, tmp_path):
    printed, err, code = command("sample", run, "--num", 3, "--out", tmp_path / "new" / "samples.jsonl", "--steps", "4")
    assert code == 0 and err.startswith("3 lines answered: "), err
    drawn = command("sample", run, "--num", 3, "--steps", "4")[0].splitlines()
    rows = (tmp_path / "new" / "samples.jsonl").read_text().splitlines()
    assert [json.loads(row)["text"] for row in rows] == drawn


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["infill", "RUN", "a___", "--out", "OUT"], "--out is for the lines of a --file"),
        (["infill", "RUN", "--file", "FILE", "--out", "OUT", "--watch"], "leave out --watch"),
        (["infill", "RUN", "--file", "FILE", "--out", "OUT.txt"], "their file is called .jsonl"),
        (["infill", "RUN", "--file", "FILE", "--out", "OUT", "--engine", "spark"], "choose from local, ray"),
        (["sample", "RUN", "--out", "/proc/nope/x.jsonl"], "cannot be written"),
        (["infill", "RUN", "a___", "--num", "2", "--best", "3"], "from 1 to 2, or 0; got 3"),
    ],
)
def test_what_is_no_job_is_refused(run, command, tmp_path, arguments, message):
    file = tmp_path / "lines.txt"
    file.write_text("a___\n")
    named = {"RUN": run, "FILE": file, "OUT": tmp_path / "out.jsonl", "OUT.txt": tmp_path / "out.txt"}
    out, err, code = command(*(named.get(argument, argument) for argument in arguments))
    assert code == 2 and message in err and not out, err


def test_the_best_answers_are_distinct_and_ranked(run, command, tmp_path):
    file = tmp_path / "best.json"
    out, err, code = command("infill", run, "an___a", "--num", "12", "--best", "3", "--steps", "4", "--json", file)
    rows = json.loads(file.read_text())
    assert code == 0 and [row["text"] for row in rows] == out.splitlines() == list(dict.fromkeys(out.splitlines())), err
    assert [row["log_prob"] for row in rows] == sorted((row["log_prob"] for row in rows), reverse=True)
    assert all(row["confidence"] and row["lengths"] for row in rows)
