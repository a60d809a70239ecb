import random

import pytest

from flexmdm.evaluation.spans import edit_distance, edit_similarity, span_differences, span_scores


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
    exact, similarity = span_scores(["ab", "cd", "ef", ""], ["ab", "cx", "", ""])
    assert exact.value == 0.5 and 0.1 < exact.low < 0.2 < 0.8 < exact.high < 0.9
    assert similarity.value == (1 + 0.5 + 0 + 1) / 4 and similarity.low < similarity.value < similarity.high
    assert span_scores([[1, 2]], [(1, 2)]).exact.value == 1


def test_the_interval_of_what_never_comes_back_is_no_point():
    exact, similarity = span_scores(["ab"] * 50, ["xyz"] * 50)
    assert (similarity.value, similarity.low) == (0, 0) and similarity == exact and 0.05 < similarity.high < 0.1
    assert span_scores(["ab"] * 50, ["ab"] * 50).similarity.low > 0.9


def test_a_paired_interval_is_narrower_than_the_two_alone():
    """1,000 spans of which both models find the same half; the second also misses every 20th."""
    truth = [f"span {number}" for number in range(1000)]
    first = [text if number % 2 else "no" for number, text in enumerate(truth)]
    second = ["no" if number % 20 == 1 else text for number, text in enumerate(first)]
    difference = span_differences(truth, first, second)
    assert difference.exact.value == pytest.approx(0.05)
    alone = span_scores(truth, first).exact
    width = difference.exact.high - difference.exact.low
    assert 0.02 < width < 0.035 < alone.high - alone.low
    assert 0 < difference.similarity.low < difference.similarity.value < 0.05
    assert (
        0 < span_differences(truth, first, first).exact.high < 0.005
    )  # never seen to differ, and not known to be equal


@pytest.mark.parametrize(("truth", "fillings"), [(["a"], []), ([], [])])
def test_a_span_without_a_filling_is_an_error(truth, fillings):
    with pytest.raises(ValueError, match=f"{len(truth)} spans, 0 fillings"):
        span_scores(truth, fillings)
