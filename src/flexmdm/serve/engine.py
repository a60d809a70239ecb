"""One model for many requests: a thread keeps a batch full of what they ask for, each gets what it would alone."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from flexmdm.canvas import Canvas, Prompt
from flexmdm.generation.defaults import DEFAULTS
from flexmdm.generation.generate import sampler_of
from flexmdm.generation.loop import Batch, Loop, Room, Sample
from flexmdm.precision import float64_device
from flexmdm.randomness import StepRandomness
from flexmdm.tasks.pipeline import Generated, Pipeline, denoiser_of

ROOM = Room(samples=256, tokens=16_384)
MOST_WAITING = 2048  # samples
MOST_WAYS = 4  # sets of options that are generated with at the same time


class Full(RuntimeError):
    """Raised when so much waits already that a request has to be made again later."""


class Closed(RuntimeError):
    """Raised when the engine takes nothing any more."""


@dataclass(frozen=True, eq=False)
class Job:
    """Samples that one request asks for.

    Attributes:
        prompts, num: what to start from, and how often.
        seed: of the request; its samples are numbered from 0, as those of a call of its own.
        options: of `flexmdm.generate`, as they make a sampler.
        result: gets the samples in order, or the error.
        listener: called in the engine's thread with the number of each sample that is finished, and it.
        found: samples that are there, by number.
    """

    prompts: Sequence[Prompt]
    num: int
    seed: int
    options: tuple[tuple[str, Any], ...]
    listener: Callable[[int, Generated], None] | None = None
    result: Future[list[Generated]] = field(default_factory=Future)
    found: dict[int, Sample] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.prompts) * self.num

    def generated(self, number: int) -> Generated:
        """Return the sample of a number as pipelines read it."""
        one = self.found[number]
        return Generated(number // self.num, one.sequence, one.given, one.evaluations, one.hit_max_length, ())


class Shared(Loop):
    """A loop whose samples belong to several jobs, each with a seed of its own; they can come and go at any time."""

    def __init__(self, pipeline: Pipeline, options: tuple[tuple[str, Any], ...], room: Room) -> None:
        denoiser, layout = denoiser_of(pipeline.task, pipeline.model), pipeline.task.layout
        super().__init__(denoiser, sampler_of(denoiser, **dict(options)), room=room)
        self._longest = layout.most_entries if layout.inserts else None
        self._jobs: deque[tuple[int, Job]] = deque()  # with the number of its first sample, in that order
        self._arrived: deque[Batch] = deque()
        self._started = False
        self._seeds = self._numbers = torch.zeros(0, dtype=torch.int64)

    def add(self, job: Job) -> None:
        """Let the samples of a job wait for their turn."""
        first, size = len(self._seeds), len(job)
        some = [replace(one, limits=one.limits or (None,) * len(one.open_gaps)) for one in job.prompts]
        device = getattr(self.denoiser, "device", None)
        canvas = Canvas.of_prompts(some, self.denoiser.mask_id, self._longest, device)
        canvas = canvas.to(float64_device(canvas.device))
        numbers = torch.arange(size, device=canvas.device)
        clocks = torch.zeros(size, dtype=torch.float64, device=canvas.device)
        self._seeds = torch.cat([self._seeds.to(canvas.device), torch.full_like(numbers, job.seed)])
        self._numbers = torch.cat([self._numbers.to(canvas.device), numbers])
        self._arrived.append(Batch(canvas[numbers // job.num], clocks, first + numbers, torch.zeros_like(numbers)))
        self._jobs.append((first, job))

    def drop(self, job: Job) -> None:
        """Leave the samples of a job out, wherever they are."""
        first = next((first for first, other in self._jobs if other is job), None)
        if first is None:
            return

        def others(batch: Batch) -> Batch:
            return batch[(batch.numbers < first) | (batch.numbers >= first + len(job))]

        kept = [*filter(len, map(others, self._arrived))]
        self._arrived.clear()  # the loop takes from this very queue
        self._arrived.extend(kept)
        self.waiting = [*filter(len, map(others, self.waiting))]
        if self._started:
            self.batch = others(self.batch)
        self._jobs = deque((begin, other) for begin, other in self._jobs if other is not job)

    @property
    def idle(self) -> bool:
        return not self._jobs

    @property
    def jobs(self) -> list[Job]:
        return [job for _, job in self._jobs]

    def go_on(self) -> list[tuple[Job, int]]:
        """Take one step, or take in what waits; return the job of what is finished, and its number there."""
        if self._started and len(self.batch):
            done = self.advance()
        else:
            none = self._arrived[0].canvas[:0] if self._arrived else self.batch.canvas
            done, self._started = self.start(_Taken(self._arrived), 0, none), True
        return [self._owned(sample) for sample in done]

    def _owned(self, sample: Sample) -> tuple[Job, int]:
        first, job = next((first, job) for first, job in reversed(self._jobs) if first <= sample.number)
        job.found[sample.number - first] = sample
        if len(job.found) == len(job):
            self._jobs.remove((first, job))
        return job, sample.number - first

    def _randomness(self, batch: Batch) -> StepRandomness:
        return StepRandomness(self._seeds[batch.numbers], self._numbers[batch.numbers], batch.steps)


class _Taken(Iterator[Batch]):
    """Takes what is in a queue; when there is nothing it ends, and goes on once there is something again."""

    def __init__(self, queue: deque[Batch]) -> None:
        self._queue = queue

    def __next__(self) -> Batch:
        if not self._queue:
            raise StopIteration
        return self._queue.popleft()


class Engine:
    """A thread that generates for all jobs at once.

    Args:
        pipeline: the task and the model.
        room: bounds of what is under way, for each set of options.
        most_waiting: samples that may be asked for and not be finished; beyond, `submit` raises `Full`.
    """

    def __init__(self, pipeline: Pipeline, room: Room = ROOM, most_waiting: int = MOST_WAITING) -> None:
        self.pipeline, self.room, self.most_waiting = pipeline, room, most_waiting
        self._ways: dict[tuple[tuple[str, Any], ...], Shared] = {}
        self._new: deque[Job] = deque()
        self._dropped: deque[Job] = deque()
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self.unfinished = 0  # samples
        self.steps = 0
        self._thread = threading.Thread(target=self._run, name="flexmdm-engine", daemon=True)
        self._thread.start()

    def submit(
        self,
        prompts: Sequence[Prompt],
        num: int = 1,
        seed: int = 0,
        purpose: str = "writing",
        listener: Callable[[int, Generated], None] | None = None,
        **options: Any,
    ) -> Job:
        """Return the job of ``num`` samples of each prompt, whose ``result`` comes; the options are of `generate`."""
        inserts = self.pipeline.task.layout.inserts
        given = DEFAULTS[purpose].options(inserts, **options)
        if inserts and given["sampler"] == "low_confidence":
            raise ValueError("the sampler low_confidence is for MDM only: take spaced, adaptive or tau")
        way = tuple(sorted((name, value) for name, value in given.items()))
        sampler_of(denoiser_of(self.pipeline.task, self.pipeline.model), **dict(way))  # raises if it cannot be made
        job = Job(tuple(prompts), num, seed, way, listener)
        with self._changed:
            if self._closing:
                raise Closed("the server is shutting down")
            if self.unfinished and self.unfinished + len(job) > self.most_waiting:
                raise Full(f"{self.unfinished:,} samples are waited for already, and {self.most_waiting:,} may be")
            self.unfinished += len(job)
            if len(job):
                self._new.append(job)
            else:
                job.result.set_result([])
            self._changed.notify()
        return job

    def cancel(self, job: Job) -> None:
        """Forget a job that nobody waits for any more."""
        with self._changed:
            self._dropped.append(job)
            self._changed.notify()

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Run a function that uses the model between two steps."""
        result: Future[Any] = Future()
        with self._changed:
            self._calls.append((function, result))
            self._changed.notify()
        return result

    def close(self, timeout: float | None = None) -> None:
        """Take nothing new, finish what was accepted, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)

    # In the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._take_in():
            for way, loop in list(self._ways.items()):
                try:
                    for job, number in loop.go_on():
                        self._deliver(job, number)
                    self.steps += 1
                except Exception as error:  # of a model or a sampler: those who asked hear of it, the others go on
                    for job in loop.jobs:
                        self._fail(job, error)
                    del self._ways[way]
                    continue
                if loop.idle:
                    del self._ways[way]

    def _take_in(self) -> bool:
        """Wait for something to do, and take it in; return whether there is or will be any."""
        with self._changed:
            while not (self._ways or self._new or self._calls or self._dropped or self._closing):
                self._changed.wait()
            calls, dropped = list(self._calls), list(self._dropped)
            self._calls.clear()
            self._dropped.clear()
            waiting: deque[Job] = deque()
            while self._new:
                job = self._new.popleft()
                if job in dropped:
                    self._forget(job)
                elif job.options in self._ways or len(self._ways) < MOST_WAYS:
                    self._begin(job)
                else:
                    waiting.append(job)
            self._new = waiting
            goes_on = bool(self._ways or self._new or calls) or not self._closing
        for job in dropped:
            if not job.result.done():
                self._ways[job.options].drop(job)
                self._forget(job)
        self._ways = {way: loop for way, loop in self._ways.items() if not loop.idle}
        for function, result in calls:
            try:
                result.set_result(function())
            except Exception as error:
                result.set_exception(error)
        return goes_on

    def _begin(self, job: Job) -> None:
        try:
            loop = self._ways.get(job.options) or Shared(self.pipeline, job.options, self.room)
            loop.add(job)
            self._ways[job.options] = loop
        except Exception as error:
            self._fail(job, error)

    def _deliver(self, job: Job, number: int) -> None:
        if job.listener is not None:
            job.listener(number, job.generated(number))
        if len(job.found) == len(job) and not job.result.done():
            with self._changed:
                self.unfinished -= len(job)
            job.result.set_result([job.generated(number) for number in range(len(job))])

    def _forget(self, job: Job) -> None:
        with self._changed:
            self.unfinished -= len(job)
        job.result.cancel()

    def _fail(self, job: Job, error: Exception) -> None:
        if not job.result.done():
            with self._changed:
                self.unfinished -= len(job)
            job.result.set_exception(error)
