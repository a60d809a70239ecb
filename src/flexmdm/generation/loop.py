"""The loop that turns states into sequences: the batch stays full, each sequence has a clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from flexmdm.canvas import Canvas
from flexmdm.denoiser import Denoiser, Prediction, check_log_probs, predict
from flexmdm.generation.samplers import Sampler
from flexmdm.generation.trace import Event, Recorder
from flexmdm.randomness import StepRandomness

_CHUNK = 256  # samples whose first states are made at a time


@dataclass(frozen=True)
class Sample:
    """One finished sample, as `stream` yields it.

    Attributes:
        number: which one it is: the samples of the first prompt come first.
        sequence: the clean tokens.
        evaluations: how often the denoiser was asked about it.
        hit_max_length: whether it grew to ``max_length``, where insertions end.
        possible: false if it reached a state that the (exact) source cannot produce; it then ends as it stands.
        given: for each token, whether it stood in the prompt (as a token or as a mask).
        trace: every insertion and reveal in order, if asked for.
    """

    number: int
    sequence: list[int]
    evaluations: int
    hit_max_length: bool
    possible: bool
    given: list[bool]
    trace: list[Event] | None = None


@dataclass(frozen=True, eq=False)
class Progress:
    """Show a callback where generation is, after each step.

    Attributes:
        step: how many steps were taken, of whatever sequences were under way.
        canvas: the states of the sequences that go on.
        alpha: their clocks, ``[b]``.
        sequences: which samples they are, ``[b]``.
        finished: how many samples are done.
        total: of how many.
        share: how much of the whole is done, from 0 to 1: the mean clock of all samples.
    """

    step: int
    canvas: Canvas
    alpha: Tensor
    sequences: Tensor
    finished: int
    total: int
    share: float


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples under way: their states, clocks ``[B]``, numbers ``[B]``, and the steps ``[B]`` that each has taken."""

    canvas: Canvas
    alpha: Tensor
    numbers: Tensor
    steps: Tensor

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, which: slice | Tensor) -> Batch:
        return Batch(self.canvas[which], self.alpha[which], self.numbers[which], self.steps[which])

    @staticmethod
    def cat(batches: Sequence[Batch]) -> Batch:
        """Return all samples of all batches, in order."""
        return Batch(
            Canvas.cat([b.canvas for b in batches]),
            torch.cat([b.alpha for b in batches]),
            torch.cat([b.numbers for b in batches]),
            torch.cat([b.steps for b in batches]),
        )

    @property
    def over(self) -> Tensor:
        """Return ``[B]``, true for the samples that are finished."""
        return (self.canvas.num_masks == 0) & ((self.alpha >= 1) | (self.canvas.num_open == 0))


def first_states(canvas: Canvas, alpha: Tensor, num_samples: int) -> Iterator[Batch]:
    """Yield ``num_samples`` samples for each state of a canvas and its clock ``[B]``, in order, some at a time."""
    total = len(canvas) * num_samples
    for start in range(0, total, _CHUNK):
        numbers = torch.arange(start, min(start + _CHUNK, total), device=canvas.device)
        states = numbers // num_samples
        yield Batch(canvas[states], alpha[states], numbers, torch.zeros_like(numbers))


@dataclass(frozen=True)
class Room:
    """Bound how many samples are under way at a time, and how many tokens they have; ``None`` for any number.

    A sample counts one token more than it has, and the first one always fits.
    """

    samples: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("batch_size", self.samples), ("tokens_in_flight", self.tokens)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")

    def fitting(self, lengths: Tensor) -> int:
        """Return how many of the samples with ``lengths`` ``[B]`` fit, from the first one on.

        >>> Room(tokens=10).fitting(torch.tensor([3, 4, 2])), Room(samples=1).fitting(torch.tensor([90, 5]))
        (2, 1)
        """
        fits = len(lengths) if self.samples is None else min(len(lengths), self.samples)
        if self.tokens is not None:
            fits = min(fits, max(int(((lengths + 1).cumsum(0) <= self.tokens).sum()), 1))
        return fits


