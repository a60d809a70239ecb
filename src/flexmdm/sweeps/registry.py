"""The registry of benchmarks: a new one is one file beside this and one line below.

Nothing heavy is imported before a benchmark is used.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """A benchmark (the class, or where it is), the task whose runs it measures, and whether it has problems in files.

    Such problems come from ``read``; all others from the run's own data.
    """

    benchmark: str | type
    task: str
    reads_files: bool


_BENCHMARKS = {
    "text": Entry("flexmdm.sweeps.text:Samples", "text", reads_files=False),
    "maze": Entry("flexmdm.sweeps.maze:Problems", "maze", reads_files=False),
    "humaneval-infill": Entry("flexmdm.sweeps.humaneval:HumanEvalInfill", "code", reads_files=True),
    "gsm8k": Entry("flexmdm.sweeps.gsm8k:GSM8K", "sft", reads_files=True),
    "regions": Entry("flexmdm.sweeps.regions:Regions", "text", reads_files=True),
}


def register(name: str, benchmark: type, task: str, reads_files: bool = False) -> None:
    """Make a benchmark known by its name, as those above are."""
    _BENCHMARKS[name] = Entry(benchmark, task, reads_files)


def benchmark_names(reads_files: bool | None = None) -> list[str]:
    """Return the names of all benchmarks, or of those whose problems come from files, or do not.

    >>> benchmark_names(reads_files=True)
    ['humaneval-infill', 'gsm8k', 'regions']
    """
    return [name for name, entry in _BENCHMARKS.items() if reads_files in (None, entry.reads_files)]


def benchmark_for(task: str, reads_files: bool | None = None) -> str | None:
    """Return the name of the benchmark that measures the runs of a task, by the name of the task, if there is one.

    >>> benchmark_for("sft"), benchmark_for("chess")
    ('gsm8k', None)
    """
    return next((name for name in benchmark_names(reads_files) if _BENCHMARKS[name].task == task), None)


def benchmark_class(name: str) -> Any:
    """Return the class of a benchmark, by its name."""
    if name not in _BENCHMARKS:
        raise ValueError(f"there is no benchmark {name!r}; choose from {', '.join(_BENCHMARKS)}")
    found = _BENCHMARKS[name].benchmark
    return resolve_name(found) if isinstance(found, str) else found
