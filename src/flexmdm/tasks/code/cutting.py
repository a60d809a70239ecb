"""Where a function is cut in three: prefix, middle, suffix.

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

from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class Cutting:
    """How middles are drawn; the first three are relative weights.

    Attributes:
        line: one whole line that is not blank.
        lines: 2 to ``most_lines`` whole lines.
        span: 1 to ``most_tokens`` tokens, n of them with a chance of log((n + 1) / n); a few more where that would cut
            the bytes of one character apart.
        most_lines, most_tokens: see there.
        inside: the chance that an end of a span lies inside a token (which one of several characters must be).
    """

    line: float = 0.5
    lines: float = 0.25
    span: float = 0.25
    most_lines: int = 8
    most_tokens: int = 64
    inside: float = 0.5

    def __post_init__(self) -> None:
        if min(self.weights) < 0 or sum(self.weights) <= 0:
            raise ValueError(f"the weights line, lines and span are not negative, and not all 0; got {self.weights}")
        if self.most_lines < 2 or self.most_tokens < 1 or not 0 <= self.inside <= 1:
            raise ValueError(f"a cut takes at least 2 lines or 1 token, and inside is a chance; got {self}")

    @property
    def weights(self) -> tuple[float, float, float]:
        return self.line, self.lines, self.span


@dataclass(frozen=True, eq=False)
class Cut:
    """Functions in three parts.

    Attributes:
        functions: their tokens.
        begin, end: ``[B]``, the middle is from one to (not including) the other.
    """

    functions: Ragged
    begin: Tensor
    end: Tensor

    @property
    def sizes(self) -> Tensor:
        """Return ``[B]``, the number of tokens of each middle."""
        return self.end - self.begin

    def parts(self) -> list[tuple[list[int], list[int], list[int]]]:
        """Return prefix, middle and suffix of each function."""
        cuts = zip(self.functions.tolist(), self.begin.tolist(), self.end.tolist(), strict=True)
        return [(tokens[:begin], tokens[begin:end], tokens[end:]) for tokens, begin, end in cuts]


class Cutter:
    """Draws cuts of functions that were tokenised line by line.

    >>> tokenizer = TextTokenizer.train("bytes")
    >>> function = Ragged.from_lists(tokenizer.encode(["def f(x):\\n  x += 1\\n\\n  return x\\n"]))
    >>> cut = Cutter(tokenizer)(function, Cutting(line=1, lines=0, span=0), 99, seed=0, numbers=torch.tensor([7]))
    >>> [tokenizer.decode(part) for part in cut.parts()[0]]
    ['def f(x):\\n', '  x += 1\\n', '\\n  return x\\n']
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self.newline, self.blank = torch.from_numpy(tokenizer.newline), torch.from_numpy(tokenizer.blank)
        self.starts_character = torch.from_numpy(tokenizer.character_start)
        self.halves = Halves.of(tokenizer)

    def __call__(self, functions: Ragged, cutting: Cutting, longest: int, seed: int, numbers: Tensor) -> Cut:
        """Draw a cut of each function.

        Args:
            functions: not empty, and no token reaches across the end of a line.
            cutting: what to draw.
            longest: where halves of tokens would make a function longer than this, no token is cut.
            seed, numbers: randomness belongs to the sample numbers ``[B]``.
        """
        shares = torch.tensor(cutting.weights, dtype=torch.float64).cumsum(0)
        kind = torch.searchsorted(shares / shares[-1], uniform(seed, _KIND, numbers), right=True).clamp(max=_SPAN)
        size, position = uniform(seed, _SIZE, numbers), uniform(seed, _PLACE, numbers)  # [B], in (0, 1)
        lines = _Lines(functions, self.newline, self.blank)
        several = 2 + (size * (cutting.most_lines - 1)).long()
        tokens = ((size * np.log(cutting.most_tokens + 1)).exp().long()).clamp(1, cutting.most_tokens)
        too_small = (kind == _LINES) & (several > lines.number) | (kind == _SPAN) & (tokens > functions.lengths)
        kind = torch.where(too_small, _LINE, kind)
        one = lines.shown(position)
        first = (position * (lines.number - several + 1).clamp(min=1)).long()
        begin, end = lines.begin(one), lines.begin(one + 1)
        begin = torch.where(kind == _LINES, lines.begin(first), begin)
        end = torch.where(kind == _LINES, lines.begin(first + several), end)
        span = (position * (functions.lengths - tokens + 1).clamp(min=1)).long()
        span, span_end = self._whole_characters(functions, span, (span + tokens).minimum(functions.lengths))
        cut = Cut(functions, torch.where(kind == _SPAN, span, begin), torch.where(kind == _SPAN, span_end, end))
        inside = (kind == _SPAN)[:, None] & (uniform(seed, _INSIDE, numbers[:, None], torch.arange(2)) < cutting.inside)
        kept = 1 + (uniform(seed, _KEPT, numbers[:, None], torch.arange(2)) * _MOST_KEPT).long()
        return self.halves.cut_inside(cut, torch.where(inside, kept, 0), longest)

    def _whole_characters(self, functions: Ragged, begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
        """Move both ends outwards to where a character begins, so that bytes of one character stay together."""
        index = torch.arange(len(functions.values))
        starts = self.starts_character[functions.values] | (functions.columns == 0)
        at_or_before = torch.where(starts, index, 0).cummax(0).values
        at_or_after = torch.where(starts, index, len(index)).flip(0).cummin(0).values.flip(0)
        at_or_after = torch.cat([at_or_after, torch.tensor([len(index)])])
        offset, stop = functions.offsets[:-1], functions.offsets[1:]
        return at_or_before[offset + begin] - offset, at_or_after[offset + end].minimum(stop) - offset


class _Lines:
    """Where the lines of functions begin."""

    def __init__(self, functions: Ragged, newline: Tensor, blank: Tensor) -> None:
        self.functions = functions
        starts = torch.ones_like(functions.values, dtype=torch.bool)
        starts[1:] = newline[functions.values[:-1]] | (functions.columns[1:] == 0)
        self.number = functions.count(starts)  # [B]
        self.first = self.number.cumsum(0) - self.number  # [B], each function's first line among all
        self.starts = functions.columns[starts]  # [L]
        line = starts.long().cumsum(0) - 1
        inked = torch.zeros_like(self.starts).index_add(0, line, (~blank[functions.values]).long()) > 0
        self.inked = Ragged(self.number.new_zeros(len(inked)), self.number).count(inked)  # [B]
        self.inked_lines = inked.nonzero().squeeze(1)
        self.inked_first = self.inked.cumsum(0) - self.inked

    def begin(self, line: Tensor) -> Tensor:
        """Return ``[B]``, the position at which the given line of each function begins, or ends behind the last."""
        index = (self.first + line).clamp(max=len(self.starts) - 1)
        return torch.where(line < self.number, self.starts[index], self.functions.lengths)

    def shown(self, u: Tensor) -> Tensor:
        """Return ``[B]``, one of the lines that are not blank, evenly by ``u`` in (0, 1)."""
        return self.inked_lines[self.inked_first + (u * self.inked).long()] - self.first


@dataclass(frozen=True, eq=False)
class Halves:
    """Every token of several characters cut in two at each of its characters, both halves tokenised on their own.

    Attributes:
        characters: ``[V]``, of each token; 1 if it cannot be cut.
        first: ``[V]``, which row of ``tokens`` is its cut behind the first character; the others follow.
        tokens: for each cut the tokens of both halves.
        left: for each cut the tokens of the left half.
    """

    characters: Tensor
    first: Tensor
    tokens: Ragged
    left: Tensor

    @classmethod
    def of(cls, tokenizer: TextTokenizer) -> Halves:
        texts = [tokenizer.decode([token]) for token in range(tokenizer.size)]
        if tokenizer.kind in ("characters", "bytes"):
            texts = [""] * tokenizer.size  # none has several
        characters = torch.tensor([1 if "\ufffd" in text else max(len(text), 1) for text in texts])
        cuts = [
            (text[:k], text[k:]) for text, most in zip(texts, characters.tolist(), strict=True) for k in range(1, most)
        ]
        left = tokenizer.encode_arrays([one for one, _ in cuts])
        right = tokenizer.encode_arrays([other for _, other in cuts])
        both = [part for pair in zip(left, right, strict=True) for part in pair]
        values = torch.from_numpy(np.concatenate([*both, np.zeros(0, np.uint32)]).astype(np.int64))
        left_sizes, right_sizes = (torch.tensor([len(part) for part in parts]).long() for parts in (left, right))
        rows = characters - 1
        return cls(characters, rows.cumsum(0) - rows, Ragged(values, left_sizes + right_sizes), left_sizes)

    def cut_inside(self, cut: Cut, kept: Tensor, longest: int) -> Cut:
        """Move the ends of middles into tokens.

        Args:
            cut: between tokens.
            kept: ``[B, 2]``, how many characters of the first token of the middle go to the prefix, and how many of the
                token behind it stay in the suffix; no token is cut where it is 0, or where the token has no more.
            longest: the most tokens of a function.
        """
        functions, size = cut.functions, cut.functions.lengths
        ends = torch.stack([cut.begin, cut.end], 1)  # [B, 2]
        there = (kept > 0) & (ends < size[:, None])
        flat = (functions.offsets[:-1, None] + ends).clamp(max=len(functions.values) - 1)
        token = functions.values[flat]
        there &= kept < self.characters[token]
        offset = torch.stack([kept[:, 0], self.characters[token[:, 1]] - kept[:, 1]], 1)
        row = torch.where(there, self.first[token] + offset - 1, 0)
        if not bool(there.any()):
            return cut
        more = torch.where(there, self.tokens.lengths[row] - 1, 0)  # [B, 2]
        there &= (size + more.sum(1) <= longest)[:, None]
        more, row = torch.where(there, more, 0), row[there]
        counts = torch.ones_like(functions.values)
        counts[flat[there]] = self.tokens.lengths[row]
        is_cut = torch.zeros_like(functions.values, dtype=torch.bool)
        is_cut[flat[there]] = True
        values = functions.values.repeat_interleave(counts)
        values[is_cut.repeat_interleave(counts)] = self.tokens[row].values  # begin < end, so rows are in order
        left = torch.zeros_like(more)
        left[there] = self.left[row]
        begin, end = cut.begin + left[:, 0], cut.end + more[:, 0] + left[:, 1]
        return replace(cut, functions=Ragged(values, size + more.sum(1)), begin=begin, end=end)
