"""The loss and the likelihood, against exact enumeration of a small distribution with repeated letters."""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product

import pytest
import torch

from flexmdm import (
    CosineSchedule,
    FiniteDistribution,
    FlexMDMInterpolant,
    HiddenMarkovSource,
    LinearSchedule,
    PolynomialSchedule,
    Prediction,
    Prompt,
    Ragged,
    Role,
    SineSchedule,
    Template,
    align,
    flexmdm_loss,
    likelihood,
)
from flexmdm.interpolants import InterpolantSample, assemble
from flexmdm.quadrature import gauss_legendre
from flexmdm.randomness import uniform
from flexmdm.rates import reachable, solve

NINE_WORDS = {
    "": 0.05, "a": 0.1, "ab": 0.12, "ba": 0.08, "cc": 0.1, "aab": 0.13, "bcb": 0.12, "abcab": 0.15, "cabba": 0.15,
}  # fmt: skip
SOURCE = FiniteDistribution({tuple("abc".index(c) for c in word): p for word, p in NINE_WORDS.items()}, vocab_size=3)
ORACLE = SOURCE.denoiser()
MASK = ORACLE.mask_id
A, B, C = range(3)
LOG_P = SOURCE.log_prob(SOURCE.sequences)  # [9]

SCHEDULES = {
    "linear": FlexMDMInterpolant(),
    "cosine-linear": FlexMDMInterpolant(CosineSchedule(), LinearSchedule()),
    "polynomial-sine": FlexMDMInterpolant(PolynomialSchedule(2.0), SineSchedule()),
    "sine-cosine": FlexMDMInterpolant(SineSchedule(), CosineSchedule()),
}
schedules = pytest.mark.parametrize("interpolant", SCHEDULES.values(), ids=SCHEDULES)
two_schedules = pytest.mark.parametrize(
    "interpolant", [SCHEDULES["linear"], SCHEDULES["polynomial-sine"]], ids=["linear", "polynomial-sine"]
)


@dataclass(frozen=True)
class Perturbed:
    """A wrong denoiser: log f and log g of a right one plus noise that depends on the state, the place and the clock.

    What was 0 stays 0, so the chain keeps to the states of the right one.
    """

    scale: float
    seed: int
    vocab_size: int = 3
    mask_id: int = MASK

    def __call__(self, canvas, alpha):
        exact = ORACLE(canvas, alpha)
        tokens, gaps, masks = canvas.tokens, canvas.open_gaps, canvas.masks
        state = tokens.sum((tokens.values + 1) * 5**tokens.columns)  # [B], a different number for every state
        size = self.scale * (1 - alpha / 2)

        rows, columns = tokens.rows[masks], tokens.columns[masks]
        noise = 2 * uniform(self.seed, state[rows, None], columns[:, None], torch.arange(3)) - 1
        log_f = (exact.log_probs + size[rows, None] * noise).log_softmax(1)
        noise = 2 * uniform(self.seed, state[gaps.rows], gaps.columns, -1) - 1
        return Prediction(log_f, gaps.with_values(exact.insertions.values * torch.exp(size[gaps.rows] * noise)))


PERTURBATIONS = [Perturbed(0.2, 0), Perturbed(0.7, 1), Perturbed(1.5, 2)]


class Enumeration:
    """Every (x1, x_t, s_t) of the nine words: each token not there (0), a mask (1) or clean (2)."""

    def __init__(self):
        which, digits = zip(
            *[(w, d) for w, word in enumerate(SOURCE.words) for d in product(range(3), repeat=len(word))], strict=True
        )
        self.word = torch.tensor(which)  # [P]
        self.digits = Ragged.from_lists(digits)
        self.x1 = SOURCE.sequences[self.word]
        self.template = Template.free(self.x1)
        self.canvas, self.kept = assemble(self.x1, self.template, self.digits.values > 0, self.digits.values == 2, MASK)
        edges = [[-1, *kept, n] for kept, n in zip(self.kept.tolist(), self.x1.lengths.tolist(), strict=True)]
        self.gaps = Ragged.from_lists([[b - a - 1 for a, b in zip(e[:-1], e[1:], strict=True)] for e in edges])
        self.targets = self.kept.with_values(self.x1.values[self.digits.values > 0])
        self.alignment = align(self.canvas, self.x1)

    def sample(self, interpolant, t):
        time = torch.full((len(self.x1),), t, dtype=torch.float64)
        alpha = interpolant.insertion.value(time)
        return InterpolantSample(self.canvas, alpha, time, self.targets, self.gaps, self.kept, self.x1, self.template)

    def given_word(self, interpolant, t):
        """``[P]``: P(x_t, s_t | x1)."""
        log = torch.stack(interpolant.state_probabilities(t)).log()
        return self.digits.sum(log[self.digits.values]).exp()

    def probability(self, interpolant, t):
        """``[P]``: P(x1, x_t, s_t)."""
        return SOURCE.probabilities[self.word] * self.given_word(interpolant, t)


