from collections import Counter

import pytest
import torch

from flexmdm import Canvas, FiniteDistribution, Prompt, Ragged, generate
from flexmdm.generation import POLICIES
from flexmdm.generation.policies import policy_named
from flexmdm.randomness import StepRandomness

MASK = 4
RNG = StepRandomness(seed=0, sequences=torch.arange(8), step=0)


def logs(*rows):
    return torch.tensor(rows, dtype=torch.float64).log()


def scores(name, *rows):
    """What a policy says of one sequence of masks."""
    canvas = Canvas(Ragged.from_lists([[MASK] * len(rows)]), MASK)
    return policy_named(name)(logs(*rows), canvas, RNG)


def ranking(name, rows):
    """The names of the rows, the first to reveal first."""
    order = scores(name, *rows.values()).argsort(descending=True)
    return "".join(list(rows)[i] for i in order.tolist())


ROWS = {
    "w": (0.62, 0.14, 0.12, 0.12),
    "x": (0.50, 0.50, 0.00, 0.00),
    "y": (0.45, 0.20, 0.20, 0.15),
    "z": (0.00, 0.40, 0.00, 0.60),
}


@pytest.mark.parametrize(("name", "order"), [("top_prob", "wzxy"), ("margin", "wyzx"), ("entropy", "zxwy")])
def test_each_confidence_has_its_own_ranking(name, order):
    assert ranking(name, ROWS) == order


def test_confidences_are_what_they_are_called():
    assert scores("top_prob", *ROWS.values()).exp().tolist() == pytest.approx([0.62, 0.5, 0.45, 0.6])
    assert scores("margin", *ROWS.values()).tolist() == pytest.approx([0.48, 0.0, 0.25, 0.2])
    by_hand = [torch.distributions.Categorical(torch.tensor(row)).entropy().item() for row in ROWS.values()]
    assert (-scores("entropy", *ROWS.values())).tolist() == pytest.approx(by_hand, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "sure", "unsure"),
    [
        ("top_prob", (0.0, 0.49, 0.0, 0.51), (0.13, 0.21, 0.16, 0.50)),
        ("margin", (0.13, 0.56, 0.16, 0.15), (0.0, 0.0, 0.69, 0.31)),
        ("entropy", (0.0, 0.49, 0.0, 0.51), (0.11, 0.08, 0.08, 0.73)),
    ],
)
def test_confidence_is_taken_from_f_and_not_from_a_softmax_of_a_softmax(name, sure, unsure):
    score = scores(name, sure, unsure)
    assert score[0] > score[1]
    twice = [torch.tensor(row).softmax(0).tolist() for row in (sure, unsure)]
    assert scores(name, *twice)[0] < scores(name, *twice)[1]  # so that mistake would show


def test_a_sure_token_is_the_highest_score_and_impossible_tokens_make_no_nan():
    rows = ((0.0, 1.0, 0.0), (0.25, 0.25, 0.5), (0.99, 0.01, 0.0))
    for name in ("top_prob", "margin", "entropy"):
        score = scores(name, *rows)
        assert not bool(score.isnan().any())
        assert score.argsort(descending=True).tolist() == [0, 2, 1]


@pytest.mark.parametrize("name", POLICIES)
def test_a_vocabulary_of_one_token_and_a_canvas_without_masks_are_fine(name):
    assert scores(name, (1.0,), (1.0,)).shape == (2,)
    clean = Canvas(Ragged.from_lists([[0, 1], []]), MASK)
    assert policy_named(name)(torch.zeros(0, 3), clean, RNG).shape == (0,)


def test_left_to_right_looks_at_places_only():
    canvas = Canvas(Ragged.from_lists([[0, MASK, 1, MASK, MASK], [MASK, MASK, 2]]), MASK)
    for seed in range(3):
        f = torch.rand(5, 3, generator=torch.Generator().manual_seed(seed)).log_softmax(1)
        score = policy_named("left_to_right")(f, canvas, RNG)
        assert bool(score[0] > score[1] > score[2]) and bool(score[3] > score[4])


def test_a_random_order_looks_at_nothing_and_is_the_same_for_the_same_step():
    canvas = Canvas(Ragged.from_lists([[MASK] * 4]), MASK)
    sure, unsure = logs((1.0, 0.0), *[(0.5, 0.5)] * 3), logs(*[(0.5, 0.5)] * 4)
    score = policy_named("random")(sure, canvas, RNG)
    assert torch.equal(score, policy_named("random")(unsure, canvas, RNG))
    other = StepRandomness(seed=0, sequences=torch.arange(8), step=1)
    assert not torch.equal(score, policy_named("random")(sure, canvas, other))


def test_every_random_order_is_equally_likely():
    """6,000 sequences of three masks: each of 6 orders comes 1,000 times, standard deviation 29."""
    n = 6000
    canvas = Canvas(Ragged.from_lists([[MASK] * 3] * n), MASK)
    rng = StepRandomness(seed=5, sequences=torch.arange(n), step=2)
    score = policy_named("random")(torch.zeros(3 * n, 1), canvas, rng).view(n, 3)
    orders = Counter(map(tuple, score.argsort(1).tolist()))
    assert len(orders) == 6 and all(abs(count - 1000) < 4.5 * 29 for count in orders.values()), orders


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown confidence 'best'") as error:
        policy_named("best")
    assert all(name in str(error.value) for name in POLICIES)
    assert set(POLICIES) == {"random", "top_prob", "margin", "entropy", "left_to_right"}


@pytest.mark.parametrize("sampler", ["adaptive", "spaced"])
def test_a_function_of_the_users_own_is_a_policy(sampler):
    calls = []

    def right_to_left(log_probs, canvas, rng):
        calls.append(len(log_probs))
        return canvas.tokens.columns[canvas.masks].double()

    assert policy_named(right_to_left) is right_to_left
    denoiser = FiniteDistribution({(0, 1, 2): 0.5, (2, 1, 0): 0.5}, vocab_size=3).denoiser()
    out = generate(
        denoiser, prompts=[Prompt.masks(3)] * 20, sampler=sampler, steps=8, confidence=right_to_left, trace=True
    )
    assert calls and all(out.possible)
    if sampler == "adaptive":  # spaced reveals masks whose time has come: the policy decides between neighbours only
        for events in out.trace:
            steps = {event.position: event.step for event in events}
            assert steps[2] <= steps[1] <= steps[0]  # together at best, never out of order
