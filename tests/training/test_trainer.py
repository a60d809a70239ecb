"""What the trainer learns, what it counts, when it stops, and what is on the disk then."""

import math
import resource
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import TrainerCallback

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.training import trainer as module
from flexmdm.training.checkpoints import checkpoints, fault, latest, step_of
from flexmdm.training.ema import EMA
from flexmdm.training.trainer import Diverged, FlexMDMTrainer


class Watch(TrainerCallback):
    """Remembers what was logged, and the gradient that each step of the optimizer got."""

    def __init__(self):
        self.lines, self.gradients = [], []

    def on_log(self, args, state, control, logs, **_):
        self.lines.append({"step": state.global_step, **logs})

    def on_pre_optimizer_step(self, args, state, control, model, **_):
        self.gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})

    def of(self, key):
        return [line[key] for line in self.lines if key in line]


def steps_on_disk(folder):
    return [step_of(found) for found in checkpoints(folder)]


# What is learned -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_loss_on_what_was_learned_goes_down(optimizer, trainer):
    train = trainer(steps=25, save_every=1000, optimizer=optimizer, eval_size=40)
    train._validation.examples = train.data_collator.examples
    before = train.evaluate()
    train.train()
    after = train.evaluate()
    for term in ("eval_loss", "eval_unmasking", "eval_insertion"):
        assert after[term] < 0.95 * before[term]


def test_both_terms_of_the_loss_add_up_to_it(trainer):
    watch = Watch()
    trainer(watch, steps=3, accumulation=2).train()
    for line in watch.lines[:3]:
        assert math.isclose(line["unmasking"] + line["insertion"], line["loss"], rel_tol=1e-3)
    assert watch.of("sequences")[:3] == [16, 32, 48]


def test_the_learning_rate_warms_up_and_falls_like_a_cosine_to_zero(trainer):
    watch = Watch()
    trainer(watch, steps=12, warmup=4, schedule="cosine", learning_rate=0.5).train()
    expected = [0.5 * k / 4 for k in range(4)] + [0.25 * (1 + math.cos(math.pi * k / 8)) for k in range(8)]
    assert watch.of("learning_rate") == pytest.approx(expected)


def test_the_learning_rate_warms_up_and_stays(trainer):
    watch = Watch()
    trainer(watch, steps=6, warmup=4, schedule="constant", learning_rate=0.5).train()
    assert watch.of("learning_rate") == pytest.approx([0.0, 0.125, 0.25, 0.375, 0.5, 0.5])


def test_a_trapezoid_stays_and_falls_over_its_last_fifth(trainer):
    watch = Watch()
    trainer(watch, steps=10, warmup=2, schedule="trapezoid", learning_rate=0.5).train()
    assert watch.of("learning_rate") == pytest.approx([0.0, 0.25, *[0.5] * 6, 0.5, 0.25])


def test_the_gradient_is_clipped_and_its_norm_before_that_is_logged(trainer):
    watch = Watch()
    trainer(watch, steps=3, clip=0.01).train()
    norms = [float(torch.stack([g.norm() for g in each.values()]).norm()) for each in watch.gradients]
    assert norms == pytest.approx([0.01] * 3, rel=1e-3)
    assert min(watch.of("grad_norm")) > 1.0


def test_accumulated_gradients_are_the_mean_over_the_passes(trainer):
    watch = Watch()
    train = trainer(watch, steps=1, batch_size=4, accumulation=3, clip=1e9, dropout=0.0)
    model, collate = FlexMDMModel(train.model.config), train.data_collator
    model.load_state_dict(train.model.state_dict())
    train.train()
    for first in (0, 4, 8):
        batch = collate(list(range(first, first + 4)))
        output = model(**batch.inputs(model.config.mask_id))
        (batch.loss(output.logits, output.insertions, model.interpolant).total.mean() / 3).backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(watch.gradients[0][name], p.grad, msg=name)


def test_bounded_weights_change_what_is_learned_and_not_what_is_logged(trainer):
    usual, bounded = Watch(), Watch()
    trainer(usual, steps=1, dropout=0.0).train()
    trainer(bounded, steps=1, dropout=0.0, largest_weight=0.5).train()
    assert bounded.of("loss") == pytest.approx(usual.of("loss"), rel=1e-3)
    assert bounded.of("grad_norm")[0] < 0.5 * usual.of("grad_norm")[0]


@pytest.mark.parametrize(("batch_size", "accumulation"), [(8, 1), (8, 2), (4, 3)])
def test_every_sample_number_is_used_once_and_in_order(batch_size, accumulation, trainer):
    train = trainer(steps=4, batch_size=batch_size, accumulation=accumulation)
    collate, seen = train.data_collator, []
    train.data_collator = lambda numbers: (seen.append(numbers), collate(numbers))[1]
    train.train()
    assert all(len(numbers) == batch_size for numbers in seen)
    assert sum(seen, []) == list(range(4 * batch_size * accumulation))


