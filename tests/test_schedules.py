import json
import math

import pytest
import torch

from flexmdm.schedules import (
    CosineSchedule,
    EarlySchedule,
    GeometricSchedule,
    LinearSchedule,
    PolynomialSchedule,
    PowerSchedule,
    Schedule,
    SineSchedule,
)

# Each schedule with its formula, written down a second time.
FORMULAS = [
    (LinearSchedule(), lambda t: t),
    (CosineSchedule(), lambda t: 1 - math.cos(math.pi * t / 2)),
    (SineSchedule(), lambda t: math.sin(math.pi * t / 2)),
    *[(PolynomialSchedule(k), lambda t, k=k: t**k) for k in (0.5, 1.0, 1.7, 2.0, 3.0, 8.0)],
    *[(EarlySchedule(k), lambda t, k=k: 1 - (1 - t) ** k) for k in (1.0, 2.5, 4.0)],
    *[(PowerSchedule(k), lambda t, k=k: 1 - (1 - t) ** k) for k in (1 / 3, 0.5, 1.7, 2.89, 2.9)],
    *[(PowerSchedule(k), lambda t, k=k: 1 - max((1 - t) ** k, 1e-7 * (1 - t))) for k in (5.0, 16.0, 64.0)],
    *[
        (
            GeometricSchedule(low, high),
            lambda t, low=low, high=high: (
                (math.exp(-(high ** (1 - t)) * low**t) - math.exp(-high)) / (math.exp(-low) - math.exp(-high))
            ),
        )
        for low, high in ((0.01, 20.0), (0.1, 3.0), (1e-4, 8.0))
    ],
]
SCHEDULES = [schedule for schedule, _ in FORMULAS]
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
INSIDE = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
CLOSED = torch.linspace(0.0, 1.0, 101, dtype=torch.float64)


@pytest.mark.parametrize(("schedule", "formula"), FORMULAS, ids=lambda x: str(x) if isinstance(x, Schedule) else "")
def test_values_follow_the_formula(schedule, formula):
    expected = torch.tensor([formula(t) for t in CLOSED.tolist()], dtype=torch.float64)
    torch.testing.assert_close(schedule.value(CLOSED), expected, rtol=1e-12, atol=1e-14)


@every_schedule
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_schedule_starts_at_exactly_0_and_ends_at_exactly_1(schedule, dtype):
    assert schedule.value(torch.tensor([0.0, 1.0], dtype=dtype)).tolist() == [0.0, 1.0]
    assert schedule.value(0.0) == 0.0
    assert schedule.value(1.0) == 1.0


@every_schedule
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_schedule_rises_and_stays_in_the_unit_interval(schedule, dtype):
    values = schedule.value(torch.linspace(0, 1, 2001, dtype=dtype))
    assert values.dtype == dtype
    assert bool((values.diff() >= 0).all())
    assert bool(((values >= 0) & (values <= 1)).all())
    assert bool((schedule.value(CLOSED).diff() > 0).all())


@every_schedule
def test_the_derivative_is_that_of_autograd(schedule):
    t = INSIDE.clone().requires_grad_()
    (slope,) = torch.autograd.grad(schedule.value(t).sum(), t)
    torch.testing.assert_close(schedule.derivative(INSIDE), slope, rtol=1e-10, atol=1e-14)


@every_schedule
def test_the_derivative_is_the_limit_of_differences(schedule):
    h = 1e-5
    slope = (schedule.value(INSIDE + h) - schedule.value(INSIDE - h)) / (2 * h)
    torch.testing.assert_close(schedule.derivative(INSIDE), slope, rtol=1e-5, atol=1e-8)


@every_schedule
def test_the_inverse_undoes_the_value(schedule):
    torch.testing.assert_close(schedule.inverse(schedule.value(CLOSED)), CLOSED, rtol=0, atol=1e-9)
    torch.testing.assert_close(schedule.value(schedule.inverse(CLOSED)), CLOSED, rtol=0, atol=1e-12)
    assert schedule.inverse(torch.tensor([0.0, 1.0], dtype=torch.float64)).tolist() == pytest.approx([0.0, 1.0])


@every_schedule
def test_the_inverse_stays_in_the_unit_interval_in_single_precision(schedule):
    t = schedule.inverse(schedule.value(torch.linspace(0, 1, 2001)))
    assert bool(((t >= 0) & (t <= 1)).all())


@every_schedule
def test_the_hazard_is_the_derivative_over_what_is_left(schedule):
    expected = schedule.derivative(INSIDE) / (1 - schedule.value(INSIDE))
    torch.testing.assert_close(schedule.hazard(INSIDE), expected)
    assert float(schedule.hazard(0.0)) == pytest.approx(float(schedule.derivative(0.0)))


@every_schedule
def test_floats_integers_and_tensors_are_taken(schedule):
    assert isinstance(schedule.value(0.3), torch.Tensor)
    assert schedule.value(0.3) == schedule.value(torch.tensor(0.3, dtype=torch.float64))
    assert schedule.value(torch.tensor([[0.1, 0.2]])).shape == (1, 2)
    torch.testing.assert_close(
        schedule.value(torch.tensor([0, 1])), torch.tensor([0.0, 1.0], dtype=torch.float64), rtol=0, atol=1e-12
    )
    assert schedule.value(torch.zeros(0)).shape == (0,)


