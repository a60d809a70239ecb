"""HumanEval-infilling with a run that fills gaps: how many of its fillings pass the tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from flexmdm.generation.defaults import DEFAULTS
from flexmdm.progress import ProgressBar
from flexmdm.sandbox import Sandbox
from flexmdm.sweeps.sweep import Benchmark, Refused, Scored, Writer, split_of, title_of
from flexmdm.tasks.code.pipeline import CodePipeline
from flexmdm.tasks.code.problems import SIZES, SPLITS, Problem, Sample, file_of, read_problems
from flexmdm.tasks.code.scoring import CodeScore, function_of, score
from flexmdm.tasks.pipeline import Answer
from flexmdm.tasks.sft.pipeline import SFTPipeline
from flexmdm.tasks.text.pipeline import TextPipeline


@dataclass(frozen=True)
class HumanEvalInfill(Benchmark):
    """Functions with a gap as a benchmark of `flexmdm.sweeps.sweep`.

    As in the paper, both models are sampled adaptively. The lines are samples in the official format, with more fields.
    ``workers`` programs run at a time, by default one for each core that this process may use.

    >>> problem = Problem("test/0", "def one():\\n", "1", "    return ", "def check(f):\\n    assert f() == 1", "one")
    >>> benchmark = HumanEvalInfill({"test/0": problem}, workers=1)
    >>> filled = {"task_id": "test/0", "completion": "    return 2 - "}
    >>> benchmark.items, benchmark.score([filled]).right
    ([('def one():\\n', '1')], [True])
    """

    problems: Mapping[str, Problem]
    split: str = "single-line"
    workers: int | None = None
    file: Path | None = None
    name = "humaneval-infill"
    measure = "pass@1"
    defaults = DEFAULTS[name]
    pipelines = (CodePipeline, TextPipeline, SFTPipeline)
    asks = "humaneval-infill has gaps to fill: train a run on code (flexmdm train --task code)"

    @classmethod
    def read(cls, data: Path, split: str | None = None, workers: int | None = None) -> Self:
        """Read a split of the official folder, by default ``single-line``, or one file."""
        split = split_of(Path(data), split, "single-line", SPLITS)
        file = file_of(Path(data), split) if Path(data).is_dir() else Path(data)
        return cls(read_problems(file), split, workers, file)

    @property
    def title(self) -> str:
        return title_of("HumanEval-infilling", self.split, len(self.problems), SIZES, self.file)

    @property
    def items(self) -> Sequence[tuple[str, str]]:
        """Return the text before and behind each gap."""
        return [(problem.prompt, problem.suffix) for problem in self.problems.values()]

    @property
    def groups(self) -> Sequence[str]:
        """Return the functions that the tasks are cut from."""
        return list(map(function_of, self.problems))

    def writer(self, name: str, pipeline: CodePipeline | TextPipeline | SFTPipeline) -> Writer:
        """Return what fills a gap: a run on code, or a FlexMDM on text, or in answers to an empty prompt."""
        if isinstance(pipeline, CodePipeline):
            return pipeline.fill
        if isinstance(pipeline, SFTPipeline):
            if not pipeline.fills:
                raise ValueError(f"{name} was trained on the task {pipeline.task.name}, and {self.asks}")
            pipeline = pipeline.filler()
        if not pipeline.task.layout.inserts:
            raise ValueError(
                f"{name} is an MDM on text, which fills a known number of masks: train it on code "
                "(flexmdm train --task code --model mdm), where it learns to find the length"
            )
        return lambda pairs, **options: [replace(one, text=one.gaps[0]) for one in pipeline.fill(pairs, **options)]

    def line(self, number: int, answer: Answer | Refused) -> dict[str, Any]:
        return {"task_id": list(self.problems)[number], "completion": answer.text}

    def score(self, lines: Sequence[dict[str, Any]], file: Path | None = None) -> Scored:
        """Run the tests; verdicts go to a file beside that of the lines, ``NAME.results.jsonl``."""
        results = None if file is None else file.with_suffix(".results.jsonl")
        samples = [Sample(line["task_id"], line["completion"]) for line in lines]
        if results is not None and results.exists():  # it may have verdicts on other samples, and a line cut off
            wanted = {(sample.task_id, sample.completion) for sample in samples}
            stored = results.read_text(encoding="utf-8").splitlines(keepends=True)
            verdicts = [(line, json.loads(line)) for line in stored if line.endswith("}\n")]
            kept = [line for line, one in verdicts if (one["task_id"], one["completion"]) in wanted]
            results.write_text("".join(kept), encoding="utf-8")
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
    """Return the `score` of samples, with a progress bar on standard error."""
    with ProgressBar("running tests", len(samples), counts=True) as bar:
        return score(problems, samples, results=results, workers=workers, progress=bar.update)
