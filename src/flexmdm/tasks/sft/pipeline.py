"""Questions in, answers out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from flexmdm.canvas import Prompt
from flexmdm.data.tokenizers import Unanswerable
from flexmdm.tasks.pipeline import EMPTY, Answer, Generated, Pipeline, generated, texts_of
from flexmdm.tasks.sft.task import SFTTask
from flexmdm.tasks.text.pipeline import GAP_MARKER, TextPipeline
from flexmdm.tasks.text.task import TextTask

Question = str | Sequence[dict[str, str]]  # a conversation has messages, each with a role and a content


@dataclass(frozen=True)
class AnswerTask(TextTask):
    """The answers to one prompt as texts: its tokens, ``prompt``, stand in front of each of them."""

    prompt: tuple[int, ...] = ()

    @property
    def frame(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.prompt, ()

    def clean(self, sequence: Sequence[int]) -> list[int]:
        """Return the tokens of a generated sequence that are text, as an answer may repeat those of the prompt."""
        return [token for token in sequence if token < self.text.size]


@dataclass(frozen=True)
class SFTPipeline(Pipeline[SFTTask]):
    """A fine-tuned model with its tokenizer and its prompt format.

    Load one by `from_pretrained`, then ``pipeline.answer("What is 12 + 30?")``. It takes options of `flexmdm.generate`;
    for GSM8K the paper has ``sampler="adaptive", confidence="top_prob", window=(5.0, 64), temperature=0.0``.
    """

    task_name: ClassVar[str] = "sft"
    uses: ClassVar[str] = 'flexmdm complete RUN "a question"'
    takes_prompts: ClassVar[bool] = True

    def answer(self, question: Any, num: int = 1, *, full: bool = False, **options: Any) -> Any:
        """Answer a question (a text, or the messages of a conversation) by a string, several by a list."""
        one = isinstance(question, str) or (len(question) > 0 and isinstance(question[0], dict))
        return texts_of(self.answers([question] if one else question, num, **options), one, full)

    def complete(self, text: Any, num: int = 1, *, full: bool = False, **options: Any) -> Any:
        """Answer a question, or several."""
        return self.answer(text, num, full=full, **options)

    def infill(
        self,
        text: str | Sequence[str],
        num: int = 1,
        gap_marker: str = GAP_MARKER,
        prompt: str = "",
        *,
        full: bool = False,
        best: int = 0,
        **options: Any,
    ) -> Any:
        """Fill the gaps of an answer to a prompt, or of several, as `TextPipeline.infill` does."""
        return self.filler(prompt).infill(text, num, gap_marker, full=full, best=best, **options)

    @property
    def fills(self) -> bool:
        """Return whether the model takes answers with gaps: one with flags has learned that all of them is to find."""
        return not getattr(self.model.config, "flags", True)

    def filler(self, prompt: str = "") -> TextPipeline:
        """Return what fills gaps in answers to a prompt, which may be empty."""
        if not self.fills:
            raise ValueError(
                f"a run on {self.task.name} does not fill the gaps of a text, as nothing of an answer was given in "
                f"training: {self.uses}"
            )
        tokens = self.task.encode((("user", prompt),))
        self.prompt(tokens)  # raises if that leaves no room
        task = AnswerTask(max_length=self.task.layout.longest - len(tokens), prompt=tuple(tokens))
        object.__setattr__(task, "text", self.task.text)  # fills the cache of the property
        return TextPipeline(task, self.model)

    def encode(self, request: Question) -> list[int]:
        """Return the tokens of a question, written as a prompt."""
        turns = [{"role": "user", "content": request}] if isinstance(request, str) else request
        if not any(turn["content"].strip() for turn in turns):
            raise Unanswerable("the prompt is empty, and this model answers prompts: write a question")
        return self.task.encode(tuple((turn["role"], turn["content"]) for turn in turns))

    def prompt(self, tokens: Sequence[int], **settings: Any) -> Prompt:
        """Return what generation starts from: these tokens, and the answer to find behind them."""
        most = self.task.layout.longest
        if len(tokens) >= most:
            raise Unanswerable(
                f"the prompt leaves no room for an answer: it has {len(tokens)} tokens, "
                f"and this model was trained on at most {most}; ask more briefly, or train with a larger --max-length"
            )
        return self.task.layout.between([tokens, []])

    def decode(self, request: Question, tokens: Sequence[int], prompt: Prompt, one: Generated) -> Answer:
        """Return the answer alone; its tokens are those of the prompt and the answer."""
        found = self.task.answer(one.sequence, len(tokens))
        text = self.task.text.decode(found)
        return one.answer(text, [text], [*one.sequence[: len(tokens)], *found], prompt)

    def row(self, answer: Answer) -> dict[str, Any]:
        row = super().row(answer)
        if answer.pieces:  # gaps in an answer
            return row
        return {"answer": row.pop("text")} | {key: value for key, value in row.items() if key != "gaps"}

    def preview(self, num: int, seed: int, **options: Any) -> list[str]:
        """Return some held-out prompts with their answers."""
        task, store = self.task, self.task.validation.store
        roomy = (store.prompts < task.width).nonzero().squeeze(1)
        chosen = roomy[torch.randperm(len(roomy), generator=torch.Generator().manual_seed(seed))[:num]]
        pairs = zip(store.take(chosen).tolist(), store.prompts[chosen].tolist(), strict=True)
        prompts = [pair[:length] for pair, length in pairs]
        found = generated(task, self.model, [self.prompt(one) for one in prompts], seed=seed, **options)
        answers = (task.answer(one.sequence, len(prompts[one.prompt])) for one in found)
        return [task.show(one) + (task.show(answer) or EMPTY) for one, answer in zip(prompts, answers, strict=True)]
