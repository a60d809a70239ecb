"""The settings of a maze: options, configuration and what a run stores of its task."""

from __future__ import annotations

from dataclasses import dataclass, field

from flexmdm.settings import setting
from flexmdm.tasks.models import FLEXMDM
from flexmdm.tasks.settings import Stored


def span(text: str) -> list[int]:
    """Return both ends of a range: '2-12' is from 2 to 12, '7' is 7 only."""
    try:
        low, _, high = text.partition("-")
        return [int(low), int(high or low)]
    except ValueError:
        raise ValueError(f"--subgoals is a number or a range such as 2-12, got {text!r}") from None


@dataclass(frozen=True)
class MazeSettings(Stored):
    """The settings of a maze.

    Attributes:
        size, maze_seed, extra_doors: of `flexmdm.tasks.maze.grid.Maze.division`.
        subgoals: the fewest and the most subgoals K of a training example, both drawn evenly; one number is both.
        model: the kind of model that the examples are for.
        pairs, paths_per_pair, held_out, data_seed: of the paths.
    """

    size: int = 41
    subgoals: tuple[int, int] = setting(
        (2, 12), help="Number of subgoals, from-to or one number. [default: 2-12]", parse=span
    )
    model: str = FLEXMDM
    maze_seed: int = 2025
    extra_doors: float = 0.5
    pairs: int = setting(15000, help="Number of start-goal pairs. [default: 15000]")
    paths_per_pair: int = 10
    held_out: float = 0.05
    data_seed: int = 0
    name: str = field(default="maze", init=False)
