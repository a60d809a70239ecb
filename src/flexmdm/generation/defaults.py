"""The one table of default samplers, steps and temperatures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

STEPS = 64  # grid points of every sampler; a step of `spaced` may take several evaluations

# One dial for what a user wants: steps of the sampler. On sources whose truth is known no other sampler is better than
# `spaced` everywhere at equal evaluations, and its steps are what its error depends on (benchmarks/results/coupled.md):
# 8 take about 12 evaluations of a short sequence, 32 about 36, 128 about 133; these leave words within 0.005 of what
# 10,000 exact samples show, on the six sources on which 128 were measured.
QUALITIES = {"fast": 8, "balanced": 32, "exact": 128}


def steps_for(quality: str) -> int:
    """Return the number of steps that a quality stands for.

    >>> steps_for("fast")
    8
    """
    if quality not in QUALITIES:
        raise ValueError(f"there is no quality {quality!r}; choose from {', '.join(QUALITIES)}")
    return QUALITIES[quality]


@dataclass(frozen=True)
class Defaults:
    """The sampler of a model that inserts, that of a model that only reveals, and how both are called.

    Attributes:
        inserting: sampler of a FlexMDM.
        revealing: sampler of an MDM.
        temperature: of the tokens; 0 takes the most probable one.
        steps: grid points.
        draws: draws per answer, of which the most probable are kept.
        settings: further options of a sampler, by its name, where they differ from the sampler's own defaults.
    """

    inserting: str = "spaced"
    revealing: str = "tau"
    temperature: float = 1.0
    steps: int = STEPS
    draws: int = 1
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def options(self, inserts: bool, **given: Any) -> dict[str, Any]:
        """Return the options of `generate` for a model that inserts, or for one that does not; None is not given.

        A ``quality`` stands for a number of steps; steps that are given win over it.

        >>> DEFAULTS["planning"].options(inserts=False, steps=None, temperature=1.0)
        {'sampler': 'low_confidence', 'steps': 64, 'temperature': 1.0}
        >>> DEFAULTS["planning"].options(inserts=True, quality="fast")
        {'sampler': 'spaced', 'steps': 8, 'temperature': 0.0}
        """
        sampler, quality = self.inserting if inserts else self.revealing, given.pop("quality", None)
        steps = self.steps if quality is None else steps_for(quality)
        usual = {"sampler": sampler, "steps": steps, "temperature": self.temperature}
        return usual | {name: value for name, value in given.items() if value is not None}


_PAPER: dict[str, dict[str, Any]] = {
    "adaptive": {"confidence": "top_prob", "window": (5.0, 64)},
    "low_confidence": {"block": 32},
}
# Writing: sequences as they come. Filling: gaps of a text are short, and one wants good answers, so the best of
# several draws in fewer steps, a little cooler: at 0.8 a model of sentences writes fewer odd words. Planning: one wants
# the best path, and LLaDA's low-confidence remasking plans better than `adaptive` at every K on 21 x 21
# (benchmarks/results/maze21.md). The two benchmarks: the paper's samplers, with their settings.
DEFAULTS = {
    "writing": Defaults(),
    "filling": Defaults(steps=32, draws=8, temperature=0.8),
    "planning": Defaults("spaced", "low_confidence", temperature=0.0),
    "gsm8k": Defaults("adaptive", "low_confidence", temperature=0.0, settings=_PAPER),
    "humaneval-infill": Defaults("adaptive", "adaptive", temperature=0.0, settings=_PAPER),
}
