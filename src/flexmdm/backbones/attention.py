"""Attention over packed sequences, padded within buckets of like lengths, or in bins that several sequences share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

_MOST_WASTE = 0.15  # share of padding in a bucket beyond which another bucket is worth its overhead
_ROTARY_BASE = 10_000.0
_BIN = 32  # widths of bins are multiples of this
_FINENESS = 16  # numbers of bins are rounded up by at most this share: each new shape of a product costs some time
_UNSEEN = -1e9  # what keeps a row from seeing another; finite, so that no row sees nothing


@dataclass(frozen=True, eq=False)
class Bucket:
    """Sequences of like lengths, padded to the longest for one call of SDPA."""

    shape: tuple[int, int]  # (b, w)
    keys: Tensor | None  # [b, 1, 1, w] or [b, 1, w, w] bool, the slots that each slot attends to; None for all


@dataclass(frozen=True, eq=False)
class Layout:
    """Hold where the packed rows of B sequences are, computed once per batch and used by every layer.

    >>> layout = Layout.of(torch.tensor([3, 1, 3]))
    >>> layout.position.tolist(), [bucket.shape for bucket in layout.buckets]
    ([0, 1, 2, 0, 0, 1, 2], [(2, 3), (1, 1)])
    """

    sequence: Tensor  # [R], the sequence of each row
    position: Tensor  # [R], the position of each row in its sequence
    offsets: Tensor  # [B + 1], where each sequence starts; the last is R
    longest: int
    buckets: list[Bucket] | None  # for attention by SDPA; None where attend takes another way
    slots: Tensor  # [S], the packed row in each slot of all buckets, one after the other; padding repeats a row
    back: Tensor  # [R], the slot of each row (unused without buckets, as slots)
    unseen_last: bool = False  # the last row of each sequence attends to all its rows, but only itself attends to it
    bias: Tensor | None = None  # [b, 1, w, w], where rows are in b bins already: see `in_bins`

    @classmethod
    def of(cls, lengths: Tensor, varlen: bool = False, unseen_last: bool = False) -> Layout:
        """Return the layout of sequences with ``lengths`` ``[B]``; ``varlen`` for the CUDA kernel, else in buckets."""
        sizes = lengths.tolist()  # the one synchronisation with the device
        total, device = sum(sizes), lengths.device
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        sequence = torch.arange(len(sizes), device=device).repeat_interleave(lengths, output_size=total)
        position = torch.arange(total, device=device) - offsets[sequence]
        buckets, *places = (None, position, position) if varlen else _buckets(sizes, offsets, total, unseen_last)
        longest = max(sizes, default=0)
        return cls(sequence, position, offsets, longest, buckets, *places, unseen_last=unseen_last)

    def in_bins(self) -> Layout:
        """Return the layout of b bins of w rows that several sequences share, for blocks that work on all these rows.

        ``slots`` and ``back`` lead from the packed rows to those of the bins and back. Few shapes occur and no block
        has to gather: in half precision this is several times as fast on a CPU as buckets are, for a few percent of
        padding.

        >>> bins = Layout.of(torch.tensor([20, 14, 10])).in_bins()
        >>> bins.bias.shape, bins.back.tolist() == [*range(20), *range(32, 46), *range(20, 30)]
        (torch.Size([2, 1, 32, 32]), True)
        """
        sizes = self.offsets.diff().tolist()
        width = -(-max(self.longest, 1) // _BIN) * _BIN
        starts, count = _first_fit(sizes, width)
        share = max(1 << max(count.bit_length() - 1, 0) >> (_FINENESS.bit_length() - 1), 1)
        count = -(-count // share) * share
        back = torch.tensor(starts, dtype=torch.int64, device=self.position.device)[self.sequence] + self.position
        slots = back.new_zeros(count * width).index_copy(0, back, torch.arange(len(back), device=back.device))
        owner = torch.full_like(slots, -1).index_copy(0, back, self.sequence).view(count, 1, width)
        bias = torch.where(owner[:, :, :, None] == owner[:, :, None], 0.0, _UNSEEN)
        inside = {"sequence": self.sequence[slots], "position": self.position[slots]}
        return replace(self, **inside, buckets=None, slots=slots, back=back, bias=bias)

    @property
    def is_last(self) -> Tensor:
        """Return ``[R]`` bool, true for the last row of each sequence."""
        return self.position + 1 == (self.offsets[1:] - self.offsets[:-1])[self.sequence]

    def rotation(self, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cos and sin ``[R, 1, width / 2]`` of the rotary position embedding for heads of this width."""
        angle = (self.position[:, None].float() * rotary_frequencies(width, self.position.device))[:, None]
        return angle.cos().to(dtype), angle.sin().to(dtype)


