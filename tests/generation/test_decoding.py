import math

import pytest
import torch

from flexmdm.generation import Decoding
from flexmdm.randomness import uniform

SMALLEST, LARGEST = 2.0**-54, 1 - 2.0**-53  # about the ends of what a uniform float64 in (0, 1) can be
INF = math.inf


def logs(*rows, dtype=torch.float64):
    return torch.tensor(rows, dtype=torch.float64).log().to(dtype)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def shares(decoding, probs, n, seed=0):
    """How often each token comes in n independent draws, [V]."""
    tokens = decoding.draw(logs(probs).expand(n, -1), uniform(seed, torch.arange(n)))
    return torch.bincount(tokens, minlength=len(probs)) / n


def drawn_set(decoding, probs, n=2000):
    """Every token that comes up when u sweeps (0, 1)."""
    u = torch.cat([(torch.arange(n).double() + 0.5) / n, numbers(SMALLEST, LARGEST)])
    return set(decoding.draw(logs(probs).expand(len(u), -1), u).tolist())


# Temperature ----------------------------------------------------------------------------------------------------------


def test_temperature_0_is_argmax_whatever_the_random_number():
    probs = torch.rand(50, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    log_probs = (probs / probs.sum(1, keepdim=True)).log()
    for u in (SMALLEST, 0.3, LARGEST):
        drawn = Decoding(temperature=0.0).draw(log_probs, torch.full((50,), u, dtype=torch.float64))
        assert torch.equal(drawn, probs.argmax(1))


@pytest.mark.parametrize("temperature", [0.25, 0.5, 1.0, 2.0, 4.0])
def test_temperature_changes_the_law_to_p_to_the_one_over_t(temperature):
    """n = 100,000 draws; a share p has a standard error of at most 0.0016, and 4.5 of them are allowed."""
    n, probs = 100_000, (0.5, 0.3, 0.15, 0.05)
    law = torch.tensor(probs, dtype=torch.float64) ** (1 / temperature)
    law = law / law.sum()
    error = (shares(Decoding(temperature), probs, n) - law).abs()
    assert bool((error <= 4.5 * (law * (1 - law) / n).sqrt()).all()), (error, law)


def test_a_low_temperature_comes_near_argmax_and_a_high_one_near_uniform():
    assert drawn_set(Decoding(1e-3), (0.4, 0.35, 0.25)) == {0}
    assert drawn_set(Decoding(5e-324), (0.35, 0.4, 0.25)) == {1}
    even = shares(Decoding(1e6), (0.7, 0.2, 0.1, 0.0), 20_000)  # standard error 0.0033
    assert even[3] == 0 and bool(((even[:3] - 1 / 3).abs() < 0.016).all())


def test_sampling_is_not_always_argmax():
    assert drawn_set(Decoding(), (0.6, 0.4)) == {0, 1}
    assert float(shares(Decoding(), (0.6, 0.4), 20_000)[1]) == pytest.approx(0.4, abs=0.016)  # standard error 0.0035


def test_rows_are_drawn_independently_of_each_other():
    log_probs = logs((0.5, 0.5, 0.0), (0.0, 0.5, 0.5), (0.25, 0.5, 0.25))
    u = numbers(0.7, 0.2, 0.9)
    together = Decoding().draw(log_probs, u)
    alone = torch.cat([Decoding().draw(log_probs[i : i + 1], u[i : i + 1]) for i in range(3)])
    assert torch.equal(together, alone)


def test_no_rows_give_no_tokens():
    for decoding in (Decoding(), Decoding(0.0), Decoding(top_k=2), Decoding(top_p=0.5)):
        assert decoding.draw(torch.zeros(0, 4), torch.zeros(0)).tolist() == []


# Tails ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_token_of_probability_one_in_a_billion_is_drawn_in_its_interval(dtype):
    """Float32 categorical or Gumbel noise has no such tail, and so quietly lowers the temperature."""
    rare = 1e-9
    for row, token in (((rare, 1 - rare), 0), ((0.5, rare, 0.5 - rare), 1), ((1 - rare, rare), 1)):
        log_probs = logs(row, dtype=dtype)
        law = log_probs[0].double().softmax(0)  # what the rounded logarithms say
        u = law[:token].sum() + numbers(0.1, 0.5, 0.9) * law[token]
        assert Decoding().draw(log_probs.expand(3, -1), u).tolist() == [token] * 3


def test_a_hundred_thousand_rare_tokens_keep_their_mass():
    """0.9 for one token and 1e-6 for each of 100,000 others: sums in float32 lose or misplace them."""
    many = 100_000
    log_probs = torch.full((1, many + 1), math.log(1e-6), dtype=torch.float32)
    log_probs[0, 0] = math.log(0.9)
    u = numbers(0.899, 0.901, 0.925, 0.95, 0.999)
    tokens = Decoding().draw(log_probs.expand(len(u), -1), u)
    assert tokens[0] == 0
    expected = 1 + (u[1:] - 0.9) / 1e-6
    # The logarithms were rounded to float32 (relative error below 1e-6), which moves a border by less than a token.
    assert bool(((tokens[1:] - expected).abs() <= 2).all()), (tokens, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "decoding",
    [Decoding(), Decoding(0.0), Decoding(0.3), Decoding(30.0), Decoding(top_k=3), Decoding(top_p=0.9)],
    ids=str,
)
def test_a_token_of_probability_0_is_never_drawn(decoding, dtype):
    """2,000 rows with impossible tokens anywhere, the mask's own id among them, and u at both ends of (0, 1)."""
    generator = torch.Generator().manual_seed(0)
    probs = torch.rand(2000, 8, generator=generator, dtype=torch.float64) ** 8
    probs[torch.rand(2000, 8, generator=generator) < 0.5] = 0.0
    probs[:, 3] += 1e-12  # something is possible
    probs[:, 7] = 0.0  # the mask
    probs[::2, 0] = 0.0
    log_probs = (probs / probs.sum(1, keepdim=True)).log().to(dtype)
    for u in (0.0, 5e-324, SMALLEST, 0.5, LARGEST):
        tokens = decoding.draw(log_probs, torch.full((2000,), u, dtype=torch.float64))
        assert bool((log_probs.gather(1, tokens[:, None]) > -INF).all())
        assert bool((tokens != 7).all())


def test_log_probs_need_no_normalisation():
    log_probs, u = logs((0.2, 0.3, 0.5)), uniform(3, torch.arange(500))
    for decoding in (Decoding(), Decoding(0.5, top_k=2), Decoding(top_p=0.6)):
        shifted = decoding.draw(log_probs.expand(500, -1) + 700.0, u)
        assert torch.equal(shifted, decoding.draw(log_probs.expand(500, -1), u))


# Top-k and top-p ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "tokens"), [(1, {2}), (2, {2, 0}), (3, {2, 0, 3}), (4, {0, 1, 2, 3}), (9, {0, 1, 2, 3})])
def test_top_k_keeps_exactly_the_k_most_probable(k, tokens):
    assert drawn_set(Decoding(top_k=k), (0.3, 0.1, 0.4, 0.2)) == tokens


def test_top_k_beyond_the_possible_tokens_adds_nothing():
    assert drawn_set(Decoding(top_k=3), (0.0, 0.4, 0.0, 0.6)) == {1, 3}


@pytest.mark.parametrize(
    ("p", "tokens"),
    [(1e-9, {1}), (0.5, {1}), (0.500001, {1, 3}), (0.75, {1, 3}), (0.76, {0, 1, 3}), (0.9, {0, 1, 2, 3})]
    + [(0.9375, {0, 1, 2, 3}), (0.94, {0, 1, 2, 3, 4}), (1.0, {0, 1, 2, 3, 4})],
)
def test_top_p_keeps_the_smallest_set_that_reaches_the_mass(p, tokens):
    # The probabilities are exact in binary: 1/8, 1/2, 1/16, 1/4, 1/16. Of two equal ones the first goes first.
    assert drawn_set(Decoding(top_p=p), (0.125, 0.5, 0.0625, 0.25, 0.0625)) == tokens


def test_what_is_kept_is_renormalised():
    """n = 50,000; standard error below 0.0023."""
    probs = (0.125, 0.5, 0.125, 0.25)
    for decoding in (Decoding(top_k=2), Decoding(top_p=0.75)):
        assert shares(decoding, probs, 50_000).tolist() == pytest.approx([0, 2 / 3, 0, 1 / 3], abs=0.01)


def test_temperature_comes_before_top_p():
    probs = (0.5, 0.3, 0.2)
    assert drawn_set(Decoding(top_p=0.5), probs) == {0}
    assert drawn_set(Decoding(1e6, top_p=0.5), probs) == {0, 1}  # nearly uniform: one token is a third
    assert drawn_set(Decoding(0.1, top_p=0.9), probs) == {0}


def test_top_p_counts_among_the_top_k():
    probs = (0.4, 0.3, 0.2, 0.1)
    assert drawn_set(Decoding(top_p=0.5), probs) == {0, 1}
    assert drawn_set(Decoding(top_k=2, top_p=0.5), probs) == {0}  # 0.4 of 0.7
    assert drawn_set(Decoding(top_k=2, top_p=0.99), probs) == {0, 1}


# Bad values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [-0.1, -INF, INF, math.nan])
def test_a_temperature_that_is_no_number_from_0_up_is_refused(temperature):
    with pytest.raises(ValueError, match="temperature must be a number from 0"):
        Decoding(temperature=temperature)


@pytest.mark.parametrize("k", [0, -3])
def test_top_k_below_1_is_refused(k):
    with pytest.raises(ValueError, match="top_k must be at least 1"):
        Decoding(top_k=k)


@pytest.mark.parametrize("p", [0.0, -0.5, 1.01, math.nan])
def test_top_p_outside_its_interval_is_refused(p):
    with pytest.raises(ValueError, match=r"top_p must lie in \(0, 1\]"):
        Decoding(top_p=p)


@pytest.mark.parametrize("decoding", [Decoding(), Decoding(0.0), Decoding(top_k=2), Decoding(top_p=0.5)], ids=str)
@pytest.mark.parametrize("row", [(math.nan, 0.0), (-INF, -INF), (0.0, math.nan)])
def test_a_row_from_which_nothing_can_be_drawn_is_an_error(decoding, row):
    with pytest.raises(ValueError, match="cannot draw a token"):
        decoding.draw(torch.tensor([(-0.7, -0.7), row]), numbers(0.5, 0.5))
