import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flexmdm import alignment
from flexmdm.alignment import align, embeddings
from flexmdm.canvas import Canvas, Role, Template
from flexmdm.interpolants import FlexMDMInterpolant
from flexmdm.sequences import Ragged

MASK = 9
FREE, PRESENT, FIXED = Role.FREE, Role.PRESENT, Role.FIXED
VOCABULARY = 4


def bools(lists):
    return Ragged.from_lists(lists, dtype=torch.bool)


# embeddings() ---------------------------------------------------------------------------------------------------------


def all_embeddings(match, closed, entries, positions):
    """Every increasing placement that matches and has nothing missing in closed gaps."""
    for kept in itertools.combinations(range(positions), entries):
        edges = [-1, *kept, positions]
        missing = [right - left - 1 for left, right in itertools.pairwise(edges)]
        if all(match[i][j] for i, j in enumerate(kept)) and not any(
            gap and shut for gap, shut in zip(missing, closed, strict=False)
        ):
            yield kept


@st.composite
def tables(draw):
    """A padded batch of what `embeddings` takes, as lists."""
    count, n, m = draw(st.integers(1, 3)), draw(st.integers(0, 4)), draw(st.integers(0, 6))
    flags = st.booleans()
    often = st.sampled_from([True, True, True, False])
    match = [[[draw(often) for _ in range(m)] for _ in range(n)] for _ in range(count)]
    closed = [[not draw(often) if draw(flags) else False for _ in range(n + 1)] for _ in range(count)]
    entries = [draw(st.integers(0, n)) for _ in range(count)]
    positions = [draw(st.integers(0, m)) for _ in range(count)]
    return (count, n, m), match, closed, entries, positions


@settings(max_examples=200, deadline=None)
@given(tables())
def test_counts_and_shares_are_those_of_listing_every_embedding(table):
    (count, n, m), match, closed, entries, positions = table
    log_count, share = embeddings(
        torch.tensor(match, dtype=torch.bool).reshape(count, n, m),
        torch.tensor(closed),
        torch.tensor(entries),
        torch.tensor(positions),
    )
    expected = torch.zeros(count, n, m, dtype=torch.float64)
    for p in range(count):
        ways = list(all_embeddings(match[p], closed[p], entries[p], positions[p]))
        assert float(log_count[p].exp()) == pytest.approx(len(ways), rel=1e-12)
        for kept in ways:
            for i, j in enumerate(kept):
                expected[p, i, j] += 1 / len(ways)
    torch.testing.assert_close(share, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("closed", "ways"),
    [
        ("ooo", 6),  # two masks in four tokens
        ("coo", 3),  # the first mask is the first token
        ("oco", 3),  # the two are neighbours
        ("ooc", 3),  # the second is the last
        ("cco", 1),
        ("coc", 1),
        ("occ", 1),
        ("ccc", 0),  # two tokens too many
    ],
)
def test_closed_gaps_leave_fewer_embeddings(closed, ways):
    gaps = torch.tensor([[gap == "c" for gap in closed]])
    log_count, share = embeddings(torch.ones(1, 2, 4, dtype=torch.bool), gaps, torch.tensor([2]), torch.tensor([4]))
    assert float(log_count.exp()) == pytest.approx(ways)
    assert share.sum(2).tolist() == [pytest.approx([1.0, 1.0] if ways else [0.0, 0.0])]


@pytest.mark.parametrize(("closed", "positions", "log_count"), [(False, 3, 0.0), (True, 3, -math.inf), (True, 0, 0.0)])
def test_the_empty_canvas_embeds_once_unless_its_gap_is_closed(closed, positions, log_count):
    match = torch.ones(1, 0, 3, dtype=torch.bool)
    counted, share = embeddings(match, torch.tensor([[closed]]), torch.tensor([0]), torch.tensor([positions]))
    assert counted.tolist() == [log_count]
    assert share.shape == (1, 0, 3)


