"""A run from beginning to end: killed, resumed, damaged, refused, timed, shared by two processes, and loaded again."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.interpolants import FlexMDMInterpolant
from flexmdm.runs import train as module
from flexmdm.runs.config import RUN_FILE, RunConfig
from flexmdm.runs.train import train
from flexmdm.schedules import CosineSchedule, PolynomialSchedule
from flexmdm.tasks.loading import load
from flexmdm.training import progress, timing
from flexmdm.training.checkpoints import SEAL, checkpoints, fault, step_of
from flexmdm.training.learning_rate import LearningRate
from flexmdm.training.progress import read_log
from flexmdm.training.trainer import FlexMDMTrainer

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def state_of(checkpoint):
    """All that training goes on from."""
    state = {name: load_file(checkpoint / f"{name}.safetensors") for name in ("model", "ema")}
    for name in ("optimizer", "scheduler"):
        state[name] = torch.load(checkpoint / f"{name}.pt", weights_only=True)
    state["random"] = torch.load(checkpoint / "rng_state.pth", weights_only=False)["cpu"]
    return state


def everything_in(folder):
    """Every file below a folder, its content and when it was written."""
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory):
    """A run of six steps with checkpoints at 2, 4 and 6: to look at."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    train(tiny(), folder, device="cpu")
    return folder


@pytest.fixture(scope="module")
def longer(tiny, tmp_path_factory):
    """The same run with eight steps at once."""
    folder = tmp_path_factory.mktemp("runs") / "longer"
    train(tiny(steps=8), folder, device="cpu")
    return folder


@pytest.fixture(autouse=True)
def no_curves(monkeypatch):
    """They take longer than the training; the two runs above have them."""
    monkeypatch.setattr(module, "draw_losses", lambda logs, file: None)


@pytest.fixture
def copy(finished, tmp_path):
    """The run of six steps: to do anything with."""
    return shutil.copytree(finished, tmp_path / "copy")


# Killed and resumed --------------------------------------------------------------------------------------------------

KILLED_AFTER_FIVE_STEPS = """
import json, os, signal, sys
from pathlib import Path
from flexmdm.runs import train as run
from flexmdm.runs.config import RunConfig

class Log(run.FileLog):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == 5:
            os.kill(os.getpid(), signal.SIGKILL)

run.FileLog = Log
run.train(RunConfig.from_dict(json.loads(sys.argv[1])), Path(sys.argv[2]), device="cpu")
"""


@pytest.mark.parametrize(("optimizer", "accumulation"), [("adamw", 1), ("muon", 2)])
def test_a_run_that_was_killed_and_resumed_is_the_run_that_was_not_to_the_last_bit(
    optimizer, accumulation, tiny, tmp_path, same, console
):
    config = tiny(
        steps=8, optimizer=optimizer, accumulation=accumulation, dropout=0.3, schedule="cosine", save_every=4, keep=1
    )
    command = [sys.executable, "-c", KILLED_AFTER_FIVE_STEPS, json.dumps(config.to_dict()), str(tmp_path / "killed")]
    victim = subprocess.run(command, env=ONE_THREAD, capture_output=True, text=True)
    assert victim.returncode == -signal.SIGKILL, victim.stderr
    assert [step_of(folder) for folder in checkpoints(tmp_path / "killed")] == [4]
    assert read_log(tmp_path / "killed" / "log.jsonl")[-1]["step"] == 4

    resumed = train(config, tmp_path / "killed", resume=True, device="cpu", console=console)
    assert "going on from step 4" in console.file.getvalue()
    never = train(config, tmp_path / "never killed", device="cpu")
    a, b = (state_of(tmp_path / name / "checkpoint-8") for name in ("killed", "never killed"))
    for part in a:
        assert same(a[part], b[part]), part
    assert same(dict(resumed.state_dict()), dict(never.state_dict()))
    lines, expected = (read_log(tmp_path / name / "log.jsonl") for name in ("killed", "never killed"))
    for line in [*lines, *expected]:
        del line["seconds"]
        line.pop("tokens_per_second", None)
    assert lines == expected


def test_a_finished_run_goes_on_when_steps_are_raised_as_if_it_had_never_ended(copy, longer, tiny, same):
    train(tiny(steps=8), copy, resume=True, device="cpu")
    assert same(state_of(copy / "checkpoint-8"), state_of(longer / "checkpoint-8"))
    assert RunConfig.read(copy).recipe.steps == 8


