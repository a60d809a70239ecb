"""Trained models back from their folders; light, as commands that only use a model wait for it."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from flexmdm.backbones.model import FlexMDMConfig, FlexMDMModel
from flexmdm.tasks import task_of
from flexmdm.training.checkpoints import checkpoints, latest, step_of
from flexmdm.training.config import RunConfig
from flexmdm.training.ema import EMA

WEIGHTS_FILE = "model.safetensors"
PRETRAINED = Path(__file__).parents[1] / "pretrained"


def load(folder: Path, device: str | None = None) -> tuple[Any, FlexMDMModel]:
    """The task and the trained model of a run: its averaged weights, or those of its latest whole checkpoint.

    Of a run that ended and goes on, the latest checkpoint counts. The default device is a GPU, if there is one.
    """
    quiet_transformers()
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    checkpoint = None
    if not (folder / WEIGHTS_FILE).is_file():
        RunConfig.read(folder)  # says so if this is no run
        checkpoint = latest(folder, warnings.warn)
        if checkpoint is None:
            raise ValueError(f"{folder} has no weights yet: train it first, or go on with flexmdm train --resume")
    elif not (folder / "config.json").is_file():
        raise ValueError(f"{folder} is not a run: it has no config.json beside its weights")
    elif (step := json.loads((folder / "config.json").read_text()).get("step")) is not None:
        newer = any(step_of(other) > step for other in checkpoints(folder))
        newest = latest(folder, warnings.warn) if newer else None
        checkpoint = newest if newest is not None and step_of(newest) > step else None
    if checkpoint is not None:
        warnings.warn(f"{folder} is being trained, or was interrupted: this is its {checkpoint.name}", stacklevel=2)
    model = model_of(folder, device) if checkpoint is None else averaged(checkpoint)
    if model.config.task is None:
        raise ValueError(f"{folder} holds a model that was not trained on a task of flexmdm")
    return task_of(model.config.task, folder), model.to(device).eval()


def averaged(checkpoint: Path) -> FlexMDMModel:
    """The model of a checkpoint with the average of its weights."""
    model = model_of(checkpoint)
    average = EMA(model, decay=0.0)
    average.load(checkpoint)
    average.apply()
    return model.eval()


def model_of(folder: Path, device: str = "cpu") -> FlexMDMModel:
    """The model in a folder, of whichever kind it is; frozen weights go straight to a GPU."""
    config = json.loads((folder / "config.json").read_text())
    if config.get("model_type") != FlexMDMConfig.model_type:
        from flexmdm.backbones.retrofit import RetrofitModel

        placed: dict[str, Any] = {} if device == "cpu" else {"device_map": {"": device}}
        return RetrofitModel.from_pretrained(folder, **placed)
    return FlexMDMModel.from_pretrained(folder, dtype=torch.float32)


def load_named(folder: Path | None, pretrained: str | None, device: str | None = None) -> tuple[Any, FlexMDMModel]:
    """A run by its folder, or weights that come with the package by their name."""
    if folder is not None and pretrained is None:
        return load(folder, device)
    if folder is not None or pretrained is None:
        raise ValueError("give the folder of a run, or --pretrained NAME for weights that come with flexmdm")
    if not (PRETRAINED / pretrained / WEIGHTS_FILE).is_file():
        known = sorted(f.parent.name for f in PRETRAINED.glob(f"*/{WEIGHTS_FILE}"))
        raise ValueError(f"there are no weights named {pretrained!r}; there are: {', '.join(known) or 'none'}")
    return load(PRETRAINED / pretrained, device)


def load_as(kind: type, what: str, run: str | Path, device: str | None = None) -> tuple[Any, FlexMDMModel]:
    """A run by its folder, or weights of the package by their name; its task must be of a ``kind``, called ``what``."""
    bundled = not Path(run).exists() and (PRETRAINED / str(run)).is_dir()
    task, model = load(PRETRAINED / str(run) if bundled else Path(run), device)
    if not isinstance(task, kind):
        raise ValueError(f"{run} was trained on the task {task.name}, not on {what}")
    return task, model


def quiet_transformers() -> None:
    """No bars and no advice from the libraries: a run has its own."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
