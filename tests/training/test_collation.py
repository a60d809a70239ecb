"""A batch is a function of its sample numbers and the seed."""

from dataclasses import fields

import pytest
import torch

from flexmdm.canvas import Template
from flexmdm.denoiser import Prediction
from flexmdm.interpolants import FlexMDMInterpolant
from flexmdm.objective import Loss, flexmdm_loss
from flexmdm.schedules import CosineSchedule
from flexmdm.sequences import Ragged
from flexmdm.training.collation import Collator

MASK = 50
SIZE = 23


class Words:
    """Sequence i is i, i + 1, ... of length 3 + i % 4; whether its first token is fixed belongs to the number."""

    def __len__(self):
        return SIZE

    def take(self, index, numbers):
        x1 = Ragged.from_lists([[int(i) + j for j in range(3 + int(i) % 4)] for i in index])
        return x1, Template.fixed(x1, (x1.columns == 0) & (numbers[x1.rows] % 2 == 0))


def collator(**options):
    return Collator(Words(), FlexMDMInterpolant(), MASK, **options)


def flat(batch):
    """Every tensor of a batch."""
    found = {"weight": batch.weight}
    for field in fields(batch.sample):
        value = getattr(batch.sample, field.name)
        if isinstance(value, Ragged):
            found[field.name], found[field.name + " lengths"] = value.values, value.lengths
        elif isinstance(value, torch.Tensor):
            found[field.name] = value
    canvas = batch.sample.canvas
    found |= {"tokens": canvas.tokens.values, "given": canvas.given.values, "open": canvas.open_gaps.values}
    if batch.alignment is not None:
        found["gaps expected"] = batch.alignment.gaps.values
    return found


@pytest.mark.parametrize("marginalise", [True, False])
def test_a_batch_depends_on_its_numbers_and_on_nothing_before(marginalise, same):
    numbers = [17, 18, 19, 20, 21, 22, 23, 24]  # through the end of an epoch
    expected = flat(collator(marginalise=marginalise)(numbers))
    other = collator(marginalise=marginalise)
    for earlier in ([0, 1, 2], [400, 401], [17, 18]):
        other(earlier)
    torch.manual_seed(99)
    assert same(flat(other(numbers)), expected)


