"""The training loss, and the exact likelihood."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flexmdm.alignment import Alignment, align
from flexmdm.canvas import Canvas, Role, Template, runs_of_masks
from flexmdm.denoiser import Denoiser, Prediction, predict
from flexmdm.interpolants import FlexMDMInterpolant, InterpolantSample, assemble
from flexmdm.precision import float64_device
from flexmdm.quadrature import gauss_legendre
from flexmdm.randomness import stream, uniform
from flexmdm.sequences import Ragged

_LARGEST_ENUMERATION = 3**11
_LARGEST_TABLE = 20_000_000
_CHUNK = 8192  # states evaluated at a time by the likelihood


@dataclass(frozen=True, eq=False)
class Loss:
    """The two terms of the objective at the sampled times, ``[B]`` each, hazards included."""

    unmasking: Tensor
    insertion: Tensor

    @property
    def total(self) -> Tensor:
        return self.unmasking + self.insertion


def flexmdm_loss(
    prediction: Prediction,
    sample: InterpolantSample,
    interpolant: FlexMDMInterpolant,
    alignment: Alignment | None = None,
) -> Loss:
    """Return the integrand of FlexMDM's loss for every sampled state.

    beta'/(1-beta) sum_{masks} -log f[i, x1[s_t[i]]]  +  alpha'/(1-alpha) sum_{open gaps} phi(gap_i, g_i),
    phi(x, y) = y - x log y. With an ``alignment`` the targets are marginalised over the embeddings: the token posterior
    Q and the expected gaps G instead of the one draw of s_t; the expected gradient is the same, its noise smaller.
    For MDM (all tokens present) the second term is 0 and the first is MDM's loss.

    Average over sequences with the weights of `sample_times` for an unbiased estimate of the integral.

    >>> from flexmdm.oracle import FiniteDistribution
    >>> source = FiniteDistribution({(0,): 0.5, (0, 1): 0.5}, vocab_size=2)
    >>> interpolant = FlexMDMInterpolant()
    >>> s = interpolant.sample(source.sample(4), 0.5, mask_id=2)
    >>> loss = flexmdm_loss(source.denoiser()(s.canvas, s.alpha), s, interpolant, align(s.canvas, s.x1))
    >>> loss.total.shape
    torch.Size([4])
    """
    canvas, masks = sample.canvas, sample.canvas.masks
    log_f = prediction.log_probs
    if alignment is None:
        surprise = -_at_least_float(log_f.gather(1, sample.targets.values[masks, None])).squeeze(1)  # [M]
        missing = sample.gaps.values
    else:
        surprise = -_weighted(log_f, alignment).sum(1)
        missing = alignment.gaps.values
    g = _at_least_float(prediction.insertions.values)
    divergence = _bregman(missing.to(g), g)
    divergence = torch.where(canvas.open_gaps.values, divergence, 0.0)
    unmasking = canvas.tokens.lengths.new_zeros(len(canvas), dtype=surprise.dtype)
    unmasking = unmasking.index_add(0, canvas.tokens.rows[masks], surprise)
    insertion = canvas.open_gaps.sum(divergence)
    return Loss(
        _times_hazard(interpolant.unmasking.hazard(sample.t), unmasking),
        _times_hazard(interpolant.insertion.hazard(sample.t), insertion),
    )


def _bregman(missing: Tensor, g: Tensor) -> Tensor:
    """Return phi(x, y) = y - x log y, with phi(0, 0) = 0 and finite gradients."""
    return g - missing * g.clamp(min=torch.finfo(g.dtype).tiny).log()


def _at_least_float(x: Tensor) -> Tensor:
    """Return ``x`` in single precision if it is in half, which is too little for sums over hundreds of tokens."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _times_hazard(hazard: Tensor, value: Tensor) -> Tensor:
    """Return hazard * value, and 0 where the value is 0: the hazard is infinite at t = 1, where nothing is left."""
    return torch.where(value == 0, 0.0, hazard.to(value)) * value


def _weighted(table: Tensor, alignment: Alignment) -> Tensor:
    """Return weight * table[candidate], ``[M, W]``, and 0 where the weight is 0 even if the table is -inf there."""
    values = _at_least_float(table.gather(1, alignment.candidates))
    weights = alignment.weights.to(values)
    return weights * values.masked_fill(weights == 0, 0.0)


@dataclass(frozen=True, eq=False)
class Likelihood:
    """-log p(x1) in nats.

    Attributes:
        nats: ``[B]``.
        standard_error: ``[B]``; 0 when enumerated.
    """

    nats: Tensor
    standard_error: Tensor


