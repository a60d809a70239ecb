import math

import numpy as np
import pytest
import torch
from scipy import stats

from flexmdm import randomness
from flexmdm.randomness import StepRandomness, poisson_quantile, uniform

NUMBER = 200_000  # draws of a statistical test; the noise floor of a correlation is 1 / sqrt(NUMBER) = 0.0022
BINS = 500  # of the chi-square test, 400 draws in each
IMPROBABLE = 1e-5  # a test that uses it would fail by chance once in a hundred thousand seeds

RATES = [0.0, 1e-12, 1e-6, 1e-3, 0.5, 1.0, 3.7, 29.0, 30.0, 31.0, 100.0, 1000.0]


def draws(way, count=NUMBER):
    """Uniforms along one counter, with the others held."""
    index = torch.arange(count)
    return {
        "sequences": lambda: uniform(0, index, 3, 1),
        "steps": lambda: uniform(0, 5, index, 1),
        "slots": lambda: uniform(0, 5, 3, index),
        "far apart": lambda: uniform(7, index * 2**40, 0),
        "backwards": lambda: uniform(7, -index),
        "two counters": lambda: uniform(1, index // 400, index % 400),
        "seeds": lambda: torch.stack([uniform(seed, index[:400], 2) for seed in range(count // 400)], 1).flatten(),
    }[way]()


WAYS = ["sequences", "steps", "slots", "far apart", "backwards", "two counters", "seeds"]


# uniform --------------------------------------------------------------------------------------------------------------


def test_a_number_depends_on_its_own_counters_only():
    rows, slots = torch.arange(50), torch.arange(50) * 3 + 1
    together = uniform(11, rows, 2, slots)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(uniform(11, rows[order], 2, slots[order]), together[order])
    for i in (0, 17, 49):
        assert float(uniform(11, i, 2, int(slots[i]))) == float(together[i])


def test_counters_broadcast():
    table = uniform(3, torch.arange(4)[:, None], torch.arange(5))
    assert table.shape == (4, 5)
    assert float(table[2, 3]) == float(uniform(3, 2, 3))


def test_numbers_are_float64_strictly_between_0_and_1():
    u = uniform(0, torch.arange(1_000_000))
    assert u.dtype == torch.float64
    assert bool(((u > 0) & (u < 1)).all())


@pytest.mark.parametrize("pattern", [0, -1, 1, -(2**63), 2**63 - 1])
def test_every_pattern_of_bits_gives_a_number_strictly_between_0_and_1(monkeypatch, pattern):
    monkeypatch.setattr(randomness, "_mix", lambda x: 0 * x + pattern)
    assert 0.0 < float(uniform(0)) < 1.0


@pytest.mark.parametrize("way", WAYS)
def test_numbers_are_uniform_by_the_chi_square_test(way):
    u = draws(way)
    observed = torch.histc(u, BINS, 0.0, 1.0)
    expected = len(u) / BINS
    statistic = float(((observed - expected) ** 2 / expected).sum())
    low, high = stats.chi2.ppf([IMPROBABLE, 1 - IMPROBABLE], BINS - 1)
    assert low < statistic < high


@pytest.mark.parametrize("way", WAYS)
def test_neighbours_along_a_counter_are_uncorrelated(way):
    u = draws(way) - 0.5
    for lag in (1, 2, 3, 64):
        correlation = float((u[lag:] * u[:-lag]).mean()) * 12
        assert abs(correlation) < 4.5 / math.sqrt(len(u) - lag)


def test_seeds_steps_and_streams_are_uncorrelated():
    index = torch.arange(NUMBER)

    def of(seed=0, step=0, stream="token"):
        return StepRandomness(seed, index, step).uniform(stream, index) - 0.5

    first = of()
    for other in (of(seed=1), of(seed=3), of(seed=-1), of(step=1), of(stream="insert")):
        assert abs(float((first * other).mean()) * 12) < 4.5 / math.sqrt(NUMBER)


def test_no_seed_and_counter_share_their_number_with_another_seed_and_counter():
    # 64 * 512 numbers of 53 bits: two equal ones by chance have probability 6e-8.
    table = torch.stack([uniform(seed, torch.arange(512)) for seed in range(64)])
    assert len(torch.unique(table)) == table.numel()


def test_no_pair_of_counters_shares_its_number_with_another_pair():
    for seed in (0, 1, 2):
        table = uniform(seed, torch.arange(256)[:, None], torch.arange(256))
        assert len(torch.unique(table)) == table.numel()


def test_the_very_first_number_is_nothing_special():
    # Seed 0 and counters 0, the most used place of all; one of five numbers is outside by chance with probability 1e-5.
    for counters in range(1, 6):
        assert 1e-6 < float(uniform(0, *[0] * counters)) < 1 - 1e-6


@pytest.mark.parametrize("seed", [-1, -(2**63), 2**63 - 1, 2**64 + 5, 10**30, -(10**30)])
def test_negative_and_huge_seeds_work(seed):
    u = uniform(seed, torch.arange(1000))
    assert bool(((u > 0) & (u < 1)).all())
    assert abs(float(u.mean()) - 0.5) < 4.5 / math.sqrt(12 * 1000)
    assert not torch.equal(u, uniform(seed + 1, torch.arange(1000)))


def test_numpy_and_pytorch_hash_alike(monkeypatch):
    """On the CPU integers are hashed by NumPy, elsewhere by PyTorch."""
    edges = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63), 2**40, -(2**40)])
    counters = torch.cat([edges, torch.arange(-500, 500)])
    found = [uniform(seed, counters, 7, counters[:, None][:50]) for seed in (0, -1, 2**63 - 1)]
    monkeypatch.setattr(randomness, "_array", lambda x: x)
    for seed, numbers in zip((0, -1, 2**63 - 1), found, strict=True):
        assert torch.equal(uniform(seed, counters, 7, counters[:, None][:50]), numbers)


def test_steps_may_differ_from_sequence_to_sequence():
    rows, slots = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 0])
    several = StepRandomness(5, torch.tensor([3, 4, 3]), torch.tensor([2, 0, 7])).uniform("token", rows, slots)
    steps = torch.tensor([2, 2, 0, 7])
    alone = [StepRandomness(5, torch.tensor([n]), int(step)) for n, step in zip((3, 3, 4, 3), steps, strict=True)]
    first = torch.zeros(1, dtype=torch.int64)
    assert several.tolist() == [
        float(rng.uniform("token", first, slot[None])) for rng, slot in zip(alone, slots, strict=True)
    ]


