"""Sequences from files as a task, for FlexMDM and MDM."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from rich.console import Console
from torch import Tensor

from flexmdm.canvas import Template
from flexmdm.data import BalancedStore, Preparation, Prepared, Source
from flexmdm.sequences import Ragged
from flexmdm.tasks.layouts import NO_FRAME
from flexmdm.tasks.prepared import PreparedTask, StoredExamples
from flexmdm.tasks.text.preparation import MarkedPreparation
from flexmdm.tasks.text.settings import TextSettings
from flexmdm.tasks.text.templates import MOST_GAPS, Mixture, draw_templates


@dataclass(frozen=True, eq=False)
class TextExamples(StoredExamples):
    """Sequences with templates drawn anew each time they are seen."""

    task: TextTask

    @cached_property
    def mean_length(self) -> float:
        return float(self.store.lengths.double().mean())

    def take(self, index: Tensor, numbers: Tensor) -> tuple[Ragged, Template]:
        """Return the sequences ``index`` ``[B]`` as examples; their templates belong to the ``numbers`` ``[B]``."""
        x1 = self.store.take(index)
        mixture, marks = self.task._mixture, self.store.marks[index] if self.task.regions else None
        template = draw_templates(x1, mixture, self.mean_length, self.task.data_seed, numbers, marks)
        return self.task.layout.example(x1, template)

    def to_find(self, index: Tensor) -> tuple[Ragged, Template, Tensor, Tensor]:
        """Return the sequences ``index`` ``[B]`` with nothing given, and their tokens and characters."""
        x1 = self.store.take(index)
        found = self.task.layout.example(x1, Template.free(x1))
        return *found, self.store.lengths[index], self.store.characters[index]


@dataclass(frozen=True)
class TextTask(TextSettings, PreparedTask):
    """Sequences of tokens: text, names, molecules, proteins, whatever a file holds.

    FlexMDM learns from the sequences as they are. MDM sees them padded to the longest; its PAD is an ordinary token.
    The arguments are those of `TextSettings`.
    """

    nouns: ClassVar[str] = "text"
    examples: ClassVar[type[StoredExamples]] = TextExamples

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._mixture  # raises if a weight is wrong
        if len(self.regions) > MOST_GAPS:
            raise ValueError(f"at most {MOST_GAPS} regions are cut out together, got {', '.join(self.regions)}")
        if self.regions and (self.paragraphs or self.long == "split"):
            raise ValueError("texts with marked regions stay whole: leave out --paragraphs, and say --long drop")

    @property
    def frame(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.text.frame if self.framed else NO_FRAME

    @property
    def never_found(self) -> tuple[int, ...]:
        """Return the tokens that are in no text: where some stand around it, and all others of their kind."""
        return tuple(sorted(self.text.marks)) if self.framed else ()

    @property
    def _mixture(self) -> Mixture:
        return Mixture(**self.mixture)

    @property
    def _preparation(self) -> Preparation:
        kind = MarkedPreparation if self.regions else Preparation
        fields = self.field, self.paragraphs, self.skip_bad, self.regions
        return kind(**self._common(Source, *fields), long=self.long)

    def _prepare(self, console: Console | None) -> Prepared:
        if not self.balanced or len(self.data) < 2:
            return super()._prepare(console)
        if self.tokenizer in ("auto", "characters", "bpe") and self._known_tokenizer is None:
            raise ValueError("corpora in equal parts need one tokenizer for all: give its folder or its name")
        parts = [replace(self, data=(one,), balanced=False)._prepare(console) for one in self.data]
        train, validation = (BalancedStore([getattr(part, side) for part in parts]) for side in ("train", "validation"))
        counts = {name: sum(part.counts[name] for part in parts) for name in parts[0].counts}
        return Prepared(parts[0].tokenizer, train, validation, counts, parts[0].folder)
