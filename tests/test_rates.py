"""The paper's rate matrix, checked against the interpolant: the forward equation, and the law at the end."""

import math
from itertools import combinations, product

import pytest
import torch

from flexmdm import (
    CosineSchedule,
    FiniteDistribution,
    FlexMDMInterpolant,
    GeometricSchedule,
    HiddenMarkovSource,
    LinearSchedule,
    PolynomialSchedule,
    PowerSchedule,
    Prompt,
    SineSchedule,
)
from flexmdm.rates import rate_matrix, reachable, solve

NINE_WORDS = {
    "": 0.05, "a": 0.1, "ab": 0.12, "ba": 0.08, "cc": 0.1, "aab": 0.13, "bcb": 0.12, "abcab": 0.2, "cabba": 0.1,
}  # fmt: skip
SOURCE = FiniteDistribution({tuple("abc".index(c) for c in word): p for word, p in NINE_WORDS.items()}, vocab_size=3)
A, B, C = range(3)

SCHEDULES = {
    "linear": FlexMDMInterpolant(),
    "cosine-linear": FlexMDMInterpolant(CosineSchedule(), LinearSchedule()),
    "polynomial-sine": FlexMDMInterpolant(PolynomialSchedule(2.0), SineSchedule()),
    "sine-cosine": FlexMDMInterpolant(SineSchedule(), CosineSchedule()),
    "root-linear": FlexMDMInterpolant(PolynomialSchedule(0.5), LinearSchedule()),
    "geometric": FlexMDMInterpolant(GeometricSchedule(), GeometricSchedule()),
    "power": FlexMDMInterpolant(PowerSchedule(1.7), PowerSchedule(2.89)),
    "half-power": FlexMDMInterpolant(PowerSchedule(0.5), PowerSchedule(0.5)),
    "large-power": FlexMDMInterpolant(PowerSchedule(16.0), PowerSchedule(8.0)),
}
PROMPTS = {
    "empty": Prompt.empty(),
    "fixed-present-closed": Prompt((A, None), (True, False, True)),  # ... a ? ...: nothing between a and the mask
    "present-open": Prompt((None, B), (False, True, True)),
    "infill": Prompt.infill([[A], [B]]),
    "masks": Prompt.masks(3),  # MDM
}
prompts = pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
cases = pytest.mark.parametrize(  # every schedule without a prompt, two of them with every prompt
    ("prompt", "interpolant"),
    [
        pytest.param(PROMPTS[prompt], SCHEDULES[schedule], id=f"{prompt}-{schedule}")
        for prompt, schedule in product(PROMPTS, SCHEDULES)
        if prompt == "empty" or schedule in ("linear", "polynomial-sine")
    ],
)


def keys_of(canvas):
    """A hashable name for every state: tokens, given flags, open gaps."""
    parts = (canvas.tokens.tolist(), canvas.given.tolist(), canvas.open_gaps.tolist())
    return [tuple(map(tuple, state)) for state in zip(*parts, strict=True)]


def placements(word, prompt):
    """All positions of the prompt's entries in a word: fixed tokens match, and nothing is missing in a closed gap."""
    for given in combinations(range(len(word)), len(prompt.tokens)):
        match = all(v is None or word[j] == v for j, v in zip(given, prompt.tokens, strict=True))
        missing = [right - left - 1 for left, right in zip((-1, *given), (*given, len(word)), strict=True)]
        if match and not any(n and not is_open for n, is_open in zip(missing, prompt.open_gaps, strict=True)):
            yield given


def state_of(word, given, prompt, digits, mask_id):
    """The state in which token j of a word is not there (digit 0), a mask (1) or clean (2)."""
    kept = [j for j, digit in enumerate(digits) if digit]
    tokens = tuple(word[j] if digits[j] == 2 else mask_id for j in kept)
    gaps = [prompt.open_gaps[sum(g < j for g in given)] for j in kept] + [prompt.open_gaps[-1]]
    return tokens, tuple(j in given for j in kept), tuple(gaps)


def interpolant_law(source, prompt, interpolant, t, mask_id):
    """p_t by enumeration, {state: probabilities at the times t [T]}; all placements of the prompt weigh the same."""
    beta = interpolant.unmasking.value(t)
    zero, one = torch.zeros_like(beta), torch.ones_like(beta)
    free = interpolant.state_probabilities(t)  # of a token that is not there, a mask, clean
    present, fixed = (zero, 1 - beta, beta), (zero, zero, one)
    law, total = {}, 0.0
    for word, weight in zip(source.words, source.probabilities.tolist(), strict=True):
        for given in placements(word, prompt):
            total += weight
            roles = [free] * len(word)
            for j, v in zip(given, prompt.tokens, strict=True):
                roles[j] = present if v is None else fixed
            choices = [{id(free): (0, 1, 2), id(present): (1, 2), id(fixed): (2,)}[id(role)] for role in roles]
            for digits in product(*choices):
                probability = weight * one
                for role, digit in zip(roles, digits, strict=True):
                    probability = probability * role[digit]
                state = state_of(word, given, prompt, digits, mask_id)
                law[state] = law.get(state, 0.0) + probability
    return {state: probability / total for state, probability in law.items()}


