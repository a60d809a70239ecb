"""A trained network as a `Denoiser`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flexmdm.canvas import Canvas, gaps_of
from flexmdm.denoiser import Prediction
from flexmdm.interpolants import FlexMDMInterpolant
from flexmdm.precision import float64_device


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
        """Return the device for its canvases: the network's, or the CPU if that has no float64."""
        return float64_device(self._network_device)

    @property
    def _network_device(self) -> torch.device:
        return next(self.network.parameters()).device

    @torch.no_grad()
    def __call__(self, canvas: Canvas, alpha: Tensor) -> Prediction:
        """Return the network's prediction, on the device of the canvas."""
        tokens = canvas.tokens.values.masked_fill(canvas.is_mask, self.vocab_size)
        inputs = (tokens, canvas.lengths, canvas.given.values, canvas.open_gaps.values, alpha.float())
        device = self._network_device
        logits, insertions = self.network(*(x.to(device) for x in inputs))
        if 0 <= self.mask_id < self.vocab_size:
            logits = logits.index_fill(1, torch.tensor([self.mask_id], device=logits.device), -torch.inf)
        log_probs, insertions = (x.to(canvas.device) for x in (logits.float().log_softmax(1), insertions.float()))
        return Prediction(log_probs, gaps_of(canvas.tokens, insertions))
