"""pass@k of fillings, by running every one of them in the sandbox."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from flexmdm.data.formats import read_jsonl
from flexmdm.evaluation.intervals import Interval, rate, share
from flexmdm.sandbox import BROKE, Program, run_all
from flexmdm.tasks.code.problems import Problem, Sample

_KS = (1, 10, 100)


@dataclass(frozen=True)
class Item:
    """A filling and what became of it; a line of the results file."""

    task_id: str
    completion_id: int  # which of the problem's samples it is
    completion: str
    result: str  # "passed", "timed out", or "failed:" and why
    program: str  # digest of the program that was run, its tests too

    @property
    def passed(self) -> bool:
        return self.result == "passed"

    @property
    def line(self) -> str:
        return json.dumps(asdict(self) | {"passed": self.passed}) + "\n"


@dataclass(frozen=True)
class CodeScore:
    """Right fillings: the estimate for each k for which every task has k samples, with its 95% interval.

    In the interval, tasks that are cut from one function count as a group.
    """

    items: tuple[Item, ...]
    pass_at: dict[int, Interval]

    @property
    def outcomes(self) -> dict[str, int]:
        """Return the numbers of samples that passed, failed and timed out."""
        found = Counter(item.result.partition(":")[0] for item in self.items)
        return {name: found[name] for name in ("passed", "failed", "timed out")}

    def to_dict(self) -> dict[str, Any]:
        return {
            "tasks": len({item.task_id for item in self.items}),
            "samples": len(self.items),
            **{f"pass@{k}": asdict(interval) for k, interval in self.pass_at.items()},
            "outcomes": self.outcomes,
        }


def score(
    problems: Mapping[str, Problem],
    samples: Sequence[Sample],
    *,
    results: Path | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CodeScore:
    """Run each sample against the tests of its problem, which ``problems`` has by its task id.

    ``results`` is a .jsonl that gets each item as soon as it is known. What it already holds of the same samples with
    the same tests is not run again, unless the sandbox broke; in the end its lines are in the order of the samples.
    ``workers`` programs run at a time, by default one for each core that this process may use. ``progress`` is called
    with how many are done, and of how many.

    >>> problem = Problem("test/0", "def one():\\n", "1", "    return ", "def check(f):\\n    assert f() == 1", "one")
    >>> fillings = [Sample("test/0", text) for text in ("    return ", "    return 2 - ", "    return 1")]
    >>> scored = score({"test/0": problem}, fillings, workers=1)
    >>> [item.result for item in scored.items], round(scored.pass_at[1].value, 2)
    (['passed', 'passed', 'failed: AssertionError'], 0.67)
    """
    programs: list[Program] = []
    items: list[Item] = []  # without a result while they wait
    seen: Counter[str] = Counter()
    for sample in samples:
        if sample.task_id not in problems:
            raise ValueError(f"there is no task {sample.task_id!r} among the {len(problems)} problems")
        programs.append(problems[sample.task_id].program(sample.completion))
        digest = hashlib.sha256(json.dumps(astuple(programs[-1])).encode()).hexdigest()[:16]
        items.append(Item(sample.task_id, seen[sample.task_id], sample.completion, "", digest))
        seen[sample.task_id] += 1
    if not items:
        raise ValueError("there is nothing to score: give at least one sample")
    if results is not None:
        _take_over(results, items)
    todo = [number for number, item in enumerate(items) if not item.result]
    done = len(items) - len(todo)
    try:
        with open(results or os.devnull, "a", encoding="utf-8") as log:
            for index, verdict in run_all([programs[number] for number in todo], workers=workers or _cores()):
                number = todo[index]
                items[number] = replace(items[number], result=verdict.result)
                log.write(items[number].line)
                log.flush()
                done += 1
                if progress is not None:
                    progress(done, len(items))
    except OSError as error:  # of ours: it must not count against a sample
        kept = f"; {done:,} verdicts are kept in {results}, and the same command goes on" if results else ""
        raise OSError(f"not all of the {len(items):,} samples could be tested ({error}){kept}") from error
    if results is not None:
        new = results.with_name(results.name + ".new")
        new.write_text("".join(item.line for item in items), encoding="utf-8")
        new.replace(results)
    return CodeScore(tuple(items), _estimates(items))


def pass_at_k(num: int, right: int, k: int) -> float:
    """Estimate without bias the chance that one of k samples is right, from ``num`` of which ``right`` are.

    1 - C(num - right, k) / C(num, k), from Chen et al. (2021).

    >>> pass_at_k(10, 3, 1), pass_at_k(10, 3, 10), round(pass_at_k(10, 3, 2), 3)
    (0.3, 1.0, 0.533)
    """
    if not 0 <= right <= num or not 1 <= k <= num:
        raise ValueError(f"pass@k needs 0 <= right <= num and 1 <= k <= num, got {right} of {num} and k = {k}")
    return (math.comb(num, k) - math.comb(num - right, k)) / math.comb(num, k)


def function_of(task_id: str) -> str:
    """Return the function that a task is cut from; a task with a name of another form is its own.

    >>> function_of("MultiLineInfilling/HumanEval/81/L3_L5"), function_of("test/0")
    ('HumanEval/81', 'test/0')
    """
    parts = task_id.split("/")
    return "/".join(parts[1:-1]) if len(parts) == 4 else task_id


def _cores() -> int:
    """Return the number of cores that this process may use, or of all where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _estimates(items: Sequence[Item]) -> dict[int, Interval]:
    """Return pass@k over tasks."""
    by_task: dict[str, list[bool]] = defaultdict(list)
    for item in items:
        by_task[item.task_id].append(item.passed)
    counts = [(len(passed), sum(passed)) for passed in by_task.values()]
    found = {}
    for k in (k for k in _KS if k <= min(num for num, _ in counts)):
        values = [pass_at_k(num, right, k) for num, right in counts]
        if len(counts) > 1:
            found[k] = share(np.array(values), list(map(function_of, by_task)))
        else:  # one task does not show how tasks differ; for k = 1 its samples give an interval
            found[k] = rate(*counts[0][::-1]) if k == 1 else Interval(values[0], 0.0, 1.0)
    return found


def _take_over(results: Path, items: list[Item]) -> None:
    """Put the results of an interrupted scoring into the items, and remove a last line that was cut off."""
    results.parent.mkdir(parents=True, exist_ok=True)
    if not results.exists():
        return
    whole, _, cut = results.read_bytes().rpartition(b"\n")
    if cut:
        results.write_bytes(whole + b"\n" if whole else b"")
    numbers = {(item.task_id, item.completion_id): number for number, item in enumerate(items)}
    for where, record in read_jsonl(results, ["task_id", "completion", "result"]):
        number = numbers.get((record["task_id"], record.get("completion_id", 0)))
        if number is None or items[number].completion != record["completion"]:
            raise ValueError(f"{where}: this is the result of another sample; delete the file or name another")
        if record.get("program") == items[number].program and record["result"] != BROKE:
            items[number] = replace(items[number], result=record["result"])
