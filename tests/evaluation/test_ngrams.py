import itertools

import numpy as np
import pytest

from flexmdm import Ragged
from flexmdm.evaluation.ngrams import NgramFiller


def fitted(sequences, vocab_size=8, order=3):
    return NgramFiller.fit(Ragged.from_lists(sequences), vocab_size, order)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_probabilities_add_up_whether_the_context_was_seen_or_not(order):
    rng = np.random.default_rng(0)
    filler = fitted([rng.integers(0, 7, rng.integers(0, 9)).tolist() for _ in range(50)], order=order)
    for context in ([], [1], [1, 2, 3], [7, 7], [0, 7, 1]):
        law = filler.probabilities(context)
        assert law.shape == (9,) and law.sum() == pytest.approx(1) and law.min() > 0


def test_probabilities_are_those_of_witten_and_bell():
    """Behind 1 came 2 twice and 3 once: (count + 2 P(w)) / (3 + 2), and P(w) likewise from the single tokens."""
    filler = fitted([[1, 2], [1, 2], [1, 3]], vocab_size=4, order=2)
    counts = np.array([0, 3, 2, 1, 4])  # outside stands before, between and behind the three
    single = (counts + 4 / 5) / (10 + 4)
    expected = (np.array([0, 0, 2, 1, 0]) + 2 * single) / 5
    assert np.allclose(filler.probabilities([1]), expected)


def test_a_gap_is_filled_with_the_length_that_fits_what_follows():
    """Of a b^n c with one n the filler sees three: only the suffix tells how many b belong in the gap."""
    filler = fitted([[1, 2, 3, 4, 5]] * 5 + [[1, 2, 6, 7]] * 4, order=3)
    assert filler.fill([1, 2], [5]) == [3, 4]
    assert filler.fill([1, 2], [4, 5]) == [3]
    assert filler.fill([1, 2], [3, 4], minimum=0) == []
    assert filler.fill([], [2, 3]) == [1]
    assert filler.fill([1, 2], []) in ([3, 4, 5], [6, 7])
    assert filler.fill([1, 2], [7]) != [6] and filler.fill([1, 2], [7], beam=3) == [6]  # greedily 3 comes first


def test_lengths_are_within_their_limits():
    filler = fitted([[1, 1, 1, 1, 1, 1]] * 3, order=2)
    for minimum, maximum in ((0, 0), (2, 2), (1, 4)):
        assert minimum <= len(filler.fill([1], [1], minimum, maximum)) <= maximum


def log_prob(filler, tokens):
    """Of a whole sequence, its end included."""
    return sum(np.log(filler.probabilities(tokens[:n])[token]) for n, token in enumerate([*tokens, filler.base - 1]))


@pytest.mark.parametrize("pieces", [[[0], [1]], [[0], [1, 2]], [[], [2], []], [[1], [0, 1, 2, 0], [2]]])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_with_a_wide_beam_the_middles_are_the_likeliest_of_all(pieces, order):
    """Of 3 tokens, up to 3 in each of one or two gaps: all 39 or 1,521 fillings are tried."""
    rng = np.random.default_rng(1)
    filler = fitted([rng.integers(0, 3, rng.integers(3, 9)).tolist() for _ in range(60)], vocab_size=3, order=order)
    middles = [one for length in range(1, 4) for one in itertools.product(range(3), repeat=length)]

    def whole(found):
        return [*pieces[0], *itertools.chain(*((*m, *p) for m, p in zip(found, pieces[1:], strict=True)))]

    every = itertools.product(middles, repeat=len(pieces) - 1)
    best = max(log_prob(filler, whole(found)) for found in every)
    found = filler.fill_gaps(pieces, maximum=3, beam=64)
    assert log_prob(filler, whole(found)) == pytest.approx(best)


def test_a_gap_looks_at_what_its_neighbour_holds():
    """Behind 1 2 comes 3 and behind 6 2 comes 7: the second gap depends on the first, across the piece between."""
    filler = fitted([[0, 1, 2, 3], [0, 6, 2, 7]] * 5, order=3)
    assert filler.fill_gaps([[0], [2], []], maximum=1, beam=4) in ([[1], [3]], [[6], [7]])
    assert filler.fill_gaps([[0], [2, 7]], maximum=1, beam=4) == [[6]]


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="take shorter ones"):
        fitted([[1]], vocab_size=60_000, order=4)
    with pytest.raises(ValueError, match="0 <= minimum <= maximum"):
        fitted([[1]]).fill([], [], 3, 2)
