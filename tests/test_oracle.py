import itertools
import math
from collections import Counter, defaultdict

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flexmdm.canvas import Canvas, Prompt, Role, Template
from flexmdm.denoiser import Denoiser, ImpossibleCanvas
from flexmdm.interpolants import FlexMDMInterpolant
from flexmdm.oracle import FiniteDistribution, HiddenMarkovSource
from flexmdm.schedules import CosineSchedule, LinearSchedule, PolynomialSchedule, SineSchedule
from flexmdm.sequences import Ragged

MASK = 9
FREE, PRESENT = Role.FREE, Role.PRESENT
WORDS = {(0,): 0.1, (0, 1): 0.3, (1, 0, 1): 0.25, (0, 0, 1, 2): 0.2, (): 0.05, (2, 2): 0.1}

clocks = st.one_of(st.sampled_from([0.0, 1.0, 0.5, 1 - 1e-9]), st.floats(0, 1))


def bools(lists):
    return Ragged.from_lists(lists, dtype=torch.bool)


def make_canvas(states, mask_id=MASK):
    """A canvas from (tokens, given, open gaps) per sequence."""
    tokens, flags, gaps = ([state[k] for state in states] for k in range(3))
    return Canvas(Ragged.from_lists(tokens), mask_id, given=bools(flags), open_gaps=bools(gaps))


def posterior_slowly(words, state, alpha, vocab_size, mask_id):
    """P(word), f for each mask and g for each gap, listing every embedding in every word.

    An embedding weighs p (1 - alpha)^missing; at alpha = 1 only those with the fewest missing tokens count.
    """
    tokens, _, open_gaps = state
    found = []
    for word, p in words.items():
        for kept in itertools.combinations(range(len(word)), len(tokens)):
            gaps = [right - left - 1 for left, right in itertools.pairwise([-1, *kept, len(word)])]
            fits = all(token in (mask_id, word[j]) for token, j in zip(tokens, kept, strict=True))
            if p > 0 and fits and all(is_open or not gap for gap, is_open in zip(gaps, open_gaps, strict=True)):
                found.append((word, kept, gaps, p))
    fewest = min((sum(gaps) for _, _, gaps, _ in found), default=0)
    weights = [p * (1 - alpha) ** (sum(gaps) - fewest) for _, _, gaps, p in found]
    total = sum(weights)
    law, f, g = Counter(), [[0.0] * vocab_size for _ in tokens], [0.0] * (len(tokens) + 1)
    for (word, kept, gaps, _), weight in zip(found, weights, strict=True):
        law[word] += weight / total
        for i, j in enumerate(kept):
            f[i][word[j]] += weight / total
        for i, gap in enumerate(gaps):
            g[i] += gap * weight / total
    return law, [row for row, token in zip(f, tokens, strict=True) if token == mask_id], g


def assert_predicts(prediction, words, states, alphas, vocab_size, mask_id, tolerance):
    slow = [posterior_slowly(words, s, a, vocab_size, mask_id) for s, a in zip(states, alphas, strict=True)]
    f = torch.tensor([row for _, rows, _ in slow for row in rows], dtype=torch.float64).reshape(-1, vocab_size)
    g = torch.tensor([gap for _, _, gaps in slow for gap in gaps], dtype=torch.float64)
    torch.testing.assert_close(prediction.log_probs.exp(), f, rtol=0, atol=tolerance)
    torch.testing.assert_close(prediction.insertions.values, g, rtol=0, atol=tolerance)
    assert prediction.insertions.lengths.tolist() == [len(tokens) + 1 for tokens, _, _ in states]
    # In generation g is divided by 1 - alpha, so it must be precise where it is tiny (within 1e-10 of 1 is the limit).
    tiny = (g > 1e-300) & torch.tensor([1 - a > 1e-10 for s, a in zip(states, alphas, strict=True) for _ in s[2]])
    torch.testing.assert_close(prediction.insertions.values[tiny], g[tiny], rtol=1e-5, atol=1e-15)
    closed = torch.tensor([not is_open for _, _, gaps in states for is_open in gaps])
    assert not bool(prediction.insertions.values[closed].any())


