"""One step of every sampler, on predictions written by hand."""

import math

import pytest
import torch

from flexmdm import (
    Canvas,
    CosineSchedule,
    EarlySchedule,
    FlexMDMInterpolant,
    GeometricSchedule,
    LinearSchedule,
    PolynomialSchedule,
    PowerSchedule,
    Prediction,
    Prompt,
    Ragged,
    SineSchedule,
    generate,
)
from flexmdm.canvas import gaps_of
from flexmdm.generation import (
    AdaptiveSampler,
    Decoding,
    Grid,
    LowConfidenceSampler,
    TauSampler,
    sampler_named,
)
from flexmdm.randomness import StepRandomness

MASK = 9
LINEAR = FlexMDMInterpolant()
COSINE = FlexMDMInterpolant(CosineSchedule(), CosineSchedule())
SCHEDULES = [
    LinearSchedule(),
    CosineSchedule(),
    SineSchedule(),
    EarlySchedule(),
    PolynomialSchedule(2.0),
    GeometricSchedule(),
    PowerSchedule(1 / 3),
    PowerSchedule(2.9),
    PowerSchedule(64.0),
]
SAMPLERS = ["tau", "adaptive", "spaced", "entropy_bounded", "dilated", "likeliest", "low_confidence"]


def clocks(*values):
    return torch.tensor(values, dtype=torch.float64)


def randomness(count, seed=0, step=0):
    return StepRandomness(seed, torch.arange(count), step)


def canvas_of(*rows, **kwargs):
    return Canvas(Ragged.from_lists(rows), MASK, **kwargs)


def say(canvas, probs=(0.7, 0.2, 0.1), insertions=0.0):
    """The same f for every mask (or one row for each), and the same g for every gap (or one for each of a sequence)."""
    f = torch.tensor(probs, dtype=torch.float64).log()
    f = f.expand(len(canvas.masks), -1) if f.ndim == 1 else f
    gaps, g = canvas.open_gaps, torch.tensor(insertions, dtype=torch.float64)
    g = g.expand(len(gaps.values)) if g.ndim == 0 else g[gaps.columns]
    return Prediction(f, gaps_of(canvas.tokens, torch.where(gaps.values, g, 0.0)))


class Fixed:
    """A denoiser that says the same of every mask, and of every gap what is left of ``insertions`` at the clock."""

    vocab_size, mask_id = 3, MASK

    def __init__(self, probs=(0.7, 0.2, 0.1), insertions=0.0):
        self.probs, self.insertions = probs, insertions

    def __call__(self, canvas, alpha):
        prediction = say(canvas, self.probs, self.insertions)
        g = prediction.insertions
        return Prediction(prediction.log_probs, g.with_values(g.values * (1 - alpha)[g.rows]))


def masks_per_gap(row, tokens):
    """How many masks lie before, between and behind the given clean tokens."""
    counts = [0]
    for token in row:
        if token == MASK:
            counts[-1] += 1
        else:
            assert token == tokens[len(counts) - 1]
            counts.append(0)
    return counts


# The grid -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", range(8))
def test_on_the_linear_grid_a_leap_takes_one_share_of_what_is_left(k):
    leap = Grid(8).leap(clocks(k / 8))
    assert leap.alpha.item() == (k + 1) / 8
    assert leap.insertions.item() == pytest.approx(1 / (8 - k))
    assert leap.reveals.item() == pytest.approx(1 / (8 - k))
    assert bool(leap.last) == (k == 7)


def test_off_the_grid_a_leap_goes_to_the_next_point():
    leap = Grid(8).leap(clocks(0.3, 0.01, 0.99))
    assert leap.alpha.tolist() == [0.375, 0.125, 1.0]
    assert leap.insertions.tolist() == pytest.approx([0.075 / 0.7, 0.115 / 0.99, 1.0])
    assert leap.last.tolist() == [False, False, True]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("steps", [1, 7, 10, 49, 1000])
def test_a_clock_that_is_rounded_does_not_take_a_point_twice(schedule, steps):
    """The inverse of a schedule is rounded: a clock at a grid point must go on to the next one, not to its own."""
    times = torch.arange(1, steps).double() / steps
    times = times[schedule.value(times) > 1e-12]
    coarse = isinstance(schedule, PowerSchedule)  # whose alpha is so close to 1 at the end that less noise is a step
    for noise in (1.0,) if coarse else (1 - 1e-13, 1.0, 1 + 1e-13):
        leap = Grid(steps, FlexMDMInterpolant(schedule, LinearSchedule())).leap(schedule.value(times) * noise)
        assert leap.alpha.tolist() == pytest.approx(schedule.value(times + 1 / steps).tolist(), abs=1e-9)


