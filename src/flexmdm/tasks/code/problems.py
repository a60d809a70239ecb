"""HumanEval-infilling (Bavarian et al., 2022): functions with a gap, and fillings of it, as in the official files."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from flexmdm.data.formats import read_jsonl
from flexmdm.sandbox import Program

# The official names of the benchmarks, their files (.jsonl.gz or .jsonl), and how many problems they have.
SPLITS = {
    "single-line": "HumanEval-SingleLineInfilling",
    "multi-line": "HumanEval-MultiLineInfilling",
    "random-span": "HumanEval-RandomSpanInfilling",
    "random-span-light": "HumanEval-RandomSpanInfillingLight",
}
SIZES = {"single-line": 1033, "multi-line": 5815, "random-span": 1640, "random-span-light": 164}


@dataclass(frozen=True)
class Problem:
    """A function with a gap: ``prompt + canonical_solution + suffix`` is right, and passes ``test``.

    >>> problem = Problem("test/0", "def one():\\n", "1", "    return ", "def check(f):\\n    assert f() == 1", "one")
    >>> print(problem.program("    return 2 - ").source.rstrip())
    def one():
        return 2 - 1
    """

    task_id: str
    prompt: str
    suffix: str
    canonical_solution: str
    test: str
    entry_point: str

    def program(self, completion: str) -> Program:
        """Return the function with the gap filled, ready to be run against the tests.

        The official harness runs one text: function, line feed, test. Ours are apart, so the blank lines that follow
        the function there follow it here. Some tests use helper functions of the prompt: these come from the
        reference solution, where no filling can change them.
        """
        blank = self.test[: len(self.test) - len(self.test.lstrip("\n"))]
        return Program(
            source=self.prompt + completion + self.suffix + "\n" + blank,
            test=self.test,
            entry_point=self.entry_point,
            context=self.prompt + self.canonical_solution + self.suffix,
        )


@dataclass(frozen=True)
class Sample:
    """A filling of a problem's gap."""

    task_id: str
    completion: str


def read_problems(path: Path, split: str = "single-line") -> dict[str, Problem]:
    """Read problems by their task id, from one file or from the folder of the official files."""
    file, names = file_of(Path(path), split), [one.name for one in fields(Problem)]
    problems: dict[str, Problem] = {}
    for where, record in read_jsonl(file, names):
        problem = Problem(**{name: record[name] for name in names})
        if problem.task_id in problems:
            raise ValueError(f"{where}: the task {problem.task_id!r} stands twice in the file")
        problems[problem.task_id] = problem
    if not problems:
        raise ValueError(f"there are no problems in {file}")
    return problems


def read_samples(file: Path, problems: dict[str, Problem]) -> list[Sample]:
    """Read samples in the official format, one JSON object with ``task_id`` and ``completion`` on each line.

    Every problem must have at least one, as a score over some of them is not the benchmark's.
    """
    samples = []
    for where, record in read_jsonl(Path(file), ["task_id", "completion"]):
        if record["task_id"] not in problems:
            raise ValueError(
                f"{where}: there is no task {record['task_id']!r}; the problems are such as {next(iter(problems))!r}: "
                "does --split fit the samples?"
            )
        samples.append(Sample(record["task_id"], record["completion"]))
    there = {sample.task_id for sample in samples}
    missing = [task_id for task_id in problems if task_id not in there]
    if missing:
        raise ValueError(
            f"{file} has no completion for {len(missing)} of {len(problems)} tasks, the first being {missing[0]!r}; "
            "every task needs at least one, if only an empty string; for other tasks name the --split they are of, or "
            "give a file with these tasks alone as --data"
        )
    return samples


def file_of(path: Path, split: str = "single-line") -> Path:
    """Return the file of the problems of a split, one of the `SPLITS`, in a folder; or the file that was given."""
    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r}; choose from {', '.join(SPLITS)}")
    if not path.is_dir():
        return path
    for ending in (".jsonl.gz", ".jsonl"):
        if (path / (SPLITS[split] + ending)).is_file():
            return path / (SPLITS[split] + ending)
    raise FileNotFoundError(
        f"{path} has no {SPLITS[split]}.jsonl.gz; it is in github.com/openai/human-eval-infilling, folder data"
    )
