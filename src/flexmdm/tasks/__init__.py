"""Tasks: data, prompt format and metric, each in one place."""

from __future__ import annotations

from typing import Any


def task_of(stored: dict[str, Any]) -> Any:
    """The task that its ``to_dict`` wrote down."""
    if stored.get("name") == "maze":
        from flexmdm.tasks.maze import MazeTask

        return MazeTask.from_dict(stored)
    raise ValueError(f"unknown task {stored.get('name')!r}; the known one is maze")