@pytest.mark.parametrize("targets", ["marginalised", "sampled"])
def test_targets_are_those_of_the_recipe_and_the_evaluation_is_the_same_for_both(targets, trainer):
    train = trainer(targets=targets)
    assert (train.data_collator([0, 1]).alignment is not None) == (targets == "marginalised")
    assert train._validation([0, 1]).alignment is not None


# The average ---------------------------------------------------------------------------------------------------------


def test_evaluation_is_that_of_a_model_with_the_averaged_weights_and_leaves_the_live_ones_alone(trainer, weights, same):
    train = trainer(steps=4)
    train.train()
    live = weights(train.model)
    metrics = train.evaluate()
    assert same(weights(train.model), live) and train.model.training
    assert not same(live, train.ema.average)

    averaged = FlexMDMModel(train.model.config).eval()
    averaged.load_state_dict(train.ema.average)
    losses = []
    with torch.no_grad():
        for first in (0, 8):
            batch = train._validation(list(range(first, first + 8)))
            output = averaged(**batch.inputs(averaged.config.mask_id))
            losses.append(batch.loss(output.logits, output.insertions, averaged.interpolant))
    assert metrics["eval_unmasking"] == pytest.approx(float(torch.cat([each.unmasking for each in losses]).mean()))
    assert metrics["eval_insertion"] == pytest.approx(float(torch.cat([each.insertion for each in losses]).mean()))
    assert metrics["eval_loss"] == pytest.approx(metrics["eval_unmasking"] + metrics["eval_insertion"])


def test_the_average_moves_once_for_every_step_of_the_optimizer(trainer):
    train = trainer(steps=5, accumulation=2)
    train.train()
    assert train.ema.updates == 5


def test_the_average_is_in_the_checkpoint_and_comes_back(trainer, same):
    train = trainer(steps=4, save_every=4)
    train.train()
    stored = EMA(train.model, decay=0.0)
    stored.load(train.folder / "checkpoint-4")
    assert same(stored.average, train.ema.average) and stored.updates == 4
    again = trainer(steps=4)
    again.train(resume_from_checkpoint=str(train.folder / "checkpoint-4"))
    assert same(again.ema.average, train.ema.average) and again.ema.updates == 4


def test_how_often_one_looks_changes_nothing(trainer, tmp_path, weights, same):
    often = trainer(folder=tmp_path / "often", eval_every=1, save_every=1, log_every=1)
    often.train()
    seldom = trainer(folder=tmp_path / "seldom", eval_every=5, save_every=100, log_every=3, eval_size=3, keep=1)
    seldom.train()
    assert same(weights(often.model), weights(seldom.model)) and same(often.ema.average, seldom.ema.average)


# Checkpoints ---------------------------------------------------------------------------------------------------------


def test_a_resumed_run_saves_and_evaluates_as_often_as_it_is_told_now(trainer):
    train = trainer(steps=4, save_every=2)
    train.train()
    watch = Watch()
    again = trainer(watch, steps=8, save_every=3, eval_every=2, log_every=2)
    again.train(resume_from_checkpoint=str(train.folder / "checkpoint-4"))
    assert steps_on_disk(train.folder) == [8, 6, 4, 2]
    assert [line["step"] for line in watch.lines if "eval_loss" in line] == [6, 8]
    assert [line["step"] for line in watch.lines if "loss" in line] == [6, 8]


def test_only_the_latest_checkpoints_are_kept(trainer):
    train = trainer(steps=6, save_every=1, keep=2)
    train.train()
    assert steps_on_disk(train.folder) == [6, 5]


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("transformers.modeling_utils.safe_save_file", SafetensorError("No space left on device (os error 28)")),
        ("torch.save", RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")),
        ("flexmdm.training.ema.EMA.save", OSError(28, "No space left on device")),
        ("flexmdm.training.trainer.seal", OSError(28, "No space left on device")),
        ("transformers.TrainerState.save_to_json", OSError(28, "No space left on device")),
        ("flexmdm.training.trainer.FlexMDMTrainer.save_model", OSError(28, "No space left on device")),
    ],
)
def test_a_full_disk_leaves_the_checkpoint_before_whole_and_none_that_is_not(
    target, error, trainer, at_step, monkeypatch
):
    def fail(*_, **__):
        raise error

    train = trainer(at_step(3, lambda: monkeypatch.setattr(target, fail)))
    with pytest.raises(OSError) as caught:
        train.train()
    words = str(caught.value)
    assert "checkpoint of step 4 could not be saved" in words and str(error) in words
    assert f"{train.folder / 'checkpoint-2'} is whole" in words
    assert steps_on_disk(train.folder) == [2] and fault(train.folder / "checkpoint-2") is None