def test_a_cosine_clock_leaps_by_the_differences_of_alpha_and_beta():
    def alpha(t):
        return 1 - math.cos(math.pi * t / 2)

    for k in range(7):
        now, then = alpha(k / 8), alpha((k + 1) / 8)
        leap = Grid(8, COSINE).leap(clocks(now))
        assert leap.alpha.item() == pytest.approx(then)
        assert leap.insertions.item() == pytest.approx((then - now) / (1 - now))
        assert leap.reveals.item() == pytest.approx((then - now) / (1 - now))
        mixed = Grid(8, FlexMDMInterpolant(CosineSchedule(), LinearSchedule())).leap(clocks(now))
        assert mixed.insertions.item() == pytest.approx((then - now) / (1 - now))
        assert mixed.reveals.item() == pytest.approx(1 / (8 - k))
    between = alpha(0.3)  # off the grid: t = 0.3 goes to 3/8
    leap = Grid(8, COSINE).leap(clocks(between))
    assert leap.alpha.item() == pytest.approx(alpha(0.375))
    assert leap.insertions.item() == pytest.approx((alpha(0.375) - between) / (1 - between))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("steps", [1, 2, 5, 64])
def test_the_grid_ends_at_exactly_1_after_its_steps(schedule, steps):
    grid, alpha, rest = Grid(steps, FlexMDMInterpolant(schedule, schedule)), clocks(0.0), 1.0
    for k in range(steps):
        leap = grid.leap(alpha)
        assert bool(leap.last) == (k == steps - 1)
        assert leap.alpha.item() > alpha.item()
        rest *= 1 - leap.insertions.item()
        assert rest == pytest.approx(1 - leap.alpha.item(), abs=1e-9)  # the shares of what is left multiply
        alpha = leap.alpha
    assert alpha.item() == 1.0


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_at_clock_1_nothing_is_inserted_and_all_is_revealed(schedule):
    leap = Grid(8, FlexMDMInterpolant(schedule, schedule)).leap(clocks(1.0))
    assert leap.alpha.tolist() == [1.0] and leap.last.tolist() == [True]
    assert leap.insertions.tolist() == [0.0] and leap.reveals.tolist() == [1.0]


@pytest.mark.parametrize("steps", [0, -4])
def test_a_grid_without_steps_is_refused(steps):
    with pytest.raises(ValueError, match="steps must be"):
        Grid(steps)


@pytest.mark.parametrize("name", ["tau", "adaptive", "spaced"])
def test_a_cosine_schedule_inserts_in_the_first_step(name):
    """Freezing alpha' g / (1 - alpha) in t would insert nothing: alpha'_0 = 0.

    2,000 empty sequences with g = 40: Poisson of mean 40 alpha(1/8) = 0.77, standard error of the mean 0.02. The spaced
    sampler may take a shorter step where so much is missing, so of it only some insertions are asked for.
    """
    n = 2000
    canvas = canvas_of(*[[]] * n)
    sampler = sampler_named(name, Grid(8, COSINE))
    after, _ = sampler.step(canvas, say(canvas, insertions=40.0), clocks(0.0).expand(n), randomness(n))
    mean = after.lengths.double().mean().item()
    if name == "spaced":
        assert mean > 0.02
    else:
        assert mean == pytest.approx(40 * (1 - math.cos(math.pi / 16)), abs=0.09)


@pytest.mark.parametrize("name", ["tau", "adaptive", "spaced"])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_every_schedule_generates_to_the_end(name, schedule):
    interpolant = FlexMDMInterpolant(schedule, schedule)
    out = generate(Fixed(insertions=1.0), 50, sampler=name, steps=12, interpolant=interpolant)
    assert len(out.sequences) == 50 and any(out.sequences)


# Tau ------------------------------------------------------------------------------------------------------------------


def test_tau_reveals_a_mask_if_it_has_exactly_one_event():
    """20,000 masks, r = 1/5: probability r exp(-r) = 0.1637, standard error 0.0026."""
    n = 20_000
    canvas = canvas_of([MASK] * n)
    after, alpha = TauSampler(Grid(8)).step(canvas, say(canvas), clocks(3 / 8), randomness(1))
    assert alpha.tolist() == [0.5]
    revealed = after.tokens.values[~after.is_mask]
    assert len(revealed) / n == pytest.approx(0.2 * math.exp(-0.2), abs=4.5 * 0.0026)
    shares = torch.bincount(revealed, minlength=3) / len(revealed)  # about 3,274 tokens: standard error 0.008
    assert shares.tolist() == pytest.approx([0.7, 0.2, 0.1], abs=0.036)


