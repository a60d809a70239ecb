"""The sources on which samplers are tried: small ones whose truth is known exactly."""

from __future__ import annotations

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
