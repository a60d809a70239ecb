"""Trained runs back from their folders: the task and the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flexmdm.backbones.folders import local_folder
from flexmdm.backbones.model import FlexMDMModel
from flexmdm.data.reading import absolute
from flexmdm.tasks.registry import PRETRAINED, task_class, task_of
from flexmdm.tasks.task import Task
from flexmdm.training.models import WEIGHTS_FILE, trained_model


def load(folder: Path, device: str | None = None) -> tuple[Task, FlexMDMModel]:
    """Load the task and the trained model of a run or of a published checkpoint, here or by its name on the Hub.

    The default device is a GPU, if there is one.
    """
    folder = local_folder(folder)
    model = trained_model(folder, device)
    if model.config.task is None:
        raise ValueError(f"{folder} holds a model that was not trained on a task of flexmdm")
    return task_of(model.config.task, folder), model


def load_named(folder: Path | None, pretrained: str | None, device: str | None = None) -> tuple[Task, FlexMDMModel]:
    """Load a run by its folder, or weights that come with the package by their name."""
    if folder is not None and pretrained is None:
        return load(folder, device)
    if folder is not None or pretrained is None:
        raise ValueError("give the folder of a run, or --pretrained NAME for weights that come with flexmdm")
    if not (PRETRAINED / pretrained / WEIGHTS_FILE).is_file():
        known = sorted(f.parent.name for f in PRETRAINED.glob(f"*/{WEIGHTS_FILE}"))
        raise ValueError(f"there are no weights named {pretrained!r}; there are: {', '.join(known) or 'none'}")
    return load(PRETRAINED / pretrained, device)


def load_run(run: str | Path, device: str | None = None, data: Sequence[str | Path] = ()) -> tuple[Any, FlexMDMModel]:
    """Load the folder of a run, or weights of the package by their name.

    ``data`` are the files that it was trained on, if they are not where they were.
    """
    bundled = not Path(run).exists() and (PRETRAINED / run).is_dir()
    task, model = load(PRETRAINED / run if bundled else Path(run), device)
    settings: Any = task
    return (replace(settings, data=tuple(absolute(str(file)) for file in data)) if data else task), model


def load_as(
    name: str, run: str | Path, device: str | None = None, data: Sequence[str | Path] = ()
) -> tuple[Any, FlexMDMModel]:
    """Load a run as `load_run` does, which must have been trained on the task ``name``."""
    task, model = load_run(run, device, data)
    if not isinstance(task, task_class(name)):
        raise ValueError(f"{run} was trained on the task {task.name}, not on {task_class(name).nouns}")
    return task, model
