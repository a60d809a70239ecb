"""From sample numbers to batches: an example is a function of (seed, number), so a run can be resumed exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from flexmdm.alignment import Alignment, align
from flexmdm.canvas import Template
from flexmdm.denoiser import Prediction
from flexmdm.interpolants import FlexMDMInterpolant, InterpolantSample, sample_times
from flexmdm.objective import Loss, flexmdm_loss
from flexmdm.precision import float64_device
from flexmdm.schedules import Schedule
from flexmdm.sequences import Ragged


class Examples(Protocol):
    """Clean sequences with their templates: a task's training data."""

    def __len__(self) -> int:
        """Return the number of sequences, which is one epoch."""

    def take(self, index: Tensor, numbers: Tensor) -> tuple[Ragged, Template]:
        """Return the sequences ``index`` ``[B]``; the randomness of their templates belongs to ``numbers`` ``[B]``."""


@dataclass(frozen=True, eq=False)
class Batch:
    """States to learn from."""

    sample: InterpolantSample  # the states and what is behind them
    alignment: Alignment | None  # marginalised targets; None for the one draw of s_t in sample
    weight: Tensor  # [B], of the times (see sample_times)

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def num_tokens(self) -> int:
        """Return the number of entries of the states, which the network works on."""
        return self.sample.canvas.tokens.values.shape[0]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        alignment = None if self.alignment is None else self.alignment.to(device)
        return Batch(self.sample.to(device), alignment, self.weight.to(float64_device(device)))

    def inputs(self, mask_id: int) -> dict[str, Tensor]:
        canvas = self.sample.canvas
        return {
            "tokens": canvas.tokens.values.masked_fill(canvas.is_mask, mask_id),
            "lengths": canvas.lengths,
            "given": canvas.given.values,
            "open_gaps": canvas.open_gaps.values,
            "alpha": self.sample.alpha.float().to(canvas.device),
        }

    def loss(self, logits: Tensor, insertions: Tensor, interpolant: FlexMDMInterpolant) -> Loss:
        """Return the loss of each sequence ``[B]``, weighted so that its mean estimates the integral over time."""
        canvas = self.sample.canvas
        prediction = Prediction(logits.float().log_softmax(1), canvas.open_gaps.with_values(insertions))
        loss = flexmdm_loss(prediction, self.sample, interpolant, self.alignment)
        weight = self.weight.to(loss.unmasking)
        return Loss(loss.unmasking * weight, loss.insertion * weight)

    def softened(self, loss: Loss, interpolant: FlexMDMInterpolant, largest: float) -> Loss:
        """Return the `loss` with the weight w of each state, its hazard included, lowered to w / (1 + w / largest).

        Weights depend on the time alone, so f and g stay the optimum. Those of the likelihood grow without bound
        towards t = 1, where single tokens are left to learn from, and their noise is most of the gradient's.
        """

        def lowered(term: Tensor, schedule: Schedule) -> Tensor:
            return term / (1 + self.weight * schedule.hazard(self.sample.t) / largest).to(term)

        return Loss(lowered(loss.unmasking, interpolant.unmasking), lowered(loss.insertion, interpolant.insertion))


@dataclass
class Collator:
    """Sample numbers to a `Batch`.

    Every epoch goes through the examples in another order; times are spread evenly over a batch.
    """

    examples: Examples
    interpolant: FlexMDMInterpolant
    mask_id: int  # how the states write a mask
    marginalise: bool = True  # average targets over all embeddings of a state rather than take the one that was drawn
    seed: int = 0  # of orders, templates, times and states

    def __call__(self, numbers: Sequence[int]) -> Batch:
        number = torch.as_tensor(numbers)
        x1, template = self.examples.take(self.order(number), number)
        t, weight = sample_times(len(number), seed=(self.seed << 40) + int(number[0]))
        sample = self.interpolant.sample(x1, t, template, self.seed, self.mask_id, number)
        alignment = align(sample.canvas, x1, template) if self.marginalise else None
        return Batch(sample, alignment, weight)

    def order(self, numbers: Tensor) -> Tensor:
        """Return the index of the example of each sample number ``[B]``."""
        size = len(self.examples)
        index = torch.empty_like(numbers)
        for epoch in (numbers // size).unique().tolist():
            chosen = numbers // size == epoch
            index[chosen] = self._permutation(epoch)[numbers[chosen] % size]
        return index

    def _permutation(self, epoch: int) -> Tensor:
        if getattr(self, "_epoch", None) != epoch:
            generator = torch.Generator().manual_seed((self.seed << 20) + epoch)
            self._epoch, self._order = epoch, torch.randperm(len(self.examples), generator=generator)
        return self._order
