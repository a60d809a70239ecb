"""FSDP: each process holds its share of every weight, gradient and moment, and gathers a block when it needs it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor


def shard(network: nn.Module) -> None:
    """Cut the weights of a network over all processes, one block at a time."""
    from torch.distributed.fsdp import fully_shard

    for block in network.get_submodule("blocks").children():
        fully_shard(block)
    fully_shard(network, reshard_after_forward=True)  # or a step after an evaluation would see the averaged weights


def is_sharded(model: nn.Module) -> bool:
    """Return whether this process holds only shares of the weights."""
    return any(isinstance(p, DTensor) for p in model.parameters())


def set_timeout(seconds: float) -> None:
    """Set how long processes wait for each other, from now on, before they take one for lost."""
    if dist.is_initialized():
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds))


def shard_like(value: Tensor, weight: Tensor) -> Tensor:
    """Return this process's share of a ``value``, cut as the ``weight`` is."""
    if not isinstance(weight, DTensor):
        return value
    return distribute_tensor(value.to(weight.device), weight.device_mesh, weight.placements)


def gathered(named: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """Gather each whole tensor in the memory of the processes that ``keep`` them; every process must call this."""
    kept = {}
    for name, value in named.items():
        all_of_it = whole(value)
        if keep:
            kept[name] = all_of_it.cpu()
    return kept


def whole(value: Tensor) -> Tensor:
    """Return the whole tensor; every process must call this."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def here(value: Tensor) -> Tensor:
    """Return this process's share of a tensor."""
    return value.to_local() if isinstance(value, DTensor) else value


def whole_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the state of an optimizer of sharded weights; every process must call this."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

    return get_optimizer_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load what `whole_optimizer` returned into an optimizer, on any number of processes."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

    set_optimizer_state_dict(model, optimizer, state, options=StateDictOptions(full_state_dict=True))