ALL = Enumeration()


def quadrature(nodes=24):
    """Times and weights of an integral over t, dense at t = 1."""
    u, weight = gauss_legendre(nodes)
    return zip((1 - (1 - u) ** 2).tolist(), (2 * (1 - u) * weight).tolist(), strict=True)


@lru_cache
def exact_loss(denoiser, interpolant):
    """The objective: the expectation of `flexmdm_loss` over all states, integrated over t."""
    total = 0.0
    for t, weight in quadrature():
        s = ALL.sample(interpolant, t)
        loss = flexmdm_loss(denoiser(s.canvas, s.alpha), s, interpolant).total
        total += weight * float((ALL.probability(interpolant, t) * loss).sum())
    return total


@lru_cache
def exact_nats(denoiser, interpolant):
    """The likelihood's bound for the nine words, by enumeration."""
    return likelihood(denoiser, SOURCE.sequences, interpolant, num_times=24, exact=True).nats


@lru_cache
def exact_log_law(denoiser, interpolant):
    """log p_1^theta of the nine words, from the forward equation."""
    space = reachable(ORACLE)
    law = dict(zip(map(tuple, space.states.tokens.tolist()), solve(space, denoiser, interpolant).log(), strict=True))
    return torch.stack([law[word] for word in SOURCE.words])


# The bound ------------------------------------------------------------------------------------------------------------


WRONG = [
    pytest.param(denoiser, SCHEDULES[name], id=f"{denoiser.scale}-{name}")
    for denoiser, name in [*product(PERTURBATIONS, ["linear"]), (PERTURBATIONS[1], "polynomial-sine")]
]


@pytest.mark.parametrize(("denoiser", "interpolant"), WRONG)
def test_the_loss_bounds_the_divergence_of_the_sampled_law(denoiser, interpolant):
    """KL(p1 || p1^theta) <= E[likelihood] - H(p1) <= L - L*: the likelihood is the tighter of the two bounds."""
    excess = exact_loss(denoiser, interpolant) - exact_loss(ORACLE, interpolant)
    tighter = float((SOURCE.probabilities * (exact_nats(denoiser, interpolant) + LOG_P)).sum())
    divergence = float((SOURCE.probabilities * (LOG_P - exact_log_law(denoiser, interpolant))).sum())
    print(f"KL {divergence:.5f} <= likelihood {tighter:.5f} <= L - L* {excess:.5f}")
    assert 1e-3 < divergence < tighter - 1e-3 < tighter < excess - 1e-4


@pytest.mark.parametrize(("denoiser", "interpolant"), WRONG)
def test_the_likelihood_of_a_wrong_denoiser_is_never_below_the_truth(denoiser, interpolant):
    slack = exact_nats(denoiser, interpolant) + exact_log_law(denoiser, interpolant)
    print(f"slack from {float(slack.min()):.5f} to {float(slack.max()):.5f}")
    assert float(slack.min()) >= -1e-4
    assert float(slack.max()) > 1e-2


# The minimum ----------------------------------------------------------------------------------------------------------


def table_of(denoiser, states, alpha):
    """f as logits and log g of every state: free parameters, ``[M, V]`` and ``[N + K]``."""
    p = denoiser(states, torch.full((len(states),), alpha, dtype=torch.float64))
    return p.log_probs.requires_grad_(), p.insertions.values.log().requires_grad_()


def predictions(states, which, logits, log_g):
    """What the table says of the states ``which`` ``[P]``."""
    rows = Ragged(logits, states.num_masks)[which].values
    return Prediction(rows.log_softmax(1), states.open_gaps.with_values(log_g.exp())[which])


