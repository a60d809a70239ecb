"""The maze as a task: training examples, prompts and answers, for FlexMDM and for MDM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from rich.console import Console
from torch import Tensor

from flexmdm.canvas import Prompt, Role, Template
from flexmdm.randomness import stream, uniform
from flexmdm.sequences import Ragged
from flexmdm.tasks.layouts import Layout, layout_of
from flexmdm.tasks.maze.grid import Maze
from flexmdm.tasks.maze.paths import PathData, choose_subgoals, distinct_problems, make_paths, through_template
from flexmdm.tasks.maze.settings import MazeSettings
from flexmdm.tasks.models import inserts
from flexmdm.tasks.pipeline import Answer, Generated, Pipeline
from flexmdm.tasks.task import HeldOut

if TYPE_CHECKING:  # seconds to import; whoever has a model has done so
    from flexmdm.backbones.model import FlexMDMModel

_COUNT = stream("number of subgoals")
_FEWEST = 2  # start and goal


@dataclass(frozen=True)
class MazeTask(MazeSettings):
    """Connect K subgoals by a path in a fixed maze that the model has never been shown.

    FlexMDM grows a path between the subgoals, which are fixed tokens. MDM sees ``g1 ... gK SEP path PAD ...`` with all
    behind SEP masked; its PAD is an ordinary token. The arguments are those of `MazeSettings`.

    >>> task = MazeTask(size=7, pairs=50, subgoals=(2, 4))
    >>> x1, template = task.train.take(torch.tensor([0, 1]), torch.tensor([0, 1]))
    >>> len(x1), task.vocab_size
    (2, 49)
    """

    nouns: ClassVar[str] = "mazes"
    previews: ClassVar[bool] = False  # the loss says enough

    def __post_init__(self) -> None:
        for name in ("size", "maze_seed", "pairs", "paths_per_pair", "data_seed"):
            if not _is_whole(getattr(self, name)):
                raise ValueError(f"{name} of a maze is a whole number, got {getattr(self, name)!r}")
        for name in ("extra_doors", "held_out"):
            if not isinstance(getattr(self, name), float | int):
                raise ValueError(f"{name} of a maze is a share between 0 and 1, got {getattr(self, name)!r}")
        span: Any = (self.subgoals,) * 2 if _is_whole(self.subgoals) else self.subgoals
        if not isinstance(span, list | tuple) or len(span) != 2 or not all(map(_is_whole, span)):
            raise ValueError(f"subgoals are the fewest and the most, such as [2, 12], or one number; got {span!r}")
        low, high = span
        object.__setattr__(self, "subgoals", (low, high))
        if not _FEWEST <= low <= high:
            raise ValueError(f"subgoals count start and goal and rise, such as 2-12; got {low}-{high}")
        inserts(self.model)  # raises if there is no such model

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
    def layout(self) -> Layout:
        """Return how paths are laid out: no longer than twice the longest there is, or padded to it behind SEP."""
        grown = min(2 * self.longest_path, self.size**2)
        return layout_of(self.model, grown, self.subgoals[1] + 1 + self.longest_path, self.pad)

    @property
    def vocab_size(self) -> int:
        """Return the number of all cells, walls too; for MDM also SEP and PAD."""
        return self.size**2 + (0 if inserts(self.model) else 2)

    @cached_property
    def longest_path(self) -> int:
        return max(int(part.paths.lengths.max()) for part in self._split)

    @property
    def max_length(self) -> int:
        """Return the length that no answer and no held-out sequence exceeds."""
        return self.layout.longest

    width = max_length

    @cached_property
    def train(self) -> MazeExamples:
        return MazeExamples(self, self._split[0])

    @cached_property
    def validation(self) -> MazeExamples:
        return MazeExamples(self, self._split[1])

    def problems(self, count: int, subgoals: int, seed: int = 0) -> list[list[int]]:
        """Return ``count`` held-out lists of ``subgoals`` tokens to connect: paths of pairs that training never saw.

        None comes twice as long as there are others: all held-out pairs have their turn, in random order, before one
        comes again.
        """
        if subgoals < _FEWEST:
            raise ValueError(f"a problem has at least start and goal, got {subgoals} subgoals")
        data = self._split[1]
        _check_cells(subgoals, int(data.paths.lengths.max()), "held-out path")
        return distinct_problems(data, count, subgoals, seed)

    def prompt(self, subgoals: Sequence[int]) -> Prompt:
        """Return what generation starts from."""
        if self.layout.inserts:
            return Prompt.through(subgoals)
        tokens = (*subgoals, self.separator, *[None] * self.longest_path)
        return Prompt(tokens, (False,) * (len(tokens) + 1))

    def path(self, sequence: Sequence[int]) -> list[int]:
        """Return the path in what was generated: all of it, or for MDM what is behind SEP, without PAD.

        PAD is left out wherever it stands, as the paper does: an answer with PAD inside may still be a path.
        """
        if self.layout.inserts:
            return list(sequence)
        start = list(sequence).index(self.separator) + 1 if self.separator in sequence else 0
        return self.layout.clean(sequence[start:])

    def settled(self, console: Console | None = None) -> MazeTask:
        """Return itself, with its paths made: whether there are any is known before training begins."""
        _ = self._split
        return self

    def save(self, folder: Path) -> None:
        """Write nothing: the settings say it all."""

    def show(self, tokens: Sequence[int | None]) -> str:
        """Return the numbers of the cells; ``·`` is a mask."""
        return " ".join("·" if token is None else str(token) for token in tokens)

    def check_base(self, base: str, vocab_size: int | None = None) -> None:
        """Raise if a model has fewer tokens than the maze has cells."""
        if vocab_size is not None and self.vocab_size > vocab_size:
            raise ValueError(f"the task has {self.vocab_size:,} tokens and {base} knows {vocab_size:,}")

    def pipeline(self, model: FlexMDMModel) -> MazePipeline:
        """Return the pipeline that plans."""
        return MazePipeline(self, model)


@dataclass(frozen=True, eq=False)
class MazeExamples(HeldOut):
    """Paths with subgoals drawn anew each time they are seen."""

    task: MazeTask
    data: PathData

    def __len__(self) -> int:
        return len(self.data.paths)

    def take(self, index: Tensor, numbers: Tensor) -> tuple[Ragged, Template]:
        """Return the paths ``index`` ``[B]`` as examples; their subgoals belong to the ``numbers`` ``[B]``."""
        paths = self.data.paths[index]
        low, high = self.task.subgoals
        counts = low + ((high - low + 1) * uniform(self.task.data_seed, _COUNT, numbers)).long()
        chosen = choose_subgoals(paths, counts, self.task.data_seed, numbers)
        if self.task.layout.inserts:
            return self.task.layout.example(paths, through_template(paths, chosen))
        subgoals, padding = paths.keep(chosen), [self.task.pad] * self.task.longest_path
        pairs = zip(subgoals.tolist(), paths.tolist(), strict=True)
        x1 = Ragged.from_lists([[*goals, self.task.separator, *path, *padding[len(path) :]] for goals, path in pairs])
        fixed = x1.columns <= subgoals.lengths[x1.rows]  # SEP too; the rest is there from the start
        return x1, Template.of_roles(x1.with_values(torch.where(fixed, int(Role.FIXED), int(Role.PRESENT))))

    def to_find(self, index: Tensor) -> tuple[Ragged, Template, Tensor, Tensor]:
        """Return the paths ``index`` ``[B]``, and twice how many of their cells are not given: cells are tokens."""
        x1, template = self.take(index, index)
        cells = template.roles.count(template.roles.values != Role.FIXED)
        return x1, template, cells, cells


@dataclass(frozen=True)
class MazePipeline(Pipeline[MazeTask]):
    """A model that plans, in its maze: ``pipeline.plan([[start, goal], ...])`` with cells as tokens."""

    task_name: ClassVar[str] = "maze"
    uses: ClassVar[str] = "flexmdm sample RUN --through ROW,COLUMN ROW,COLUMN"

    def plan(self, problems: Sequence[Sequence[int]], num: int = 1, **options: Any) -> list[Answer]:
        """Find ``num`` paths through the subgoals of each problem; the tokens of an answer are its cells."""
        return self.answers(problems, num, purpose="planning", **options)

    def encode(self, request: Sequence[int]) -> list[int]:
        """Return the subgoals as they are."""
        return list(request)

    def prompt(self, tokens: Sequence[int], **settings: Any) -> Prompt:
        """Return the prompt with the subgoals given."""
        return self.task.prompt(tokens)

    def decode(self, request: Sequence[int], tokens: Sequence[int], prompt: Prompt, one: Generated) -> Answer:
        """Return the path."""
        path = self.task.path(one.sequence)
        return one.answer(self.task.show(path), (), path, prompt)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_cells(subgoals: int, longest: int, kind: str) -> None:
    if subgoals > longest:
        remedy = "take fewer subgoals or a larger maze"
        raise ValueError(f"no {kind} has {subgoals} cells: the longest has {longest}; {remedy}")
