"""Ranks of answers agree with exact probabilities, and so do the chances of tokens and lengths."""

import math

import pytest
import torch
from scipy.stats import spearmanr

from flexmdm import FiniteDistribution, HiddenMarkovSource, Prediction, Prompt, generate, likelihood
from flexmdm.canvas import Role, Template
from flexmdm.generation.lengths import length_laws
from flexmdm.generation.ranking import answer_likelihood, confidences
from flexmdm.sequences import Ragged
from flexmdm.trajectories import trajectory_nats

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
SOURCE = FiniteDistribution(WORDS, vocab_size=4)


class Wrong:
    """A denoiser that is not exact: rates are too high, and every token has some chance."""

    def __init__(self, denoiser):
        self.denoiser, self.vocab_size, self.mask_id = denoiser, denoiser.vocab_size, denoiser.mask_id

    def __call__(self, canvas, alpha):
        exact = self.denoiser(canvas, alpha)
        chances = 0.8 * exact.log_probs.exp() + 0.2 / self.vocab_size
        wider = exact.insertions.values * 1.3
        return Prediction(chances.log(), exact.insertions.with_values(wider))


def chain(seed=0, states=6):
    rng = torch.Generator().manual_seed(seed)
    moves = torch.softmax(torch.randn(states, states + 1, generator=rng) * 1.2, 1).double()
    moves = moves / moves.sum(1, keepdim=True)
    first = torch.full((states,), 1 / states).double()
    return HiddenMarkovSource(first, moves[:, :states], moves[:, states], list(range(states)), vocab_size=states), moves


def given_of(words):
    return [[True, *[False] * (len(word) - 2), True] for word in words]


def measured(words, denoiser=None, **options):
    denoiser = denoiser or SOURCE.denoiser()
    return answer_likelihood(denoiser, [PROMPT] * len(words), words, given_of(words), **options)


def test_one_trajectory_gives_the_probability_of_a_sequence():
    """Any one, if the denoiser is exact: only the quadrature is not. Also with a template."""
    x1 = Ragged.from_lists(list(WORDS))
    nats = trajectory_nats(SOURCE.denoiser(), x1, num=3, nodes=8)
    expected = torch.tensor([-math.log(chance) for chance in WORDS.values()], dtype=torch.float64)
    torch.testing.assert_close(nats, expected[:, None].expand(-1, 3), atol=2e-3, rtol=0)
    x1 = Ragged.from_lists(list(INSIDE))
    roles = x1.with_values(torch.tensor([r for w in INSIDE for r in [Role.FIXED, *[0] * (len(w) - 2), Role.FIXED]]))
    template = Template(roles, Ragged.from_lists([[False, True, False]] * len(INSIDE), dtype=torch.bool))
    nats = trajectory_nats(SOURCE.denoiser(), x1, template, num=2, nodes=8, first=5)
    expected = torch.tensor([-math.log(c / sum(INSIDE.values())) for c in INSIDE.values()], dtype=torch.float64)
    torch.testing.assert_close(nats, expected[:, None].expand(-1, 2), atol=2e-3, rtol=0)


def test_the_mean_over_trajectories_is_the_integral_of_the_likelihood():
    """Compare both for a wrong denoiser: 3,000 trajectories for each of 8 words, four standard errors, and 0.005 for
    the quadratures."""
    x1 = Ragged.from_lists(list(WORDS))
    each = trajectory_nats(Wrong(SOURCE.denoiser()), x1, num=3000, nodes=4)
    error = each.std(1) / math.sqrt(each.shape[1])
    expected = likelihood(Wrong(SOURCE.denoiser()), x1, exact=True, num_times=256).nats
    assert bool((error > 0).all()) and bool(((each.mean(1) - expected).abs() <= 4 * error + 0.005).all())


def test_masks_of_a_prompt_are_part_of_the_answer():
    """A prompt with a mask between fixed tokens says the length: 0 ? 2 is 0 1 2 or 0 3 2."""
    prompt = Prompt((0, None, 2), (False,) * 4)
    out = generate(SOURCE.denoiser(), 8, prompts=[prompt])
    nats = answer_likelihood(SOURCE.denoiser(), [prompt] * 8, out.sequences, out.given).nats
    expected = [-math.log(WORDS[tuple(word)] / 0.35) for word in out.sequences]
    torch.testing.assert_close(nats, torch.tensor(expected, dtype=torch.float64))