@schedules
@pytest.mark.parametrize("t", [0.1, 0.5, 0.9])
def test_the_gradient_vanishes_at_the_oracle_and_only_there(interpolant, t):
    s, probability = ALL.sample(interpolant, t), ALL.probability(interpolant, t)
    states, which = s.canvas.distinct()
    for alignment in (None, ALL.alignment):
        for denoiser in (ORACLE, *PERTURBATIONS):
            table = table_of(denoiser, states, float(s.alpha[0]))
            loss = flexmdm_loss(predictions(states, which, *table), s, interpolant, alignment).total
            gradients = torch.autograd.grad((probability * loss).sum(), table)
            norms = [float(gradient.norm()) for gradient in gradients]
            print(f"norms of the gradients of f and g: {norms}")
            if denoiser is ORACLE:
                assert max(norms) <= 1e-8
            else:
                assert min(norms) > 1e-3


def gradient_moments(denoiser, interpolant, t, alignment):
    """The exact mean and total variance of one draw's gradient with respect to the table of a denoiser."""
    s, probability = ALL.sample(interpolant, t), ALL.probability(interpolant, t)
    states, which = s.canvas.distinct()
    sizes = (states.num_masks, states.lengths + 1)
    # Every (x1, x_t, s_t) gets its own copy of its table entries, so that one pass gives the gradients of all apart.
    tables = table_of(denoiser, states, float(s.alpha[0]))
    copies = [Ragged(table.detach(), size)[which] for table, size in zip(tables, sizes, strict=True)]
    logits, log_g = (copy.values.requires_grad_() for copy in copies)
    prediction = Prediction(logits.log_softmax(1), copies[1].with_values(log_g.exp()))
    loss = flexmdm_loss(prediction, s, interpolant, alignment).total
    means, second = [], 0.0
    for gradient, copy, size in zip(torch.autograd.grad(loss.sum(), (logits, log_g)), copies, sizes, strict=True):
        entry = Ragged(torch.arange(int(size.sum())), size)[which].values  # where in the table a copy comes from
        gradient, weight = gradient.reshape(len(entry), -1), probability[copy.rows, None]
        mean = gradient.new_zeros(int(size.sum()), gradient.shape[1]).index_add(0, entry, weight * gradient)
        means.append(mean.flatten())
        second += float((weight * gradient**2).sum())
    mean = torch.cat(means)
    return mean, second - float(mean.square().sum())


@schedules
@pytest.mark.parametrize("t", [0.1, 0.5, 0.9])
def test_marginalised_targets_have_the_same_expected_gradient_and_less_noise(interpolant, t):
    sampled, noise = gradient_moments(PERTURBATIONS[1], interpolant, t, None)
    marginalised, less_noise = gradient_moments(PERTURBATIONS[1], interpolant, t, ALL.alignment)
    print(f"variance of marginalised over sampled targets {less_noise / noise:.3f}")
    assert float(sampled.norm()) > 0.01
    assert float((sampled - marginalised).abs().max()) <= 1e-12
    assert 0 < less_noise < 0.9 * noise


# The likelihood -------------------------------------------------------------------------------------------------------


@schedules
def test_the_likelihood_of_the_oracle_is_exact(interpolant):
    result = likelihood(ORACLE, SOURCE.sequences, interpolant, num_times=32, exact=True)
    error = float((result.nats + LOG_P).abs().max())
    print(f"largest error {error:.1e}")
    assert error <= 1e-4  # 32 nodes; 4e-6 and less as it is
    assert result.standard_error.tolist() == [0.0] * 9


@pytest.mark.parametrize("insertion", [LinearSchedule(), SineSchedule()], ids=["linear", "sine"])
@pytest.mark.parametrize("unmasking", [LinearSchedule(), SineSchedule()], ids=["linear", "sine"])
def test_more_nodes_do_not_hurt(insertion, unmasking):
    interpolant = FlexMDMInterpolant(insertion, unmasking)
    nats = likelihood(ORACLE, SOURCE.sequences[2], interpolant, num_times=200, exact=True).nats
    assert nats.tolist() == pytest.approx([-float(LOG_P[2])], abs=1e-6)


def test_a_schedule_that_starts_steeply_is_exact_too():
    interpolant = FlexMDMInterpolant(PolynomialSchedule(0.5), LinearSchedule())
    nats = likelihood(ORACLE, SOURCE.sequences[:3], interpolant, exact=True).nats
    assert float((nats + LOG_P[:3]).abs().max()) <= 1e-3