@every_schedule
def test_a_schedule_survives_json(schedule):
    stored = json.loads(json.dumps(schedule.to_dict()))
    assert stored["name"] == schedule.name
    assert Schedule.from_dict(stored) == schedule


def test_from_dict_leaves_its_argument_alone():
    stored = {"name": "polynomial", "exponent": 3.0}
    Schedule.from_dict(stored)
    assert stored == {"name": "polynomial", "exponent": 3.0}


@every_schedule
@pytest.mark.parametrize("method", ["value", "derivative", "hazard", "inverse"])
@pytest.mark.parametrize("t", [-0.1, 1.1, math.nan, math.inf, torch.tensor([0.5, math.nan]), torch.tensor([0.5, 2.0])])
def test_times_outside_the_unit_interval_are_an_error(schedule, method, t):
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        getattr(schedule, method)(t)


@pytest.mark.parametrize("stored", [{"name": "square"}, {}, {"name": None}])
def test_an_unknown_name_lists_the_known_ones(stored):
    with pytest.raises(ValueError, match="unknown schedule.*cosine.*early.*geometric.*linear.*polynomial.*sine"):
        Schedule.from_dict(stored)


@pytest.mark.parametrize(
    "stored",
    [
        {"name": "linear", "exponent": 2.0},
        {"name": "polynomial", "power": 2.0},
        {"name": "polynomial", "exponent": "two"},
    ],
)
def test_parameters_a_schedule_does_not_take_are_an_error_that_names_it(stored):
    with pytest.raises(ValueError, match=stored["name"]):
        Schedule.from_dict(stored)


@pytest.mark.parametrize("exponent", [0.0, -1.0, math.nan, math.inf])
def test_exponents_must_be_positive_and_finite(exponent):
    with pytest.raises(ValueError, match="exponent"):
        PolynomialSchedule(exponent)


@pytest.mark.parametrize("exponent", [0.0, 0.3, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("schedule", [PowerSchedule, EarlySchedule])
def test_power_schedules_have_a_least_exponent(schedule, exponent):
    with pytest.raises(ValueError, match="at least 0.333"):
        schedule(exponent)


@pytest.mark.parametrize("exponent", [1 / 3, 0.5, 1.7, 2.89, 4.0, 8.0, 64.0, 1e6])
def test_power_schedules_leave_a_clock_that_tells_time_up_to_the_end(exponent):
    """Up to the last of 100,000 steps the next point of the grid is another alpha, and tells when it is to 1%."""
    schedule = PowerSchedule(exponent)
    left = torch.tensor([0.5, 0.1, 1e-2, 1e-3, 1e-4, 1e-5], dtype=torch.float64)
    alpha = schedule.value(1 - left)
    assert bool((alpha < 1).all()) and bool((schedule.value(1 - 0.9 * left) > alpha).all())
    torch.testing.assert_close(1 - schedule.inverse(alpha), left, rtol=0.01, atol=0)


@pytest.mark.parametrize("exponent", [1.7, 2.9, 4.0, 16.0, 64.0])
def test_the_linear_end_of_a_power_schedule_concerns_less_than_one_in_ten_million_tokens(exponent):
    t = torch.linspace(0, 1, 100_001, dtype=torch.float64)
    change = (PowerSchedule(exponent).rest(t) - (1 - t) ** exponent).abs()
    assert float(change.max()) < 1e-7


@pytest.mark.parametrize("schedule", [s for s in SCHEDULES if isinstance(s, PowerSchedule)], ids=str)
def test_the_rest_of_a_power_schedule_is_what_its_value_leaves(schedule):
    torch.testing.assert_close(schedule.rest(CLOSED), 1 - schedule.value(CLOSED), rtol=0, atol=1e-15)
    assert schedule.rest(1.0) == 0 and schedule.rest(0.0) == 1


def test_early_is_a_power_schedule_by_its_earlier_name():
    assert Schedule.from_dict({"name": "early"}) == EarlySchedule(4.0)
    assert torch.equal(EarlySchedule(2.5).value(CLOSED), PowerSchedule(2.5).value(CLOSED))


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("linear", LinearSchedule()),
        ("power:2.9", PowerSchedule(2.9)),
        ("early", EarlySchedule()),
        ("polynomial:3", PolynomialSchedule(3.0)),
        ("geometric:0.1,3", GeometricSchedule(0.1, 3.0)),
        ("geometric:0.1", GeometricSchedule(0.1)),
    ],
)
def test_a_schedule_is_read_from_a_text(text, schedule):
    assert Schedule.parse(text) == schedule


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("square", "unknown schedule 'square'; the known ones are cosine"),
        ("square:2", "unknown schedule 'square'"),
        ("", "unknown schedule ''"),
        ("power:two", "'power:two' is no schedule: power takes exponent; write power:2.9 or cosine"),
        ("power:2,3", "power takes exponent"),
        ("linear:2", "linear takes no numbers"),
        ("geometric:1,2,3", "geometric takes low and high"),
        ("power:0", "at least 0.333"),
    ],
)
def test_a_text_that_is_no_schedule_says_what_would_be(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        Schedule.parse(text)


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (2.0, 1.0), (1.0, 1.0), (0.1, math.inf), (math.nan, 1)]
)
def test_geometric_schedules_need_low_below_high(low, high):
    with pytest.raises(ValueError, match="0 < low < high"):
        GeometricSchedule(low, high)