# Poisson --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", RATES)
def test_poisson_quantiles_are_those_of_scipy(rate):
    u = np.concatenate([[1e-12, 1e-9, 1e-6], np.linspace(0.0005, 0.9995, 1999), 1 - np.array([1e-6, 1e-9, 1e-11])])
    counts = poisson_quantile(torch.tensor(u), torch.full((len(u),), rate, dtype=torch.float64))
    assert counts.dtype == torch.int64
    assert counts.tolist() == stats.poisson.ppf(u, rate).astype(int).tolist()


def test_poisson_rates_may_differ_from_place_to_place():
    rate = torch.tensor(RATES * 50, dtype=torch.float64)
    u = uniform(5, torch.arange(len(rate)))
    assert poisson_quantile(u, rate).tolist() == stats.poisson.ppf(u.numpy(), rate.numpy()).astype(int).tolist()


def test_a_rate_of_zero_never_gives_anything():
    assert not bool(poisson_quantile(uniform(0, torch.arange(10_000)), torch.zeros(10_000)).any())


def test_poisson_of_nothing_is_nothing():
    assert poisson_quantile(torch.zeros(0, dtype=torch.float64), torch.zeros(0)).shape == (0,)


def test_the_largest_number_below_1_ends():
    u = torch.full((3,), math.nextafter(1.0, 0.0), dtype=torch.float64)
    counts = poisson_quantile(u, torch.tensor([1e-3, 29.0, 1000.0]))
    assert bool((counts > torch.tensor([0, 29, 1000])).all())
    assert bool((counts < torch.tensor([20, 120, 1400])).all())


def test_poisson_counts_have_the_mean_and_the_variance_of_their_rate():
    rate = 2.5  # standard errors over NUMBER draws: 0.0035 of the mean, 0.0087 of the variance
    index = torch.arange(NUMBER)
    counts = StepRandomness(1, index, 0).poisson("insert", torch.full((NUMBER,), rate), index).double()
    assert abs(float(counts.mean()) - rate) < 4 * math.sqrt(rate / NUMBER)
    assert abs(float(counts.var()) - rate) < 4 * math.sqrt((rate + 2 * rate**2) / NUMBER)


# StepRandomness -------------------------------------------------------------------------------------------------------


def test_a_sequence_draws_the_same_alone_and_in_any_batch():
    batch = StepRandomness(seed=9, sequences=torch.tensor([4, 8, 15, 16]), step=3)
    alone = StepRandomness(seed=9, sequences=torch.tensor([15]), step=3)
    slots = torch.arange(6)
    in_batch = batch.uniform("token", torch.full((6,), 2), slots)
    assert torch.equal(in_batch, alone.uniform("token", torch.zeros(6, dtype=torch.int64), slots))
    rate = torch.full((6,), 1.7)
    assert torch.equal(
        batch.poisson("insert", rate, torch.full((6,), 2), slots),
        alone.poisson("insert", rate, torch.zeros(6, dtype=torch.int64), slots),
    )


def test_seed_sequence_step_stream_and_slot_all_matter():
    def draw(seed=0, sequence=0, step=0, stream="token", slot=0):
        rng = StepRandomness(seed, torch.tensor([sequence]), step)
        return float(rng.uniform(stream, torch.tensor([0]), slot))

    values = [draw(), draw(seed=1), draw(sequence=1), draw(step=1), draw(stream="insert"), draw(slot=1)]
    assert len(set(values)) == len(values)