@two_schedules
def test_the_likelihood_of_an_mdm_is_that_given_the_length(interpolant):
    x1 = SOURCE.sequences
    lengths = SOURCE.length_distribution()[x1.lengths]
    nats = likelihood(ORACLE, x1, interpolant, num_times=16, exact=True, template=Template.masks(x1)).nats
    assert float((nats + LOG_P - lengths.log()).abs().max()) <= 5e-4  # 16 nodes


TEMPLATES = {
    "fixed-present-closed": Prompt((A, None), (True, False, True)),
    "present-open": Prompt((None, B), (False, True, True)),
    "two-fixed-open": Prompt((A, B), (True, True, True)),
    "one-present": Prompt((None,), (True, True)),
    "infill": Prompt.infill([[A], [B]]),
}


def placements(word, prompt):
    """All positions of the prompt's entries in a word: fixed tokens match, and nothing is missing in a closed gap."""
    for given in combinations(range(len(word)), len(prompt.tokens)):
        match = all(v is None or word[j] == v for j, v in zip(given, prompt.tokens, strict=True))
        missing = [right - left - 1 for left, right in zip((-1, *given), (*given, len(word)), strict=True)]
        if match and not any(n and not is_open for n, is_open in zip(missing, prompt.open_gaps, strict=True)):
            yield given


@pytest.mark.parametrize(
    ("prompt", "interpolant"),
    [
        pytest.param(prompt, SCHEDULES[schedule], id=f"{name}-{schedule}")
        for (name, prompt), schedule in product(TEMPLATES.items(), ["linear", "polynomial-sine"])
        if schedule == "linear" or name == "fixed-present-closed"
    ],
)
def test_with_a_template_it_is_the_likelihood_of_word_and_placement(prompt, interpolant):
    """p(x1, placement | template) = p(x1) / sum_x p(x) #{placements of the template in x}."""
    pairs = [(w, given) for w, word in enumerate(SOURCE.words) for given in placements(word, prompt)]
    words = torch.tensor([w for w, _ in pairs])
    x1 = SOURCE.sequences[words]
    roles = [[Role.FREE] * n for n in x1.lengths.tolist()]
    for row, (_, given) in zip(roles, pairs, strict=True):
        for j, v in zip(given, prompt.tokens, strict=True):
            row[j] = Role.PRESENT if v is None else Role.FIXED
    open_gaps = Ragged.from_lists([prompt.open_gaps] * len(pairs), dtype=torch.bool)
    template = Template.of_roles(Ragged.from_lists(roles), open_gaps)
    expected = SOURCE.probabilities[words] / SOURCE.probabilities[words].sum()  # one term for every placement
    nats = likelihood(ORACLE, x1, interpolant, num_times=16, exact=True, template=template).nats
    error = float((nats + expected.log()).abs().max())
    print(f"{len(pairs)} placements, largest error {error:.1e}")
    assert len(pairs) > 2
    assert error <= 5e-4  # 16 nodes


def test_the_bound_with_the_embedding_known_is_looser():
    """-log f at the one true token and phi at the one true gap, in place of their mixtures over the embeddings.

    What is lost is the entropy of which token came first, then of which in the gaps left and right of it, and so on:
    lost(n) = log n + 2/n sum_{k < n} lost(k), for every word of length n.
    """
    interpolant, known = FlexMDMInterpolant(), torch.zeros(9, dtype=torch.float64)
    gaps = ALL.gaps.values.double()
    least = ALL.gaps.sum(gaps - torch.xlogy(gaps, gaps))  # phi(gap, gap)
    for t, weight in quadrature():
        s = ALL.sample(interpolant, t)
        loss = flexmdm_loss(ORACLE(s.canvas, s.alpha), s, interpolant).total
        integrand = loss - least * interpolant.insertion.hazard(s.t)
        known.index_add_(0, ALL.word, weight * ALL.given_word(interpolant, t) * integrand)
    for word, bound, log_p in zip(NINE_WORDS, known.tolist(), LOG_P.tolist(), strict=True):
        print(f"{word!r}: {-log_p:.4f}, with the embedding known {bound:.4f}")
    lost = [0.0]
    for n in range(1, 6):
        lost.append(math.log(n) + 2 / n * sum(lost))
    expected = torch.tensor(lost, dtype=torch.float64)[SOURCE.sequences.lengths] - LOG_P
    assert float((known - expected).abs().max()) < 1e-4
    assert float(known[SOURCE.words.index((A, B, C, A, B))]) == pytest.approx(5.4134, abs=1e-4)  # against 1.8971


