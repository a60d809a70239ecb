"""What a network (or an exact oracle) says of a canvas, and the contract between it and everything else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from flexmdm.canvas import Canvas, gaps_of
from flexmdm.interpolants import FlexMDMInterpolant
from flexmdm.precision import float64_device
from flexmdm.sequences import Ragged


@dataclass(frozen=True, eq=False)
class Prediction:
    """The two quantities FlexMDM learns, for every state of a canvas.

    Attributes:
        log_probs: ``[M, V]``, log f: the unmasking posterior, one row per mask of the batch, in order.
        insertions: g: the expected number of tokens still missing in each of the len + 1 gaps; 0 where a gap is closed.

    >>> import torch
    >>> canvas = Canvas(Ragged.from_lists([[5, 0], [5]]), mask_id=5)
    >>> p = Prediction(torch.zeros(2, 5).log_softmax(1), Ragged.from_lists([[1, 0, 2], [0, 0]], dtype=torch.float32))
    >>> p.of(canvas, torch.tensor([False, True])).log_probs.shape  # what it says of the second state
    torch.Size([1, 5])
    """

    log_probs: Tensor
    insertions: Ragged

    def of(self, canvas: Canvas, which: Tensor) -> Prediction:
        """What it says of some of the sequences of ``canvas``, ``which`` ``[B]`` bool."""
        rows = canvas.tokens.rows[canvas.is_mask]
        return Prediction(self.log_probs[which[rows]], self.insertions[which])


@runtime_checkable
class Denoiser(Protocol):
    """Anything that maps (canvas, alpha) to a `Prediction`.

    f and g depend on the state and on alpha alone, not on t and not on beta, so alpha ``[B]`` is the clock; 1 means the
    limit. A denoiser may also have an ``interpolant`` with the schedules it was trained with and a ``device`` for its
    canvases, which generation then uses, and may raise `ImpossibleCanvas`.
    """

    @property
    def vocab_size(self) -> int: ...

    @property
    def mask_id(self) -> int: ...

    def __call__(self, canvas: Canvas, alpha: Tensor) -> Prediction: ...


class NetworkDenoiser:
    """A trained network as a `Denoiser`.

    Args:
        network: maps (tokens with masks as ``vocab_size``, lengths, given, open_gaps, alpha) to logits ``[M, V]`` at
            the masks and insertions ``[N + B]``; it is put in evaluation mode.
        vocab_size: clean tokens V.
        mask_id: how a canvas writes a mask; it is never predicted, also where it lies inside V.
        interpolant: the schedules it was trained with.
    """

    def __init__(
        self, network: nn.Module, vocab_size: int, mask_id: int, interpolant: FlexMDMInterpolant | None = None
    ) -> None:
        self.network, self.vocab_size, self.mask_id, self.interpolant = network.eval(), vocab_size, mask_id, interpolant

    @property
    def device(self) -> torch.device:
        """Where its canvases should be: with the network, or on the CPU if there is no float64."""
        return float64_device(self._network_device)

    @property
    def _network_device(self) -> torch.device:
        return next(self.network.parameters()).device

    @torch.no_grad()
    def __call__(self, canvas: Canvas, alpha: Tensor) -> Prediction:
        """The network's answer, on the device of the canvas."""
        tokens = canvas.tokens.values.masked_fill(canvas.is_mask, self.vocab_size)
        seen = (tokens, canvas.lengths, canvas.given.values, canvas.open_gaps.values, alpha.float())
        there = self._network_device
        logits, insertions = self.network(*(x.to(there) for x in seen))
        if 0 <= self.mask_id < self.vocab_size:
            logits = logits.index_fill(1, torch.tensor([self.mask_id], device=logits.device), -torch.inf)
        log_probs, insertions = (x.to(canvas.device) for x in (logits.float().log_softmax(1), insertions.float()))
        return Prediction(log_probs, gaps_of(canvas.tokens, insertions))


class ImpossibleCanvas(ValueError):
    """States that the source cannot produce.

    Attributes:
        prediction: what there is to say of the others.
        possible: ``[B]`` bool, which states can occur.
    """

    def __init__(self, message: str, prediction: Prediction, possible: Tensor) -> None:
        super().__init__(message)
        self.prediction, self.possible = prediction, possible


def predict(denoiser: Denoiser, canvas: Canvas, alpha: Tensor) -> tuple[Prediction, Tensor]:
    """What the denoiser says, and which states ``[B]`` it holds possible; of the others nothing can be said."""
    try:
        prediction = denoiser(canvas, alpha)
        possible = torch.ones(len(canvas), dtype=torch.bool, device=canvas.device)
    except ImpossibleCanvas as error:
        prediction, possible = error.prediction, error.possible
    if prediction.log_probs.shape != (len(canvas.masks), denoiser.vocab_size):
        raise ValueError(
            f"the denoiser gave log_probs {tuple(prediction.log_probs.shape)} for {len(canvas.masks)} masks and a "
            f"vocabulary of {denoiser.vocab_size}"
        )
    g = prediction.insertions
    if not torch.equal(g.lengths, canvas.lengths + 1):
        raise ValueError("the denoiser must give insertions for each of the len + 1 gaps of every sequence")
    if not bool((torch.isfinite(g.values) & (g.values >= 0)).all()):
        raise ValueError("the denoiser gave insertions that are negative, infinite or NaN")
    return prediction, possible
