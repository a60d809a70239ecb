"""Trained models back from their folders; light, as commands that only use a model wait for it."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import torch
from transformers.utils import logging as transformers_logging

from flexmdm.backbones.folders import has_extras
from flexmdm.backbones.model import FlexMDMConfig, FlexMDMModel
from flexmdm.training.checkpoints import checkpoints, latest, step_of
from flexmdm.training.ema import EMA
from flexmdm.training.recipe import RUN_FILE

WEIGHTS_FILE, CONFIG_FILE = "model.safetensors", "config.json"


def trained_model(folder: Path, device: str | None = None) -> FlexMDMModel:
    """Load the model of a run: its averaged weights, or those of its latest whole checkpoint.

    Of a run that ended and goes on, the latest checkpoint counts. A published checkpoint is what it is. The default
    device is a GPU, if there is one.
    """
    quiet_transformers()
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if has_extras(folder):
        return stored_model(folder, device).to(device).eval()
    checkpoint = _newer_checkpoint(folder)
    if checkpoint is not None:
        warnings.warn(f"{folder} is being trained, or was interrupted: this is its {checkpoint.name}", stacklevel=3)
    model = stored_model(folder, device) if checkpoint is None else averaged(checkpoint)
    return model.to(device).eval()


def _newer_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint to load instead of the weights in the folder itself, if it is newer or there are none."""
    if not folder.exists():
        raise ValueError(f"{folder} is not a run: there is no such folder")
    if not (folder / WEIGHTS_FILE).is_file():
        if not (folder / RUN_FILE).is_file():
            raise ValueError(
                f"{folder} is not a run: it has no {RUN_FILE}. Give the folder that `flexmdm train --out` wrote"
            )
        checkpoint = latest(folder, warnings.warn)
        if checkpoint is None:
            raise ValueError(f"{folder} has no weights yet: train it first, or go on with flexmdm train --resume")
        return checkpoint
    if not (folder / CONFIG_FILE).is_file():
        raise ValueError(f"{folder} is not a run: it has no {CONFIG_FILE} beside its weights")
    found = checkpoints(folder)  # the latest first
    step = json.loads((folder / CONFIG_FILE).read_text()).get("step") if found else None
    if step is None or step_of(found[0]) <= step:
        return None
    newest = latest(folder, warnings.warn)
    return newest if newest is not None and step_of(newest) > step else None


def averaged(checkpoint: Path) -> FlexMDMModel:
    """Load the model of a checkpoint with the average of its weights."""
    model = stored_model(checkpoint)
    average = EMA(model, decay=0.0)
    average.load(checkpoint)
    average.apply()
    return model.eval()


def stored_model(folder: Path, device: str = "cpu") -> FlexMDMModel:
    """Load the model in a folder, of whichever class its configuration says; frozen weights go straight to a GPU."""
    config = json.loads((folder / CONFIG_FILE).read_text())
    if config.get("model_type") == FlexMDMConfig.model_type:
        ours = FlexMDMConfig.from_dict(config)
        return FlexMDMModel.from_pretrained(folder, stored=config, config=ours, dtype=torch.float32)
    return FlexMDMModel.from_pretrained(folder, device_map=None if device == "cpu" else {"": device})


def quiet_transformers() -> None:
    """Silence the bars and the advice of the libraries: a run has its own."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
