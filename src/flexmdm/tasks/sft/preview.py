"""What one sees of a model that learns to answer while it trains: two answers, and the likelihood of held-out ones."""

from __future__ import annotations

import torch

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.tasks.answers import EMPTY
from flexmdm.tasks.generating import generated
from flexmdm.tasks.likelihoods import Bits, bits_given
from flexmdm.tasks.text.preview import SAMPLES, SEQUENCES, STEPS, TIMES, Preview


class AnswerPreview(Preview):
    """Of an `SFTTask`; bits count the answers alone."""

    def samples(self, model: FlexMDMModel, step: int) -> list[str]:
        task, store = self.task, self.task.validation.store
        roomy = (store.prompts < task.width).nonzero().squeeze(1)
        chosen = roomy[torch.randperm(len(roomy), generator=torch.Generator().manual_seed(step))[:SAMPLES]]
        pairs = zip(store.take(chosen).tolist(), store.prompts[chosen].tolist(), strict=True)
        prompts = [pair[:length] for pair, length in pairs]
        found = generated(task, model, [task.prompt(prompt) for prompt in prompts], steps=STEPS, seed=step)
        answers = [task.answer(one.sequence, len(prompts[one.prompt])) for one in found]
        return [
            task.show(prompt) + (task.show(answer) or EMPTY) for prompt, answer in zip(prompts, answers, strict=True)
        ]

    def bits(self, model: FlexMDMModel) -> Bits:
        examples = self.task.validation
        return bits_given(
            model,
            self.task,
            examples.some(SEQUENCES),
            lambda index: examples.take(index, index),
            examples.answer_lengths,
            TIMES,
        )
