import json
from pathlib import Path

import pytest

from flexmdm import FlexMDMConfig, FlexMDMModel
from flexmdm.sweeps.gsm8k import GSM8K
from flexmdm.sweeps.sweep import Refused, sweep
from flexmdm.tasks.maze.task import MazeTask
from flexmdm.tasks.sft.task import SFTTask

ROWS = [
    {"question": f"{a}+{b}", "answer": f"{a}+{b}=<<{a}+{b}={a + b}>>\n#### {a + b}"} for a in range(6) for b in (1, 7)
]


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Sums in the official form, and a cache of its own."""
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS * 4))
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path / "sums.jsonl"


@pytest.fixture
def make_run(file):
    """An untrained run on the sums."""

    def make(model="flexmdm", **settings):
        task = SFTTask((str(file),), model, tokenizer="characters", max_length=40, held_out=0.2, **settings).settled()
        config = FlexMDMConfig(
            vocab_size=task.vocab_size, hidden_size=16, num_layers=1, num_heads=2, condition_size=16, dropout=0.0,
            insertions=model == "flexmdm", expected_gap=3.0, task=task.to_dict(),
        )  # fmt: skip
        return task, FlexMDMModel(config).eval()

    return make


def test_a_benchmark_is_read_from_the_official_folder_or_any_file(file):
    official, own = GSM8K.read(file.parent), GSM8K.read(file)
    assert len(official.items) == 12 and official.file == file.with_name("test.jsonl")
    assert (len(own.items), own.items[1]) == (48, "0+7")
    assert own.title == f"{file.parent.name}/sums.jsonl (in the form of GSM8K)"
    with pytest.raises(FileNotFoundError, match="has no valid.jsonl or valid.jsonl.gz"):
        GSM8K.read(file.parent, "valid")


def test_a_file_is_called_by_its_split_or_its_name(file):
    assert GSM8K.read(file).split == "sums.jsonl" and GSM8K.read(file.parent).split == "test"
    assert GSM8K.read(file.with_name("test.jsonl"), "test").split == "test" and GSM8K.read(file).groups is None
    for one in (file, file.with_name("test.jsonl")):
        with pytest.raises(ValueError, match="--split train does not fit"):
            GSM8K.read(one, "train")


@pytest.mark.parametrize("num", [1318, 1319])
def test_only_as_many_problems_as_gsm8k_has_are_called_so(num, tmp_path, monkeypatch):
    (tmp_path / "test.jsonl").write_text((json.dumps(ROWS[0]) + "\n") * num)
    monkeypatch.chdir(tmp_path)
    expected = "GSM8K, test" if num == 1319 else f"{tmp_path.name}/test.jsonl (in the form of GSM8K)"
    assert GSM8K.read(Path()).title == expected


def test_lines_hold_the_generation_and_its_worth(file):
    benchmark = GSM8K.read(file)
    texts = ["0+1=1\n#### 1", "0+7=8", "", "9"]
    *lines, fourth = [benchmark.line(number, Refused("", text)) for number, text in enumerate(texts)]
    assert [(line["answer"], line["gold"], line["correct"]) for line in lines] == [
        ("1", "1", True), ("8", "7", False), (None, "2", False),
    ]  # fmt: skip
    scored = benchmark.score(lines, None)
    assert scored.right == [True, False, False] and scored.figures["unanswered"] == 1
    assert benchmark.score([*lines, fourth], None).figures["strict"]["value"] == 0.25
    assert scored.measured.value == pytest.approx(1 / 3)


@pytest.mark.parametrize("model", ["flexmdm", "mdm"])
def test_a_run_answers_and_goes_on_after_an_interruption(make_run, file, tmp_path, model):
    """With temperature 1, where every answer is another, and batches of 5 of the 12 problems."""
    benchmark, (task, network) = GSM8K.read(file.parent), make_run(model)
    entrant = benchmark.entrant("mine", task, network)

    def go(folder, num=None):
        options = {"batch_size": 5, "temperature": 1.0, "seed": 3}
        (point,) = sweep(benchmark, [entrant], [4], num, tmp_path / folder, **options)
        rows = [json.loads(line) for line in point.items.read_text().splitlines()]
        return point, [row["generation"] for row in rows], rows

    point, whole, rows = go("whole")
    assert point.options["sampler"] == {"flexmdm": "adaptive", "mdm": "low_confidence"}[model]
    assert len(set(whole)) > 6 and [row["number"] for row in rows] == list(range(12))
    assert all(row["evaluations"] >= 4 and row["seconds"] > 0 for row in rows)
    assert point.evaluations == sum(row["evaluations"] for row in rows) / 12
    go("cut", num=5)
    assert go("cut")[1] == whole
    go("odd", num=7)  # the next batch has other neighbours, and the same random numbers
    assert go("odd")[1] == whole


def test_the_question_is_written_in_the_format_of_the_run(make_run):
    task, network = make_run(format="Q: {prompt}\nA: ")
    (answer,) = GSM8K(()).entrant("mine", task, network).write(["0+1"], steps=2)
    assert task.show(answer.prompt.tokens) == "Q: 0+1\nA: "


def test_a_run_of_another_task_is_refused():
    with pytest.raises(ValueError, match="mine was trained on the task maze, and gsm8k asks questions: fine-tune"):
        GSM8K(()).entrant("mine", MazeTask(), None)