@pytest.mark.parametrize("name", ["tau", "adaptive"])
def test_a_step_draws_a_few_numbers_per_mask_and_gap_whatever_the_vocabulary(name):
    """One Bernoulli and one categorical do; a Poisson count for every token of the vocabulary would be V times that."""
    drawn = []

    class Counting(StepRandomness):
        def uniform(self, stream, rows, slots=0):
            drawn.append(len(rows))
            return super().uniform(stream, rows, slots)

    masks, vocabulary = 50, 1000
    canvas = canvas_of([MASK] * masks)
    f = torch.full((masks, vocabulary), -math.log(vocabulary), dtype=torch.float64)
    prediction = Prediction(f, say(canvas, insertions=0.5).insertions)
    rng = Counting(0, torch.arange(1), 0)
    sampler_named(name, Grid(8)).step(canvas, prediction, clocks(0.5), rng)
    assert sum(drawn) <= 2 * masks + (masks + 1) + 1


def test_tau_inserts_a_poisson_number_in_every_gap():
    """5,000 sequences, share 1/5 of g = 0, 0.5, 2, 5: rates 0, 0.1, 0.4, 1."""
    n = 5000
    canvas = canvas_of(*[[0, 1, 2]] * n)
    prediction = say(canvas, insertions=[0.0, 0.5, 2.0, 5.0])
    after, _ = TauSampler(Grid(8)).step(canvas, prediction, clocks(3 / 8).expand(n), randomness(n))
    counts = torch.tensor([masks_per_gap(row, [0, 1, 2]) for row in after.tokens.tolist()]).double()
    for gap, rate in enumerate([0.0, 0.1, 0.4, 1.0]):
        error = math.sqrt(rate / n)
        assert counts[:, gap].mean().item() == pytest.approx(rate, abs=4.5 * error)
        assert counts[:, gap].var().item() == pytest.approx(rate, abs=6.5 * error * math.sqrt(1 + 2 * rate))
        none = math.exp(-rate)
        assert (counts[:, gap] == 0).double().mean().item() == pytest.approx(
            none, abs=4.5 * math.sqrt(none * (1 - none) / n) + 1e-12
        )
    together = torch.corrcoef(counts[:, 1:].T)  # gaps are independent: standard error 0.014
    assert bool((together - torch.eye(3)).abs().max() < 0.07)


@pytest.mark.parametrize("name", ["tau", "adaptive", "spaced"])
def test_insertions_land_in_all_gaps_also_the_last_and_that_of_an_empty_canvas(name):
    """g = 30 everywhere and 300 sequences: a gap that is left out stays empty in all of them."""
    n = 300
    canvas = canvas_of(*[[0, 1, 2]] * n, *[[]] * n)
    after, _ = sampler_named(name, Grid(8)).step(
        canvas, say(canvas, insertions=30.0), clocks(0.0).expand(2 * n), randomness(2 * n)
    )
    rows = after.tokens.tolist()
    counts = torch.tensor([masks_per_gap(row, [0, 1, 2]) for row in rows[:n]])
    assert bool((counts.sum(0) > 0).all()), counts.sum(0)
    assert any(rows[n:])


@pytest.mark.parametrize("name", ["tau", "adaptive", "spaced"])
def test_closed_gaps_receive_nothing_whatever_the_network_says(name):
    canvas = canvas_of(*[[0, 1, 2]] * 200, open_gaps=[[False, True, False, False]] * 200)
    loud = Prediction(torch.zeros(0, 3), gaps_of(canvas.tokens, torch.full((800,), 50.0, dtype=torch.float64)))
    after, _ = sampler_named(name, Grid(8)).step(canvas, loud, clocks(0.5).expand(200), randomness(200))
    counts = torch.tensor([masks_per_gap(row, [0, 1, 2]) for row in after.tokens.tolist()])
    assert counts[:, [0, 2, 3]].sum() == 0 and counts[:, 1].sum() > 0
    assert [sum(row) for row in after.open_gaps.tolist()] == (counts[:, 1] + 1).tolist()  # new masks split the open gap


