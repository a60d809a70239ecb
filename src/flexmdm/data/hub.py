"""Rows of Hugging Face datasets, streamed: from the hub, or from a folder."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flexmdm.data.compressed import inner_ending
from flexmdm.data.formats import READERS, Row

_BY_SCRIPT, _CONVERTED = "Dataset scripts are no longer supported", "refs/convert/parquet"


def dataset_name(path: str) -> str | None:
    """Return ``NAME`` or ``NAME:SPLIT`` of a Hugging Face dataset; ``None`` if the path is a file or folder."""
    if path.startswith("hf:"):
        return path.removeprefix("hf:")
    looks_like_one = re.fullmatch(r"\w[\w.-]*/[\w.-]+", path) and inner_ending(Path(path)) not in READERS
    return path if looks_like_one and not Path(path).exists() else None


def dataset_rows(path: str, name: str) -> Iterator[Row]:
    """Yield the rows of the dataset ``name``, which a source calls ``path`` (see `flexmdm.data.formats`)."""
    name, _, split = name.partition(":")
    parts = re.fullmatch(r"([\w.-]+/[\w.-]+)/([\w.-]+)", name) if not Path(name).exists() else None
    name, configuration = parts.groups() if parts else (name, None)
    try:
        for number, row in enumerate(_load(path, name, configuration, split or "train"), 1):
            yield f"row {number}", row
    except Exception as error:  # of any kind: network, hub, file formats
        raise ValueError(_cannot_be_read(path, name, error)) from error


def _load(path: str, name: str, configuration: str | None, split: str) -> Any:
    """Open a dataset; for one that only a loading script can read, what the hub converted of it."""
    from datasets import load_dataset

    try:
        return load_dataset(*filter(None, (name, configuration)), split=split, streaming=True)
    except RuntimeError as error:
        if _BY_SCRIPT not in str(error):
            raise
        try:  # where configurations are folders
            rows = load_dataset(name, data_dir=configuration, revision=_CONVERTED, split=split, streaming=True)
        except Exception:
            raise error from None  # which says more
    warnings.warn(
        f"{path} has a loading script, which datasets does not run any more: reading what the Hub converted to "
        f"parquet instead, which of a large dataset is only the beginning; for all of it {_fetch(name)}",
        stacklevel=1,
    )
    return rows


def _cannot_be_read(path: str, name: str, error: Exception) -> str:
    no_file = "" if path.startswith("hf:") else "there is no such file or folder, and "
    advice = ""
    if _BY_SCRIPT in str(error):
        advice = f", nor what the Hub converted it to (revision {_CONVERTED}): {_fetch(name)}"
    return f"{path}: {no_file}the Hugging Face dataset cannot be read ({type(error).__name__}: {error}){advice}"


def _fetch(name: str) -> str:
    return f"fetch its files (hf download {name} --repo-type dataset --local-dir FOLDER) and give the folder"
