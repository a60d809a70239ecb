"""A network as a denoiser, and the contract that `predict` holds every denoiser to."""

import copy

import pytest
import torch

from flexmdm import Canvas, CosineSchedule, Denoiser, FlexMDMInterpolant, Prediction, Prompt, Ragged, generate
from flexmdm.backbones.model import NetworkDenoiser
from flexmdm.denoiser import predict

V = 7
STATES = [[1, V, 2, V], [], [V], [3, 4]]
CLOCKS = torch.tensor([0.1, 0.4, 0.7, 0.9])


def canvas_of(states=STATES, mask_id=V, **flags):
    return Canvas(Ragged.from_lists([[mask_id if v == V else v for v in s] for s in states]), mask_id, **flags)


@pytest.fixture(scope="module")
def denoiser(network):
    return NetworkDenoiser(network, vocab_size=V, mask_id=V)


# A network as a denoiser ----------------------------------------------------------------------------------------------


def test_a_network_keeps_the_contract(denoiser):
    assert isinstance(denoiser, Denoiser)
    prediction, possible = predict(denoiser, canvas_of(), CLOCKS)
    assert prediction.log_probs.shape == (3, V) and prediction.insertions.lengths.tolist() == [5, 1, 2, 3]
    assert bool(possible.all())
    torch.testing.assert_close(prediction.log_probs.exp().sum(1), torch.ones(3))
    assert bool((prediction.insertions.values > 0).all())


def test_what_it_says_of_a_state_does_not_depend_on_the_others(denoiser):
    together = denoiser(canvas_of(), CLOCKS)
    masks = Ragged(together.log_probs, canvas_of().num_masks)
    for b in range(len(STATES)):
        alone = denoiser(canvas_of()[b], CLOCKS[b : b + 1])
        torch.testing.assert_close(alone.log_probs, masks[b].values, rtol=0, atol=1e-5)
        torch.testing.assert_close(alone.insertions.values, together.insertions[b].values, rtol=0, atol=1e-5)


@pytest.mark.parametrize("states", [[], [[]], [[1, 2]], [[V, V], [V]]], ids=str)
def test_empty_batches_and_states_with_nothing_or_all_to_reveal(denoiser, states):
    canvas = canvas_of(states)
    prediction, _ = predict(denoiser, canvas, torch.full((len(states),), 0.5))
    assert prediction.log_probs.shape == (sum(s.count(V) for s in states), V)
    assert bool(prediction.log_probs.isfinite().all())


def test_a_closed_gap_receives_nothing(denoiser):
    gaps = [[True, False, True, False, True], [False], [True, False], [False, False, True]]
    assert [[g > 0 for g in s] for s in denoiser(canvas_of(open_gaps=gaps), CLOCKS).insertions.tolist()] == gaps


@pytest.mark.parametrize("name", [-1, 12])
def test_a_canvas_may_write_its_masks_as_it_likes(denoiser, network, name):
    usual = denoiser(canvas_of(), CLOCKS)
    other = NetworkDenoiser(network, V, name)(canvas_of(mask_id=name), CLOCKS)
    assert torch.equal(usual.log_probs, other.log_probs)
    assert torch.equal(usual.insertions.values, other.insertions.values)


@pytest.mark.parametrize("sampler", ["tau", "adaptive", "spaced"])
def test_a_mask_id_inside_the_vocabulary_is_never_predicted(network, sampler):
    """LLaDA's mask is token 126336 of 126464."""
    inside = NetworkDenoiser(network, V, mask_id=4)
    log_probs = inside(canvas_of([[1, V, 2, V], [V]], mask_id=4), torch.tensor([0.2, 0.5])).log_probs
    assert bool((log_probs[:, 4] == -torch.inf).all())
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(3))
    prompts = [Prompt.masks(6), Prompt.infill([[], [1], []])]
    out = generate(inside, 6, prompts=prompts, sampler=sampler, steps=6, max_length=10)
    assert {v for s in out.sequences for v in s} <= {0, 1, 2, 3, 5, 6}
    assert [len(s) for s in out.sequences[:6]] == [6] * 6


