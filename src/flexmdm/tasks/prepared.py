"""What tasks on a user's own files have in common: data prepared once, and a tokenizer that a run keeps."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, Self

import torch
from rich.console import Console
from torch import Tensor

from flexmdm.canvas import Role, Template
from flexmdm.data import Preparation, Prepared, TextTokenizer, TokenStore, prepare
from flexmdm.data.reading import absolute
from flexmdm.sequences import Ragged

TOKENIZER_FILE = "tokenizer.json"


@dataclass(frozen=True)
class PreparedTask:
    """The common part of `TextTask`, `SFTTask` and `CodeTask`.

    Args:
        data: files, folders or data sets.
        model: who the examples are for.
        skip_bad: count lines that cannot be read and go on, rather than stop at the first.
        tokenizer, vocabulary, max_length, held_out: of the `Preparation`.
        held_out_data: files to hold out instead of a share of the data.
        data_seed: of the split and of what is random in the examples.
        contents: tells the data that the run began with, every held-out sequence too, from others (filled in by
            `settled`).
        longest: tokens of the longest sequence, to which MDM pads (filled in by `settled`).
        folder: where the tokenizer is, for a task that has been trained already.
    """

    data: tuple[str, ...] = ()
    model: Literal["flexmdm", "mdm"] = "flexmdm"
    _: KW_ONLY
    skip_bad: bool = False
    tokenizer: str = "auto"
    vocabulary: int | None = None
    max_length: int = 256
    held_out: float = 0.05
    held_out_data: tuple[str, ...] = ()
    data_seed: int = 0
    contents: str | None = None
    longest: int | None = None
    folder: Path | None = None
    name: str = field(default="", init=False)

    def __post_init__(self) -> None:
        for name in ("data", "held_out_data"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(map(str, value)))
        if self.model not in ("flexmdm", "mdm"):
            raise ValueError(f"the model is flexmdm or mdm, got {self.model!r}")
        if self.max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {self.max_length}")

    # Data -------------------------------------------------------------------------------------------------------------

    @property
    def _preparation(self) -> Preparation:
        """How the files become sequences."""
        raise NotImplementedError

    def _prepare(self, console: Console | None) -> Prepared:
        return prepare(self._preparation, self._known_tokenizer, console=console)

    def settled(self, console: Console | None = None) -> Self:
        """The same with everything chosen that was left open, from the data; prepares them if need be."""
        if not self.data:
            raise ValueError("what to learn from? Give a file: flexmdm train PATH --out RUN")
        try:
            prepared = self._prepare(console)
        except (ValueError, OSError) as error:
            if self.contents is None:
                raise
            raise ValueError(f"the data of this run cannot be used any more: {error}") from error
        train, held_out = _digest(prepared.train), _digest_of_all(prepared.validation)
        learned = prepared.tokenizer.kind == "bpe" and self.tokenizer in ("auto", "bpe")  # and not that of another run
        task = replace(
            self,
            tokenizer=self.tokenizer if self.tokenizer != "auto" else prepared.tokenizer.kind,
            vocabulary=prepared.tokenizer.size if learned else None,
            contents=train if self.contents == train else f"{train}-{held_out}",  # as an earlier version kept it
            longest=max(int(side.lengths.max()) for side in (prepared.train, prepared.validation)),
            data=tuple(map(absolute, self.data)),
            held_out_data=tuple(map(absolute, self.held_out_data)),
        )
        object.__setattr__(task, "prepared", prepared)  # fills the cache of the property
        return task

    @property
    def _known_tokenizer(self) -> TextTokenizer | None:
        if self.folder is not None and (self.folder / TOKENIZER_FILE).is_file():
            return TextTokenizer.load(self.folder)
        return None

    @cached_property
    def prepared(self) -> Prepared:
        settled = self.settled()
        if self.contents not in (None, settled.contents):
            raise ValueError(
                f"{', '.join(self.data)}: the data is not what this run was trained on, so that nobody knows what was "
                "held out; put the file back as it was, or train anew"
            )
        return settled.prepared

    @cached_property
    def compared_on(self) -> str:
        """Tells the sequences, held-out ones too, from others: only runs with the same can be compared."""
        return f"{_digest(self.prepared.train)}-{_digest(self.prepared.validation)}"

    @cached_property
    def text(self) -> TextTokenizer:
        """Between text and tokens."""
        return self._known_tokenizer or self.prepared.tokenizer

    def save(self, folder: Path) -> None:
        """Leave in a run's folder what is needed to use it without its data."""
        self.text.save(folder)

    # Sequences --------------------------------------------------------------------------------------------------------

    @property
    def pad(self) -> int:
        """What an MDM sees behind the end of a sequence."""
        return self.text.size

    @property
    def never_found(self) -> tuple[int, ...]:
        """Tokens of the vocabulary that generation must not come up with."""
        return ()

    @property
    def width(self) -> int:
        """Tokens of a padded sequence."""
        return self.longest or self.max_length

    def clean(self, sequence: Sequence[int]) -> list[int]:
        """What was generated, without PAD."""
        pad = self.pad if self.model == "mdm" else None
        return [token for token in sequence if token < self.text.size and token != pad]

    def show(self, tokens: Sequence[int | None]) -> str:
        """The text; ``·`` is a mask."""
        parts = []
        for masked, run in groupby(tokens, lambda token: token is None):
            entries = list(run)
            known = self.clean([token for token in entries if token is not None])
            parts.append("·" * len(entries) if masked else self.text.decode(known))
        return "".join(parts)

    # What a run stores ------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        stored = asdict(self)
        del stored["folder"]
        return {**stored, "data": list(self.data), "held_out_data": list(self.held_out_data)}

    @classmethod
    def from_dict(cls, stored: dict[str, Any], folder: Path | None = None) -> Self:
        values: dict[str, Any] = {key: value for key, value in stored.items() if key != "name"}
        known = [f.name for f in fields(cls) if f.init and f.name != "folder"]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ValueError(f"the {cls.name} task has no {', '.join(unknown)}; it knows {', '.join(known)}")
        return cls(**values, folder=folder)


