"""Tasks on a user's own files: data prepared once, and a tokenizer that a run keeps."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from rich.console import Console

from flexmdm.data import Preparation, Prepared, TextTokenizer, TokenStore, prepare
from flexmdm.data.reading import RecordSource, absolute
from flexmdm.data.tokenizers import tokenizer_of
from flexmdm.tasks.layouts import NO_FRAME, Layout, layout_of
from flexmdm.tasks.models import inserts
from flexmdm.tasks.registry import class_of
from flexmdm.tasks.settings import FileSettings
from flexmdm.tasks.task import HeldOut

if TYPE_CHECKING:  # seconds to import; whoever has a model has done so
    from flexmdm.backbones.model import FlexMDMModel


@dataclass(frozen=True)
class PreparedTask(FileSettings):
    """The common part of `TextTask`, `SFTTask` and `CodeTask`: settings, prepared data and the tokenizer."""

    examples: ClassVar[type[StoredExamples]]  # what makes examples of the stored sequences
    previews: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        inserts(self.model)  # raises if there is no such model

    @property
    def _preparation(self) -> Preparation:
        """Return how the files become sequences."""
        raise NotImplementedError

    def _common(self, source: type[RecordSource], *fields: Any) -> dict[str, Any]:
        """Return the arguments that every `Preparation` has; ``fields`` are those of the source, behind its paths."""
        return {
            "source": source(self.data, *fields),
            "tokenizer": self.tokenizer,
            "vocab_size": self.vocabulary,
            "max_length": self.max_length,
            "held_out": self.held_out,
            "held_out_source": source(self.held_out_data, *fields) if self.held_out_data else None,
            "seed": self.data_seed,
        }

    def _prepare(self, console: Console | None) -> Prepared:
        return prepare(self._preparation, self._known_tokenizer, console=console)

    def settled(self, console: Console | None = None) -> Self:
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
        return None if self.folder is None else tokenizer_of(str(self.folder))

    @cached_property
    def prepared(self) -> Prepared:
        settled = self.settled()
        if self.contents not in (None, settled.contents):
            raise ValueError(
                f"{', '.join(self.data)}: the data is not what this run was trained on, so that nobody knows what was "
                "held out; put the file back as it was, or train anew"
            )
        return settled.prepared

    @property
    def has_data(self) -> bool:
        """Return whether what it learned from should be at hand: a model that was passed on keeps the names alone."""
        paths = *self.data, *self.held_out_data
        return all(path.startswith("hf:") or Path(path).is_absolute() or Path(path).exists() for path in paths)

    @cached_property
    def train(self) -> Any:
        return self.examples(self, self.prepared.train)

    @cached_property
    def validation(self) -> Any:
        return self.examples(self, self.prepared.validation)

    @cached_property
    def compared_on(self) -> str:
        """Return a digest of all sequences, held-out ones too: only runs with the same can be compared."""
        return f"{_digest(self.prepared.train)}-{_digest(self.prepared.validation)}"

    @cached_property
    def text(self) -> TextTokenizer:
        """Return the tokenizer."""
        return self._known_tokenizer or self.prepared.tokenizer

    def save(self, folder: Path) -> None:
        self.text.save(folder)

    @property
    def pad(self) -> int:
        """Return the token that an MDM sees behind the end of a sequence."""
        return self.text.size

    @property
    def width(self) -> int:
        return self.longest or self.max_length

    @property
    def frame(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the tokens before and behind every sequence."""
        return NO_FRAME

    @property
    def layout(self) -> Layout:
        return layout_of(self.model, self.max_length, self.width, self.pad, self.frame)

    @property
    def vocab_size(self) -> int:
        """Return the number of tokens that a model knows: those of the tokenizer, for MDM also PAD."""
        return self.layout.vocabulary(self.text.size)

    def clean(self, sequence: Sequence[int]) -> list[int]:
        """Return the tokens of a generated sequence that are text."""
        return [token for token in self.layout.clean(sequence) if token < self.text.size]

    def check_base(self, base: str, vocab_size: int | None = None) -> None:
        theirs = tokenizer_of(base) if vocab_size is None else None
        remedy = f"use the tokenizer that belongs to it (--tokenizer {base})"
        if theirs is not None and not self.text.same_tokens(theirs):
            raise ValueError(f"the tokens of the data are not those of {base}: {remedy}")
        if vocab_size is not None and self.vocab_size > vocab_size:
            if self.text.size <= vocab_size:
                remedy = (
                    f"{self.vocab_size - self.text.size} that stand behind those of the tokenizer (PAD, or what "
                    "separates parts) have no row in its table; take a base with rows to spare, as LLaDA has, or for "
                    "PAD a token that is there (pad_id in [task])"
                )
            raise ValueError(f"the task has {self.vocab_size:,} tokens and {base} knows {vocab_size:,}: {remedy}")

    def show(self, tokens: Sequence[int | None]) -> str:
        """Return the text of a state; ``·`` is a mask."""
        parts = []
        for masked, group in groupby(tokens, lambda token: token is None):
            entries = list(group)
            known = self.clean([token for token in entries if token is not None])
            parts.append("·" * len(entries) if masked else self.text.decode(known))
        return "".join(parts)

    def pipeline(self, model: FlexMDMModel) -> Any:
        return class_of(self.name, "Pipeline")(self, model)


def _digest(store: TokenStore) -> str:
    """Return a digest of the number of sequences and of the first and last of them: enough to notice other data."""
    ends = torch.cat([torch.arange(min(1000, len(store))), torch.arange(max(len(store) - 1000, 0), len(store))])
    some = store.take(ends)
    digest = hashlib.sha256(f"{len(store)} {int(store.lengths.sum())}".encode())
    digest.update(some.values.numpy().tobytes() + some.lengths.numpy().tobytes())
    return digest.hexdigest()[:16]


def _digest_of_all(store: TokenStore) -> str:
    """Return a digest of every sequence: what is held out must be just what was, or some of it was trained on."""
    digest = hashlib.sha256(store.lengths.numpy().tobytes())
    for part in torch.arange(len(store)).split(10_000):
        digest.update(store.take(part).values.numpy().tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class StoredExamples(HeldOut):
    """Sequences of a task on disk."""

    task: PreparedTask
    store: TokenStore

    def __len__(self) -> int:
        return len(self.store)
