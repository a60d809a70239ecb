import random

import numpy as np
import pytest

from flexmdm.evaluation.spans import Filled, edit_distance, edit_similarity


def filled(truth, fillings, readings=None):
    """Items of one gap, whose length is that of the text."""
    gaps = [[one] for one in truth], [[one] for one in fillings]
    return Filled.compare(*gaps, *([[len(one[0])] for one in side] for side in gaps), readings)


def scores_of(truth, fillings):
    found = filled(truth, fillings).scores()
    return found["exact"], found["similarity"]


def by_table(first, second):
    """The textbook's table, row by row."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(second, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return row[-1]


def test_the_edit_distance_is_that_of_the_table():
    """1,000 pairs of up to 40 letters, also longer than a machine word."""
    rng = random.Random(0)
    for number in range(1000):
        letters = "ab" if number % 2 else "abcdefgh"
        first, second = ("".join(rng.choices(letters, k=rng.randint(0, 40))) for _ in range(2))
        assert edit_distance(first, second) == edit_distance(second, first) == by_table(first, second)
    long = "".join(rng.choices("abc", k=300))
    assert edit_distance(long, long[:100] + "x" + long[101:]) == 1


def test_similarity_is_from_0_to_1():
    assert edit_similarity("abc", "abc") == edit_similarity([], []) == 1
    assert edit_similarity("abc", "xyz") == edit_similarity("", "xyz") == 0
    assert edit_similarity((1, 2, 3, 4), [1, 2, 3]) == 0.75


def test_scores_by_hand():
    exact, similarity = scores_of(["ab", "cd", "ef", ""], ["ab", "cx", "", ""])
    assert exact.value == 0.5 and 0.1 < exact.low < 0.2 < 0.8 < exact.high < 0.9
    assert similarity.value == (1 + 0.5 + 0 + 1) / 4 and similarity.low < similarity.value < similarity.high
    assert scores_of([[1, 2]], [(1, 2)])[0].value == 1


def test_the_interval_of_what_never_comes_back_is_no_point():
    exact, similarity = scores_of(["ab"] * 50, ["xyz"] * 50)
    assert (similarity.value, similarity.low) == (0, 0) and similarity == exact and 0.05 < similarity.high < 0.1
    assert scores_of(["ab"] * 50, ["ab"] * 50)[1].low > 0.9


def test_a_paired_interval_is_narrower_than_the_two_alone():
    """1,000 spans of which both models find the same half; the second also misses every 20th."""
    truth = [f"span {number}" for number in range(1000)]
    first = [text if number % 2 else "no" for number, text in enumerate(truth)]
    second = ["no" if number % 20 == 1 else text for number, text in enumerate(first)]
    one, other = filled(truth, first), filled(truth, second)
    difference = one.minus(other)
    exact, similarity, length = (difference[name] for name in ("exact", "similarity", "length"))
    assert (exact.value, length.value) == pytest.approx((0.05, 0.05))
    alone = one.scores()["exact"]
    for narrow in (exact, length):
        assert 0.02 < narrow.high - narrow.low < 0.035 < alone.high - alone.low
    assert 0 < similarity.low < similarity.value < 0.05
    assert 0 < one.minus(one)["exact"].high < 0.005  # never seen to differ, and not known to be equal


@pytest.mark.parametrize(("truth", "fillings"), [(["a"], []), ([], [])])
def test_a_span_without_a_filling_is_an_error(truth, fillings):
    with pytest.raises(ValueError, match=f"{len(truth)} items, 0 fillings"):
        scores_of(truth, fillings)


def test_an_item_of_several_gaps_is_exact_if_all_are_and_its_gaps_count_for_the_length():
    truth, fillings = [["ab", "cd", "e"], ["f"]], [["ab", "cx", "e"], ["f"]]
    found = Filled.compare(truth, fillings, [[2, 2, 1], [1]], [[2, 3, 2], [1]])
    assert found.exact.tolist() == [0, 1] and found.similarity.tolist() == pytest.approx([2.5 / 3, 1])
    assert found.lengths.tolist() == [[1, 3], [1, 1]] and found.scores()["length"].value == 0.5
    with pytest.raises(ValueError, match="zip"):
        Filled.compare(truth, [["ab", "cd"], ["f"]], [[2, 2, 1], [1]], [[2, 2, 1], [1]])


def test_the_perplexity_of_filled_texts_is_over_that_of_the_originals_on_the_same_items():
    """200 texts of 1 to 20 tokens; the first model adds 0.1 nats per token to each, the second 0.3 and noise."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 21, 200).astype(float)
    original = np.stack([tokens * rng.gamma(4, 1, 200), tokens], axis=1)
    near = original + np.stack([0.1 * tokens, 0 * tokens], axis=1)
    far = original + np.stack([0.3 * tokens + rng.normal(0, 1, 200), 0 * tokens], axis=1)
    truth = ["a"] * 200
    one, other = (filled(truth, truth, np.hstack([texts, original])) for texts in (near, far))
    ratio, difference = one.scores()["perplexity"], one.minus(other)["perplexity"]
    assert ratio.value == pytest.approx(np.exp(0.1)) and ratio.high - ratio.low < 1e-9  # the originals cancel
    assert difference.value == pytest.approx(np.exp(0.1) - np.exp(0.3), abs=0.05)
    assert difference.low < difference.value < difference.high < 0
    assert "perplexity" not in filled(truth, truth).scores() and "perplexity" not in one.minus(filled(truth, truth))
