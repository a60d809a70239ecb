"""A record of every insertion and every reveal."""

from __future__ import annotations

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
        self._events: list[list[list]] = []  # one column-wise block per step

    def record(self, step: int, sequences: Tensor, before: Canvas, after: Canvas, alpha: Tensor) -> None:
        if before.ids is None or after.ids is None:
            raise ValueError("a trace needs canvas.ids: make new canvases by canvas.reveal and canvas.insert_masks")
        rows = after.tokens.rows
        new = after.ids.values >= before.lengths[rows]
        was_mask = torch.ones_like(new)
        was_mask[~new] = before.is_mask
        for kind, happened in (("insert", new), ("reveal", was_mask & ~after.is_mask)):
            where = happened.nonzero().squeeze(1)
            self._events.append(
                [
                    sequences[rows[where]].tolist(),
                    [step] * len(where),
                    alpha[rows[where]].tolist(),
                    [kind] * len(where),
                    after.tokens.columns[where].tolist(),
                    after.ids.values[where].tolist(),
                    after.tokens.values[where].tolist(),
                ]
            )

    def events(self, count: int) -> list[list[Event]]:
        """Return the events of each of ``count`` sequences in order."""
        result: list[list[Event]] = [[] for _ in range(count)]
        for block in self._events:
            for sequence, step, alpha, kind, position, entry, token in zip(*block, strict=True):
                token = token if kind == "reveal" else None
                result[sequence].append(Event(step, alpha, kind, position, entry, token))
        return result
