"""Sources whose posteriors are known exactly: the ground truth for samplers, losses and likelihoods.

Both sources weigh a clean sequence x* by p(x*) (1 - alpha)^missing #{embeddings of the canvas in x*}, the posterior of
the interpolant for any schedules when the template is drawn independently of x1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from flexmdm.alignment import embeddings
from flexmdm.canvas import Canvas, gaps_of
from flexmdm.denoiser import ImpossibleCanvas, Prediction
from flexmdm.randomness import stream, uniform
from flexmdm.sequences import Ragged

_TOTAL_TOLERANCE = 1e-6
_LARGEST_TABLE = 20_000_000  # entries of an intermediate tensor, before the work is cut into chunks
_SMALLEST_REST = 1e-12  # stands for 1 - alpha = 0, the limit of the fewest missing tokens
_LEAST_WEIGHT = 1e-290  # below it the arithmetic loses digits: what weighs less counts as impossible


def _check_canvas(canvas: Canvas, alpha: Tensor | float, vocab_size: int) -> Tensor:
    alpha = torch.as_tensor(alpha, dtype=torch.float64, device=canvas.device).expand(len(canvas))
    if not bool(((alpha >= 0) & (alpha <= 1)).all()):
        raise ValueError(f"alpha must lie in [0, 1], got {alpha.tolist()[:8]}")
    _check_tokens(canvas.tokens.values[~canvas.is_mask], vocab_size)
    return alpha


def _check_tokens(tokens: Tensor, vocab_size: int) -> None:
    outside = (tokens < 0) | (tokens >= vocab_size)
    if bool(outside.any()):
        raise ValueError(f"token {int(tokens[outside][0])} is outside the vocabulary 0..{vocab_size - 1}")


def _mask_id(mask_id: int | None, emitted: Tensor, vocab_size: int) -> int:
    if mask_id is not None and bool((emitted == mask_id).any()):
        raise ValueError(f"the mask id {mask_id} is a token of the clean sequences: take one that never occurs")
    return vocab_size if mask_id is None else mask_id


def _require_possible(prediction: Prediction, possible: Tensor) -> Prediction:
    if bool(possible.all()):
        return prediction
    index = int((~possible).nonzero()[0])
    raise ImpossibleCanvas(
        f"sequence {index} of the canvas cannot occur under this source: no clean sequence contains it "
        f"({int((~possible).sum())} of {len(possible)} are impossible)",
        prediction,
        possible,
    )


def _log_probs(mass: Tensor, mask_id: int) -> Tensor:
    """Return the logarithms of the normalised ``mass`` ``[M, V]``, and -inf at the mask's own id."""
    mass = mass / mass.sum(1, keepdim=True).clamp(min=1e-300)
    if 0 <= mask_id < mass.shape[1]:
        mass[:, mask_id] = 0.0
    return mass.log()


@dataclass(frozen=True)
class OracleDenoiser:
    """An exact `Denoiser`: ``source.predict`` with the vocabulary of the source. A state that cannot occur raises."""

    source: FiniteDistribution | HiddenMarkovSource
    mask_id: int

    @property
    def vocab_size(self) -> int:
        return self.source.vocab_size

    def __call__(self, canvas: Canvas, alpha: Tensor | float) -> Prediction:
        return self.source.predict(canvas, alpha)


