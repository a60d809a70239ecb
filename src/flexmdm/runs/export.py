"""Write trained weights: into the folder of a run, with adapters merged, or as a checkpoint of LLaDA."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch

from flexmdm.backbones.folders import has_extras
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


def export(run: Path, out: Path, as_llada: bool = False) -> None:
    """Write a run whose adapters are merged, so that it needs neither them nor its base.

    A FlexMDM in the layout that others published it in becomes a run. Of a run in LLaDA's shape the pretrained part can
    be written ``as_llada``, as a checkpoint of LLaDA.
    """
    from flexmdm.backbones import llada
    from flexmdm.backbones.retrofit import RetrofitModel

    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty: choose another --out")
    task, model = load(run, "cpu" if as_llada else None)
    adapters = getattr(model.config, "lora", None)
    encoder: Any = getattr(model.config, "encoder_config", None)
    if as_llada and getattr(encoder, "model_type", "") != "llama":
        raise ValueError(f"{run} is not in the shape of LLaDA: only what is can be written under its names")
    if not as_llada and adapters is None and not has_extras(run):
        raise ValueError(f"{run} has no adapters to merge")
    whole = cast(RetrofitModel, model).merged() if adapters is not None else model
    if as_llada:
        llada.export(whole.network, encoder, model.config.mask_id, out, getattr(task, "pad_id", None))
    else:
        out.mkdir(parents=True, exist_ok=True)
        save_weights(whole, out)
    task.save(out)
