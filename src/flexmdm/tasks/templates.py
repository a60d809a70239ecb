"""Templates that several tasks have."""

from __future__ import annotations

import torch
from torch import Tensor

from flexmdm.canvas import Template
from flexmdm.sequences import Ragged


def prefix_templates(x1: Ragged, prompts: Tensor) -> Template:
    """Fix the first ``prompts`` ``[B]`` tokens of each sequence; only the gap behind them is open.

    That gap is open for an empty answer too, so that nothing tells its length.

    >>> template = prefix_templates(Ragged.from_lists([[5, 6, 7, 8], [5, 6]]), torch.tensor([2, 2]))
    >>> template.roles.tolist(), template.open_gaps.tolist()
    ([[2, 2, 0, 0], [2, 2]], [[False, False, True], [False, False, True]])
    """
    gaps = Ragged(torch.zeros(int((prompts + 1).sum()), dtype=torch.bool), prompts + 1)
    gaps.values[gaps.offsets[1:] - 1] = True
    return Template.fixed(x1, x1.columns < prompts[x1.rows], gaps)