@dataclass(frozen=True)
class FirstOfRun(Perturbed):
    """The oracle, but all insertions of a run of masks go to its first gap."""

    def __call__(self, canvas, alpha):
        exact = ORACLE(canvas, alpha)
        g, gaps = exact.insertions.values.clone(), canvas.open_gaps
        behind_mask = torch.zeros_like(gaps.values)
        behind_mask[gaps.columns > 0] = canvas.is_mask
        for gap in behind_mask.nonzero().flatten().flip(0).tolist():
            g[gap - 1] += g[gap]
            g[gap] = 0.0
        return Prediction(exact.log_probs, gaps.with_values(g))


def test_insertions_are_summed_over_a_run_of_masks():
    """An insertion anywhere in a run leads to one state, so only the sum over the run can be wrong."""
    words = SOURCE.sequences[:7]
    nats = likelihood(FirstOfRun(0.0, 0), words, num_times=32, exact=True).nats
    assert float((nats + LOG_P[:7]).abs().max()) <= 1e-4


def test_schedules_default_to_those_of_the_denoiser():
    @dataclass(frozen=True)
    class Scheduled(Perturbed):
        interpolant: FlexMDMInterpolant = SCHEDULES["cosine-linear"]

    def nats(denoiser, *schedules):
        return likelihood(denoiser, SOURCE.sequences[3:5], *schedules, num_times=8, exact=True).nats

    linear, cosine = (nats(Perturbed(0.7, 1), SCHEDULES[name]) for name in ("linear", "cosine-linear"))
    assert torch.equal(nats(Perturbed(0.7, 1)), linear)
    assert torch.equal(nats(Scheduled(0.7, 1)), cosine)
    assert not torch.allclose(linear, cosine, atol=1e-4)


# Monte Carlo ----------------------------------------------------------------------------------------------------------


def test_the_sampled_likelihood_agrees_with_the_exact_one():
    """n = 256 and 4096 times per word, within 4 standard errors (0.25 and 0.06 on average)."""
    exact = exact_nats(ORACLE, SCHEDULES["linear"])
    few = likelihood(ORACLE, SOURCE.sequences, num_times=256, seed=1)
    many = likelihood(ORACLE, SOURCE.sequences, num_times=4096, seed=2)
    for estimate in (few, many):
        assert ((estimate.nats - exact).abs() < 4 * estimate.standard_error).all()
    ratio = float((few.standard_error / many.standard_error).log().mean().exp())
    print(f"standard error {many.standard_error.mean():.4f}; with 16 times fewer draws {ratio:.2f} times larger")
    assert 2.5 < ratio < 6  # 4 in the limit
    assert float(many.standard_error.mean()) < 0.1


def test_the_sampled_likelihood_of_a_wrong_denoiser_agrees_with_the_exact_one():
    """n = 512 times per word, within 4 standard errors."""
    exact = exact_nats(PERTURBATIONS[1], SCHEDULES["linear"])
    estimate = likelihood(PERTURBATIONS[1], SOURCE.sequences, num_times=512, seed=3)
    assert ((estimate.nats - exact).abs() < 4 * estimate.standard_error).all()


def test_the_sampled_likelihood_agrees_with_templates():
    """n = 1024 times per word; within 4 standard errors (0.1)."""
    x1 = SOURCE.sequences[6:]
    template = Template.of_roles(
        Ragged.from_lists([[2, 0, 1], [0, 1, 2, 0, 0], [2, 1, 0, 0, 2]]),
        Ragged.from_lists([[1, 1, 1], [1, 0, 1], [0, 0, 1, 1]], dtype=torch.bool),
    )
    exact = likelihood(ORACLE, x1, exact=True, template=template).nats
    estimate = likelihood(ORACLE, x1, num_times=1024, template=template)
    assert ((estimate.nats - exact).abs() <= 4 * estimate.standard_error + 1e-6).all()
    assert float(exact.max()) > 1


