import itertools
import json
import math
from collections import Counter, defaultdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from flexmdm.canvas import Role, Template
from flexmdm.interpolants import FlexMDMInterpolant, sample_times
from flexmdm.schedules import (
    CosineSchedule,
    GeometricSchedule,
    LinearSchedule,
    PolynomialSchedule,
    PowerSchedule,
    Schedule,
    SineSchedule,
)
from flexmdm.sequences import Ragged

MASK = 9
FREE, PRESENT, FIXED = Role.FREE, Role.PRESENT, Role.FIXED

# Each schedule with its value and derivative, written down a second time.
_LOW, _HIGH = 0.01, 20.0
_SPAN = math.exp(-_LOW) - math.exp(-_HIGH)


def _sigma(t):
    return _HIGH ** (1 - t) * _LOW**t


SCHEDULES = {
    "linear": (LinearSchedule(), lambda t: t, lambda t: 1.0),
    "cosine": (
        CosineSchedule(),
        lambda t: 1 - math.cos(math.pi * t / 2),
        lambda t: math.pi / 2 * math.sin(math.pi * t / 2),
    ),
    "sine": (SineSchedule(), lambda t: math.sin(math.pi * t / 2), lambda t: math.pi / 2 * math.cos(math.pi * t / 2)),
    "square": (PolynomialSchedule(2.0), lambda t: t**2, lambda t: 2 * t),
    "power": (PowerSchedule(2.9), lambda t: 1 - (1 - t) ** 2.9, lambda t: 2.9 * (1 - t) ** 1.9),
    "half": (PowerSchedule(0.5), lambda t: 1 - (1 - t) ** 0.5, lambda t: 0.5 * (1 - t) ** -0.5),
    "geometric": (
        GeometricSchedule(_LOW, _HIGH),
        lambda t: (math.exp(-_sigma(t)) - math.exp(-_HIGH)) / _SPAN,
        lambda t: math.exp(-_sigma(t)) * _sigma(t) * math.log(_HIGH / _LOW) / _SPAN,
    ),
}
every_pair = pytest.mark.parametrize(("insertion", "unmasking"), list(itertools.product(SCHEDULES, SCHEDULES)))


def pair(insertion, unmasking):
    return FlexMDMInterpolant(SCHEDULES[insertion][0], SCHEDULES[unmasking][0])


def times(*values):
    return torch.tensor(values, dtype=torch.float64)


def reference_probabilities(insertion, unmasking, t):
    """P(empty), P(mask), P(clean) by adaptive quadrature of int_0^t alpha'_u (1 - beta_t) / (1 - beta_u) du."""
    _, alpha, slope = SCHEDULES[insertion]
    _, beta, _ = SCHEDULES[unmasking]
    mask, _ = integrate.quad(
        lambda u: slope(u) * (1 - beta(t)) / (1 - beta(u)), 0, t, epsabs=1e-13, epsrel=1e-12, limit=500
    )
    return 1 - alpha(t), mask, alpha(t) - mask


# State probabilities --------------------------------------------------------------------------------------------------


@every_pair
def test_state_probabilities_are_the_integral_of_the_paper(insertion, unmasking):
    points = (0.01, 0.2, 0.5, 0.8, 0.95, 0.999)
    computed = torch.stack(pair(insertion, unmasking).state_probabilities(times(*points)))
    expected = torch.tensor([reference_probabilities(insertion, unmasking, t) for t in points], dtype=torch.float64).T
    torch.testing.assert_close(computed, expected, rtol=1e-7, atol=1e-11)


def test_with_linear_schedules_the_mask_probability_has_a_closed_form():
    t = torch.linspace(0.0, 0.999, 200, dtype=torch.float64)
    _, mask, _ = FlexMDMInterpolant().state_probabilities(t)
    torch.testing.assert_close(mask, -(1 - t) * torch.log1p(-t), rtol=1e-10, atol=1e-14)


@every_pair
def test_a_token_is_gone_at_the_start_and_clean_at_the_end(insertion, unmasking):
    empty, mask, clean = pair(insertion, unmasking).state_probabilities(times(0.0, 1.0))
    assert empty.tolist() == pytest.approx([1.0, 0.0], abs=1e-12)
    assert mask.tolist() == pytest.approx([0.0, 0.0], abs=1e-12)
    assert clean.tolist() == pytest.approx([0.0, 1.0], abs=1e-12)


