"""The exponential moving average of the weights."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from flexmdm.training.sharding import shard_like

EMA_FILE = "ema.safetensors"
_UPDATES = "updates"


class EMA:
    """An average that starts fast: after n updates the decay is min(decay, (1 + n) / (10 + n)).

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> average = EMA(layer, decay=0.9)
    >>> _ = layer.weight.data.add_(1.0)
    >>> average.update()
    >>> with average.applied():
    ...     inside = layer.weight.item()
    >>> inside < layer.weight.item()
    True
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.updates = decay, 0
        self.live = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.average = {name: p.detach().clone() for name, p in self.live.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take one step towards the weights as they are now."""
        self.updates += 1
        share = 1 - min(self.decay, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(list(self.average.values()), [p.detach() for p in self.live.values()], share)

    @contextmanager
    def applied(self) -> Generator[None]:
        """Give the model the averaged weights within this context."""
        kept = {name: p.detach().clone() for name, p in self.live.items()}
        self.apply()
        try:
            yield
        finally:
            self.apply(kept)

    @torch.no_grad()
    def apply(self, values: dict[str, Tensor] | None = None) -> None:
        """Give the model the averaged weights, or others, for good."""
        for name, p in self.live.items():
            p.copy_((values or self.average)[name])

    def shard_like(self, model: nn.Module) -> None:
        """Follow the weights of a model that has been sharded."""
        self.live = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.average = {name: shard_like(value, self.live[name]) for name, value in self.average.items()}

    def save(self, folder: Path, average: dict[str, Tensor] | None = None) -> None:
        """Write the average; of a sharded one, what was gathered from all processes."""
        save_file({**(average or self.average), _UPDATES: torch.tensor(self.updates)}, folder / EMA_FILE)

    def load(self, folder: Path) -> None:
        stored = load_file(folder / EMA_FILE)
        self.updates = int(stored.pop(_UPDATES))
        missing = sorted(self.average.keys() - stored.keys())
        if missing:
            raise ValueError(
                f"{folder} was written for another network: it has no {', '.join(missing[:3])}. Train it anew"
            )
        for name, value in self.average.items():
            value.copy_(stored[name])
