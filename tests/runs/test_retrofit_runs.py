"""Runs that start from a pretrained model: alone, on several processes, sharded; and from a run of our own."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from flexmdm.backbones import llada
from flexmdm.backbones.model import FlexMDMModel
from flexmdm.backbones.retrofit import RetrofitModel, load_base, untrained
from flexmdm.runs.building import build
from flexmdm.runs.config import RunConfig
from flexmdm.runs.train import train
from flexmdm.tasks.code.task import CodeTask
from flexmdm.tasks.loading import load
from flexmdm.tasks.maze.task import MazeTask
from flexmdm.tasks.text.task import TextTask
from flexmdm.training.checkpoints import fault
from flexmdm.training.progress import read_log
from flexmdm.training.recipe import Network, Recipe
from flexmdm.training.trainer import FlexMDMTrainer

LORA = {"lora_rank": 2, "lora_alpha": 4, "lora_dropout": 0.0}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """An MDM in LLaDA's shape and under its names, for the mazes of these tests."""
    torch.manual_seed(0)
    tokens = MazeTask(size=7).vocab_size
    body = llada.shape(tokens + 2, hidden=16, layers=2, heads=2)
    folder = tmp_path_factory.mktemp("base")
    llada.export(untrained(body, mask_id=tokens + 1, insertions=False, groups=2).network, body, tokens + 1, folder)
    return folder


@pytest.fixture
def retrofitted(tiny, base):
    """The configuration of a run on top of it."""

    def make(network=None, **recipe):
        settings = {"base": str(base), "groups": 2, **LORA, **(network or {})}
        return replace(tiny(dropout=0.0, **recipe), network=Network(**settings))

    return make


def test_only_what_was_trained_is_saved_and_the_run_goes_on_and_loads(
    retrofitted, base, tmp_path, console, same, weights
):
    config = retrofitted(steps=4, save_every=2)
    whole = train(config, tmp_path / "whole", device="cpu", console=console)
    train(replace(config, recipe=replace(config.recipe, steps=2)), tmp_path / "parts", device="cpu", console=console)
    gone_on = train(config, tmp_path / "parts", resume=True, device="cpu", console=console)
    assert same(weights(whole), weights(gone_on))

    frozen = {name for name, p in whole.named_parameters() if not p.requires_grad}
    stored = set(RetrofitModel.from_pretrained(tmp_path / "whole").kept_weights)
    assert frozen and not frozen & stored
    before = load_base(base).parts
    assert torch.equal(whole.network.norm.weight, before.norm.weight)  # nothing of the base has moved
    _, model = load(tmp_path / "whole")
    assert same(weights(whole), weights(model))


def test_a_run_does_not_go_on_over_another_base(retrofitted, base, tmp_path, console):
    place = shutil.copytree(base, tmp_path / "base")
    config = retrofitted({"base": str(place)}, steps=2)
    train(config, tmp_path / "run", device="cpu", console=console)
    shutil.rmtree(place)
    torch.manual_seed(1)
    tokens = MazeTask(size=7).vocab_size
    body = llada.shape(tokens + 2, hidden=16, layers=2, heads=2)
    other = untrained(body, mask_id=tokens + 1, insertions=False, groups=2)
    llada.export(other.network, body, tokens + 1, place)
    longer = replace(config, recipe=replace(config.recipe, steps=3))
    with pytest.raises(ValueError, match="was trained on top of other weights"):
        train(longer, tmp_path / "run", resume=True, device="cpu", console=console)


def test_all_weights_are_not_trained_under_adapters(retrofitted, tmp_path, console):
    train(retrofitted(steps=1), tmp_path / "run", device="cpu", console=console)
    run = {"base": str(tmp_path / "run"), "lora_alpha": None}
    _, going_on = build(retrofitted({**run, "lora_rank": None}))
    assert going_on.config.lora["rank"] == LORA["lora_rank"]
    with pytest.raises(ValueError, match="has adapters: go on with these"):
        build(retrofitted({**run, "lora_rank": 0}))


