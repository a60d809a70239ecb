"""Tasks: data, prompt format and metric, each in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from rich.console import Console

    from flexmdm.backbones.model import FlexMDMModel
    from flexmdm.training.collation import Examples


class Task(Protocol):
    """What a model learns to do; a frozen dataclass that a run stores by its ``to_dict``."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str:
        """``flexmdm`` or ``mdm``."""
        ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def train(self) -> Examples: ...

    @property
    def validation(self) -> Examples: ...

    def settled(self, console: Console | None = None) -> Self:
        """The same with everything chosen that was left open."""
        ...

    def save(self, folder: Path) -> None:
        """Leave in a run's folder what is needed to use it, beyond ``to_dict``."""
        ...

    def show(self, tokens: Sequence[int | None]) -> str:
        """A state in the user's words; ``None`` is a mask."""
        ...

    def preview(self, folder: Path, console: Console) -> Callable[[FlexMDMModel, int], dict[str, float]] | None:
        """What to look at whenever the loss is evaluated: shows something, and returns figures for the log."""
        ...

    def to_dict(self) -> dict[str, Any]: ...


def task_of(stored: dict[str, Any], folder: Path | None = None) -> Any:
    """The task that its ``to_dict`` wrote down, with what it left in the ``folder`` of its run."""
    if stored.get("name") == "maze":
        from flexmdm.tasks.maze import MazeTask

        return MazeTask.from_dict(stored)
    if stored.get("name") == "text":
        from flexmdm.tasks.text import TextTask

        return TextTask.from_dict(stored, folder)
    if stored.get("name") == "sft":
        from flexmdm.tasks.sft import SFTTask

        return SFTTask.from_dict(stored, folder)
    if stored.get("name") == "code":
        from flexmdm.tasks.code import CodeTask

        return CodeTask.from_dict(stored, folder)
    raise ValueError(f"unknown task {stored.get('name')!r}; the known ones are maze, text, sft and code")
