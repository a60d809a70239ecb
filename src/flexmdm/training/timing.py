"""Training by the clock: end it in time, and let the learning rate, evaluations and checkpoints follow the time."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback

from flexmdm.training.learning_rate import LearningRate

ENDLESS = 10**9  # steps of a training that only the clock ends
FEW_STEPS = 200  # that a training should have at least
TOO_FEW = f"fewer than {FEW_STEPS} teach little: give more --minutes, or take a smaller network or --batch-size"
_LATEST = 9  # steps whose speed counts for what fits
EVALUATIONS, CHECKPOINTS = 8, 2  # in the time, at least
_EVALUATING = 0.1  # share of the time that those take at most, else they are fewer
_EARLY, _HALF = 0.1, 0.5  # shares of the time after which the number of steps and the loss are judged
_LEARNED = 0.05  # share of its start that a loss should have lost
_LINES = 5  # at the end of a log, whose median is its end


class TimeLimit(TrainerCallback):
    """Ends training after so many seconds, with a line in the log, an evaluation and a checkpoint.

    Once it is known how long an evaluation with a checkpoint takes, time for the last one is kept free.

    Attributes:
        used: share of the time that was used when the latest step was done; 1 once the time is up.
        fitting: estimate of the number of steps that fit, by the median of the latest ones; without the first, which
            may compile, so infinite after that one.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.used, self.fitting, self._reserved = seconds, 0.0, 0.0, 0.0
        self._durations: deque[float] = deque(maxlen=_LATEST)

    @property
    def left(self) -> float:
        """Return the seconds that are left."""
        return max(self._end - time.monotonic(), 0.0)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._step_began = self._step_ended = time.monotonic()
        self._end = self._step_began + self.seconds

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look at the clock before the next learning rate is set; all processes go by what the first one sees."""
        if self.used > 0:
            self._durations.append(time.monotonic() - self._step_began)
        reserved = min(self._reserved, self.seconds / 2)
        left = max(self.left - reserved, 0.0)
        fitting = state.global_step + 1 + left / max(median(self._durations), 1e-9) if self._durations else math.inf
        mine = [1 - left / (self.seconds - reserved), fitting, reserved]
        self.used, self.fitting, self._reserved = broadcast_object_list(mine)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._step_began = self._step_ended = time.monotonic()
        if self.used >= 1:
            control.should_training_stop = True
            control.should_log = control.should_evaluate = control.should_save = True

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        self._step_began = time.monotonic()
        self._reserved = max(self._reserved, self._step_began - self._step_ended)

    on_save = on_evaluate


class Timetable(TimeLimit):
    """Spreads a new training over so many seconds, of as many steps as fit.

    The learning rate follows the clock. There are at least two checkpoints, and eight evaluations if these are quick.

    Args:
        seconds: how long training may take.
        rate: the learning rate, whose steps are planned again after each.
        keep: called when the plan should be written down: early on, and at evaluations and checkpoints.
        warn: called with a sentence, if few steps fit or if the loss has barely fallen half-way.
        untrained: whether the loss should fall, as the network starts from nothing.
    """

    def __init__(
        self,
        seconds: float,
        rate: LearningRate,
        keep: Callable[[], None],
        warn: Callable[[str], None],
        untrained: bool = True,
    ) -> None:
        super().__init__(seconds)
        self.rate, self.keep, self.warn, self.untrained = rate, keep, warn, untrained
        self._evaluated = self._saved = 0.0
        self._judged_speed = self._judged_loss = False

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        super().on_optimizer_step(args, state, control)
        self.rate.replan(state.global_step + 1, self.used, self.fitting)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        super().on_step_end(args, state, control)
        interval = max(1 / EVALUATIONS, self._reserved / (_EVALUATING * self.seconds))
        not_yet = 1 - self.used >= interval / 2  # the last one comes at the end
        control.should_evaluate |= not_yet and self.used - self._evaluated >= interval
        control.should_save |= self.used - self._saved >= 1 / CHECKPOINTS
        if self.used < 1:
            self._judge(state.log_history)

    def _judge(self, log: Sequence[dict[str, float]]) -> None:
        """Warn early if few steps fit, and half-way if the loss has barely fallen."""
        if not self._judged_speed and self.used >= _EARLY and self.fitting < math.inf:
            self._judged_speed = True
            self.keep()
            if self.fitting < FEW_STEPS:
                self.warn(f"at this speed {self.fitting:,.0f} steps fit in the time, and {TOO_FEW}")
        if not self._judged_loss and self.used >= _HALF:
            self._judged_loss = True
            if self.untrained and (said := barely_learned(log)):
                self.warn(f"half of the time is used, and {said}")

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        super().on_evaluate()
        self._evaluated = self.used
        self.keep()

    def on_save(self, *_: Any, **__: Any) -> None:
        super().on_save()
        self._saved = self.used
        self.keep()


def barely_learned(log: Sequence[dict[str, float]]) -> str | None:
    """Return a sentence about a loss that is still about where it started; ``None`` if it has fallen.

    >>> barely_learned([{"step": 20, "loss": 80.0}, {"step": 40, "loss": 60.0}])
    >>> barely_learned([{"step": 20, "loss": 80.0}, {"step": 40, "loss": 79.0}])[:52]
    'the loss has barely left its start (80.0 at first, 7'
    """
    losses = [line["loss"] for line in log if "loss" in line]
    latest = losses[1:][-_LINES:]
    if not latest or median(latest) < (1 - _LEARNED) * losses[0]:
        return None
    return (
        f"the loss has barely left its start ({losses[0]:.1f} at first, {median(latest):.1f} now): train longer, or "
        "with another --lr"
    )