@st.composite
def states_of(draw, words, mask_id):
    """A state that one of the words can be in: some tokens gone, some masked, some gaps with nothing missing closed."""
    word = draw(st.sampled_from(words))
    kept = [j for j in range(len(word)) if draw(st.booleans())]
    tokens = [mask_id if draw(st.booleans()) else word[j] for j in kept]
    edges = itertools.pairwise([-1, *kept, len(word)])
    gaps = [right - left > 1 or draw(st.sampled_from([True, True, False])) for left, right in edges]
    return tokens, [draw(st.booleans()) for _ in kept], gaps


@st.composite
def finite_problems(draw):
    """A distribution and canvases, with the mask inside or outside the vocabulary."""
    vocab_size = draw(st.integers(1, 4))
    mask_id = draw(st.integers(-1, vocab_size + 1))
    alphabet = [v for v in range(vocab_size) if v != mask_id]
    word = st.lists(st.sampled_from(alphabet), max_size=6).map(tuple) if alphabet else st.just(())
    words = draw(st.lists(word, min_size=1, max_size=6, unique=True))
    weights = [draw(st.integers(0, 20)) for _ in words]
    assume(sum(weights) > 0)
    law = {w: p / sum(weights) for w, p in zip(words, weights, strict=True)}
    states = draw(st.lists(states_of([w for w in words if law[w] > 0], mask_id), min_size=1, max_size=4))
    alphas = [draw(clocks) for _ in states]
    return law, vocab_size, mask_id, states, alphas


# FiniteDistribution ---------------------------------------------------------------------------------------------------


@settings(max_examples=220, deadline=None)
@given(finite_problems())
def test_the_finite_denoiser_is_the_sum_over_all_embeddings(problem):
    law, vocab_size, mask_id, states, alphas = problem
    denoiser = FiniteDistribution(law, vocab_size).denoiser(mask_id)
    prediction = denoiser(make_canvas(states, mask_id), torch.tensor(alphas, dtype=torch.float64))
    assert_predicts(prediction, law, states, alphas, vocab_size, mask_id, 1e-9)
    if 0 <= mask_id < vocab_size:
        assert bool((prediction.log_probs[:, mask_id] == -math.inf).all())


@settings(max_examples=50, deadline=None)
@given(finite_problems())
def test_the_posterior_over_words_is_the_sum_over_all_embeddings(problem):
    law, vocab_size, mask_id, states, alphas = problem
    source = FiniteDistribution(law, vocab_size)
    posterior = source.posterior(make_canvas(states, mask_id), torch.tensor(alphas, dtype=torch.float64))
    torch.testing.assert_close(posterior.sum(1), torch.ones(len(states), dtype=torch.float64))
    for row, state, alpha in zip(posterior.tolist(), states, alphas, strict=True):
        expected, _, _ = posterior_slowly(law, state, alpha, vocab_size, mask_id)
        assert row == pytest.approx([expected[word] for word in source.words], abs=1e-10)


def test_words_of_different_length_are_weighed_by_the_clock():
    # A mask in (0,) or in (1, 1): weights 0.5 and 0.5 * 2 * (1 - alpha).
    denoiser = FiniteDistribution({(0,): 0.5, (1, 1): 0.5}, vocab_size=2).denoiser()
    canvas = Canvas(Ragged.from_lists([[2]] * 3), mask_id=2)
    prediction = denoiser(canvas, torch.tensor([0.0, 0.5, 1.0]))
    assert prediction.log_probs.exp()[:, 0].tolist() == pytest.approx([1 / 3, 1 / 2, 1.0])
    assert prediction.insertions.sum().tolist() == pytest.approx([2 / 3, 1 / 2, 0.0])