@pytest.mark.parametrize("name", ["tau", "adaptive"])
def test_masks_inserted_in_a_step_are_not_revealed_in_it(name):
    canvas = canvas_of(*[[MASK, 0, MASK]] * 300)
    after, _ = sampler_named(name, Grid(2)).step(
        canvas, say(canvas, insertions=4.0), clocks(0.0).expand(300), randomness(300)
    )
    fresh = after.num_masks - (after.lengths - 3)  # masks beyond the inserted ones are old
    assert bool((fresh >= 0).all()) and int((after.lengths - 3).sum()) > 0


@pytest.mark.parametrize("name", ["tau", "adaptive"])
def test_nothing_is_inserted_in_the_last_step(name):
    canvas = canvas_of(*[[0, MASK, MASK]] * 200)
    sampler = sampler_named(name, Grid(8))
    after, alpha = sampler.step(canvas, say(canvas, insertions=50.0), clocks(7 / 8).expand(200), randomness(200))
    assert bool((alpha == 1).all()) and bool((after.lengths == 3).all())
    assert 0 < int(after.num_masks.sum()) < 400  # some masks are left: one evaluation more
    end, alpha = sampler.step(after, say(after, insertions=50.0), alpha, randomness(200, step=1))
    assert bool((alpha == 1).all()) and bool((end.lengths == 3).all())
    assert int(end.num_masks.sum()) == 0


@pytest.mark.parametrize("name", ["tau", "adaptive", "spaced"])
def test_no_mask_is_left_at_the_end(name):
    for steps in (1, 2, 9):
        out = generate(Fixed(insertions=0.6), 50, prompts=[Prompt.empty(), Prompt.masks(30)], sampler=name, steps=steps)
        assert all(MASK not in sequence for sequence in out.sequences)
        assert all(len(sequence) == 30 for sequence in out.sequences[50:])


# Adaptive -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "mean"), [(0.0, 4.0), (0.5, 8.0), (0.8, 20.0)])
def test_adaptive_reveals_the_share_of_masks_that_the_schedule_says(alpha, mean):
    """40 masks, 10 steps: 40 (beta' - beta) / (1 - beta) of them; 2,000 sequences, standard error of the mean 0.1.

    Without the factor 1 / (1 - beta) it is 4 in every step, and most tokens fall at once in the last one.
    """
    n = 2000
    canvas = canvas_of(*[[MASK] * 40] * n)
    after, _ = AdaptiveSampler(Grid(10)).step(canvas, say(canvas), clocks(alpha).expand(n), randomness(n))
    revealed = (40 - after.num_masks).double()
    assert revealed.mean().item() == pytest.approx(mean, abs=4.5 * math.sqrt(mean / n))
    if mean < 10:  # a Poisson number (the minimum with 40 hardly ever matters)
        assert revealed.var().item() == pytest.approx(mean, rel=0.2)


def test_a_known_length_is_revealed_evenly_over_the_steps():
    """1,000 sequences of 50 masks, 10 steps: 5 reveals on average in every step, within 0.5, also in the last ones."""
    seen = []
    generate(
        Fixed(),
        1000,
        prompts=[Prompt.masks(50)],
        sampler="adaptive",
        steps=10,
        callback=lambda progress: seen.append(int(progress.canvas.num_masks.sum()) / 1000),
    )
    revealed = [a - b for a, b in zip([50.0, *seen], seen, strict=False)]
    assert revealed[:9] == pytest.approx([5.0] * 9, abs=0.5)
    assert sum(revealed[9:]) == pytest.approx(5.0, abs=0.5)


def test_adaptive_never_reveals_more_than_there_is_and_never_overwrites():
    """One step to the end: K is Poisson of mean 3 for 3 masks, so that often K > 3."""
    n = 500
    canvas = canvas_of(*[[2, MASK, 2, MASK, MASK]] * n)
    for window in (None, (1.0, 64), (5.0, 2)):
        after, _ = AdaptiveSampler(Grid(1), window=window).step(
            canvas, say(canvas, probs=(1.0, 0.0, 0.0)), clocks(0.0).expand(n), randomness(n)
        )
        tokens = after.tokens.to_padded(-1)
        assert bool((tokens[:, [0, 2]] == 2).all())  # what was there stays
        assert bool(((tokens[:, [1, 3, 4]] == 0) | (tokens[:, [1, 3, 4]] == MASK)).all())
        most = 2 if window == (5.0, 2) else 3
        assert int((3 - after.num_masks).max()) == most