def test_a_trapezoid_is_made_longer_as_if_it_had_been_meant_so(tiny, tmp_path, same):
    for name, steps in (("short", 6), ("long", 10)):
        train(tiny(steps=steps, schedule="trapezoid"), tmp_path / name, device="cpu")
    shutil.rmtree(tmp_path / "short" / "checkpoint-6")  # there the learning rate had begun to fall
    train(tiny(steps=10, schedule="trapezoid"), tmp_path / "short", resume=True, device="cpu")
    assert same(*(state_of(tmp_path / name / "checkpoint-10") for name in ("short", "long")))


def test_the_average_survives_a_resume(copy, longer, tiny, same):
    before = load_file(copy / "checkpoint-6" / "ema.safetensors")
    live = load_file(copy / "checkpoint-6" / "model.safetensors")
    assert any(not torch.equal(live[name], before[name]) for name in live)
    train(tiny(steps=8), copy, resume=True, device="cpu")
    after, expected = (load_file(f / "checkpoint-8" / "ema.safetensors") for f in (copy, longer))
    assert same(after, expected) and int(after["updates"]) == 8
    assert same(load_file(copy / "model.safetensors"), {k: v for k, v in expected.items() if k != "updates"})


def test_a_finished_run_that_is_resumed_stays_as_it_is(copy, tiny, console):
    before = load_file(copy / "model.safetensors")
    lines = (copy / "log.jsonl").read_text()
    train(tiny(), copy, resume=True, device="cpu", console=console)
    assert all(torch.equal(value, before[name]) for name, value in load_file(copy / "model.safetensors").items())
    assert (copy / "log.jsonl").read_text() == lines


def test_a_run_that_was_stopped_before_its_first_checkpoint_starts_again_and_says_so(tiny, tmp_path, console, finished):
    tiny().write(tmp_path)
    (tmp_path / "checkpoint-2").mkdir()  # and while it wrote the first one
    (tmp_path / "checkpoint-2" / "model.safetensors").write_bytes(b"half")
    train(tiny(), tmp_path, resume=True, device="cpu", console=console)
    said = console.file.getvalue()
    assert "checkpoint-2 cannot be used: it was not finished" in said and "starting from the beginning" in said
    weights = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(value, weights[name]) for name, value in load_file(finished / "model.safetensors").items())


@pytest.mark.parametrize(("times", "checkpoint"), [(1, 3), (2, 2)])
def test_ctrl_c_keeps_the_step_and_a_second_one_does_not_wait(
    times, checkpoint, tiny, tmp_path, console, monkeypatch, finished
):
    class Interrupted(module.FileLog):
        def on_step_begin(self, args, state, control, **_):
            if state.global_step == 2:  # the third is about to be taken
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(module, "FileLog", Interrupted)
        with pytest.raises(SystemExit) as left:
            train(tiny(), tmp_path / "run", device="cpu", console=console)
    assert left.value.code == 130 and signal.getsignal(signal.SIGINT) is before
    said = " ".join(console.file.getvalue().split())
    assert "run --resume (from checkpoint-" + str(checkpoint) in said
    train(tiny(), tmp_path / "run", resume=True, device="cpu", console=console)
    weights = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(value, weights[name]) for name, value in load_file(finished / "model.safetensors").items())


# Refused -------------------------------------------------------------------------------------------------------------


def test_another_configuration_is_refused_by_the_names_of_its_differences(copy, tiny):
    before = everything_in(copy)
    other = tiny(learning_rate=0.5, seed=3, dropout=0.4)
    with pytest.raises(ValueError) as caught:
        train(replace(other, task={**other.task, "size": 9}), copy, resume=True, device="cpu")
    for name in ("recipe.learning_rate: 0.01 in the run, 0.5 now", "recipe.seed", "network.dropout", "task.size"):
        assert name in str(caught.value)
    assert "recipe.batch_size" not in str(caught.value)
    assert everything_in(copy) == before


def test_the_same_task_in_fewer_words_is_the_same_run(copy, tiny):
    config = tiny()
    words = {key: value for key, value in config.task.items() if key not in ("maze_seed", "extra_doors", "model")}
    train(replace(config, task=words), copy, resume=True, device="cpu")


