"""A run is what its run.json says, and nothing else gets in."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from flexmdm.runs.config import RUN_FILE, RunConfig, read_config_file
from flexmdm.training.recipe import Network, Recipe


def test_a_run_is_read_back_as_it_was_written(tiny, tmp_path):
    config = tiny(optimizer="muon", accumulation=3)
    config.write(tmp_path / "new" / "folder")
    assert RunConfig.read(tmp_path / "new" / "folder") == config


def test_what_changed_is_named_with_both_values(tiny):
    config = tiny()
    other = RunConfig(
        {**config.task, "size": 9}, Network(hidden=64), replace(config.recipe, seed=3, clip=2.0), config.interpolant
    )
    words = "; ".join(config.differences(other))
    for expected in ("task.size: 7 in the run, 9 now", "network.hidden: 16 in the run, 64 now", "recipe.seed: 0 in"):
        assert expected in words
    assert "recipe.clip" in words and "recipe.steps" not in words and "task.pairs" not in words


def test_another_schedule_is_a_difference(tiny):
    config = tiny()
    cosine = {**config.interpolant, "insertion": {"name": "cosine"}}
    assert "interpolant.insertion.name" in "; ".join(config.differences(replace(config, interpolant=cosine)))


def test_only_how_long_and_how_often_may_change_in_a_run(tiny):
    config = tiny()
    free = {"steps": 99, "eval_every": 98, "eval_size": 97, "save_every": 96, "keep": 95, "log_every": 94}
    assert config.differences(replace(config, recipe=replace(config.recipe, **free))) == []


def test_a_task_may_not_change_what_a_recipe_may():
    config = RunConfig({"name": "other", "steps": 3})
    assert config.differences(RunConfig({"name": "other", "steps": 4})) == ["task.steps: 3 in the run, 4 now"]


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 0},
        {"steps": 1e4},
        {"batch_size": 0},
        {"accumulation": 0},
        {"eval_size": 0},
        {"keep": 0},
        {"optimizer": "sgd"},
        {"schedule": "linear"},
        {"targets": "none"},
        {"dtype": "float16"},
        {"ema": 1.0},
        {"beta2": 0.0},
        {"learning_rate": 0.0},
        {"clip": 0.0},
        {"warmup": -1},
        {"seed": -1},
        {"seed": 2**32},
    ],
)
def test_a_recipe_that_cannot_be_followed_is_refused_by_name(changes):
    ((name, value),) = changes.items()
    with pytest.raises(ValueError, match=rf"recipe\.{name} .*got '?{re.escape(str(value))}") as error:
        Recipe(**changes)
    assert str(error.value).count("recipe.") == 1  # nothing is named that is not wrong


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": 30, "heads": 4}, "(--hidden) must be a multiple of twice network.heads (--heads), got 30 and 4"),
        ({"hidden": 12, "heads": 4}, "got 12 and 4"),
        ({"heads": 0}, "got 256 and 0"),
        ({"lora_rank": -1}, "network.lora_rank (--lora-rank) must not be negative, got -1"),
        ({"groups": 0}, "network.groups (--groups) must be at least 1, got 0"),
        ({"lora_dropout": 1.0}, "network.lora_dropout must lie in [0, 1), got 1.0"),
    ],
)
def test_a_network_that_cannot_be_built_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Network(**changes)


def test_the_size_of_a_network_that_has_a_base_does_not_matter():
    assert Network(hidden=30, heads=4, base="runs/mine").hidden == 30


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        ("recipe", {"learning_rate": "fast"}, "recipe.learning_rate must be a number, got 'fast'"),
        ("recipe", {"warmup": 1.5}, "recipe.warmup must be a whole number, got 1.5"),
        ("recipe", {"compile": "no"}, "recipe.compile must be true or false, got 'no'"),
        ("recipe", {"keep": True}, "recipe.keep must be a whole number, got True"),
        ("network", {"architecture": 3}, "network.architecture must be a text, got 3"),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(part, values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        RunConfig.from_dict({"task": {}, part: values})
    RunConfig.from_dict({"task": {}, "recipe": {"learning_rate": 1}})  # a whole number will do


def test_weights_in_4_bits_are_not_cut_up():
    with pytest.raises(ValueError, match="leave out --shard"):
        RunConfig({}, Network(base="x", lora_rank=2, base_dtype="4-bit"), Recipe(shard=True))


def test_how_a_step_is_shared_out_may_change_if_it_has_as_many_sequences(tiny):
    config = tiny(batch_size=8)
    shares = [{"batch_size": 4, "accumulation": 2}, {"batch_size": 2, "processes": 4}]
    assert all(config.differences(tiny(**some)) == [] for some in shares)
    assert "recipe.accumulation" in "; ".join(config.differences(tiny(batch_size=8, accumulation=2)))


def test_unknown_keys_are_named_with_those_that_are_known():
    with pytest.raises(ValueError, match="recipe has no learnig_rate; it knows .*learning_rate"):
        RunConfig.from_dict({"task": {}, "recipe": {"learnig_rate": 1.0}})
    with pytest.raises(ValueError, match="network has no depth"):
        RunConfig.from_dict({"task": {}, "network": {"depth": 1}})
    with pytest.raises(ValueError, match="a run has no optimizer"):
        RunConfig.from_dict({"task": {}, "optimizer": {}})


@pytest.mark.parametrize("network", [{"hidden": 16}, {}])
def test_a_run_from_before_the_counting_head_keeps_its_head_and_its_clock(network, tmp_path, monkeypatch):
    @dataclass(frozen=True)
    class Later(Network):
        insertion_head: str = "count"
        clock: str = "logarithms"

    monkeypatch.setattr("flexmdm.runs.config.Network", Later)
    stored = {"task": {"name": "maze"}, "network": network}
    (tmp_path / RUN_FILE).write_text(json.dumps(stored))
    old, new = RunConfig.read(tmp_path).network, RunConfig.from_dict(stored).network
    assert (old.insertion_head, old.clock) == ("gap", "waves")
    assert (new.insertion_head, new.clock) == ("count", "logarithms")


def test_a_folder_without_run_json_is_not_a_run(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ValueError, match=f"{folder} is not a run"):
            RunConfig.read(folder)


@pytest.mark.parametrize("content", [b"", b'{"task": {', b"\xff\xfe\x00", b"[]", b"3", b"{}", b'{"recipe": 3}'])
def test_a_damaged_run_json_is_named(content, tmp_path):
    (tmp_path / RUN_FILE).write_bytes(content)
    with pytest.raises(ValueError, match=f"{RUN_FILE} is damaged"):
        RunConfig.read(tmp_path)


def test_a_disk_that_is_full_costs_no_run_json(tiny, tmp_path, monkeypatch):
    config = tiny()
    config.write(tmp_path)

    def half(self, text):
        with self.open("w") as file:
            file.write(text[: len(text) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="No space"):
        tiny(steps=99).write(tmp_path)
    assert RunConfig.read(tmp_path) == config


def test_a_config_file_gives_its_tables(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text('[task]\nname = "maze"\n[recipe]\nsteps = 7\n')
    assert RunConfig.from_dict(read_config_file(file)).recipe == Recipe(steps=7)


@pytest.mark.parametrize(("text", "words"), [("[task\n", "no valid TOML"), ("[tsak]\n", "has no tsak")])
def test_a_config_file_with_a_mistake_is_named(text, words, tmp_path):
    file = tmp_path / "a.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=f"a.toml .*{words}"):
        read_config_file(file)


# The configurations of the paper --------------------------------------------------------------------------------------

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize(
    ("name", "devices"), [("llada8b.toml", 16), ("llada8b-24gb.toml", 1), ("gsm8k.toml", 1), ("code8b.toml", 1)]
)
def test_the_8b_configurations_are_those_of_the_appendix(name, devices):
    stored = read_config_file(CONFIGS / name)
    run = RunConfig.from_dict({"task": {}, **stored})
    assert run.network.lora == {"rank": 128, "alpha": 128, "dropout": 0.1} and run.network.groups == 4
    recipe = run.recipe
    assert (recipe.optimizer, recipe.learning_rate, recipe.weight_decay) == ("adamw", 1e-4, 0.1)
    assert recipe.schedule == "restarts" and recipe.sequences * devices == 64
    if "llada8b" in name:
        assert recipe.steps == 200_000 and stored["task"]["balanced"] and len(stored["task"]["data"]) == 2
    else:
        assert recipe.steps == pytest.approx(1000 * 7473 / 64, rel=0.01)  # epochs of pairs
