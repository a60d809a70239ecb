"""Rank answers by what the model thinks of them: the log-probability of each, given what stood in its prompt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from flexmdm.canvas import Prompt, Role, Template
from flexmdm.denoiser import Denoiser, predict
from flexmdm.interpolants import assemble
from flexmdm.objective import Likelihood, likelihood
from flexmdm.sequences import Ragged
from flexmdm.trajectories import trajectory_nats

_FEW = 32  # tokens to find, up to which whole trajectories are taken: they cost six evaluations per token
_TIMES = 16  # times in the place of a trajectory, of longer answers
_LARGEST = 2**26  # numbers in the tables of one call: states x entries x tokens of the vocabulary


def answer_likelihood(
    denoiser: Denoiser,
    prompts: Sequence[Prompt],
    sequences: Sequence[Sequence[int]],
    given: Sequence[Sequence[bool]],
    num: int = 1,
    seed: int = 0,
) -> Likelihood:
    """Return -log p(answer | prompt) of each answer in nats, an upper bound; the truth if the denoiser is exact.

    All answers are measured along trajectories with the same random numbers, so that their order is stable: for an
    exact denoiser one is enough, see `flexmdm.trajectories`. Answers of more than 32 tokens are measured at some times,
    as `flexmdm.likelihood` does, which is faster and noisier. Where a prompt has masks in an open gap, it is the
    probability of the answer and of which of its tokens they became.

    Args:
        denoiser: f and g.
        prompts: what each answer began as.
        sequences, given: the answers, as `flexmdm.Generation` has them.
        num, seed: trajectories of each answer, and their seed. A single one is rough, by half as many evaluations, and
            has no standard error.

    >>> from flexmdm import FiniteDistribution, generate
    >>> source = FiniteDistribution({(0, 1, 2): 0.4, (0, 2): 0.1, (1,): 0.5}, vocab_size=3)
    >>> prompt = Prompt.infill([[0], [2]])
    >>> out = generate(source.denoiser(), 4, prompts=[prompt], seed=3)
    >>> out.sequences
    [[0, 1, 2], [0, 2], [0, 1, 2], [0, 1, 2]]
    >>> nats = answer_likelihood(source.denoiser(), [prompt] * 4, out.sequences, out.given, num=2).nats
    >>> nats.neg().exp().round(decimals=1)
    tensor([0.8000, 0.2000, 0.8000, 0.8000], dtype=torch.float64)
    """
    x1, template = _as_templates(prompts, sequences, given)
    nats, errors = torch.zeros(2, len(x1), dtype=torch.float64)
    few = template.roles.count(template.roles.values != Role.FIXED) <= _FEW
    for some in _parts(few, _at_a_time(x1, 6 * _FEW * num, 1)):
        each = trajectory_nats(denoiser, x1[some], template[some], num=num, seed=seed, nodes=min(num, 2)).cpu()
        nats[some] = each.mean(1)
        errors[some] = each.std(1) / math.sqrt(num) if num > 1 else math.inf
    for some in _parts(~few, _at_a_time(x1, _TIMES * num, denoiser.vocab_size)):
        found = likelihood(denoiser, x1[some], None, _TIMES * num, False, seed, template[some], paired=True)
        nats[some], errors[some] = found.nats.cpu(), found.standard_error.cpu()
    return Likelihood(nats, errors)


@torch.no_grad()
def confidences(
    denoiser: Denoiser,
    prompts: Sequence[Prompt],
    sequences: Sequence[Sequence[int]],
    given: Sequence[Sequence[bool]],
) -> list[list[float]]:
    """Return the probability of each token that was found, given all others: for each answer, in their order.

    >>> from flexmdm import FiniteDistribution
    >>> source = FiniteDistribution({(0, 1, 2): 0.3, (0, 2, 2): 0.1, (0, 2): 0.6}, vocab_size=3)
    >>> found = confidences(source.denoiser(), [Prompt.infill([[0], [2]])], [[0, 1, 2]], [[True, False, True]])
    >>> round(found[0][0], 6)
    0.75
    """
    x1, template = _as_templates(prompts, sequences, given)
    found = (template.roles.values != Role.FIXED).nonzero().squeeze(1)
    chances = torch.zeros(len(found), dtype=torch.float64)
    device = getattr(denoiser, "device", None) or x1.device
    for part in _parts(torch.ones(len(found), dtype=torch.bool), _at_a_time(x1, 1, 1)):
        rows, columns = x1.rows[found[part]], x1.columns[found[part]]
        some = x1[rows]
        clean = some.columns != columns[some.rows]
        canvas, _ = assemble(some, template[rows], torch.ones_like(clean), clean, denoiser.mask_id)
        prediction, _ = predict(denoiser, canvas.to(device), torch.ones(len(part), dtype=torch.float64, device=device))
        chances[part] = prediction.log_probs.cpu().gather(1, x1.values[found[part], None]).squeeze(1).double().exp()
    return Ragged(chances, x1.count(template.roles.values != Role.FIXED)).tolist()


def _as_templates(
    prompts: Sequence[Prompt], sequences: Sequence[Sequence[int]], given: Sequence[Sequence[bool]]
) -> tuple[Ragged, Template]:
    x1 = Ragged.from_lists(sequences)
    roles = x1.with_values(torch.full_like(x1.values, Role.FREE))
    entries = [Role.PRESENT if token is None else Role.FIXED for prompt in prompts for token in prompt.tokens]
    roles.values[Ragged.from_lists(given, dtype=torch.bool).values] = torch.tensor(entries, dtype=roles.values.dtype)
    open_gaps = Ragged.from_lists([prompt.open_gaps for prompt in prompts], dtype=torch.bool)
    return x1, Template(roles, open_gaps)


def _parts(which: Tensor, at_a_time: int) -> Iterator[Tensor]:
    """Yield the indices at which ``which`` is true, some at a time."""
    index = which.nonzero().squeeze(1)
    yield from index.split(at_a_time) if len(index) else ()


def _at_a_time(x1: Ragged, states: int, numbers: int) -> int:
    """Return how many sequences to take at a time, with so many states of each and ``numbers`` for every entry."""
    return max(_LARGEST // (states * max(x1.max_length, 1) * numbers), 1)
