"""Differences of paired rates: their intervals cover the truth, also where the two hardly ever disagree."""

import numpy as np
import pytest

from flexmdm.evaluation.intervals import paired


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
