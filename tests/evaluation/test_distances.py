import math

import pytest
import torch
from scipy import stats

from flexmdm import FiniteDistribution, Ragged
from flexmdm.evaluation.distances import (
    bigram_law,
    kolmogorov_smirnov,
    length_law,
    nats_per_token,
    total_variation,
    total_variation_floor,
    wasserstein,
    wasserstein_floor,
    word_law,
)

LAW = torch.tensor([0.5, 0.2, 0.2, 0.1, 0.0], dtype=torch.float64)


def ragged_of_lengths(lengths):
    return Ragged(torch.zeros(int(lengths.sum()), dtype=torch.int64), lengths)


def drawn(law, count, seed):
    return torch.multinomial(law, count, replacement=True, generator=torch.Generator().manual_seed(seed))


def test_length_distances_agree_with_scipy():
    a, b = drawn(LAW, 50, seed=0), drawn(LAW, 80, seed=1) + 1
    p, q = length_law(ragged_of_lengths(a)), length_law(ragged_of_lengths(b))
    assert wasserstein(p, q) == pytest.approx(stats.wasserstein_distance(a, b))
    assert kolmogorov_smirnov(p, q) == pytest.approx(stats.ks_2samp(a, b).statistic)


@pytest.mark.parametrize("distance", [total_variation, wasserstein, kolmogorov_smirnov])
def test_distances_are_symmetric_and_zero_only_for_equal_laws(distance):
    shorter = torch.tensor([0.5, 0.5])
    assert distance(LAW, shorter) == pytest.approx(distance(shorter, LAW)) and distance(LAW, shorter) > 0
    assert distance(LAW, LAW[:4]) == 0


@pytest.mark.parametrize("count", [1, 2, 7, 10, 1000])
def test_floors_are_the_mean_deviations_of_binomials(count):
    k = torch.arange(count + 1).double()

    def deviation(p):
        mass = torch.tensor(stats.binom.pmf(k, count, p))
        return float((mass * (k / count - p).abs()).sum())

    by_hand = sum(deviation(float(p)) for p in LAW) / 2
    assert total_variation_floor(LAW, count) == pytest.approx(by_hand, abs=1e-12)
    by_hand = sum(deviation(min(1.0, float(p))) for p in LAW.cumsum(0))
    assert wasserstein_floor(LAW, count) == pytest.approx(by_hand, abs=1e-9)


def test_exact_samples_stand_at_the_floor():
    """400 times 100 exact samples; the spread of their distances gives the standard error."""
    laws = [length_law(ragged_of_lengths(drawn(LAW, 100, seed))) for seed in range(400)]
    for distance, floor in ((total_variation, total_variation_floor), (wasserstein, wasserstein_floor)):
        found = torch.tensor([distance(law, LAW) for law in laws])
        assert float(found.mean()) == pytest.approx(floor(LAW, 100), abs=4 * float(found.std()) / 20)


def test_a_floor_needs_samples():
    with pytest.raises(ValueError, match="at least 1"):
        total_variation_floor(LAW, 0)


def test_words_outside_the_support_and_stuck_samples_are_told_apart_from_words():
    source = FiniteDistribution({(0,): 0.5, (0, 1): 0.5}, vocab_size=2)
    samples = Ragged.from_lists([[0], [0, 1], [1, 1, 1], []])
    assert word_law(samples, source).tolist() == [0.25, 0.25, 0.5]
    possible = torch.tensor([False, True, True, True])
    law = word_law(samples, source, possible)
    assert law.tolist() == [0.0, 0.25, 0.75]
    assert total_variation(law, source.probabilities) == 0.75


def test_bigrams_do_not_reach_across_sequences():
    law = bigram_law(Ragged.from_lists([[0, 1], [1, 0], [], [0]]), vocab_size=2)
    assert law.tolist() == [0.0, 0.5, 0.5, 0.0]
    assert bigram_law(Ragged.from_lists([]), vocab_size=2).tolist() == [0.0] * 4


def test_the_standard_error_of_nats_per_token_is_the_spread_of_repetitions():
    """300 repetitions of 200 sequences whose nats depend on their length."""
    generator = torch.Generator().manual_seed(0)
    estimates = []
    for _ in range(300):
        lengths = torch.randint(1, 40, (200,), generator=generator)
        nats = 1.3 * lengths + lengths.double().sqrt() * torch.randn(200, generator=generator)
        estimates.append(nats_per_token(-nats, lengths))
    spread = float(torch.tensor([e.value for e in estimates]).std())
    assert estimates[0].standard_error == pytest.approx(spread, rel=0.2)
    assert sum(e.value for e in estimates) / 300 == pytest.approx(1.3, abs=4 * spread / math.sqrt(300))


def test_off_support_samples_are_left_out():
    log_prob, lengths = torch.tensor([-2.0, -math.inf, -4.0]), torch.tensor([1, 50, 2])
    assert nats_per_token(log_prob, lengths).value == 2.0
    nothing = nats_per_token(torch.full((3,), -math.inf), lengths)
    assert math.isnan(nothing.value) and math.isnan(nothing.standard_error)
