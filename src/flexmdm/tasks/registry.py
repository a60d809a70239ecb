"""The registry of tasks: a new task is one folder beside this file and one line below.

Nothing heavy is imported before a task is used: `flexmdm --help` reads the settings alone.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flexmdm.tasks.task import Task

_TASKS: dict[str, tuple[str | type, str | type]] = {  # name: settings, task
    "text": ("flexmdm.tasks.text.settings:TextSettings", "flexmdm.tasks.text.task:TextTask"),
    "sft": ("flexmdm.tasks.sft.settings:SFTSettings", "flexmdm.tasks.sft.task:SFTTask"),
    "code": ("flexmdm.tasks.code.settings:CodeSettings", "flexmdm.tasks.code.task:CodeTask"),
    "maze": ("flexmdm.tasks.maze.settings:MazeSettings", "flexmdm.tasks.maze.task:MazeTask"),
}
PRETRAINED = Path(__file__).parents[1] / "pretrained"  # the weights that come with the package, by name
DEFAULT_TASK = "text"  # of a file whose task nobody names


def register(name: str, task: type[Task]) -> None:
    """Make a task known by its name, as those above are."""
    _TASKS[name] = task, task


def task_names() -> list[str]:
    """Return the names of all tasks."""
    return list(_TASKS)


def settings_class(name: str | None) -> type[Any]:
    """Return the class with the settings of a task, by its name."""
    return _resolved(_entry(name)[0])


def task_class(name: str | None) -> type[Task]:
    """Return the class of a task, by its name."""
    return _resolved(_entry(name)[1])


def task_of(stored: dict[str, Any], folder: Path | None = None) -> Task:
    """Return the task that its ``to_dict`` wrote down, with what it left in the ``folder`` of its run."""
    return task_class(stored.get("name")).from_dict(stored, folder)


def _entry(name: str | None) -> tuple[str | type, str | type]:
    if name not in _TASKS:
        *others, last = _TASKS
        raise ValueError(f"unknown task {name!r}; the known ones are {', '.join(others)} and {last}")
    return _TASKS[str(name)]


def _resolved(found: str | type) -> Any:
    if not isinstance(found, str):
        return found
    module, _, name = found.partition(":")
    return getattr(import_module(module), name)
