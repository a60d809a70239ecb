import json

import pytest
from rich.console import Console

from flexmdm.cli.benchmark import benchmark

PROBLEM = {
    "task_id": "test/0",
    "prompt": "def one():\n",
    "suffix": "1",
    "canonical_solution": "    return ",
    "test": "def check(candidate):\n    assert candidate() == 1",
    "entry_point": "one",
}


def lines(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def console():
    return Console(record=True, width=120)


def test_a_file_of_fillings_is_scored_on_its_own(tmp_path, console):
    data = lines(tmp_path / "problems.jsonl", [PROBLEM])
    samples = lines(
        tmp_path / "samples.jsonl", [{"task_id": "test/0", "completion": text} for text in ("    return ", "  pass ")]
    )
    out = tmp_path / "new" / "out.json"
    benchmark("humaneval-infill", samples, data, json=out, workers=1, console=console)
    figures = json.loads(out.read_text())
    assert (figures["split"], figures["pass@1"]["value"]) == ("single-line", 0.5)
    assert figures["outcomes"] == {"passed": 1, "failed": 1, "timed out": 0} and figures["sandbox"]
    items = [json.loads(line) for line in (tmp_path / "new" / "out.items.jsonl").read_text().splitlines()]
    assert [item["passed"] for item in items] == [True, False]
    assert "pass@1 50.0%" in console.export_text()


def test_a_file_of_solutions_is_scored_on_its_own(tmp_path, console):
    data = lines(tmp_path / "test.jsonl", [{"question": f"{n}?", "answer": f"#### {n}"} for n in range(2)])
    samples = lines(tmp_path / "samples.jsonl", [{"number": n, "generation": "It is 1."} for n in range(2)])
    benchmark("gsm8k", samples, tmp_path, json=tmp_path / "out.json", console=console)
    assert json.loads((tmp_path / "out.json").read_text())["accuracy"]["value"] == 0.5
    items = [json.loads(line) for line in (tmp_path / "out.items.jsonl").read_text().splitlines()]
    assert [(item["answer"], item["gold"], item["correct"]) for item in items] == [("1", "0", False), ("1", "1", True)]
    assert "accuracy 50.0%" in console.export_text() and data.exists()


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(ValueError, match="no benchmark 'mbpp'; choose from humaneval-infill, gsm8k"):
        benchmark("mbpp", tmp_path, tmp_path)
    with pytest.raises(ValueError, match="--samples FILE"):
        benchmark("gsm8k", None, tmp_path)
    with pytest.raises(ValueError, match="--data FOLDER"):
        benchmark("gsm8k", tmp_path, None)
