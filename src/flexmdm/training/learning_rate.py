"""The learning rate of every step: a warm-up and a schedule, over steps that are given or follow from the clock."""

from __future__ import annotations

import math

from flexmdm.training.recipe import Recipe

DECAYING = 0.2  # of the steps, in a trapezoid
_WARMUP = 0.1  # of the steps, at most
_FEW_WARMUP = 20  # steps of warm-up that a training by the clock has, unless it has fewer than twice as many in all


class LearningRate:
    """The learning rate of a step as a share of its highest: a warm-up, then the schedule of a recipe.

    Attributes:
        steps, warmup: number of steps in all, and of warm-up. A training by the clock moves them (`replan`); they need
            not be whole then.

    >>> rate = LearningRate(Recipe(steps=100, warmup=10, schedule="trapezoid"))
    >>> [rate(step) for step in (0, 5, 10, 80, 90, 100)]
    [0.0, 0.5, 1.0, 1.0, 0.5, 0.0]
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.steps: float = recipe.steps
        self.warmup: float = recipe.warmup

    def __call__(self, step: int) -> float:
        schedule, past = self.recipe.schedule, (step - self.warmup) / max(self.steps - self.warmup, 1)
        if step < self.warmup:
            share = step / max(self.warmup, 1)
        elif schedule in ("constant", "trapezoid"):
            share = 1.0
        elif past >= 1:
            share = 0.0
        else:
            turns = past if schedule == "cosine" else self.recipe.cycles * past % 1
            share = 0.5 * (1 + math.cos(math.pi * turns))
        if schedule in ("constant", "restarts"):
            return share
        falling = (self.steps - step) / max(DECAYING * self.steps, 1)  # also bounds a warm-up that comes so late
        return max(min(share, falling), 0.0)

    def replan(self, step: int, used: float, fitting: float) -> None:
        """Plan the rest again, when ``step`` steps took a share ``used`` of the time.

        As many steps are planned as fit at the mean speed so far. They are all done when the time is up, and whatever
        the machine does in between, the share of the schedule that is past only grows, so that the learning rate of a
        cosine or a trapezoid never rises after the warm-up.

        In the warm-up each step adds what it should by the latest estimate, so that a change of speed never makes the
        learning rate jump.

        Args:
            step: number of steps done; this is called after each.
            used: share of the time that they took.
            fitting: estimate of the number of steps in all, by the speed of the latest ones.
        """
        self.steps = step / min(max(used, 1e-9), 1)
        if step - 1 < self.warmup:
            shortest = min(_FEW_WARMUP, fitting / 2)
            within = max(min(self.recipe.warmup, max(_WARMUP * fitting, shortest)), 1)
            self.warmup = step / min((step - 1) / self.warmup + 1 / within, 1)