def test_the_learning_rate_falls_to_zero_as_often_as_the_schedule_restarts(retrofitted, tmp_path, console):
    config = retrofitted(steps=12, warmup=0, schedule="restarts", cycles=3, save_every=50)
    train(config, tmp_path / "run", device="cpu", console=console)
    rates = [line["learning_rate"] for line in read_log(tmp_path / "run" / "log.jsonl") if "loss" in line]
    assert sum(later > earlier for earlier, later in zip(rates, rates[1:], strict=False)) == 2


def test_a_tokenizer_with_more_tokens_than_the_base_is_refused(retrofitted):
    config = retrofitted()
    larger = MazeTask(**{**MazeTask.from_dict(config.task).__dict__, "size": 9})
    with pytest.raises(ValueError, match="the task has .* tokens and .* knows"):
        build(replace(config, task=larger.to_dict()))


def test_separators_without_a_row_in_the_table_of_the_base_are_named(tmp_path, monkeypatch, console):
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "lines.txt").write_text("".join(f"{'abc' * (n % 3 + 1)}\n" for n in range(40)))
    (tmp_path / "code").mkdir()
    for n in range(20):
        (tmp_path / "code" / f"{n}.py").write_text(f"def f{n}(x):\n    y = x + {n}\n    return y * x\n")
    lines = TextTask(str(tmp_path / "lines.txt"), "mdm", tokenizer="bytes")
    code = CodeTask(str(tmp_path / "code"), "mdm", tokenizer="bytes", held_out=0.2)
    recipe = Recipe(steps=1, batch_size=4, eval_size=4)
    train(RunConfig(lines.to_dict(), Network(16, 1, 2), recipe), tmp_path / "base", device="cpu", console=console)
    with pytest.raises(ValueError, match=r"knows 257: 4 that stand behind those of the tokenizer .* rows to spare"):
        build(RunConfig(code.to_dict(), Network(base=str(tmp_path / "base")), recipe))


def test_adapters_need_a_base_built_like_llama(tiny, tmp_path, console):
    with pytest.raises(ValueError, match="needs a model to adapt"):
        build(replace(tiny(), network=Network(lora_rank=4)))
    train(tiny(steps=2), tmp_path / "dit", device="cpu", console=console)
    with pytest.raises(ValueError, match="not built as adapters need it"):
        build(replace(tiny(), network=Network(base=str(tmp_path / "dit"), lora_rank=4)))


def test_other_tokens_than_those_of_the_base_are_refused(tmp_path, monkeypatch, console):
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    tasks = []
    for name, letters in (("first.txt", "abc"), ("second.txt", "ab")):
        (tmp_path / name).write_text("".join(f"{letters * (n % 3 + 1)}\n" for n in range(40)))
        tasks.append(TextTask(str(tmp_path / name), tokenizer="characters"))
    recipe = Recipe(steps=1, batch_size=4, eval_size=4)
    first, second = (RunConfig(task.to_dict(), Network(16, 1, 2), recipe) for task in tasks)
    train(first, tmp_path / "run", device="cpu", console=console)
    with pytest.raises(ValueError, match="tokens of the data are not those of"):
        build(replace(second, network=Network(base=str(tmp_path / "run"))))