@two_schedules
def test_the_sampled_likelihood_of_a_hidden_markov_source(interpolant):
    """Six sequences of 15 to 30 tokens, n = 512 times each; within 4 standard errors of the forward algorithm."""
    source = HiddenMarkovSource(
        [0.6, 0.3, 0.1, 0.0],
        [[0.1, 0.6, 0.2, 0.06], [0.5, 0.1, 0.26, 0.1], [0.2, 0.2, 0.06, 0.5], [0.3, 0.3, 0.3, 0.06]],
        [0.04, 0.04, 0.04, 0.04],
        [0, 1, 2, 0],
        vocab_size=3,
    )
    x1 = source.sample(100, seed=3)
    x1 = x1[(x1.lengths >= 15) & (x1.lengths <= 30)][:6]
    assert len(x1) == 6
    truth = -source.log_prob(x1)
    few, many = (likelihood(source.denoiser(), x1, interpolant, num_times=n, seed=5) for n in (64, 512))
    z = (many.nats - truth) / many.standard_error
    print(f"nats {truth.tolist()}, standard errors {many.standard_error.tolist()}, deviations {z.tolist()}")
    assert float(z.abs().max()) < 4
    assert float(many.standard_error.mean()) < 0.6 * float(few.standard_error.mean())
    assert float((many.standard_error / truth).max()) < 0.1


def test_the_sampled_likelihood_depends_on_the_seed_alone():
    first, again, other = (likelihood(ORACLE, SOURCE.sequences, num_times=8, seed=seed).nats for seed in (4, 4, 5))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


# The loss, and its traps ----------------------------------------------------------------------------------------------


def made_of(sample, log_probs=None, insertions=None):
    """A prediction for a sample with gradients: uniform f and g = 0.3 by default."""
    masks, gaps = len(sample.canvas.masks), sample.canvas.open_gaps
    f = torch.full((masks, 3), -math.log(3.0)) if log_probs is None else log_probs
    g = torch.full((len(gaps.values),), 0.3) if insertions is None else insertions
    f, g = f.requires_grad_(), g.requires_grad_()
    return Prediction(f, gaps.with_values(g)), f, g


def alignments(sample):
    return None, align(sample.canvas, sample.x1, sample.template)


def test_nothing_missing_and_nothing_predicted_costs_nothing():
    x1 = Ragged.from_lists([[0, 1]])
    interpolant = FlexMDMInterpolant()
    everywhere = Ragged.from_lists([[True] * 3], dtype=torch.bool)
    s = interpolant.sample(x1, 0.5, Template.fixed(x1, torch.ones(2, dtype=torch.bool), everywhere), mask_id=MASK)
    for alignment in alignments(s):
        prediction, f, g = made_of(s, insertions=torch.zeros(3))
        loss = flexmdm_loss(prediction, s, interpolant, alignment)
        loss.total.sum().backward()
        assert loss.total.tolist() == [0.0]
        assert g.grad.isfinite().all()
        assert f.grad.shape == (0, 3)


def test_predicting_nothing_where_something_is_missing_is_dear_but_finite():
    interpolant = FlexMDMInterpolant()
    s = interpolant.sample(Ragged.from_lists([[0, 1]]), 0.0, mask_id=MASK)
    prediction, _, g = made_of(s, insertions=torch.zeros(1))
    loss = flexmdm_loss(prediction, s, interpolant)
    loss.total.sum().backward()
    assert float(loss.total.detach()) > 50
    assert g.grad.isfinite().all()


def test_closed_gaps_do_not_enter_the_loss():
    x1 = Ragged.from_lists([[0, 1, 2, 1], [2, 2, 0]])
    interpolant = FlexMDMInterpolant()
    template = Template.of_roles(Ragged.from_lists([[2, 0, 0, 1], [1, 2, 0]]))
    s = interpolant.sample(x1, 0.4, template, seed=1, mask_id=MASK)
    closed = ~s.canvas.open_gaps.values
    assert bool(closed.any()) and bool((~closed).any())
    for alignment in alignments(s):
        prediction, _, g = made_of(s)
        loss = flexmdm_loss(prediction, s, interpolant, alignment)
        loss.total.sum().backward()
        assert g.grad[closed].eq(0).all() and g.grad[~closed].ne(0).all()
        wild, _, _ = made_of(s, insertions=torch.where(closed, 1e6, 0.3))
        assert torch.equal(flexmdm_loss(wild, s, interpolant, alignment).total, loss.total)


