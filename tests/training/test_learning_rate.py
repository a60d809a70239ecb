"""The learning rate is that of the usual schedules, and a plan that the clock led to goes on where it was."""

import pytest
import torch
from transformers import get_scheduler

from flexmdm.runs.planning import planned
from flexmdm.training.learning_rate import LearningRate
from flexmdm.training.recipe import Recipe


@pytest.mark.parametrize("schedule", ["cosine", "restarts", "constant", "trapezoid"])
@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (7, 1), (40, 0), (240, 17), (1000, 400)])
def test_over_given_steps_it_is_the_usual_schedule_to_the_last_bit(schedule, steps, warmup):
    name, options = {
        "cosine": ("cosine", {}),
        "restarts": ("cosine_with_restarts", {"num_cycles": 3}),
        "constant": ("constant_with_warmup", {}),
        "trapezoid": ("warmup_stable_decay", {"num_decay_steps": max(steps // 5, 1), "decay_type": "linear"}),
    }[schedule]
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    usual = get_scheduler(name, optimizer, warmup, steps, options).lr_lambdas[0]
    rate = LearningRate(Recipe(steps=steps, warmup=warmup, schedule=schedule, cycles=3))
    found, expected = ([each(step) for step in range(steps + 1)] for each in (rate, usual))
    if schedule == "trapezoid":  # the same fractions by another sum; the fall is over a fifth, which need not be whole
        assert found == pytest.approx(expected, abs=1e-12 if steps % 5 == 0 else 0.3)
    else:
        assert found == expected


@pytest.mark.parametrize("schedule", ["cosine", "trapezoid", "restarts", "constant"])
@pytest.mark.parametrize("stop", [30, 60, 85])
def test_what_is_planned_goes_on_where_the_clock_was(stop, schedule):
    """The steps of a run that was interrupted, rounded, give the learning rate that came next."""
    recipe = Recipe(steps=10_000, warmup=100, schedule=schedule)
    rate = LearningRate(recipe)
    for step in range(1, 8 * stop):
        rate.replan(step, step / 800, 800)
    stored = planned(recipe, rate)
    assert LearningRate(stored)(step) == pytest.approx(rate(step), abs=0.01) and stored.steps == 800
    assert LearningRate(stored)(step) <= rate(step) + 1e-9
    assert (stored.eval_every, stored.save_every) == (100, 400)
