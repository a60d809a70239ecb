"""Sequences from files as a task: training examples, prompts and what to make of the answer, for FlexMDM and MDM."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from rich.console import Console
from torch import Tensor

from flexmdm.canvas import Prompt, Role, Template
from flexmdm.data import Preparation, Prepared, Source, TextTokenizer, TokenStore, prepare
from flexmdm.sequences import Ragged
from flexmdm.tasks.text.templates import Mixture, draw_templates

if TYPE_CHECKING:
    from flexmdm.backbones.model import FlexMDMModel

TOKENIZER_FILE = "tokenizer.json"


@dataclass(frozen=True)
class TextTask:
    """Sequences of tokens: text, names, molecules, proteins, whatever a file holds.

    FlexMDM learns from the sequences as they are. MDM sees them padded to the longest; its PAD is an ordinary token.

    Args:
        data: files, folders or data sets, as `flexmdm.data.Source` takes them.
        model: who the examples are for.
        field, paragraphs, skip_bad: of the `Source`.
        tokenizer, vocabulary, max_length, long, held_out: of the `Preparation`.
        held_out_data: files to hold out instead of a share of the data.
        mixture: weights of the templates, by name.
        data_seed: of the split and of the templates.
        contents: tells the data that the run began with from others (filled in by `settled`).
        longest: tokens of the longest sequence, to which MDM pads (filled in by `settled`).
        folder: where the tokenizer is, for a task that has been trained already.
    """

    data: tuple[str, ...] = ()
    model: Literal["flexmdm", "mdm"] = "flexmdm"
    field: str | None = None
    paragraphs: bool = False
    skip_bad: bool = False
    tokenizer: str = "auto"
    vocabulary: int | None = None
    max_length: int = 256
    long: Literal["split", "drop"] = "split"
    held_out: float = 0.05
    held_out_data: tuple[str, ...] = ()
    mixture: dict[str, float] = dataclasses.field(default_factory=lambda: asdict(Mixture()))
    data_seed: int = 0
    contents: str | None = None
    longest: int | None = None
    folder: Path | None = None
    name: str = dataclasses.field(default="text", init=False)

    def __post_init__(self) -> None:
        for name in ("data", "held_out_data"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(map(str, value)))
        if self.model not in ("flexmdm", "mdm"):
            raise ValueError(f"the model is flexmdm or mdm, got {self.model!r}")
        if self.max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {self.max_length}")
        known = {f.name for f in fields(Mixture)}
        if not set(self.mixture) <= known:
            raise ValueError(f"a mixture has the weights {', '.join(sorted(known))}; got {', '.join(self.mixture)}")
        object.__setattr__(self, "mixture", {name: float(self.mixture.get(name, 0.0)) for name in asdict(Mixture())})
        Mixture(**self.mixture)  # says what is wrong with it

    @property
    def _mixture(self) -> Mixture:
        return Mixture(**self.mixture)

    # Data -------------------------------------------------------------------------------------------------------------

    def settled(self, console: Console | None = None) -> TextTask:
        """The same with everything chosen that was left open, from the data; prepares them if need be."""
        if not self.data:
            raise ValueError("what to learn from? Give a file: flexmdm train PATH --out RUN")
        try:
            prepared = prepare(self._preparation, self._known_tokenizer, console=console)
        except (ValueError, OSError) as error:
            if self.contents is None:
                raise
            raise ValueError(f"the data of this run cannot be used any more: {error}") from error
        task = replace(
            self,
            tokenizer=self.tokenizer if self.tokenizer != "auto" else prepared.tokenizer.kind,
            vocabulary=prepared.tokenizer.size if prepared.tokenizer.kind == "bpe" else None,
            contents=_digest(prepared.train),
            longest=max(int(side.lengths.max()) for side in (prepared.train, prepared.validation)),
            data=tuple(map(_absolute, self.data)),
            held_out_data=tuple(map(_absolute, self.held_out_data)),
        )
        object.__setattr__(task, "prepared", prepared)  # fills the cache of the property
        return task

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

    @property
    def _known_tokenizer(self) -> TextTokenizer | None:
        if self.folder is not None and (self.folder / TOKENIZER_FILE).is_file():
            return TextTokenizer.load(self.folder)
        return None

    @cached_property
    def prepared(self) -> Prepared:
        prepared = self.settled().prepared
        if self.contents not in (None, _digest(prepared.train)):
            raise ValueError(
                f"{', '.join(self.data)}: the data is not what this run was trained on, so that nobody knows what was "
                "held out; put the file back as it was, or train anew"
            )
        return prepared

    @cached_property
    def text(self) -> TextTokenizer:
        """Between text and tokens."""
        return self._known_tokenizer or self.prepared.tokenizer

    def save(self, folder: Path) -> None:
        """Leave in a run's folder what is needed to use it without its data."""
        self.text.save(folder)

    @property
    def pad(self) -> int:
        return self.text.size

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
            raise ValueError(
                f"the text leaves no room: {fixed} tokens are given, {minimum} at least go in each of "
                f"{len(pieces) - 1} gaps, and this model was trained on at most {most}"
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

    @property
    def width(self) -> int:
        """Tokens of a padded sequence."""
        return self.longest or self.max_length

    def clean(self, sequence: Sequence[int]) -> list[int]:
        """What was generated, without PAD."""
        return [token for token in sequence if token < self.text.size]

    def show(self, tokens: Sequence[int | None]) -> str:
        """The text; ``·`` is a mask."""
        parts = []
        for masked, run in groupby(tokens, lambda token: token is None):
            entries = list(run)
            known = self.clean([token for token in entries if token is not None])
            parts.append("·" * len(entries) if masked else self.text.decode(known))
        return "".join(parts)

    def preview(self, folder: Path, console: Console) -> Callable[[FlexMDMModel, int], dict[str, float]]:
        """Two samples, and the likelihood of some held-out sequences."""
        from flexmdm.tasks.text.preview import Preview

        return Preview(self, folder, console)

    def to_dict(self) -> dict[str, Any]:
        stored = asdict(self)
        del stored["folder"]
        return {**stored, "data": list(self.data), "held_out_data": list(self.held_out_data)}

    @classmethod
    def from_dict(cls, stored: dict[str, Any], folder: Path | None = None) -> TextTask:
        values: dict[str, Any] = {key: value for key, value in stored.items() if key != "name"}
        known = [f.name for f in fields(cls) if f.init and f.name != "folder"]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ValueError(f"the text task has no {', '.join(unknown)}; it knows {', '.join(known)}")
        return cls(**values, folder=folder)


def _absolute(path: str) -> str:
    """A path that means the same in any folder; names of data sets stay."""
    return str(Path(path).expanduser().resolve()) if Path(path).expanduser().exists() else path


def _digest(store: TokenStore) -> str:
    """Of how many sequences there are, and of the first and the last of them: enough to notice other data."""
    ends = torch.cat([torch.arange(min(1000, len(store))), torch.arange(max(len(store) - 1000, 0), len(store))])
    some = store.take(ends)
    digest = hashlib.sha256(f"{len(store)} {int(store.lengths.sum())}".encode())
    digest.update(some.values.numpy().tobytes() + some.lengths.numpy().tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class TextExamples:
    """Sequences with templates drawn anew each time they are seen."""

    task: TextTask
    store: TokenStore

    def __len__(self) -> int:
        return len(self.store)

    def some(self, num: int, seed: int = 0) -> Tensor:
        """``num`` of them at random (or all), by their indices: files are often sorted."""
        return torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))[:num]

    @cached_property
    def mean_length(self) -> float:
        return float(self.store.lengths.double().mean())

    def take(self, index: Tensor, numbers: Tensor) -> tuple[Ragged, Template]:
        """The sequences ``index`` ``[B]``; their templates belong to the ``numbers`` ``[B]``."""
        x1 = self.store.take(index)
        template = draw_templates(x1, self.task._mixture, self.mean_length, self.task.data_seed, numbers)
        return (x1, template) if self.task.model == "flexmdm" else padded(x1, self.task, template.roles)


def padded(x1: Ragged, task: TextTask, roles: Ragged | None = None) -> tuple[Ragged, Template]:
    """The sequences with PAD behind them, for MDM: fixed tokens stay fixed, all others are masks from the start."""
    size, width = len(x1), task.width
    tokens = torch.full((size, width), task.pad)
    places = torch.full((size, width), int(Role.PRESENT))
    tokens[x1.rows, x1.columns] = x1.values
    if roles is not None:
        places[x1.rows, x1.columns] = torch.where(roles.values == Role.FIXED, int(Role.FIXED), int(Role.PRESENT))
    full = Ragged(tokens.flatten(), torch.full((size,), width))
    return full, Template.of_roles(full.with_values(places.flatten()))
