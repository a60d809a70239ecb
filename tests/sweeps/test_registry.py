"""The four benchmarks behind one protocol: each takes the runs of its task and measures them by the same sweep."""

import json

import pytest

from flexmdm import FlexMDMConfig, FlexMDMModel
from flexmdm.sweeps import registry
from flexmdm.sweeps.maze import Problems, plan
from flexmdm.sweeps.sweep import sweep
from flexmdm.sweeps.text import Judge, Samples, measure
from flexmdm.tasks.maze.task import MazeTask
from flexmdm.tasks.registry import task_names
from flexmdm.tasks.text.task import TextTask


def untrained(task):
    config = FlexMDMConfig(
        vocab_size=task.vocab_size, hidden_size=16, num_layers=1, num_heads=2, condition_size=16, dropout=0.0,
        insertions=task.layout.inserts, task=task.to_dict(),
    )  # fmt: skip
    return task, FlexMDMModel(config).eval()


@pytest.fixture(params=["flexmdm", "mdm"])
def maze(request):
    return untrained(MazeTask(size=7, pairs=60, paths_per_pair=2, subgoals=(2, 4), held_out=0.3, model=request.param))


@pytest.fixture(params=["flexmdm", "mdm"])
def text(request, tmp_path, monkeypatch):
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "names.txt").write_text("\n".join(["anna", "hannah", "joanna", "ann", "ian"] * 20))
    return untrained(TextTask((str(tmp_path / "names.txt"),), request.param, max_length=12).settled())


def test_every_task_has_its_benchmark():
    others = {"regions"}  # a second one of a task that has its own
    assert {registry.benchmark_for(task) for task in task_names()} | others == set(registry.benchmark_names())
    for name in registry.benchmark_names():
        kind = registry.benchmark_class(name)
        assert kind.name == name
        assert hasattr(kind, "read") == (name in registry.benchmark_names(reads_files=True))


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="there is no benchmark 'chess'; choose from text, maze, humaneval-infill"):
        registry.benchmark_class("chess")
    assert registry.benchmark_for("chess") is None


def test_a_benchmark_can_be_registered(monkeypatch):
    monkeypatch.setattr(registry, "_BENCHMARKS", dict(registry._BENCHMARKS))
    registry.register("toys", Samples, "toy")
    assert registry.benchmark_for("toy") == "toys" and registry.benchmark_class("toys") is Samples


def test_paths_are_swept_as_they_are_planned_and_go_on_after_an_interruption(maze, tmp_path):
    task, model = maze
    problems = Problems(task, subgoals=3, num=6, seed=2)
    mine = problems.entrant("mine", task, model)
    plans = plan(task, model, 3, 6, seed=2, steps=4)
    sweep(problems, [mine], [4], 4, tmp_path, seed=2)
    (point,) = sweep(problems, [mine], [4], None, tmp_path, seed=2)
    rows = [json.loads(line) for line in point.items.read_text().splitlines()]
    assert [row["path"] for row in rows] == plans.paths and [row["subgoals"] for row in rows] == plans.problems
    assert point.right == plans.success.tolist() and point.measured.value == plans.score.success
    assert point.figures["valid"] == plans.score.valid and point.evaluations == plans.score.evaluations


def test_samples_are_swept_as_they_are_measured(text, tmp_path):
    task, model = text
    pipeline = task.pipeline(model)
    judge = Judge.of(pipeline)
    score = measure("mine", pipeline, judge, 6, 4, seed=1)
    samples = Samples(judge, 6)
    (point,) = sweep(samples, [samples.entrant("mine", task, model)], [4], folder=tmp_path, seed=1)
    assert point.figures["samples"] == score.samples and point.measured == score.length_w1
    assert (point.right, point.evaluations, score.sampler) == ([], score.evaluations, point.options["sampler"])


def test_a_run_of_another_task_cannot_enter(text, maze):
    with pytest.raises(ValueError, match="mine was trained on the task maze, and samples from nothing are text"):
        Samples(Judge([], []), 3).entrant("mine", *maze)
    with pytest.raises(ValueError, match="mine was trained on the task text, and these are problems of a maze"):
        Problems(maze[0], 3).entrant("mine", *text)
    other = untrained(MazeTask(size=9, pairs=60, subgoals=(2, 4)))
    with pytest.raises(ValueError, match="mine was trained on another maze"):
        Problems(maze[0], 3).entrant("mine", *other)