def test_another_number_of_sequences_in_a_step_is_refused(copy, tiny):
    config = tiny(steps=8, batch_size=5)
    with pytest.raises(ValueError, match="a step of .* has 8 sequences, and here it would have 5"):
        train(config, copy, resume=True, device="cpu")
    train(tiny(steps=7, batch_size=4, accumulation=2), copy, resume=True, device="cpu")  # as many in smaller pieces


def test_a_learning_rate_that_would_rise_again_is_said_to(tiny, tmp_path, console):
    train(tiny(steps=2, schedule="trapezoid"), tmp_path / "run", device="cpu", console=console)
    train(tiny(steps=4, schedule="trapezoid"), tmp_path / "run", resume=True, device="cpu", console=console)
    assert "with 4 steps it goes up again" in console.file.getvalue()


def test_fewer_steps_than_were_taken_are_refused(copy, tiny):
    before = everything_in(copy)
    with pytest.raises(ValueError, match="at step 6 already"):
        train(tiny(steps=5), copy, resume=True, device="cpu")
    assert everything_in(copy) == before


def test_a_run_is_not_begun_on_top_of_another(copy, tiny):
    before = everything_in(copy)
    with pytest.raises(ValueError, match="already holds a run: go on with --resume, or choose another --out"):
        train(tiny(), copy, device="cpu")
    assert everything_in(copy) == before


@pytest.mark.parametrize(("resume", "words"), [(False, "is not empty and not a run"), (True, "is not a run")])
def test_a_folder_with_something_else_in_it_is_left_alone(resume, words, tmp_path, tiny):
    (tmp_path / "thesis.tex").write_text("years of work")
    before = everything_in(tmp_path)
    with pytest.raises(ValueError, match=f"{tmp_path} {words}"):
        train(tiny(), tmp_path, resume=resume, device="cpu")
    assert everything_in(tmp_path) == before