def test_closed_gaps_change_the_posterior_and_not_only_the_insertions():
    # 0 and a mask behind it. Were the end open, the mask might be the 1 or the 2; closed, it is the last token.
    source = FiniteDistribution({(0, 1, 2): 1.0}, vocab_size=3)
    states = [([0, MASK], [False, False], [False, True, True]), ([0, MASK], [False, False], [False, True, False])]
    prediction = source.denoiser(MASK)(make_canvas(states), 0.0)
    assert prediction.log_probs.exp().tolist() == [pytest.approx([0, 0.5, 0.5]), pytest.approx([0, 0, 1.0])]
    assert prediction.insertions.tolist() == [pytest.approx([0, 0.5, 0.5]), pytest.approx([0, 1.0, 0])]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_if_all_lengths_are_equal_the_posterior_does_not_depend_on_alpha(data):
    words = data.draw(st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4).map(tuple), min_size=1, unique=True))
    source = FiniteDistribution(dict.fromkeys(words, 1 / len(words)), vocab_size=3)
    canvas = make_canvas([data.draw(states_of(words, MASK))])
    start = source.denoiser(MASK)(canvas, 0.0)
    for alpha in (0.3, 0.999, 1.0):
        later = source.denoiser(MASK)(canvas, alpha)
        torch.testing.assert_close(later.log_probs.exp(), start.log_probs.exp(), rtol=0, atol=1e-12)
        torch.testing.assert_close(later.insertions.values, start.insertions.values, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("prompt", "placements"),
    [
        (Prompt.empty(), lambda w: 1),
        (Prompt.prefix([0]), lambda w: int(w[:1] == (0,))),
        (Prompt.infill([[0], [1]]), lambda w: int(len(w) >= 2 and w[0] == 0 and w[-1] == 1)),
        (Prompt.infill([[], [1]]), lambda w: int(w[-1:] == (1,))),
        (Prompt.masks(2), lambda w: int(len(w) == 2)),
        (Prompt((None,), (False, True)), lambda w: int(len(w) >= 1)),  # at least one token
        (Prompt.infill([[], [0], []]), lambda w: w.count(0)),  # two gaps: by the number of placements
    ],
)
def test_at_the_start_the_posterior_is_the_conditional_law_given_the_prompt(prompt, placements):
    source = FiniteDistribution(WORDS, vocab_size=3)
    posterior = source.posterior(Canvas.of_prompts([prompt], MASK), 0.0)
    expected = [p * placements(w) for w, p in WORDS.items()]
    assert source.words == list(WORDS)
    assert posterior.tolist() == [pytest.approx([x / sum(expected) for x in expected])]


def test_words_of_a_thousand_tokens_neither_underflow_nor_overflow():
    # 512 masks lie in the long word in C(1100, 512) = e^758 ways, in the short one in 1 way.
    source = FiniteDistribution({(0,) * 512: 0.5, (0,) * 1100: 0.5}, vocab_size=1)
    canvas = Canvas(Ragged.from_lists([[MASK] * 512]), MASK)
    log_ways = math.lgamma(1101) - math.lgamma(513) - math.lgamma(589)
    balance = 1 - math.exp(-log_ways / 588)  # the clock at which both weigh the same
    for alpha, short in ((0.0, 0.0), (balance, 0.5), (1.0, 1.0)):
        assert source.posterior(canvas, alpha).tolist() == [pytest.approx([short, 1 - short], abs=1e-6)]


def test_samples_of_a_finite_distribution_come_as_often_as_they_should():
    number = 20_000  # the standard error of a share is at most 0.0036
    source = FiniteDistribution(WORDS, vocab_size=3)
    drawn = source.sample(number, seed=1)
    seen = Counter(tuple(w) for w in drawn.tolist())
    assert set(seen) <= set(WORDS)
    for word, p in WORDS.items():
        assert abs(seen[word] / number - p) < 4 * math.sqrt(p * (1 - p) / number)
    assert source.sample(100, seed=1).tolist() == drawn.tolist()[:100]
    assert source.sample(100, seed=2).tolist() != drawn.tolist()[:100]


def test_log_probabilities_and_lengths_of_a_finite_distribution():
    source = FiniteDistribution({**WORDS, (2,): 0.0}, vocab_size=3)
    words = [*WORDS, (2,), (1, 1)]
    expected = [*WORDS.values(), 0.0, 0.0]
    assert source.log_prob(Ragged.from_lists(words)).exp().tolist() == pytest.approx(expected)
    assert source.length_distribution().tolist() == pytest.approx([0.05, 0.1, 0.4, 0.25, 0.2])
    assert (2,) not in source.words


# The oracle and the interpolant ---------------------------------------------------------------------------------------

NUMBER = 20_000  # states drawn below; those seen at least 250 times are compared, within 4.5 standard errors


