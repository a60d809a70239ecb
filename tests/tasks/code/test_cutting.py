"""Cuts: whole lines or spans, nothing lost, the tokens those of the parts, and their positions without a preference."""

import numpy as np
import pytest
import torch

from flexmdm import Ragged
from flexmdm.data import TextTokenizer
from flexmdm.tasks.code.cutting import Cutter, Cutting
from flexmdm.tasks.code.preparation import encode_lines

FUNCTIONS = [
    "def add(first, second):\n    total = first + second\n\n    return total\n",
    "def é(漢字):\n\n    # 😀😀\n    return '漢字' * 3\n",
    "x\n",
    "@cached\ndef returns(self):\n    returned = self.returns_nothing\n    for item in returned:\n        yield item\n",
]
ONLY = {"line": Cutting(1, 0, 0), "lines": Cutting(0, 1, 0), "span": Cutting(0, 0, 1), "all": Cutting()}


@pytest.fixture(scope="module", params=["bpe", "bytes", "characters"])
def tokenizer(request):
    lines = [line for function in FUNCTIONS for line in function.splitlines(keepends=True)]
    return TextTokenizer.train(request.param, lines * 20)


def tokens_of(tokenizer, text):
    (lines,) = encode_lines(tokenizer, [text])
    return np.concatenate([*lines, np.zeros(0, np.uint32)]).tolist()


def cuts(tokenizer, texts, cutting, longest=1000, seed=0, first=0):
    functions = Ragged.from_lists([tokens_of(tokenizer, text) for text in texts])
    numbers = torch.arange(first, first + len(texts))
    return Cutter(tokenizer)(functions, cutting, longest, seed, numbers)


def draw(tokenizer, texts, cutting, **others):
    """The cuts, and their parts as text."""
    cut = cuts(tokenizer, texts, cutting, **others)
    return cut, [tuple(map(tokenizer.decode, parts)) for parts in cut]


@pytest.mark.parametrize("kind", ONLY)
def test_the_three_parts_are_the_function_again(tokenizer, kind):
    """100 draws of each function."""
    texts = FUNCTIONS * 100
    cut, parts = draw(tokenizer, texts, ONLY[kind])
    assert ["".join(three) for three in parts] == texts
    assert all(middle for _, middle, _ in cut)


def test_whole_lines_are_cut_out(tokenizer):
    for kind, most in (("line", 1), ("lines", 8)):
        for prefix, middle, _ in draw(tokenizer, FUNCTIONS * 50, ONLY[kind])[1]:
            assert prefix == "" or prefix.endswith("\n")
            assert middle.endswith("\n") and 1 <= middle.count("\n") <= most
            assert kind == "lines" or middle.strip()  # never a blank one


def test_the_tokens_before_and_behind_are_those_of_the_text_alone(tokenizer):
    """As somebody who asks with that text would have them. Always for lines; at the end of a span, BPE may now and then
    join what is left with the token before it: here at most 5% of 400."""
    for cutting, share in ((ONLY["line"], 1), (ONLY["lines"], 1), (ONLY["span"], 0.95)):
        cut, parts = draw(tokenizer, FUNCTIONS * 100, cutting)
        same = [
            tokens_of(tokenizer, prefix) == before and tokens_of(tokenizer, suffix) == behind
            for (prefix, _, suffix), (before, _, behind) in zip(parts, cut, strict=True)
        ]
        assert np.mean(same) >= share


def test_spans_begin_and_end_inside_tokens_unless_told_otherwise():
    tokenizer = TextTokenizer.train("bpe", FUNCTIONS * 20)
    whole = {tuple(tokens_of(tokenizer, text)) for text in FUNCTIONS}
    for inside, changed in ((0.0, False), (1.0, True)):
        cut, _ = draw(tokenizer, FUNCTIONS * 20, Cutting(0, 0, 1, inside=inside))
        assert any(tuple(sum(parts, [])) not in whole for parts in cut) == changed
    cut, _ = draw(tokenizer, FUNCTIONS * 20, Cutting(0, 0, 1, inside=1.0), longest=1)  # no room for more tokens
    assert {tuple(sum(parts, [])) for parts in cut} == whole


def test_spans_are_as_long_as_asked_for():
    tokenizer = TextTokenizer.train("bytes")
    cut = cuts(tokenizer, ["x" * 100] * 2000, Cutting(0, 0, 1, most_tokens=8))
    sizes = torch.bincount(torch.tensor([len(middle) for _, middle, _ in cut]), minlength=9)[1:] / 2000
    law = torch.log1p(1 / torch.arange(1, 9.0)) / np.log(9)
    assert float((sizes - law).abs().max()) < 0.05  # standard deviations below 0.011


def test_the_place_has_no_preference_beyond_what_is_given():
    """Functions a b^n c with n = 1 to 6 lines equally likely: where the first and the last line are given, n is
    distributed as the sizes of cuts are, evenly from 2 on. 30,000 draws, of which about 1,700 show that; a share of
    1/5 has a standard deviation of 0.01."""
    tokenizer = TextTokenizer.train("bytes")
    texts = ["a\n" + "b\n" * n + "c\n" for n in range(1, 7)] * 5_000
    cut = cuts(tokenizer, texts, Cutting(0, 1, 0, most_lines=6))
    shown = [len(middle) // 2 for prefix, middle, suffix in cut if len(prefix) == len(suffix) == 2]
    lines = torch.bincount(torch.tensor(shown), minlength=7)[2:].double()
    assert float((lines / lines.sum() - 1 / 5).abs().max()) < 0.05


def test_cuts_belong_to_the_sample_number_alone(tokenizer):
    together = draw(tokenizer, FUNCTIONS * 5, Cutting())[1]
    assert draw(tokenizer, FUNCTIONS[2:], Cutting(), first=6)[1] == together[6:8]
    assert draw(tokenizer, FUNCTIONS * 5, Cutting(), seed=1)[1] != together


def test_bad_weights_are_refused():
    with pytest.raises(ValueError, match="not all 0"):
        Cutting(0, 0, 0)
    with pytest.raises(ValueError, match="at least 2 lines"):
        Cutting(most_lines=1)