def test_answers_share_their_random_numbers():
    words = [(0, 1, 2), (0, 1, 2), (0, 3, 2)]
    nats = measured(words, Wrong(SOURCE.denoiser()), num=4)
    assert nats.nats[0] == nats.nats[1] != nats.nats[2]
    assert nats.standard_error[0] == nats.standard_error[1] > 0


@pytest.mark.parametrize("seed", range(3))
def test_ranks_agree_with_exact_probabilities(seed):
    """By one trajectory for each of more than a hundred answers of a chain, up to 12 tokens long: Spearman 0.999."""
    source, moves = chain(seed)
    prompt = Prompt.infill([[0], [1]])
    out = generate(source.denoiser(), 300, prompts=[prompt], seed=1, max_length=14)
    words = sorted(set(map(tuple, out.sequences)))
    exact = [sum(math.log(moves[a, b]) for a, b in zip(word, word[1:], strict=False)) for word in words]
    found = answer_likelihood(source.denoiser(), [prompt] * len(words), words, given_of(words), seed=seed)
    assert len(words) > 100 and spearmanr(-found.nats, exact).statistic >= 0.999


def test_long_answers_are_measured_at_some_times():
    """As the likelihood is, with the same times for all; short ones beside them along trajectories."""
    word, short = (0, *[1] * 40, 2), (0, 3, 2)
    denoiser = FiniteDistribution({word: 0.4, short: 0.6}, vocab_size=4).denoiser()
    found = measured([word, short, word], denoiser, num=2)
    assert found.nats[0] == found.nats[2] > 0 and found.standard_error[0] > 0.1 > found.standard_error[1]
    assert float(found.nats[1]) < float(found.nats[0])


def test_the_confidence_of_a_token_is_its_probability_given_all_others():
    words = [(0, 1, 2), (0, 1, 1, 2), (0, 2), (0, 3, 1, 2)]
    found = confidences(SOURCE.denoiser(), [PROMPT] * 4, words, given_of(words))
    assert found == [pytest.approx(one) for one in ([30 / 35], [2 / 3, 1.0], [], [1 / 3, 1.0])]


def distance(law, exact):
    sizes = range(max(len(law), max(exact) + 1))
    return sum(abs((law[n] if n < len(law) else 0.0) - exact.get(n, 0.0)) for n in sizes) / 2


LAWS = [
    {0: 1.0},
    {0: 0.2, 1: 0.3, 2: 0.5},
    {2: 0.5, 9: 0.5},
    {10: 1.0},
    {0: 0.1, 1: 0.2, 3: 0.3, 20: 0.2, 21: 0.2},
]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_law_of_lengths_is_the_exact_one(law):
    """Total variation of at most 0.025, by 16 clocks for each number."""
    denoiser = FiniteDistribution({(0, *[1] * n, 2): chance for n, chance in law.items()}, vocab_size=3).denoiser()
    (found,) = length_laws(denoiser, [PROMPT])
    assert sum(found) == pytest.approx(1) and distance(found, law) < 0.025


def test_the_law_of_lengths_of_a_chain_is_that_of_its_matrix():
    source, moves = chain()
    after, chances = torch.eye(6, dtype=torch.float64)[0], []
    for _ in range(200):
        after = after @ moves[:, :6]
        chances.append(float(after[1]))
    exact = {n: chance / sum(chances) for n, chance in enumerate(chances)}
    both = length_laws(source.denoiser(), [Prompt.infill([[0], [1]]), Prompt.infill([[2], [0]])])
    assert distance(both[0], exact) < 0.025 and both[1] != both[0]


def test_the_law_of_lengths_keeps_to_limits():
    denoiser = FiniteDistribution({(0, *[1] * n, 2): 0.1 for n in range(10)}, vocab_size=3).denoiser()
    (most,) = length_laws(denoiser, [Prompt.infill([[0], [2]], maximum=3)])
    (room,) = length_laws(denoiser, [PROMPT], max_length=6)
    assert len(most) == 4 and len(room) == 5 and sum(most) == pytest.approx(1)
    with pytest.raises(ValueError, match="one open gap"):
        length_laws(denoiser, [Prompt.infill([[0], [2], []])])
