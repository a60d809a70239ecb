"""HumanEval-infilling with a run that fills gaps: how many of its fillings pass the tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from flexmdm.evaluation.sandbox import Sandbox
from flexmdm.sweeps.sweep import Entrant, Scored, fingerprint, split_of, title_of
from flexmdm.tasks.code.problems import SIZES, SPLITS, Problem, Sample, file_of, read_problems
from flexmdm.tasks.code.scoring import CodeScore, function_of, score
from flexmdm.tasks.generating import bar_on_stderr

if TYPE_CHECKING:
    from flexmdm.backbones.model import FlexMDMModel


@dataclass(frozen=True)
class HumanEvalInfill:
    """Functions with a gap as a benchmark of `flexmdm.sweeps.sweep`.

    As in the paper, both models are sampled adaptively. The lines are samples in the official format, with more fields.

    Args:
        problems: by task id.
        split: which of the official ones they are, or the name of their file.
        workers: programs that run at a time; by default one for each core that this process may use.
        file: where they are from.

    >>> problem = Problem("test/0", "def one():\\n", "1", "    return ", "def check(f):\\n    assert f() == 1", "one")
    >>> benchmark = HumanEvalInfill({"test/0": problem}, workers=1)
    >>> benchmark.items, benchmark.score([benchmark.line(0, "    return 2 - ")], None).right
    ([('def one():\\n', '1')], [True])
    """

    problems: Mapping[str, Problem]
    split: str = "single-line"
    workers: int | None = None
    file: Path | None = None
    name: str = "humaneval-infill"
    measure: str = "pass@1"

    @classmethod
    def read(cls, data: Path, split: str | None = None, workers: int | None = None) -> Self:
        """A split of the official folder, by default ``single-line``, or one file."""
        split = split_of(Path(data), split, "single-line", SPLITS)
        file = file_of(Path(data), split) if Path(data).is_dir() else Path(data)
        return cls(read_problems(file), split, workers, file)

    @property
    def title(self) -> str:
        return title_of("HumanEval-infilling", self.split, len(self.problems), SIZES, self.file)

    @property
    def samplers(self) -> Mapping[str, str]:
        return {"flexmdm": "adaptive", "mdm": "adaptive"}

    @property
    def items(self) -> Sequence[tuple[str, str]]:
        """What stands before and behind each gap."""
        return [(problem.prompt, problem.suffix) for problem in self.problems.values()]

    @property
    def groups(self) -> Sequence[str]:
        """The functions that the tasks are cut from."""
        return list(map(function_of, self.problems))

    def line(self, number: int, text: str) -> dict[str, Any]:
        return {"task_id": list(self.problems)[number], "completion": text}

    def score(self, lines: Sequence[dict[str, Any]], file: Path | None) -> Scored:
        """Verdicts go to a file beside that of the lines, ``NAME.results.jsonl``."""
        results = None if file is None else file.with_suffix(".results.jsonl")
        samples = [Sample(line["task_id"], line["completion"]) for line in lines]
        if results is not None and results.exists():
            _keep(results, samples)
        with Sandbox() as sandbox:
            guards = str(sandbox.guards)
        scored = score_with_bar(self.problems, samples, results, self.workers)
        right = [item.passed for item in scored.items]
        return Scored(scored.pass_at[1], right, {"outcomes": scored.outcomes, "sandbox": guards})


def score_with_bar(
    problems: Mapping[str, Problem],
    samples: Sequence[Sample],
    results: Path | None = None,
    workers: int | None = None,
) -> CodeScore:
    """`score` with a progress bar on standard error."""
    columns = (TextColumn("running tests"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with bar_on_stderr(*columns) as progress:
        bar = progress.add_task("", total=len(samples))
        return score(
            problems,
            samples,
            results=results,
            workers=workers,
            progress=lambda done, _: progress.update(bar, completed=done),
        )


def entrant_of(name: str, task: Any, model: FlexMDMModel) -> Entrant:
    """A run that can fill a gap: on code, or a FlexMDM on text."""
    if task.name == "code":
        from flexmdm.tasks.code import CodePipeline

        return Entrant(name, task.model, fingerprint(model), CodePipeline(task, model).fill)
    if task.name != "text":
        raise ValueError(
            f"{name} was trained on the task {task.name}, and humaneval-infill has gaps to fill: train a run on code "
            "(flexmdm train --task code)"
        )
    if task.model == "mdm":
        raise ValueError(
            f"{name} is an MDM on text, which fills a known number of masks: train it on code "
            "(flexmdm train --task code --model mdm), where it learns to find the length"
        )
    from flexmdm.tasks.text import TextPipeline

    pipeline = TextPipeline(task, model)

    def write(pairs: Sequence[tuple[str, str]], **options: Any) -> list[_Filling]:
        return [_Filling(one.gaps[0], one.evaluations, one.hit_max_length) for one in pipeline.fill(pairs, **options)]

    return Entrant(name, task.model, fingerprint(model), write)


@dataclass(frozen=True)
class _Filling:
    """What a text run put in the gap, without what stands around it."""

    text: str
    evaluations: int
    hit_max_length: bool


def _keep(results: Path, samples: Sequence[Sample]) -> None:
    """Of the verdicts in a file only those of these samples; a line that was cut off goes too."""
    wanted = {(sample.task_id, sample.completion) for sample in samples}
    kept = []
    for line in results.read_text(encoding="utf-8").splitlines(keepends=True):
        verdict = json.loads(line) if line.endswith("}\n") else {}
        if (verdict.get("task_id"), verdict.get("completion")) in wanted:
            kept.append(line)
    results.write_text("".join(kept), encoding="utf-8")