@schedules
def test_there_is_no_nan_at_either_end_of_time(interpolant):
    x1 = SOURCE.sequences
    for t in (0.0, 1.0):
        s = interpolant.sample(x1, t, mask_id=MASK)
        for alignment in alignments(s):
            exact = ORACLE(s.canvas, s.alpha)
            prediction, f, g = made_of(s, exact.log_probs, exact.insertions.values)
            loss = flexmdm_loss(prediction, s, interpolant, alignment)
            loss.total.sum().backward()
            assert loss.total.isfinite().all()
            assert not f.grad.isnan().any() and not g.grad.isnan().any()


@schedules
def test_the_loss_of_a_network_is_finite_just_before_the_end(interpolant):
    """g of a network is never 0; the hazard, about 2 / (1 - t) at most, is large there but not infinite."""
    for rest in (1e-4, 1e-7, 1e-9, 1e-12):
        s = interpolant.sample(SOURCE.sequences, 1 - rest, mask_id=MASK)
        prediction, _, g = made_of(s, insertions=torch.full((len(s.gaps.values),), 1e-3))
        loss = flexmdm_loss(prediction, s, interpolant).total
        loss.sum().backward()
        assert loss.isfinite().all(), f"1 - t = {rest}"
        assert g.grad.isfinite().all()


def test_a_prediction_of_zero_where_nothing_points_is_no_nan():
    """log f = -inf at tokens that are not behind the mask, with the weight 0 of the alignment."""
    interpolant = FlexMDMInterpolant()
    x1 = Ragged.from_lists([[0, 0, 1]])
    s = interpolant.sample(x1, 0.5, Template.masks(x1), seed=2, mask_id=MASK)
    targets = s.targets.values[s.canvas.masks]
    assert len(targets)
    log_f = torch.where(torch.nn.functional.one_hot(targets, 3).bool(), 0.0, -math.inf)
    for alignment in alignments(s):
        prediction, f, _ = made_of(s, log_probs=log_f.clone())
        loss = flexmdm_loss(prediction, s, interpolant, alignment)
        loss.total.sum().backward()
        assert loss.total.tolist() == [0.0]
        assert not f.grad.isnan().any()


@schedules
def test_the_loss_of_an_mdm_is_the_plain_formula(interpolant):
    generator = torch.Generator().manual_seed(0)
    x1 = Ragged.from_lists([[0, 1, 2, 1, 0], [2, 2], [], [1, 0, 0]])
    t = torch.tensor([0.3, 0.6, 0.5, 0.1], dtype=torch.float64)
    s = interpolant.sample(x1, t, Template.masks(x1), seed=3, mask_id=MASK)
    masks = s.canvas.masks
    log_f = torch.randn(len(masks), 3, generator=generator).log_softmax(1)
    cross_entropy = torch.nn.functional.nll_loss(log_f, x1.values[masks], reduction="none")
    hazard = interpolant.unmasking.derivative(t) / (1 - interpolant.unmasking.value(t))
    expected = torch.zeros(4).index_add(0, x1.rows[masks], cross_entropy) * hazard
    assert len(masks) > 3
    for alignment in alignments(s):
        prediction, _, _ = made_of(s, log_probs=log_f.clone())
        loss = flexmdm_loss(prediction, s, interpolant, alignment)
        assert torch.allclose(loss.unmasking.double(), expected, rtol=1e-5)
        assert loss.insertion.tolist() == [0.0] * 4


def _no_mask(interpolant):
    x1 = Ragged.from_lists([[], [0, 1]])
    open_gaps = Ragged.from_lists([[True], [True] * 3], dtype=torch.bool)
    return interpolant.sample(x1, 0.5, Template.fixed(x1, torch.ones(2, dtype=torch.bool), open_gaps), mask_id=MASK)


def _no_open_gap(interpolant):
    x1 = Ragged.from_lists([[0, 1, 2]])
    return interpolant.sample(x1, 0.1, Template.masks(x1), mask_id=MASK)


def _neither(interpolant):
    x1 = Ragged.from_lists([[0, 1, 2], [1]])
    closed = Ragged.from_lists([[False] * 4, [False] * 2], dtype=torch.bool)
    return interpolant.sample(x1, 0.5, Template.fixed(x1, torch.ones(4, dtype=torch.bool), closed), mask_id=MASK)


