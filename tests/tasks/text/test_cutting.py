from collections import Counter

import numpy as np
import pytest

from flexmdm.tasks.text.cutting import MOST_WORDS, cut_words, cuts


def text_of(words):
    return " ".join(f"w{number}" for number in range(words))


@pytest.mark.parametrize("gaps", [1, 2, 3])
def test_gaps_and_pieces_are_the_text_and_half_of_its_words_stay(gaps):
    rng = np.random.default_rng(0)
    for words in [*range(2 * gaps, 30)] * 20:
        cut = cut_words(text_of(words), gaps, rng)
        assert cut.text == text_of(words) and len(cut.pieces) == len(cut.gaps) + 1 == gaps + 1
        sizes = [len(gap.split(" ")) for gap in cut.gaps]
        assert min(sizes) >= 1 and max(sizes) <= MOST_WORDS and sum(sizes) <= words / 2
        assert cut.words_left == words - sum(sizes)
        assert all(piece.startswith(" ") and piece.endswith(" ") and piece.split() for piece in cut.pieces[1:-1])
        assert cut.pieces[0] == "" or cut.pieces[0].endswith(" ")
        assert cut.pieces[-1] == "" or cut.pieces[-1].startswith(" ")
        assert all(gap == gap.strip() for gap in cut.gaps)


def test_sizes_and_places_are_equally_likely():
    """Of 7 words 2 gaps: sizes 1+1, 1+2, 2+1, and for each two of the places. 12,000 cuts, 6 standard deviations."""
    rng = np.random.default_rng(0)
    found = Counter(cut_words(text_of(7), 2, rng) for _ in range(12_000))
    sizes = Counter()
    for cut, count in found.items():
        sizes[tuple(len(gap.split()) for gap in cut.gaps)] += count
    assert set(sizes) == {(1, 1), (1, 2), (2, 1)} and all(abs(n - 4000) < 6 * 52 for n in sizes.values())
    for size, places in (((1, 1), 15), ((1, 2), 10), ((2, 1), 10)):  # 2 of 6 and 2 of 5
        of_size = [count for cut, count in found.items() if tuple(len(g.split()) for g in cut.gaps) == size]
        assert len(of_size) == places
        assert all(abs(count - 4000 / places) < 6 * (4000 / places) ** 0.5 for count in of_size)


def test_texts_get_one_two_and_three_gaps_in_turns_and_short_ones_are_left_out():
    texts = [text_of(words) for words in (8, 3, 8, 5, 8, 1, 2)]
    assert [len(cut.gaps) for cut in cuts(texts, seed=1)] == [1, 2, 3, 1]  # 3 words are too few for 2 gaps, 5 for 3
    assert list(cuts(texts, seed=1)) == list(cuts(texts, seed=1))
    assert list(cuts(["two  spaces side by side"])) == []
