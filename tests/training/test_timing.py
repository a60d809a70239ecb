"""A training by the clock ends in time with its schedule done, whatever the machine does, and says what is amiss."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from flexmdm.training.checkpoints import fault
from flexmdm.training.learning_rate import LearningRate
from flexmdm.training.progress import FileLog, read_log
from flexmdm.training.recipe import Recipe
from flexmdm.training.timing import ENDLESS, TimeLimit, Timetable, barely_learned


@pytest.mark.parametrize(("limit", "steps"), [(35, 4), (1, 1), (1e9, 6)])
def test_training_ends_at_the_limit_with_a_line_an_evaluation_and_a_checkpoint(
    limit, steps, trainer, clock, at_step, tmp_path
):
    def ten_seconds():
        clock.now += 10

    ticks = [at_step(step, ten_seconds, "on_step_begin") for step in range(6)]
    train = trainer(*ticks, FileLog(tmp_path), TimeLimit(limit), save_every=100, log_every=100)
    train.train()
    assert train.state.global_step == steps
    assert fault(train.folder / f"checkpoint-{steps}") is None
    assert [line["step"] for line in read_log(tmp_path / "log.jsonl") if "eval_loss" in line] == [steps]


# By the clock --------------------------------------------------------------------------------------------------------

TIME = 100.0
MACHINES = {  # the seconds that a step takes, by its number and the time
    "steady": lambda step, now: 0.1,
    "a slow start": lambda step, now: 5.0 if now < 14 else 0.05,
    "a first step that compiles": lambda step, now: 30.0 if step == 0 else 0.1,
    "standing still in the warm-up": lambda step, now: 20.0 if step == 7 else 0.1,
    "standing still half-way": lambda step, now: 25.0 if step == 400 else 0.1,
    "standing still in the fall": lambda step, now: 8.0 if step == 850 else 0.1,
    "ten times slower from the warm-up on": lambda step, now: 0.1 if now < 3 else 1.0,
    "ten times faster from half-way on": lambda step, now: 0.5 if now < 50 else 0.05,
    "noise": lambda step, now: 0.05 * (1 + (step * 7919 % 13)),
    "few steps": lambda step, now: 6.0,
    "one step": lambda step, now: 200.0,
}


@pytest.fixture
def drive(clock):
    """Return a function that trains without a trainer: what is called, in its order, while the clock moves by hand."""

    def make(seconds_of, evaluation=0.0, **recipe):
        rate = LearningRate(Recipe(**{"steps": 10_000, "warmup": 100, "schedule": "cosine", **recipe}))
        table = SimpleNamespace(rates=[], rate=rate, evaluated=[], saved=[], warned=[], log=[])
        limit = Timetable(TIME, rate, lambda: None, table.warned.append)
        began, control = clock.now, SimpleNamespace(should_training_stop=False)
        limit.on_train_begin()
        while not control.should_training_stop:
            state = SimpleNamespace(global_step=len(table.rates), log_history=table.log)
            control.should_log = control.should_evaluate = control.should_save = False
            table.rates.append(rate(state.global_step))
            clock.now += seconds_of(state.global_step, clock.now - began)
            limit.on_optimizer_step(None, state, control)
            state.global_step += 1
            limit.on_step_end(None, state, control)
            if control.should_evaluate:
                clock.now += evaluation
                table.evaluated.append(clock.now - began)
                limit.on_evaluate()
            if control.should_save:
                table.saved.append(clock.now - began)
                limit.on_save()
        return table

    return make


@pytest.mark.parametrize("schedule", ["cosine", "trapezoid"])
@pytest.mark.parametrize("machine", MACHINES)
def test_the_learning_rate_rises_gently_falls_for_good_and_ends_at_zero(machine, schedule, drive):
    table = drive(MACHINES[machine], schedule=schedule)
    rates, rate = table.rates, table.rate
    assert rate.steps == len(rates) and rate(len(rates)) == 0
    top = rates.index(max(rates))
    assert all(later <= before for before, later in pairwise(rates[top:]))
    # Of twenty steps of warm-up each adds a twentieth; where only twenty or seventeen seem to fit, half as many.
    gentle = {"a slow start": 1 / 9, "few steps": 1 / 8}.get(machine, 1 / 20)
    assert all(0 < later - before <= gentle + 1e-9 for before, later in pairwise(rates[: top + 1]))
    if len(rates) >= 200:
        assert max(rates) > 0.9 and rates[-1] < 0.1


@pytest.mark.parametrize("schedule", ["cosine", "restarts", "constant", "trapezoid"])
def test_a_steady_machine_gives_what_as_many_steps_would(schedule, drive):
    table = drive(lambda step, now: 0.125, schedule=schedule, warmup=50)
    assert table.rate.warmup == pytest.approx(50) and len(table.rates) == 800
    given = LearningRate(Recipe(steps=800, warmup=50, schedule=schedule))
    assert table.rates == pytest.approx([given(step) for step in range(800)], abs=1e-6)


@pytest.mark.parametrize(("seconds", "warmup"), [(0.1, 100), (0.2, 50), (1.0, 20), (5.0, 10)])
def test_the_warm_up_is_a_tenth_of_what_fits_but_twenty_steps_if_there_are_as_many_again(seconds, warmup, drive):
    assert drive(lambda step, now: seconds).rate.warmup == pytest.approx(warmup, abs=1)


def test_a_slow_start_does_not_shorten_the_warm_up_for_good(drive):
    table = drive(MACHINES["a slow start"])
    assert len(table.rates) > 1500 and 50 < table.rate.warmup <= 100


@pytest.mark.parametrize(("evaluation", "number"), [(0.0, 8), (1.0, 8), (4.0, 3), (30.0, 2)])
def test_evaluations_are_spread_over_the_time_and_the_last_one_fits(evaluation, number, drive):
    """Where they are slow they are fewer: all but the last take about a tenth of the time, the first one excepted."""
    table = drive(lambda step, now: 0.1, evaluation)
    assert len(table.evaluated) == number and len(table.saved) == 2
    assert table.evaluated[-1] <= TIME + 0.2 + 1e-6
    assert table.rates[-1] < 0.01


def test_the_trainer_goes_by_the_clock(trainer, clock, tmp_path):
    class Tick(TimeLimit):  # a tenth of a second for each step
        def on_step_begin(self, *_, **__):
            clock.now += 0.125

    train = trainer(FileLog(tmp_path), steps=ENDLESS, schedule="cosine", warmup=2, save_every=10**6, eval_every=10**6)
    plans = []
    table = Timetable(10, train.rate, lambda: plans.append(train.rate.steps), plans.append)
    train.add_callback(Tick(ENDLESS))
    train.add_callback(table)
    train.train()
    assert train.state.global_step == train.rate.steps == plans[-1] == 80
    lines = read_log(tmp_path / "log.jsonl")
    found = [line["learning_rate"] for line in lines if "loss" in line]
    given = LearningRate(Recipe(steps=80, warmup=2, schedule="cosine"))
    assert found == pytest.approx([0.01 * given(step) for step in range(80)], abs=1e-9)
    assert [line["step"] for line in lines if "eval_loss" in line] == [10, 20, 30, 40, 50, 60, 70, 80]
    assert [int(folder.name.split("-")[1]) for folder in sorted(train.folder.glob("checkpoint-*"))] == [40, 80]


# What is amiss -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "few"), [(0.4, False), (0.6, True)])
def test_a_plan_of_few_steps_is_warned_of_early_and_once(seconds, few, drive):
    expected = (
        "at this speed 167 steps fit in the time, and fewer than 200 teach little: give more --minutes, or take a "
        "smaller network or --batch-size"
    )
    assert drive(lambda step, now: seconds).warned == ([expected] if few else [])


def test_a_loss_that_stays_is_warned_of_half_way(drive, monkeypatch):
    table = drive(lambda step, now: 0.1)
    assert not table.warned
    monkeypatch.setattr("flexmdm.training.timing.barely_learned", lambda log: "the loss is as it was")
    assert drive(lambda step, now: 0.1).warned == ["half of the time is used, and the loss is as it was"]


@pytest.mark.parametrize(
    ("losses", "barely"),
    [
        ([], False),
        ([100.0], False),  # too few to say
        ([100.0, 96.0], True),
        ([100.0, 94.0], False),
        ([100.0, 120.0, 130.0], True),
        ([100.0, *[50.0] * 20, 99.0, 98.0, 50.0, 50.0, 50.0], False),  # noise
    ],
)
def test_a_loss_has_barely_left_its_start_if_its_end_is_as_high(losses, barely):
    log = [{"step": step, "loss": loss} for step, loss in enumerate(losses)]
    said = barely_learned([{"step": 0, "eval_loss": 1.0}, *log])
    assert (said is not None) == barely
    assert not barely or said.endswith("train longer, or with another --lr")