@pytest.mark.parametrize("make", [_no_mask, _no_open_gap, _neither])
def test_both_heads_always_get_a_gradient(make):
    """Also a head that has nothing to say in a batch: data-parallel training needs a zero there, not a None."""
    interpolant = FlexMDMInterpolant()
    s = make(interpolant)
    for alignment in alignments(s):
        # What a network does: both predictions come from parameters.
        head_f, head_g = torch.zeros(3, requires_grad=True), torch.zeros((), requires_grad=True)
        log_f = head_f.log_softmax(0).expand(len(s.canvas.masks), 3)
        g = head_g.exp().expand(len(s.gaps.values))
        loss = flexmdm_loss(Prediction(log_f, s.canvas.open_gaps.with_values(g)), s, interpolant, alignment)
        loss.total.sum().backward()
        for head, used in ((head_f, make is _no_open_gap), (head_g, make is _no_mask)):
            assert head.grad is not None
            assert bool(head.grad.ne(0).any()) == used


def test_the_loss_of_a_sequence_does_not_depend_on_its_batch():
    interpolant, denoiser = FlexMDMInterpolant(), PERTURBATIONS[0]
    s = interpolant.sample(SOURCE.sequences, 0.6, seed=4, mask_id=MASK)
    together = flexmdm_loss(denoiser(s.canvas, s.alpha), s, interpolant, align(s.canvas, s.x1)).total
    for b in range(9):
        one = InterpolantSample(
            s.canvas[b], s.alpha[b : b + 1], s.t[b : b + 1], s.targets[b], s.gaps[b], s.kept[b], s.x1[b], s.template[b]
        )
        alone = flexmdm_loss(denoiser(one.canvas, one.alpha), one, interpolant, align(one.canvas, one.x1)).total
        assert torch.allclose(alone, together[b : b + 1], rtol=1e-12)


# At the door ----------------------------------------------------------------------------------------------------------


def test_a_sequence_too_long_to_enumerate_is_an_error_that_says_what_to_do():
    x1 = Ragged.from_lists([[0] * 12])
    with pytest.raises(ValueError, match="exact=False"):
        likelihood(ORACLE, x1, exact=True)
    # Fixed tokens do not count: they are in one state only.
    single = FiniteDistribution({(0,) * 12: 1.0}, vocab_size=1)
    template = Template.fixed(x1, torch.arange(12) > 0)
    assert likelihood(single.denoiser(), x1, exact=True, template=template).nats.tolist() == pytest.approx(
        [0.0], abs=1e-9
    )


@pytest.mark.parametrize("num_times", [0, -3])
@pytest.mark.parametrize("exact", [True, False])
def test_less_than_one_time_is_an_error(num_times, exact):
    with pytest.raises(ValueError, match="num_times"):
        likelihood(ORACLE, SOURCE.sequences, num_times=num_times, exact=exact)


@pytest.mark.parametrize("exact", [True, False])
def test_no_sequences_have_no_likelihoods(exact):
    result = likelihood(ORACLE, Ragged.from_lists([]), exact=exact)
    assert result.nats.shape == result.standard_error.shape == (0,)


def test_one_time_has_an_unknown_error():
    assert likelihood(ORACLE, SOURCE.sequences[:2], num_times=1).standard_error.tolist() == [math.inf] * 2


def test_canvases_of_the_enumeration_are_right():
    """The ground truth of this file, against the interpolant's own draws: 20,000 of one word, shares within 4 sigma."""
    word = SOURCE.words.index((A, A, B))
    n, interpolant, t = 20_000, FlexMDMInterpolant(), 0.5
    s = interpolant.sample(SOURCE.sequences[torch.full((n,), word)], t, seed=7, mask_id=MASK)
    mine = (ALL.word == word).nonzero().squeeze(1)
    expected = {}
    for state, p in zip(ALL.canvas[mine].tokens.tolist(), ALL.given_word(interpolant, t)[mine].tolist(), strict=True):
        expected[tuple(state)] = expected.get(tuple(state), 0.0) + p
    assert sum(expected.values()) == pytest.approx(1.0)
    drawn = dict.fromkeys(expected, 0)
    for state in s.canvas.tokens.tolist():
        drawn[tuple(state)] += 1
    for state, p in expected.items():
        assert abs(drawn[state] - n * p) < 4 * math.sqrt(n * p * (1 - p)) + 1, state
