"""How many bits a model needs for held-out sequences, by the marginalised likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.canvas import Template
from flexmdm.evaluation.distances import Estimate
from flexmdm.objective import likelihood
from flexmdm.sequences import Ragged
from flexmdm.tasks.prepared import padded
from flexmdm.tasks.text.task import TextTask

_LARGEST = 2**26  # numbers in the tables of one call: states x places x tokens of the vocabulary


@dataclass(frozen=True)
class Bits:
    """Upper bounds on what an ideal coder with the model needs, length included, with standard errors.

    Attributes:
        per_sequence: mean over the sequences.
        per_token, per_character: all bits over all tokens, or characters.
        sequences: how many there were.
    """

    per_sequence: Estimate
    per_token: Estimate
    per_character: Estimate
    sequences: int


def bits(
    model: FlexMDMModel,
    task: TextTask,
    index: Tensor,
    num_times: int = 64,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Bits:
    """The bits of the held-out sequences ``index``, generated from nothing.

    For MDM they are those of the padded sequences: what follows the first PAD costs bits too, unless it is certain.

    Args:
        model, task: what was trained.
        index: which of the held-out sequences.
        num_times: times per sequence.
        seed: of the states.
        progress: called with the number of sequences done.
    """
    store = task.validation.store

    def take(index: Tensor) -> tuple[Ragged, Template]:
        x1 = store.take(index)
        return padded(x1, task) if task.model == "mdm" else (x1, Template.free(x1))

    return bits_given(model, task, index, take, store.lengths, num_times, seed, progress)


def bits_given(
    model: FlexMDMModel,
    task: Any,
    index: Tensor,
    take: Callable[[Tensor], tuple[Ragged, Template]],
    tokens: Tensor,
    num_times: int = 64,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    characters: Tensor | None = None,
) -> Bits:
    """The bits of what the templates of held-out sequences leave to be found.

    Args:
        model, task: what was trained.
        index: which of the held-out sequences.
        take: those with their templates, by their indices.
        tokens: ``[S]``, how many tokens of each held-out sequence are to be found.
        num_times: times per sequence.
        seed: of the states.
        progress: called with the number of sequences done.
        characters: ``[S]``, how many characters are to be found; by default those of the store.
    """
    characters = task.validation.store.characters if characters is None else characters
    denoiser, nats = model.denoiser(), []
    at_a_time = max(_LARGEST // (num_times * task.width * task.vocab_size), 1)
    for start in range(0, len(index), at_a_time):
        x1, template = take(index[start : start + at_a_time])
        nats.append(likelihood(denoiser, x1, num_times=num_times, seed=seed + start, template=template).nats)
        if progress is not None:
            progress(start + len(x1))
    total = torch.cat(nats).cpu() / math.log(2)
    return Bits(
        per_sequence=_ratio(total, torch.ones_like(total)),
        per_token=_ratio(total, tokens[index].double()),
        per_character=_ratio(total, characters[index].double()),
        sequences=len(index),
    )


def _ratio(above: Tensor, below: Tensor) -> Estimate:
    """sum(above) / sum(below), with the standard error of a ratio of means over sequences."""
    value = float(above.sum() / below.sum())
    spread = (above - value * below).std() if len(above) > 1 else torch.tensor(math.inf)
    return Estimate(value, float(spread / below.mean() / math.sqrt(len(above))))