def count_exactly(canvas, clean):
    """How often ``canvas`` lies in ``clean``, in integers of any size."""
    ways = [1] + [0] * len(canvas)
    for token in clean:
        for i in reversed(range(len(canvas))):
            if canvas[i] in (MASK, token):
                ways[i + 1] += ways[i]
    return ways[-1]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_counts_of_long_sequences_are_exact(data):
    clean = data.draw(st.lists(st.integers(0, 1), min_size=40, max_size=90))
    kept = data.draw(st.lists(st.booleans(), min_size=len(clean), max_size=len(clean)))
    masked = data.draw(st.lists(st.sampled_from([True, False, False]), min_size=len(clean), max_size=len(clean)))
    tokens = [MASK if m else token for token, k, m in zip(clean, kept, masked, strict=True) if k]
    found = align(Canvas(Ragged.from_lists([tokens]), MASK), Ragged.from_lists([clean]))
    assert float(found.log_count) == pytest.approx(math.log(count_exactly(tokens, clean)), abs=1e-10)


# align() --------------------------------------------------------------------------------------------------------------


@st.composite
def sequences(draw, max_length=7):
    """A clean sequence, its roles, its open gaps, and a canvas that embeds in it: tokens, given flags, open gaps."""
    clean = draw(st.lists(st.integers(0, 2), max_size=max_length))
    roles = [draw(st.sampled_from([FREE, FREE, FREE, PRESENT, FIXED])) for _ in clean]
    kept = [i for i, role in enumerate(roles) if role != FREE or draw(st.booleans())]
    tokens = [MASK if roles[i] != FIXED and draw(st.booleans()) else clean[i] for i in kept]
    number = sum(role != FREE for role in roles)
    gap_of = list(itertools.accumulate([int(role != FREE) for role in roles], initial=0))
    gaps = [draw(st.booleans()) for _ in range(number + 1)]
    for role, gap in zip(roles, gap_of, strict=False):
        gaps[gap] = gaps[gap] or role == FREE
    before = list(itertools.accumulate([int(roles[i] != FREE) for i in kept], initial=0))
    return clean, roles, gaps, tokens, [roles[i] != FREE for i in kept], [gaps[g] for g in before]


def batch_of(cases):
    clean, roles, gaps, tokens, flags, open_gaps = ([case[k] for case in cases] for k in range(6))
    canvas = Canvas(Ragged.from_lists(tokens), MASK, given=bools(flags), open_gaps=bools(open_gaps))
    return canvas, Ragged.from_lists(clean), Template(Ragged.from_lists(roles), bools(gaps))


def align_slowly(case):
    """The number of embeddings, Q for each mask and G for each gap, by trying all subsets of positions."""
    clean, roles, _, tokens, flags, _ = case
    ways = [
        kept
        for kept in itertools.combinations(range(len(clean)), len(tokens))
        if all(token in (MASK, clean[i]) for token, i in zip(tokens, kept, strict=True))
        and [i for flag, i in zip(flags, kept, strict=True) if flag] == [i for i, r in enumerate(roles) if r != FREE]
    ]
    posterior = [[0.0] * VOCABULARY for _ in tokens]
    gaps = [0.0] * (len(tokens) + 1)
    for kept in ways:
        for i, j in enumerate(kept):
            posterior[i][clean[j]] += 1 / len(ways)
        for i, (left, right) in enumerate(itertools.pairwise([-1, *kept, len(clean)])):
            gaps[i] += (right - left - 1) / len(ways)
    return len(ways), [row for row, token in zip(posterior, tokens, strict=True) if token == MASK], gaps


