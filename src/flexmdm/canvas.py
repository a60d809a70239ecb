"""Templates, prompts and canvases: what is given, what is open, and what the network sees.

Every token of a clean sequence plays one role: *free* (inserted, then revealed), *present* (a mask from the start, only
revealed) or *fixed* (clean from the start). Present and fixed tokens are *given*. A gap between given tokens is *open*
(free tokens may be there) or *closed*. Roles and gaps together are a `Template`. All free with one open gap is FlexMDM,
all present with no open gap is MDM, fixed tokens with open gaps are prompts, infilling and waypoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from flexmdm.precision import float64_device
from flexmdm.randomness import StepRandomness, hash_rows
from flexmdm.sequences import Places, Ragged

_UNLIMITED = 2**62


class Role(IntEnum):
    """Name what a clean token does in the interpolant."""

    FREE = 0
    PRESENT = 1
    FIXED = 2


def gaps_of(sequences: Ragged, values: Tensor) -> Ragged:
    """Return ``values`` as a batch with one entry for each of the length + 1 gaps of every sequence."""
    return Ragged(values, sequences.lengths + 1)


@dataclass(frozen=True, eq=False)
class Template:
    """The roles of the tokens of a batch of clean sequences, and which gaps between given tokens are open.

    Attributes:
        roles: a `Role` for every clean token.
        open_gaps: for each sequence, one boolean for each of its (number of given tokens + 1) gaps.

    >>> x1 = Ragged.from_lists([[4, 7, 7, 5]])
    >>> template = Template.fixed(x1, torch.tensor([True, False, False, True]))  # 4 and 5 stay, 7 7 is to be found
    >>> template.roles.tolist(), template.open_gaps.tolist()
    ([[2, 0, 0, 2]], [[False, True, False]])
    """

    roles: Ragged
    open_gaps: Ragged

    def __post_init__(self) -> None:
        given = self.roles.count(self.given)
        if not torch.equal(self.open_gaps.lengths, given + 1):
            raise ValueError(
                f"a template has one more gap than given tokens: the given tokens are {given.tolist()}, "
                f"the gaps {self.open_gaps.lengths.tolist()}"
            )
        in_open = self.open_gaps.values[self.token_gaps]
        if bool((~in_open & ~self.given).any()):
            index = int((~in_open & ~self.given).nonzero()[0])
            raise ValueError(
                f"sequence {int(self.roles.rows[index])} has a free token at position "
                f"{int(self.roles.columns[index])}, inside a closed gap: open the gap or give the token"
            )

    @property
    def given(self) -> Tensor:
        """Return ``[N]``, true for the clean tokens that are present or fixed."""
        return self.roles.values != Role.FREE

    @property
    def token_gaps(self) -> Tensor:
        """Return ``[N]``, the index into ``open_gaps.values`` of the gap each clean token is in (or, given, ends)."""
        return _gap_of_each_token(self.roles)

    @classmethod
    def free(cls, x1: Ragged) -> Template:
        """Return the template of FlexMDM: every token is free, the one gap is open."""
        return cls(x1.with_values(torch.full_like(x1.values, Role.FREE)), _gaps(torch.zeros_like(x1.lengths), True))

    @classmethod
    def masks(cls, x1: Ragged) -> Template:
        """Return the template of MDM: every token is a mask from the start, nothing is inserted."""
        return cls(x1.with_values(torch.full_like(x1.values, Role.PRESENT)), _gaps(x1.lengths, False))

    @classmethod
    def fixed(cls, x1: Ragged, fixed: Tensor, open_gaps: Ragged | None = None) -> Template:
        """Return the template in which the tokens where ``fixed`` ``[N]`` is true are a prompt.

        By default exactly the gaps that hold free tokens are open, so that an open gap is known not to be empty.
        """
        return cls.of_roles(x1.with_values(torch.where(fixed, int(Role.FIXED), int(Role.FREE))), open_gaps)

    @classmethod
    def of_roles(cls, roles: Ragged, open_gaps: Ragged | None = None) -> Template:
        """Return the template with these roles; by default exactly the gaps that hold free tokens are open."""
        if open_gaps is None:
            free = roles.values == Role.FREE
            open_gaps = _gaps(roles.count(~free), False)
            open_gaps.values[_gap_of_each_token(roles)[free]] = True
        return cls(roles, open_gaps)

    def __getitem__(self, which: int | slice | Tensor) -> Template:
        return Template(self.roles[which], self.open_gaps[which])

    def to(self, device: torch.device | str) -> Template:
        return Template(self.roles.to(device), self.open_gaps.to(device))


def _gap_of_each_token(roles: Ragged) -> Tensor:
    """Return ``[N]``, the flat index of the gap between given tokens that each token is in (or, given, ends)."""
    given = (roles.values != Role.FREE).long()
    before = given.cumsum(0) - given  # given tokens ahead of it in the whole batch; one gap more per earlier sequence
    return before + roles.rows


def _gaps(given: Tensor, is_open: bool) -> Ragged:
    lengths = given + 1
    return Ragged(torch.full((int(lengths.sum()),), is_open, device=given.device), lengths)


Flags = Ragged | Tensor | Sequence[Sequence[bool]]


def _flags(value: Flags | None, lengths: Tensor, name: str, default: bool) -> Ragged:
    """Return booleans for a batch of sequences, which may come ragged, flat or as lists."""
    if value is None:
        return Ragged(torch.full((int(lengths.sum()),), default, device=lengths.device), lengths)
    if isinstance(value, Tensor):
        value = Ragged(value, lengths)
    elif not isinstance(value, Ragged):
        value = Ragged.from_lists(value, dtype=torch.bool, device=lengths.device)
    if value.values.dtype != torch.bool:
        raise ValueError(f"{name} must be boolean, got {value.values.dtype}")
    if not torch.equal(value.lengths, lengths):
        raise ValueError(f"{name} must have lengths {lengths.tolist()}, got {value.lengths.tolist()}")
    return value


@dataclass(frozen=True, eq=False, init=False)
class Canvas:
    """A batch of states x_t: tokens and masks, which of them are given, and which gaps may still grow.

    Attributes:
        tokens: clean tokens and masks.
        mask_id: the token that is a mask; it may lie outside the vocabulary.
        given: for every entry, whether it was there from the start (stays true after a reveal). Default: nothing.
        open_gaps: for each of the length + 1 gaps of every sequence, whether masks may be inserted. Default: all.
            Both may also be given flat (``[N]``, ``[N + B]``) or as lists.
        max_length: insertions beyond this length are left out; ``None`` for no limit.
        limits: for each sequence and each of its (number of given entries + 1) spaces between given entries, the most
            free entries that it may hold; its gaps close when that is reached. ``None`` for no limit.
        ids: an identity for every entry that it keeps as others are inserted around it (for traces).
        memory: ``[B, k]`` float64, what a sampler wants to know in its next step; no denoiser looks at it. Zeros are no
            memory, and may be put behind it: a sequence begins with them, wherever it joins others.

    >>> canvas = Canvas(Ragged.from_lists([[0, 3], []]), mask_id=3)
    >>> canvas.open_gaps.tolist()
    [[True, True, True], [True]]
    >>> canvas.insert_masks(torch.tensor([0, 2, 0, 1])).tokens.tolist()
    [[0, 3, 3, 3], [3]]
    >>> canvas.reveal(torch.tensor([1]), torch.tensor([2])).tokens.tolist()
    [[0, 2], []]
    """

    tokens: Ragged
    mask_id: int
    given: Ragged
    open_gaps: Ragged
    max_length: int | None
    limits: Ragged | None
    ids: Ragged | None
    memory: Tensor | None

    def __init__(
        self,
        tokens: Ragged,
        mask_id: int,
        given: Flags | None = None,
        open_gaps: Flags | None = None,
        max_length: int | None = None,
        ids: Ragged | None = None,
        memory: Tensor | None = None,
        limits: Ragged | None = None,
    ) -> None:
        fill = object.__setattr__
        fill(self, "tokens", tokens)
        fill(self, "mask_id", mask_id)
        fill(self, "given", _flags(given, tokens.lengths, "given", False))
        fill(self, "open_gaps", _flags(open_gaps, tokens.lengths + 1, "open_gaps", True))
        fill(self, "max_length", max_length)
        fill(self, "limits", limits)
        fill(self, "ids", ids)
        fill(self, "memory", memory)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def device(self) -> torch.device:
        return self.tokens.device

    @property
    def lengths(self) -> Tensor:
        return self.tokens.lengths

    @cached_property
    def is_mask(self) -> Tensor:
        """Return ``[N]``, true for the entries that are masks."""
        return self.tokens.values == self.mask_id

    @cached_property
    def masks(self) -> Tensor:
        """Return ``[M]``, the indices of the masks in ``tokens.values``, in order."""
        return self.is_mask.nonzero().squeeze(1)

    @cached_property
    def num_masks(self) -> Tensor:
        """Return ``[B]``, the number of masks."""
        return self.tokens.count(self.is_mask)

    @cached_property
    def num_open(self) -> Tensor:
        """Return ``[B]``, the number of open gaps."""
        return self.open_gaps.count(self.open_gaps.values)

    def _with(self, **parts: Any) -> Canvas:
        """Return a canvas with other parts, which are known to fit."""
        made = object.__new__(Canvas)
        made.__dict__.update({f.name: self.__dict__[f.name] for f in fields(Canvas)}, **parts)
        return made

    def with_memory(self, memory: Tensor | None) -> Canvas:
        """Return the same states with another memory."""
        return self._with(memory=memory)

    def __getitem__(self, which: int | slice | Tensor) -> Canvas:
        entries, places = self.tokens.places.part(which)
        gaps, gap_places = self.open_gaps.places.part(which)
        return self._with(
            tokens=Ragged.at(places, self.tokens.values[entries]),
            given=Ragged.at(places, self.given.values[entries]),
            open_gaps=Ragged.at(gap_places, self.open_gaps.values[gaps]),
            limits=None if self.limits is None else self.limits[which],
            ids=None if self.ids is None else Ragged.at(places, self.ids.values[entries]),
            memory=None if self.memory is None else self.memory[which].reshape(-1, self.memory.shape[1]),
        )

    def to(self, device: torch.device | str) -> Canvas:
        return replace(
            self,
            tokens=self.tokens.to(device),
            given=self.given.to(device),
            open_gaps=self.open_gaps.to(device),
            limits=None if self.limits is None else self.limits.to(device),
            ids=None if self.ids is None else self.ids.to(device),
            memory=None if self.memory is None else self.memory.to(float64_device(device)),
        )

    @classmethod
    def cat(cls, canvases: Sequence[Canvas]) -> Canvas:
        """Return all states of all canvases, in order; limits and ids only if all have them.

        A memory is as wide as the widest, and zero where a canvas has none.
        """
        limits = [c.limits for c in canvases if c.limits is not None]
        ids = [c.ids for c in canvases if c.ids is not None]
        widest = max((c.memory.shape[1] for c in canvases if c.memory is not None), default=0)
        return canvases[0]._with(
            tokens=Ragged.cat([c.tokens for c in canvases]),
            given=Ragged.cat([c.given for c in canvases]),
            open_gaps=Ragged.cat([c.open_gaps for c in canvases]),
            limits=Ragged.cat(limits) if len(limits) == len(canvases) else None,
            ids=Ragged.cat(ids) if len(ids) == len(canvases) else None,
            memory=torch.cat([c.memory_of_width(widest) for c in canvases]) if widest else None,
        )

    def memory_of_width(self, width: int) -> Tensor:
        """Return the memory, ``[B, width]``, with zeros behind what there is of it."""
        if self.memory is None:
            return torch.zeros(len(self), width, dtype=torch.float64, device=self.device)
        return torch.nn.functional.pad(self.memory, (0, width - self.memory.shape[1]))

    def distinct(self) -> tuple[Canvas, Tensor]:
        """Return the different states of the batch in order of appearance, and ``[B]`` the index of each in them."""
        tokens, given = self.tokens.to_padded(-1), self.given.to_padded(False)
        key = torch.cat([self.lengths[:, None], tokens, given.long(), self.open_gaps.to_padded(True).long()], 1)
        first, which = _appearances(hash_rows(key))  # sorting numbers is far cheaper than sorting rows
        if not torch.equal(key, key[first[which]]):  # two rows with one hash
            first, which = _appearances(torch.unique(key, dim=0, return_inverse=True)[1])
        return self[first], which

    def reveal(self, where: Tensor, tokens: Tensor) -> Canvas:
        """Put ``tokens`` ``[K]`` at ``where`` ``[K]``, indices into ``tokens.values`` that hold masks."""
        values = self.tokens.values.clone()
        values[where] = tokens.to(values.dtype)
        return self._with(tokens=self.tokens.with_values(values))

    def insert_masks(self, counts: Tensor) -> Canvas:
        """Insert ``counts`` ``[N + B]`` masks in the gaps; each splits its (open) gap into two open ones."""
        if not bool(counts.any()):
            return self
        gaps = self.open_gaps
        if bool((counts * ~gaps.values).any()):
            raise ValueError("a closed gap receives no masks: counts must be 0 where open_gaps is false")
        last = gaps.offsets[1:] - 1  # every other gap has an entry behind it
        ends = (counts + 1).cumsum(0) - gaps.rows
        ends[last] -= 1
        lengths = self.lengths + gaps.sum(counts)
        total = int(ends[-1])
        old = ends[torch.ones_like(gaps.values).index_fill(0, last, False)] - 1  # where the old entries go

        def spread(values: Tensor, fill: int | bool) -> Tensor:
            wide = values.new_full((total,), fill)
            wide[old] = values
            return wide

        places = Places(lengths, total)
        tokens = Ragged.at(places, spread(self.tokens.values, self.mask_id))
        ids = None
        if self.ids is not None:
            values = spread(self.ids.values, -1)
            new = values < 0
            rank = new.long().cumsum(0) - 1
            first = (lengths - self.lengths).cumsum(0) - (lengths - self.lengths)
            values[new] = (self.lengths[tokens.rows] + rank - first[tokens.rows])[new]
            ids = tokens.with_values(values)
        open_gaps = gaps.values.repeat_interleave(counts + 1, output_size=total + len(self))
        grown = self._with(
            tokens=tokens,
            given=Ragged.at(places, spread(self.given.values, False)),
            open_gaps=Ragged.at(Places(lengths + 1, len(open_gaps)), open_gaps),
            ids=ids,
        )
        return grown if self.limits is None else grown._close_full(self.limits)

    def spaces(self, limits: Ragged) -> tuple[Tensor, Tensor]:
        """Return for each gap ``[N + B]`` its space between given entries, and for each space the room left in it."""
        given = self.given.values.long()
        before = torch.cat([given.new_zeros(1), given.cumsum(0)])  # given entries ahead of an entry in the batch
        gaps = self.open_gaps
        space = before[self.tokens.offsets[gaps.rows] + gaps.columns] + gaps.rows
        held = torch.zeros_like(limits.values).index_add(0, before[:-1] + self.tokens.rows, 1 - given)
        return space, limits.values - held

    def _close_full(self, limits: Ragged) -> Canvas:
        space, room = self.spaces(limits)
        return self._with(open_gaps=self.open_gaps.with_values(self.open_gaps.values & (room > 0)[space]))

    def within_limit(self, counts: Tensor, rng: StepRandomness) -> Tensor:
        """Cut ``counts`` ``[N + B]`` down, in random gaps, to what ``limits`` and ``max_length`` leave room for."""
        if self.limits is not None:
            counts = self._cut(counts, *self.spaces(self.limits), rng)
        if self.max_length is not None:
            counts = self._cut(counts, self.open_gaps.rows, self.max_length - self.lengths, rng)
        return counts

    def _cut(self, counts: Tensor, group: Tensor, room: Tensor, rng: StepRandomness) -> Tensor:
        """Cut ``counts`` down to at most ``room`` in each group; ``group`` ``[N + B]`` ascends."""
        room = room.clamp(min=0)
        if bool((torch.zeros_like(room).index_add(0, group, counts) <= room).all()):
            return counts
        gap = torch.arange(len(counts), device=self.device).repeat_interleave(counts)  # one row per drawn insertion
        rows = self.open_gaps.rows[gap]
        number = torch.arange(len(gap), device=self.device) - torch.searchsorted(rows, rows)  # among those of its row
        key = rng.uniform("limit", rows, number)
        kept = gap[rank_within(group[gap], key) < room[group[gap]]]
        return torch.zeros_like(counts).index_add(0, kept, torch.ones_like(kept))

    @classmethod
    def of_prompts(
        cls,
        prompts: Sequence[Prompt],
        mask_id: int,
        max_length: int | None = None,
        device: torch.device | str | None = None,
    ) -> Canvas:
        """Return the states at t = 0: everything in a prompt is given."""
        if any(v == mask_id for p in prompts for v in p.tokens):
            raise ValueError(f"a prompt has the mask id {mask_id} among its tokens: write None for a mask to reveal")
        tokens = Ragged.from_lists([[mask_id if v is None else v for v in p.tokens] for p in prompts], device=device)
        open_gaps = Ragged.from_lists([p.open_gaps for p in prompts], dtype=torch.bool, device=device)
        limits = None
        if any(p.limits is not None for p in prompts):
            most = [[_UNLIMITED if m is None else m for m in p.limits or (None,) * len(p.open_gaps)] for p in prompts]
            limits = Ragged.from_lists(most, device=device)
        canvas = cls(
            tokens,
            mask_id,
            given=tokens.with_values(torch.ones_like(tokens.values, dtype=torch.bool)),
            open_gaps=open_gaps,
            max_length=max_length,
            limits=limits,
        )
        return canvas if limits is None else canvas._close_full(limits)


def runs_of_masks(canvas: Canvas) -> tuple[Tensor, Tensor]:
    """Return for each gap its run of masks ``[N + B]``, and for each run its sequence ``[R]``.

    Two gaps belong to one run if only free masks lie between them: inserting in either gives the same state.
    """
    gaps = canvas.open_gaps
    first = gaps.columns == 0
    starts = torch.ones_like(first)
    starts[~first] = ~(canvas.is_mask & ~canvas.given.values)
    return starts.long().cumsum(0) - 1, gaps.rows[starts]


def _appearances(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the index at which each different label of ``[B]`` appears first, and ``[B]`` the number of each label."""
    values, which = torch.unique(labels, return_inverse=True)
    index = torch.arange(len(labels), device=labels.device)
    first = torch.zeros_like(values, dtype=torch.int64).scatter_reduce(0, which, index, "amin", include_self=False)
    order = torch.argsort(first)
    return first[order], torch.argsort(order)[which]