@every_pair
def test_state_probabilities_are_probabilities_up_to_the_very_end(insertion, unmasking):
    t = torch.cat([torch.linspace(0, 1, 51, dtype=torch.float64), 1 - torch.logspace(-15, -2, 14, dtype=torch.float64)])
    states = torch.stack(pair(insertion, unmasking).state_probabilities(t))
    assert bool(torch.isfinite(states).all())
    assert bool((states >= 0).all())
    torch.testing.assert_close(states.sum(0), torch.ones_like(t))


def test_state_probabilities_hold_for_insertions_that_start_infinitely_fast():
    # alpha = sqrt(t), beta = t: P(mask) = (1 - t) artanh(sqrt(t))
    t = times(0.0, 0.1, 0.5, 0.9)
    _, mask, _ = FlexMDMInterpolant(PolynomialSchedule(0.5), LinearSchedule()).state_probabilities(t)
    torch.testing.assert_close(mask, (1 - t) * torch.atanh(t.sqrt()), rtol=1e-6, atol=1e-9)


TOKENS = 40_000  # per time in the test below: the standard error of a share is at most 0.0025
POINTS = (0.1, 0.35, 0.6, 0.85)


@every_pair
def test_tokens_are_empty_masked_and_clean_as_often_as_they_should(insertion, unmasking):
    interpolant = pair(insertion, unmasking)
    x1 = Ragged(torch.zeros(TOKENS * len(POINTS), dtype=torch.int64), torch.full((len(POINTS),), TOKENS))
    canvas = interpolant.sample(x1, times(*POINTS), seed=12, mask_id=MASK).canvas
    masks = canvas.num_masks
    observed = torch.stack([TOKENS - canvas.lengths, masks, canvas.lengths - masks]) / TOKENS
    expected = torch.stack(interpolant.state_probabilities(times(*POINTS)))
    standard_error = (expected * (1 - expected) / TOKENS).sqrt()
    few = 3 / TOKENS  # where less than one token is expected the count is Poisson and not normal
    assert bool(((observed - expected).abs() <= 4 * standard_error + few).all())


@pytest.mark.parametrize("unmasking", SCHEDULES)
def test_a_present_token_is_masked_with_probability_1_minus_beta(unmasking):
    interpolant = pair("square", unmasking)
    x1 = Ragged(torch.zeros(TOKENS * len(POINTS), dtype=torch.int64), torch.full((len(POINTS),), TOKENS))
    canvas = interpolant.sample(x1, times(*POINTS), Template.masks(x1), seed=3, mask_id=MASK).canvas
    expected = torch.tensor([1 - SCHEDULES[unmasking][1](t) for t in POINTS], dtype=torch.float64)
    standard_error = (expected * (1 - expected) / TOKENS).sqrt()
    assert canvas.lengths.tolist() == [TOKENS] * len(POINTS)
    assert bool(((canvas.num_masks / TOKENS - expected).abs() <= 4 * standard_error).all())


# Consistency of a sample ----------------------------------------------------------------------------------------------


@st.composite
def problems(draw):
    """Clean sequences, a template with some gaps open that hold nothing, and times."""
    lists = draw(st.lists(st.lists(st.integers(0, 3), max_size=8), max_size=4))
    roles = [draw(st.lists(st.sampled_from(list(Role)), min_size=len(x), max_size=len(x))) for x in lists]
    template = Template.of_roles(Ragged.from_lists(roles))
    size = len(template.open_gaps.values)
    also_open = torch.tensor(draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype=torch.bool)
    template = Template(template.roles, template.open_gaps.with_values(template.open_gaps.values | also_open))
    moments = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))
    t = draw(st.lists(moments, min_size=len(lists), max_size=len(lists)))
    return Ragged.from_lists(lists), template, times(*t), draw(st.integers(0, 1000))


