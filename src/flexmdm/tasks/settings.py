"""The settings that tasks have in common, apart from their code: light enough for `flexmdm --help`.

A field is an option of ``flexmdm train``, a key of ``[task]`` in a configuration file and a key of a run.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import KW_ONLY, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from flexmdm.settings import setting
from flexmdm.tasks.models import FLEXMDM


def weights(text: str) -> dict[str, float]:
    """Return the weights that a text such as ``prefix=1,spans=2`` names."""
    try:
        pairs = (part.split("=") for part in text.split(","))
        return {name.strip(): float(weight) for name, weight in pairs}
    except ValueError:
        raise ValueError(f"--mixture is a list such as unconditional=1,prefix=0.5; got {text!r}") from None


def full_mixture(given: dict[str, float], known: Collection[str]) -> dict[str, float]:
    """Return all weights of a mixture in the order of their ``known`` names; those that are not given are 0."""
    if not set(given) <= set(known):
        raise ValueError(f"a mixture has the weights {', '.join(known)}; got {', '.join(given)}")
    return {name: float(given.get(name, 0.0)) for name in known}


class Stored:
    """Settings that a run writes down and reads back."""

    def to_dict(self) -> dict[str, Any]:
        """Return all settings as JSON has them."""
        stored = asdict(self)  # ty: ignore[invalid-argument-type]
        stored.pop("folder", None)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in stored.items()}

    @classmethod
    def from_dict(cls, stored: dict[str, Any], folder: Path | None = None) -> Self:
        """Return the settings that ``to_dict`` wrote down; those of a run know its ``folder``, if they have one."""
        values: dict[str, Any] = {key: value for key, value in stored.items() if key != "name"}
        every = [one.name for one in fields(cls) if one.init]  # ty: ignore[invalid-argument-type]
        known = [name for name in every if name != "folder"]
        if unknown := sorted(set(values) - set(known)):
            name = getattr(cls, "name", cls.__name__)
            raise ValueError(f"the {name} task has no {', '.join(unknown)}; it knows {', '.join(known)}")
        return cls(**values, **({"folder": folder} if "folder" in every else {}))


@dataclass(frozen=True)
class FileSettings(Stored):
    """The settings that all tasks on a user's own files have; see also `flexmdm.data.Preparation`."""

    data: tuple[str, ...] = ()  # files, folders or data sets
    model: str = FLEXMDM
    _: KW_ONLY
    skip_bad: bool = setting(False, help="Count lines that cannot be read and go on, rather than stop at the first.")
    tokenizer: str = setting(
        "auto", help="Tokenizer: characters, bytes, bpe, or one of Hugging Face. [default: by the data; code: bpe]"
    )
    vocabulary: int | None = setting(None, help="Number of tokens of a BPE.", flag="--vocab-size", min=2)
    max_length: int = setting(256, help="Most tokens of a sequence. [default: 256]", min=1)
    held_out: float = 0.05
    held_out_data: tuple[str, ...] = ()  # held out instead of a share of the data
    data_seed: int = 0  # of the split and of what is random in the examples
    contents: str | None = None  # digest of the data that the run began with, held-out data too, see `settled`
    longest: int | None = None  # tokens of the longest sequence, to which MDM pads, see `settled`
    folder: Path | None = None  # with the tokenizer, for a task that has been trained already
    name: str = field(default="", init=False)

    def __post_init__(self) -> None:
        for name in ("data", "held_out_data"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(map(str, value)))
        if self.max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {self.max_length}")