@pytest.mark.parametrize("room", [500, 20_000, 60_000])  # config.json, the weights, the state of the optimizer
def test_a_disk_that_takes_no_more_bytes_is_such_a_full_disk(room, trainer, monkeypatch):
    """The kernel itself refuses to write, as far as a test can have that."""
    save, (soft, hard) = FlexMDMTrainer._save_checkpoint, resource.getrlimit(resource.RLIMIT_FSIZE)

    def limited(self, *arguments):
        try:
            if self.state.global_step == 4:
                resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
            save(self, *arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    monkeypatch.setattr(FlexMDMTrainer, "_save_checkpoint", limited)
    train = trainer()
    with pytest.raises(OSError, match="checkpoint of step 4 could not be saved .*checkpoint-2 is whole"):
        train.train()
    assert steps_on_disk(train.folder) == [2] and fault(train.folder / "checkpoint-2") is None


def test_a_full_disk_at_the_first_checkpoint_says_that_there_is_none(trainer, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "seal", fail)
    train = trainer()
    with pytest.raises(OSError, match="there is no earlier one"):
        train.train()
    assert steps_on_disk(train.folder) == []


def test_a_checkpoint_that_an_earlier_attempt_left_half_done_is_written_anew(trainer):
    train = trainer(steps=2)
    rest = train.folder / "checkpoint-2"
    rest.mkdir(parents=True)
    (rest / "left.over").write_text("from before")
    train.train()
    assert fault(rest) is None and not (rest / "left.over").exists()


# When it goes wrong --------------------------------------------------------------------------------------------------


def poison(train, value):
    next(iter(train.model.parameters())).data.fill_(value)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_the_run_and_leaves_all_one_needs(value, trainer, at_step, tmp_path, same):
    train = trainer(at_step(3, lambda: poison(train, value)), dropout=0.0)
    with pytest.raises(Diverged) as caught:
        train.train()
    words, file = str(caught.value), train.folder / "bad-batch-4.safetensors"
    assert "the loss is nan at step 4" in words
    assert str(file) in words and f"{train.folder / 'checkpoint-2'}." in words

    batch, stored = train.data_collator(list(range(24, 32))), load_file(file)
    assert same({name: stored[name] for name in batch.inputs(train.model.config.mask_id)}, batch.inputs(49))
    assert torch.equal(stored["t"], batch.sample.t) and torch.equal(stored["clean"], batch.sample.x1.values)
    assert torch.equal(stored["clean_lengths"], batch.sample.x1.lengths)

    assert fault(train.folder / "checkpoint-2") is None and steps_on_disk(train.folder) == [2]
    again, never = trainer(dropout=0.0), trainer(dropout=0.0, folder=tmp_path / "never poisoned")
    again.train(resume_from_checkpoint=str(latest(train.folder)))
    never.train()
    assert same(again.ema.average, never.ema.average)


def test_a_gradient_that_is_not_finite_stops_the_run_before_it_does_harm(trainer, at_step):
    def spoil():
        next(iter(train.model.parameters())).register_hook(lambda gradient: gradient * math.inf)

    train = trainer(at_step(4, spoil, "on_step_begin"))
    with pytest.raises(Diverged, match="the norm of the gradient is (nan|inf) at step 5, .*checkpoint-4"):
        train.train()
    assert (train.folder / "bad-batch-5.safetensors").is_file()
    assert all(bool(p.isfinite().all()) for p in train.model.parameters())


def test_weights_that_are_not_finite_never_get_into_a_checkpoint(trainer, at_step):
    train = trainer(at_step(4, lambda: poison(train, math.nan)), keep=1)  # at a step that saves
    with pytest.raises(Diverged, match="a weight is not finite .*checkpoint-2"):
        train.train()
    assert steps_on_disk(train.folder) == [2] and fault(train.folder / "checkpoint-2") is None


def test_a_run_that_diverges_on_a_full_disk_still_says_so(trainer, at_step, monkeypatch):
    def fail(*_, **__):
        raise SafetensorError("No space left on device")

    train = trainer(at_step(1, lambda: (poison(train, math.nan), monkeypatch.setattr(module, "save_file", fail))))
    with pytest.raises(Diverged, match="The batch could not be saved .No space.*checkpoint is none yet"):
        train.train()


@pytest.mark.parametrize("device", ["tpu", *(["cuda"] if not torch.cuda.is_available() else [])])
def test_a_device_that_there_is_not_is_refused(device, tiny):
    with pytest.raises(ValueError, match=device):
        module.runs_on_cpu(device)


def test_one_process_uses_one_device(trainer):
    assert trainer().args.n_gpu <= 1 and isinstance(trainer().folder, Path)
