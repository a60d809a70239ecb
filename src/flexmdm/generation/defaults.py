"""The one table of default samplers, steps and temperatures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

STEPS = 64  # grid points of every sampler; a step of `spaced` may take several evaluations


@dataclass(frozen=True)
class Defaults:
    """The sampler of a model that inserts, that of a model that only reveals, and how both are called.

    Attributes:
        inserting: sampler of a FlexMDM.
        revealing: sampler of an MDM.
        temperature: of the tokens; 0 takes the most probable one.
        steps: grid points.
    """

    inserting: str = "spaced"
    revealing: str = "tau"
    temperature: float = 1.0
    steps: int = STEPS

    def options(self, inserts: bool) -> dict[str, Any]:
        """Return the options of `generate` for a model that inserts, or for one that does not.

        >>> DEFAULTS["planning"].options(inserts=False)
        {'sampler': 'low_confidence', 'steps': 64, 'temperature': 0.0}
        """
        sampler = self.inserting if inserts else self.revealing
        return {"sampler": sampler, "steps": self.steps, "temperature": self.temperature}


# Writing: sequences as they come. Planning: one wants the best path, and LLaDA's low-confidence remasking plans better
# than `adaptive` at every K on 21 x 21 (benchmarks/results/maze21.md). The two benchmarks: the paper's samplers.
DEFAULTS = {
    "writing": Defaults(),
    "planning": Defaults("spaced", "low_confidence", temperature=0.0),
    "gsm8k": Defaults("adaptive", "low_confidence", temperature=0.0),
    "humaneval-infill": Defaults("adaptive", "adaptive", temperature=0.0),
}
