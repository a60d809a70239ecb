"""What one sees of a model that learns to fill gaps while it trains: two middles, and the likelihood of others."""

from __future__ import annotations

import torch

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.tasks.code.pipeline import CodePipeline
from flexmdm.tasks.likelihoods import Bits, bits_given
from flexmdm.tasks.text.preview import SAMPLES, SEQUENCES, STEPS, TIMES, Preview

_SHOWN = 80  # characters to either side of the gap


class CodePreview(Preview):
    """Of a `CodeTask`; bits count the middles alone, cut in the same way each time."""

    def samples(self, model: FlexMDMModel, step: int) -> list[str]:
        examples = self.task.validation
        index = examples.some(SAMPLES, seed=step)
        triples = examples.triples(index, index)
        pairs = [(prefix, suffix) for prefix, _, suffix in triples]
        filled = CodePipeline(self.task, model).fill(pairs, steps=STEPS, seed=step)
        return [
            f"{prefix[-_SHOWN:]}⟦{one.text}⟧{suffix[:_SHOWN]}"
            for (prefix, suffix), one in zip(pairs, filled, strict=True)
        ]

    def bits(self, model: FlexMDMModel) -> Bits:
        examples = self.task.validation
        index = examples.some(SEQUENCES)
        tokens, characters = torch.zeros(2, len(examples), dtype=torch.int64)
        tokens[index] = examples.cut(index, index).sizes
        characters[index] = torch.tensor([len(middle) for _, middle, _ in examples.triples(index, index)])
        return bits_given(
            model, self.task, index, lambda some: examples.take(some, some), tokens, TIMES, characters=characters
        )