@pytest.mark.parametrize(
    "interpolant",
    [
        FlexMDMInterpolant(CosineSchedule(), SineSchedule()),
        FlexMDMInterpolant(PolynomialSchedule(0.5), LinearSchedule()),
    ],
    ids=lambda i: f"{i.insertion.name}-{i.unmasking.name}",
)
@pytest.mark.parametrize("first", [FREE, PRESENT])
def test_the_denoiser_is_the_posterior_of_the_interpolant_for_any_schedules(interpolant, first):
    words = {w: p / 0.95 for w, p in WORDS.items() if w}
    source = FiniteDistribution(words, vocab_size=3)
    x1 = source.sample(NUMBER, seed=7)
    template = Template.of_roles(
        x1.with_values(torch.where(x1.columns == 0, int(first), int(FREE))),
        None if first == FREE else bools([[False, True]])[torch.zeros(NUMBER, dtype=torch.int64)],
    )
    s = interpolant.sample(x1, 0.55, template, seed=8, mask_id=MASK)
    different, which = s.canvas.distinct()
    prediction = source.denoiser(MASK)(different, s.alpha[0])
    f, g = prediction.log_probs.exp(), prediction.insertions
    first_mask = different.num_masks.cumsum(0) - different.num_masks

    seen = defaultdict(list)
    for state, gaps, targets in zip(which.tolist(), s.gaps.tolist(), s.targets.tolist(), strict=True):
        seen[state].append((gaps, targets))
    compared = 0
    for state, draws in seen.items():
        if len(draws) < 250:
            continue
        gaps = torch.tensor([gaps for gaps, _ in draws], dtype=torch.float64)
        error = gaps.std(0) / math.sqrt(len(draws))
        expected = g[state].values
        assert bool(((gaps.mean(0) - expected).abs() <= 4.5 * error + 1e-9).all())
        masks = [i for i, token in enumerate(different.tokens[state].values.tolist()) if token == MASK]
        behind = torch.tensor([targets for _, targets in draws])
        for row, i in enumerate(masks):
            share = torch.bincount(behind[:, i], minlength=3) / len(draws)
            p = f[first_mask[state] + row]
            assert bool(((share - p).abs() <= 4.5 * (p * (1 - p) / len(draws)).sqrt() + 1e-9).all())
        compared += 1
    assert compared >= 8


# HiddenMarkovSource ---------------------------------------------------------------------------------------------------


@st.composite
def chains(draw):
    """A left-to-right chain: from a state only later ones can be reached, so it has finitely many words."""
    size = draw(st.integers(1, 5))
    small = st.integers(0, 4)
    initial = [draw(small) for _ in range(size)]
    initial[0] += 1 - min(1, sum(initial))
    transition = [[draw(small) if j > i else 0 for j in range(size)] for i in range(size)]
    end = [draw(small) for _ in range(size)]
    for i in range(size):
        end[i] += 1 - min(1, end[i] + sum(transition[i]))
    totals = [end[i] + sum(transition[i]) for i in range(size)]
    return HiddenMarkovSource(
        [p / sum(initial) for p in initial],
        [[p / totals[i] for p in transition[i]] for i in range(size)],
        [end[i] / totals[i] for i in range(size)],
        [draw(st.integers(0, 2)) for _ in range(size)],
        vocab_size=3,
        empty=draw(st.sampled_from([0.0, 0.0, 0.25])),
    )


def law_of(source, longest=None):
    """Every word of the chain (up to a length) with its probability."""
    words = Counter({(): source.empty} if source.empty else {})
    pi, a, e = source.initial.tolist(), source.transition.tolist(), source.end.tolist()
    paths = [((state,), (1 - source.empty) * p) for state, p in enumerate(pi) if p > 0]
    while paths:
        path, p = paths.pop()
        if e[path[-1]] > 0:
            words[tuple(int(source.token_of_state[state]) for state in path)] += p * e[path[-1]]
        if longest is None or len(path) < longest:
            paths += [((*path, state), p * step) for state, step in enumerate(a[path[-1]]) if step > 0]
    return dict(words)


@st.composite
def chain_problems(draw):
    source = draw(chains())
    law = law_of(source)
    states = draw(st.lists(states_of(list(law), MASK), min_size=1, max_size=4))
    alphas = [draw(clocks) for _ in states]
    return source, law, states, alphas