class FiniteDistribution:
    """A distribution over finitely many sequences, with exact posteriors for any canvas.

    >>> source = FiniteDistribution({(0,): 0.25, (0, 1): 0.5, (): 0.25}, vocab_size=3)
    >>> canvas = Canvas(Ragged.from_lists([[0, 3], []]), mask_id=3)
    >>> p = source.denoiser()(canvas, torch.tensor([0.3, 0.0]))
    >>> p.log_probs.exp()
    tensor([[0., 1., 0.]], dtype=torch.float64)
    >>> p.insertions.tolist()
    [[0.0, 0.0, 0.0], [1.25]]
    >>> source.log_prob(Ragged.from_lists([[0, 1], [1]])).exp()
    tensor([0.5000, 0.0000], dtype=torch.float64)
    """

    def __init__(self, probabilities: Mapping[Sequence[int], float], vocab_size: int) -> None:
        words = [tuple(int(v) for v in word) for word in probabilities]
        weights = torch.tensor([float(p) for p in probabilities.values()], dtype=torch.float64)
        if not words:
            raise ValueError("a distribution needs at least one sequence")
        if not bool((weights >= 0).all()):  # also false for NaN
            raise ValueError(f"probabilities must be non-negative numbers, got {weights.tolist()}")
        if abs(float(weights.sum()) - 1) > _TOTAL_TOLERANCE:
            raise ValueError(f"probabilities must sum to 1, got {float(weights.sum())}")
        self.words = [w for w, p in zip(words, weights.tolist(), strict=True) if p > 0]
        self.probabilities = weights[weights > 0] / weights.sum()
        self.vocab_size = vocab_size
        self.sequences = Ragged.from_lists(self.words)
        _check_tokens(self.sequences.values, vocab_size)

    def sample(self, num_samples: int, seed: int = 0) -> Ragged:
        """Draw independent clean sequences."""
        u = uniform(seed, stream("source"), torch.arange(num_samples))
        index = torch.searchsorted(self.probabilities.cumsum(0), u).clamp(max=len(self.words) - 1)
        return self.sequences[index]

    def log_prob(self, x1: Ragged) -> Tensor:
        """Return ``[B]``, log p(x1), -inf outside the support."""
        table = {w: math.log(p) for w, p in zip(self.words, self.probabilities.tolist(), strict=True)}
        return torch.tensor([table.get(tuple(w), -math.inf) for w in x1.tolist()], dtype=torch.float64)

    def length_distribution(self) -> Tensor:
        """Return ``[longest + 1]``, P(len(x1) = n)."""
        return torch.zeros(self.sequences.max_length + 1, dtype=torch.float64).index_add(
            0, self.sequences.lengths, self.probabilities
        )

    def denoiser(self, mask_id: int | None = None) -> OracleDenoiser:
        """Return the exact denoiser; by default the mask is the first id behind the vocabulary."""
        return OracleDenoiser(self, _mask_id(mask_id, self.sequences.values, self.vocab_size))

    def posterior(self, canvas: Canvas, alpha: Tensor | float) -> Tensor:
        """Return q_alpha(x* | x), ``[B, S]``: the law of the clean sequence given the state, or zeros if impossible."""
        alpha = _check_canvas(canvas, alpha, self.vocab_size)
        states, which = canvas.distinct()
        log_count, _ = self._embed(states)
        return self._weights(log_count[which], canvas.lengths, alpha)

    def predict(self, canvas: Canvas, alpha: Tensor | float) -> Prediction:
        """Return f and g for every state; equal states share one alignment."""
        alpha = _check_canvas(canvas, alpha, self.vocab_size)
        states, which = canvas.distinct()
        log_count, share = self._embed(states)  # [U, S], [U, S, n, m]
        weights = self._weights(log_count[which], canvas.lengths, alpha)  # [B, S]
        per_word = self._gaps(share, states.lengths)  # [U, S, n + 1]
        gaps = canvas.open_gaps
        missing = (weights[gaps.rows] * per_word[which[gaps.rows], :, gaps.columns]).sum(1)
        missing = torch.where(gaps.values, missing, 0.0)
        rows = canvas.tokens.rows
        mass = self._token_mass(share, weights, which[rows], canvas)
        possible = weights.sum(1) > 0
        prediction = Prediction(_log_probs(mass, canvas.mask_id), gaps_of(canvas.tokens, missing))
        return _require_possible(prediction, possible)

    def _embed(self, states: Canvas) -> tuple[Tensor, Tensor]:
        """Return log counts ``[U, S]`` and position shares ``[U, S, n, m]`` of every distinct state in every word."""
        words = self.sequences.to(states.device)
        clean, tokens = words.to_padded(0), states.tokens.to_padded(states.mask_id)
        closed = ~states.open_gaps.to_padded(True)
        (number, n), (size, m) = tokens.shape, clean.shape
        chunk = max(1, _LARGEST_TABLE // max(1, size * n * m))
        counts, shares = [], []
        for start in range(0, number, chunk):
            part = tokens[start : start + chunk]
            match = (part[:, None, :, None] == states.mask_id) | (part[:, None, :, None] == clean[None, :, None])
            log_count, share = embeddings(
                match.reshape(len(part) * size, n, m),
                closed[start : start + chunk].repeat_interleave(size, 0),
                states.lengths[start : start + chunk].repeat_interleave(size),
                words.lengths.repeat(len(part)),
            )
            counts.append(log_count.view(len(part), size))
            shares.append(share.view(len(part), size, n, m))
        if not counts:
            empty = torch.zeros(0, size, n, m, dtype=torch.float64, device=states.device)
            return empty.sum((2, 3)), empty
        return torch.cat(counts), torch.cat(shares)

    def _gaps(self, share: Tensor, lengths: Tensor) -> Tensor:
        """Return E[gap_i | state, word], ``[U, S, n + 1]``.

        Differences of expectations are taken word by word, before the words are weighed: near alpha = 1 the words with
        more missing tokens weigh next to nothing, and their gaps must not drown in the rounding of the others.
        """
        number, size, n, m = share.shape
        position = torch.arange(m, dtype=torch.float64, device=share.device)
        kept = torch.nn.functional.pad(share @ position, (1, 1))  # s[-1], s[0], ..., s[n]
        kept[:, :, 0] = -1.0
        end = self.sequences.lengths.to(share.device).double()[None, :, None]
        behind = torch.arange(n + 2, device=share.device) > lengths[:, None, None]
        gaps = torch.where(behind, end, kept).diff(dim=2) - 1
        return torch.where(gaps < 1e-11, 0.0, gaps)  # what should cancel, cancels

    def _weights(self, log_count: Tensor, lengths: Tensor, alpha: Tensor) -> Tensor:
        """Return p(x*) (1 - alpha)^missing #{s}, normalised over x*, ``[B, S]``."""
        missing = (self.sequences.lengths.to(lengths.device) - lengths[:, None]).double()
        can = log_count > -math.inf
        fewest = torch.where(can, missing, math.inf).amin(1, keepdim=True)
        relative = torch.where(can, missing - fewest, 0.0)  # so that alpha = 1 is the limit: the fewest missing
        log_weight = self.probabilities.to(alpha.device).log() + log_count + torch.xlogy(relative, (1 - alpha)[:, None])
        return torch.where(can.any(1, keepdim=True), log_weight.softmax(1), 0.0)

    def _token_mass(self, share: Tensor, weights: Tensor, state_of_entry: Tensor, canvas: Canvas) -> Tensor:
        """Return sum_x* q(x*) sum_j P(s_i = j) 1[x*_j = v] for every mask, ``[M, V]``."""
        masks, rows, columns = canvas.masks, canvas.tokens.rows, canvas.tokens.columns
        clean = self.sequences.to(canvas.device).to_padded(0).reshape(1, -1)  # [1, S * m]
        mass = torch.zeros(len(masks), self.vocab_size, dtype=torch.float64, device=canvas.device)
        chunk = max(1, _LARGEST_TABLE // max(1, clean.shape[1]))
        for start in range(0, len(masks), chunk):
            some = masks[start : start + chunk]
            placed = share[state_of_entry[some], :, columns[some]] * weights[rows[some], :, None]  # [K, S, m]
            mass[start : start + chunk].scatter_add_(1, clean.expand(len(some), -1), placed.flatten(1))
        return mass


class HiddenMarkovSource:
    """Sequences emitted by a Markov chain that ends; each hidden state emits one token. Exact at any length.

    With q = 1 - alpha, B = qA and G = (I - B)^-1, everything that may be missing between two visible tokens sums to
    A G (A if the gap is closed), before the first to pi G, after the last to G e, and the expected number missing has
    the numerators A B G^2, pi B G^2 and B G^2 e. The empty canvas weighs p_empty + q pi G e, numerator q pi G^2 e.
    A gap in which k tokens must be missing weighs q^k: below 1e-290 (k > 24 at alpha = 1, which stands for 1 - 1e-12;
    k > 96 at alpha = 0.999) such a state counts as impossible.

    Args:
        initial: ``[S]``, pi.
        transition: ``[S, S]``, A; each row and its ``end`` sum to 1.
        end: ``[S]``, e, the probability that the sequence ends behind a state.
        token_of_state: ``[S]`` int, what a state emits.
        vocab_size: number of tokens.
        empty: P(empty sequence); ``initial`` then describes the others.

    >>> source = HiddenMarkovSource([1.0], [[0.5]], [0.5], [0], vocab_size=1)  # a geometric number of zeros
    >>> source.log_prob(Ragged.from_lists([[0, 0, 0]])).exp()
    tensor([0.1250], dtype=torch.float64)
    >>> source.denoiser()(Canvas(Ragged.from_lists([[]]), mask_id=1), 0.0).insertions.tolist()
    [[2.0]]
    """

    def __init__(
        self,
        initial: Tensor | Sequence,
        transition: Tensor | Sequence,
        end: Tensor | Sequence,
        token_of_state: Tensor | Sequence,
        vocab_size: int,
        empty: float = 0.0,
    ) -> None:
        self.initial = torch.as_tensor(initial, dtype=torch.float64)
        self.transition = torch.as_tensor(transition, dtype=torch.float64)
        self.end = torch.as_tensor(end, dtype=torch.float64)
        self.token_of_state = torch.as_tensor(token_of_state, dtype=torch.int64)
        self.vocab_size = vocab_size
        self.empty = float(empty)
        states = len(self.initial)
        shapes = [tuple(x.shape) for x in (self.initial, self.transition, self.end, self.token_of_state)]
        if shapes != [(states,), (states, states), (states,), (states,)]:
            raise ValueError(f"initial, transition, end, token_of_state must be [S], [S, S], [S], [S], got {shapes}")
        for name in ("initial", "transition", "end"):
            if not bool((getattr(self, name) >= 0).all()):
                raise ValueError(f"{name} must hold non-negative numbers")
        if not 0 <= self.empty < 1:
            raise ValueError(f"empty must lie in [0, 1), got {self.empty}")
        rows = self.transition.sum(1) + self.end
        if abs(float(self.initial.sum()) - 1) > _TOTAL_TOLERANCE or float((rows - 1).abs().max()) > _TOTAL_TOLERANCE:
            raise ValueError(
                f"initial and each row of (transition, end) must sum to 1, got {float(self.initial.sum())} "
                f"and {rows.tolist()}"
            )
        if float(torch.linalg.eigvals(self.transition).abs().max()) > 1 - 1e-9:
            raise ValueError("the chain never ends from some states: every state needs a way to the end")
        _check_tokens(self.token_of_state, vocab_size)

    @cached_property
    def _emission(self) -> Tensor:
        """Return ``[V, S]``, 1 where a state emits the token."""
        return torch.nn.functional.one_hot(self.token_of_state, self.vocab_size).T.double()

    def sample(self, num_samples: int, seed: int = 0) -> Ragged:
        """Draw independent clean sequences."""
        index = torch.arange(num_samples)
        onward = torch.cat([self.transition, self.end[:, None]], 1).cumsum(1)
        state = torch.searchsorted(self.initial.cumsum(0), uniform(seed, stream("source"), index, 0)).clamp(
            max=len(self.initial) - 1
        )
        alive = uniform(seed, stream("source"), index, -1) >= self.empty
        columns = []
        while bool(alive.any()):
            columns.append(torch.where(alive, self.token_of_state[state.clamp(max=len(self.initial) - 1)], -1))
            u = uniform(seed, stream("source"), index, len(columns))
            following = torch.searchsorted(onward[state], u[:, None]).squeeze(1).clamp(max=len(self.initial))
            alive = alive & (following < len(self.initial))
            state = torch.where(alive, following, 0)
        tokens = torch.stack(columns, 1) if columns else torch.zeros(num_samples, 0, dtype=torch.int64)
        return Ragged.from_padded(tokens, (tokens >= 0).sum(1))

    def log_prob(self, x1: Ragged) -> Tensor:
        """Return ``[B]``, log p(x1), by the forward algorithm."""
        _check_tokens(x1.values, self.vocab_size)
        tokens = x1.to_padded(0)
        emission = self._emission
        vector, log_scale = self.initial.expand(len(x1), -1), torch.zeros(len(x1), dtype=torch.float64)
        for i in range(tokens.shape[1]):
            inside = i < x1.lengths
            emitted = (vector if i == 0 else vector @ self.transition) * emission[tokens[:, i]]
            total = emitted.sum(1)
            log_scale = torch.where(inside, log_scale + total.log(), log_scale)
            vector = torch.where(inside[:, None], emitted / total.clamp(min=1e-300)[:, None], vector)
        ended = log_scale + (vector @ self.end).log() + math.log1p(-self.empty)
        return torch.where(x1.lengths == 0, math.log(self.empty) if self.empty else -math.inf, ended)

    def denoiser(self, mask_id: int | None = None) -> OracleDenoiser:
        """Return the exact denoiser; by default the mask is the first id behind the vocabulary."""
        return OracleDenoiser(self, _mask_id(mask_id, self.token_of_state, self.vocab_size))

    def predict(self, canvas: Canvas, alpha: Tensor | float) -> Prediction:
        """Return f and g for every state of the canvas."""
        alpha = _check_canvas(canvas, alpha, self.vocab_size)
        if not len(canvas):
            return Prediction(torch.zeros(0, self.vocab_size, dtype=torch.float64), canvas.open_gaps.with_values(alpha))
        passage = _Passage.of(self, (1 - alpha).clamp(min=_SMALLEST_REST))
        visible = torch.cat([self._emission, torch.ones(1, len(self.initial), dtype=torch.float64)])  # last row: masks
        tokens = canvas.tokens.to_padded(canvas.mask_id)
        emission = visible[torch.where(tokens == canvas.mask_id, self.vocab_size, tokens)]  # [B, n, S]
        open_gaps = canvas.open_gaps.to_padded(False)  # [B, n + 1]

        forward, backward = self._sweep(passage, emission, open_gaps, canvas.lengths)
        mass = forward * backward  # [B, n, S]
        rows, columns = canvas.tokens.rows, canvas.tokens.columns
        masks = canvas.masks
        log_probs = _log_probs(mass[rows[masks], columns[masks]] @ self._emission.T, canvas.mask_id)

        missing, possible = self._gaps(passage, forward, backward, emission, open_gaps, canvas)
        values = missing[canvas.open_gaps.rows, canvas.open_gaps.columns]
        values = torch.where(canvas.open_gaps.values & possible[canvas.open_gaps.rows], values, 0.0)
        return _require_possible(Prediction(log_probs, gaps_of(canvas.tokens, values)), possible)

    def _sweep(self, passage: _Passage, emission: Tensor, open_gaps: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return scaled forward vectors (up to each entry) and backward vectors (behind each entry), ``[B, n, S]``."""
        n = emission.shape[1]
        forward, backward = torch.zeros_like(emission), torch.zeros_like(emission)
        for i in range(n):
            if i == 0:
                ahead = torch.where(open_gaps[:, :1], passage.start, self.initial)
            else:
                ahead = passage.between(forward[:, i - 1], open_gaps[:, i])
            forward[:, i] = _scaled(ahead * emission[:, i])
        for i in reversed(range(n)):
            ending = torch.where(open_gaps[:, i + 1 : i + 2], passage.finish, self.end)
            if i + 1 < n:
                inner = passage.between(backward[:, i + 1] * emission[:, i + 1], open_gaps[:, i + 1], True)
                ending = torch.where((lengths == i + 1)[:, None], ending, inner)
            backward[:, i] = _scaled(ending)
        return forward, backward

    def _gaps(
        self,
        passage: _Passage,
        forward: Tensor,
        backward: Tensor,
        emission: Tensor,
        open_gaps: Tensor,
        canvas: Canvas,
    ) -> tuple[Tensor, Tensor]:
        """Return the expected missing tokens ``[B, n + 1]`` and which states are possible ``[B]``."""
        batch, n, _ = emission.shape
        lengths = canvas.lengths
        missing = torch.zeros(batch, n + 1, dtype=torch.float64)
        # Nothing there yet: the one gap holds everything. A closed gap leaves the empty sequence only.
        weight = torch.where(open_gaps[:, 0], (1 - self.empty) * passage.whole, 0.0) + self.empty
        empty = (1 - self.empty) * passage.whole_count / weight.clamp(min=1e-300)
        possible = torch.where(lengths == 0, weight > _LEAST_WEIGHT, True)
        if n:
            entry = emission * backward
            first = (passage.start * entry[:, 0]).sum(1)
            missing[:, 0] = (passage.start_count * entry[:, 0]).sum(1) / first.clamp(min=1e-300)
            missing[:, 1:n] = passage.expected(forward[:, :-1], entry[:, 1:])
            at_last = forward[torch.arange(batch), (lengths - 1).clamp(min=0)]
            finish = (at_last * passage.finish).sum(1)
            ending = (at_last * passage.finish_count).sum(1) / finish.clamp(min=1e-300)
            missing[torch.arange(batch), lengths] = ending
            possible &= (lengths == 0) | ((forward[:, 0] * backward[:, 0]).sum(1) > 0)
        missing[:, 0] = torch.where(lengths == 0, empty, missing[:, 0])
        return missing, possible


def _scaled(vector: Tensor) -> Tensor:
    total = vector.sum(-1, keepdim=True)
    return torch.where(total > _LEAST_WEIGHT, vector / total, 0.0)


@dataclass(frozen=True)
class _Passage:
    """The transfer matrices of a hidden-Markov source through gaps; C is B, or 1 if all clocks agree."""

    closed: Tensor  # [S, S]: A
    open: Tensor  # [C, S, S]: A G
    count: Tensor  # [C, S, S]: A B G^2, the numerator of the expected number missing
    start: Tensor  # [C, S]: pi G
    start_count: Tensor
    finish: Tensor  # [C, S]: G e
    finish_count: Tensor
    whole: Tensor  # [C]: q pi G e
    whole_count: Tensor

    @classmethod
    def of(cls, source: HiddenMarkovSource, rest: Tensor) -> _Passage:
        a, pi, e = source.transition, source.initial, source.end
        rest, which = torch.unique(rest, return_inverse=True)
        b = rest[:, None, None] * a
        g = torch.linalg.inv(torch.eye(len(a), dtype=torch.float64) - b)
        bgg = b @ g @ g
        parts = {
            "open": a @ g,
            "count": a @ bgg,
            "start": pi @ g,
            "start_count": pi @ bgg,
            "finish": g @ e,
            "finish_count": bgg @ e,
            "whole": rest * (g @ e @ pi),
            "whole_count": rest * (g @ g @ e @ pi),
        }
        if len(rest) > 1:
            parts = {name: part[which] for name, part in parts.items()}
        return cls(closed=a, **parts)

    def between(self, vectors: Tensor, is_open: Tensor, backwards: bool = False) -> Tensor:
        """Move ``[B, S]`` across a gap to the next entry, or from the next entry back."""
        opened = self.open.transpose(1, 2) if backwards else self.open
        closed = self.closed.T if backwards else self.closed
        across = _times(vectors[:, None], opened).squeeze(1)
        return across if bool(is_open.all()) else torch.where(is_open[:, None], across, vectors @ closed)

    def expected(self, left: Tensor, right: Tensor) -> Tensor:
        """Return ``[B, n]``, the expected number missing between forward and backward vectors ``[B, n, S]``."""
        above, below = _times(left, self.count), _times(left, self.open)
        return (above * right).sum(-1) / (below * right).sum(-1).clamp(min=1e-300)


def _times(vectors: Tensor, matrices: Tensor) -> Tensor:
    """Multiply ``[B, n, S]`` by ``[C, S, S]``; one product when all clocks agree."""
    return vectors @ matrices[0] if len(matrices) == 1 else torch.bmm(vectors, matrices)
