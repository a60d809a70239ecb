"""Long sequences are cut near the middle, at the best delimiter there is, and nothing is lost."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flexmdm.data.splitting import Delimiter, chunk, split_paragraphs

LINE, STOP, WORD, REST = range(4)
KINDS = [
    Delimiter(np.arange(4) == LINE, "after"),
    Delimiter(np.arange(4) == STOP, "after"),
    Delimiter(np.arange(4) == WORD, "before"),
]


def lists(*arguments):
    return [piece.tolist() for piece in chunk(*arguments)]


def slow_chunk(tokens, max_length, preferences):
    """The definition, by recursion and by trying every place."""
    if len(tokens) <= max_length:
        return [tokens] if tokens else []
    for kind in preferences:
        shift = kind.side == "after"
        places = [place for place in range(1, len(tokens)) if kind.tokens[tokens[place - shift]]]
        if places:
            place = min(places, key=lambda place: abs(place - len(tokens) / 2))
            break
    else:
        place = len(tokens) // 2
    return slow_chunk(tokens[:place], max_length, preferences) + slow_chunk(tokens[place:], max_length, preferences)


@given(st.lists(st.integers(0, 3), max_size=80), st.integers(1, 20), st.integers(0, 3))
def test_chunk_does_what_the_paper_says(tokens, max_length, kinds):
    assert lists(tokens, max_length, KINDS[:kinds]) == slow_chunk(tokens, max_length, KINDS[:kinds])


@given(st.lists(st.integers(0, 3), max_size=200), st.integers(1, 20))
def test_no_piece_is_empty_or_too_long_and_nothing_is_lost(tokens, max_length):
    pieces = lists(tokens, max_length, KINDS)
    assert all(1 <= len(piece) <= max_length for piece in pieces)
    assert [token for piece in pieces for token in piece] == tokens


def test_a_better_delimiter_far_off_beats_a_worse_one_in_the_middle():
    assert lists([LINE, REST, REST, STOP, REST, WORD, REST], 6, KINDS) == [[LINE], [REST, REST, STOP, REST, WORD, REST]]


def test_a_delimiter_at_the_end_is_not_inside():
    assert lists([REST, REST, REST, LINE], 3, KINDS) == [[REST, REST], [REST, LINE]]
    assert lists([WORD, REST, REST, REST], 3, KINDS) == [[WORD, REST], [REST, REST]]


def test_a_sequence_that_fits_is_left_alone():
    assert lists([REST, LINE, REST], 3, KINDS) == [[REST, LINE, REST]]
    assert lists([], 3, KINDS) == []


def test_a_very_long_sequence_with_delimiters_on_one_side_only_needs_no_recursion():
    tokens = np.array([LINE] * 5000 + [REST] * 5000)
    pieces = chunk(tokens, 1, KINDS)
    assert len(pieces) == 10_000 and np.array_equal(np.concatenate(pieces), tokens)


def test_paragraphs_lie_between_blank_lines_and_are_stripped():
    assert split_paragraphs("  a\nb \r\n\r\n\tc\n \n\n\n d") == ["a\nb", "c", "d"]
    assert split_paragraphs(" \n\n \n") == []


@given(st.text(alphabet="ab \t\r\n", max_size=60))
def test_paragraphs_have_no_blank_lines_and_lose_only_whitespace(text):
    paragraphs = split_paragraphs(text)
    assert all(line.strip() for paragraph in paragraphs for line in paragraph.split("\n"))
    assert "".join("".join(paragraphs).split()) == "".join(text.split())
