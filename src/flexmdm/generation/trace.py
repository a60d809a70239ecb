"""A record of every insertion and every reveal."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from flexmdm.canvas import Canvas


@dataclass(frozen=True)
class Event:
    """One insertion or reveal.

    Attributes:
        step: which evaluation led to it, from 0.
        alpha: the clock after that step.
        kind: ``"insert"`` or ``"reveal"``.
        position: where the entry stands in the canvas after that step.
        entry: the identity of the entry: the given ones are 0, 1, ..., the inserted ones follow in order of insertion.
        token: what was revealed; ``None`` for an insertion.
    """

    step: int
    alpha: float
    kind: str
    position: int
    entry: int
    token: int | None = None


class Recorder:
    """Compares canvases before and after a step; entries are recognised by their ids."""

    def __init__(self) -> None:
        self._events: defaultdict[int, list[Event]] = defaultdict(list)

    def record(self, steps: Tensor, sequences: Tensor, before: Canvas, after: Canvas, alpha: Tensor) -> None:
        """Add what happened in step number ``steps`` ``[B]`` of each of ``sequences`` ``[B]``."""
        if before.ids is None or after.ids is None:
            raise ValueError("a trace needs canvas.ids: make new canvases by canvas.reveal and canvas.insert_masks")
        rows = after.tokens.rows
        new = after.ids.values >= before.lengths[rows]
        was_mask = torch.ones_like(new)
        was_mask[~new] = before.is_mask
        for kind, happened in (("insert", new), ("reveal", was_mask & ~after.is_mask)):
            where = happened.nonzero().squeeze(1)
            of_sequence = (column[rows[where]].tolist() for column in (sequences, steps, alpha))
            of_entry = (ragged.values[where].tolist() for ragged in (after.ids, after.tokens))
            places = after.tokens.columns[where].tolist()
            for sequence, step, clock, place, entry, token in zip(*of_sequence, places, *of_entry, strict=True):
                token = token if kind == "reveal" else None
                self._events[sequence].append(Event(step, clock, kind, place, entry, token))

    def taken(self, sequence: int) -> list[Event]:
        """Return the events of a sequence in order, and forget them."""
        return self._events.pop(sequence, [])