@torch.no_grad()
def likelihood(
    denoiser: Denoiser,
    x1: Ragged | Sequence[Sequence[int]],
    interpolant: FlexMDMInterpolant | None = None,
    num_times: int = 64,
    exact: bool = False,
    seed: int = 0,
    template: Template | None = None,
    paired: bool = False,
) -> Likelihood:
    """Return an upper bound on -log p_theta(x1) of the continuous-time chain, exact when the denoiser is.

    NLL(x1) = int E_{x_t|x1}[ beta'/(1-beta) sum_{masks} KL(Q_i || f_i)
                              + alpha'/(1-alpha) sum_{runs} (g - G + G log(G/g)) ] dt

    with Q and G marginalised over the embeddings of x_t in x1, and g and G summed over each run of free masks, where an
    insertion anywhere leads to the same state. With a template it bounds -log p(x1, placement | template); with a
    template of present tokens only it is MDM's likelihood. A sequence with a state that the denoiser calls impossible
    has infinite nats. Where g does not vanish with 1 - alpha although nothing is missing, the integral diverges like
    log(1 / (1 - alpha)); the sum over ``num_times`` times then cuts it off, and grows with their number.

    Args:
        denoiser: f and g.
        x1: clean sequences, ragged or as lists.
        interpolant: its schedules; default: those of the denoiser, else linear. They do not change the value of an
            exact denoiser, only the noise.
        num_times: times per sequence (nodes of the quadrature if ``exact``).
        exact: enumerate all states of each (short) sequence instead of sampling them.
        seed: of the sampled states.
        template: roles of the tokens; default: all free.
        paired: sample all sequences with the same random numbers, so that their differences are less noisy: for ranks.

    >>> from flexmdm.oracle import FiniteDistribution
    >>> source = FiniteDistribution({(0,): 0.25, (0, 1, 0): 0.75}, vocab_size=2)
    >>> likelihood(source.denoiser(), [[0], [0, 1, 0]], exact=True).nats.neg().exp()
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    if not isinstance(x1, Ragged):
        x1 = Ragged.from_lists(x1)
    interpolant = interpolant or getattr(denoiser, "interpolant", None) or FlexMDMInterpolant()
    template = Template.free(x1) if template is None else template
    device = float64_device(getattr(denoiser, "device", None) or x1.device)
    x1, template = x1.to(device), template.to(device)
    interpolant.check(x1, template, denoiser.mask_id)
    if bool(((x1.values < 0) | (x1.values >= denoiser.vocab_size)).any()):
        raise ValueError(f"x1 has tokens outside the vocabulary 0..{denoiser.vocab_size - 1}")
    if num_times < 1:
        raise ValueError(f"num_times must be at least 1, got {num_times}")
    if not len(x1):
        return Likelihood(*torch.zeros(2, 0, dtype=torch.float64, device=x1.device))
    if exact:
        nats = [_enumerated(denoiser, x1[b], template[b], interpolant, num_times) for b in range(len(x1))]
        return Likelihood(torch.stack(nats), torch.zeros(len(x1), dtype=torch.float64, device=x1.device))
    return _monte_carlo(denoiser, x1, template, interpolant, num_times, seed, paired)


def _monte_carlo(
    denoiser: Denoiser,
    x1: Ragged,
    template: Template,
    interpolant: FlexMDMInterpolant,
    num_times: int,
    seed: int,
    paired: bool,
) -> Likelihood:
    sequence = torch.arange(len(x1), device=x1.device).repeat_interleave(num_times)
    stratum = torch.arange(num_times, device=x1.device).repeat(len(x1))
    name = stratum if paired else sequence * num_times + stratum
    u = (stratum + uniform(seed, stream("likelihood"), name, device=x1.device)) / num_times
    t, weight = 1 - (1 - u) ** 2, 2 * (1 - u)
    terms = []
    for start in range(0, len(sequence), _CHUNK):
        part = slice(start, start + _CHUNK)
        clean, roles = x1[sequence[part]], template[sequence[part]]
        s = interpolant.sample(clean, t[part], roles, seed, denoiser.mask_id, sequences=name[part])
        terms.append(weight[part] * _terms(denoiser, s.canvas, clean, roles, s.t, interpolant))
    terms = torch.cat(terms).view(len(x1), num_times)
    # Stratified times only lower the true error, so this one is conservative.
    error = terms.std(1) / math.sqrt(num_times) if num_times > 1 else torch.full_like(terms[:, 0], math.inf)
    return Likelihood(terms.mean(1), error)


def _divergence(
    prediction: Prediction, alignment: Alignment, canvas: Canvas, t: Tensor, interpolant: FlexMDMInterpolant
) -> Tensor:
    """Return the integrand of the likelihood, ``[B]``."""
    masks = canvas.masks
    log_f = prediction.log_probs
    kl = torch.zeros(len(masks), dtype=torch.float64, device=canvas.device)
    chunk = max(1, _LARGEST_TABLE // log_f.shape[1])
    for start in range(0, len(masks), chunk):  # [K, V] at a time
        part = slice(start, start + chunk)
        some = Alignment(alignment.weights[part], alignment.candidates[part], alignment.gaps, alignment.log_count)
        log_q = some.token_posterior(log_f.shape[1]).log()
        kl[part] = (_weighted(log_q, some) - _weighted(log_f[part].double(), some)).sum(1)
    unmasking = torch.zeros(len(canvas), dtype=torch.float64, device=canvas.device)
    unmasking.index_add_(0, canvas.tokens.rows[masks], kl)

    runs, rows = runs_of_masks(canvas)
    open_gaps = canvas.open_gaps.values
    total = torch.zeros(len(rows), dtype=torch.float64, device=canvas.device)
    g = total.index_add(0, runs, torch.where(open_gaps, prediction.insertions.values.double(), 0.0))
    missing = total.index_add(0, runs, torch.where(open_gaps, alignment.gaps.values, 0.0)).clamp(min=0)
    ratio = torch.where(missing > 0, missing / g, 1.0)
    divergence = g - missing + missing * ratio.log()
    insertion = torch.zeros_like(unmasking).index_add(0, rows, divergence)
    return _times_hazard(interpolant.unmasking.hazard(t), unmasking) + _times_hazard(
        interpolant.insertion.hazard(t), insertion
    )


def _enumerated(
    denoiser: Denoiser, x1: Ragged, template: Template, interpolant: FlexMDMInterpolant, nodes: int
) -> Tensor:
    """Return the likelihood of one sequence by summing over all its states at every node of a quadrature in time."""
    roles = template.roles.values.tolist()
    first = [{Role.FREE: 0, Role.PRESENT: 1, Role.FIXED: 2}[Role(r)] for r in roles]  # 0 empty, 1 mask, 2 clean
    total = math.prod(3 - f for f in first)
    if total > _LARGEST_ENUMERATION:
        raise ValueError(
            f"a sequence with {total:.2g} states is too long to enumerate (at most {_LARGEST_ENUMERATION}): "
            "use exact=False"
        )
    digits = torch.cartesian_prod(*[torch.arange(f, 3) for f in first]) if first else torch.zeros(1, 0).long()
    digits = digits.view(total, len(roles)).to(x1.device)
    again = torch.zeros(total, dtype=torch.int64, device=x1.device)
    flat = digits.flatten()
    canvas, _ = assemble(x1[again], template[again], flat > 0, flat == 2, denoiser.mask_id)
    states, which = canvas.distinct()

    u, weight = gauss_legendre(nodes, device=x1.device)  # t = 1 - (1 - u^2)^2 is gentle at both ends
    times, weight = 1 - (1 - u**2) ** 2, weight * 4 * u * (1 - u**2)
    probability = _state_probabilities(digits, template.roles.values, times, interpolant)  # [T, K]
    probability = torch.zeros(nodes, len(states), dtype=torch.float64, device=x1.device).index_add(
        1, which, probability
    )
    mass = (weight[:, None] * probability).flatten()
    happens = mass.nonzero().squeeze(1)
    result = torch.zeros((), dtype=torch.float64, device=x1.device)
    for some in happens.split(_CHUNK):
        node, state = some // len(states), some % len(states)
        terms = _terms(denoiser, states[state], x1[again[state]], template[again[state]], times[node], interpolant)
        result = result + (mass[some] * terms).sum()
    return result


def _terms(
    denoiser: Denoiser, canvas: Canvas, x1: Ragged, template: Template, t: Tensor, interpolant: FlexMDMInterpolant
) -> Tensor:
    """Return the integrand of the likelihood at the given states and times, ``[B]``."""
    prediction, possible = predict(denoiser, canvas, interpolant.insertion.value(t))
    divergence = _divergence(prediction, align(canvas, x1, template), canvas, t, interpolant)
    return torch.where(possible, divergence, math.inf)


def _state_probabilities(digits: Tensor, roles: Tensor, t: Tensor, interpolant: FlexMDMInterpolant) -> Tensor:
    """Return ``[T, K]``, the probability at each time of each combination of empty (0), mask (1), clean (2) tokens."""
    beta = interpolant.unmasking.value(t)
    one, zero = torch.ones_like(beta), torch.zeros_like(beta)
    table = torch.stack(  # [role, state, T]
        [
            torch.stack(interpolant.state_probabilities(t)),
            torch.stack([zero, 1 - beta, beta]),
            torch.stack([zero, zero, one]),
        ]
    )
    return table[roles.long().expand_as(digits), digits].prod(1).T
