"""From a posterior over tokens to a token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Decoding:
    """Say how a token is drawn from log f: temperature, then the k most probable, then the smallest set of mass p.

    Draws are made in float64 by inverting the distribution function: Gumbel noise in float32 has no tail, which quietly
    lowers the temperature.

    >>> log_probs = torch.tensor([[0.1, 0.6, 0.3]]).log()
    >>> Decoding(temperature=0.0).draw(log_probs, torch.tensor([0.99]))
    tensor([1])
    >>> Decoding(top_k=2).draw(log_probs.expand(2, -1), torch.tensor([0.01, 0.99]))
    tensor([1, 2])
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(
                f"temperature must be a number from 0 (always the most probable token) up, got {self.temperature}"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], got {self.top_p}")

    def draw(self, log_probs: Tensor, u: Tensor) -> Tensor:
        """Draw one token ``[K]`` from each row of ``log_probs`` ``[K, V]``, by uniform numbers ``u`` ``[K]``."""
        best = log_probs.amax(1, keepdim=True)  # NaN if any is
        if not bool(torch.isfinite(best).all()):
            raise ValueError("cannot draw a token: the denoiser's log-probabilities contain NaN, or nothing but -inf")
        if self.temperature == 0:
            return log_probs.argmax(1)
        logits = (log_probs.double() - best) / self.temperature
        if self.top_k is not None and self.top_k < logits.shape[1]:
            least = logits.topk(self.top_k, dim=1).values[:, -1:]
            logits = logits.masked_fill(logits < least, float("-inf"))
        if self.top_p is not None and self.top_p < 1:
            logits = _nucleus(logits, self.top_p)
        reached = logits.exp().cumsum(1)
        total = reached[:, -1]
        # Strictly below the total, and the first index strictly above: a token of probability 0 is never drawn.
        aim = torch.minimum(u.double() * total, torch.nextafter(total, torch.zeros_like(total)))
        return torch.searchsorted(reached, aim[:, None], right=True).squeeze(1)


def _nucleus(logits: Tensor, mass: float) -> Tensor:
    """Keep the smallest set of the most probable tokens whose mass reaches ``mass``; put the others at -inf."""
    ordered, order = logits.sort(dim=1, descending=True, stable=True)
    probs = ordered.softmax(1)
    beyond = probs.cumsum(1) - probs >= mass  # what comes before already has the mass
    return logits.masked_fill(torch.zeros_like(beyond).scatter(1, order, beyond), float("-inf"))
