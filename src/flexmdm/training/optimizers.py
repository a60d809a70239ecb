"""Optimizers: AdamW, or Muon for the matrices of the blocks beside AdamW for everything else."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from flexmdm.training.recipe import Recipe


class Muon(torch.optim.Optimizer):
    """Momentum whose step has all singular values near 1, by Newton-Schulz iterations, at the scale of AdamW's steps.

    Unlike `torch.optim.Muon` it iterates on all matrices of one shape at once, in their own precision unless
    ``in_bfloat16`` (which most CPUs are several times slower with), and takes a stack of matrices, such as the
    projections to queries, keys and values, apart: ``pieces`` of a group of parameters says how many lie on top of each
    other. The momentum is Nesterov's.
    """

    def __init__(
        self, params: Any, lr: float, weight_decay: float = 0.0, momentum: float = 0.95, in_bfloat16: bool = False
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "pieces": 1})
        self._in_bfloat16 = in_bfloat16

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None if closure is None else closure()
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    by_shape.setdefault(p.shape, []).append(p)
            for shape, members in by_shape.items():
                self._step_together(members, shape, group)
        return loss

    def _step_together(self, members: list[Tensor], shape: torch.Size, group: dict[str, Any]) -> None:
        for p in members:
            self.state[p].setdefault("momentum", torch.zeros_like(p))
        momenta = [self.state[p]["momentum"] for p in members]
        gradients = [p.grad for p in members if p.grad is not None]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        ahead = torch.stack(torch._foreach_lerp(gradients, momenta, group["momentum"]))
        rows, columns = shape[0] // group["pieces"], shape[1]
        ahead = ahead.view(-1, rows, columns)
        directions = orthogonal(ahead.bfloat16() if self._in_bfloat16 else ahead).to(ahead).view(-1, *shape)
        torch._foreach_mul_(members, 1 - group["lr"] * group["weight_decay"])
        scale = _RMS_OF_ADAMW * max(rows, columns) ** 0.5
        torch._foreach_add_(members, list(directions.unbind(0)), alpha=-group["lr"] * scale)


_RMS_OF_ADAMW = 0.2  # root mean square of the entries of AdamW's steps, in learning rates
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # the quintic that lifts small singular values fastest


def orthogonal(matrices: Tensor, iterations: int = 5) -> Tensor:
    """Return matrices ``[b, m, n]`` with the singular vectors of the given ones and singular values near 1.

    >>> torch.linalg.svdvals(orthogonal(torch.diag(torch.tensor([1.0, 0.5, 0.1]))[None])).round(decimals=1)
    tensor([[1.1000, 0.7000, 0.7000]])
    """
    a, b, c = _NEWTON_SCHULZ
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # no singular value above 1
    for _ in range(iterations):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Together(torch.optim.Optimizer):
    """Several optimizers that step, save and load as one; each keeps its own parameter groups."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._link()

    def _link(self) -> None:
        """Let the parts work on this optimizer's state and groups."""
        first = 0
        for part in self.parts:
            part.state = self.state
            part.param_groups = self.param_groups[first : first + len(part.param_groups)]
            first += len(part.param_groups)

    def step(self, closure: Any = None) -> Any:
        loss = None if closure is None else closure()
        for part in self.parts:
            part.step()
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._link()


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return the optimizer of a recipe; biases do not decay, and factors of adapters are no matrices for Muon."""
    stacks, matrices, rest = [], [], []
    for name, p in model.named_parameters():
        if p.requires_grad:
            other = "blocks." not in name or "modulation" in name or "lora_" in name
            of_block = recipe.optimizer == "muon" and p.ndim == 2 and not other
            (rest if not of_block else stacks if "qkv" in name else matrices).append(p)
    adamw = torch.optim.AdamW(
        [
            {"params": [p for p in rest if p.ndim >= 2], "weight_decay": recipe.weight_decay},
            {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0},
        ],
        lr=recipe.learning_rate,
        betas=(0.9, recipe.beta2),
    )
    if recipe.optimizer == "adamw":
        return adamw
    groups = [{"params": stacks, "pieces": 3}, {"params": matrices}]
    half = recipe.dtype == "bfloat16"
    return Together(Muon(groups, recipe.learning_rate, recipe.weight_decay, in_bfloat16=half), adamw)