@settings(max_examples=150, deadline=None)
@given(problems(), st.sampled_from(sorted(SCHEDULES)), st.sampled_from(sorted(SCHEDULES)))
def test_canvas_targets_gaps_and_kept_tell_one_story(problem, insertion, unmasking):
    x1, template, t, seed = problem
    interpolant = pair(insertion, unmasking)
    s = interpolant.sample(x1, t, template, seed=seed, mask_id=MASK)
    assert torch.equal(s.alpha, interpolant.insertion.value(t))
    assert torch.equal(s.t, t)
    assert s.canvas.mask_id == MASK
    for b, clean in enumerate(x1.tolist()):
        roles, template_gaps = template.roles.tolist()[b], template.open_gaps.tolist()[b]
        kept, tokens = s.kept.tolist()[b], s.canvas.tokens.tolist()[b]
        assert kept == sorted(set(kept))
        assert {i for i, role in enumerate(roles) if role != FREE} <= set(kept)
        assert s.targets.tolist()[b] == [clean[i] for i in kept]
        assert all(token in (MASK, clean[i]) for token, i in zip(tokens, kept, strict=True))
        assert all(token == clean[i] for token, i in zip(tokens, kept, strict=True) if roles[i] == FIXED)
        assert s.canvas.given.tolist()[b] == [roles[i] != FREE for i in kept]

        gaps, open_gaps = s.gaps.tolist()[b], s.canvas.open_gaps.tolist()[b]
        edges = [-1, *kept, len(clean)]
        assert gaps == [right - left - 1 for left, right in itertools.pairwise(edges)]
        assert sum(gaps) + len(tokens) == len(clean)
        given_before = [sum(roles[i] != FREE for i in kept[:gap]) for gap in range(len(kept) + 1)]
        assert open_gaps == [template_gaps[g] for g in given_before]
        assert all(is_open or gap == 0 for gap, is_open in zip(gaps, open_gaps, strict=True))
        if t[b] == 0:
            assert kept == [i for i, role in enumerate(roles) if role != FREE]
            assert tokens == [clean[i] if roles[i] == FIXED else MASK for i in kept]
        if t[b] == 1:
            assert tokens == clean


@settings(max_examples=30, deadline=None)
@given(problems(), st.floats(0, 1), st.floats(0, 1))
def test_as_time_goes_on_nothing_that_is_there_goes_away(problem, one, other):
    x1, template, _, seed = problem
    early, late = (
        pair("cosine", "square").sample(x1, t, template, seed=seed, mask_id=MASK) for t in sorted((one, other))
    )
    for b in range(len(x1)):
        before = dict(zip(early.kept.tolist()[b], early.canvas.tokens.tolist()[b], strict=True))
        after = dict(zip(late.kept.tolist()[b], late.canvas.tokens.tolist()[b], strict=True))
        assert all(i in after and token in (MASK, after[i]) for i, token in before.items())


@settings(max_examples=30, deadline=None)
@given(problems())
def test_mdm_never_inserts(problem):
    x1, _, t, seed = problem
    s = FlexMDMInterpolant().sample(x1, t, Template.masks(x1), seed=seed, mask_id=MASK)
    assert torch.equal(s.canvas.lengths, x1.lengths)
    assert torch.equal(s.targets.values, x1.values)
    assert torch.equal(s.kept.values, x1.columns)
    assert not bool(s.gaps.values.any())
    assert not bool(s.canvas.open_gaps.values.any())
    assert bool(s.canvas.given.values.all())


def test_by_default_everything_is_free():
    x1 = Ragged.from_lists([[0, 1, 2], []])
    s = FlexMDMInterpolant().sample(x1, 0.0, mask_id=MASK)
    assert s.canvas.tokens.tolist() == [[], []]
    assert s.gaps.tolist() == [[3], [0]]
    assert s.canvas.open_gaps.tolist() == [[True], [True]]


SEQUENCES = 30_000  # of the test below; embeddings of states seen fewer than 10 times per embedding are left out


