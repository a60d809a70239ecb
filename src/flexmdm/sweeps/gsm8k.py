"""GSM8K with a run on prompts and answers: how many of its solutions end with the right number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from flexmdm.generation.defaults import DEFAULTS
from flexmdm.sweeps.sweep import Benchmark, Refused, Scored, Writer, split_of, title_of
from flexmdm.tasks.math.problems import SIZES, WordProblem, file_of, read_problems
from flexmdm.tasks.math.scoring import judged, score
from flexmdm.tasks.pipeline import Answer
from flexmdm.tasks.sft.pipeline import SFTPipeline


@dataclass(frozen=True)
class GSM8K(Benchmark):
    """Word problems as a benchmark of `flexmdm.sweeps.sweep`.

    >>> benchmark = GSM8K((WordProblem("How many clips?", "48 + 24 = 72\\n#### 72"),))
    >>> benchmark.score([{"generation": "She sold 72 clips."}]).right
    [True]
    """

    problems: Sequence[WordProblem]
    split: str = "test"
    file: Path | None = None
    name = "gsm8k"
    measure = "accuracy"
    defaults = DEFAULTS[name]
    pipelines = (SFTPipeline,)
    asks = "gsm8k asks questions: fine-tune a run on prompts and answers (flexmdm train --task sft)"

    @classmethod
    def read(cls, data: Path, split: str | None = None) -> Self:
        """Read a split of the official folder, by default ``test``, or any file whose answers end with ``#### 42``."""
        split = split_of(Path(data), split, "test", {name: name for name in SIZES})
        file = file_of(Path(data), split)
        return cls(read_problems(file), split, file)

    @property
    def title(self) -> str:
        return title_of("GSM8K", self.split, len(self.problems), SIZES, self.file)

    @property
    def items(self) -> Sequence[str]:
        """Return the questions; each run writes them in its own format."""
        return [problem.question for problem in self.problems]

    def writer(self, name: str, pipeline: SFTPipeline) -> Writer:
        return pipeline.answers

    def line(self, number: int, answer: Answer | Refused) -> dict[str, Any]:
        return judged(number, self.problems[number], answer.text).to_dict()

    def score(self, lines: Sequence[dict[str, Any]], file: Path | None = None) -> Scored:
        scored = score([judged(number, self.problems[number], line["generation"]) for number, line in enumerate(lines)])
        right = [item.correct for item in scored.items]
        return Scored(scored.accuracy, right, {"strict": asdict(scored.strict), "unanswered": scored.unanswered})
