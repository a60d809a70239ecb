"""The probabilities that a model gives to held-out sequences and to answers, by the marginalised likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flexmdm.canvas import Template
from flexmdm.evaluation.distances import Estimate
from flexmdm.objective import likelihood
from flexmdm.sequences import Ragged
from flexmdm.tasks.task import Task

if TYPE_CHECKING:  # seconds to import; whoever has a model has done so
    from flexmdm.backbones.model import FlexMDMModel

_LARGEST = 2**26  # numbers in the tables of one call: states x entries x tokens of the vocabulary


@dataclass(frozen=True)
class Bits:
    """Upper bounds on what an ideal coder with the model needs, length included, with standard errors.

    Those per sequence are a mean over the sequences, the others all bits over all tokens, or characters.
    """

    per_sequence: Estimate
    per_token: Estimate
    per_character: Estimate
    sequences: int  # how many there were

    @classmethod
    def of(cls, nats: Tensor, tokens: Tensor, characters: Tensor) -> Bits:
        """Return the bits of sequences with so many nats, tokens and characters, each ``[B]``."""
        total = nats.double() / math.log(2)
        parts = (_ratio(total, units.double()) for units in (torch.ones_like(total), tokens, characters))
        return cls(*parts, sequences=len(total))


def bits(
    model: FlexMDMModel,
    task: Task,
    index: Tensor,
    num_times: int = 64,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Bits:
    """Return the bits of what is to be found in held-out sequences: all of a text, the answer to a prompt.

    For MDM they are those of the padded sequences: what follows the first PAD costs bits too, unless it is certain.

    Args:
        index: which of the held-out sequences.
        num_times, seed: times per sequence, and the seed of the states.
        progress: called with the number of sequences done.
    """
    parts = []
    for part in nats_of(model, task, index, num_times, seed):
        parts.append(part)
        if progress is not None:
            progress(sum(len(nats) for nats, *_ in parts))
    return Bits.of(*map(torch.cat, zip(*parts, strict=True)))


def nats_of(
    model: FlexMDMModel, task: Task, index: Tensor, num_times: int = 64, seed: int = 0, first: int = 0
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield -log p in nats of what is to be found in held-out sequences, its tokens and its characters, each ``[B]``.

    Those from number ``first`` of the ``index`` on come a few at a time, the same as without an interruption if
    ``first`` is where earlier parts ended.
    """
    denoiser = model.denoiser()
    at_a_time = max(_LARGEST // (num_times * task.width * task.vocab_size), 1)
    for start in range(first, len(index), at_a_time):
        x1, template, tokens, characters = task.validation.to_find(index[start : start + at_a_time])
        nats = likelihood(denoiser, x1, num_times=num_times, seed=seed + start, template=template).nats
        yield nats.cpu(), tokens, characters


def bits_of(model: FlexMDMModel, task: Task, tokens: Sequence[int], num_times: int = 64, seed: int = 0) -> Estimate:
    """Return the bits of one sequence that is generated from nothing, with the standard error of the estimate."""
    x1 = Ragged.from_lists([list(tokens)])
    x1, template = task.layout.example(x1, Template.free(x1))
    found = likelihood(model.denoiser(), x1, num_times=num_times, seed=seed, template=template)
    return Estimate(float(found.nats) / math.log(2), float(found.standard_error) / math.log(2))


def _ratio(above: Tensor, below: Tensor) -> Estimate:
    """Return sum(above) / sum(below), with the standard error of a ratio of means over sequences."""
    value = float(above.sum() / below.sum())
    spread = (above - value * below).std() if len(above) > 1 else torch.tensor(math.inf)
    return Estimate(value, float(spread / below.mean() / math.sqrt(len(above))))