def _buckets(sizes: list[int], offsets: Tensor, total: int, unseen_last: bool) -> tuple[list[Bucket], Tensor, Tensor]:
    order = sorted((i for i in range(len(sizes)) if sizes[i]), key=lambda i: -sizes[i])
    buckets, slots, device = [], [offsets[:0]], offsets.device
    back = torch.empty(total + 1, dtype=torch.int64, device=device)  # the last is for padding
    base = 0
    for members in _groups([sizes[i] for i in order]):
        chosen = order[members]
        width, narrowest = sizes[chosen[0]], sizes[chosen[-1]]
        start = offsets[torch.tensor(chosen, device=device)][:, None]  # [b, 1]
        slot = torch.arange(width, device=device)
        real = slot < torch.tensor([sizes[i] for i in chosen], device=device)[:, None]  # [b, w]
        rows = torch.where(real, start + slot, start).flatten()
        back[torch.where(real, start + slot, total).flatten()] = torch.arange(base, base + len(rows), device=device)
        keys = None if narrowest == width else real[:, None, None]
        if unseen_last:  # all attend to all rows but the last, and each to itself
            seen = real[:, None, None].roll(-1, 3).index_fill(3, slot[-1:], False)
            keys = seen | torch.eye(width, dtype=torch.bool, device=device)
        buckets.append(Bucket((len(chosen), width), keys))
        slots.append(rows)
        base += len(rows)
    return buckets, torch.cat(slots), back[:total]


def _first_fit(sizes: list[int], width: int) -> tuple[list[int], int]:
    """Put sequences, the longest first, where the least room is left of ``width``; return their slots, and the bins."""
    with_room: list[list[int]] = [[] for _ in range(width + 1)]
    starts, count = [0] * len(sizes), 0
    for i in sorted((i for i in range(len(sizes)) if sizes[i]), key=lambda i: -sizes[i]):
        room = next((room for room in range(sizes[i], width) if with_room[room]), width)
        if room == width:
            with_room[width].append(count)
            count += 1
        chosen = with_room[room].pop()
        starts[i] = chosen * width + width - room
        with_room[room - sizes[i]].append(chosen)
    return starts, count


def _groups(descending: list[int]) -> list[slice]:
    """Cut the sorted lengths into groups that waste little when each is padded to its longest."""
    groups, start, filled = [], 0, 0
    for i, length in enumerate(descending):
        padded = descending[start] * (i - start + 1)
        if padded - filled - length > _MOST_WASTE * padded:
            groups.append(slice(start, i))
            start, filled = i, 0
        filled += length
    return [*groups, slice(start, len(descending))] if descending else []


def attend(
    q: Tensor, k: Tensor, v: Tensor, layout: Layout, scale: float | None = None, window: int | None = None
) -> Tensor:
    """Attend bidirectionally within each sequence: three times ``[R, H, E]`` -> ``[R, H * E]``.

    With a ``window`` a row attends only to rows that are fewer steps away.
    """
    if window is not None and window >= layout.longest:
        window = None
    if layout.bias is not None:
        return _attend_in_bins(q, k, v, layout.bias, scale)
    if layout.buckets is None:
        return _attend_varlen(q, k, v, layout, scale, window)
    sizes = [b * w for b, w in (bucket.shape for bucket in layout.buckets)]
    slots = (x.index_select(0, layout.slots).split(sizes) for x in (q, k, v))  # one gather for all buckets
    parts = []
    for bucket, *gathered in zip(layout.buckets, *slots, strict=True):
        b, w = bucket.shape
        gathered = (x.view(b, w, *x.shape[1:]).transpose(1, 2) for x in gathered)
        keys = bucket.keys if window is None else _near(bucket, window, q.device)
        mixed = F.scaled_dot_product_attention(*gathered, attn_mask=keys, scale=scale)  # [b, H, w, E]
        parts.append(mixed.transpose(1, 2).reshape(b * w, -1))
    return torch.cat(parts).index_select(0, layout.back) if parts else v.flatten(1)


