"""The sources on which samplers are tried: small ones whose truth is known exactly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import torch
from torch import Tensor

from flexmdm.oracle import FiniteDistribution, HiddenMarkovSource

LETTERS = "abcdefghijklmnopqrstuvwxyz"

_NINE_WORDS = ("abcab", "ab", "ba", "aab", "c", "abc", "bcab", "aaab", "cab")
_REST = 1e-12  # of the lengths of a chain, what is left out


def nine_words() -> FiniteDistribution:
    """Return nine words over a, b, c; letters repeat and words contain each other, so a state has many embeddings.

    >>> nine_words().words[0]
    (0, 1, 2, 0, 1)
    """
    law = dict.fromkeys(_NINE_WORDS, 0.10) | {"abcab": 0.15, "c": 0.15}
    return FiniteDistribution({tuple(map(LETTERS.index, word)): p for word, p in law.items()}, vocab_size=3)


def palindromes(letters: int = 3, halves: Sequence[int] = (1, 2, 3)) -> FiniteDistribution:
    """Return words that read the same backwards: a token depends on the one as far from the other end.

    Every length, twice one of the ``halves``, is equally likely, and so is every word of a length.

    >>> palindromes(letters=2, halves=(1, 2)).words
    [(0, 0), (1, 1), (0, 0, 0, 0), (0, 1, 1, 0), (1, 0, 0, 1), (1, 1, 1, 1)]
    """
    classes = [[half + half[::-1] for half in product(range(letters), repeat=size)] for size in halves]
    return _equally_likely(classes, letters)


def balanced_brackets(most: int = 4) -> FiniteDistribution:
    """Return balanced words of up to ``most`` pairs of brackets; every number of pairs is equally likely.

    >>> balanced_brackets(2).words
    [(0, 1), (0, 0, 1, 1), (0, 1, 0, 1)]
    """

    def grown(word: tuple[int, ...], opened: int, closed: int) -> Iterable[tuple[int, ...]]:
        if opened + closed == 0:
            yield word
        if opened:
            yield from grown((*word, 0), opened - 1, closed + 1)
        if closed:
            yield from grown((*word, 1), opened, closed - 1)

    return _equally_likely([list(grown((), pairs, 0)) for pairs in range(1, most + 1)], 2)


def far_copies(letters: int = 4, copied: int = 2, distance: int = 16) -> FiniteDistribution:
    """Return words whose last tokens repeat the first ones, ``distance`` further on; all between is the token 0.

    >>> far_copies(letters=2, copied=1, distance=3).words
    [(1, 0, 0, 1), (2, 0, 0, 2)]
    """
    copies = product(range(1, letters + 1), repeat=copied)
    return _equally_likely([[(*copy, *[0] * (distance - copied), *copy) for copy in copies]], letters + 1)


def even_parity(length: int = 8) -> FiniteDistribution:
    """Return bits with an even number of ones: any ``length`` - 1 of them are independent, all together are not.

    >>> even_parity(3).words
    [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0)]
    """
    return _equally_likely([[bits for bits in product(range(2), repeat=length) if sum(bits) % 2 == 0]], 2)


def repeated_letters(letters: int = 3, longest: int = 6) -> FiniteDistribution:
    """Return one letter again and again: every token tells all others, and the length tells nothing.

    >>> repeated_letters(letters=2, longest=2).words
    [(0,), (1,), (0, 0), (1, 1)]
    """
    return _equally_likely([[(letter,) * n for letter in range(letters)] for n in range(1, longest + 1)], letters)


def two_lengths(short: int = 2, long: int = 6, letters: int = 2) -> FiniteDistribution:
    """Return words of one of two lengths, equally likely; each token is drawn on its own.

    >>> two_lengths(short=1, long=2).words
    [(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]
    """
    return _equally_likely([list(product(range(letters), repeat=n)) for n in (short, long)], letters)


def lengths_source(law: Tensor) -> FiniteDistribution:
    """Return a source of zeros alone whose lengths n have the probabilities ``law`` ``[longest + 1]``.

    >>> lengths_source(torch.tensor([0.0, 0.75, 0.25])).words
    [(0,), (0, 0)]
    """
    return FiniteDistribution({(0,) * n: p for n, p in enumerate(law.tolist())}, vocab_size=1)


def fixed_length(length: int = 16) -> FiniteDistribution:
    """Return the source of one word, so many zeros: no other number of insertions is right."""
    return lengths_source(torch.nn.functional.one_hot(torch.tensor(length)).double())


def bimodal_lengths(short: int = 4, long: int = 40) -> FiniteDistribution:
    """Return zeros, so few or so many with equal probability: a sampler must choose one and then keep to it."""
    law = torch.zeros(long + 1, dtype=torch.float64)
    law[[short, long]] = 0.5
    return lengths_source(law)


def long_tailed_lengths(longest: int = 60, exponent: float = 2.0) -> FiniteDistribution:
    """Return zeros, n of them with a probability that falls like n to the power - ``exponent``."""
    weights = torch.arange(longest + 1, dtype=torch.float64).clamp(min=0.5) ** -exponent
    weights[0] = 0.0
    return lengths_source(weights / weights.sum())


def _equally_likely(classes: Sequence[Sequence[tuple[int, ...]]], vocab_size: int) -> FiniteDistribution:
    """Return the distribution in which every class, and every word of a class, is equally likely."""
    law: Mapping[Sequence[int], float] = {word: 1 / len(classes) / len(words) for words in classes for word in words}
    return FiniteDistribution(law, vocab_size)


def phased_chain(
    stay: float = 0.82, phases: int = 6, tokens: int = 6, concentration: float = 0.25, seed: int = 0
) -> HiddenMarkovSource:
    """Return a chain of ``phases`` hidden phases, each with bigrams of its own; E[len] = phases / (1 - stay).

    A state is (phase, token). After each token the chain stays in its phase with probability ``stay``, else it enters
    the next one, and ends behind the last; the next token comes from the bigram row of the phase it is then in. The
    rows are drawn from a symmetric Dirichlet distribution: the smaller the ``concentration``, the more a token says
    about its neighbours, and the more it costs a sampler to reveal two neighbours at once. The first token is uniform.

    >>> lengths = length_distribution(phased_chain())
    >>> round(float((lengths * torch.arange(len(lengths))).sum()), 2)
    33.33
    """
    if not (0 <= stay < 1 and phases >= 1 and tokens >= 1 and concentration > 0):
        raise ValueError(
            "a chain needs stay in [0, 1), at least one phase and one token, and a positive concentration; got "
            f"{stay}, {phases}, {tokens} and {concentration}"
        )
    generator = torch.Generator().manual_seed(seed)
    alpha = torch.full((phases, tokens, tokens), concentration, dtype=torch.float64)
    rows = torch._standard_gamma(alpha, generator=generator)  # normalised, these are Dirichlet
    rows /= rows.sum(-1, keepdim=True)  # [phase, token, next token]

    enters = rows.new_full((phases,), stay).diag() + rows.new_full((phases - 1,), 1 - stay).diag(1)  # [phase, next]
    transition = enters[:, None, :, None] * rows.transpose(0, 1)  # [phase, token, next phase, next token]
    initial, end = rows.new_zeros(2, phases, tokens)
    initial[0], end[-1] = 1 / tokens, 1 - stay
    states = phases * tokens
    return HiddenMarkovSource(
        initial.flatten(),
        transition.reshape(states, states),
        end.flatten(),
        torch.arange(tokens).repeat(phases),
        vocab_size=tokens,
    )


def length_distribution(source: HiddenMarkovSource) -> Tensor:
    """Return P(len = n), ``[longest + 1]``, up to a rest of 1e-12: P(empty), then (1 - P(empty)) pi A^(n-1) e.

    >>> length_distribution(HiddenMarkovSource([1.0], [[0.5]], [0.5], [0], vocab_size=1))[:4]
    tensor([0.0000, 0.5000, 0.2500, 0.1250], dtype=torch.float64)
    """
    law, state = [torch.tensor(source.empty, dtype=torch.float64)], (1 - source.empty) * source.initial
    while float(state.sum()) > _REST:
        law.append(state @ source.end)
        state = state @ source.transition
    return torch.stack(law)


def bigram_distribution(source: HiddenMarkovSource) -> Tensor:
    """Return the share of each pair of neighbours u v among all pairs, ``[V * V]``, at u V + v.

    A state is visited pi (I - A)^-1 times on average, and each visit is followed by a state with probability A.

    >>> zero_one = HiddenMarkovSource([1.0, 0.0], [[0.0, 1.0], [0.0, 0.0]], [0.0, 1.0], [0, 1], vocab_size=2)
    >>> bigram_distribution(zero_one)
    tensor([0., 1., 0., 0.], dtype=torch.float64)
    """
    identity = torch.eye(len(source.initial), dtype=torch.float64)
    visits = torch.linalg.solve((identity - source.transition).T, source.initial)  # [S], expected numbers
    emission = torch.nn.functional.one_hot(source.token_of_state, source.vocab_size).double()  # [S, V]
    pairs = (emission.T @ (visits[:, None] * source.transition) @ emission).flatten()
    return pairs / pairs.sum()
