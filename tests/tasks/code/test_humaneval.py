import json
from dataclasses import replace

import pytest

from flexmdm import FlexMDMConfig, FlexMDMModel, Prompt
from flexmdm.evaluation.intervals import rate
from flexmdm.sweeps.humaneval import HumanEvalInfill
from flexmdm.sweeps.sweep import Entrant, Refused, options_of, sweep
from flexmdm.tasks.code.pipeline import CodePipeline
from flexmdm.tasks.code.problems import Problem, read_samples
from flexmdm.tasks.maze.task import MazeTask
from flexmdm.tasks.pipeline import Answer
from flexmdm.tasks.text.task import TextTask


class Writer:
    """Stands for a pipeline: fills all gaps but those of every second function with the right line."""

    def __init__(self):
        self.calls = 0

    def __call__(self, pairs, *, steps, first_sequence, seed, callback, batch_size, **options):
        self.calls += 1
        assert options == {
            "sampler": "adaptive", "temperature": 0.0, "confidence": "top_prob", "window": (5.0, 64),
        }  # fmt: skip
        numbers = [int(prefix.split("Add ")[1][0]) for prefix, _ in pairs]
        assert numbers == list(range(first_sequence, first_sequence + len(pairs)))
        texts = [f"    y = x + {n if n % 2 == 0 else 7}\n" for n in numbers]
        return [Answer(text, (text,), (1, 2), steps, False, Prompt.empty()) for text in texts]


@pytest.fixture
def entrant():
    return Entrant("mine", "mdm", False, "weights", Writer())


def test_samples_and_verdicts_are_written_and_nothing_is_done_twice(entrant, folder, tmp_path):
    benchmark = HumanEvalInfill.read(folder, workers=1)
    assert benchmark.title.endswith("/HumanEval-SingleLineInfilling.jsonl.gz (in the form of HumanEval-infilling)")
    (few,) = sweep(benchmark, [entrant], [4], 2, tmp_path / "items")
    assert few.right == [True, False] and few.measured.value == 0.5 and few.figures["sandbox"]
    results = tmp_path / "items" / "mine-4.results.jsonl"
    marked = results.read_text().replace("failed: AssertionError", "failed: marked")  # stands for what was found before
    results.write_text(marked + '{"task_id": "cut o')
    (point,) = sweep(benchmark, [entrant], [4], None, tmp_path / "items")
    assert point.right == [True, False, True] and point.figures["outcomes"]["failed"] == 1
    assert "failed: marked" in results.read_text() and len(results.read_text().splitlines()) == 3
    samples = [json.loads(line) for line in point.items.read_text().splitlines()]
    assert [sample["task_id"] for sample in samples] == list(benchmark.problems)
    assert samples[1]["completion"] == "    y = x + 7\n" and samples[1]["evaluations"] == 4
    assert read_samples(point.items, benchmark.problems)
    (fewer,) = sweep(benchmark, [entrant], [4], 1, tmp_path / "items")
    assert fewer.right == [True]


def test_verdicts_on_other_samples_are_forgotten(entrant, folder, tmp_path):
    benchmark = HumanEvalInfill.read(folder, workers=1)
    (point,) = sweep(benchmark, [entrant], [4], folder=tmp_path)
    results = point.items.with_suffix(".results.jsonl")
    results.write_text(results.read_text().replace("y = x", "z = x").replace("passed", "failed: of another"))
    (again,) = sweep(benchmark, [entrant], [4], folder=tmp_path)
    assert again.right == point.right and "another" not in results.read_text()


