"""GSM8K with a run on prompts and answers: how many of its solutions end with the right number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from flexmdm.sweeps.sweep import Entrant, Scored, fingerprint, split_of, title_of
from flexmdm.tasks.math.problems import SIZES, WordProblem, file_of, read_problems
from flexmdm.tasks.math.scoring import judged, score

if TYPE_CHECKING:
    from flexmdm.backbones.model import FlexMDMModel


@dataclass(frozen=True)
class GSM8K:
    """Word problems as a benchmark of `flexmdm.sweeps.sweep`.

    The samplers are the paper's: adaptive for FlexMDM, and for MDM LLaDA's semi-autoregressive one.

    >>> benchmark = GSM8K((WordProblem("How many clips?", "48 + 24 = 72\\n#### 72"),))
    >>> benchmark.score([benchmark.line(0, "She sold 72 clips.")], None).right
    [True]
    """

    problems: Sequence[WordProblem]
    split: str = "test"
    file: Path | None = None
    name: str = "gsm8k"
    measure: str = "accuracy"

    @classmethod
    def read(cls, data: Path, split: str | None = None) -> Self:
        """A split of the official folder, by default ``test``, or any file whose answers end with ``#### 42``."""
        split = split_of(Path(data), split, "test", {name: name for name in SIZES})
        file = file_of(Path(data), split)
        return cls(read_problems(file), split, file)

    @property
    def title(self) -> str:
        return title_of("GSM8K", self.split, len(self.problems), SIZES, self.file)

    @property
    def samplers(self) -> Mapping[str, str]:
        return {"flexmdm": "adaptive", "mdm": "low_confidence"}

    @property
    def items(self) -> Sequence[str]:
        """The questions; each run writes them in its own format."""
        return [problem.question for problem in self.problems]

    @property
    def groups(self) -> None:
        """Every problem is its own."""
        return None

    def line(self, number: int, text: str) -> dict[str, Any]:
        return judged(number, self.problems[number], text).to_dict()

    def score(self, lines: Sequence[dict[str, Any]], file: Path | None) -> Scored:
        scored = score([judged(number, self.problems[number], line["generation"]) for number, line in enumerate(lines)])
        right = [item.correct for item in scored.items]
        return Scored(scored.accuracy, right, {"unanswered": scored.unanswered})


def entrant_of(name: str, task: Any, model: FlexMDMModel) -> Entrant:
    """A run that can be asked."""
    if task.name != "sft":
        raise ValueError(
            f"{name} was trained on the task {task.name}, and gsm8k asks questions: fine-tune a run on prompts and "
            "answers (flexmdm train --task sft)"
        )
    from flexmdm.tasks.sft import SFTPipeline

    return Entrant(name, task.model, fingerprint(model), SFTPipeline(task, model).answers)
