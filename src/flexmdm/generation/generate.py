"""From prompts to sequences: `stream` yields them as they finish, `generate` returns them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from flexmdm.canvas import Canvas, Prompt
from flexmdm.denoiser import Denoiser
from flexmdm.generation.decoding import Decoding
from flexmdm.generation.defaults import DEFAULTS, STEPS, steps_for
from flexmdm.generation.likeliest import LikeliestSampler
from flexmdm.generation.loop import Loop, Progress, Room, Sample
from flexmdm.generation.policies import Policy
from flexmdm.generation.published import DilatedSampler, EntropyBoundedSampler
from flexmdm.generation.samplers import AdaptiveSampler, Grid, LowConfidenceSampler, Sampler, TauSampler
from flexmdm.generation.spaced import SpacedSampler
from flexmdm.generation.trace import Event
from flexmdm.generation.turns import TurnsSampler
from flexmdm.interpolants import FlexMDMInterpolant
from flexmdm.precision import float64_device

SAMPLERS: dict[str, type[TauSampler | AdaptiveSampler | TurnsSampler | LikeliestSampler | LowConfidenceSampler]] = {
    "tau": TauSampler,
    "adaptive": AdaptiveSampler,
    "spaced": SpacedSampler,
    "entropy_bounded": EntropyBoundedSampler,
    "dilated": DilatedSampler,
    "likeliest": LikeliestSampler,
    "low_confidence": LowConfidenceSampler,
}


@dataclass(frozen=True, eq=False)
class Generation:
    """Hold what `generate` returns: one entry per sample, the samples of the first prompt first.

    Attributes:
        sequences, evaluations, hit_max_length, possible, given, trace: of each `Sample`; no trace unless asked for.
    """

    sequences: list[list[int]]
    evaluations: list[int]
    hit_max_length: list[bool]
    possible: list[bool]
    given: list[list[bool]]
    trace: list[list[Event]] | None = None


def generate(
    denoiser: Denoiser,
    num_samples: int = 1,
    *,
    prompts: Sequence[Prompt] | None = None,
    canvas: Canvas | None = None,
    alpha: Tensor | float = 0.0,
    sampler: str | Sampler = DEFAULTS["writing"].inserting,
    quality: str | None = None,
    steps: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    confidence: str | Policy | None = None,
    window: tuple[float, int] | None = None,
    spacing: float | None = None,
    block: int | None = None,
    bound: float | None = None,
    max_length: int | None = None,
    interpolant: FlexMDMInterpolant | None = None,
    seed: int = 0,
    first_sequence: int | Sequence[int] = 0,
    batch_size: int | None = None,
    tokens_in_flight: int | None = None,
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
        sampler: ``"tau"``, ``"adaptive"``, ``"spaced"``, ``"entropy_bounded"``, ``"dilated"``, ``"likeliest"``,
            ``"low_confidence"``, or a `Sampler` of your own.
        quality: ``"fast"``, ``"balanced"`` or ``"exact"``: 8, 32 or 128 steps.
        steps: the grid that the clock must not step past; default 64. Wins over ``quality``.
        temperature, top_k, top_p: how tokens are drawn; temperature 0 takes the most probable.
        confidence: which masks are revealed first: ``"random"``, ``"top_prob"``, ``"margin"``, ``"entropy"``,
            ``"left_to_right"`` or a function (adaptive, spaced, entropy_bounded, dilated).
        window: (gamma1, gamma2), the sliding window (adaptive).
        spacing: how far apart events of one step must be (spaced).
        block: block length (low_confidence).
        bound: how far the summed entropy of what is revealed together may exceed the largest, in nats
            (entropy_bounded).
        max_length: never exceeded; insertions beyond it are left out and generation goes on.
        interpolant: the schedules; default: those the denoiser was trained with, else linear.
        seed: same seed, same sequences, alone or in any company. Random numbers belong to a sequence by its number,
            which counts the samples of the first prompt, then those of the second, and so on.
        first_sequence: the number of the first sequence, for samples that are drawn in several parts or processes; or
            that of the first sequence of each prompt.
        batch_size: how many sequences are under way at most; as one finishes, the next one begins. Default: all.
        tokens_in_flight: how many tokens they have at most (and one more for each sequence), which bounds the memory
            that a network takes: when they have grown beyond it, the last ones wait as they are. Default: any number.
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
    samples = sorted(stream(**locals()), key=lambda sample: sample.number)
    return Generation(
        sequences=[sample.sequence for sample in samples],
        evaluations=[sample.evaluations for sample in samples],
        hit_max_length=[sample.hit_max_length for sample in samples],
        possible=[sample.possible for sample in samples],
        given=[sample.given for sample in samples],
        trace=[sample.trace or [] for sample in samples] if trace else None,
    )


def stream(
    denoiser: Denoiser,
    num_samples: int = 1,
    *,
    prompts: Sequence[Prompt] | None = None,
    canvas: Canvas | None = None,
    alpha: Tensor | float = 0.0,
    sampler: str | Sampler = DEFAULTS["writing"].inserting,
    quality: str | None = None,
    steps: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    confidence: str | Policy | None = None,
    window: tuple[float, int] | None = None,
    spacing: float | None = None,
    block: int | None = None,
    bound: float | None = None,
    max_length: int | None = None,
    interpolant: FlexMDMInterpolant | None = None,
    seed: int = 0,
    first_sequence: int | Sequence[int] = 0,
    batch_size: int | None = None,
    tokens_in_flight: int | None = None,
    trace: bool = False,
    callback: Callable[[Progress], None] | None = None,
    device: torch.device | str | None = None,
) -> Iterator[Sample]:
    """Return an iterator over the samples of `generate`, with the same arguments: each one comes as it finishes.

    >>> from flexmdm import FiniteDistribution
    >>> denoiser = FiniteDistribution({(0, 1): 1.0}, vocab_size=2).denoiser()
    >>> prompts = [Prompt.masks(2), Prompt((0, None), (False,) * 3)]
    >>> [(one.number, one.sequence) for one in stream(denoiser, prompts=prompts, sampler="low_confidence", steps=2)]
    [(1, [0, 1]), (0, [0, 1])]
    """
    if num_samples < 0:
        raise ValueError(f"num_samples must not be negative, got {num_samples}")
    if not isinstance(denoiser, Denoiser):
        raise TypeError(
            f"generate needs a denoiser, got {type(denoiser).__name__}; a source has one: source.denoiser()"
        )
    if isinstance(prompts, Prompt) or any(not isinstance(prompt, Prompt) for prompt in prompts or []):
        raise TypeError("prompts must be a list of Prompt, such as [Prompt.prefix([7, 8])]")
    own = {"confidence": confidence, "window": window, "spacing": spacing, "block": block, "bound": bound}
    sampler = sampler_of(denoiser, sampler, quality, steps, temperature, top_k, top_p, interpolant, **own)
    room = Room(batch_size, tokens_in_flight)
    start, clock = _start(denoiser, prompts, canvas, alpha, max_length, device)
    _check_start(start, denoiser)
    if not isinstance(first_sequence, int) and len(first_sequence) != len(start):
        raise ValueError(
            f"first_sequence has {len(first_sequence)} numbers for {len(start)} prompts: give one for each"
        )
    if trace:
        start = replace(start, ids=start.tokens.with_values(start.tokens.columns))
    return Loop(denoiser, sampler, seed, first_sequence, room, trace, callback).run(start, clock, num_samples)


def sampler_of(
    denoiser: Denoiser,
    sampler: str | Sampler = DEFAULTS["writing"].inserting,
    quality: str | None = None,
    steps: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    interpolant: FlexMDMInterpolant | None = None,
    **options: Any,
) -> Sampler:
    """Return the sampler that these options of `generate` make; an object must come without any."""
    if isinstance(sampler, str):
        interpolant = interpolant or getattr(denoiser, "interpolant", None) or FlexMDMInterpolant()
        usual = STEPS if quality is None else steps_for(quality)
        grid = Grid(usual if steps is None else steps, interpolant)
        return sampler_named(sampler, grid, Decoding(temperature, top_k, top_p), **options)
    if isinstance(sampler, type) or not hasattr(sampler, "step"):
        raise TypeError("sampler must be a name or an object with a step method (an instance, not its class)")
    others = [quality, steps, top_k, top_p, interpolant, *options.values()]
    if temperature != 1.0 or any(one is not None for one in others):
        raise ValueError("a sampler object brings its own settings: leave steps, temperature, interpolant ... to it")
    return sampler


def sampler_named(name: str, grid: Grid, decoding: Decoding | None = None, **options: object) -> Sampler:
    """Return a sampler by its name; options that are ``None`` keep their defaults, unknown ones are an error."""
    if name not in SAMPLERS:
        raise ValueError(f"unknown sampler {name!r}; the known ones are {', '.join(SAMPLERS)}")
    sampler_class = SAMPLERS[name]
    chosen: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    unknown = sorted(set(chosen) - {f.name for f in fields(sampler_class)})
    if unknown:
        raise ValueError(f"sampler {name!r} has no {', '.join(unknown)}; leave it out or take another sampler")
    return sampler_class(grid, decoding or Decoding(), **chosen)


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
    return replace(canvas, max_length=canvas.max_length if max_length is None else max_length), clock


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
