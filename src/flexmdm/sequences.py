"""A batch of sequences of different lengths, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


class Places:
    """Hold where the entries of sequences of given lengths are, computed when asked for, for all batches of them."""

    def __init__(self, lengths: Tensor, total: int) -> None:
        self.lengths, self.total = lengths, total

    @cached_property
    def max_length(self) -> int:
        return int(self.lengths.max()) if len(self.lengths) else 0

    @cached_property
    def offsets(self) -> Tensor:
        return torch.cat([self.lengths.new_zeros(1), self.lengths.cumsum(0)])

    @cached_property
    def rows(self) -> Tensor:
        index = torch.arange(len(self.lengths), device=self.lengths.device)
        return index.repeat_interleave(self.lengths, output_size=self.total)

    @cached_property
    def columns(self) -> Tensor:
        return torch.arange(self.total, device=self.lengths.device) - self.offsets[self.rows]

    def part(self, which: int | slice | Tensor) -> tuple[Tensor, Places]:
        """Return the indices of the entries of some sequences, and the places of these in a batch of their own."""
        if isinstance(which, Tensor) and which.dtype == torch.bool:
            which = which.nonzero().squeeze(1)
        lengths = self.lengths[which].reshape(-1)
        starts = self.offsets[:-1][which].reshape(-1)
        shift = (starts - (lengths.cumsum(0) - lengths)).repeat_interleave(lengths)
        return shift + torch.arange(len(shift), device=shift.device), Places(lengths, len(shift))


@dataclass(frozen=True, eq=False)
class Ragged:
    """B sequences of any lengths (also 0), stored end to end.

    Attributes:
        values: ``[N, ...]``, the entries of all sequences, one sequence after the other.
        lengths: ``[B]`` int64, how many entries each sequence has; they add up to N.

    >>> r = Ragged.from_lists([[5, 6, 7], [], [8]])
    >>> r.values, r.lengths
    (tensor([5, 6, 7, 8]), tensor([3, 0, 1]))
    >>> r.rows, r.columns  # which sequence, and where in it, each entry is
    (tensor([0, 0, 0, 2]), tensor([0, 1, 2, 0]))
    >>> r.to_padded(-1)
    tensor([[ 5,  6,  7],
            [-1, -1, -1],
            [ 8, -1, -1]])
    >>> r[torch.tensor([2, 0])].tolist()
    [[8], [5, 6, 7]]
    """

    values: Tensor
    lengths: Tensor

    def __post_init__(self) -> None:
        if self.lengths.ndim != 1 or self.lengths.is_floating_point():
            raise ValueError(
                f"lengths must be a 1-D integer tensor, got {tuple(self.lengths.shape)} {self.lengths.dtype}"
            )
        if self.lengths.device != self.values.device:
            raise ValueError(
                f"values are on {self.values.device} but lengths on {self.lengths.device}; move one of them"
            )
        if self.lengths.dtype != torch.int64:
            object.__setattr__(self, "lengths", self.lengths.long())
        if len(self.lengths) and int(self.lengths.min()) < 0:
            raise ValueError(f"lengths must not be negative, got {self.lengths.tolist()}")
        if self.values.ndim == 0 or int(self.lengths.sum()) != self.values.shape[0]:
            raise ValueError(
                f"lengths add up to {int(self.lengths.sum())} but there are {tuple(self.values.shape)[:1]} values"
            )

    @classmethod
    def at(cls, places: Places, values: Tensor) -> Ragged:
        """Return a batch with entries that are known to belong to these places."""
        made = object.__new__(cls)
        made.__dict__.update(values=values, lengths=places.lengths, places=places)
        return made

    # Construction -----------------------------------------------------------------------------------------------------

    @classmethod
    def from_lists(
        cls, lists: Sequence[Sequence], dtype: torch.dtype = torch.int64, device: torch.device | str | None = None
    ) -> Ragged:
        """Return a batch with one sequence per inner list; ``from_lists([])`` is the empty batch."""
        values = torch.tensor([value for sequence in lists for value in sequence], dtype=dtype, device=device)
        lengths = torch.tensor([len(sequence) for sequence in lists], dtype=torch.int64, device=device)
        return cls(values, lengths)

    @classmethod
    def from_padded(cls, padded: Tensor, lengths: Tensor) -> Ragged:
        """Return the first ``lengths[b]`` entries of each row of ``padded`` ``[B, W, ...]``."""
        if padded.ndim < 2 or padded.shape[0] != lengths.shape[0]:
            raise ValueError(f"padded must be [B, W, ...] with B = {lengths.shape[0]}, got {tuple(padded.shape)}")
        if len(lengths) and int(lengths.max()) > padded.shape[1]:
            raise ValueError(f"a length of {int(lengths.max())} does not fit in a width of {padded.shape[1]}")
        inside = torch.arange(padded.shape[1], device=padded.device) < lengths[:, None]
        return cls(padded[inside], lengths)

    @classmethod
    def cat(cls, batches: Sequence[Ragged]) -> Ragged:
        """Return all sequences of all batches, in order."""
        if not batches:
            raise ValueError("nothing to concatenate: give at least one Ragged")
        return cls(torch.cat([b.values for b in batches]), torch.cat([b.lengths for b in batches]))

    # Where things are -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.lengths.shape[0]

    @property
    def device(self) -> torch.device:
        return self.values.device

    @cached_property
    def places(self) -> Places:
        return Places(self.lengths, self.values.shape[0])

    @property
    def max_length(self) -> int:
        return self.places.max_length

    @property
    def offsets(self) -> Tensor:
        """Return ``[B + 1]``, the index in ``values`` at which each sequence starts; the last is N."""
        return self.places.offsets

    @property
    def rows(self) -> Tensor:
        """Return ``[N]``, the index of the sequence each entry belongs to."""
        return self.places.rows

    @property
    def columns(self) -> Tensor:
        """Return ``[N]``, the position of each entry in its sequence."""
        return self.places.columns

    # Conversion -------------------------------------------------------------------------------------------------------

    def with_values(self, values: Tensor) -> Ragged:
        """Return the same lengths with other entries."""
        if values.shape[:1] != self.values.shape[:1] or values.device != self.device:
            return Ragged(values, self.lengths)  # which says what is wrong
        return Ragged.at(self.places, values)

    def to(self, device: torch.device | str) -> Ragged:
        if torch.device(device) == self.device:
            return self
        return Ragged(self.values.to(device), self.lengths.to(device))

    def to_padded(self, fill: float) -> Tensor:
        """Return ``[B, max length, ...]``, with ``fill`` behind the end of each sequence."""
        padded = self.values.new_full((len(self), self.max_length, *self.values.shape[1:]), fill)
        padded[self.rows, self.columns] = self.values
        return padded

    def split(self) -> list[Tensor]:
        """Return one tensor per sequence."""
        return list(self.values.split(self.lengths.tolist())) if len(self) else []

    def tolist(self) -> list[list]:
        values, offsets = self.values.tolist(), self.offsets.tolist()
        return [values[a:b] for a, b in zip(offsets[:-1], offsets[1:], strict=True)]

    # Parts ------------------------------------------------------------------------------------------------------------

    def __getitem__(self, which: int | slice | Tensor) -> Ragged:
        """Return some of the sequences, by an index, a slice, a tensor of indices or a boolean ``[B]``."""
        index, places = self.places.part(which)
        return Ragged.at(places, self.values[index])

    def keep(self, mask: Tensor) -> Ragged:
        """Keep only the entries where ``mask`` ``[N]`` is true; every sequence stays, if only as an empty one."""
        values = self.values[mask]
        return Ragged.at(Places(self.count(mask), len(values)), values)

    def count(self, mask: Tensor) -> Tensor:
        """Return ``[B]``, the number of entries of each sequence where ``mask`` ``[N]`` is true."""
        return self.sum(mask.long())

    def sum(self, values: Tensor | None = None) -> Tensor:
        """Return ``[B, ...]``, the sum over each sequence of its entries or of other ``values`` ``[N, ...]``."""
        values = self.values if values is None else values
        return values.new_zeros((len(self), *values.shape[1:])).index_add(0, self.rows, values)

    def __repr__(self) -> str:
        shown = self.tolist() if self.values.shape[0] <= 64 else f"{len(self)} sequences, {self.values.shape[0]} values"
        return f"Ragged({shown})"
