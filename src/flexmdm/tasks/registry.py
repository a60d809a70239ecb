"""The registry of tasks: a new task is one folder beside this file and one entry below.

Nothing heavy is imported before a task is used: `flexmdm --help` reads the settings alone.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flexmdm.tasks.task import Task

# The folder of each task, and how the names of its classes begin: TextSettings in text/settings.py, TextTask in
# text/task.py, TextPipeline in text/pipeline.py. A task from elsewhere is its own class.
_TASKS: dict[str, str | type] = {"text": "Text", "sft": "SFT", "code": "Code", "maze": "Maze"}
PRETRAINED = Path(__file__).parents[1] / "pretrained"  # the weights that come with the package, by name
DEFAULT_TASK = "text"  # of a file whose task nobody names
WRITES, PLANS = "text", "maze"  # the tasks whose runs are measured by their samples, and by their paths


def register(name: str, task: type[Task]) -> None:
    """Make a task known by its name, as those above are."""
    _TASKS[name] = task


def task_names() -> list[str]:
    """Return the names of all tasks."""
    return list(_TASKS)


def settings_class(name: str | None) -> type[Any]:
    """Return the class with the settings of a task, by its name."""
    return class_of(name, "Settings")


def task_class(name: str | None) -> type[Task]:
    """Return the class of a task, by its name."""
    return class_of(name, "Task")


def task_of(stored: dict[str, Any], folder: Path | None = None) -> Task:
    """Return the task that its ``to_dict`` wrote down, with what it left in the ``folder`` of its run."""
    return task_class(stored.get("name")).from_dict(stored, folder)


def class_of(name: str | None, part: str) -> Any:
    """Return a class of a task, by its name: its Settings, Task or Pipeline."""
    if name not in _TASKS:
        *others, last = _TASKS
        raise ValueError(f"unknown task {name!r}; the known ones are {', '.join(others)} and {last}")
    found = _TASKS[str(name)]
    if not isinstance(found, str):
        return found
    return getattr(import_module(f"flexmdm.tasks.{name}.{part.lower()}"), found + part)
