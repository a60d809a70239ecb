"""Sequences from files as a task: training examples, prompts and what to make of the answer, for FlexMDM and MDM."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from torch import Tensor

from flexmdm.canvas import Prompt, Template
from flexmdm.data import BalancedStore, Preparation, Prepared, Source
from flexmdm.sequences import Ragged
from flexmdm.tasks.prepared import PreparedTask, StoredExamples, padded
from flexmdm.tasks.text.templates import Mixture, draw_templates

if TYPE_CHECKING:
    from flexmdm.backbones.model import FlexMDMModel


@dataclass(frozen=True)
class TextTask(PreparedTask):
    """Sequences of tokens: text, names, molecules, proteins, whatever a file holds.

    FlexMDM learns from the sequences as they are. MDM sees them padded to the longest; its PAD is an ordinary token.

    Args:
        field, paragraphs: of the `Source`.
        long: of the `Preparation`.
        mixture: weights of the templates, by name.
        balanced: learn from each entry of ``data`` equally often, however large it is.

    The others are those of `PreparedTask`.
    """

    field: str | None = None
    paragraphs: bool = False
    long: Literal["split", "drop"] = "split"
    mixture: dict[str, float] = dataclasses.field(default_factory=lambda: asdict(Mixture()))
    balanced: bool = False
    name: str = dataclasses.field(default="text", init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = {f.name for f in fields(Mixture)}
        if not set(self.mixture) <= known:
            raise ValueError(f"a mixture has the weights {', '.join(sorted(known))}; got {', '.join(self.mixture)}")
        object.__setattr__(self, "mixture", {name: float(self.mixture.get(name, 0.0)) for name in asdict(Mixture())})
        Mixture(**self.mixture)  # says what is wrong with it

    @property
    def _mixture(self) -> Mixture:
        return Mixture(**self.mixture)

    # Data -------------------------------------------------------------------------------------------------------------

    @property
    def _preparation(self) -> Preparation:
        held_out = (
            Source(self.held_out_data, self.field, self.paragraphs, self.skip_bad) if self.held_out_data else None
        )
        return Preparation(
            Source(self.data, self.field, self.paragraphs, self.skip_bad),
            self.tokenizer,
            self.vocabulary,
            self.max_length,
            self.long,
            self.held_out,
            held_out,
            self.data_seed,
        )

    def _prepare(self, console: Console | None) -> Prepared:
        if not self.balanced or len(self.data) < 2:
            return super()._prepare(console)
        if self.tokenizer in ("auto", "characters", "bpe") and self._known_tokenizer is None:
            raise ValueError("corpora in equal parts need one tokenizer for all: give its folder or its name")
        parts = [replace(self, data=(one,), balanced=False)._prepare(console) for one in self.data]
        train, validation = (BalancedStore([getattr(part, side) for part in parts]) for side in ("train", "validation"))
        counts = {name: sum(part.counts[name] for part in parts) for name in parts[0].counts}
        return Prepared(parts[0].tokenizer, train, validation, counts, parts[0].folder)

    @property
    def vocab_size(self) -> int:
        """The tokens; for MDM also PAD."""
        return self.text.size + (1 if self.model == "mdm" else 0)

    @cached_property
    def train(self) -> TextExamples:
        return TextExamples(self, self.prepared.train)

    @cached_property
    def validation(self) -> TextExamples:
        return TextExamples(self, self.prepared.validation)

    # Prompts and answers ----------------------------------------------------------------------------------------------

    def prompt(self, pieces: Sequence[Sequence[int]], minimum: int = 0, maximum: int | None = None) -> Prompt:
        """Fixed pieces of tokens with something to find between them; ``[[], []]`` is the empty prompt."""
        fixed = sum(map(len, pieces))
        needed = fixed + minimum * (len(pieces) - 1)
        most = self.max_length if self.model == "flexmdm" else self.width
        if needed > most or (fixed == most and minimum == 0):
            gaps = f", each gap takes {minimum:,} or more" if minimum else ""
            raise ValueError(
                f"the text leaves no room: {fixed:,} tokens are given{gaps}, and this model was trained on at most "
                f"{most:,}"
            )
        if self.model == "flexmdm":
            return Prompt.infill(pieces, minimum, maximum)
        # Always as wide as in training: what follows a text is PAD, known or, behind a prefix, to be found.
        if len(pieces) == 2 and not pieces[1] and minimum == 0 and maximum is None:
            tokens = [*pieces[0], *[None] * (self.width - fixed)]
        elif minimum == maximum and maximum:
            tokens = list(Prompt.infill(pieces, minimum, maximum).tokens)
            tokens += [self.pad] * (self.width - len(tokens))
        else:
            raise ValueError(
                "an MDM fills a known number of masks: say how many tokens each gap has by equal --min and --max"
            )
        return Prompt(tuple(tokens), (False,) * (len(tokens) + 1))

    def preview(self, folder: Path, console: Console) -> Callable[[FlexMDMModel, int], dict[str, float]]:
        """Two samples, and the likelihood of some held-out sequences."""
        from flexmdm.tasks.text.preview import Preview

        return Preview(self, folder, console)


@dataclass(frozen=True, eq=False)
class TextExamples(StoredExamples):
    """Sequences with templates drawn anew each time they are seen."""

    task: TextTask

    @cached_property
    def mean_length(self) -> float:
        return float(self.store.lengths.double().mean())

    def take(self, index: Tensor, numbers: Tensor) -> tuple[Ragged, Template]:
        """The sequences ``index`` ``[B]``; their templates belong to the ``numbers`` ``[B]``."""
        x1 = self.store.take(index)
        template = draw_templates(x1, self.task._mixture, self.mean_length, self.task.data_seed, numbers)
        return (x1, template) if self.task.model == "flexmdm" else padded(x1, self.task, template.roles)
