"""The maze from the command line: train, go on, measure, plan, and every way to get it wrong."""

import json
from types import SimpleNamespace

import pytest

from flexmdm.reports import maze as report
from flexmdm.tasks.maze.grid import Maze
from flexmdm.tasks.maze.task import MazePipeline

TINY = [
    "train", "--task", "maze", "--size", "7", "--subgoals", "2-4", "--hidden", "16", "--layers", "1", "--heads", "2",
    "--dropout", "0", "--batch-size", "8", "--device", "cpu",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(trained):
    """A FlexMDM run of four steps."""
    return trained("maze7", *TINY, "--steps", "4", "--save-every", "2")


@pytest.fixture(scope="module")
def mdm(trained):
    return trained("mdm7", *TINY, "--steps", "2", "--model", "mdm")


def test_a_run_leaves_weights_a_log_and_a_picture(run):
    for name in ("config.json", "model.safetensors", "run.json", "log.jsonl", "loss.png"):
        assert (run / name).stat().st_size > 0
    assert not list(run.rglob("*.bin"))


def test_a_flexmdm_starts_from_an_mdm_of_the_same_maze(mdm, tmp_path, command):
    options = ["--task", "maze", "--size", "7", "--subgoals", "2-4", "--steps", "2", "--device", "cpu"]
    _, err, code = command("train", *options, "--from", mdm, "--out", tmp_path / "run")
    assert code == 0, err
    _, err, code = command("eval", tmp_path / "run", "--subgoals", "3", "--num", "2")
    assert code == 0, err


@pytest.mark.parametrize("which", ["run", "mdm"])
def test_eval_gives_success_with_its_interval_and_its_price(which, request, tmp_path, command):
    folder = request.getfixturevalue(which)
    file = tmp_path / "score.json"
    out, err, code = command("eval", folder, "--subgoals", "3", "--num", "5", "--json", file)
    assert code == 0, err
    assert "success" in out
    score = json.loads(file.read_text())
    assert score["num"] == 5 and score["subgoals"] == 3
    assert 0 <= score["low"] <= score["success"] <= score["high"] <= 1
    assert score["evaluations"] > 0 and score["seconds"] > 0


def test_eval_of_several_numbers_of_subgoals_is_a_list(run, tmp_path, command):
    file = tmp_path / "scores.json"
    arguments = ["eval", run, "--subgoals", "2,4", "--num", "3", "--sampler", "tau", "--steps", "4", "--json", file]
    assert command(*arguments)[2] == 0
    assert [score["subgoals"] for score in json.loads(file.read_text())] == [2, 4]


def test_sample_draws_the_path_here_and_as_a_picture(run, tmp_path, command):
    picture, file = tmp_path / "plan.png", tmp_path / "plan.json"
    arguments = ["sample", run, "--through", "1,1", "3,3", "5,5", "--output", picture, "--json", file]
    out, err, code = command(*arguments)
    assert code == 0, err
    assert "██" in out and "cells;" in out and "the subgoals" in out
    assert "was given" not in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    plan = json.loads(file.read_text())
    assert plan["through"] == [[1, 1], [3, 3], [5, 5]]
    assert plan["paths"][0]["path"][0] == [1, 1] and plan["paths"][0]["path"][-1] == [5, 5]
    assert plan["tries"] == 4 and f"{plan['successes']} of 4 tries" in out and len(plan["paths"]) == 1
    assert plan["paths"][0]["success"] == (plan["successes"] > 0)


def test_sample_without_cells_takes_a_held_out_problem(mdm, tmp_path, command):
    out, err, code = command("sample", mdm, "--num", "2", "-o", tmp_path / "two.png")
    assert code == 0, err
    assert out.count("cells;") == 2 and "of 2 paths" in out
    assert "no cells were given" in out and "--through" in out


def answers(monkeypatch, *paths):
    """Let the model answer so."""
    monkeypatch.setattr(MazePipeline, "plan", lambda *_, **__: [SimpleNamespace(tokens=path) for path in paths])


RIGHT = [8, 15, 22, 23, 24]  # from 1,1 to 3,3
THERE = ["--through", "1,1", "3,3"]


def test_sample_keeps_the_first_try_that_is_right_and_says_how_many_are(run, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    longer = [8, 9, 10, 17, 24]
    answers(monkeypatch, [8, 24], longer, RIGHT, [])
    out, err, code = command("sample", run, *THERE, "--json", "plan.json")
    assert code == 0, err
    assert "2 of 4 tries are right: this is the first of them" in out
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert [[list(divmod(token, 7)) for token in longer]] == [each["path"] for each in plan["paths"]]
    assert plan["successes"] == 2 and plan["tries"] == 4


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ([], "it is empty"),
        ([15, 22, 23, 24], "it starts at 2,1 and not at 1,1"),
        (RIGHT[:-1], "it ends at 3,2 and not at 3,3"),
        ([8, 24], "it jumps from 1,1 to 3,3"),
    ],
)
def test_a_path_that_fails_is_told_why_and_what_to_try(path, words, run, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    answers(monkeypatch, path, [], [8], [8, 24])
    out = " ".join(command("sample", run, *THERE)[0].split())
    assert words in out and "0 of 4 tries are right" in out
    assert all(option in out for option in ("--seed", "--steps", "--num 8"))


def test_the_picture_says_whether_the_path_is_valid(run, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    titles = []
    monkeypatch.setattr(report, "draw_maze", lambda axes, maze, path, goals, title: titles.append(title))
    answers(monkeypatch, RIGHT, [8, 24], [])
    assert command("sample", run, *THERE, "--num", "3")[2] == 0
    assert titles == [
        "valid: 5 cells",
        "not valid: 2 cells; it jumps from 1,1 to 3,3",
        "not valid: 0 cells; it is empty",
    ]


def test_tries_that_are_all_alike_are_not_taken_for_several(mdm, tmp_path, monkeypatch, command):
    """LLaDA's sampler draws nothing at temperature 0: another seed gives the same."""
    monkeypatch.chdir(tmp_path)
    out = " ".join(command("sample", mdm, *THERE)[0].split())
    assert "they are all the same" in out and "--temperature 1" in out


def test_resume_goes_on_with_the_configuration_of_the_run(run, tmp_path, command):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    out, err, code = command("train", "--out", copy, "--resume", "--steps", "6", "--device", "cpu")
    assert code == 0, err
    assert "going on from step 4" in err
    assert json.loads((copy / "log.jsonl").read_text().splitlines()[-1])["step"] == 6


def test_a_dry_run_says_what_it_would_do_and_leaves_nothing(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    out, err, code = command(*TINY, "--steps", "100", "--dry-run")
    assert code == 0, err
    out = " ".join(out.split())
    assert "parameters" in out and "100 steps" in out and "first batch" in out
    assert not list(tmp_path.iterdir())


def wall():
    passable = Maze.division(7).passable
    return next((r, c) for r in range(1, 6) for c in range(1, 6) if not passable[r, c])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "--task", "maze", "--size", "8", "--out", "x"], ["odd", "8"]),
        (["train", "--task", "maze", "--size", "3", "--out", "x"], ["at least 5", "3"]),
        (["train", "--task", "maze", "--subgoals", "1-4", "--out", "x"], ["start and goal", "1-4"]),
        (["train", "--task", "maze", "--subgoals", "many", "--out", "x"], ["2-12", "many"]),
        (
            ["train", "--task", "maze", "--size", "7", "--subgoals", "2-400", "--out", "x"],
            ["400 cells", "the longest has 12", "fewer subgoals"],
        ),
        (["train", "--task", "maze", "--model", "gpt", "--out", "x"], ["flexmdm or mdm", "gpt"]),
        (["train", "--task", "chess", "--out", "x"], ["chess", "maze"]),
        (["train", "--out", "x"], ["--task maze"]),
        (["train", "--out", "x", "--resume"], ["not a run"]),
        (["train", "--task", "maze", "--size", "7", "--hidden", "30", "--out", "x"], ["30", "heads"]),
        (["train", "--task", "maze", "--size", "7", "--optimizer", "sgd", "--out", "x"], ["adamw", "sgd"]),
        (["train", "--task", "maze", "--size", "7", "--device", "tpu", "--out", "x"], ["cpu, cuda or mps"]),
        (["eval", "nowhere"], ["nowhere", "not a run"]),
        (["eval"], ["--pretrained"]),
        (["eval", "--pretrained", "maze99"], ["maze99", "there are"]),
    ],
)
def test_bad_input_is_said_in_one_line_and_nothing_is_written(arguments, words, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    _, err, code = command(*arguments)
    assert code == 2
    assert all(word in err for word in words), err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["1,1", wall()], ["wall", "nearest open cell"]),
        (["1,1", "9,9"], ["outside", "nearest open cell"]),
        (["1,1"], ["at least two"]),
        (["1,1", "1,1"], ["twice"]),
        (["1,1", "five"], ["row,column", "five"]),
        (["1,1", "5,5"] * 6, ["these 12 cells", "89", "none of more than", "leave some out"]),
    ],
)
def test_cells_that_cannot_be_connected_are_named(cells, words, run, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    cells = [cell if isinstance(cell, str) else f"{cell[0]},{cell[1]}" for cell in cells]
    _, err, code = command("sample", run, "--through", *cells)
    assert code == 2
    assert all(word in err for word in words), err
    assert not list(tmp_path.iterdir())


def test_runs_that_cannot_be_measured_together_are_named(run, mdm, command):
    assert "runs on mazes are evaluated one by one, and these are 2" in command("eval", run, mdm)[1]


def test_options_of_other_tasks_are_refused(run, command):
    _, err, code = command("eval", run, "--reference", "none", "--likelihoods", "3")
    assert code == 2 and "--reference, --likelihoods: a run on maze is measured by the paths that it finds" in err


def test_more_subgoals_than_any_path_has_cells(run, command):
    _, err, code = command("eval", run, "--subgoals", "40", "--num", "2")
    assert code == 2 and "40 cells" in err and "fewer subgoals" in err


def test_resuming_with_another_configuration_names_what_differs(run, command):
    _, err, code = command("train", "--out", run, "--resume", "--lr", "0.5", "--size", "9")
    assert code == 2
    assert "recipe.learning_rate" in err and "task.size" in err


def test_an_existing_run_is_not_overwritten(run, command):
    before = (run / "model.safetensors").read_bytes()
    _, err, code = command(*TINY, "--steps", "2", "--out", run)
    assert code == 2 and "--resume" in err
    assert (run / "model.safetensors").read_bytes() == before