def test_other_numbers_or_another_seed_give_another_batch(same):
    expected = flat(collator()([0, 1, 2, 3]))
    assert not same(flat(collator()([4, 5, 6, 7])), expected)
    assert not same(flat(collator(seed=1)([0, 1, 2, 3])), expected)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_every_epoch_sees_every_example_once_and_in_another_order(seed):
    orders = collator(seed=seed).order(torch.arange(4 * SIZE)).view(4, SIZE).tolist()
    assert all(sorted(order) == list(range(SIZE)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4


def test_batches_go_through_an_epoch_like_one_long_batch():
    each = collator()
    cut = torch.cat([each.order(torch.arange(start, start + 7)) for start in range(0, 70, 7)])
    assert torch.equal(cut, collator().order(torch.arange(70)))


def test_an_example_seen_again_has_another_state_and_another_template():
    each = collator()
    first, second = each.order(torch.arange(2 * SIZE)).view(2, SIZE).argsort(1) + torch.tensor([[0], [SIZE]])
    a, b = each(first.tolist()), each(second.tolist())
    assert torch.equal(a.sample.x1.values, b.sample.x1.values)
    assert a.sample.canvas.tokens.tolist() != b.sample.canvas.tokens.tolist()
    assert a.sample.template.roles.tolist() != b.sample.template.roles.tolist()


def test_a_state_belongs_to_its_number_and_not_to_its_place_in_the_batch():
    numbers = torch.tensor([5, 6, 7, 8, 9, 10, 11, 12])
    sample = collator(seed=3)(numbers.tolist()).sample

    def draw(*names):
        return FlexMDMInterpolant().sample(sample.x1, sample.t, sample.template, 3, MASK, *names)

    assert sample.canvas.tokens.tolist() == draw(numbers).canvas.tokens.tolist()
    assert sample.canvas.tokens.tolist() != draw().canvas.tokens.tolist()


def test_every_batch_has_times_of_its_own():
    times = [tuple(collator()(range(start, start + 8)).sample.t.tolist()) for start in range(0, 80, 8)]
    assert len(set(sum(times, ()))) == 80


def test_times_are_spread_evenly_over_a_batch():
    count = 64
    t = collator()(range(count)).sample.t
    u = 1 - (1 - t).sqrt()
    assert (u * count).long().sort().values.tolist() == list(range(count))  # one in each of the equal intervals
    assert (u * count).long().tolist() != list(range(count))  # not in the order of the examples


def test_the_weights_of_the_times_make_a_mean_an_integral():
    batches = [collator()(range(start, start + 64)) for start in range(0, 640, 64)]
    means = torch.stack([(batch.weight * batch.sample.t**2).mean() for batch in batches])
    assert abs(float(means.mean()) - 1 / 3) < 2e-3  # the error of one stratified mean of 64 is about 1e-3


def test_alpha_comes_from_the_schedules():
    interpolant = FlexMDMInterpolant(CosineSchedule(), CosineSchedule())
    batch = Collator(Words(), interpolant, MASK)(range(8))
    assert torch.equal(batch.sample.alpha, CosineSchedule().value(batch.sample.t))


def test_the_network_sees_masks_flags_and_the_clock():
    batch = collator()(range(16))
    inputs, canvas = batch.inputs(mask_id=99), batch.sample.canvas
    assert torch.equal(inputs["tokens"] == 99, canvas.is_mask)
    assert torch.equal(inputs["tokens"][~canvas.is_mask], canvas.tokens.values[~canvas.is_mask])
    assert torch.equal(inputs["lengths"], canvas.lengths) and len(inputs["tokens"]) == batch.num_tokens
    assert torch.equal(inputs["given"], canvas.given.values)
    assert torch.equal(inputs["open_gaps"], canvas.open_gaps.values)
    assert inputs["alpha"].dtype == torch.float32
    assert torch.allclose(inputs["alpha"].double(), batch.sample.alpha)


@pytest.mark.parametrize("marginalise", [True, False])
def test_the_loss_is_that_of_the_objective_times_the_weight_of_its_time(marginalise):
    batch = collator(marginalise=marginalise)(range(12))
    assert (batch.alignment is not None) == marginalise
    canvas = batch.sample.canvas
    logits = torch.randn(len(canvas.masks), 30, generator=torch.Generator().manual_seed(0))
    insertions = canvas.open_gaps.values.float() * 0.7
    loss = batch.loss(logits, insertions, FlexMDMInterpolant())
    prediction = Prediction(logits.log_softmax(1), canvas.open_gaps.with_values(insertions))
    plain = flexmdm_loss(prediction, batch.sample, FlexMDMInterpolant(), batch.alignment)
    weight = batch.weight.float()
    assert torch.allclose(loss.unmasking, plain.unmasking * weight)
    assert torch.allclose(loss.insertion, plain.insertion * weight)
    assert loss.total.shape == (12,)


def test_weights_of_states_approach_their_bound_and_small_ones_stay():
    batch, interpolant = collator()(range(64)), FlexMDMInterpolant()
    ones = Loss(*[batch.weight * interpolant.insertion.hazard(batch.sample.t)] * 2)  # of a term of 1 in every state
    lowered = batch.softened(ones, interpolant, largest=3.0).insertion
    assert float(ones.insertion.max()) > 10 and bool((lowered < 3).all())
    assert torch.allclose(1 / lowered, 1 / ones.insertion + 1 / 3)
    assert torch.allclose(batch.softened(ones, interpolant, largest=1e9).total, ones.total)


def test_marginalised_and_sampled_targets_belong_to_the_same_states(same):
    a, b = flat(collator(marginalise=True)(range(8))), flat(collator(marginalise=False)(range(8)))
    assert a.pop("gaps expected") is not None
    assert same(a, b)