def test_it_evaluates_without_dropout_and_without_a_graph(network):
    trained = copy.deepcopy(network).train()
    denoiser = NetworkDenoiser(trained, V, V)
    first, second = denoiser(canvas_of(), CLOCKS), denoiser(canvas_of(), CLOCKS)
    assert not trained.training and not first.log_probs.requires_grad and not first.insertions.values.requires_grad
    assert torch.equal(first.log_probs, second.log_probs)


def test_a_clock_in_float64_is_as_good(denoiser):
    """Samplers keep it so."""
    single, double = denoiser(canvas_of(), CLOCKS), denoiser(canvas_of(), CLOCKS.double())
    assert torch.equal(single.log_probs, double.log_probs)
    assert torch.equal(single.insertions.values, double.insertions.values)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_ends_before_the_softmax(network, dtype):
    """Sums over a vocabulary and rates of rare insertions need more."""
    prediction = NetworkDenoiser(copy.deepcopy(network).to(dtype), V, V)(canvas_of(), CLOCKS)
    assert prediction.log_probs.dtype == prediction.insertions.values.dtype == torch.float32
    torch.testing.assert_close(prediction.log_probs.exp().sum(1), torch.ones(3), rtol=0, atol=1e-6)


def test_generation_uses_the_schedules_of_the_network(network):
    cosine = FlexMDMInterpolant(CosineSchedule(), CosineSchedule())
    stored, linear = (NetworkDenoiser(network, V, V, interpolant) for interpolant in (cosine, None))
    options = {"sampler": "tau", "steps": 8, "max_length": 12, "seed": 2, "num_samples": 8}
    assert generate(stored, **options).sequences == generate(linear, interpolant=cosine, **options).sequences
    assert generate(stored, **options).sequences != generate(linear, **options).sequences


def test_a_network_generates_the_same_alone_and_in_a_batch(denoiser):
    """Sums in another order may flip a draw in float32, one in a hundred thousand or so: nearly all must agree."""
    options = {"num_samples": 16, "prompts": [Prompt.infill([[], [1], []])], "steps": 6, "max_length": 12, "seed": 5}
    together = generate(denoiser, **options).sequences
    alone = generate(denoiser, batch_size=1, **options).sequences
    assert len(set(map(tuple, together))) > 8
    assert sum(a == b for a, b in zip(together, alone, strict=True)) >= 15


# Predictions and their contract ---------------------------------------------------------------------------------------


def test_part_of_a_prediction_is_the_prediction_of_that_part(denoiser):
    canvas, which = canvas_of(), torch.tensor([False, False, True, True])
    part, direct = denoiser(canvas, CLOCKS).of(canvas, which), denoiser(canvas[which], CLOCKS[which])
    torch.testing.assert_close(part.log_probs, direct.log_probs, rtol=0, atol=1e-5)
    torch.testing.assert_close(part.insertions.values, direct.insertions.values, rtol=0, atol=1e-5)
    assert torch.equal(part.insertions.lengths, direct.insertions.lengths)


class Answers:
    """A denoiser that always says the same."""

    vocab_size, mask_id = 3, 3

    def __init__(self, log_probs, insertions):
        self.prediction = Prediction(log_probs, Ragged.from_lists(insertions, dtype=torch.float32))

    def __call__(self, canvas, alpha):
        return self.prediction


@pytest.mark.parametrize(
    ("rows", "tokens", "insertions", "complaint"),
    [
        (1, 3, [[0.0, 1.0, 0.0]], r"log_probs \(1, 3\) for 2 masks"),
        (2, 4, [[0.0, 1.0, 0.0]], "a vocabulary of 3"),
        (2, 3, [[0.0, 1.0]], r"len \+ 1 gaps"),
        (2, 3, [[0.0, -1.0, 0.0]], "negative, infinite or NaN"),
        (2, 3, [[0.0, float("nan"), 0.0]], "negative, infinite or NaN"),
        (2, 3, [[0.0, float("inf"), 0.0]], "negative, infinite or NaN"),
    ],
)
def test_a_denoiser_that_breaks_the_contract_is_told_how(rows, tokens, insertions, complaint):
    canvas = Canvas(Ragged.from_lists([[3, 3]]), mask_id=3)
    with pytest.raises(ValueError, match=complaint):
        predict(Answers(torch.zeros(rows, tokens).log_softmax(1), insertions), canvas, torch.zeros(1))
