"""Subgoals in, paths out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from flexmdm.canvas import Prompt
from flexmdm.tasks.pipeline import Answer, Generated, Pipeline
from flexmdm.tasks.task import Task


class Plans(Task, Protocol):
    """A task with subgoals and the path between them."""

    def prompt(self, subgoals: Sequence[int]) -> Prompt: ...

    def path(self, sequence: Sequence[int]) -> list[int]: ...


@dataclass(frozen=True)
class MazePipeline(Pipeline[Plans]):
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
        measured = one.evaluations, one.hit_max_length
        return Answer(self.task.show(path), (), tuple(path), *measured, prompt, one.events)