@settings(max_examples=200, deadline=None)
@given(st.lists(sequences(), max_size=4))
def test_alignment_is_the_mean_over_all_subsets_of_positions(cases):
    found = align(*batch_of(cases))
    slow = [align_slowly(case) for case in cases]
    assert found.log_count.exp().tolist() == pytest.approx([ways for ways, _, _ in slow], rel=1e-10)
    expected = torch.tensor([row for _, rows, _ in slow for row in rows], dtype=torch.float64).reshape(-1, VOCABULARY)
    torch.testing.assert_close(found.token_posterior(VOCABULARY), expected, rtol=0, atol=1e-10)
    assert found.gaps.lengths.tolist() == [len(gaps) for _, _, gaps in slow]
    assert found.gaps.values.tolist() == pytest.approx([g for _, _, gaps in slow for g in gaps], abs=1e-10)


@settings(max_examples=60, deadline=None)
@given(st.lists(sequences(max_length=12), min_size=1, max_size=6))
def test_posteriors_sum_to_1_and_gaps_to_what_is_missing(cases):
    canvas, x1, template = batch_of(cases)
    found = align(canvas, x1, template)
    rows = found.token_posterior(VOCABULARY).sum(1)
    torch.testing.assert_close(rows, torch.ones_like(rows))
    torch.testing.assert_close(found.gaps.sum(), (x1.lengths - canvas.lengths).double(), rtol=0, atol=1e-8)
    assert bool((found.gaps.values >= 0).all())
    assert not bool(found.gaps.values[~canvas.open_gaps.values].any())


@settings(max_examples=40, deadline=None)
@given(st.lists(sequences(max_length=12), min_size=2, max_size=5))
def test_a_batch_is_aligned_as_its_sequences_one_at_a_time(cases):
    together = align(*batch_of(cases))
    alone = [align(*batch_of([case])) for case in cases]
    torch.testing.assert_close(together.log_count, torch.cat([a.log_count for a in alone]))
    torch.testing.assert_close(together.gaps.values, Ragged.cat([a.gaps for a in alone]).values, rtol=0, atol=1e-12)
    posterior = torch.cat([a.token_posterior(VOCABULARY) for a in alone])
    torch.testing.assert_close(together.token_posterior(VOCABULARY), posterior, rtol=0, atol=1e-12)


def test_by_default_everything_is_free():
    canvas = Canvas(Ragged.from_lists([[1, MASK]]), MASK)
    x1 = Ragged.from_lists([[1, 1, 2]])
    default, free = align(canvas, x1), align(canvas, x1, Template.free(x1))
    assert torch.equal(default.log_count, free.log_count)
    assert torch.equal(default.gaps.values, free.gaps.values)


def test_given_tokens_keep_embeddings_apart():
    # Which 1 is the given one is known: the mask behind it is the 2 or the 3, and nothing is in front.
    x1 = Ragged.from_lists([[1, 1, 2, 3]])
    template = Template.of_roles(Ragged.from_lists([[FREE, FIXED, FREE, FREE]]))
    canvas = Canvas(Ragged.from_lists([[1, MASK]]), MASK, given=bools([[True, False]]))
    found = align(canvas, x1, template)
    assert found.token_posterior(4).tolist() == [pytest.approx([0, 0, 0.5, 0.5])]
    assert found.gaps.tolist() == [pytest.approx([1.0, 0.5, 0.5])]


def test_mdm_needs_no_dynamic_programme_and_is_certain(monkeypatch):
    def refuse(*_):
        raise AssertionError("the dynamic programme ran")

    monkeypatch.setattr(alignment, "embeddings", refuse)
    x1 = Ragged.from_lists([[0, 1, 2, 1, 0], [], [2, 2]])
    s = FlexMDMInterpolant().sample(x1, 0.3, Template.masks(x1), seed=1, mask_id=MASK)
    found = align(s.canvas, x1, s.template)
    assert found.log_count.tolist() == [0.0, 0.0, 0.0]
    assert not bool(found.gaps.values.any())
    targets = s.targets.values[s.canvas.is_mask]
    assert len(targets) > 0
    assert torch.equal(found.token_posterior(3), torch.nn.functional.one_hot(targets, 3).double())


def test_an_empty_batch_has_an_empty_alignment():
    found = align(Canvas(Ragged.from_lists([]), MASK), Ragged.from_lists([]))
    assert found.log_count.shape == (0,)
    assert found.token_posterior(3).shape == (0, 3)
    assert len(found.gaps) == 0