def rank_within(rows: Tensor, key: Tensor) -> Tensor:
    """Return ``[K]``, the rank (0 is the smallest ``key``) of each item among those of its row; ties keep their order.

    ``rows`` ``[K]`` must be in ascending order.

    >>> rank_within(torch.tensor([0, 0, 1, 1]), torch.tensor([0.5, 0.1, 0.2, 0.3]))
    tensor([1, 0, 0, 1])
    """
    order = torch.argsort(key, stable=True)
    order = order[torch.argsort(rows[order], stable=True)]
    index = torch.arange(len(rows), device=rows.device)
    rank = torch.empty_like(order)
    rank[order] = index - torch.searchsorted(rows, rows, right=False)
    return rank


@dataclass(frozen=True)
class Prompt:
    """Say what generation starts from: fixed tokens, masks (``None``) that are there from the start, and open gaps.

    Attributes:
        tokens: what is there.
        open_gaps: for each of the length + 1 gaps, whether tokens may come there.
        limits: for each gap, the most tokens that may come there; ``None`` for any number.

    >>> Prompt.prefix([7, 8])  # goes on behind 7 8
    Prompt(tokens=(7, 8), open_gaps=(False, False, True))
    >>> Prompt.infill([[7], [8, 9]])  # 7 ... 8 9
    Prompt(tokens=(7, 8, 9), open_gaps=(False, True, False, False))
    >>> Prompt.infill([[], [7], []])  # ... 7 ...
    Prompt(tokens=(7,), open_gaps=(True, True))
    >>> Prompt.through([1, 2, 3])  # waypoints
    Prompt(tokens=(1, 2, 3), open_gaps=(False, True, True, False))
    >>> Prompt.masks(2)  # known length: MDM
    Prompt(tokens=(None, None), open_gaps=(False, False, False))
    """

    tokens: tuple[int | None, ...]
    open_gaps: tuple[bool, ...]
    limits: tuple[int | None, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if len(self.open_gaps) != len(self.tokens) + 1:
            raise ValueError(
                f"a prompt of {len(self.tokens)} tokens has {len(self.tokens) + 1} gaps, got {len(self.open_gaps)}"
            )
        if self.limits is not None and len(self.limits) != len(self.open_gaps):
            raise ValueError(
                f"limits has one number (or None) for each of {len(self.open_gaps)} gaps, got {self.limits}"
            )
        if None not in self.tokens and not any(self.open_gaps):
            raise ValueError(
                f"nothing to generate: the prompt {self.tokens} has no mask and no open gap; "
                "open a gap (an empty piece at an end of Prompt.infill opens that end) or use Prompt.prefix"
            )

    @classmethod
    def empty(cls) -> Prompt:
        """Return the prompt with nothing given and all to generate."""
        return cls((), (True,))

    @classmethod
    def prefix(cls, tokens: Iterable[int]) -> Prompt:
        """Return the prompt that goes on behind ``tokens``."""
        return cls.infill([tokens, []])

    @classmethod
    def infill(
        cls,
        pieces: Iterable[Iterable[int]],
        minimum: int | Sequence[int] = 0,
        maximum: int | Sequence[int] | None = None,
    ) -> Prompt:
        """Return the prompt with a gap between consecutive pieces; an empty first or last piece opens that end.

        Each gap gets at least ``minimum`` tokens and at most ``maximum``: so many masks are there from the start, and
        the gap behind them closes when it is full. Both are one number for all gaps, or one for each.
        """
        first, *others = [[int(v) for v in piece] for piece in pieces] or [[]]
        tokens: list[int | None] = [*first]
        gaps: list[bool] = [False] * (len(first) + 1)
        limits: list[int | None] = [None] * (len(first) + 1)
        mosts = [None] * len(others) if maximum is None else _of_each_gap(maximum, len(others))
        for piece, least, most in zip(others, _of_each_gap(minimum, len(others)), mosts, strict=True):
            if least < 0 or (most is not None and most < least):
                raise ValueError(
                    f"a gap takes from minimum to maximum tokens, 0 <= minimum <= maximum; got {least} to {most}"
                )
            tokens += [*[None] * least, *piece]
            gaps += [False] * least
            limits += [None] * least
            gaps[-1] = most is None or most > least
            limits[-1] = None if most is None else most - least
            gaps += [False] * len(piece)
            limits += [None] * len(piece)
        return cls(tuple(tokens), tuple(gaps), None if maximum is None else tuple(limits))

    @classmethod
    def through(cls, waypoints: Iterable[int]) -> Prompt:
        """Return the prompt for a path from the first waypoint to the last, through all others in order."""
        return cls.infill([[w] for w in waypoints])

    @classmethod
    def masks(cls, length: int) -> Prompt:
        """Return the prompt that an MDM starts from: ``length`` masks and no open gap."""
        if length < 0:
            raise ValueError(f"a length must not be negative, got {length}")
        return cls((None,) * length, (False,) * (length + 1))


def _of_each_gap(number: int | Sequence[int], gaps: int) -> list[int]:
    """Return a number for each gap: one for all, or one for each."""
    if isinstance(number, int):
        return [number] * gaps
    if len(number) != gaps:
        raise ValueError(f"give one number for all gaps or one for each of the {gaps}, got {list(number)}")
    return list(number)