@pytest.mark.parametrize("architecture", ["dit", "llada"])
def test_a_run_of_ours_can_be_the_base(tiny, tmp_path, console, architecture):
    """MDM -> FlexMDM: the tokens are predicted as before, and it trains; FlexMDM -> FlexMDM: it goes on as it is.

    FlexMDM -> MDM: a DiT loses its insertion head, and nothing else.
    """
    task = MazeTask.from_dict({**tiny().task, "model": "mdm"})
    network = replace(tiny().network, architecture=architecture, groups=1)
    mdm = train(replace(tiny(task=task, steps=2), network=network), tmp_path / "mdm", device="cpu", console=console)

    config = replace(tiny(steps=2), network=Network(base=str(tmp_path / "mdm"), groups=1))
    _, flexmdm = build(config)
    mask, tokens, lengths = mdm.config.mask_id, torch.tensor([1, 0, 3, 0]), torch.tensor([3, 1])
    tokens[[1, 3]] = mask
    alpha = torch.tensor([0.2, 0.9])
    told = [model.eval()(tokens, lengths, alpha=alpha).logits for model in (mdm, flexmdm)]
    torch.testing.assert_close(*told, rtol=0, atol=1e-6)

    train(config, tmp_path / "flexmdm", device="cpu", console=console)
    _, trained = load(tmp_path / "flexmdm")
    _, again = build(replace(config, network=Network(base=str(tmp_path / "flexmdm"), groups=1)))
    assert isinstance(again, FlexMDMModel) and again.config.insertions
    told = [model.eval()(tokens, lengths, alpha=alpha) for model in (trained, again)]
    assert torch.equal(told[0].logits, told[1].logits) and torch.equal(told[0].insertions, told[1].insertions)
    back = replace(config, task=task.to_dict(), network=Network(base=str(tmp_path / "flexmdm")))
    if architecture == "llada":
        with pytest.raises(ValueError, match="cannot become an MDM"):
            build(back)
    else:  # the same tokens without an insertion head
        _, without = build(back)
        assert not without.config.insertions
        assert torch.equal(without.eval()(tokens, lengths, alpha=alpha).logits, told[0].logits)


EACH_PROCESS = """
import json, sys
from dataclasses import replace
from pathlib import Path
from flexmdm.runs.config import RunConfig
from flexmdm.runs.train import train

config, folder = RunConfig.from_dict(json.loads(sys.argv[1])), Path(sys.argv[2])
for shard in (False, True):
    recipe = replace(config.recipe, shard=shard)
    place = folder / ("sharded" if shard else "copied")
    train(replace(config, recipe=replace(recipe, steps=2)), place, device="cpu")
    train(replace(config, recipe=recipe), place, resume=True, device="cpu")
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_two_processes_train_what_one_does_copied_and_sharded(retrofitted, tmp_path, dtype):
    """To 1e-3 of the loss: sums are taken in another order, and Adam divides by them."""
    network = {"base_dtype": dtype}
    config = retrofitted(network, steps=4, eval_every=1, gradient_checkpointing=True)
    script = tmp_path / "each.py"
    script.write_text(EACH_PROCESS)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, str(script), json.dumps(config.to_dict()), str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as both:
        try:
            _, errors = both.communicate(timeout=300)
        finally:
            both.terminate()  # if it hangs: torchrun ends its processes
    assert both.returncode == 0, errors

    train(retrofitted(network, steps=4, eval_every=1, accumulation=2), tmp_path / "one", device="cpu")
    expected = read_log(tmp_path / "one" / "log.jsonl")
    _, alone = load(tmp_path / "one")
    for name in ("copied", "sharded"):
        lines = read_log(tmp_path / name / "log.jsonl")
        losses, truth = ([x["loss"] for x in log if "loss" in x] for log in (lines, expected))
        assert losses == pytest.approx(truth, rel=1e-3)
        assert lines[-1]["eval_loss"] == pytest.approx(expected[-1]["eval_loss"], rel=1e-3)
        assert fault(tmp_path / name / "checkpoint-4") is None
        _, model = load(tmp_path / name)  # in one process
        for weight, value in model.named_parameters():
            torch.testing.assert_close(value, alone.get_parameter(weight), atol=1e-3, rtol=1e-2, msg=weight)


def test_a_training_that_starts_from_a_run_draws_states_the_run_has_not_seen(tiny, tmp_path, console):
    config = tiny(steps=2)
    train(config, tmp_path / "first", device="cpu", console=console)
    states = []
    for base in (None, tmp_path / "first", tmp_path / "second"):
        network = config.network if base is None else Network(base=str(base))
        begun = replace(config, network=network)
        task, model = build(begun)
        trainer = FlexMDMTrainer(model, begun.recipe, task.train, task.validation, tmp_path / "nowhere", device="cpu")
        states.append(trainer.data_collator(range(8)).sample.t.tolist())
        if base == tmp_path / "first":
            train(begun, tmp_path / "second", device="cpu", console=console)
    assert states[0] != states[1] != states[2] != states[0]
