import math

import pytest
import torch

from flexmdm import FiniteDistribution
from flexmdm.data import TokenStore
from flexmdm.tasks.likelihoods import bits
from flexmdm.tasks.text import likelihoods

WORDS = {(0,): 0.5, (1, 0): 0.25, (0, 1, 1): 0.25}


class Exact:
    """Stands for a model: the exact posteriors of a distribution."""

    def __init__(self, words, vocab_size):
        self.source = FiniteDistribution(words, vocab_size)

    def denoiser(self):
        return self.source.denoiser()


class Task:
    """Stands for a task: two held-out words of 5 and 10 characters."""

    model, vocab_size, pad, width = "flexmdm", 2, 2, 3

    class validation:
        store = TokenStore(
            torch.tensor([0, 1, 0]).numpy(), torch.tensor([0, 1, 3]).numpy(), torch.tensor([5, 10]).numpy()
        )


class PaddedTask(Task):
    model, vocab_size = "mdm", 3


@pytest.mark.parametrize("largest", [1, 2**26])
@pytest.mark.parametrize("model", ["flexmdm", "mdm"])
def test_bits_are_those_of_an_ideal_coder(model, largest, monkeypatch):
    """-log2 of 1/2 and 1/4: 1.5 bits per word, 3 bits for 3 tokens and for 15 characters, for both models. 2,000 times
    per word; the error of a word was 0.02 bits."""
    monkeypatch.setattr(likelihoods, "_LARGEST", largest)  # one at a time, or all at once
    if model == "flexmdm":
        exact, task = Exact(WORDS, 2), Task()
    else:
        exact, task = Exact({(*word, *[2] * (3 - len(word))): p for word, p in WORDS.items()}, 3), PaddedTask()
    score = bits(exact, task, torch.tensor([0, 1]), num_times=2000)
    assert score.per_sequence.value == pytest.approx(1.5, abs=0.1)
    assert score.per_token.value == pytest.approx(1.0, abs=0.07)
    assert score.per_character.value == pytest.approx(0.2, abs=0.015)
    assert score.sequences == 2 and not math.isnan(score.per_sequence.standard_error)