@pytest.mark.parametrize(
    ("insertion", "unmasking"), [("linear", "linear"), ("cosine", "sine"), ("geometric", "square")]
)
def test_all_embeddings_of_a_state_are_equally_likely_for_any_schedules(insertion, unmasking):
    clean, roles = (0, 0, 0, 1, 0), (FREE, PRESENT, FREE, FREE, FREE)
    x1 = Ragged.from_lists([clean])[torch.zeros(SEQUENCES, dtype=torch.int64)]
    template = Template.of_roles(Ragged.from_lists([roles])[torch.zeros(SEQUENCES, dtype=torch.int64)])
    s = pair(insertion, unmasking).sample(x1, 0.6, template, seed=5, mask_id=MASK)
    seen = defaultdict(Counter)
    for tokens, flags, kept in zip(s.canvas.tokens.tolist(), s.canvas.given.tolist(), s.kept.tolist(), strict=True):
        seen[tuple(tokens), tuple(flags)][tuple(kept)] += 1

    statistic, freedom = 0.0, 0
    for (tokens, flags), counts in seen.items():
        ways = [
            kept
            for kept in itertools.combinations(range(len(clean)), len(tokens))
            if all(token in (MASK, clean[i]) for token, i in zip(tokens, kept, strict=True))
            and all(flag == (roles[i] != FREE) for flag, i in zip(flags, kept, strict=True))
        ]
        assert set(counts) <= set(ways)
        expected = sum(counts.values()) / len(ways)
        if expected >= 10:
            statistic += sum((counts[way] - expected) ** 2 / expected for way in ways)
            freedom += len(ways) - 1
    assert freedom > 20
    assert statistic < stats.chi2.ppf(1 - 1e-4, freedom)


# Randomness -----------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_result_sequence_by_sequence():
    x1 = Ragged.from_lists([[0, 1, 2, 3, 1], [2, 2, 2], [], [3, 1, 0, 0, 0, 0, 1]])
    t = times(0.5, 0.7, 0.2, 0.6)
    whole = FlexMDMInterpolant().sample(x1, t, seed=8, mask_id=MASK)
    again = FlexMDMInterpolant().sample(x1, t, seed=8, mask_id=MASK)
    part = FlexMDMInterpolant().sample(x1[:2], t[:2], seed=8, mask_id=MASK)
    changed = Ragged.from_lists([[0] * 9, [2, 2, 2], [1, 1], [3, 1, 0, 0, 0, 0, 1]])
    mixed = FlexMDMInterpolant().sample(changed, times(0.1, 0.7, 0.9, 0.6), seed=8, mask_id=MASK)
    assert whole.canvas.tokens.tolist() == again.canvas.tokens.tolist()
    assert whole.canvas.tokens.tolist()[:2] == part.canvas.tokens.tolist()
    assert whole.kept.tolist()[:2] == part.kept.tolist()
    for b in (1, 3):
        assert whole.canvas.tokens.tolist()[b] == mixed.canvas.tokens.tolist()[b]


def test_other_seeds_and_other_sequences_give_other_results():
    x1 = Ragged.from_lists([[0] * 100] * 2)
    first = FlexMDMInterpolant().sample(x1, 0.5, seed=0).kept.tolist()
    second = FlexMDMInterpolant().sample(x1, 0.5, seed=1).kept.tolist()
    assert first[0] != second[0]
    assert first[0] != first[1]


# Storage and errors ---------------------------------------------------------------------------------------------------


@every_pair
def test_an_interpolant_survives_json(insertion, unmasking):
    interpolant = pair(insertion, unmasking)
    assert FlexMDMInterpolant.from_dict(json.loads(json.dumps(interpolant.to_dict()))) == interpolant


def test_the_default_is_linear_in_both():
    assert FlexMDMInterpolant() == FlexMDMInterpolant(LinearSchedule(), LinearSchedule())
    assert isinstance(FlexMDMInterpolant().insertion, Schedule)


@pytest.mark.parametrize("t", [-0.1, 1.5, math.nan])
def test_times_outside_the_unit_interval_are_an_error(t):
    with pytest.raises(ValueError, match=r"times must lie in \[0, 1\]"):
        FlexMDMInterpolant().sample(Ragged.from_lists([[0], [1]]), times(0.5, t))


def test_the_mask_id_in_clean_data_is_an_error():
    with pytest.raises(ValueError, match="must not contain the mask id 9"):
        FlexMDMInterpolant().sample(Ragged.from_lists([[0], [MASK]]), 0.5, mask_id=MASK)


def test_a_template_of_other_lengths_is_an_error():
    template = Template.free(Ragged.from_lists([[0, 1]]))
    with pytest.raises(ValueError, match=r"lengths \[2\] but x1 \[3\]"):
        FlexMDMInterpolant().sample(Ragged.from_lists([[0, 1, 2]]), 0.5, template)


# Times ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_there_is_exactly_one_time_in_each_stratum(count):
    for seed in range(5):
        t, weight = sample_times(count, seed=seed)
        u = 1 - weight / 2
        assert sorted((u * count).floor().long().tolist()) == list(range(count))
        torch.testing.assert_close(t, 1 - (1 - u) ** 2)
        assert bool(((t > 0) & (t < 1) & (weight > 0)).all())


