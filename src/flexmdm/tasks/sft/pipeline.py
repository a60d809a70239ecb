"""Questions in, answers out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from flexmdm.canvas import Prompt
from flexmdm.data.pairs import Messages
from flexmdm.data.tokenizers import Unanswerable
from flexmdm.tasks.pipeline import Answer, Generated, Pipeline, generated, texts_of
from flexmdm.tasks.sft.task import SFTTask

Question = str | Sequence[dict[str, str]]  # a conversation has messages, each with a role and a content
_EMPTY = "(empty)"


@dataclass(frozen=True)
class SFTPipeline(Pipeline[SFTTask]):
    """A fine-tuned model with its tokenizer and its prompt format.

    Load one by `from_pretrained`, then ``pipeline.answer("What is 12 + 30?")``. It takes options of `flexmdm.generate`;
    for GSM8K the paper has ``sampler="adaptive", confidence="top_prob", window=(5.0, 64), temperature=0.0``.
    """

    task_name: ClassVar[str] = "sft"
    uses: ClassVar[str] = 'flexmdm complete RUN "a question"'

    def answer(self, question: Any, num: int = 1, *, full: bool = False, **options: Any) -> Any:
        """Answer a question (a text, or the messages of a conversation) by a string, several by a list."""
        one = _is_one(question)
        questions: Any = [question] if one else question
        return texts_of(self.answers(questions, num, **options), one, full)

    def complete(self, text: Any, num: int = 1, *, full: bool = False, **options: Any) -> Any:
        """Answer a question, or several."""
        return self.answer(text, num, full=full, **options)

    def encode(self, request: Question) -> list[int]:
        """Return the tokens of a question, written as a prompt."""
        return self.task.encode(_asked(request))

    def prompt(self, tokens: Sequence[int], **settings: Any) -> Prompt:
        """Return the prompt with the answer to find behind it."""
        return self.task.prompt(tokens)

    def decode(self, request: Question, tokens: Sequence[int], prompt: Prompt, one: Generated) -> Answer:
        """Return the answer alone; its tokens are those of the prompt and the answer."""
        found = self.task.answer(one.sequence, len(tokens))
        text, whole = self.task.text.decode(found), (*one.sequence[: len(tokens)], *found)
        return Answer(text, (text,), whole, one.evaluations, one.hit_max_length, prompt, one.events)

    def row(self, answer: Answer) -> dict[str, Any]:
        """Return an answer as a file has it."""
        return {"answer": answer.text, "evaluations": answer.evaluations}

    def preview(self, num: int, seed: int, **options: Any) -> list[str]:
        """Return some held-out prompts with their answers."""
        task, store = self.task, self.task.validation.store
        roomy = (store.prompts < task.width).nonzero().squeeze(1)
        chosen = roomy[torch.randperm(len(roomy), generator=torch.Generator().manual_seed(seed))[:num]]
        pairs = zip(store.take(chosen).tolist(), store.prompts[chosen].tolist(), strict=True)
        prompts = [pair[:length] for pair, length in pairs]
        found = generated(task, self.model, [task.prompt(prompt) for prompt in prompts], seed=seed, **options)
        answers = [task.answer(one.sequence, len(prompts[one.prompt])) for one in found]
        return [
            task.show(prompt) + (task.show(answer) or _EMPTY) for prompt, answer in zip(prompts, answers, strict=True)
        ]


def _is_one(question: Any) -> bool:
    return isinstance(question, str) or (len(question) > 0 and isinstance(question[0], dict))


def _asked(question: Question) -> Messages:
    one = isinstance(question, str)
    messages = (("user", question),) if one else tuple((turn["role"], turn["content"]) for turn in question)
    if not any(content.strip() for _, content in messages):
        raise Unanswerable("the prompt is empty, and this model answers prompts: write a question")
    return messages
