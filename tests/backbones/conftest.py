"""A network that is not at its initialisation, where much is zero and much would go unnoticed."""

import pytest
import torch

from flexmdm.backbones.dit import DiT


def _randomised(network, seed=0):
    """The same network with every parameter drawn anew, so that every path through it matters."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in network.named_parameters():
            scale = 0.3 if p.ndim == 1 else 1.0 if "embedding" in name else p.shape[1] ** -0.5
            p.copy_(scale * torch.randn(p.shape, generator=generator))
    return network


@pytest.fixture(scope="session")
def randomised():
    return _randomised


@pytest.fixture(scope="session")
def network():
    """Three layers, four heads, seven tokens; for evaluation. Tests must leave it as it is."""
    return _randomised(DiT(7, hidden=32, layers=3, heads=4, condition=16)).eval()