def test_times_come_in_random_order_and_differ_from_seed_to_seed():
    t, _ = sample_times(1000, seed=0)
    other, _ = sample_times(1000, seed=1)
    assert not torch.equal(t, t.sort().values)
    assert not torch.equal(t.sort().values, other.sort().values)
    ranks = torch.argsort(torch.argsort(t)).double()
    correlation = float(torch.corrcoef(torch.stack([ranks, torch.arange(1000.0, dtype=torch.float64)]))[0, 1])
    assert abs(correlation) < 4 / math.sqrt(1000)


def test_no_times_are_no_problem():
    t, weight = sample_times(0)
    assert t.shape == weight.shape == (0,)


@pytest.mark.parametrize(
    ("integrand", "integral"),
    [(torch.ones_like, 1.0), (lambda t: t, 0.5), (lambda t: t**3, 0.25), (lambda t: torch.exp(-t), 1 - math.exp(-1))],
)
def test_weighted_means_are_integrals(integrand, integral):
    # One draw per stratum: the standard error is at most 1.2 / count^1.5, here 4e-5.
    t, weight = sample_times(1000, seed=4)
    assert float((weight * integrand(t)).mean()) == pytest.approx(integral, abs=2e-4)


def test_the_weighted_loss_has_finite_variance_where_uniform_times_have_none():
    # A term of the loss is 1 / (1 - t) where a token is masked, which has probability -(1 - t) log(1 - t). Its second
    # moment is int_0^1 4 (1-u)^2 / (1-t)^2 P(mask) du = 8 with our times; with uniform ones it grows like log(n)^2 / 2.
    ours, uniform = [], []
    for count in (1_000, 10_000, 100_000, 1_000_000):
        t, weight = sample_times(count, seed=0)
        masked = -(1 - t) * torch.log1p(-t)
        ours.append(float(((weight / (1 - t)) ** 2 * masked).mean()))
        even = (torch.arange(count, dtype=torch.float64) + 0.5) / count
        uniform.append(float((-torch.log1p(-even) / (1 - even)).mean()))
    assert ours == pytest.approx([8.0] * 4, abs=0.2)
    assert all(later > earlier + 5 for earlier, later in itertools.pairwise(uniform))


@pytest.mark.parametrize(
    ("insertion", "unmasking", "masked"),
    [(LinearSchedule(), LinearSchedule(), 1 / 4), (SineSchedule(), PolynomialSchedule(3.0), 0.428)],
)
def test_so_much_of_a_sequence_is_masked_at_a_time_drawn_evenly(insertion, unmasking, masked):
    """Of an MDM with a linear schedule it is 1/2: the integral of 1 - t."""
    t = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    found = FlexMDMInterpolant(insertion, unmasking).state_probabilities(t)[1].mean()
    assert float(found) == pytest.approx(masked, abs=1e-3)


def test_no_time_is_rounded_to_the_end_where_hazards_are_infinite(monkeypatch):
    """A u within 2^-30 of 1, which comes once in a billion draws, must not end a training."""
    from flexmdm import interpolants

    monkeypatch.setattr(interpolants, "uniform", lambda *_, **__: torch.full((1,), 1 - 2.0**-30, dtype=torch.float64))
    t, weight = sample_times(1)
    assert float(t) < 1 and float(weight) > 0
    for schedule in (LinearSchedule(), SineSchedule(), CosineSchedule(), PolynomialSchedule(3.0)):
        assert bool(schedule.hazard(t).isfinite())


@pytest.mark.parametrize(
    ("insertion", "unmasking", "grown", "padded"),
    [(LinearSchedule(), LinearSchedule(), 2 / 9, 1 / 3), (SineSchedule(), PolynomialSchedule(3.0), 0.3644, 19 / 35)],
)
def test_the_share_of_masks_at_the_times_that_training_draws(insertion, unmasking, grown, padded):
    """State what README says of the tokens of a sequence; those of MDM are masked with probability 1 - beta."""
    t, _ = sample_times(20_000)
    masked = FlexMDMInterpolant(insertion, unmasking).state_probabilities(t)[1]
    assert float(masked.mean()) == pytest.approx(grown, abs=1e-3)
    assert float(unmasking.rest(t).mean()) == pytest.approx(padded, abs=1e-3)