def test_adaptive_reveals_the_most_confident():
    tops = torch.rand(30, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 2 + 0.5
    canvas = canvas_of([MASK] * 30)
    prediction = say(canvas, probs=torch.stack([tops, 1 - tops], 1).tolist())
    after, _ = AdaptiveSampler(Grid(4)).step(canvas, prediction, clocks(0.25), randomness(1, seed=2))
    revealed = ~after.is_mask
    assert 0 < int(revealed.sum()) < 30
    assert tops[revealed].min() > tops[~revealed].max()


@pytest.mark.parametrize("window", [(1.0, 64), (1.5, 64), (2.0, 3), (5.0, 64), (1.0, 1)])
def test_the_sliding_window_reaches_the_leftmost_masks_only(window):
    """Confidence grows to the right, so the window is what holds it back. The same random numbers give the same K."""
    n, wide, most = 400, *window
    rows = [[0, *[MASK] * 20, 1, *[MASK] * 20]] * n
    canvas = canvas_of(*rows)
    growing = torch.linspace(0.6, 0.99, 40, dtype=torch.float64).repeat(n)
    prediction = say(canvas, probs=torch.stack([growing, 1 - growing], 1).tolist())
    alpha, rng = clocks(0.5).expand(n), randomness(n, seed=1)
    free, _ = AdaptiveSampler(Grid(10)).step(canvas, prediction, alpha, rng)
    held, _ = AdaptiveSampler(Grid(10), window=window).step(canvas, prediction, alpha, rng)
    revealed = ~held.tokens.values.view(n, -1)[:, [*range(1, 21), *range(22, 42)]].eq(MASK)  # [n, 40]
    reached = set()
    for wanted, row in zip((40 - free.num_masks).tolist(), revealed, strict=True):
        eligible = min(math.floor(wide * wanted), most, 40)
        number = min(wanted, eligible)
        # The most confident of the leftmost `eligible` are the last ones of them.
        assert row.nonzero().flatten().tolist() == list(range(eligible - number, eligible))
        reached.add(wanted)
    assert len(reached) > 5  # many values of K were tried


def test_a_window_may_be_wider_than_the_masks_left():
    canvas = canvas_of(*[[MASK] * 3] * 100)
    after, _ = AdaptiveSampler(Grid(2), window=(5.0, 64)).step(
        canvas, say(canvas), clocks(0.5).expand(100), randomness(100)
    )
    assert set(after.num_masks.tolist()) <= {0, 1, 2, 3}


@pytest.mark.parametrize("window", [(0.5, 64), (5.0, 0), (-1.0, 3)])
def test_a_window_without_room_is_refused(window):
    with pytest.raises(ValueError, match="window must be"):
        AdaptiveSampler(Grid(4), window=window)


# Low confidence -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("masks", "steps", "block"), [(12, 6, 4), (12, 12, 3), (12, 4, 4), (10, 7, None), (10, 5, 3)])
def test_low_confidence_reveals_everything_in_exactly_its_steps(masks, steps, block):
    out = generate(Fixed(), 3, prompts=[Prompt.masks(masks)], sampler="low_confidence", steps=steps, block=block)
    assert out.evaluations == [steps] * 3
    assert all(len(sequence) == masks for sequence in out.sequences)


def test_low_confidence_goes_block_by_block_from_the_left():
    out = generate(
        Fixed(), 20, prompts=[Prompt.masks(12)], sampler="low_confidence", steps=6, block=4, trace=True, seed=3
    )
    for events in out.trace:
        assert [event.step for event in events] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]  # 12 masks in 6 steps
        assert [event.position // 4 for event in events] == [0] * 4 + [1] * 4 + [2] * 4
    orders = {tuple(event.position for event in events) for events in out.trace}
    assert len(orders) > 1  # inside a block the drawn tokens decide


def test_low_confidence_skips_what_is_fixed():
    prompt = Prompt((None, 0, None, None, 1, None), (False,) * 7)
    out = generate(Fixed(), 4, prompts=[prompt], sampler="low_confidence", steps=4, block=2, trace=True)
    for sequence, events in zip(out.sequences, out.trace, strict=True):
        assert sequence[1] == 0 and sequence[4] == 1
        assert {e.position for e in events[:2]} == {0, 2} and {e.position for e in events[2:]} == {3, 5}


def test_low_confidence_keeps_the_tokens_drawn_with_the_highest_probability():
    canvas = canvas_of([MASK] * 4, open_gaps=[[False] * 5])
    prediction = say(canvas, probs=[[0.6, 0.4], [0.1, 0.9], [0.55, 0.45], [0.8, 0.2]])
    greedy = LowConfidenceSampler(Grid(2), Decoding(temperature=0.0))
    after, alpha = greedy.step(canvas, prediction, clocks(0.0), randomness(1))
    assert after.tokens.tolist() == [[MASK, 1, MASK, 0]] and alpha.tolist() == [0.5]


def test_low_confidence_refuses_open_gaps():
    for prompt in (Prompt.empty(), Prompt.prefix([0])):
        with pytest.raises(ValueError, match="without open gaps"):
            generate(Fixed(), prompts=[prompt], sampler="low_confidence", steps=4)


def test_low_confidence_is_biased_at_temperature_above_0_and_adaptive_is_not():
    """Two independent tokens, each 0 with probability 0.8; 5,000 pairs, so the share of zeros has standard error 0.004.

    Of two drawn tokens the likelier is kept: it is a 0 with probability 1 - 0.2^2 = 0.96, and the other one, drawn
    again, with 0.8.
    """
    prompts, law = [Prompt.masks(2)], Fixed(probs=(0.8, 0.2, 0.0))
    ranked = generate(law, 5000, prompts=prompts, sampler="low_confidence", steps=2)
    share = sum(sequence.count(0) for sequence in ranked.sequences) / 10_000
    assert share == pytest.approx((0.96 + 0.8) / 2, abs=0.018)
    free = generate(law, 5000, prompts=prompts, sampler="adaptive", steps=2)
    share = sum(sequence.count(0) for sequence in free.sequences) / 10_000
    assert share == pytest.approx(0.8, abs=0.018)


def test_low_confidence_needs_a_block_of_at_least_one():
    with pytest.raises(ValueError, match="block must be"):
        LowConfidenceSampler(Grid(4), block=0)


# The contract ---------------------------------------------------------------------------------------------------------


def parts(canvas, alpha):
    return [canvas.tokens.values, canvas.lengths, canvas.given.values, canvas.open_gaps.values, alpha]


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("clock", [0.0, 0.35, 0.875, 1.0])
def test_a_step_is_pure(name, clock):
    rows = [[MASK, 0, MASK, MASK], [], [MASK], [1, MASK, MASK, MASK, MASK, MASK]] * 10
    closed = [[False] * (len(row) + 1) for row in rows] if name == "low_confidence" else None
    canvas = canvas_of(*rows, open_gaps=closed, max_length=8)
    generator = torch.Generator().manual_seed(0)
    f = torch.rand(len(canvas.masks), 3, generator=generator, dtype=torch.float64).log_softmax(1)
    prediction = Prediction(f, say(canvas, insertions=3.0).insertions)
    alpha = torch.full((len(rows),), clock, dtype=torch.float64)
    inputs = [*parts(canvas, alpha), prediction.log_probs, prediction.insertions.values]
    before = [tensor.clone() for tensor in inputs]
    sampler = sampler_named(name, Grid(8))
    once = sampler.step(canvas, prediction, alpha, randomness(len(rows), seed=4, step=3))
    again = sampler.step(canvas, prediction, alpha, randomness(len(rows), seed=4, step=3))
    assert all(torch.equal(a, b) for a, b in zip(parts(*once), parts(*again), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))
    other = sampler.step(canvas, prediction, alpha, randomness(len(rows), seed=5, step=3))
    assert (name == "likeliest" and clock < 1) or any(  # before 1 it draws nothing
        a.shape != b.shape or not torch.equal(a, b) for a, b in zip(parts(*once), parts(*other), strict=True)
    )
    assert bool((once[0].lengths <= 8).all())
    assert bool((once[1] >= alpha).all()) and bool((once[1] <= 1).all())


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_step_of_an_empty_batch_is_an_empty_batch(name):
    canvas = Canvas(Ragged.from_lists([]), MASK)
    nothing = Prediction(torch.zeros(0, 3), gaps_of(canvas.tokens, torch.zeros(0)))
    after, alpha = sampler_named(name, Grid(8)).step(canvas, nothing, clocks(), randomness(0))
    assert len(after) == 0 and alpha.shape == (0,)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_by_name_refuses_what_it_does_not_have(name):
    with pytest.raises(ValueError, match=f"sampler '{name}' has no colour"):
        sampler_named(name, Grid(4), colour="blue")
    assert sampler_named(name, Grid(4), colour=None) == sampler_named(name, Grid(4))
