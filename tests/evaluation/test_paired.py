"""Shares and their paired differences: the intervals cover the truth, also where the two hardly ever disagree."""

import numpy as np
import pytest

from flexmdm.evaluation.intervals import Interval, design_effect, paired, rate, share


@pytest.mark.parametrize(
    ("num", "only_first", "only_second", "both"),
    [
        (1000, 0.001, 0.001, 0.0),
        (1000, 0.3, 0.25, 0.3),
        (200, 0.1, 0.05, 0.5),
        (60, 0.02, 0.2, 0.3),
        (60, 0.0, 0.0, 0.9),
    ],
)
def test_the_interval_covers_the_truth(num, only_first, only_second, both):
    """1,000 experiments; a coverage of 95% has a standard deviation of 0.7 points."""
    shares = [only_first, only_second, both, 1 - only_first - only_second - both]
    counts = np.random.default_rng(0).multinomial(num, shares, size=1000)
    covered = 0
    for row in counts:
        first, second = (np.repeat(right, row) for right in ([1, 0, 1, 0], [0, 1, 1, 0]))
        found = paired(first, second)
        covered += found.low <= only_first - only_second <= found.high
    assert covered >= 925


def test_it_is_the_example_of_newcombe():
    """Of 50: 36 both, 12 only the first, 2 only the second (Newcombe 1998, table II, method 10)."""
    found = paired(np.repeat([1, 1, 0], [36, 12, 2]), np.repeat([1, 0, 1], [36, 12, 2]))
    assert [round(x, 4) for x in (found.value, found.low, found.high)] == [0.2, 0.0569, 0.3404]


def test_changing_sides_changes_the_sign():
    first, second = np.array([1, 1, 0, 1, 0, 0]), np.array([0, 1, 1, 0, 0, 0])
    one, other = paired(first, second), paired(second, first)
    assert (one.value, one.low, one.high) == pytest.approx((-other.value, -other.high, -other.low))


# Groups ---------------------------------------------------------------------------------------------------------------

SIZES = np.repeat([1, 2, 3, 5, 8, 12, 29], [24, 30, 40, 30, 20, 15, 5])  # items of 164 functions, as uneven as the real
GROUPS = np.repeat(np.arange(len(SIZES)), SIZES)


def difficulties(rng, share):
    """Of each function: how often its items are right, with an intra-class correlation of 0.2."""
    return rng.beta(share * 4, (1 - share) * 4, len(SIZES))


def tried(rng, difficulty):
    return (rng.random(len(GROUPS)) < difficulty[GROUPS]).astype(float)


@pytest.mark.parametrize("truth", [0.01, 0.1, 0.5])
def test_the_interval_of_a_share_covers_the_truth_in_groups(truth):
    """500 experiments; a coverage of 95% has a standard deviation of 1 point. Without groups it is below 85%."""
    rng, groups, covered, alone = np.random.default_rng(0), GROUPS.tolist(), 0, 0
    for _ in range(500):
        right = tried(rng, difficulties(rng, truth))
        one, other = share(right, groups), share(right)
        assert one.low <= other.low and other.high <= one.high
        covered += one.low <= truth <= one.high
        alone += other.low <= truth <= other.high
    assert covered >= 460 and alone < 425


@pytest.mark.parametrize("truth", [0.1, 0.5])
def test_the_interval_of_a_difference_covers_the_truth_in_groups(truth):
    """500 experiments with two models that find half of the functions equally hard; standard deviation as above."""
    rng, groups, covered, alone = np.random.default_rng(0), GROUPS.tolist(), 0, 0
    for _ in range(500):
        mine = difficulties(rng, truth)
        theirs = np.where(rng.random(len(SIZES)) < 0.5, mine, difficulties(rng, truth))
        first, second = tried(rng, mine), tried(rng, theirs)
        one, other = paired(first, second, groups=groups), paired(first, second)
        covered += one.low <= 0 <= one.high
        alone += other.low <= 0 <= other.high
    assert covered >= 460 and alone < 440


def test_groups_of_one_change_nothing():
    rng = np.random.default_rng(0)
    first, second = (rng.random((2, 300)) < 0.3).astype(float)
    groups = [f"HumanEval/{number}" for number in range(300)]
    assert share(first, groups) == share(first) == rate(int(first.sum()), 300)
    assert paired(first, second, groups=groups) == paired(first, second)


def test_the_names_and_the_order_of_groups_do_not_matter():
    values, groups = np.array([1.0, 1, 0, 0, 1, 0]), ["f", "f", "g", "g", "h", "f"]
    order = [5, 2, 4, 0, 1, 3]
    moved = share(values[order], [{"f": 1, "g": 2, "h": 3}[groups[number]] for number in order])
    assert vars(moved) == pytest.approx(vars(share(values, groups)))


def test_a_single_group_is_as_good_as_one_item():
    assert design_effect(np.array([0.5, 0.5, -1.0]), "fff") == 3
    found = share(np.array([1.0, 1, 0]), "fff")
    assert found.low < 0.15 and found.high > 0.95


def test_every_item_needs_its_group():
    with pytest.raises(ValueError, match="there are 3 items and 2 groups"):
        design_effect(np.zeros(3), "fg")


# Values between 0 and 1 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_values_that_are_all_at_a_bound_have_the_interval_of_a_rate(value):
    assert share(np.full(50, value)) == rate(int(50 * value), 50)
    half = share(np.full(50, 0.5))  # of which more is known, but not everything
    assert 0.4 < half.low < 0.5 < half.high < 0.6


@pytest.mark.parametrize("shape", [(0.2, 1.8), (2.0, 2.0)])
def test_the_interval_of_values_between_0_and_1_covers_the_truth(shape):
    """1,000 experiments with 60 values; a coverage of 95% has a standard deviation of 0.7 points."""
    rng, truth = np.random.default_rng(0), shape[0] / sum(shape)
    found = [share(rng.beta(*shape, 60)) for _ in range(1000)]
    assert sum(one.low <= truth <= one.high for one in found) >= 920
    plain = rate(round(60 * truth), 60)
    assert np.mean([one.high - one.low for one in found]) < plain.high - plain.low


def test_a_share_is_shown_in_percent():
    assert Interval(0.1234, 0.0, 1.0).percent() == "12.3% (0.0 - 100.0)"
    assert Interval(0.1234, 0.0, 1.0).percent(each=True) == "12.3% (0.0% - 100.0%)"