@settings(max_examples=200, deadline=None)
@given(chain_problems())
def test_the_hidden_markov_oracle_is_the_finite_one_where_a_chain_has_finitely_many_words(problem):
    source, law, states, alphas = problem
    finite = FiniteDistribution(law, vocab_size=3)
    canvas, alpha = make_canvas(states), torch.tensor(alphas, dtype=torch.float64)
    one, other = source.denoiser(MASK)(canvas, alpha), finite.denoiser(MASK)(canvas, alpha)
    torch.testing.assert_close(one.log_probs.exp(), other.log_probs.exp(), rtol=0, atol=1e-8)
    torch.testing.assert_close(one.insertions.values, other.insertions.values, rtol=0, atol=1e-8)
    assert_predicts(one, law, states, alphas, 3, MASK, 1e-8)
    words = Ragged.from_lists([*law, (0, 1, 2) * 3])
    torch.testing.assert_close(source.log_prob(words), finite.log_prob(words), rtol=0, atol=1e-10)


def test_a_chain_with_cycles_agrees_with_its_words_up_to_a_length():
    # Words of more than 8 tokens have probability 1e-8.
    source = HiddenMarkovSource([0.7, 0.3], [[0.06, 0.04], [0.02, 0.08]], [0.9, 0.9], [0, 1], vocab_size=2, empty=0.1)
    law = law_of(source, longest=8)
    finite = FiniteDistribution(law, vocab_size=2)
    tokens = [[], [MASK], [0, MASK], [MASK, MASK, 1], [1, 0]]
    canvas = Canvas(Ragged.from_lists(tokens), MASK)
    alpha = torch.tensor([0.0, 0.2, 0.5, 0.7, 1.0], dtype=torch.float64)
    one, other = source.denoiser(MASK)(canvas, alpha), finite.denoiser(MASK)(canvas, alpha)
    torch.testing.assert_close(one.log_probs.exp(), other.log_probs.exp(), rtol=0, atol=1e-4)
    torch.testing.assert_close(one.insertions.values, other.insertions.values, rtol=0, atol=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_long_canvases_are_exact(alpha):
    # Every gap has a geometric number of tokens missing, of ratio r = 0.98 (1 - alpha) and mean r / (1 - r).
    source = HiddenMarkovSource([1.0], [[0.98]], [0.02], [0], vocab_size=1)
    prediction = source.denoiser(MASK)(Canvas(Ragged.from_lists([[MASK, 0] * 500]), MASK), alpha)
    r = 0.98 * (1 - alpha)
    expected = torch.full((1001,), r / (1 - r), dtype=torch.float64)
    torch.testing.assert_close(prediction.insertions.values, expected, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(prediction.log_probs, torch.zeros(500, 1, dtype=torch.float64))


@pytest.mark.parametrize(("missing", "alpha"), [(10, 1.0), (24, 1.0), (48, 1 - 1e-6), (96, 0.999), (280, 0.9)])
def test_many_missing_tokens_are_still_expected_late(missing, alpha):
    # Whatever the clock, all of the one word is missing from the empty canvas.
    prediction = _one_word(missing).denoiser(MASK)(Canvas(Ragged.from_lists([[]]), MASK), alpha)
    assert prediction.insertions.tolist() == [[pytest.approx(missing)]]


@pytest.mark.parametrize(("missing", "alpha"), [(26, 1.0), (40, 1.0), (60, 1 - 1e-6), (150, 0.999), (400, 0.9)])
def test_more_missing_tokens_than_float64_can_weigh_are_an_error_and_not_a_wrong_answer(missing, alpha):
    with pytest.raises(ImpossibleCanvas):
        _one_word(missing).denoiser(MASK)(Canvas(Ragged.from_lists([[]]), MASK), alpha)


def _one_word(missing):
    return HiddenMarkovSource(
        [1.0] + [0.0] * (missing - 1),
        torch.diag(torch.ones(missing - 1), 1),
        [0.0] * (missing - 1) + [1.0],
        [0] * missing,
        vocab_size=1,
    )


def test_each_sequence_has_its_own_clock():
    source = HiddenMarkovSource([0.5, 0.5], [[0.3, 0.3], [0.2, 0.2]], [0.4, 0.6], [0, 1], vocab_size=2)
    alphas = torch.tensor([0.0, 0.9, 0.5, 0.9], dtype=torch.float64)
    canvas = Canvas(Ragged.from_lists([[0, MASK], [MASK], [], [1, 1, MASK]]), MASK)
    for denoiser in (source.denoiser(MASK), FiniteDistribution(WORDS, vocab_size=3).denoiser(MASK)):
        some = canvas if denoiser.source is source else canvas[:3]
        together = denoiser(some, alphas[: len(some)])
        alone = [denoiser(some[b], alphas[b]) for b in range(len(some))]
        torch.testing.assert_close(together.log_probs, torch.cat([p.log_probs for p in alone]))
        torch.testing.assert_close(together.insertions.values, torch.cat([p.insertions.values for p in alone]))


def test_samples_of_a_chain_come_as_often_as_its_log_probabilities_say():
    number = 20_000  # the standard error of a share is at most 0.0036
    source = HiddenMarkovSource(
        [0.6, 0.4, 0.0], [[0, 0.5, 0.2], [0, 0, 0.7], [0, 0, 0]], [0.3, 0.3, 1.0], [0, 1, 0], 2, 0.15
    )
    law = law_of(source)
    assert sum(law.values()) == pytest.approx(1)
    drawn = source.sample(number, seed=3)
    seen = Counter(tuple(w) for w in drawn.tolist())
    assert set(seen) <= set(law)
    for p, word in zip(source.log_prob(Ragged.from_lists(list(law))).exp().tolist(), law, strict=True):
        assert p == pytest.approx(law[word])
        assert abs(seen[word] / number - p) < 4 * math.sqrt(p * (1 - p) / number)
    assert source.sample(50, seed=3).tolist() == drawn.tolist()[:50]
    assert source.sample(0).tolist() == []


def test_log_probabilities_of_long_words_do_not_underflow():
    source = HiddenMarkovSource([1.0], [[0.5]], [0.5], [0], vocab_size=2)
    assert source.log_prob(Ragged.from_lists([[0] * 3000, [0] * 2000 + [1], []])).tolist() == [
        pytest.approx(3000 * math.log(0.5)),
        -math.inf,
        -math.inf,
    ]


# What both keep -------------------------------------------------------------------------------------------------------

SOURCES = {
    "finite": FiniteDistribution({(0,): 0.5, (0, 1): 0.5}, vocab_size=3),
    "chain": HiddenMarkovSource([1.0, 0.0], [[0.0, 0.5], [0.0, 0.0]], [0.5, 1.0], [0, 1], vocab_size=3),
}
both_sources = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)


@both_sources
def test_a_source_gives_a_denoiser_with_its_vocabulary_and_a_mask_behind_it(source):
    denoiser = source.denoiser()
    assert isinstance(denoiser, Denoiser)
    assert denoiser.vocab_size == 3
    assert denoiser.mask_id == 3
    assert source.denoiser(mask_id=2).mask_id == 2


@both_sources
def test_the_mask_is_never_predicted(source):
    prediction = source.denoiser(mask_id=2)(Canvas(Ragged.from_lists([[2, 2]]), mask_id=2), 0.5)
    assert prediction.log_probs.shape == (2, 3)
    assert prediction.log_probs[:, 2].tolist() == [-math.inf] * 2
    assert prediction.log_probs.exp().sum(1).tolist() == pytest.approx([1.0, 1.0])


@both_sources
def test_an_empty_batch_gets_an_empty_prediction(source):
    prediction = source.denoiser(MASK)(Canvas(Ragged.from_lists([]), MASK), torch.zeros(0))
    assert prediction.log_probs.shape == (0, 3)
    assert len(prediction.insertions) == 0


IMPOSSIBLE = {
    "a token that never occurs": ([2], [True, True]),
    "the wrong order": ([1, 0], [True, True, True]),
    "too long": ([MASK] * 3, [True] * 4),
    "a closed gap that must hold something": ([1], [False, True]),
    "nothing, and nothing may come": ([], [False]),
}


@both_sources
@pytest.mark.parametrize("case", IMPOSSIBLE)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_a_state_that_cannot_occur_raises_and_carries_what_is_known_of_the_others(source, case, alpha):
    tokens, gaps = IMPOSSIBLE[case]
    fine = ([0, MASK], [False, False], [True, True, True])
    states = [fine, (tokens, [False] * len(tokens), gaps), fine]
    with pytest.raises(ImpossibleCanvas, match="sequence 1 .*cannot occur") as raised:
        source.denoiser(MASK)(make_canvas(states), alpha)
    assert isinstance(raised.value, ValueError)
    assert raised.value.possible.tolist() == [True, False, True]
    prediction = raised.value.prediction
    alone = source.denoiser(MASK)(make_canvas([fine]), alpha)
    torch.testing.assert_close(prediction.log_probs[:1], alone.log_probs)
    torch.testing.assert_close(prediction.log_probs[-1:], alone.log_probs)
    torch.testing.assert_close(prediction.insertions[torch.tensor([0])].values, alone.insertions.values)
    assert not bool(prediction.insertions.values.isnan().any())
    assert not bool(prediction.log_probs.isnan().any())


@both_sources
@pytest.mark.parametrize("alpha", [-0.1, 1.1, math.nan, torch.tensor([0.5, 2.0])])
def test_clocks_outside_the_unit_interval_are_an_error(source, alpha):
    with pytest.raises(ValueError, match=r"alpha must lie in \[0, 1\]"):
        source.denoiser(MASK)(Canvas(Ragged.from_lists([[0], [0]]), MASK), alpha)


@both_sources
@pytest.mark.parametrize("token", [3, -1])
def test_tokens_outside_the_vocabulary_are_an_error_on_a_canvas(source, token):
    with pytest.raises(ValueError, match=f"token {token} is outside the vocabulary 0..2"):
        source.denoiser(MASK)(Canvas(Ragged.from_lists([[token]]), MASK), 0.5)


# Errors of construction -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "at least one sequence"),
        ({(0,): -0.5, (1,): 1.5}, "non-negative"),
        ({(0,): math.nan}, "non-negative"),
        ({(0,): 0.5}, "sum to 1, got 0.5"),
        ({(0,): 0.7, (1,): 0.7}, "sum to 1"),
        ({(0,): math.inf}, "sum to 1"),
        ({(0, 2): 1.0}, "token 2 is outside the vocabulary"),
        ({(-1,): 1.0}, "token -1 is outside the vocabulary"),
    ],
)
def test_a_bad_finite_distribution_is_an_error(words, message):
    with pytest.raises(ValueError, match=message):
        FiniteDistribution(words, vocab_size=2)


