"""Token sequences on disk, read a few at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flexmdm.sequences import Ragged

_OPTIONAL = ("prompts", "marks")
_DTYPES = {"offsets": np.dtype(np.int64), **dict.fromkeys(("characters", *_OPTIONAL), np.dtype(np.int32))}


class TokenStore:
    """Token sequences end to end, as arrays that may be memory-mapped: only what is asked for is read.

    Args:
        tokens: ``[N]``, unsigned integers.
        offsets: ``[S + 1]``, where each sequence begins in ``tokens``; the last is N.
        characters: ``[S]``, how many characters of text each sequence is (if it has a prompt, the rest of it).
        prompts: ``[S]``, with how many tokens of prompt each sequence begins; ``None`` for none.
        marks: ``[2 R S]``, where each of the R marked regions of each sequence begins and ends; ``None`` for none.

    >>> store = TokenStore(np.array([5, 6, 7, 8]), np.array([0, 3, 4]), np.array([9, 2]))
    >>> len(store), store.lengths, store.characters
    (2, tensor([3, 1]), tensor([9, 2]))
    >>> store.take(torch.tensor([1, 0])).tolist()
    [[8], [5, 6, 7]]
    """

    def __init__(
        self,
        tokens: np.ndarray,
        offsets: np.ndarray,
        characters: np.ndarray,
        prompts: np.ndarray | None = None,
        marks: np.ndarray | None = None,
    ) -> None:
        self._tokens, self._offsets, self._characters = tokens, offsets, characters
        self._prompts, self._marks = prompts, marks

    @classmethod
    def open(cls, folder: Path, name: str, dtype: np.dtype) -> TokenStore:
        """Map what a `StoreWriter` wrote."""
        dtypes = {"tokens": dtype, **_DTYPES}
        there = [part for part in dtypes if part not in _OPTIONAL or _part(folder, name, part).is_file()]
        return cls(**{part: np.memmap(_part(folder, name, part), dtypes[part], "r") for part in there})

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @cached_property
    def lengths(self) -> Tensor:
        """Return ``[S]`` int64: tokens of each sequence."""
        return torch.from_numpy(np.diff(self._offsets))

    @cached_property
    def characters(self) -> Tensor:
        """Return ``[S]`` int64: characters of the text of each sequence."""
        return torch.from_numpy(self._characters.astype(np.int64))

    @cached_property
    def prompts(self) -> Tensor:
        """Return ``[S]`` int64: tokens of the prompt of each sequence."""
        if self._prompts is None:
            return torch.zeros_like(self.lengths)
        return torch.from_numpy(self._prompts.astype(np.int64))

    @cached_property
    def marks(self) -> Tensor:
        """Return ``[S, R, 2]`` int64: the tokens with which the marked regions of each sequence begin and end."""
        marks = np.empty(0) if self._marks is None else self._marks
        return torch.from_numpy(marks.astype(np.int64)).view(len(self), -1, 2)

    def take(self, index: Tensor) -> Ragged:
        """Return the sequences ``index`` ``[B]``."""
        lengths = self.lengths[index]
        before = torch.from_numpy(self._offsets[:-1][index.numpy()]) - (lengths.cumsum(0) - lengths)
        positions = before.repeat_interleave(lengths) + torch.arange(int(lengths.sum()))  # [N]
        return Ragged(torch.from_numpy(self._tokens[positions.numpy()].astype(np.int64)), lengths)


class BalancedStore(TokenStore):
    """Several stores in equal parts: in one pass each is seen equally often, a small one again and again.

    >>> few, many = (TokenStore(np.arange(n), np.arange(n + 1), np.ones(n)) for n in (1, 3))
    >>> BalancedStore([few, many]).take(torch.arange(6)).tolist()
    [[0], [0], [0], [1], [0], [2]]
    """

    def __init__(self, stores: Sequence[TokenStore]) -> None:
        self._stores = stores

    def __len__(self) -> int:
        return len(self._stores) * max(map(len, self._stores))

    def _spread(self, name: str) -> Tensor:
        size = max(map(len, self._stores))
        columns = [getattr(store, name)[torch.arange(size) % len(store)] for store in self._stores]
        return torch.stack(columns, 1).flatten(0, 1)

    lengths = cached_property(lambda self: self._spread("lengths"))
    characters = cached_property(lambda self: self._spread("characters"))
    prompts = cached_property(lambda self: self._spread("prompts"))
    marks = cached_property(lambda self: self._spread("marks"))

    def take(self, index: Tensor) -> Ragged:
        owner, row = index % len(self._stores), index // len(self._stores)
        positions = [(owner == number).nonzero().flatten() for number in range(len(self._stores))]
        parts = [store.take(row[own] % len(store)) for store, own in zip(self._stores, positions, strict=True)]
        return Ragged.cat(parts)[torch.cat(positions).argsort()]


class StoreWriter:
    """Write what `TokenStore.open` reads."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype) -> None:
        self._folder, self._name, self._dtypes = folder, name, {"tokens": dtype, **_DTYPES}
        self.sequences = self.tokens = 0
        self._write(offsets=[0])

    def append(
        self,
        sequences: list[np.ndarray],
        characters: list[int],
        prompts: list[int] | None = None,
        marks: list[list[int]] | None = None,
    ) -> None:
        """Append sequences, with how many characters of text each is and what else `TokenStore` has of each."""
        if sequences:
            offsets = self.tokens + np.cumsum([len(sequence) for sequence in sequences], dtype=np.int64)
            self._write(tokens=np.concatenate(sequences), offsets=offsets, characters=characters)
            if prompts is not None:
                self._write(prompts=prompts)
            if marks is not None:
                self._write(marks=marks)
            self.sequences, self.tokens = self.sequences + len(sequences), int(offsets[-1])

    def _write(self, **parts: Any) -> None:
        for part, values in parts.items():
            with _part(self._folder, self._name, part).open("ab") as file:
                np.asarray(values, self._dtypes[part]).tofile(file)


def token_dtype(size: int) -> np.dtype:
    """Return the smallest type that holds all ids of a vocabulary."""
    return np.dtype(np.uint16 if size <= 1 << 16 else np.uint32)


def _part(folder: Path, name: str, part: str) -> Path:
    return folder / f"{name}.{part}.bin"