class Loop:
    """One call of `generate` or `stream`.

    In every step the batch is filled up with samples that wait, in the order of their numbers. When it has grown beyond
    its room, the last ones leave it and wait as they are: a sample has a clock and random numbers of its own, so it
    comes out the same in any company and however often it waits.
    """

    def __init__(
        self,
        denoiser: Denoiser,
        sampler: Sampler,
        seed: int = 0,
        first_sequence: int | Sequence[int] = 0,
        room: Room | None = None,
        trace: bool = False,
        callback: Callable[[Progress], None] | None = None,
    ) -> None:
        self.denoiser, self.sampler, self.seed, self.first = denoiser, sampler, seed, first_sequence
        self.room, self.callback = room or Room(), callback
        self.recorder = Recorder() if trace else None
        self.waiting: list[Batch] = []  # the last ones are the first to go on
        self.beginnings: Iterator[Batch] = iter(())
        self.batch: Batch
        self.step = self.finished = self.total = 0
        self.names = torch.zeros(0, dtype=torch.int64)
        self.checked = False  # whether log_probs were looked at: once tells enough

    @torch.no_grad()
    def run(self, canvas: Canvas, alpha: Tensor, num_samples: int) -> Iterator[Sample]:
        """Yield ``num_samples`` samples from each state of a canvas and its clock ``[B]``, as they finish."""
        self.names = self._names(len(canvas), num_samples).to(canvas.device)
        yield from self.start(first_states(canvas, alpha, num_samples), len(canvas) * num_samples, canvas[:0])
        while len(self.batch):
            yield from self.advance()

    @torch.no_grad()
    def start(self, beginnings: Iterator[Batch], total: int, none: Canvas) -> list[Sample]:
        """Take what begins into the batch, which has no canvas yet (``none``); return what is finished already."""
        self.beginnings, self.total = beginnings, total
        numbers = torch.zeros(0, dtype=torch.int64, device=none.device)
        self.batch, done = self._going_on(Batch(none, numbers.double(), numbers, numbers))
        return done

    @torch.no_grad()
    def advance(self) -> list[Sample]:
        """Take one step with the batch and fill it up; return what is finished."""
        batch, stuck = self._stepped(self.batch)
        self.batch, done = self._going_on(batch)
        if self.callback is not None:
            self.callback(self._progress(self.batch))
        return stuck + done

    def _names(self, prompts: int, num_samples: int) -> Tensor:
        """Return the number that the random numbers of each sample belong to."""
        own = torch.arange(num_samples)
        first = self.first + torch.arange(prompts) * num_samples if isinstance(self.first, int) else self.first
        return (torch.as_tensor(first)[:, None] + own).flatten()

    def _going_on(self, batch: Batch) -> tuple[Batch, list[Sample]]:
        """Return the batch without what is finished and filled up again, and what is finished."""
        done: list[Sample] = []
        while True:
            over = batch.over
            if bool(over.any()):
                done += self._samples(batch[over])
                batch = batch[~over]
            filled = self._filled(batch)
            if filled is batch:
                return batch, done
            batch = filled

    def _filled(self, batch: Batch) -> Batch:
        """Return as much as there is room for, of the batch and of what waits; the rest waits on."""
        fits = self.room.fitting(batch.canvas.lengths)
        if fits < len(batch):
            self.waiting.append(batch[fits:])
            return batch[:fits]
        parts, lengths = [batch], batch.canvas.lengths
        while (following := self._next()) is not None:
            lengths = torch.cat([lengths, following.canvas.lengths])
            left_out = len(lengths) - self.room.fitting(lengths)
            if left_out:
                enter = len(following) - left_out
                parts += [following[:enter]] if enter else []
                self.waiting.append(following[enter:] if enter else following)
                break
            parts.append(following)
        return Batch.cat(parts) if len(parts) > 1 else batch

    def _next(self) -> Batch | None:
        return self.waiting.pop() if self.waiting else next(self.beginnings, None)

    def _stepped(self, batch: Batch) -> tuple[Batch, list[Sample]]:
        """Return the batch after one step, without what turned out to be impossible, and that."""
        prediction, possible = predict(self.denoiser, batch.canvas, batch.alpha)
        self.step += 1
        stuck: list[Sample] = []
        if not bool(possible.all()):
            prediction = prediction.of(batch.canvas, possible)
            impossible, batch = batch[~possible], batch[possible]
            stuck = self._samples(replace(impossible, steps=impossible.steps + 1), possible=False)
            if not len(batch):
                return batch, stuck
        if not self.checked and len(prediction.log_probs):
            check_log_probs(prediction.log_probs)
            self.checked = True
        after = replace(self._asked(batch, prediction), steps=batch.steps + 1)
        _check_progress(batch, after)
        if self.recorder is not None:
            self.recorder.record(batch.steps, batch.numbers, batch.canvas, after.canvas, after.alpha)
        return after, stuck

    def _asked(self, batch: Batch, prediction: Prediction) -> Batch:
        """Return the next states and clocks, as the sampler gives them."""
        rng = self._randomness(batch)
        made = self.sampler.step(batch.canvas, prediction, batch.alpha, rng)
        if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], Canvas) and isinstance(made[1], Tensor):
            return replace(batch, canvas=made[0], alpha=made[1])
        what = f"({', '.join(type(one).__name__ for one in made)})" if isinstance(made, tuple) else type(made).__name__
        raise TypeError(f"a step of the sampler gave {what}: it must return the next canvas and the next clock alpha")

    def _randomness(self, batch: Batch) -> StepRandomness:
        return StepRandomness(self.seed, self.names[batch.numbers], batch.steps)

    def _samples(self, batch: Batch, possible: bool = True) -> list[Sample]:
        canvas = batch.canvas
        self.finished += len(batch)
        full = torch.zeros_like(canvas.lengths, dtype=torch.bool)
        if canvas.max_length is not None:
            full = (canvas.lengths >= canvas.max_length) & (canvas.num_open > 0)
        clean, numbers = ~canvas.is_mask, batch.numbers.tolist()
        recorder = self.recorder
        columns = (
            numbers,
            canvas.tokens.keep(clean).tolist(),
            batch.steps.tolist(),
            full.tolist(),
            [possible] * len(numbers),
            canvas.given.keep(clean).tolist(),
            [None if recorder is None else recorder.taken(number) for number in numbers],
        )
        return [Sample(*row) for row in zip(*columns, strict=True)]

    def _progress(self, batch: Batch) -> Progress:
        clocks = sum(float(one.alpha.sum()) for one in (batch, *self.waiting))
        share = (self.finished + clocks) / self.total
        return Progress(self.step, batch.canvas, batch.alpha, batch.numbers, self.finished, self.total, share)


def _check_progress(before: Batch, after: Batch) -> None:
    alpha, clock = before.alpha, after.alpha
    if not bool(((clock >= alpha) & (clock <= 1)).all()):
        raise RuntimeError("the sampler turned the clock back or beyond 1: alpha must go from 0 up to 1")
    same = (after.canvas.lengths == before.canvas.lengths) & (after.canvas.num_masks == before.canvas.num_masks)
    stuck = (clock <= alpha) & same
    if bool(stuck.any()):
        raise RuntimeError(
            f"the sampler made no progress on {int(stuck.sum())} sequences: a step must advance alpha or reveal"
        )
