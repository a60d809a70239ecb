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
    """The settings of a maze: of `Maze.division`, of its paths, and the kind of model that the examples are for.

    An example has from the fewest to the most ``subgoals``, each number as often; one number is both.
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
