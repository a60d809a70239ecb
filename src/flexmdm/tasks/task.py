"""The contract of a task: data, prompts and answers of one domain, in a form that every command can ask."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import torch
from torch import Tensor

from flexmdm.sequences import Ragged
from flexmdm.tasks.layouts import Layout
from flexmdm.training.collation import Examples

if TYPE_CHECKING:  # seconds to import; whoever has a model has done so
    from rich.console import Console

    from flexmdm.backbones.model import FlexMDMModel
    from flexmdm.canvas import Template


class HeldOut(Examples, Protocol):
    """Held-out examples, which also know what is to be found in each of them."""

    def some(self, num: int, seed: int = 0) -> Tensor:
        """Return the indices of ``num`` of them at random, or of all: files are often sorted."""
        return torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))[:num]

    def to_find(self, index: Tensor) -> tuple[Ragged, Template, Tensor, Tensor]:
        """Return sequences ``index`` ``[B]`` and their templates, and how many tokens and characters are not given."""


class Task(Protocol):
    """A domain that models are trained on; a frozen dataclass that a run stores by its ``to_dict``."""

    nouns: ClassVar[str]  # what its data is called in errors
    previews: ClassVar[bool]  # whether answers and likelihoods are looked at while a model trains

    @property
    def name(self) -> str:
        """Return the name by which it is registered."""

    @property
    def model(self) -> str:
        """Name the kind of model that its examples are for, see `flexmdm.tasks.layouts`."""

    @property
    def layout(self) -> Layout:
        """Return how its sequences are laid out for that kind of model."""

    @property
    def max_length(self) -> int: ...

    @property
    def width(self) -> int:
        """Return the most entries that a state of a held-out sequence has."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def train(self) -> Examples: ...

    @property
    def validation(self) -> HeldOut: ...

    def settled(self, console: Console | None = None) -> Self:
        """Return the same task with everything chosen that was left open; prepares the data if need be."""

    def check_base(self, base: str, vocab_size: int | None = None) -> None:
        """Raise if a pretrained model has other tokens than the data, or (of ``vocab_size``) too few."""

    def save(self, folder: Path) -> None:
        """Write to a run's folder what is needed to use it, beyond ``to_dict``."""

    def show(self, tokens: Sequence[int | None]) -> str:
        """Return a state in the user's words; ``None`` is a mask."""

    def pipeline(self, model: FlexMDMModel) -> Any:
        """Return the pipeline that samples, completes or infills with a model."""

    def to_dict(self) -> dict[str, Any]: ...

    @classmethod
    def from_dict(cls, stored: dict[str, Any], folder: Path | None = None) -> Self:
        """Return the task that ``to_dict`` wrote down, with what it left in the ``folder`` of its run."""
