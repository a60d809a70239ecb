import numpy as np
import pytest
import torch
from scipy import stats

from flexmdm.evaluation.lengths import length_fidelity, length_floor, length_histogram


def drawn(rng, num, shift=0):
    return np.minimum(rng.negative_binomial(3, 0.1, num), 150) + shift


def test_distances_by_hand():
    fidelity = length_fidelity([1, 1, 3], [2, 2, 2, 2])
    assert fidelity.w1 == pytest.approx(1.0)  # everyone is one off
    assert fidelity.ks == pytest.approx(2 / 3)
    assert (fidelity.mean, fidelity.held_out_mean) == (pytest.approx(5 / 3), 2.0)


def test_distances_agree_with_scipy_and_lie_in_their_intervals():
    rng = np.random.default_rng(0)
    ours, theirs = drawn(rng, 300, shift=4), drawn(rng, 500)
    fidelity = length_fidelity(ours, theirs, resamples=200)
    assert fidelity.w1 == pytest.approx(stats.wasserstein_distance(ours, theirs))
    assert fidelity.ks == pytest.approx(stats.ks_2samp(ours, theirs).statistic)
    assert 0 <= fidelity.w1_low < fidelity.w1 < fidelity.w1_high
    assert 0 <= fidelity.ks_low < fidelity.ks < fidelity.ks_high <= 1


@pytest.mark.parametrize("shift", [0, 2, 20])
def test_intervals_cover_the_truth_in_nearly_all_of_100_repeats(shift):
    """A shift by s has W1 = s. With a coverage of 95%, fewer than 88 of 100 would have a chance of 0.2%."""
    rng = np.random.default_rng(shift)
    found = [length_fidelity(drawn(rng, 200, shift), drawn(rng, 300), seed, resamples=100) for seed in range(100)]
    assert sum(f.w1_low <= shift <= f.w1_high for f in found) >= 88
    if shift == 20:  # far from exact, and the intervals say so
        assert min(f.w1_low for f in found) > 10


@pytest.mark.parametrize(("ours", "theirs"), [([5], [4, 6]), ([4, 6], [5]), ([5], [5])])
def test_of_one_length_alone_there_is_no_interval(ours, theirs):
    fidelity = length_fidelity(ours, theirs)
    assert np.isnan([fidelity.w1_low, fidelity.w1_high, fidelity.ks_low, fidelity.ks_high]).all()
    assert fidelity.w1 == (0 if ours == theirs else 1)


def test_exact_samples_stand_at_the_floor():
    rng = np.random.default_rng(0)
    pairs = [(drawn(rng, 200), drawn(rng, 300)) for _ in range(60)]
    mean = np.mean([stats.wasserstein_distance(*pair) for pair in pairs])
    assert length_floor(drawn(rng, 300), 200) == pytest.approx(mean, rel=0.25)


def test_the_same_seed_gives_the_same_interval_for_lists_arrays_and_tensors():
    a, b = [3, 5, 5, 9], [4, 4, 8]
    assert length_fidelity(a, b, seed=1) == length_fidelity(torch.tensor(a), np.array(b), seed=1)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [([], "generated lengths must be a list with at least one"), ([2, -1], "whole numbers"), ([2.5], "whole numbers")],
)
def test_what_is_no_list_of_lengths_is_refused(lengths, message):
    with pytest.raises(ValueError, match=message):
        length_fidelity(lengths, [1, 2])


def test_shares_of_a_histogram_add_up_but_for_the_longest():
    rng = np.random.default_rng(0)
    samples = {"short": drawn(rng, 500), "long": 9 * drawn(rng, 500)}
    edges, shares = length_histogram(samples)
    width = edges[1] - edges[0]
    assert len(edges) <= 50 and set(np.diff(edges)) == {width}
    assert shares["short"].sum() * width == pytest.approx(1.0)
    assert 0.99 <= shares["long"].sum() * width <= 1.0
