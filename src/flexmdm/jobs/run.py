"""Run a job: what is answered is on the disk, and an interruption costs no more than the shards under way."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from flexmdm.jobs.engines import ENGINES
from flexmdm.jobs.job import JSON, Job
from flexmdm.jobs.journal import Journal, locked
from flexmdm.progress import ProgressBar

_REFUSED = b'{"error": '  # how the answer to a refused line begins, and no other


@dataclass(frozen=True)
class Outcome:
    """Say how a job ended: its lines, those that were refused, and where the answers are."""

    lines: int
    refused: int
    out: Path

    def __str__(self) -> str:
        bad = f", {self.refused:,} of them with an error" if self.refused else ""
        return f"{self.lines:,} {'line' if self.lines == 1 else 'lines'} answered{bad}: {self.out}"


def run(job: Job, out: Path, workers: int = 1, engine: str = "local", console: Console | None = None) -> Outcome:
    """Answer all lines that ``out`` does not have yet, in order.

    ``out`` is a `Journal`: what it holds of the same job stays, what it holds of another is moved aside. Shards are
    written as they are done, so that a job that was interrupted, however, goes on by the same call.

    Args:
        job, out: what to do, and the .jsonl that gets a line for each line.
        workers: processes.
        engine: ``local``, or ``ray`` for Ray Data, on this machine or on the cluster that Ray knows.
        console: where to say what is there already; by default standard error.
    """
    if engine not in ENGINES:
        raise ValueError(f"--engine {engine}: there is none such; choose from {', '.join(ENGINES)}")
    if workers < 1:
        raise ValueError(f"--workers must be at least 1, got {workers}")
    if out.suffix != ".jsonl":
        raise ValueError(f"--out {out}: answers are lines of JSON, and their file is called .jsonl")
    if job.file is not None and os.path.realpath(job.file) in (os.path.realpath(out.with_suffix(e)) for e in JSON):
        raise ValueError(f"--out {out} would write over {job.file} or beside it under its name: give another --out")
    console = console or Console(stderr=True)
    with locked(out):
        made_with = job.made_with()
        journal, lines = Journal(out, made_with), made_with["lines"]
        there = sum(1 for _ in journal.raw())
        begin = there if there == lines else there - there % job.at_a_time
        journal.keep(begin)
        refused = sum(line.startswith(_REFUSED) for line in journal.raw())
        if journal.moved:
            changed = (
                f"{out}: begun anew, as these have changed: {', '.join(journal.changed)}; what was there is now in "
            )
            console.print(f"{changed}{journal.moved}", highlight=False, soft_wrap=True, markup=False)
        elif begin:
            console.print(f"{out}: {begin:,} of {lines:,} lines were there already", highlight=False, soft_wrap=True)
        if begin < lines:
            with ProgressBar("answering", lines, counts=True) as bar:
                bar.update(begin)
                with closing(ENGINES[engine](job, job.shards(lines, begin), workers)) as answered:
                    for answers in answered:
                        journal.add(answers)
                        begin += len(answers)
                        refused += sum("error" == next(iter(line), "") for line in answers)
                        bar.update(begin)
        return Outcome(lines, refused, out)