@pytest.fixture
def make_text_run(folder, rows, monkeypatch):
    """An untrained run on the text of the functions."""
    monkeypatch.setenv("FLEXMDM_CACHE", str(folder / "cache"))
    functions = [{"text": row["prompt"] + row["canonical_solution"] + row["suffix"]} for row in rows]
    (folder / "functions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in functions * 9))

    def make(model="flexmdm"):
        task = TextTask((str(folder / "functions.jsonl"),), model, tokenizer="bytes", max_length=160).settled()
        config = FlexMDMConfig(
            vocab_size=task.vocab_size, hidden_size=16, num_layers=1, num_heads=2, condition_size=16, dropout=0.0,
            insertions=model == "flexmdm", expected_gap=3.0, task=task.to_dict(),
        )  # fmt: skip
        return task, FlexMDMModel(config).eval()

    return make


def test_a_text_run_fills_the_gap_between_prefix_and_suffix(make_text_run, folder, tmp_path):
    benchmark = HumanEvalInfill.read(folder, workers=1)
    (point,) = sweep(benchmark, [benchmark.entrant("text", *make_text_run())], [2], folder=tmp_path / "items")
    samples = [json.loads(line) for line in point.items.read_text().splitlines()]
    assert point.measured.value == 0 and point.refused == 0
    assert all("return" not in sample["completion"] and sample["evaluations"] >= 2 for sample in samples)


def test_runs_that_cannot_fill_a_gap_are_refused(make_text_run):
    with pytest.raises(ValueError, match="mine is an MDM on text, which fills a known number of masks"):
        HumanEvalInfill({}).entrant("mine", *make_text_run("mdm"))
    with pytest.raises(ValueError, match="mine was trained on the task maze, and humaneval-infill has gaps to fill"):
        HumanEvalInfill({}).entrant("mine", MazeTask(), None)


def test_tasks_of_one_function_are_a_group(rows):
    """Two functions with three tasks each: all of the first are right, none of the second."""
    names = [f"SingleLineInfilling/HumanEval/{number // 3}/L{number % 3}" for number in range(6)]
    problems = [Problem(**{**rows[number // 3], "task_id": name}) for number, name in enumerate(names)]
    benchmark = HumanEvalInfill({problem.task_id: problem for problem in problems}, workers=1)
    assert benchmark.groups == ["HumanEval/0"] * 3 + ["HumanEval/1"] * 3
    lines = [benchmark.line(number, Refused("", rows[0]["canonical_solution"])) for number in range(6)]
    scored = benchmark.score(lines, None)
    assert scored.right == [True] * 3 + [False] * 3 and scored.measured.value == 0.5
    assert scored.measured.low < rate(3, 6).low - 0.1


def test_a_file_is_called_by_its_split_or_its_name(folder):
    assert HumanEvalInfill.read(folder).split == "single-line"
    spans = HumanEvalInfill.read(folder / "HumanEval-RandomSpanInfilling.jsonl")
    assert spans.split == "random-span" and spans.file == folder / "HumanEval-RandomSpanInfilling.jsonl"
    own = spans.file.rename(folder / "own.jsonl")
    assert HumanEvalInfill.read(own).split == "own.jsonl"
    with pytest.raises(ValueError, match="--split multi-line does not fit"):
        HumanEvalInfill.read(own, "multi-line")


def test_a_filling_with_too_much_around_it_is_counted_as_shortened(make_pipeline, folder):
    """One of the three problems is longer than any function that the model was trained on."""
    benchmark = HumanEvalInfill.read(folder, workers=1)
    (name, first), *others = benchmark.problems.items()
    long = replace(first, prompt="# a line of no use\n" * 200 + first.prompt)
    pipeline = make_pipeline()
    (point,) = sweep(
        replace(benchmark, problems={name: long, **dict(others)}),
        [benchmark.entrant("mine", pipeline.task, pipeline.model)],
        [2],
    )
    assert point.shortened == 1 and point.refused == 0


def test_the_pipeline_names_the_options_that_a_benchmark_has_by_default():
    (chosen,) = options_of([Entrant("mine", "flexmdm", True, "", list)], HumanEvalInfill({}).defaults, {}).values()
    named = " ".join(CodePipeline.__doc__.split()).replace('"', "'")
    assert all(f"{name}={value!r}" in named for name, value in chosen.items())


def test_an_unknown_split_or_missing_file_says_so(folder):
    with pytest.raises(ValueError, match="no split 'lines'; choose from single-line"):
        HumanEvalInfill.read(folder, "lines")
    with pytest.raises(FileNotFoundError, match="HumanEval-MultiLineInfilling"):
        HumanEvalInfill.read(folder, "multi-line")