def law_of_states(space, law):
    """``[T, K]``: a law in the order of the states."""
    return torch.stack([law[key] for key in keys_of(space.states)], 1)


def clean_law(space, source, prompt):
    """``[K]``: p_1, every placement of the prompt in a word weighing the same."""
    number = {key: k for k, key in enumerate(keys_of(space.states))}
    law = torch.zeros(len(number), dtype=torch.float64)
    for word, weight in zip(source.words, source.probabilities.tolist(), strict=True):
        for given in placements(word, prompt):
            law[number[state_of(word, given, prompt, [2] * len(word), mask_id=None)]] += weight
    return law / law.sum()


# The forward equation -------------------------------------------------------------------------------------------------


@prompts
def test_the_chain_reaches_exactly_the_states_of_the_interpolant(prompt):
    space = reachable(SOURCE.denoiser(), prompt)
    law = interpolant_law(SOURCE, prompt, FlexMDMInterpolant(), torch.tensor([0.5], dtype=torch.float64), mask_id=3)
    keys = keys_of(space.states)
    assert len(set(keys)) == len(keys)
    assert set(keys) == set(law)


@cases
def test_the_rate_matrix_of_the_oracle_solves_the_forward_equation(prompt, interpolant):
    denoiser = SOURCE.denoiser()
    space = reachable(denoiser, prompt)
    h, stencil = 1e-3, torch.tensor([-1, 9, -45, 0, 45, -9, 1], dtype=torch.float64) / 60
    worst = 0.0
    for t in (0.1, 0.35, 0.6, 0.9):
        times = t + h * torch.arange(-3, 4, dtype=torch.float64)
        law = law_of_states(space, interpolant_law(SOURCE, prompt, interpolant, times, mask_id=3))
        assert torch.allclose(law.sum(1), torch.ones(7, dtype=torch.float64), atol=1e-12)
        derivative = stencil @ law / h
        residual = derivative - law[3] @ rate_matrix(space, denoiser, interpolant, t)
        worst = max(worst, float(residual.abs().max()))
    print(f"largest residual {worst:.1e}")
    assert worst <= 1e-6


@pytest.mark.parametrize("change", ["f", "g"])
def test_a_wrong_prediction_violates_the_forward_equation(change):
    oracle, interpolant = SOURCE.denoiser(), FlexMDMInterpolant()
    space = reachable(oracle)
    t = torch.tensor([0.5], dtype=torch.float64)
    law = law_of_states(space, interpolant_law(SOURCE, Prompt.empty(), interpolant, t, mask_id=3))[0]
    wrong = rate_matrix(space, Delayed(oracle, change, by=0.2), interpolant, 0.5)
    assert float((law @ (rate_matrix(space, oracle, interpolant, 0.5) - wrong)).abs().max()) > 1e-3


class Delayed:
    """f or g of another denoiser at a later clock."""

    vocab_size, mask_id = 3, 3

    def __init__(self, denoiser, change, by):
        self.denoiser, self.change, self.by = denoiser, change, by

    def __call__(self, canvas, alpha):
        now, later = self.denoiser(canvas, alpha), self.denoiser(canvas, alpha + self.by)
        f, g = (later, now) if self.change == "f" else (now, later)
        return type(now)(f.log_probs, g.insertions)


@prompts
def test_rates_are_not_negative_and_rows_sum_to_zero(prompt):
    denoiser = SOURCE.denoiser()
    space = reachable(denoiser, prompt)
    matrix = rate_matrix(space, denoiser, FlexMDMInterpolant(), 0.3)
    assert float(matrix.sum(1).abs().max()) < 1e-12
    assert float((matrix - torch.diag(matrix.diagonal())).min()) >= 0
    assert torch.equal(matrix, matrix.triu())  # nothing is ever taken back


