"""Optimizers: AdamW, or Muon for the matrices of the blocks beside AdamW for everything else."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from flexmdm.training.config import Recipe


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
    """The optimizer of a recipe. Biases do not decay; Muon's steps are scaled to the size of AdamW's."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    matrices = [p for name, p in named if recipe.optimizer == "muon" and _is_block_matrix(name, p)]
    taken = {id(p) for p in matrices}
    rest = [p for _, p in named if id(p) not in taken]
    groups = [
        {"params": [p for p in rest if p.ndim >= 2], "weight_decay": recipe.weight_decay},
        {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, recipe.beta2), fused=False)
    if not matrices:
        return adamw
    muon = torch.optim.Muon(
        matrices, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, adjust_lr_fn="match_rms_adamw"
    )
    return Together(muon, adamw)


def _is_block_matrix(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim == 2 and "blocks." in name and "modulation" not in name
