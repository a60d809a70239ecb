"""The contract between a network (or an exact oracle) and everything that asks it: `Denoiser` and `Prediction`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from flexmdm.canvas import Canvas
from flexmdm.sequences import Ragged

_ROUNDING = 0.1  # of a sum of probabilities in half precision


@dataclass(frozen=True, eq=False)
class Prediction:
    """The two quantities FlexMDM learns, for every state of a canvas.

    Attributes:
        log_probs: ``[M, V]``, log f: the unmasking posterior, one row per mask of the batch, in order.
        insertions: g: the expected number of tokens still missing in each of the len + 1 gaps; 0 where a gap is closed.

    >>> import torch
    >>> canvas = Canvas(Ragged.from_lists([[5, 0], [5]]), mask_id=5)
    >>> p = Prediction(torch.zeros(2, 5).log_softmax(1), Ragged.from_lists([[1, 0, 2], [0, 0]], dtype=torch.float32))
    >>> p.of(canvas, torch.tensor([False, True])).log_probs.shape  # its prediction for the second state
    torch.Size([1, 5])
    """

    log_probs: Tensor
    insertions: Ragged

    def of(self, canvas: Canvas, which: Tensor) -> Prediction:
        """Return what it predicts for some of the sequences of ``canvas``, ``which`` ``[B]`` bool."""
        rows = canvas.tokens.rows[canvas.is_mask]
        return Prediction(self.log_probs[which[rows]], self.insertions[which])


@runtime_checkable
class Denoiser(Protocol):
    """Anything that maps (canvas, alpha) to a `Prediction`.

    f and g depend on the state and on alpha alone, not on t and not on beta, so alpha ``[B]`` is the clock; 1 means the
    limit. A denoiser may also have an ``interpolant`` with the schedules it was trained with and a ``device`` for its
    canvases, which generation then uses, and may raise `ImpossibleCanvas`.
    """

    @property
    def vocab_size(self) -> int: ...

    @property
    def mask_id(self) -> int: ...

    def __call__(self, canvas: Canvas, alpha: Tensor) -> Prediction: ...


class ImpossibleCanvas(ValueError):
    """States that the source cannot produce.

    Attributes:
        prediction: of the possible states.
        possible: ``[B]`` bool, which states can occur.
    """

    def __init__(self, message: str, prediction: Prediction, possible: Tensor) -> None:
        super().__init__(message)
        self.prediction, self.possible = prediction, possible


def predict(denoiser: Denoiser, canvas: Canvas, alpha: Tensor) -> tuple[Prediction, Tensor]:
    """Return the checked prediction, and which states ``[B]`` the denoiser holds possible; the others have none."""
    try:
        prediction = denoiser(canvas, alpha)
        possible = torch.ones(len(canvas), dtype=torch.bool, device=canvas.device)
    except ImpossibleCanvas as error:
        prediction, possible = error.prediction, error.possible
    if not isinstance(prediction, Prediction):
        raise TypeError(
            f"the denoiser gave a {type(prediction).__name__}: it must return a Prediction(log_probs, insertions)"
        )
    if prediction.log_probs.shape != (len(canvas.masks), denoiser.vocab_size):
        raise ValueError(
            f"the denoiser gave log_probs {tuple(prediction.log_probs.shape)} for {len(canvas.masks)} masks and a "
            f"vocabulary of {denoiser.vocab_size}"
        )
    g = prediction.insertions
    if g.places is not canvas.open_gaps.places and not torch.equal(g.lengths, canvas.open_gaps.lengths):
        raise ValueError("the denoiser must give insertions for each of the len + 1 gaps of every sequence")
    if not bool(((g.values >= 0) & (g.values < torch.inf)).all()):
        raise ValueError("the denoiser gave insertions that are negative, infinite or NaN")
    return prediction, possible


def check_log_probs(log_probs: Tensor) -> None:
    """Raise if rows ``[M, V]`` are not logarithms of probabilities that sum to 1, but for rounding."""
    sums = log_probs.double().logsumexp(1)
    if bool(((sums.abs() <= _ROUNDING) & (log_probs <= _ROUNDING).all(1)).all()):
        return
    total = log_probs.double().sum(1)
    if bool((log_probs >= 0).all()) and bool(((total - 1).abs() <= _ROUNDING).all()):
        raise ValueError("the denoiser gave probabilities as log_probs: take their logarithm")
    raise ValueError(
        "the denoiser gave log_probs whose probabilities do not sum to 1 for every mask: are they logits? Use "
        "log_softmax(dim=1)"
    )
