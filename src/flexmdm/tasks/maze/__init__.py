"""The maze task: a path through a maze that passes given subgoals in order."""

from flexmdm.tasks.maze.checker import Checked, check
from flexmdm.tasks.maze.grid import Maze
from flexmdm.tasks.maze.paths import PathData, choose_subgoals, make_paths, through_template
from flexmdm.tasks.maze.task import MazeTask

__all__ = [
    "Checked",
    "Maze",
    "MazeTask",
    "PathData",
    "check",
    "choose_subgoals",
    "make_paths",
    "through_template",
]
