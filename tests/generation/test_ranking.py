"""Ranks of answers agree with exact probabilities."""

import math

import pytest
import torch

from flexmdm import FiniteDistribution, Prompt, generate
from flexmdm.generation.ranking import answer_likelihood

WORDS = {
    (0, 1, 2): 0.30,
    (0, 1, 1, 2): 0.20,
    (0, 2): 0.15,
    (0, 3, 1, 2): 0.10,
    (0, 1, 3, 1, 2): 0.08,
    (0, 3, 2): 0.05,
    (0, 3, 3, 3, 2): 0.02,
    (1, 2, 3): 0.10,
}
INSIDE = {word: chance for word, chance in WORDS.items() if word[0] == 0}
PROMPT = Prompt.infill([[0], [2]])


def measured(words, **options):
    denoiser = FiniteDistribution(WORDS, vocab_size=4).denoiser()
    given = [[True, *[False] * (len(word) - 2), True] for word in words]
    return answer_likelihood(denoiser, [PROMPT] * len(words), words, given, **options)


def test_the_probability_of_an_answer_is_that_given_its_prompt():
    found = measured(list(INSIDE), exact=True).nats.neg().exp().tolist()
    assert found == pytest.approx([chance / sum(INSIDE.values()) for chance in INSIDE.values()], rel=1e-3)


def test_ranks_by_sampled_states_are_those_of_the_exact_probabilities():
    """1,024 times for each of 7 answers, three seeds: the right order but for answers whose odds are below 1.4."""
    words, chances = list(INSIDE), list(INSIDE.values())
    for seed in range(3):
        nats = measured(words, num_times=1024, seed=seed).nats.tolist()
        for i, one in enumerate(chances):
            for j, other in enumerate(chances):
                if one >= 1.4 * other:
                    assert nats[i] < nats[j], (words[i], words[j], seed)


def test_answers_share_their_random_numbers():
    words = [(0, 1, 2), (0, 1, 2), (0, 3, 2)]
    nats = measured(words, num_times=4).nats
    assert nats[0] == nats[1] != nats[2]


def test_masks_of_a_prompt_are_part_of_the_answer():
    """A prompt of three masks, one of them between fixed tokens, says the length: 0 ? 2 is 0 1 2 or 0 3 2."""
    denoiser = FiniteDistribution(WORDS, vocab_size=4).denoiser()
    prompt = Prompt((0, None, 2), (False,) * 4)
    out = generate(denoiser, 8, prompts=[prompt])
    nats = answer_likelihood(denoiser, [prompt] * 8, out.sequences, out.given, exact=True).nats
    expected = [-math.log(WORDS[tuple(word)] / 0.35) for word in out.sequences]
    torch.testing.assert_close(nats, torch.tensor(expected, dtype=torch.float64), rtol=1e-4, atol=1e-4)
