"""Choose which masks to reveal first.

A policy scores every mask; the highest scores are revealed first. By the any-order theorem any policy that looks at the
state and at f, and not at the drawn token, leaves the sampled law unchanged.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flexmdm.canvas import Canvas
from flexmdm.randomness import StepRandomness

Policy = Callable[[Tensor, Canvas, StepRandomness], Tensor]
"""(log_probs ``[M, V]``, canvas, rng) -> score of each mask ``[M]``."""


def random_order(log_probs: Tensor, canvas: Canvas, rng: StepRandomness) -> Tensor:
    """Return random scores."""
    masks = canvas.masks
    return rng.uniform("policy", canvas.tokens.rows[masks], canvas.tokens.columns[masks])


def top_prob(log_probs: Tensor, canvas: Canvas, rng: StepRandomness) -> Tensor:
    """Return max_v log f[i, v]."""
    return log_probs.amax(1)


def margin(log_probs: Tensor, canvas: Canvas, rng: StepRandomness) -> Tensor:
    """Return the lead of the most probable token over the next."""
    if log_probs.shape[1] == 1:
        return torch.ones_like(log_probs[:, 0])
    best = log_probs.topk(2, dim=1).values.exp()
    return best[:, 0] - best[:, 1]


def entropy(log_probs: Tensor, canvas: Canvas, rng: StepRandomness) -> Tensor:
    """Return minus the entropy of f[i]."""
    probs = log_probs.exp()
    return (probs * log_probs.masked_fill(probs == 0, 0.0)).sum(1)


def left_to_right(log_probs: Tensor, canvas: Canvas, rng: StepRandomness) -> Tensor:
    """Return scores that put the leftmost mask first."""
    return -canvas.tokens.columns[canvas.masks].double()


POLICIES: dict[str, Policy] = {
    "random": random_order,
    "top_prob": top_prob,
    "margin": margin,
    "entropy": entropy,
    "left_to_right": left_to_right,
}


def policy_named(name: str | Policy) -> Policy:
    """Return a policy by its name, or the function itself."""
    if not isinstance(name, str):
        return name
    if name not in POLICIES:
        raise ValueError(f"unknown confidence {name!r}; the known ones are {', '.join(POLICIES)}")
    return POLICIES[name]