def _digest(store: TokenStore) -> str:
    """Of how many sequences there are, and of the first and the last of them: enough to notice other data."""
    ends = torch.cat([torch.arange(min(1000, len(store))), torch.arange(max(len(store) - 1000, 0), len(store))])
    some = store.take(ends)
    digest = hashlib.sha256(f"{len(store)} {int(store.lengths.sum())}".encode())
    digest.update(some.values.numpy().tobytes() + some.lengths.numpy().tobytes())
    return digest.hexdigest()[:16]


def _digest_of_all(store: TokenStore) -> str:
    """Of every sequence: what is held out must be just what was, or some of it was trained on."""
    digest = hashlib.sha256(store.lengths.numpy().tobytes())
    for part in torch.arange(len(store)).split(10_000):
        digest.update(store.take(part).values.numpy().tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class StoredExamples:
    """Sequences of a task."""

    task: Any
    store: TokenStore

    def __len__(self) -> int:
        return len(self.store)

    def some(self, num: int, seed: int = 0) -> Tensor:
        """``num`` of them at random (or all), by their indices: files are often sorted."""
        return torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))[:num]


def padded(x1: Ragged, task: Any, roles: Ragged | None = None) -> tuple[Ragged, Template]:
    """The sequences with PAD behind them, for MDM: fixed tokens stay fixed, all others are masks from the start."""
    size, width = len(x1), task.width
    tokens = torch.full((size, width), task.pad)
    places = torch.full((size, width), int(Role.PRESENT))
    tokens[x1.rows, x1.columns] = x1.values
    if roles is not None:
        places[x1.rows, x1.columns] = torch.where(roles.values == Role.FIXED, int(Role.FIXED), int(Role.PRESENT))
    full = Ragged(tokens.flatten(), torch.full((size,), width))
    return full, Template.of_roles(full.with_values(places.flatten()))