# Long sequences -------------------------------------------------------------------------------------------------------


def log_choose(n, k):
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def test_512_masks_in_1024_tokens_neither_overflow_nor_lose_precision():
    n, m = 512, 1024
    clean = torch.arange(m) % VOCABULARY
    found = align(Canvas(Ragged.from_lists([[MASK] * n]), MASK), Ragged(clean, torch.tensor([m])))
    assert float(found.log_count) == pytest.approx(log_choose(m, n), abs=1e-8)
    # All n + 1 gaps are alike, so each has (m - n) / (n + 1) tokens missing.
    torch.testing.assert_close(
        found.gaps.values, torch.full((n + 1,), (m - n) / (n + 1), dtype=torch.float64), rtol=0, atol=1e-8
    )
    posterior = found.token_posterior(VOCABULARY)
    assert bool(torch.isfinite(posterior).all())
    torch.testing.assert_close(posterior.sum(1), torch.ones(n, dtype=torch.float64), rtol=0, atol=1e-9)
    # P(s_i = j) = C(j, i) C(m-1-j, n-1-i) / C(m, n)
    for i in (0, 100, 511):
        expected = [0.0] * VOCABULARY
        for j in range(i, m - n + i + 1):
            weight = math.exp(log_choose(j, i) + log_choose(m - 1 - j, n - 1 - i) - log_choose(m, n))
            expected[j % VOCABULARY] += weight
        assert posterior[i].tolist() == pytest.approx(expected, abs=1e-8)


# Errors ---------------------------------------------------------------------------------------------------------------

IMPOSSIBLE = {
    "too many entries": ([1, 1], [False, False], [1], [FREE]),
    "a token that is not there": ([2], [False], [1, 1], [FREE, FREE]),
    "the wrong order": ([2, 1], [False, False], [1, 0, 2], [FREE, FREE, FREE]),
    "another token with nothing missing": ([2], [False], [1], [FREE]),
    "another fixed token": ([2], [True], [1], [FIXED]),
    "an entry in a closed gap": ([1, MASK], [True, False], [1], [FIXED]),
    "too few given tokens": ([1], [False], [1, 1], [FIXED, FREE]),
    "too many given tokens": ([1, 1], [True, True], [1, 1, 1], [FIXED, FREE, FREE]),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_a_canvas_that_does_not_embed_is_an_error(case):
    tokens, flags, clean, roles = IMPOSSIBLE[case]
    canvas = Canvas(Ragged.from_lists([tokens]), MASK, given=bools([flags]))
    with pytest.raises(ValueError, match="does not embed"):
        align(canvas, Ragged.from_lists([clean]), Template.of_roles(Ragged.from_lists([roles])))


@pytest.mark.parametrize(("entries", "positions"), [(390, 400), (500, 500), (590, 600), (700, 900), (999, 1000)])
def test_the_shares_of_every_entry_sum_to_one_however_long_the_sequence(entries, positions):
    """Masks alone in a long sequence: forward and backward counts are farthest apart when nearly all are there."""
    match, closed = torch.ones(1, entries, positions, dtype=torch.bool), torch.zeros(1, entries + 1, dtype=torch.bool)
    log_count, share = embeddings(match, closed, torch.tensor([entries]), torch.tensor([positions]))
    assert float((share.sum(2) - 1).abs().max()) < 1e-9
    exact = math.lgamma(positions + 1) - math.lgamma(entries + 1) - math.lgamma(positions - entries + 1)
    assert float(log_count) == pytest.approx(exact, rel=1e-9, abs=1e-9)
    expected = (share[0] @ torch.arange(positions, dtype=torch.float64)) + 1  # of order statistics of a uniform subset
    order = torch.arange(1, entries + 1, dtype=torch.float64)
    assert torch.allclose(expected, order * (positions + 1) / (entries + 1), rtol=1e-9)
