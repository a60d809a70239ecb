"""Text before and behind a gap in, what goes between them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flexmdm.canvas import Prompt
from flexmdm.generation import Event, Progress
from flexmdm.tasks.code.preparation import encode_lines
from flexmdm.tasks.code.task import CodeTask
from flexmdm.tasks.generating import generated
from flexmdm.tasks.text.pipeline import of_each

if TYPE_CHECKING:  # seconds to import; whoever has a model has done so
    from flexmdm.backbones.model import FlexMDMModel


@dataclass(frozen=True)
class Filled:
    """What was found for one gap.

    Attributes:
        text: the middle alone; prefix, middle and suffix side by side are the program.
        tokens: of the middle.
        evaluations: of the network.
        hit_max_length: whether it wanted to grow beyond the longest function.
        context: tokens of the prefix and the suffix that the model saw.
        around: tokens of the prefix and the suffix that there are; more than it saw if they left no room.
        prompt, events: what it started from, and what happened, if a trace was asked for.
    """

    text: str
    tokens: tuple[int, ...]
    evaluations: int
    hit_max_length: bool
    context: int
    around: int
    prompt: Prompt
    events: tuple[Event, ...] = ()

    @property
    def shortened(self) -> bool:
        """Whether the model saw only a part of the prefix and the suffix."""
        return self.context < self.around


@dataclass(frozen=True)
class CodePipeline:
    """A model that fills gaps in programs, with its tokenizer.

    Load one by `from_pretrained`, then ``pipeline.fill([("def double(x):\\n", "    return y\\n")])``. It takes options
    of `flexmdm.generate`; for HumanEval-infilling the paper has, for both models, the same as for GSM8K:
    ``sampler="adaptive", confidence="top_prob", window=(5.0, 64), temperature=0.0``.
    """

    task: CodeTask
    model: FlexMDMModel

    @classmethod
    def from_pretrained(cls, run: str | Path, device: str | None = None) -> CodePipeline:
        """The folder of a run, or the name of weights that come with the package."""
        from flexmdm.tasks.loading import load_as

        return cls(*load_as(CodeTask, "gaps in functions (code)", run, device))

    def fill(
        self,
        pairs: Sequence[tuple[str, str]],
        num: int = 1,
        trace: bool = False,
        seed: int = 0,
        names: Sequence[str] = (),
        callback: Callable[[int, Progress], None] | None = None,
        **options: Any,
    ) -> list[Filled]:
        """``num`` middles for each pair of a prefix and a suffix.

        Args:
            pairs: the text before and behind each gap; either may be empty.
            num: middles per pair.
            trace: keep the events.
            seed: of generation.
            names: what an error calls each pair, such as its task.
            callback: called with (middles already complete, `flexmdm.generation.Progress`) after every step.
            options: of `flexmdm.generate`.
        """
        sides = of_each(pairs, lambda pair: self.task.encode(*pair), names)
        prompts = of_each(sides, lambda side: self.task.prompt(*side), names)
        whole = [sum(map(len, chain(*encode_lines(self.task.text, pair)))) for pair in pairs]
        filled = []
        for one in generated(self.task, self.model, prompts, num, trace, seed, callback=callback, **options):
            prefix, suffix = sides[one.prompt]
            found = self.task.middle(one.sequence, prefix, suffix)
            measured = one.evaluations, one.hit_max_length, len(prefix) + len(suffix), whole[one.prompt]
            told = prompts[one.prompt], one.events
            filled.append(Filled(self.task.text.decode(found), tuple(found), *measured, *told))
        return filled
