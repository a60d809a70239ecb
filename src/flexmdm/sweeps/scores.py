"""The score of a text model: lengths, fluency and variety of its samples, and the likelihood of held-out texts."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from flexmdm.evaluation.distances import Estimate
from flexmdm.evaluation.intervals import Interval
from flexmdm.evaluation.trials import without_nan


@dataclass(frozen=True)
class TextScore:
    """Measures of ``num`` texts of one model, sampler and number of steps.

    Attributes:
        model, sampler, steps, temperature, num: what was asked. 0 steps: not sampled at all, as held-out texts, which
            show what the other scores can be compared with.
        length_w1, length_ks: of `length_fidelity`, in tokens and from 0 to 1.
        generative_perplexity: of the corpus, under the reference model.
        read: texts that the reference model was given, the first ones; 0 without one.
        kept, truncated: share of these that were long enough for it, and how many were cut to its window.
        entropy: `unigram_entropy`, mean over the texts, in nats. It grows with the length of a text.
        opening_entropy: that of the first 32 tokens of the texts that have so many, whatever their lengths.
        distinct_1, distinct_2, distinct_3: `distinct_n` of all texts pooled; it falls as there are more.
        evaluations, seconds: per text.
        samples: texts, of which the page shows the first twenty.
        lengths: of all texts in tokens, those of ``samples`` first.
    """

    model: str
    sampler: str
    steps: int
    temperature: float
    num: int
    length_w1: Interval
    length_ks: Interval
    generative_perplexity: Interval
    kept: float
    entropy: Interval
    distinct_1: float
    distinct_2: float
    distinct_3: float
    evaluations: float
    seconds: float
    opening_entropy: Interval = Interval(math.nan, math.nan, math.nan)
    samples: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    read: int = 0
    truncated: int = 0

    @property
    def series(self) -> str:
        """Return the name that scores share which differ in their steps alone."""
        words = [self.model, self.sampler, "" if self.temperature == 1 else f"T={self.temperature:g}"]
        return " ".join(word for word in words if word)

    @property
    def label(self) -> str:
        return f"{self.series}, {self.steps:,} steps" if self.steps else self.series

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and texts for a JSON file; a number that does not exist is ``None``."""
        return without_nan(asdict(self))


@dataclass(frozen=True)
class LikelihoodScore:
    """Bits that a model needs for held-out texts, as upper bounds with standard errors.

    Attributes:
        model: its name.
        bits_per_sequence, bits_per_token, bits_per_character: the end of a sequence is paid for in all of them.
        num: held-out sequences.
    """

    model: str
    bits_per_sequence: Estimate
    bits_per_token: float
    bits_per_character: Estimate
    num: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers for a JSON file; a number that does not exist is ``None``."""
        return without_nan(asdict(self))
