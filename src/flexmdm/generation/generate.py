"""The loop that turns prompts into sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from flexmdm.canvas import Canvas, Prompt
from flexmdm.denoiser import Denoiser, Prediction, check_log_probs, predict
from flexmdm.generation.decoding import Decoding
from flexmdm.generation.defaults import DEFAULTS, STEPS
from flexmdm.generation.likeliest import LikeliestSampler
from flexmdm.generation.policies import Policy
from flexmdm.generation.samplers import AdaptiveSampler, Grid, LowConfidenceSampler, Sampler, TauSampler
from flexmdm.generation.spaced import SpacedSampler
from flexmdm.generation.trace import Event, Recorder
from flexmdm.interpolants import FlexMDMInterpolant
from flexmdm.precision import float64_device
from flexmdm.randomness import StepRandomness

SAMPLERS: dict[str, type[TauSampler | AdaptiveSampler | SpacedSampler | LikeliestSampler | LowConfidenceSampler]] = {
    "tau": TauSampler,
    "adaptive": AdaptiveSampler,
    "spaced": SpacedSampler,
    "likeliest": LikeliestSampler,
    "low_confidence": LowConfidenceSampler,
}


@dataclass(frozen=True, eq=False)
class Generation:
    """What `generate` returns: one entry per sample, the samples of the first prompt first.

    Attributes:
        sequences: the clean tokens.
        evaluations: how often the denoiser was asked about each sequence.
        hit_max_length: whether it grew to ``max_length``, where insertions end.
        possible: false if it reached a state that the (exact) source cannot produce; it then ends as it stands.
        given: for each token of each sequence, whether it stood in the prompt (as a token or as a mask).
        trace: every insertion and reveal in order, if asked for.
    """

    sequences: list[list[int]]
    evaluations: list[int]
    hit_max_length: list[bool]
    possible: list[bool]
    given: list[list[bool]]
    trace: list[list[Event]] | None = None


@dataclass(frozen=True, eq=False)
class Progress:
    """What a callback sees after each step.

    Attributes:
        step: how many steps were taken.
        canvas: the states of the sequences that go on.
        alpha: their clocks, ``[b]``.
        sequences: which samples they are, ``[b]``.
        finished: how many samples are done.
        total: of how many.
    """

    step: int
    canvas: Canvas
    alpha: Tensor
    sequences: Tensor
    finished: int
    total: int


@torch.no_grad()
def generate(
    denoiser: Denoiser,
    num_samples: int = 1,
    *,
    prompts: Sequence[Prompt] | None = None,
    canvas: Canvas | None = None,
    alpha: Tensor | float = 0.0,
    sampler: str | Sampler = DEFAULTS["writing"].inserting,
    steps: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    confidence: str | Policy | None = None,
    window: tuple[float, int] | None = None,
    spacing: float | None = None,
    block: int | None = None,
    max_length: int | None = None,
    interpolant: FlexMDMInterpolant | None = None,
    seed: int = 0,
    first_sequence: int = 0,
    batch_size: int | None = None,
    trace: bool = False,
    callback: Callable[[Progress], None] | None = None,
    device: torch.device | str | None = None,
) -> Generation:
    """Sample sequences: from nothing, from prompts, or on from any canvas and clock.

    Args:
        denoiser: f and g.
        num_samples: per prompt.
        prompts: what to start from; default: the empty sequence.
        canvas: states to go on from instead (each is taken ``num_samples`` times), at the clocks ``alpha``.
        alpha: where the clock stands, one number or ``[B]``.
        sampler: ``"tau"``, ``"adaptive"``, ``"spaced"``, ``"likeliest"``, ``"low_confidence"``, or a `Sampler` of your
            own.
        steps: the grid that the clock must not step past; default 64.
        temperature, top_k, top_p: how tokens are drawn; temperature 0 takes the most probable.
        confidence: which masks are revealed first: ``"random"``, ``"top_prob"``, ``"margin"``, ``"entropy"``,
            ``"left_to_right"`` or a function (adaptive, spaced).
        window: (gamma1, gamma2), the sliding window (adaptive).
        spacing: how far apart events of one step must be (spaced).
        block: block length (low_confidence).
        max_length: never exceeded; insertions beyond it are left out and generation goes on.
        interpolant: the schedules; default: those the denoiser was trained with, else linear.
        seed: same seed, same sequences, alone or in any batch. Random numbers belong to a sequence by its number, which
            counts the samples of the first prompt, then those of the second, and so on.
        first_sequence: the number of the first sequence, for who draws a run in several parts or processes.
        batch_size: how many sequences to work on at a time; default: all.
        trace: record every insertion and reveal.
        callback: called after every step with a `Progress`.
        device: where the canvases live; default: where the denoiser says it is, else the CPU. Instead of a device
            without float64 (MPS) it is the CPU.

    >>> from flexmdm import FiniteDistribution
    >>> source = FiniteDistribution({(0, 1): 0.5, (0, 2, 1): 0.5}, vocab_size=3)
    >>> out = generate(source.denoiser(), num_samples=20, seed=1)
    >>> sorted(set(map(tuple, out.sequences)))
    [(0, 1), (0, 2, 1)]
    >>> generate(source.denoiser(), prompts=[Prompt.infill([[0, 2], []]), Prompt.masks(3)], seed=1).sequences
    [[0, 2, 1], [0, 2, 1]]
    """
    if num_samples < 0:
        raise ValueError(f"num_samples must not be negative, got {num_samples}")
    if not isinstance(denoiser, Denoiser):
        raise TypeError(
            f"generate needs a denoiser, got {type(denoiser).__name__}; a source has one: source.denoiser()"
        )
    if not isinstance(sampler, str) and (isinstance(sampler, type) or not hasattr(sampler, "step")):
        raise TypeError("sampler must be a name or an object with a step method (an instance, not its class)")
    if isinstance(prompts, Prompt) or any(not isinstance(prompt, Prompt) for prompt in prompts or []):
        raise TypeError("prompts must be a list of Prompt, such as [Prompt.prefix([7, 8])]")
    if isinstance(sampler, str):
        interpolant = interpolant or getattr(denoiser, "interpolant", None) or FlexMDMInterpolant()
        options = {"confidence": confidence, "window": window, "spacing": spacing, "block": block}
        decoding = Decoding(temperature, top_k, top_p)
        grid = Grid(STEPS if steps is None else steps, interpolant)
        sampler = sampler_named(sampler, grid, decoding, **options)
    elif not (
        steps is confidence is window is spacing is block is top_k is top_p is interpolant is None
        and temperature == 1.0
    ):
        raise ValueError("a sampler object brings its own settings: leave steps, temperature, interpolant ... to it")
    start, clock = _start(denoiser, prompts, canvas, alpha, max_length, device)
    _check_start(start, denoiser)
    index = torch.arange(len(start), device=start.device).repeat_interleave(num_samples)
    sequences = torch.arange(len(index), device=start.device)
    size = max(len(index), 1) if batch_size is None else batch_size
    if size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    run = _Run(denoiser, sampler, seed, first_sequence, len(index), Recorder() if trace else None, callback)
    for begin in range(0, len(index), size):
        part = index[begin : begin + size]
        run.complete(start[part], clock[part], sequences[begin : begin + size])
    return run.result()


def sampler_named(name: str, grid: Grid, decoding: Decoding | None = None, **options: object) -> Sampler:
    """A sampler by its name; options that are ``None`` keep their defaults, those it does not have are an error."""
    if name not in SAMPLERS:
        raise ValueError(f"unknown sampler {name!r}; the known ones are {', '.join(SAMPLERS)}")
    kind = SAMPLERS[name]
    chosen: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    unknown = sorted(set(chosen) - {f.name for f in fields(kind)})
    if unknown:
        raise ValueError(f"sampler {name!r} has no {', '.join(unknown)}; leave it out or take another sampler")
    return kind(grid, decoding or Decoding(), **chosen)


def _start(
    denoiser: Denoiser,
    prompts: Sequence[Prompt] | None,
    canvas: Canvas | None,
    alpha: Tensor | float,
    max_length: int | None,
    device: torch.device | str | None,
) -> tuple[Canvas, Tensor]:
    if canvas is None:
        prompts = [Prompt.empty()] if prompts is None else prompts
        device = getattr(denoiser, "device", None) if device is None else device
        canvas = Canvas.of_prompts(prompts, denoiser.mask_id, max_length, device)
    elif prompts is not None:
        raise ValueError("give prompts or a canvas, not both")
    canvas = canvas.to(float64_device(canvas.device))
    alpha = alpha.to(canvas.device) if isinstance(alpha, Tensor) else alpha
    clock = torch.as_tensor(alpha, dtype=torch.float64, device=canvas.device).expand(len(canvas))
    if not bool(((clock >= 0) & (clock <= 1)).all()):
        raise ValueError(f"alpha must lie in [0, 1], got {clock.tolist()[:8]}")
    ids = canvas.tokens.with_values(canvas.tokens.columns)
    max_length = canvas.max_length if max_length is None else max_length
    return replace(canvas, max_length=max_length, ids=ids), clock


def _check_start(canvas: Canvas, denoiser: Denoiser) -> None:
    if canvas.mask_id != denoiser.mask_id:
        raise ValueError(f"the canvas has mask id {canvas.mask_id}, the denoiser {denoiser.mask_id}")
    tokens = canvas.tokens.values[~canvas.is_mask]
    outside = (tokens < 0) | (tokens >= denoiser.vocab_size)
    if bool(outside.any()):
        raise ValueError(
            f"a prompt has token {int(tokens[outside][0])}, outside the vocabulary 0..{denoiser.vocab_size - 1}"
        )
    if canvas.max_length is not None and canvas.tokens.max_length > canvas.max_length:
        raise ValueError(
            f"max_length {canvas.max_length} is shorter than a prompt of {canvas.tokens.max_length} tokens: "
            "raise max_length or shorten the prompt"
        )


class _Run:
    """The state of one call of `generate`: sequences under way are compacted as others finish."""

    def __init__(
        self,
        denoiser: Denoiser,
        sampler: Sampler,
        seed: int,
        first: int,
        total: int,
        recorder: Recorder | None,
        callback: Callable[[Progress], None] | None,
    ) -> None:
        self.denoiser, self.sampler, self.seed, self.first, self.total = denoiser, sampler, seed, first, total
        self.recorder, self.callback = recorder, callback
        self.evaluations = torch.zeros(total, dtype=torch.int64)
        self.possible = torch.ones(total, dtype=torch.bool)
        self.finished: list[tuple[Tensor, Canvas]] = []
        self.done = 0
        self.checked = False  # whether log_probs were looked at: once tells enough

    def complete(self, canvas: Canvas, alpha: Tensor, sequences: Tensor) -> None:
        """Carry a batch of sequences to their ends."""
        step = 0
        canvas, alpha, sequences = self._put_away(canvas, alpha, sequences, torch.ones_like(alpha, dtype=torch.bool))
        while len(canvas):
            self.evaluations[sequences.cpu()] += 1
            prediction, possible = predict(self.denoiser, canvas, alpha)
            if not bool(possible.all()):
                prediction = prediction.of(canvas, possible)
                canvas, alpha, sequences = self._put_away(canvas, alpha, sequences, possible)
                if not len(canvas):
                    self._report(step + 1, canvas, alpha, sequences)
                    break
            if not self.checked and len(prediction.log_probs):
                check_log_probs(prediction.log_probs)
                self.checked = True
            rng = StepRandomness(self.seed, sequences + self.first, step)
            after, clock = self._step(canvas, prediction, alpha, rng)
            self._check_progress(canvas, alpha, after, clock)
            if self.recorder is not None:
                self.recorder.record(step, sequences, canvas, after, clock)
            step += 1
            everyone = torch.ones_like(alpha, dtype=torch.bool)
            canvas, alpha, sequences = self._put_away(after, clock, sequences, everyone)
            self._report(step, canvas, alpha, sequences)

    def _step(
        self, canvas: Canvas, prediction: Prediction, alpha: Tensor, rng: StepRandomness
    ) -> tuple[Canvas, Tensor]:
        made = self.sampler.step(canvas, prediction, alpha, rng)
        if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], Canvas) and isinstance(made[1], Tensor):
            return made
        what = f"({', '.join(type(one).__name__ for one in made)})" if isinstance(made, tuple) else type(made).__name__
        raise TypeError(f"a step of the sampler gave {what}: it must return the next canvas and the next clock alpha")

    def _report(self, step: int, canvas: Canvas, alpha: Tensor, sequences: Tensor) -> None:
        if self.callback is not None:
            self.callback(Progress(step, canvas, alpha, sequences, self.done, self.total))

    def _put_away(
        self, canvas: Canvas, alpha: Tensor, sequences: Tensor, possible: Tensor
    ) -> tuple[Canvas, Tensor, Tensor]:
        """Set finished and impossible sequences aside; what remains goes on."""
        over = (canvas.num_masks == 0) & ((alpha >= 1) | (canvas.num_open == 0)) | ~possible
        if not bool(over.any()):
            return canvas, alpha, sequences
        self.possible[sequences[~possible].cpu()] = False
        self.finished.append((sequences[over], canvas[over]))
        self.done += int(over.sum())
        return canvas[~over], alpha[~over], sequences[~over]

    @staticmethod
    def _check_progress(before: Canvas, alpha: Tensor, after: Canvas, clock: Tensor) -> None:
        if not bool(((clock >= alpha) & (clock <= 1)).all()):
            raise RuntimeError("the sampler turned the clock back or beyond 1: alpha must go from 0 up to 1")
        stuck = (clock <= alpha) & (after.lengths == before.lengths) & (after.num_masks == before.num_masks)
        if bool(stuck.any()):
            raise RuntimeError(
                f"the sampler made no progress on {int(stuck.sum())} sequences: a step must advance alpha or reveal"
            )

    def result(self) -> Generation:
        if not self.finished:
            return Generation([], [], [], [], [], [] if self.recorder is not None else None)
        sequences = torch.cat([s for s, _ in self.finished])
        canvas = Canvas.cat([c for _, c in self.finished])[torch.argsort(sequences)]
        full = torch.zeros_like(canvas.lengths, dtype=torch.bool)
        if canvas.max_length is not None:
            full = (canvas.lengths >= canvas.max_length) & (canvas.num_open > 0)
        return Generation(
            sequences=canvas.tokens.keep(~canvas.is_mask).tolist(),
            evaluations=self.evaluations.tolist(),
            hit_max_length=full.tolist(),
            possible=self.possible.tolist(),
            given=canvas.given.keep(~canvas.is_mask).tolist(),
            trace=None if self.recorder is None else self.recorder.events(self.total),
        )
