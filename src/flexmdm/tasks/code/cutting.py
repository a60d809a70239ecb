"""Choose where a function is cut in three: prefix, middle, suffix.

What is learned is p(function) P(cut | function), and whatever P depends on beyond prefix and suffix tilts the middles
that are found. So the size of a middle (in lines, or in tokens) is drawn from a law q without looking at the function,
and its position evenly among all those where a middle of that size fits: these are as many as prefix and suffix have
lines (or tokens), and one more. What is learned of the middle is then p(middle | prefix, suffix) q(size): the ordinary
conditional law with a known preference for some sizes, which is even for 2 to 8 lines and falls as 1/n for spans of n
tokens. A function that is too small for the size that was drawn loses a single line instead, which makes single lines a
little likelier in short contexts. Single lines are never blank, as in HumanEval-infilling.

Lines are tokenised one by one, so a cut between lines is a cut between tokens. A span may also begin or end inside a
token. Then the halves of that token are tokenised on their own, as they are when somebody asks with such a text (but
for the rare half that BPE would then join with the token before it). The characters of it that stay in the prefix or in
the suffix are as many as drawn, again without looking.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np
import torch
from torch import Tensor

from flexmdm.data import TextTokenizer
from flexmdm.randomness import stream, uniform
from flexmdm.sequences import Ragged

_KIND, _SIZE, _PLACE = stream("kind of cut"), stream("size of cut"), stream("place of cut")
_INSIDE, _KEPT = stream("cut inside a token"), stream("characters of a token")
_LINE, _LINES, _SPAN = range(3)
_MOST_KEPT = 8  # characters of a token that was cut
Parts = tuple[list[int], list[int], list[int]]  # the tokens of prefix, middle and suffix


@dataclass(frozen=True)
class Cutting:
    """Say how middles are drawn; the first three are relative weights.

    A span has n tokens with a chance of log((n + 1) / n), and a few more where that would cut the bytes of one
    character apart.
    """

    line: float = 0.5  # one whole line that is not blank
    lines: float = 0.25  # 2 to most_lines whole lines
    span: float = 0.25  # 1 to most_tokens tokens
    most_lines: int = 8
    most_tokens: int = 64
    inside: float = 0.5  # chance that an end of a span lies inside a token (which one of several characters must be)

    def __post_init__(self) -> None:
        weights = astuple(self)[:3]
        if min(weights) < 0 or sum(weights) <= 0:
            raise ValueError(f"the weights line, lines and span are not negative, and not all 0; got {weights}")
        if self.most_lines < 2 or self.most_tokens < 1 or not 0 <= self.inside <= 1:
            raise ValueError(f"a cut takes at least 2 lines or 1 token, and inside is a chance; got {self}")


@dataclass(frozen=True)
class Cutter:
    """Draws cuts of functions that were tokenised line by line.

    >>> tokenizer = TextTokenizer.train("bytes")
    >>> function = Ragged.from_lists(tokenizer.encode(["def f(x):\\n  x += 1\\n\\n  return x\\n"]))
    >>> cuts = Cutter(tokenizer)(function, Cutting(line=1, lines=0, span=0), 99, seed=0, numbers=torch.tensor([7]))
    >>> [tokenizer.decode(part) for part in cuts[0]]
    ['def f(x):\\n', '  x += 1\\n', '\\n  return x\\n']
    """

    tokenizer: TextTokenizer

    def __call__(self, functions: Ragged, cutting: Cutting, longest: int, seed: int, numbers: Tensor) -> list[Parts]:
        """Draw a cut of each function; none is empty, and no token reaches across the end of a line.

        Where halves of tokens would make a function longer than ``longest``, no token is cut. The randomness belongs to
        the sample numbers ``[B]``.
        """
        shares = torch.tensor(astuple(cutting)[:3], dtype=torch.float64).cumsum(0)
        kind = torch.searchsorted(shares / shares[-1], uniform(seed, _KIND, numbers), right=True).clamp(max=_SPAN)
        size, position = uniform(seed, _SIZE, numbers), uniform(seed, _PLACE, numbers)  # [B], in (0, 1)
        lines = 2 + (size * (cutting.most_lines - 1)).long()
        tokens = (size * np.log(cutting.most_tokens + 1)).exp().long().clamp(1, cutting.most_tokens)
        inside = uniform(seed, _INSIDE, numbers[:, None], torch.arange(2)) < cutting.inside
        kept = 1 + (uniform(seed, _KEPT, numbers[:, None], torch.arange(2)) * _MOST_KEPT).long()
        drawn = (kind, torch.where(kind == _SPAN, tokens, lines), position, torch.where(inside, kept, 0))
        rows = zip(functions.tolist(), *(one.tolist() for one in drawn), strict=True)
        return [self._cut(*row, longest) for row in rows]

    def _cut(self, function: list[int], kind: int, size: int, position: float, kept: list[int], longest: int) -> Parts:
        """Cut one function, ``position`` in (0, 1) of the way through the positions that there are."""
        if kind == _SPAN and size <= len(function):
            begin = int(position * (len(function) - size + 1))
            return self._inside(_parts(function, *self._whole_characters(function, begin, begin + size)), kept, longest)
        ids = np.array(function)
        begins = [0, *(np.flatnonzero(self.tokenizer.newline[ids[:-1]]) + 1).tolist()]  # of the lines
        ends = [*begins[1:], len(function)]
        if kind == _LINES and size <= len(begins):
            first = int(position * (len(begins) - size + 1))
            return _parts(function, begins[first], ends[first + size - 1])
        blank = self.tokenizer.blank[ids]
        shown = [(begin, end) for begin, end in zip(begins, ends, strict=True) if not blank[begin:end].all()]
        return _parts(function, *shown[int(position * len(shown))])

    def _whole_characters(self, function: list[int], begin: int, end: int) -> tuple[int, int]:
        """Move both ends outwards to where a character begins, so that bytes of one character stay together."""
        starts = self.tokenizer.character_start
        while begin > 0 and not starts[function[begin]]:
            begin -= 1
        while end < len(function) and not starts[function[end]]:
            end += 1
        return begin, end

    def _inside(self, parts: Parts, kept: list[int], longest: int) -> Parts:
        """Move the ends of a middle into tokens, unless the function then has more than ``longest``.

        Of the first token of the middle ``kept[0]`` characters go to the prefix, and of the token behind it ``kept[1]``
        stay in the suffix; no token is cut where that is 0, or where the token has no more.
        """
        prefix, middle, suffix = parts
        text = self._text(middle[0])
        if 0 < kept[0] < len(text):
            left, right = self.tokenizer.encode([text[: kept[0]], text[kept[0] :]])
            prefix, middle = prefix + left, right + middle[1:]
        text = self._text(suffix[0]) if suffix else ""
        if 0 < kept[1] < len(text):
            left, right = self.tokenizer.encode([text[: -kept[1]], text[-kept[1] :]])
            middle, suffix = middle + left, right + suffix[1:]
        return (prefix, middle, suffix) if len(prefix) + len(middle) + len(suffix) <= longest else parts

    def _text(self, token: int) -> str:
        """Return the text of a token, or nothing where it is a part of a character."""
        text = self.tokenizer.decode([token])
        return "" if "\ufffd" in text else text


def _parts(function: list[int], begin: int, end: int) -> Parts:
    return function[:begin], function[begin:end], function[end:]
