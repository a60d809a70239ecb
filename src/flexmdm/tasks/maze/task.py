"""The maze as a task: training examples, prompts and what to make of the answer, for FlexMDM and for MDM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeGuard

import torch
from rich.console import Console
from torch import Tensor

from flexmdm.canvas import Prompt, Role, Template
from flexmdm.randomness import stream, uniform
from flexmdm.sequences import Ragged
from flexmdm.tasks.maze.grid import Maze
from flexmdm.tasks.maze.paths import PathData, choose_subgoals, distinct_problems, make_paths, through_template

_COUNT = stream("number of subgoals")
_FEWEST = 2  # start and goal


@dataclass(frozen=True)
class MazeTask:
    """Connect K subgoals by a path in a fixed maze that the model has never been shown.

    FlexMDM grows a path between the subgoals, which are fixed tokens. MDM sees ``g1 ... gK SEP path PAD ...`` with all
    behind SEP masked; its PAD is an ordinary token.

    Args:
        size, maze_seed, extra_doors: of `Maze.division`.
        subgoals: the fewest and the most subgoals K of a training example, both drawn evenly; one number is both.
        model: who the examples are for.
        pairs, paths_per_pair, held_out, data_seed: of the paths.

    >>> task = MazeTask(size=7, pairs=50, subgoals=(2, 4))
    >>> x1, template = task.train.take(torch.tensor([0, 1]), torch.tensor([0, 1]))
    >>> len(x1), task.vocab_size
    (2, 49)
    """

    size: int = 41
    subgoals: tuple[int, int] = (2, 12)
    model: Literal["flexmdm", "mdm"] = "flexmdm"
    maze_seed: int = 2025
    extra_doors: float = 0.5
    pairs: int = 15000
    paths_per_pair: int = 10
    held_out: float = 0.05
    data_seed: int = 0
    name: str = field(default="maze", init=False)

    def __post_init__(self) -> None:
        for name in ("size", "maze_seed", "pairs", "paths_per_pair", "data_seed"):
            if not _is_whole(getattr(self, name)):
                raise ValueError(f"{name} of a maze is a whole number, got {getattr(self, name)!r}")
        for name in ("extra_doors", "held_out"):
            if not isinstance(getattr(self, name), float | int):
                raise ValueError(f"{name} of a maze is a share between 0 and 1, got {getattr(self, name)!r}")
        low, high = _span_of(self.subgoals)
        object.__setattr__(self, "subgoals", (low, high))
        if not _FEWEST <= low <= high:
            raise ValueError(f"subgoals count start and goal and rise, such as 2-12; got {low}-{high}")
        if self.model not in ("flexmdm", "mdm"):
            raise ValueError(f"the model is flexmdm or mdm, got {self.model!r}")

    @cached_property
    def maze(self) -> Maze:
        return Maze.division(self.size, self.maze_seed, self.extra_doors)

    @cached_property
    def _split(self) -> tuple[PathData, PathData]:
        data = make_paths(self.maze, self.pairs, self.paths_per_pair, self.data_seed)
        _check_cells(self.subgoals[1], int(data.paths.lengths.max()), "path")
        return data.split(self.held_out, self.data_seed)

    @property
    def separator(self) -> int:
        return self.size**2

    @property
    def pad(self) -> int:
        return self.size**2 + 1

    @property
    def vocab_size(self) -> int:
        """All cells, walls too; for MDM also SEP and PAD."""
        return self.size**2 + (2 if self.model == "mdm" else 0)

    @cached_property
    def longest_path(self) -> int:
        return max(int(part.paths.lengths.max()) for part in self._split)

    @property
    def max_length(self) -> int:
        """No answer gets longer: twice the longest path there is (FlexMDM), or the padded form (MDM)."""
        if self.model == "mdm":
            return self.subgoals[1] + 1 + self.longest_path
        return min(2 * self.longest_path, self.size**2)

    @cached_property
    def train(self) -> MazeExamples:
        return MazeExamples(self, self._split[0])

    @cached_property
    def validation(self) -> MazeExamples:
        return MazeExamples(self, self._split[1])

    def problems(self, count: int, subgoals: int, seed: int = 0) -> list[list[int]]:
        """``count`` held-out lists of ``subgoals`` tokens to connect: paths of pairs that training never saw.

        None comes twice as long as there are others: all held-out pairs have their turn, in random order, before one
        comes again.
        """
        if subgoals < _FEWEST:
            raise ValueError(f"a problem has at least start and goal, got {subgoals} subgoals")
        data = self._split[1]
        _check_cells(subgoals, int(data.paths.lengths.max()), "held-out path")
        return distinct_problems(data, count, subgoals, seed)

    def prompt(self, subgoals: Sequence[int]) -> Prompt:
        """What generation starts from."""
        if self.model == "flexmdm":
            return Prompt.through(subgoals)
        tokens = [*subgoals, self.separator, *[None] * self.longest_path]
        return Prompt(tuple(tokens), (False,) * (len(tokens) + 1))

    def path(self, sequence: Sequence[int]) -> list[int]:
        """The path in what was generated: all of it, or for MDM what is behind SEP, without PAD.

        PAD is left out wherever it stands, as the paper does: an answer with PAD inside may still be a path.
        """
        if self.model == "flexmdm":
            return list(sequence)
        start = list(sequence).index(self.separator) + 1 if self.separator in sequence else 0
        return [token for token in sequence[start:] if token != self.pad]

    def settled(self, console: Console | None = None) -> MazeTask:
        """Itself, with its paths made: whether there are any for these settings is known before training begins."""
        _ = self._split
        return self

    def save(self, folder: Path) -> None:
        """Nothing more is needed."""

    def show(self, tokens: Sequence[int | None]) -> str:
        """Cells by their number; ``·`` is a mask."""
        return " ".join("·" if token is None else str(token) for token in tokens)

    def preview(self, folder: Path, console: Console) -> None:
        """The loss says enough."""

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "subgoals": list(self.subgoals)}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> MazeTask:
        values: dict[str, Any] = {key: value for key, value in stored.items() if key != "name"}
        known = [f.name for f in fields(cls) if f.init]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ValueError(f"the maze task has no {', '.join(unknown)}; it knows {', '.join(known)}")
        return cls(**values)


@dataclass(frozen=True, eq=False)
class MazeExamples:
    """Paths with subgoals drawn anew each time they are seen."""

    task: MazeTask
    data: PathData

    def __len__(self) -> int:
        return len(self.data.paths)

    def take(self, index: Tensor, numbers: Tensor) -> tuple[Ragged, Template]:
        """The paths ``index`` ``[B]`` in the form the model learns from; subgoals belong to the ``numbers`` ``[B]``."""
        paths = self.data.paths[index]
        low, high = self.task.subgoals
        counts = low + ((high - low + 1) * uniform(self.task.data_seed, _COUNT, numbers)).long()
        chosen = choose_subgoals(paths, counts, self.task.data_seed, numbers)
        if self.task.model == "flexmdm":
            return paths, through_template(paths, chosen)
        return self._padded(paths, paths.keep(chosen))

    def _padded(self, paths: Ragged, subgoals: Ragged) -> tuple[Ragged, Template]:
        """g1 ... gK SEP path PAD ...: the prompt fixed, the rest present."""
        task, size = self.task, len(paths)
        separator = Ragged(torch.full((size,), task.separator), torch.ones(size, dtype=torch.int64))
        missing = task.longest_path - paths.lengths
        padding = Ragged(torch.full((int(missing.sum()),), task.pad), missing)
        x1 = join([subgoals, separator, paths, padding])
        fixed = x1.columns <= subgoals.lengths[x1.rows]  # SEP too
        roles = x1.with_values(torch.where(fixed, int(Role.FIXED), int(Role.PRESENT)))
        return x1, Template.of_roles(roles)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _span_of(subgoals: object) -> tuple[int, int]:
    """The fewest and the most subgoals, from two numbers or from one that is both."""
    span = [subgoals, subgoals] if _is_whole(subgoals) else subgoals
    if isinstance(span, Sequence) and len(span) == 2 and all(_is_whole(number) for number in span):
        return span[0], span[1]
    raise ValueError(f"subgoals are the fewest and the most, such as [2, 12], or one number; got {subgoals!r}")


def _check_cells(subgoals: int, longest: int, kind: str) -> None:
    if subgoals > longest:
        raise ValueError(
            f"no {kind} has {subgoals} cells: the longest has {longest}; take fewer subgoals or a larger maze"
        )


def join(parts: Sequence[Ragged]) -> Ragged:
    """The sequences of several batches of the same size, one behind the other within each sequence."""
    everything = Ragged.cat(parts)
    size = len(parts[0])
    order = torch.arange(len(parts) * size).view(len(parts), size).T.flatten()
    lengths = everything.lengths.view(len(parts), size).sum(0)
    return Ragged(everything[order].values, lengths)