def _attend_in_bins(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float | None) -> Tensor:
    """Attend by plain products, which autocast takes in half precision."""
    q, k, v = (x.view(bias.shape[0], bias.shape[2], *x.shape[1:]).transpose(1, 2) for x in (q, k, v))  # [b, H, w, E]
    score = q @ k.mT  # [b, H, w, w]
    score = score.to(torch.promote_types(score.dtype, bias.dtype)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    score = score + bias
    return (score.softmax(-1).to(v.dtype) @ v).transpose(1, 2).flatten(0, 1).flatten(1)


def _near(bucket: Bucket, window: int, device: torch.device) -> Tensor:
    """Return ``[1 or b, 1, w, w]`` bool, the slots within the window of each slot; padding attends to itself."""
    slot = torch.arange(bucket.shape[1], device=device)
    distance = (slot[:, None] - slot).abs()
    near = (distance < window)[None, None]
    return near if bucket.keys is None else near & bucket.keys | (distance == 0)


def _attend_varlen(q: Tensor, k: Tensor, v: Tensor, layout: Layout, scale: float | None, window: int | None) -> Tensor:
    """Attend by FlashAttention over packed sequences, on CUDA in half precision."""
    from torch.nn.attention.varlen import varlen_attn

    if torch.is_autocast_enabled(q.device.type):  # it covers SDPA but not this: q and k would stay float32
        q, k, v = (x.to(torch.get_autocast_dtype(q.device.type)) for x in (q, k, v))
    reach = (-1, -1) if window is None else (window - 1, window - 1)

    def mix(q: Tensor, keys: Tensor | slice, per_query: Tensor, per_key: Tensor) -> Tensor:
        if not len(q):
            return q.flatten(1)
        bounds = [F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32) for lengths in (per_query, per_key)]
        seen = (x[keys].contiguous() for x in (k, v))
        # The window is counted from the end of both, so that a lone last row looks back.
        mixed = varlen_attn(q, *seen, *bounds, layout.longest, layout.longest, scale=scale, window_size=reach)
        return cast(Tensor, mixed).flatten(1)

    lengths = layout.offsets.diff()
    if not layout.unseen_last:
        return mix(q, slice(None), lengths, lengths)
    last = layout.is_last
    seen = mix(q[~last], ~last, lengths - 1, lengths - 1)
    looking = mix(q[last], slice(None), torch.ones_like(lengths), lengths)
    return q.new_empty(q.shape[0], seen.shape[1]).index_put((~last,), seen).index_put((last,), looking)


def prefers_varlen(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether a network of this ``dtype``, or under autocast, can use the CUDA kernel for variable lengths."""
    if device.type != "cuda":
        return False
    if torch.is_autocast_enabled(device.type):
        dtype = torch.get_autocast_dtype(device.type)
    return dtype in (torch.float16, torch.bfloat16)


def prefers_bins(device: torch.device, compiled: bool) -> bool:
    """Return whether blocks that are ``compiled``, or in half precision, are faster on bins: when training on a CPU."""
    return device.type == "cpu" and torch.is_grad_enabled() and (compiled or torch.is_autocast_enabled("cpu"))


def rotary_frequencies(width: int, device: torch.device | None = None) -> Tensor:
    """Return ``[width / 2]``, the angle by which one position turns each pair of numbers of a head, largest first."""
    half = width // 2
    return _ROTARY_BASE ** (-torch.arange(half, device=device, dtype=torch.float32) / half)


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turn queries or keys ``[R, H, E]`` by their positions."""
    cos, sin = rotation
    a, b = x.unflatten(-1, (2, -1)).unbind(-2)  # not chunk: the gradient of a slice is mostly zeros
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -2).flatten(-2)