GOOD_CHAIN = {
    "initial": [1.0, 0.0],
    "transition": [[0.0, 0.5], [0.0, 0.0]],
    "end": [0.5, 1.0],
    "token_of_state": [0, 1],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"initial": [1.0]}, r"must be \[S\], \[S, S\]"),
        ({"transition": [0.0, 0.5]}, r"must be \[S\], \[S, S\]"),
        ({"end": [1.0]}, r"must be \[S\], \[S, S\]"),
        ({"token_of_state": [0, 1, 1]}, r"must be \[S\], \[S, S\]"),
        ({"initial": [1.5, -0.5]}, "initial must hold non-negative"),
        ({"initial": [math.nan, 1.0]}, "initial must hold non-negative"),
        ({"transition": [[0.0, -0.5], [0.0, 0.0]]}, "transition must hold non-negative"),
        ({"end": [-0.5, 1.0]}, "end must hold non-negative"),
        ({"initial": [0.5, 0.0]}, "must sum to 1"),
        ({"end": [0.4, 1.0]}, "must sum to 1"),
        ({"transition": [[0.0, 0.5], [0.0, 1.0]], "end": [0.5, 0.0]}, "never ends"),
        ({"transition": [[0.0, 1.0], [1.0, 0.0]], "end": [0.0, 0.0]}, "never ends"),
        ({"token_of_state": [0, 2]}, "token 2 is outside the vocabulary"),
        ({"empty": 1.0}, "empty must lie in"),
        ({"empty": -0.1}, "empty must lie in"),
        ({"empty": math.nan}, "empty must lie in"),
    ],
)
def test_a_bad_chain_is_an_error(change, message):
    HiddenMarkovSource(**GOOD_CHAIN, vocab_size=2)
    with pytest.raises(ValueError, match=message):
        HiddenMarkovSource(**{**GOOD_CHAIN, **change}, vocab_size=2)
