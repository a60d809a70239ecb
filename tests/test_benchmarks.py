"""The benchmarks run, in small: what nobody runs for months must not break unseen."""

import argparse
import importlib.util
import itertools
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import torch

from flexmdm.evaluation.fluency import ReferenceLM
from flexmdm.evaluation.intervals import Interval
from flexmdm.runs.config import RunConfig
from flexmdm.runs.train import train
from flexmdm.tasks.code.task import CodeTask
from flexmdm.tasks.math.arithmetic import problems
from flexmdm.tasks.maze.task import MazeTask
from flexmdm.tasks.sft.task import SFTTask
from flexmdm.tasks.text.task import TextTask
from flexmdm.training.recipe import Network, Recipe

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def benchmark(name, results):
    """A program of benchmarks/, with another place for its results."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.RESULTS = results
    return module


def columns(markdown):
    """How many cells each line of the tables has."""
    return {line.replace("\\|", "").count("|") for line in markdown.splitlines() if line.startswith("|")}


def run(module, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["benchmark", *map(str, arguments)])
    module.main()


def tiny_run(task, folder, steps=1, **recipe):
    """A tiny network that is hardly trained."""
    network = Network(hidden=16, layers=1, heads=2, condition=16)
    recipe = Recipe(steps=steps, batch_size=8, warmup=1, eval_every=1, eval_size=4, log_every=1, **recipe)
    train(RunConfig(task.settled().to_dict(), network, recipe), folder, device="cpu")


def small_run(folder, model="flexmdm", steps=1, **recipe):
    """Of a 7 x 7 maze."""
    task = MazeTask(size=7, subgoals=(2, 4), pairs=60, paths_per_pair=2, held_out=0.3, model=model)
    tiny_run(task, folder, steps, **recipe)


# The network ----------------------------------------------------------------------------------------------------------


def test_packed_and_padded_are_measured_and_written_with_their_targets(tmp_path, monkeypatch, capsys):
    network = benchmark("network", tmp_path)
    at_once = partial(network.peak_memory, "paragraphs")  # neither another process nor the large maze once more
    monkeypatch.setattr(network, "peak_memory_elsewhere", lambda kind, how, size: at_once(how, size))
    run(network, monkeypatch, "--repeats", 1, "--maze-batch", 4, "--paragraph-batch", 2)
    stored = json.loads((tmp_path / "network.json").read_text())
    assert stored["command"].endswith("--paragraph-batch 2")
    assert [row["batch"] for row in stored["rows"]] == ["maze 41 x 41", "paragraphs"]
    for row in stored["rows"]:
        assert row["largest_difference"] < 1e-5  # packed and padded are the same network
        assert row["ratio"] > 0 and row["share_of_peak"] > 0 and row["packed_memory_mb"] > 0
    text, out = (tmp_path / "network.md").read_text(), " ".join(capsys.readouterr().out.split())
    assert len(columns(text)) == 1
    for verdict in network.verdicts(stored["rows"]):
        assert verdict in text and verdict in out


def test_a_target_that_is_missed_is_said_to_be(tmp_path):
    network = benchmark("network", tmp_path)
    fast = {"batch": "a", "ratio": network.LIMIT_RATIO, "share_of_peak": network.LIMIT_SHARE}
    slow = {"batch": "b", "ratio": 1.4, "share_of_peak": 0.4}
    assert [line.split(":")[0] for line in network.verdicts([fast, slow])] == ["holds", "holds", "MISSED", "MISSED"]


# The maze -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mazes(tmp_path_factory):
    """A FlexMDM and an MDM of two steps, and another FlexMDM of one."""
    folder = tmp_path_factory.mktemp("runs")
    for name, model, steps in (("flex", "flexmdm", 2), ("mdm", "mdm", 2), ("other", "flexmdm", 1)):
        small_run(folder / name, model, steps)
    return folder


@pytest.fixture
def table(tmp_path, monkeypatch):
    maze = benchmark("maze", tmp_path)
    monkeypatch.setattr(maze, "COUNTS", (2, 3))
    margin = {"sampler": "adaptive", "steps": 2, "confidence": "margin", "temperature": 0.0}
    monkeypatch.setattr(maze, "FLEXMDM", [margin])
    monkeypatch.setattr(maze, "MDM", [{"sampler": "low_confidence", "steps": 2, "temperature": 1.0}])
    return maze


def test_the_maze_table_has_a_row_for_each_setting_and_nothing_is_measured_twice(mazes, table, tmp_path, monkeypatch):
    arguments = (mazes / "flex", "--mdm", mazes / "mdm", "--name", "small", "--num", 3)
    run(table, monkeypatch, *arguments)
    stored = json.loads((tmp_path / "small.json").read_text())
    asked = [(row["model"], row["subgoals"], row["confidence"], row["temperature"]) for row in stored["rows"]]
    assert asked == [("flexmdm", 2, "margin", 0), ("flexmdm", 3, "margin", 0), ("mdm", 2, None, 1), ("mdm", 3, None, 1)]
    text = (tmp_path / "small.md").read_text()
    assert len(columns(text)) == 1
    assert "| adaptive (margin), 2 steps | 0 | 2 |" in text and "| low_confidence, 2 steps | 1 | 3 |" in text
    assert "flexmdm: " in text and "2 steps, 16 sequences" in text and "*" not in text
    assert (tmp_path / "small-loss.png").read_bytes().startswith(b"\x89PNG")
    assert {file.name for file in (tmp_path / "logs").iterdir()} == {"small-flexmdm.jsonl", "small-mdm.jsonl"}
    monkeypatch.setattr(table, "plan", None)  # not to be called
    run(table, monkeypatch, *arguments)
    assert json.loads((tmp_path / "small.json").read_text()) == stored
    monkeypatch.setattr(table, "FLEXMDM", [{**table.FLEXMDM[0], "confidence": "entropy"}])
    with pytest.raises(TypeError):  # another confidence is another measurement
        run(table, monkeypatch, *arguments)


def test_rows_of_another_model_are_neither_dropped_nor_mixed_with(mazes, table, tmp_path, monkeypatch):
    run(table, monkeypatch, mazes / "flex", "--name", "small", "--num", 2)
    before = (tmp_path / "small.json").read_text()
    with pytest.raises(SystemExit, match=r"2 rows of another flexmdm .* 2 steps.*choose another --name.*--fresh"):
        run(table, monkeypatch, mazes / "other", "--name", "small", "--num", 2)
    with pytest.raises(SystemExit, match="this one: weights of the package"):
        run(table, monkeypatch, "--pretrained", "maze41", "--name", "small", "--num", 2)
    assert (tmp_path / "small.json").read_text() == before
    run(table, monkeypatch, mazes / "other", "--name", "small", "--num", 2, "--fresh")
    assert {row["trained"]["steps"] for row in json.loads((tmp_path / "small.json").read_text())["rows"]} == {1}


@pytest.mark.parametrize("name", ["maze21", "maze41"])
def test_committed_rows_are_read_told_apart_and_not_measured_again(name, tmp_path):
    maze = benchmark("maze", tmp_path)
    stored = json.loads((BENCHMARKS / "results" / f"{name}.json").read_text())
    assert len(set(map(maze.key_of, stored["rows"]))) == len(stored["rows"])
    older = [row for row in stored["rows"] if "confidence" not in row and row["sampler"] == "adaptive"]
    assert all(maze.key_of(row) == maze.key_of({**row, "confidence": "top_prob"}) for row in older)
    assert len(columns(maze.markdown(stored["rows"], "a command"))) == 1  # the rows of the paper too


def test_spaced_and_tau_are_compared_at_equal_temperature(tmp_path):
    settings = {(o["sampler"], o["temperature"]) for o in benchmark("maze", tmp_path).FLEXMDM}
    assert settings >= {(sampler, t) for sampler in ("spaced", "tau") for t in (0.0, 1.0)}


def test_the_loss_is_drawn_against_sequences_and_against_hours(tmp_path):
    log = [{"step": 1, "seconds": 1800.0, "loss": 5.0, "sequences": 64_000}]
    log.append({"step": 1, "seconds": 3600.0, "eval_loss": 4.0, "sequences": 128_000})
    figure = benchmark("maze", tmp_path).learning_curves({"FlexMDM": log, "MDM": log[:1]})
    left, right = figure.axes
    assert "sequences" in left.get_xlabel() and "hours" in right.get_xlabel()
    drawn = [[line.get_xdata().tolist() for line in axes.get_lines()] for axes in (left, right)]
    assert drawn == [[[64], [128], [64], []], [[0.5], [1.0], [0.5], []]]


# Targets --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_two_kinds_of_targets_are_compared(tmp_path, monkeypatch):
    targets = benchmark("targets", tmp_path)

    def both(folder, seed, arguments):  # at once, for a step
        for kind in targets.TARGETS:
            small_run(folder / f"{kind}-{seed}", targets=kind)

    monkeypatch.setattr(targets, "train_both", both)
    run(targets, monkeypatch, "--minutes", 1, "--seeds", 1, "--num", 2)
    rows = json.loads((tmp_path / "targets.json").read_text())["rows"]
    assert [(row["targets"], row["sampler"]) for row in rows] == [
        (kind, sampler) for kind in targets.TARGETS for sampler in ("spaced", "tau")
    ]
    text = (tmp_path / "targets.md").read_text()
    assert len(columns(text)) == 1 and "tau, 256 steps | 0 |" in text


# Molecules ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def smiles(tmp_path, monkeypatch):
    """A FlexMDM and an MDM of short SMILES, in folders of these names."""
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    data = tmp_path / "smiles.txt"
    data.write_text("\n".join(f"C{'C' * n}(=O)O{'C' * m}" for n in range(5) for m in range(5)))
    for name, model in (("flex", "flexmdm"), ("mdm", "mdm")):
        tiny_run(TextTask((str(data),), model, tokenizer="characters", max_length=16, held_out=0.4), tmp_path / name)


def test_molecules_are_judged_row_by_row_and_not_twice(smiles, tmp_path, monkeypatch):
    molecules = benchmark("molecules", tmp_path / "results")
    asked = (tmp_path / "flex", tmp_path / "mdm", "--num", 2, "--steps", 2, 3)
    run(molecules, monkeypatch, *asked)
    stored = json.loads((tmp_path / "results/molecules.json").read_text())
    assert [(row["model"], row["sampler"], row["steps"]) for row in stored["rows"]] == [
        (*of, steps) for of in (("flex", "tau"), ("flex", "spaced"), ("mdm", "tau")) for steps in (2, 3)
    ]
    assert [one["model"] for one in stored["infilling"]] == ["flex"]
    assert {file.name for file in (tmp_path / "results").iterdir()} >= {"molecules.png", "molecules-loss.png", "logs"}
    assert len(columns((tmp_path / "results/molecules.md").read_text())) == 1
    monkeypatch.setattr(molecules, "sampled", None)  # what was measured is not measured again
    run(molecules, monkeypatch, *asked)
    with pytest.raises(SystemExit, match="measured with other num: ask for the same"):  # nothing is lost
        run(molecules, monkeypatch, tmp_path / "flex", tmp_path / "mdm", "--num", 3)


# Text -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def reader(monkeypatch):
    """A reference model of characters, each worth its place in the alphabet; ``texts`` are those it has read."""

    class Reader:
        longest, texts = None, []

        def encode(self, texts):
            return [list(map(ord, text)) for text in texts]

        def nats(self, token_lists, progress=None):
            self.texts += token_lists
            nats = [sum(token / 100 for token in tokens) for tokens in token_lists]
            return torch.tensor(nats, dtype=torch.float64), torch.tensor([len(tokens) for tokens in token_lists])

    reader = Reader()
    monkeypatch.setattr(ReferenceLM, "load", lambda *_: reader)
    return reader


SMALL = ("--num", 3, "--likelihoods", 2, "--steps", 2, 65, "--name", "small")


def test_both_models_write_as_many_texts_and_are_compared_on_the_same_ones(smiles, tmp_path, monkeypatch, reader):
    text = benchmark("text", tmp_path / "results")
    monkeypatch.setattr(text, "TIMES", 4)
    runs = (tmp_path / "flex", tmp_path / "mdm")
    run(text, monkeypatch, *runs, *SMALL)
    stored = json.loads((tmp_path / "results/small.json").read_text())
    real, *rows = stored["rows"]
    assert real["model"] == "held-out" and len(real["readings"]) == 3
    assert {row["num"] for row in rows} == {3}
    assert [(row["model"], row["sampler"], row["steps"]) for row in rows] == [
        *((model, sampler, 2) for model in ("flex", "mdm") for sampler in ("tau", "adaptive", "spaced")),
        *((model, sampler, 65) for model in ("flex", "mdm") for sampler in ("tau", "adaptive")),
    ]
    for row in rows:
        perplexity = [np.exp(np.divide(*np.sum(one["readings"], 0))) for one in (row, real)]
        assert row["generative_perplexity"]["value"] == pytest.approx(perplexity[0], rel=1e-4)
        assert row["perplexity_ratio"]["value"] == pytest.approx(perplexity[0] / perplexity[1], rel=1e-4)
    bits = {name: np.array(of["nats"]) / np.log(2) for name, of in stored["bits"].items()}
    (pair,) = text.compared(stored)
    expected = (bits["flex"] - bits["mdm"]).sum() / sum(stored["bits"]["flex"]["characters"])
    assert pair["value"] == pytest.approx(expected) and (pair["sequences"], pair["num"]) == (1.0, 2)
    assert pair["low"] <= pair["value"] <= pair["high"]
    summary = (tmp_path / "results/small.md").read_text()
    assert columns(summary) == {13, 4, 5} and "1.00 times | 1.00 times" not in summary.split("| on the same")[0]
    assert "flex: flexmdm" in summary and "1 steps, 8 sequences" in summary and str(tmp_path) not in summary
    found = {file.name for file in (tmp_path / "results").iterdir()}
    assert found == {"small.json", "small.md", "small.png", "small-loss.png", "logs"}


def test_an_interrupted_table_of_texts_goes_on_and_another_run_joins_it(smiles, tmp_path, monkeypatch, reader):
    text = benchmark("text", tmp_path / "results")
    monkeypatch.setattr(text, "TIMES", 4)
    asked = (tmp_path / "flex", "--name", "small", "--num", 3, "--likelihoods", 2, "--steps", 2, "--samplers", "tau")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(text, "judged", lambda score, *_: (_ for _ in ()).throw(KeyboardInterrupt))
        run(text, monkeypatch, *asked)
    run(text, monkeypatch, *asked)
    before = json.loads((tmp_path / "results/small.json").read_text())
    with monkeypatch.context() as patched:
        patched.setattr(text, "measured", None)  # what was measured is not measured again,
        patched.setattr("flexmdm.tasks.likelihoods.likelihood", None)  # nor are likelihoods
        run(text, monkeypatch, *asked)
    assert json.loads((tmp_path / "results/small.json").read_text()) == before
    (tmp_path / "results/small.json").unlink()
    with monkeypatch.context() as patched:
        patched.setattr("flexmdm.tasks.pipeline.stream", None)  # the texts are there
        run(text, monkeypatch, *asked)
    again = json.loads((tmp_path / "results/small.json").read_text())
    assert [row["readings"] for row in again["rows"]] == [row["readings"] for row in before["rows"]]
    run(text, monkeypatch, tmp_path / "mdm", *asked[1:], "--temperatures", 0.5)
    more = json.loads((tmp_path / "results/small.json").read_text())
    assert more["rows"][:-1] == again["rows"] and more["rows"][-1]["temperature"] == 0.5
    assert set(more["commands"]) == {"flex", "mdm"} and more["commands"]["mdm"].endswith("--temperatures 0.5")
    with pytest.raises(SystemExit, match="num 3, not 4: ask for the same"):  # nothing is lost
        run(text, monkeypatch, *asked[:3], "--num", 4)


def test_the_trainings_that_a_run_went_on_from_count(smiles, tmp_path, monkeypatch):
    text = benchmark("text", tmp_path / "results")
    (tmp_path / "first.jsonl").write_text('{"step": 5, "seconds": 3600.0, "loss": 1.0, "sequences": 40}\n')
    asked = ("--name", "small", "--num", 2, "--likelihoods", 1, "--steps", 2, "--samplers", "tau")
    before = ("--before", f"flex={tmp_path / 'first.jsonl'}")
    run(text, monkeypatch, tmp_path / "flex", *asked, "--reference", "none", *before)
    stored = json.loads((tmp_path / "results/small.json").read_text())
    assert stored["runs"]["flex"]["steps"] == 6 and stored["runs"]["flex"]["sequences"] == 48
    assert 1 <= stored["runs"]["flex"]["hours"] < 1.1 and "--before flex=PATH/first.jsonl" in stored["commands"]["flex"]
    lines = (tmp_path / "results/logs/small-flex.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [5, *[6] * (len(lines) - 1)]
    for bad, why in (("other=a", "no run other"), ("flex=nowhere.jsonl", "no file nowhere.jsonl")):
        with pytest.raises(SystemExit, match=why):
            run(text, monkeypatch, tmp_path / "flex", *asked, "--reference", "none", "--before", bad)


def test_a_file_is_prepared_twice_with_the_same_cache(tmp_path, monkeypatch):
    preparation = benchmark("preparation", tmp_path / "results")
    preparation.write_text(tmp_path / "made.txt", 1)
    lines = (tmp_path / "made.txt").read_text().splitlines()
    assert 1e6 <= (tmp_path / "made.txt").stat().st_size < 3e6 and {len(line.split()) for line in lines} == {
        *range(5, 61)
    }
    asked = []
    monkeypatch.setattr(preparation, "measured", lambda command, cache: asked.append((command[1:3], cache)) or (1, 0.5))
    run(preparation, monkeypatch, "--file", tmp_path / "made.txt", "--vocab-size", 300)
    assert asked[0] == asked[1] and asked[0][0] == ["train", str(tmp_path / "made.txt")]
    stored = json.loads((tmp_path / "results/preparation.json").read_text())
    assert len(stored["rows"]) == 2 and stored["command"].endswith("--file FILE --vocab-size 300")
    assert len(columns((tmp_path / "results/preparation.md").read_text())) == 1


# Gaps in programs -----------------------------------------------------------------------------------------------------


def test_spans_are_filled_by_both_models_and_by_counting(tmp_path, monkeypatch):
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "programs").mkdir()
    for n in range(40):
        (tmp_path / f"programs/m{n:02}.py").write_text(f"def add{n}(x):\n    y = x + {n}\n    return y\n")
    for name, model in (("flex", "flexmdm"), ("mdm", "mdm")):
        task = CodeTask((str(tmp_path / "programs"),), model, tokenizer="bytes", max_length=64, held_out=0.2)
        tiny_run(task, tmp_path / "runs" / name)
    infilling = benchmark("infilling", tmp_path / "results")
    run(infilling, monkeypatch, tmp_path / "runs/flex", tmp_path / "runs/mdm", "--num", 4)
    stored = json.loads((tmp_path / "results/infilling.json").read_text())
    assert [(row["model"]) for row in stored["rows"]] == ["n-grams", "flex", "flex", "flex", "mdm", "mdm"]
    assert len(stored["differences"]) == 2 and len(stored["examples"]) == 4
    assert set(stored["examples"][0]["filled"]) == {row["sampler"] for row in stored["rows"]}
    assert len(columns((tmp_path / "results/infilling.md").read_text())) == 2
    assert {file.name for file in (tmp_path / "results/logs").iterdir()} == {"flex.jsonl", "mdm.jsonl"}
    with pytest.raises(SystemExit, match="too few for 999 spans"):
        run(infilling, monkeypatch, tmp_path / "runs/flex", "--num", 999)


@pytest.fixture
def phrases(tmp_path, monkeypatch):
    """A FlexMDM and an MDM of short sentences, in folders of these names."""
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    words = ["a cat", "the dog", "my old friend", "she"], ["sat", "went home", "ran"], ["today.", "with me again."]
    lines = [f"{one} {two} {three}" for one, two, three in itertools.product(*words)]
    (tmp_path / "phrases.txt").write_text("\n".join(lines))
    for name, model in (("flex", "flexmdm"), ("mdm", "mdm")):
        data = TextTask((str(tmp_path / "phrases.txt"),), model, tokenizer="bpe", vocabulary=280, max_length=40)
        tiny_run(replace(data, held_out=0.5), tmp_path / name)
    return tmp_path / "flex", tmp_path / "mdm"


def test_gaps_in_sentences_are_filled_by_all_and_compared_for_as_many_draws(phrases, tmp_path, monkeypatch, reader):
    infilling = benchmark("infilling", tmp_path / "results")
    asked = (*phrases, "--num", 6, "--name", "small")
    run(infilling, monkeypatch, *asked)
    stored = json.loads((tmp_path / "results/small.json").read_text())
    models = ["flex", "mdm, told the lengths", "mdm, guessing the lengths"]
    ways = ["best of 8", "one draw", "greedy"]
    assert [row["sampler"] for row in stored["rows"]] == ["4-grams", *(f"{m}, {way}" for m in models for way in ways)]
    assert all(row["num"] == 6 and row["perplexity"]["value"] > 0 for row in stored["rows"])
    assert len(stored["differences"]) == 6  # n-grams and both kinds of MDM, with eight draws and with one
    assert all(name.startswith("flex, ") for name in stored["differences"])
    assert [len(example["cut"]) for example in stored["examples"]] == [1, 2, 3, 1, 2, 3]
    for example in stored["examples"]:
        assert set(example["filled"]) == {row["sampler"] for row in stored["rows"]}
        assert all(len(found) == len(example["cut"]) for found in example["filled"].values())
    summary = (tmp_path / "results/small.md").read_text()
    assert columns(summary) == {8, 6} and "6 held-out texts with 1, 2 and 3 gaps" in summary
    assert reader.texts and not (tmp_path / "results/logs").exists() or not list((tmp_path / "results/logs").iterdir())
    monkeypatch.setattr("flexmdm.tasks.pipeline.stream", None)  # what was asked is not asked again
    run(infilling, monkeypatch, *asked)
    assert json.loads((tmp_path / "results/small.json").read_text()) == stored
    with pytest.raises(SystemExit, match="too few for 999"):
        run(infilling, monkeypatch, phrases[0], "--num", 999, "--name", "small")


def test_the_scorers_are_tried_on_canonical_and_empty_fillings_and_on_gold_answers(tmp_path, monkeypatch):
    problem = {
        "task_id": "SingleLineInfilling/HumanEval/0/L0", "prompt": "def one():\n", "suffix": "",
        "canonical_solution": "    return 1\n",
        "test": "\ndef check(candidate):\n    assert candidate() == 1\n", "entry_point": "one",
    }  # fmt: skip
    samples = [{"task_id": problem["task_id"], "completion": text} for text in ("    return 1\n", "    return 2\n")]
    for name, rows in (
        ("HumanEval-SingleLineInfilling.jsonl", [problem]), ("example_problem.jsonl", [problem]),
        ("example_samples.jsonl", samples), *((f"{split}.jsonl", [{"question": "?", "answer": "#### 1,200"}])
        for split in ("train", "test")),
    ):  # fmt: skip
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    scorers = benchmark("scorers", tmp_path / "results")
    run(scorers, monkeypatch, "--humaneval", tmp_path, "--gsm8k", tmp_path, "--splits", "single-line")
    stored = json.loads((tmp_path / "results/scorers.json").read_text())
    found = {row["fillings"]: row["pass@1"]["value"] for row in stored["humaneval"]}
    assert found == {"canonical": 1.0, "empty": 0.0, "official": 0.5}
    assert [row["exact"] for row in stored["gsm8k"]] == [1, 1]
    assert len(columns((tmp_path / "results/scorers.md").read_text())) == 1


# Downstream -----------------------------------------------------------------------------------------------------------


def test_every_sampler_of_a_model_gets_its_rows_and_flexmdm_is_compared_with_mdm(tmp_path, monkeypatch):
    for split, num in (("train", 20), ("test", 5)):
        rows = [{"question": one.question, "answer": one.answer} for one in problems(num, split=split, events=(1, 2))]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for model in ("flexmdm", "mdm"):
        task = SFTTask((str(tmp_path / "train.jsonl"),), model, tokenizer="characters", max_length=100, held_out=0.2)
        tiny_run(task, tmp_path / model)
    downstream = benchmark("downstream", tmp_path / "results")
    asked = ("gsm8k", tmp_path / "flexmdm", tmp_path / "mdm", "--data", tmp_path, "--name", "sums", "--num", 4)
    run(downstream, monkeypatch, *asked, "--steps", 2, 80)
    stored = json.loads((tmp_path / "results/sums.json").read_text())
    rows = [(row["run"], row["sampler"], row["steps"]) for row in stored["rows"]]
    assert ("flexmdm", "spaced", 2) in rows and ("flexmdm", "spaced", 80) not in rows
    assert ("mdm", "low_confidence", 80) in rows and len(rows) == 9
    assert all(row["num"] == 4 and row["accuracy"]["low"] == 0 for row in stored["rows"])
    compared = [(row["sampler"], row["steps"], row["minus"]["steps"]) for row in stored["differences"]]
    assert {row["minus"]["run"] for row in stored["differences"]} == {"mdm"}
    assert compared[:4] == [("adaptive", 2, 2), ("adaptive", 80, 80), ("tau", 2, 2), ("tau", 80, 80)]
    assert compared[4][:2] == ("spaced", 2) and len(compared) == 5
    assert [len(one["items"]) for one in stored["examples"]] == [4, 4]
    assert len(columns((tmp_path / "results/sums.md").read_text())) == 2
    assert {file.name for file in (tmp_path / "results").iterdir()} >= {"sums.png", "sums-loss.png", "logs"}
    monkeypatch.setattr(downstream.sweeps, "written", None)  # what was generated is not generated again
    run(downstream, monkeypatch, *asked, "--steps", 2, 80)
    with pytest.raises(TypeError):  # unless asked to
        run(downstream, monkeypatch, *asked, "--steps", 2, 80, "--fresh")
    (tmp_path / "other").mkdir()
    with pytest.raises(SystemExit, match="different names"):
        run(downstream, monkeypatch, "gsm8k", tmp_path / "mdm", tmp_path / "other/mdm", "--data", ".", "--name", "sums")


def test_flexmdm_is_compared_with_the_better_sampler_of_mdm_and_with_as_many_evaluations(tmp_path):
    downstream = benchmark("downstream", tmp_path)

    def point(model, sampler, steps, evaluations, right):
        share = Interval(right / 10, 0.0, 1.0)
        return downstream.sweeps.Point(
            run=model, model=model, options={"sampler": sampler, "steps": steps}, num=10, measured=share,
            evaluations=evaluations, seconds=0.0, refused=0, hit_max_length=0, figures={},
            right=[number < right for number in range(10)],
        )  # fmt: skip

    flexmdm = [point("flexmdm", "adaptive", 64, 64, 6), point("flexmdm", "spaced", 64, 91, 7)]
    mdm = [point("mdm", "low_confidence", 64, 64, 4), point("mdm", "adaptive", 64, 62, 5)]
    mdm += [point("mdm", "low_confidence", 128, 128, 8), point("mdm", "tau", 16, 16, 9)]
    found = [(base, round(10 * difference.value)) for _, base, difference in downstream.against_mdm([*flexmdm, *mdm])]
    assert found == [(mdm[1], 1), (mdm[2], -1)]
    assert downstream.against_mdm(flexmdm) == []


# Antibodies -----------------------------------------------------------------------------------------------------------


def fairseq(config):
    """Random weights under the names that fairseq has for them, as Sapiens is stored."""
    from transformers import RobertaForMaskedLM

    inside = {
        "attention.self.query": "self_attn.q_proj", "attention.self.key": "self_attn.k_proj",
        "attention.self.value": "self_attn.v_proj", "attention.output.dense": "self_attn.out_proj",
        "attention.output.LayerNorm": "self_attn_layer_norm", "intermediate.dense": "fc1", "output.dense": "fc2",
        "output.LayerNorm": "final_layer_norm",
    }  # fmt: skip
    names = {
        "embeddings.word_embeddings": "embed_tokens", "embeddings.position_embeddings": "embed_positions",
        "embeddings.LayerNorm": "emb_layer_norm",
        **{f"encoder.layer.{n}.{ours}": f"layers.{n}.{theirs}" for n in range(2) for ours, theirs in inside.items()},
    }  # fmt: skip
    names = {f"roberta.{ours}": f"decoder.sentence_encoder.{theirs}" for ours, theirs in names.items()}
    names |= {f"lm_head.{name}": f"decoder.lm_head.{name}" for name in ("dense", "layer_norm")}
    names |= {"lm_head.decoder": "decoder.lm_head"}
    stored = RobertaForMaskedLM(config).state_dict()
    split = {name: name.rpartition(".")[::2] for name in stored}
    model = {f"{names[module]}.{kind}": stored[name] for name, (module, kind) in split.items() if module in names}
    return {"args": argparse.Namespace(encoder_attention_heads=2), "model": model}


def test_wheels_become_bases_that_predict_masked_residues_as_their_own_classes_do(tmp_path, monkeypatch):
    from transformers import BertConfig, BertForMaskedLM, RobertaConfig

    residues, size = "ACDEFGHIKLMNPQRSTVWY", {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    size |= {"num_attention_heads": 2, "vocab_size": 25, "max_position_embeddings": 64}
    (tmp_path / "wheels").mkdir()
    with ZipFile(tmp_path / "wheels/antiberty-0.1.3-py3-none-any.whl", "w") as wheel:
        files, inside = tmp_path / "bert", "antiberty/trained_models/"
        BertForMaskedLM(config := BertConfig(**size)).save_pretrained(files)
        torch.save(BertForMaskedLM(config).state_dict(), files / "pytorch_model.bin")
        for name in ("config.json", "pytorch_model.bin"):
            wheel.write(files / name, f"{inside}AntiBERTy_md_smooth/{name}")
        marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        wheel.writestr(f"{inside}vocab.txt", "\n".join([*marks, *residues]))
    with ZipFile(tmp_path / "wheels/sapiens-1.0.5-py3-none-any.whl", "w") as wheel:
        wheel.writestr("sapiens/models/v1/dict.txt", "".join(f"{one} 1\n" for one in residues))
        for chain in ("vh", "vl"):
            torch.save(fairseq(RobertaConfig(**size, pad_token_id=1, type_vocab_size=1)), tmp_path / "chain.pt")
            wheel.write(tmp_path / "chain.pt", f"sapiens/models/v1/checkpoint_{chain}.pt")
    columns_of = "sequence,h1_start,h1_end,h2_start,h2_end,h3_start,h3_end"
    rows = [f"{residues}{residues[n:]},2,5,8,10,14,18" for n in range(12)]
    (tmp_path / "test.csv").write_text("\n".join([columns_of, *rows]) + "\n")

    antibodies = benchmark("antibodies", tmp_path)
    run(antibodies, monkeypatch, "bases", tmp_path / "wheels", tmp_path / "bases")
    names = ("antiberty", "sapiens-vh", "sapiens-vl")
    run(antibodies, monkeypatch, "accuracy", *(tmp_path / "bases" / name for name in names), "--data", tmp_path)
    stored = json.loads((tmp_path / "antibodies.json").read_text())
    assert [(row["base"], row["framed"]) for row in stored["rows"]] == [(n, f) for n in names for f in (True, False)]
    assert all(set(row["accuracy"]) == set(antibodies.REGIONS) and row["chains"] == 12 for row in stored["rows"])
    assert max(row["difference"] for row in stored["rows"]) < 1e-5
    monkeypatch.setattr(antibodies, "measured", None)  # what was measured is not measured again
    run(antibodies, monkeypatch, "accuracy", tmp_path / "bases" / "antiberty", "--data", tmp_path)
    assert len(columns((tmp_path / "antibodies.md").read_text())) == 1 and str(tmp_path) not in json.dumps(stored)
    with pytest.raises(SystemExit, match=r"has no test.csv"):
        run(antibodies, monkeypatch, "accuracy", tmp_path / "bases/antiberty", "--data", tmp_path / "wheels")
    with pytest.raises(SystemExit, match="has no wheel"):
        run(antibodies, monkeypatch, "bases", tmp_path / "bases", tmp_path / "again")


# The recipe -----------------------------------------------------------------------------------------------------------


def test_changes_of_the_recipe_are_compared_with_the_common_one_and_not_trained_twice(tmp_path, monkeypatch, capsys):
    recipe = benchmark("recipe", tmp_path)
    monkeypatch.setitem(recipe.COMMON, "network", {"hidden": 16, "layers": 1, "heads": 2, "condition": 16})
    monkeypatch.setitem(recipe.COMMON, "task", {"name": "text", "tokenizer": "characters", "held_out": 0.2})
    data = tmp_path / "names.txt"
    data.write_text("".join(f"{first}nn{last}\n" for first in "abcdefgh" for last in "aeiou"))
    half = "batches of 512, half the steps"
    monkeypatch.setitem(recipe.CHANGES, half, {"recipe.batch_size": 8, "recipe.steps": 0.5})
    monkeypatch.setitem(recipe.COMMON["recipe"], "batch_size", 4)
    for only in ([half], [half, "cosine"]):
        run(recipe, monkeypatch, data, "--steps", 2, "--only", *only)
    assert capsys.readouterr().out.count(half) == 1
    lines = [line for line in (tmp_path / "recipe.md").read_text().splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[0] for line in lines[1:]] == ["| the common recipe", "| cosine", f"| {half}"]
    assert len(columns("\n".join(lines))) == 1


def test_trainings_on_a_known_source_are_measured_once_and_mdm_takes_as_long(tmp_path, monkeypatch, capsys):
    counting = benchmark("counting", tmp_path)
    for name, value in {"HELD_OUT": 4, "SAMPLES": 8, "BATCH": 8, "CLOCKS": (0.1,)}.items():
        monkeypatch.setattr(counting, name, value)
    asked = ("--steps", 2, "--seeds", 0, "--schedules", "early", "mdm late")
    run(counting, monkeypatch, *asked)
    rows = json.loads((tmp_path / "counting.json").read_text())
    assert [(row["recipe"], row["schedules"]) for row in rows] == [
        ("per gap", "early"), ("whole", "early"), ("whole", "mdm late")
    ]  # fmt: skip
    assert abs(rows[1]["ratios"]["2 masks at 0.1"] - 1) < 0.02  # a blank canvas is counted by the law of lengths
    assert "worst_ratio" not in rows[2] and len(columns((tmp_path / "counting.md").read_text())) == 1
    run(counting, monkeypatch, *asked)
    assert capsys.readouterr().out.count('"mdm late"') == 1
    with pytest.raises(SystemExit):
        run(counting, monkeypatch, "--steps", 1, "--seeds", 0, "--schedules", "mdm late")


def test_precisions_are_measured_in_turns(tmp_path, monkeypatch, capsys):
    precision = benchmark("precision", tmp_path)
    monkeypatch.setattr(precision, "SEQUENCES", 4)
    monkeypatch.setattr(
        precision, "WAYS", {"float32": ("float32", False), "a": ("bfloat16", False), "b": ("float32", False)}
    )
    run(precision, monkeypatch, "--widths", 16, "--repeats", 1)
    assert set(json.loads((tmp_path / "precision.json").read_text())[0]["seconds"]) == {"float32", "a", "b"}
    assert len(columns((tmp_path / "precision.md").read_text())) == 1 and "| 16 |" in capsys.readouterr().out


def test_coupled_sources_are_measured_once_and_compared_with_the_sampler_before(tmp_path, monkeypatch):
    coupled = benchmark("coupled", tmp_path)
    for options in (["--before"], []):
        run(coupled, monkeypatch, "--quick", "--only", "brackets", *options)
    records = coupled.read(tmp_path / "coupled-quick.json")
    assert {record["sampler"] for record in records} == {*coupled.TRIALS, coupled.BEFORE}
    monkeypatch.setattr(coupled, "measured", None)  # what is there is not measured again
    run(coupled, monkeypatch, "--quick", "--only", "brackets")
    tables = (tmp_path / "coupled-quick.md").read_text()
    assert "Brackets, 200 samples" in tables and len(columns(tables)) == 2


def test_a_figure_between_two_trials_is_interpolated():
    coupled = benchmark("coupled", None)
    records = [{"evaluations": 10, "error": 0.4}, {"evaluations": 40, "error": 0.1}, {"evaluations": 160, "error": 0.0}]
    assert coupled.at(records, 20, lambda r: r["error"]) == pytest.approx(0.2)
    assert coupled.at(records, 80, lambda r: r["error"]) == pytest.approx(0.05)
    assert coupled.at(records, 5, lambda r: r["error"]) is None