def test_insertions_that_lead_to_the_same_state_add_up():
    denoiser = FiniteDistribution({(0, 0, 0): 1.0}, vocab_size=1).denoiser()
    space = reachable(denoiser)
    tokens = [tuple(x) for x in space.states.tokens.tolist()]
    rate = rate_matrix(space, denoiser, FlexMDMInterpolant(), 0.5)
    # Two of three tokens are there: one is missing, in one of three gaps with probability 1/3; the hazard is 2.
    assert float(rate[tokens.index((1, 1)), tokens.index((1, 1, 1))]) == pytest.approx(2.0)
    assert float(rate[tokens.index((0, 1)), tokens.index((0, 1, 1))]) == pytest.approx(2.0 * 2 / 3)
    assert float(rate[tokens.index((0, 1)), tokens.index((1, 0, 1))]) == pytest.approx(2.0 / 3)


# The law at the end ---------------------------------------------------------------------------------------------------


@cases
def test_the_chain_of_the_oracle_ends_in_the_distribution(prompt, interpolant):
    denoiser = SOURCE.denoiser()
    space = reachable(denoiser, prompt)
    law = solve(space, denoiser, interpolant)
    error = float((law - clean_law(space, SOURCE, prompt)).abs().max())
    print(f"largest error {error:.1e}")
    assert error <= 1e-5
    assert float(law.sum()) == pytest.approx(1.0, abs=1e-8)


def test_an_mdm_ends_in_the_law_given_the_length():
    denoiser = SOURCE.denoiser()
    space = reachable(denoiser, Prompt.masks(5))
    law = solve(space, denoiser, FlexMDMInterpolant())
    words = {tuple(x): float(p) for x, p in zip(space.states.tokens.tolist(), law, strict=True) if p > 1e-12}
    assert words == pytest.approx({(A, B, C, A, B): 2 / 3, (C, A, B, B, A): 1 / 3})


def test_a_hand_made_chain_has_the_law_of_its_integral():
    """g = (1 - alpha) c in an empty state, nothing after it: P(no insertion) = exp(-c), whatever the schedules."""
    space = reachable(OneToken(1.0))
    for scale in (0.3, 2.0):
        for interpolant in SCHEDULES.values():
            law = solve(space, OneToken(scale), interpolant)
            assert float(law[0]) == pytest.approx(math.exp(-scale), abs=1e-6)
            assert float(law[-1]) == pytest.approx(1 - math.exp(-scale), abs=1e-6)


class OneToken:
    """Inserts at most one token, with g = scale (1 - alpha) while there is none."""

    vocab_size, mask_id = 1, 1

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, canvas, alpha):
        prediction = FiniteDistribution({(0,): 1.0}, vocab_size=1).predict(canvas, alpha)
        g = prediction.insertions
        rest = (1 - alpha)[g.rows]
        return type(prediction)(prediction.log_probs, g.with_values(self.scale * rest * g.values))


def test_the_law_does_not_change_with_a_finer_integration(monkeypatch):
    """Not only for the oracle: f and g at a wrong clock give another law, which must not depend on the grid."""
    denoiser, interpolant = Squared(SOURCE.denoiser()), SCHEDULES["cosine-linear"]
    space = reachable(denoiser)
    coarse = solve(space, denoiser, interpolant)
    monkeypatch.setattr("flexmdm.rates._CELLS", 48)
    fine = solve(space, denoiser, interpolant)
    exact = clean_law(space, SOURCE, Prompt.empty())
    assert float((coarse - exact).abs().max()) > 1e-3
    assert float((coarse - fine).abs().max()) < 1e-8


class Squared:
    """The oracle with its clock run wrongly: alpha^2 in place of alpha."""

    vocab_size, mask_id = 3, 3

    def __init__(self, denoiser):
        self.denoiser = denoiser

    def __call__(self, canvas, alpha):
        return self.denoiser(canvas, alpha**2)


# The state space ------------------------------------------------------------------------------------------------------


def test_only_the_empty_word_gives_one_state():
    denoiser = FiniteDistribution({(): 1.0}, vocab_size=1).denoiser()
    space = reachable(denoiser)
    assert len(space.states) == 1
    assert solve(space, denoiser, FlexMDMInterpolant()).tolist() == [1.0]


def test_max_length_bounds_an_endless_source_and_too_many_states_are_an_error():
    denoiser = HiddenMarkovSource([1.0], [[0.5]], [0.5], [0], vocab_size=1).denoiser()
    space = reachable(denoiser, max_length=3)
    assert space.states.tokens.max_length == 3
    assert len(space.states) == 1 + 2 + 4 + 8
    with pytest.raises(ValueError, match="max_length"):
        reachable(denoiser, most_states=100)


def test_given_tokens_stay_given_and_closed_gaps_stay_closed():
    space = reachable(SOURCE.denoiser(), PROMPTS["fixed-present-closed"])
    states = space.states
    assert torch.equal(states.given.count(states.given.values), torch.full((len(states),), 2))
    closed = ~states.open_gaps.values
    assert torch.equal(states.open_gaps.count(closed), torch.ones(len(states), dtype=torch.int64))
