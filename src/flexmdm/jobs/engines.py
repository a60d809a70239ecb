"""Who answers the shards of a job: this process, several on this machine, or those of Ray Data."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from multiprocessing import connection, get_context, parent_process
from typing import Any

from flexmdm.jobs.job import Answerer, Job, Shard

Lines = list[dict[str, Any]]
_AHEAD = 2  # shards for each worker that are under way or wait for an earlier one
_LOSSES = 3  # how often workers may die over the same shard
_BLOCKS = 10_000  # of a data set of Ray; those of fewer shards are one each

# Of a worker; a list, as it is set once and read by every call.
_answerer: list[Answerer] = []


def local(job: Job, shards: Iterator[Shard], workers: int) -> Iterator[Lines]:
    """Yield the answers of shards in order.

    When a worker dies, others take its place and do again what was not done; a shard over which they die three times
    ends the job.
    """
    if workers == 1:
        yield from map(Answerer(job), shards)
        return
    waiting: deque[tuple[Shard, Future[Lines]]] = deque()
    losses = 0
    while losses < _LOSSES:
        pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (job, workers))
        try:
            waiting = deque((shard, pool.submit(_answer, shard)) for shard, _ in waiting)
            while True:
                while len(waiting) < _AHEAD * workers and (shard := next(shards, None)) is not None:
                    waiting.append((shard, pool.submit(_answer, shard)))
                if not waiting:
                    return
                lines = waiting[0][1].result()
                waiting.popleft()
                losses = 0
                yield lines
        except BrokenProcessPool:
            losses += 1
        finally:
            pool.shutdown(cancel_futures=True)
    first = waiting[0][0]
    raise ValueError(
        f"workers died {losses} times over the same lines, of which {first.first + 1:,} is the first: is there too "
        "little memory? Take fewer --workers; what is answered is kept, and the same command goes on"
    )


def _begin(job: Job, workers: int) -> None:
    """Prepare a worker: it ends with its parent, also if that is killed, and takes its share of the threads."""
    import torch

    torch.set_num_threads(max(torch.get_num_threads() // workers, 1))
    signal.signal(signal.SIGINT, lambda *_: os._exit(1))
    parent = parent_process()
    if parent is not None:
        sentinel = parent.sentinel
        threading.Thread(target=lambda: (connection.wait([sentinel]), os._exit(1)), daemon=True).start()
    _answerer.append(Answerer(job))


def _answer(shard: Shard) -> Lines:
    return _answerer[0](shard)


def ray_data(job: Job, shards: Iterator[Shard], workers: int) -> Iterator[Lines]:
    """Yield the answers of shards in order, from the workers of Ray Data, which does lost ones again.

    All machines must see the run and the file under the same names.
    """
    import ray
    import ray.data

    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    rows = [asdict(shard) for shard in shards]
    made = ray.data.from_items(rows, override_num_blocks=min(len(rows), _BLOCKS)).map_batches(
        _RayAnswerer,
        batch_size=1,
        concurrency=workers,
        fn_constructor_args=(job,),
        num_gpus=1 if (job.device or "").startswith("cuda") else 0,
    )
    for row in made.iter_rows():
        yield json.loads(row["lines"])


class _RayAnswerer:
    """Answers shards as Ray Data wants it: a batch of one row in, one out."""

    def __init__(self, job: Job) -> None:
        self.answerer = Answerer(job)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        shard = Shard(*(int(batch[name][0]) for name in ("first", "size", "offset")))
        return {"lines": [json.dumps(self.answerer(shard))]}


ENGINES: dict[str, Callable[[Job, Iterator[Shard], int], Any]] = {"local": local, "ray": ray_data}
