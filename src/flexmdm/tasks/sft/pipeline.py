"""Questions in, answers out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flexmdm.canvas import Prompt
from flexmdm.data.pairs import Messages
from flexmdm.generation import Event, Progress
from flexmdm.tasks.generating import generated
from flexmdm.tasks.sft.task import SFTTask
from flexmdm.tasks.text.pipeline import of_each

if TYPE_CHECKING:  # seconds to import; whoever has a model has done so
    from flexmdm.backbones.model import FlexMDMModel

Question = str | Sequence[dict[str, str]]  # a conversation has messages, each with a role and a content


@dataclass(frozen=True)
class Answer:
    """One answer.

    Attributes:
        text: of the answer alone.
        tokens: of the prompt and the answer.
        evaluations: of the network.
        hit_max_length: whether it wanted to grow beyond the longest pair.
        prompt, events: what it started from, and what happened, if a trace was asked for.
    """

    text: str
    tokens: tuple[int, ...]
    evaluations: int
    hit_max_length: bool
    prompt: Prompt
    events: tuple[Event, ...] = ()


@dataclass(frozen=True)
class SFTPipeline:
    """A fine-tuned model with its tokenizer and its prompt format.

    Load one by `from_pretrained`, then ``pipeline.answer("What is 12 + 30?")``. It takes options of `flexmdm.generate`;
    for GSM8K the paper has ``sampler="adaptive", confidence="top_prob", window=(5.0, 64), temperature=0.0``.
    """

    task: SFTTask
    model: FlexMDMModel

    @classmethod
    def from_pretrained(cls, run: str | Path, device: str | None = None) -> SFTPipeline:
        """The folder of a run, or the name of weights that come with the package."""
        from flexmdm.tasks.loading import load_as

        return cls(*load_as(SFTTask, "prompts and answers (sft)", run, device))

    def answer(self, question: Question | Sequence[Question], num: int = 1, **options: Any) -> Any:
        """A string for a question (a text, or the messages of a conversation), a list for several or ``num`` > 1."""
        one = _is_one(question)
        questions: Any = [question] if one else question
        answers = [answer.text for answer in self.answers(questions, num, **options)]
        return answers[0] if one and num == 1 else answers

    def answers(
        self,
        questions: Sequence[Question],
        num: int = 1,
        trace: bool = False,
        seed: int = 0,
        names: Sequence[str] = (),
        callback: Callable[[int, Progress], None] | None = None,
        **options: Any,
    ) -> list[Answer]:
        """``num`` answers to each question.

        Args:
            questions: texts or conversations.
            num: answers per question.
            trace: keep the events.
            seed: of generation.
            names: what an error calls each question, such as its line.
            callback: called with (answers already complete, `flexmdm.generation.Progress`) after every step.
            options: of `flexmdm.generate`.
        """
        tokens = of_each(questions, lambda question: self.task.encode(_asked(question)), names)
        prompts = of_each(tokens, self.task.prompt, names)
        answers = []
        for one in generated(self.task, self.model, prompts, num, trace, seed, callback=callback, **options):
            length = len(tokens[one.prompt])
            found = self.task.answer(one.sequence, length)
            whole = (*one.sequence[:length], *found)
            measured = one.evaluations, one.hit_max_length
            answers.append(Answer(self.task.text.decode(found), whole, *measured, prompts[one.prompt], one.events))
        return answers


def _is_one(question: Any) -> bool:
    return isinstance(question, str) or (len(question) > 0 and isinstance(question[0], dict))


def _asked(question: Question) -> Messages:
    one = isinstance(question, str)
    messages = (("user", question),) if one else tuple((turn["role"], turn["content"]) for turn in question)
    if not any(content.strip() for _, content in messages):
        raise ValueError("the prompt is empty, and this model answers prompts: write a question")
    return messages
