"""Rank answers by what the model thinks of them: the log-probability of each, given what stood in its prompt."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from flexmdm.canvas import Prompt, Role, Template
from flexmdm.denoiser import Denoiser
from flexmdm.objective import Likelihood, likelihood
from flexmdm.sequences import Ragged


def answer_likelihood(
    denoiser: Denoiser,
    prompts: Sequence[Prompt],
    sequences: Sequence[Sequence[int]],
    given: Sequence[Sequence[bool]],
    num_times: int = 64,
    exact: bool = False,
    seed: int = 0,
) -> Likelihood:
    """Return -log p(answer | prompt) of each answer in nats: an upper bound, exact when the denoiser is.

    All answers are measured with the same random numbers, so that their order is stable although each figure is noisy.
    Where a prompt has masks in an open gap, it is the probability of the answer and of which of its tokens they became.

    Args:
        denoiser: f and g.
        prompts: what each answer began as.
        sequences, given: the answers, as `flexmdm.Generation` has them.
        num_times, exact, seed: of `likelihood`.

    >>> from flexmdm import FiniteDistribution, generate
    >>> source = FiniteDistribution({(0, 1, 2): 0.3, (0, 2): 0.1, (1,): 0.6}, vocab_size=3)
    >>> prompt = Prompt.infill([[0], [2]])
    >>> out = generate(source.denoiser(), 4, prompts=[prompt], seed=3)
    >>> out.sequences
    [[0, 1, 2], [0, 2], [0, 1, 2], [0, 1, 2]]
    >>> answer_likelihood(source.denoiser(), [prompt] * 4, out.sequences, out.given, exact=True).nats.neg().exp()
    tensor([0.7500, 0.2500, 0.7500, 0.7500], dtype=torch.float64)
    """
    x1 = Ragged.from_lists(sequences)
    roles = x1.with_values(torch.full_like(x1.values, Role.FREE))
    entries = [Role.PRESENT if token is None else Role.FIXED for prompt in prompts for token in prompt.tokens]
    roles.values[Ragged.from_lists(given, dtype=torch.bool).values] = torch.tensor(entries, dtype=roles.values.dtype)
    open_gaps = Ragged.from_lists([prompt.open_gaps for prompt in prompts], dtype=torch.bool)
    template = Template(roles, open_gaps)
    return likelihood(denoiser, x1, num_times=num_times, exact=exact, seed=seed, template=template, paired=True)