def test_there_must_be_something_to_resume(tmp_path, tiny):
    with pytest.raises(ValueError, match="nothing to resume"):
        train(tiny(), tmp_path / "missing", resume=True, device="cpu")
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({}, {"device": "tpu"}, "cpu, cuda or mps"),
        ({}, {"device": "cpu", "minutes": 0}, "minutes must be positive"),
        ({"task": {"name": "chess"}}, {"device": "cpu"}, "unknown task 'chess'"),
        ({"task": {"name": "maze", "model": "gpt"}}, {"device": "cpu"}, "flexmdm or mdm"),
        ({"interpolant": {"insertion": {"name": "x"}, "unmasking": {"name": "x"}}}, {"device": "cpu"}, "x"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_there_is_a_folder(changes, options, words, tmp_path, tiny):
    with pytest.raises(ValueError, match=words):
        train(replace(tiny(), **changes), tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


# Damaged -------------------------------------------------------------------------------------------------------------


def shorten(file):
    file.write_bytes(file.read_bytes()[:-100])


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


DAMAGES = {
    "truncated weights": lambda f: shorten(f / "model.safetensors"),
    "a flipped bit": lambda f: flip(f / "optimizer.pt"),
    "no average": lambda f: (f / "ema.safetensors").unlink(),
    "no seal": lambda f: (f / SEAL).unlink(),
    "a seal of garbage": lambda f: (f / SEAL).write_bytes(b"\x00\xff garbage"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_said_aloud_and_the_one_before_taken(name, copy, longer, tiny, console, same):
    DAMAGES[name](copy / "checkpoint-6")
    train(tiny(steps=8), copy, resume=True, device="cpu", console=console)
    said = console.file.getvalue()
    assert "warning:" in said and f"{copy / 'checkpoint-6'} cannot be used" in said and "from step 4" in said
    assert same(state_of(copy / "checkpoint-8"), state_of(longer / "checkpoint-8"))
    assert fault(copy / "checkpoint-6") is None  # it was written again on the way
    steps = [line["step"] for line in read_log(copy / "log.jsonl") if "loss" in line]
    assert steps == list(range(1, 9))


def test_if_all_are_damaged_nothing_is_begun_anew_without_being_asked(copy, tiny, console):
    for folder in checkpoints(copy):
        shorten(folder / "model.safetensors")
    before = everything_in(copy)
    with pytest.raises(ValueError) as caught:
        train(tiny(steps=8), copy, resume=True, device="cpu", console=console)
    for words in ("checkpoint-6, checkpoint-4, checkpoint-2 are damaged", "delete them to start from the beginning"):
        assert words in str(caught.value)
    assert everything_in(copy) == before
    for folder in checkpoints(copy):
        shutil.rmtree(folder)
    train(tiny(steps=8), copy, resume=True, device="cpu", console=console)
    assert "starting from the beginning" in console.file.getvalue()
    assert [line["step"] for line in read_log(copy / "log.jsonl") if "loss" in line] == list(range(1, 9))


def test_a_damaged_checkpoint_does_not_push_out_what_is_saved_after_it(copy, tiny, console):
    shutil.rmtree(copy / "checkpoint-2")
    shorten(copy / "checkpoint-6" / "model.safetensors")
    train(tiny(steps=5, save_every=5, keep=1), copy, resume=True, device="cpu", console=console)
    assert [step_of(folder) for folder in checkpoints(copy)] == [5] and fault(copy / "checkpoint-5") is None


# What is left behind -------------------------------------------------------------------------------------------------


def test_the_weights_of_a_run_are_the_average_and_so_is_what_train_gives_back(tiny, tmp_path, same, weights):
    model = train(tiny(), tmp_path / "run", device="cpu")
    average = load_file(tmp_path / "run" / "checkpoint-6" / "ema.safetensors")
    del average["updates"]
    assert same(load_file(tmp_path / "run" / "model.safetensors"), average)
    assert same(weights(model), average) and not model.training


def test_a_finished_run_has_everything_in_its_folder(finished, tiny):
    assert RunConfig.read(finished) == tiny()
    assert (finished / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert {file.name for file in finished.iterdir() if file.is_file()} == {
        RUN_FILE, "config.json", "model.safetensors", "log.jsonl", "loss.png"
    }  # fmt: skip


def test_what_was_just_evaluated_is_not_evaluated_again(tiny, tmp_path, monkeypatch):
    calls = []
    evaluate = FlexMDMTrainer.evaluate
    monkeypatch.setattr(
        FlexMDMTrainer, "evaluate", lambda self, *a, **k: (calls.append(self.state.global_step), evaluate(self))[1]
    )
    train(tiny(eval_every=3), tmp_path / "even", device="cpu")
    assert calls == [3, 6]
    calls.clear()
    train(tiny(eval_every=4), tmp_path / "odd", device="cpu")
    assert calls == [4, 6]
    assert [line["step"] for line in read_log(tmp_path / "odd" / "log.jsonl") if "eval_loss" in line] == [4, 6]


def test_a_disk_that_is_full_at_the_very_end_costs_no_earlier_weights(copy, tiny, monkeypatch):
    before = (copy / "model.safetensors").read_bytes()
    save = FlexMDMModel.save_pretrained

    def half(self, folder, *arguments, **options):
        save(self, folder, *arguments, **options)
        if "checkpoint" not in str(folder):
            shorten(folder / "model.safetensors")
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(FlexMDMModel, "save_pretrained", half)
    with pytest.raises(OSError, match="No space"):
        train(tiny(steps=8), copy, resume=True, device="cpu")
    assert (copy / "model.safetensors").read_bytes() == before
    monkeypatch.undo()
    train(tiny(steps=8), copy, resume=True, device="cpu")
    assert load(copy)[1] is not None and (copy / "model.safetensors").read_bytes() != before


# Loaded --------------------------------------------------------------------------------------------------------------


def test_a_run_is_loaded_with_its_task_and_its_averaged_weights(finished, tiny, weights, same):
    task, model = load(finished)
    assert task.to_dict() == tiny().task and not model.training
    assert same(weights(model), load_file(finished / "model.safetensors"))


def test_an_unfinished_run_gives_the_average_of_its_latest_whole_checkpoint(copy, weights, same):
    (copy / "model.safetensors").unlink()
    shorten(copy / "checkpoint-6" / "ema.safetensors")
    with pytest.warns(UserWarning, match="checkpoint-6 cannot be used: ema.safetensors is damaged"):
        task, model = load(copy)
    average = load_file(copy / "checkpoint-4" / "ema.safetensors")
    del average["updates"]
    assert same(weights(model), average)
    assert not same(weights(model), load_file(copy / "checkpoint-4" / "model.safetensors"))


def test_a_run_that_ended_and_goes_on_gives_its_latest_checkpoint(copy, tiny, weights, same):
    """Its weights are those of its end until it ends again."""
    ended = (copy / "config.json").read_bytes(), (copy / "model.safetensors").read_bytes()
    longer = train(tiny(steps=8), copy, resume=True, device="cpu")
    (copy / "config.json").write_bytes(ended[0])
    (copy / "model.safetensors").write_bytes(ended[1])  # as if it had been interrupted behind its last checkpoint
    with pytest.warns(UserWarning, match="this is its checkpoint-8"):
        _, model = load(copy)
    assert same(weights(model), weights(longer))


def test_damaged_weights_are_said_to_be(copy):
    shorten(copy / "model.safetensors")
    with pytest.raises(ValueError, match="are damaged"):
        load(copy)


def test_what_cannot_be_loaded_is_refused_with_a_reason(copy, tmp_path, tiny):
    with pytest.raises(ValueError, match="is not a run"):
        load(tmp_path / "missing")
    tiny().write(tmp_path / "begun")
    with pytest.raises(ValueError, match="has no weights yet"):
        load(tmp_path / "begun")
    (copy / "config.json").unlink()
    with pytest.raises(ValueError, match="no config.json"):
        load(copy)


def test_the_schedules_of_a_run_are_those_that_generation_uses(tiny, tmp_path):
    interpolant = FlexMDMInterpolant(CosineSchedule(), PolynomialSchedule(3.0))
    config = replace(tiny(steps=2), interpolant=interpolant.to_dict())
    train(config, tmp_path / "run", device="cpu")
    for name in ("", "checkpoint-2"):
        assert FlexMDMModel.from_pretrained(tmp_path / "run" / name).interpolant == interpolant
    (tmp_path / "run" / "model.safetensors").unlink()  # from the checkpoint too
    task, model = load(tmp_path / "run")
    assert model.interpolant == interpolant and model.denoiser().interpolant == interpolant

    asked = []
    model.network.register_forward_pre_hook(lambda _, inputs: asked.append(inputs[4]))
    model.generate(prompts=[task.prompt(task.problems(1, 3)[0])], sampler="tau", steps=8, seed=0)
    times = torch.arange(len(asked) - 1, dtype=torch.float64) / 8  # the last one is the limit, alpha = 1
    expected = CosineSchedule().value(times)
    assert torch.cat(asked)[:-1].tolist() == pytest.approx(expected.tolist(), abs=1e-6)


# Timed ---------------------------------------------------------------------------------------------------------------


def test_a_run_of_some_seconds_ends_then_and_is_complete(tiny, tmp_path, console):
    train(tiny(steps=10**6, eval_every=10**5, save_every=10**5), tmp_path / "run", minutes=2 / 60, device="cpu")
    config, lines = RunConfig.read(tmp_path / "run"), read_log(tmp_path / "run" / "log.jsonl")
    last = checkpoints(tmp_path / "run")[0]
    assert 1 <= step_of(last) == config.recipe.steps < 10**4 and fault(last) is None
    assert config.recipe.warmup <= max(config.recipe.steps // 10, 0)
    assert [line["step"] for line in lines if "eval_loss" in line][-1] == step_of(last)
    assert lines[-1]["seconds"] < 30  # on whatever machine
    load(tmp_path / "run")

    train(replace(config, recipe=replace(config.recipe, steps=config.recipe.steps + 2)), tmp_path / "run", resume=True,
          minutes=1, device="cpu", console=console)  # fmt: skip
    assert f"going on from step {step_of(last)}" in console.file.getvalue()
    assert f"all steps are done at step {step_of(last) + 2}" in console.file.getvalue()


class Clock:
    """A clock on which the steps of a training take the seconds that they are given, and nothing else takes time."""

    def __init__(self, monkeypatch, *seconds, then=0.1):
        self.now, self.seconds, self.then = 1000.0, list(seconds), then
        for part in (timing, progress):
            monkeypatch.setattr(part, "time", self)
        step = FlexMDMTrainer.training_step

        def timed_step(trainer, *arguments, **options):
            self.now += self.seconds.pop(0) if self.seconds else self.then
            return step(trainer, *arguments, **options)

        monkeypatch.setattr(FlexMDMTrainer, "training_step", timed_step)

    def monotonic(self):
        return self.now


def test_a_slow_start_does_not_decide_how_many_steps_are_done(tiny, tmp_path, console, monkeypatch):
    Clock(monkeypatch, *[1.0] * 4, then=0.25)
    config = tiny(schedule="cosine", warmup=50, log_every=5, eval_every=10**4, save_every=10**4)
    train(config, tmp_path / "run", minutes=1, device="cpu", console=console)
    steps, said = 4 + 224, console.file.getvalue()
    assert "1 minutes of steps of 8 sequences" in said and f"the time is up at step {steps};" in said
    assert "teach little" not in said
    stored = RunConfig.read(tmp_path / "run").recipe
    assert (stored.steps, stored.eval_every, stored.save_every) == (steps, 29, 114) and 20 <= stored.warmup <= 23
    lines = read_log(tmp_path / "run" / "log.jsonl")
    rates = [line["learning_rate"] for line in lines if "loss" in line]
    assert max(rates) > 0.0099 and rates[-1] < 1e-6
    assert len([line for line in lines if "eval_loss" in line]) == 8
    assert [step_of(folder) for folder in checkpoints(tmp_path / "run")][0] == steps


def test_few_steps_are_warned_of_early_and_at_the_end_and_the_end_is_explained(tiny, tmp_path, console, monkeypatch):
    Clock(monkeypatch, then=2.0)
    train(tiny(eval_every=100, save_every=100), tmp_path / "run", minutes=0.5, device="cpu", console=console)
    said = console.file.getvalue()
    hint = "and fewer than 200 teach little: give more --minutes, or take a smaller network or --batch-size\n"
    assert f"warning: at this speed 15 steps fit in the time, {hint}" in said
    assert f"the time is up at step 15; weights, log and loss.png are in {tmp_path / 'run'}" in said
    assert f"warning: 15 steps are done, {hint}" in said


@pytest.mark.parametrize(("learning_rate", "barely"), [(1e-9, True), (1e-2, False)])
def test_a_loss_that_barely_left_its_start_is_warned_of_at_the_end(learning_rate, barely, tiny, tmp_path, console):
    changes = {"steps": 48, "log_every": 8, "save_every": 100, "batch_size": 16}
    train(tiny(learning_rate=learning_rate, **changes), tmp_path / "run", device="cpu", console=console)
    said = console.file.getvalue()
    assert ("warning: the loss has barely left its start" in said) == barely and "all steps are done at step 48" in said


def test_an_interrupted_run_by_the_clock_goes_on_with_the_steps_that_fitted(tiny, tmp_path, console, monkeypatch):
    class Interrupted(module.FileLog):
        def on_step_begin(self, args, state, control, **_):
            if state.global_step == 149:
                signal.raise_signal(signal.SIGINT)

    config = tiny(schedule="cosine", warmup=20, log_every=1, eval_every=10**4, save_every=10**4)
    with monkeypatch.context() as patch:
        Clock(patch, then=0.2)
        patch.setattr(module, "FileLog", Interrupted)
        with pytest.raises(SystemExit):
            train(config, tmp_path / "run", minutes=1, device="cpu", console=console)
    stored = RunConfig.read(tmp_path / "run")
    assert 299 <= stored.recipe.steps <= 300 and stored.recipe.warmup == 20  # rounded down
    with monkeypatch.context() as patch:
        Clock(patch, then=0.2)
        train(stored, tmp_path / "run", resume=True, minutes=0.1, device="cpu", console=console)
    said = f"the time is up at step 180 of {stored.recipe.steps}, and --resume goes on;"
    assert said in console.file.getvalue() and RunConfig.read(tmp_path / "run") == stored
    rates = [line["learning_rate"] for line in read_log(tmp_path / "run" / "log.jsonl") if "loss" in line]
    given = LearningRate(replace(config.recipe, steps=300))
    assert rates == pytest.approx([0.01 * given(step) for step in range(180)], abs=1e-4)


# Two processes -------------------------------------------------------------------------------------------------------

EACH_PROCESS = """
import json, os, sys
from dataclasses import replace
from pathlib import Path
import torch
from flexmdm.runs.config import RunConfig
from flexmdm.runs.train import train

config, folder = RunConfig.from_dict(json.loads(sys.argv[1])), Path(sys.argv[2])
train(replace(config, recipe=replace(config.recipe, steps=2)), folder, device="cpu")
model = train(config, folder, resume=True, minutes=60, device="cpu")
torch.save(model.state_dict(), folder / f"of-{os.environ['RANK']}.pt")
"""


def in_two_processes(script, config, folder):
    """Let torchrun start a script twice, with a configuration and the folder of a run."""
    file = folder.with_suffix(".py")
    file.write_text(script)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, str(file), json.dumps(config.to_dict()), str(folder)]
    with subprocess.Popen(command, env=ONE_THREAD, stderr=subprocess.PIPE, text=True) as both:
        try:
            _, errors = both.communicate(timeout=300)
        finally:
            both.terminate()  # if it hangs: torchrun ends its processes
    assert both.returncode == 0, errors
    return errors


@pytest.mark.slow
def test_two_processes_train_what_one_does_with_twice_the_passes(tiny, tmp_path, same, console):
    config = tiny(steps=3, batch_size=8, dropout=0.0, eval_every=3)
    in_two_processes(EACH_PROCESS, config, tmp_path / "two")
    first, second = (torch.load(tmp_path / "two" / f"of-{rank}.pt", weights_only=True) for rank in (0, 1))
    assert same(dict(first), dict(second))

    one = train(tiny(steps=3, batch_size=8, accumulation=2, dropout=0.0, eval_every=3), tmp_path / "one", device="cpu")
    for name, value in one.state_dict().items():  # the same batches; sums in another order, and Adam divides by them
        torch.testing.assert_close(first[name], value, atol=2e-4, rtol=1e-3, msg=name)
    mine, theirs = (read_log(tmp_path / name / "log.jsonl") for name in ("one", "two"))
    assert [line["step"] for line in theirs] == [1, 2, 2, 3, 3]  # also evaluated where it paused; nothing twice
    for a, b in zip([line for line in mine if "loss" in line], [x for x in theirs if "loss" in x], strict=True):
        for term in ("loss", "unmasking", "insertion", "sequences", "learning_rate"):
            assert a[term] == pytest.approx(b[term], rel=1e-3), term
    assert mine[-1]["eval_loss"] == pytest.approx(theirs[-1]["eval_loss"], rel=1e-3)

    last = tmp_path / "two" / "checkpoint-3"
    assert fault(last) is None
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= set(json.loads((last / SEAL).read_text()))

    stored = RunConfig.read(tmp_path / "two")
    assert stored.recipe.processes == 2 and stored.recipe.sequences == 16
    more = replace(stored, recipe=replace(stored.recipe, steps=4))
    train(more, tmp_path / "two", resume=True, device="cpu", console=console)  # in one process
    assert "2 processes then, 1 now: 2 passes per step" in console.file.getvalue()
    assert read_log(tmp_path / "two" / "log.jsonl")[-1]["sequences"] == 64


BY_THE_CLOCK = """
import json, os, sys, time
from pathlib import Path
import torch
from flexmdm.runs.config import RunConfig
from flexmdm.runs.train import train
from flexmdm.training import timing

class Clock:  # the second process has another idea of the time
    @staticmethod
    def monotonic():
        return time.monotonic() * (3 if os.environ["RANK"] == "1" else 1)

timing.time = Clock
model = train(RunConfig.from_dict(json.loads(sys.argv[1])), Path(sys.argv[2]), minutes=0.05, device="cpu")
torch.save(model.state_dict(), Path(sys.argv[2]) / f"of-{os.environ['RANK']}.pt")
"""


@pytest.mark.slow
def test_two_processes_go_by_one_clock(tiny, tmp_path, same):
    errors = in_two_processes(BY_THE_CLOCK, tiny(warmup=20, schedule="cosine", save_every=10**4), tmp_path / "two")
    first, second = (torch.load(tmp_path / "two" / f"of-{rank}.pt", weights_only=True) for rank in (0, 1))
    assert same(dict(first), dict(second))
    stored = RunConfig.read(tmp_path / "two").recipe
    assert f"the time is up at step {stored.steps}" in errors and stored.threads == 1 == stored.processes - 1
    assert step_of(checkpoints(tmp_path / "two")[0]) == stored.steps
