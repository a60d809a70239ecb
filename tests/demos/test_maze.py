import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from flexmdm.cli import entry
from flexmdm.demos import maze
from flexmdm.runs.config import RunConfig, read_config_file
from flexmdm.sweeps.maze import plan
from flexmdm.tasks.loading import load
from flexmdm.training.recipe import Network

SMALL = {"minutes": 1.0, "size": 7, "subgoals": (2, 4), "num": 5, "seed": 0, "steps": 12}


@pytest.fixture(scope="module")
def tiny():
    """A network that trains in no time; the children learn of it from the file that the demo writes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maze, "NETWORK", Network(hidden=16, layers=1, heads=2, condition=8, dropout=0.0))
        yield


@pytest.fixture(scope="module")
def done(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("maze")
    with pytest.MonkeyPatch.context() as patch:
        printed = []
        patch.setattr(maze.Console, "print", lambda self, *parts, **_: printed.append(parts))
        maze.run(folder / "demo", json=folder / "deep" / "figures.json", **SMALL)
    return SimpleNamespace(folder=folder, output=folder / "demo", printed=str(printed))


def test_the_demo_leaves_figures_with_intervals(done):
    results = json.loads((done.output / "results.json").read_text())
    assert json.loads((done.folder / "deep" / "figures.json").read_text()) == results
    assert results["demo"] == "maze" and set(results["models"]) == {"flexmdm", "mdm"}
    for figures in results["models"].values():
        assert 0 <= figures["low"] <= figures["success"] <= figures["high"] <= 1
        assert [score["subgoals"] for score in figures["by_subgoals"]] == [2, 3, 4]
        assert [score["num"] for score in figures["by_subgoals"]] == [5, 5, 5] and figures["num"] == 15
        assert figures["training"]["steps"] == 12 and figures["training"]["held_out_loss"] > 0
    scores = {model: figures["by_subgoals"][0] for model, figures in results["models"].items()}
    assert {model: score["sampler"] for model, score in scores.items()} == {
        "flexmdm": "spaced",
        "mdm": "low_confidence",
    }
    assert all(score["temperature"] == 0 for score in scores.values())


def test_the_demo_leaves_a_page_and_says_where(done, check_page):
    text = (done.output / "index.html").read_text()
    words = " ".join(check_page(text).words)
    results = json.loads((done.output / "results.json").read_text())
    for figures in results["models"].values():
        assert f"{figures['success']:.1%}" in words
    assert "2 subgoals" in words and "4 subgoals" in words
    assert (done.output / "index.html").as_uri() in done.printed


def test_both_models_learn_from_the_same_configuration(done):
    runs = [RunConfig.read(done.output / "runs" / model) for model in ("flexmdm", "mdm")]
    assert runs[0].network == runs[1].network and runs[0].recipe == runs[1].recipe
    assert [run.task.pop("model") for run in runs] == ["flexmdm", "mdm"] and runs[0].task == runs[1].task
    written = RunConfig.from_dict(read_config_file(done.output / "recipe.toml"))
    assert written.network == runs[0].network and written.recipe.batch_size == runs[0].recipe.batch_size


def test_the_growth_on_the_page_ends_in_the_path_that_was_counted(done):
    task, model = load(done.output / "runs" / "flexmdm")
    plans = [plan(task, model, count, 5) for count in (2, 3, 4)]
    growths = maze.growths_of(done.output, [SimpleNamespace(plans=plans)], seed=0)
    number = plans[1].paths.index([box.token for box in growths["flexmdm"].boxes])
    task, model = load(done.output / "runs" / "mdm")
    assert len(growths["mdm"].boxes) == task.longest_path
    cells = [box.token for box in growths["mdm"].boxes if box.token is not None]
    counted = plan(task, model, 3, 5)
    assert counted.problems == plans[1].problems
    assert cells == [token for token in counted.paths[number] if token != task.separator]


def test_the_outline_of_the_lengths_is_that_of_the_paths_problems_come_from():
    """Exact against the definition: a pair is drawn, then one of its paths of at least K cells."""
    task = maze.MazeTask(size=7, subgoals=(2, 6), pairs=60, paths_per_pair=3, held_out=0.3)
    data, expected = task.validation.data, {}
    for count in (2, 6):
        fits = [(n, p) for n, p in zip(data.paths.lengths.tolist(), data.pair.tolist(), strict=True) if n >= count]
        pairs = [pair for _, pair in fits]
        for length, pair in fits:
            expected[length] = expected.get(length, 0) + 1 / pairs.count(pair) / len(set(pairs)) / 2
    assert maze._held_out_lengths(task, [2, 6]) == pytest.approx(expected) and sum(expected.values()) == pytest.approx(
        1
    )


def test_an_earlier_demo_is_replaced_and_nothing_else_is(tmp_path):
    config = maze.config_of(7, (2, 4), 0)
    maze.make_room(tmp_path, config)
    (tmp_path / "runs" / "flexmdm").mkdir()
    (tmp_path / "runs" / "flexmdm.txt").write_text("step 1")
    (tmp_path / "runs" / "mine").mkdir()
    (tmp_path / "oracle").mkdir()
    maze.make_room(tmp_path, config)  # also when it was interrupted
    assert sorted(path.name for path in tmp_path.iterdir()) == ["oracle", "recipe.toml", "results.json", "runs"]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["index.html", "results.json", "runs/mdm/weights"])
@pytest.mark.parametrize("results", [None, "{}", '{"demo": "oracle"}', "no json"])
def test_what_is_not_a_demo_stays(tmp_path, name, results):
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("precious")
    if results is not None:
        (tmp_path / "results.json").write_text(results)
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="choose another --output"):
        maze.run(tmp_path, **SMALL)
    assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_maze_without_such_problems_is_an_error_before_the_work(tmp_path):
    with pytest.raises(ValueError, match="take fewer subgoals"):
        maze.run(tmp_path / "demo", **{**SMALL, "subgoals": (2, 40)})
    assert not (tmp_path / "demo").exists()


def test_a_child_that_fails_is_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(maze, "toml_of", lambda _: '[task]\nname = "labyrinth"\n')
    with pytest.raises(ChildProcessError, match=r"training (FlexMDM|MDM) failed with exit code 2; .*\.txt"):
        maze.run(tmp_path, **SMALL)
    assert "unknown task 'labyrinth'" in capsys.readouterr().out


def test_options_of_the_maze_demo_reach_it(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(maze, "run", lambda **options: calls.append(options))
    arguments = ["demo", "maze", "-o", str(tmp_path), "--minutes", "2", "--size", "9", "--subgoals", "3-5"]
    result = CliRunner().invoke(entry.app, [*arguments, "--num", "7", "--seed", "4"])
    assert result.exit_code == 0, result.output
    expected = {"output": tmp_path, "minutes": 2.0, "size": 9, "subgoals": (3, 5), "num": 7, "seed": 4}
    assert calls == [{**expected, "json": None, "steps": None}]
