"""Token sequences on disk, read a few at a time."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from flexmdm.sequences import Ragged


class TokenStore:
    """Token sequences end to end, as arrays that may be memory-mapped: only what is asked for is read.

    Args:
        tokens: ``[N]``, unsigned integers.
        offsets: ``[S + 1]``, where each sequence begins in ``tokens``; the last is N.
        characters: ``[S]``, how many characters of text each sequence is.

    >>> store = TokenStore(np.array([5, 6, 7, 8]), np.array([0, 3, 4]), np.array([9, 2]))
    >>> len(store), store.lengths, store.characters
    (2, tensor([3, 1]), tensor([9, 2]))
    >>> store.take(torch.tensor([1, 0])).tolist()
    [[8], [5, 6, 7]]
    """

    def __init__(self, tokens: np.ndarray, offsets: np.ndarray, characters: np.ndarray) -> None:
        self._tokens, self._offsets, self._characters = tokens, offsets, characters

    @classmethod
    def open(cls, folder: Path, name: str, dtype: np.dtype) -> TokenStore:
        """Map what a `StoreWriter` wrote."""
        dtypes = {"tokens": dtype, "offsets": np.dtype(np.int64), "characters": np.dtype(np.int32)}
        return cls(*(np.memmap(_part(folder, name, part), dtypes[part], "r") for part in dtypes))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @cached_property
    def lengths(self) -> Tensor:
        """``[S]`` int64: tokens of each sequence."""
        return torch.from_numpy(np.diff(self._offsets))

    @cached_property
    def characters(self) -> Tensor:
        """``[S]`` int64: characters of the text of each sequence."""
        return torch.from_numpy(self._characters.astype(np.int64))

    def take(self, index: Tensor) -> Ragged:
        """The sequences ``index`` ``[B]``."""
        lengths = self.lengths[index]
        before = torch.from_numpy(self._offsets[:-1][index.numpy()]) - (lengths.cumsum(0) - lengths)
        places = before.repeat_interleave(lengths) + torch.arange(int(lengths.sum()))  # [N]
        return Ragged(torch.from_numpy(self._tokens[places.numpy()].astype(np.int64)), lengths)


class StoreWriter:
    """Writes what `TokenStore.open` reads."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype) -> None:
        self._files = {part: _part(folder, name, part).open("wb") for part in ("tokens", "offsets", "characters")}
        self._dtype, self.sequences, self.tokens = dtype, 0, 0
        np.zeros(1, np.int64).tofile(self._files["offsets"])

    def append(self, sequences: list[np.ndarray], characters: list[int]) -> None:
        """Some more sequences, and how many characters of text each is."""
        if sequences:
            offsets = self.tokens + np.cumsum([len(sequence) for sequence in sequences], dtype=np.int64)
            np.concatenate(sequences).astype(self._dtype).tofile(self._files["tokens"])
            offsets.tofile(self._files["offsets"])
            np.array(characters, np.int32).tofile(self._files["characters"])
            self.sequences, self.tokens = self.sequences + len(sequences), int(offsets[-1])

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def token_dtype(size: int) -> np.dtype:
    """The smallest type that holds all ids of a vocabulary."""
    return np.dtype(np.uint16 if size <= 1 << 16 else np.uint32)


def _part(folder: Path, name: str, part: str) -> Path:
    return folder / f"{name}.{part}.bin"
