import pytest
import torch

from flexmdm.evaluation.distances import (
    bigram_law,
    length_law,
    total_variation,
    wasserstein,
    wasserstein_floor,
)
from flexmdm.evaluation.sources import bigram_distribution, length_distribution, nine_words, phased_chain


def mean(law):
    return float((law * torch.arange(len(law))).sum())


def test_the_nine_words_repeat_letters_and_are_not_equally_likely():
    source = nine_words()
    assert len(source.words) == 9 and len(set(source.words)) == 9
    assert any(len(set(word)) < len(word) for word in source.words)
    assert len(set(source.probabilities.tolist())) > 1


def test_a_chain_depends_on_its_seed_and_on_no_other_randomness():
    torch.manual_seed(5)
    first = phased_chain()
    torch.manual_seed(6)
    before = torch.get_rng_state()
    assert torch.equal(phased_chain().transition, first.transition)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(phased_chain(seed=1).transition, first.transition)


@pytest.mark.parametrize(("stay", "length"), [(0.82, 33.3), (0.94, 100.0), (0.98, 300.0), (0.0, 6.0)])
def test_a_chain_has_its_phases_over_one_minus_stay_tokens(stay, length):
    assert mean(length_distribution(phased_chain(stay))) == pytest.approx(length, rel=2e-3)


def test_phases_follow_each_other_and_the_last_one_ends():
    source = phased_chain(stay=0.8, phases=3, tokens=2)
    phase = torch.arange(6) // 2
    to_phase = torch.stack([source.transition[:, phase == p].sum(1) for p in range(3)], 1)  # [S, phase]
    expected = torch.tensor([[0.8, 0.2, 0.0], [0.0, 0.8, 0.2], [0.0, 0.0, 0.8]], dtype=torch.float64)
    torch.testing.assert_close(to_phase, expected[phase])
    torch.testing.assert_close(source.end, torch.tensor([0.0, 0.0, 0.0, 0.0, 0.2, 0.2], dtype=torch.float64))


def test_the_next_token_follows_the_bigrams_of_the_phase_that_is_entered():
    source = phased_chain(stay=0.8, phases=2, tokens=3)
    stayed, moved, second = source.transition[:3, :3], source.transition[:3, 3:], source.transition[3:, 3:]
    torch.testing.assert_close(moved / 0.2, second / 0.8)
    assert not torch.allclose(stayed / 0.8, second / 0.8)


def test_exact_laws_of_a_chain_agree_with_samples():
    """20,000 sequences: the length error stays below three times its floor, bigrams below 0.01 (about 3 floors)."""
    source = phased_chain()
    samples = source.sample(20_000, seed=1)
    lengths = length_distribution(source)
    assert float(lengths.sum()) == pytest.approx(1.0, abs=1e-9)
    assert wasserstein(length_law(samples), lengths) < 3 * wasserstein_floor(lengths, 20_000)
    assert total_variation(bigram_law(samples, 6), bigram_distribution(source)) < 0.01


@pytest.mark.parametrize("wrong", [{"stay": 1.0}, {"stay": -0.1}, {"phases": 0}, {"tokens": 0}, {"concentration": 0.0}])
def test_a_chain_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="got"):
        phased_chain(**wrong)
