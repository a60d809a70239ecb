"""The device of float64 numbers."""

from __future__ import annotations

import torch

_WITHOUT_FLOAT64 = ("mps",)


def float64_device(device: torch.device | str) -> torch.device:
    """Return the device for the float64 numbers of what is on ``device``: itself, or the CPU if it has no float64.

    Clocks, random numbers and the counts of embeddings need float64, a network does not. So next to a device without it
    states are drawn, sequences generated and likelihoods computed on the CPU, and only the network, its loss and its
    gradients are on the device; numbers are rounded to float32 where the two meet, as they are everywhere.

    >>> float64_device("cuda:1"), float64_device("mps")
    (device(type='cuda', index=1), device(type='cpu'))
    """
    device = torch.device(device)
    return torch.device("cpu") if device.type in _WITHOUT_FLOAT64 else device
