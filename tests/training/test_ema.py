"""The average of the weights: fast at first, saved with all it needs to go on, put in and taken out again."""

import pytest
import torch
from torch import nn

from flexmdm.training.ema import EMA


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def move(layer, seed):
    generator = torch.Generator().manual_seed(seed)
    for p in layer.parameters():
        p.data.add_(torch.randn(p.shape, generator=generator))


def test_the_average_starts_fast_and_slows_down_to_its_decay(layer):
    average = EMA(layer, decay=0.5)
    expected = layer.weight.detach().clone()
    for n in range(1, 20):
        move(layer, n)
        average.update()
        decay = min(0.5, (1 + n) / (10 + n))  # 2/11, 3/12, ...; 0.5 from the eighth on
        expected = decay * expected + (1 - decay) * layer.weight.detach()
        torch.testing.assert_close(average.average["weight"], expected)


def test_within_applied_the_model_is_the_average_and_afterwards_what_it_was(layer, weights, same):
    average = EMA(layer, decay=0.9)
    move(layer, 1)
    average.update()
    live = weights(layer)
    with average.applied():
        assert same(weights(layer), average.average)
        assert not same(weights(layer), live)
    assert same(weights(layer), live)


def test_an_error_within_applied_still_gives_the_weights_back(layer, weights, same):
    average = EMA(layer, decay=0.9)
    move(layer, 1)
    live = weights(layer)
    with pytest.raises(RuntimeError), average.applied():
        raise RuntimeError
    assert same(weights(layer), live)


def test_apply_puts_the_average_in_for_good_and_the_average_stays_apart(layer, weights, same):
    average = EMA(layer, decay=0.9)
    move(layer, 1)
    average.update()
    average.apply()
    kept = {name: value.clone() for name, value in average.average.items()}
    assert same(weights(layer), kept)
    move(layer, 2)
    assert same(average.average, kept)


def test_a_loaded_average_goes_on_as_if_nothing_had_happened(layer, tmp_path, same):
    average = EMA(layer, decay=0.99)
    for n in range(3):
        move(layer, n)
        average.update()
    average.save(tmp_path)
    other = EMA(layer, decay=0.99)
    other.load(tmp_path)
    assert same(other.average, average.average)
    move(layer, 9)
    average.update()
    other.update()  # its speed depends on how many updates there were before
    assert same(other.average, average.average)


def test_frozen_weights_are_not_averaged(layer):
    layer.bias.requires_grad_(False)
    assert set(EMA(layer, decay=0.9).average) == {"weight"}
