"""Write trained weights: into the folder of a run, with adapters merged, or as a checkpoint of LLaDA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.tasks.loading import load
from flexmdm.training.models import WEIGHTS_FILE


def save_weights(model: FlexMDMModel, folder: Path, weights: dict[str, torch.Tensor] | None = None) -> None:
    """Put weights and configuration in the folder of the run, the weights last and never half of them."""
    draft = folder / "weights.new"
    model.save_pretrained(draft, state_dict=weights)
    for file in sorted(draft.iterdir(), key=lambda file: file.name == WEIGHTS_FILE):
        file.replace(folder / file.name)
    draft.rmdir()


def export_merged(run: Path, out: Path) -> None:
    """Write a run with adapters as one that needs neither them nor its base."""
    _check_empty(out)
    from flexmdm.backbones.retrofit import RetrofitModel

    task, model = load(run)
    if not isinstance(model, RetrofitModel) or model.config.lora is None:
        raise ValueError(f"{run} has no adapters to merge")
    out.mkdir(parents=True, exist_ok=True)
    save_weights(model.merged(), out)
    task.save(out)


def export_llada(run: Path, out: Path) -> None:
    """Write the pretrained part of a run in LLaDA's shape, adapters merged, as a checkpoint of LLaDA."""
    _check_empty(out)
    from flexmdm.backbones import llada
    from flexmdm.backbones.retrofit import RetrofitModel

    task, model = load(run, "cpu")
    encoder: Any = getattr(model.config, "encoder_config", None)
    if not isinstance(model, RetrofitModel) or encoder.model_type != "llama":
        raise ValueError(f"{run} is not in the shape of LLaDA: only what is can be written under its names")
    model = model.merged() if model.config.lora is not None else model
    llada.export(model.network, encoder, model.config.mask_id, out, getattr(task, "pad_id", None))
    task.save(out)


def _check_empty(out: Path) -> None:
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty: choose another --out")
