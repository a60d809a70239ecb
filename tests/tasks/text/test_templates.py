import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flexmdm import Ragged
from flexmdm.canvas import Role
from flexmdm.tasks.text.templates import MOST_GAPS, Mixture, draw_templates

ONLY = {
    name: Mixture(**{**dict.fromkeys(("unconditional", "prefix", "spans", "known_length"), 0.0), name: 1.0})
    for name in ("unconditional", "prefix", "spans", "known_length")
}
batches = st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=8)


def draw(sequences, mixture, seed=0, first=0):
    x1 = Ragged.from_lists(sequences)
    return draw_templates(x1, mixture, 6.0, seed, torch.arange(first, first + len(x1)))


@given(batches, st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_an_unconditional_template_gives_nothing_and_opens_all(sequences, seed):
    template = draw(sequences, ONLY["unconditional"], seed=seed)
    assert not template.given.any()
    assert template.open_gaps.tolist() == [[True]] * len(sequences)


@given(batches, st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_a_known_length_has_all_masks_from_the_start(sequences, seed):
    template = draw(sequences, ONLY["known_length"], seed=seed)
    assert bool((template.roles.values == Role.PRESENT).all()) and not template.open_gaps.values.any()


@given(batches, st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_a_prefix_is_fixed_and_only_the_end_is_open(sequences, seed):
    template = draw(sequences, ONLY["prefix"], seed=seed)
    for roles, gaps in zip(template.roles.tolist(), template.open_gaps.tolist(), strict=True):
        if Role.PRESENT in roles or gaps == [False]:  # too short for the prefix: its length is known instead
            assert set(roles) <= {Role.PRESENT} and not any(gaps)
            continue
        fixed = roles.count(Role.FIXED)
        assert roles == [Role.FIXED] * fixed + [Role.FREE] * (len(roles) - fixed)
        assert gaps == [False] * fixed + [True]


@given(batches, st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_spans_have_one_to_five_gaps_between_fixed_pieces(sequences, seed):
    template = draw(sequences, ONLY["spans"], seed=seed)
    for roles, gaps in zip(template.roles.tolist(), template.open_gaps.tolist(), strict=True):
        assert sum(gaps) <= MOST_GAPS and (any(gaps) or Role.FREE not in roles)


@given(batches, st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_masks_that_are_there_from_the_start_are_where_a_prompt_with_a_minimum_has_them(sequences, seed):
    """Ahead of the free tokens of their gap, and a gap without any more is open behind them or closed."""
    template = draw(sequences, ONLY["spans"], seed=seed)
    for roles in template.roles.tolist():
        for one, following in itertools.pairwise(roles):
            assert (one, following) != (Role.FREE, Role.PRESENT)


def test_a_gap_with_a_least_number_has_the_ordinary_conditional_law():
    """Words a b^n c, n from 0 to 8 equally likely, a and c given: where a mask stands before the open gap, n is uniform
    from 1 to 8, to 5 standard deviations of a share of 1/8. Where n is known to be 1, the gap is closed."""
    words = [[1, *[2] * n, 3] for n in range(9)]
    template = draw(words * 40_000, ONLY["spans"])
    roles, gaps = template.roles, template.open_gaps
    fixed, present = (roles.count(roles.values == role) for role in (Role.FIXED, Role.PRESENT))
    at_ends = (roles.values[roles.offsets[:-1]] == Role.FIXED) & (roles.values[roles.offsets[1:] - 1] == Role.FIXED)
    shown = at_ends & (fixed == 2) & (present == 1)
    opened = gaps.count(gaps.values)
    behind = gaps.values[torch.where(shown, gaps.offsets[:-1] + 2, 0)]
    one = shown & (opened == 1) & behind
    found = int(one.sum())
    law = torch.bincount(roles.lengths[one] - 2, minlength=9).double() / found
    assert found > 400 and float(law[0]) == 0
    assert float((law[1:] - 1 / 8).abs().max()) < 5 * (1 / 8 * 7 / 8 / found) ** 0.5
    assert set(roles.lengths[shown & (opened == 0)].tolist()) == {3}


@pytest.mark.parametrize("kind", ["prefix", "spans"])
def test_what_is_fixed_does_not_depend_on_the_length(kind):
    """P(one open gap and so many fixed tokens | x1) is the same for all lengths that have room for them, also for
    nothing fixed at all: 40,000 draws for each of two lengths; a share has a standard deviation below 0.0025, so two
    differ by less than 5 of their difference (0.018)."""
    count, laws = 40_000, []
    for length in (6, 12):
        template = draw([[0] * length] * count, ONLY[kind], first=length * count)
        roles, opened = template.roles, template.open_gaps.count(template.open_gaps.values)
        fixed, present = (roles.count(roles.values == role) for role in (Role.FIXED, Role.PRESENT))
        shown = (opened == 1) & (fixed <= 5) & (present == 0)
        laws.append(torch.bincount(fixed[shown], minlength=6).double() / count)
    assert float((laws[0] - laws[1]).abs().max()) < 0.018


def test_the_filling_of_one_gap_has_the_ordinary_conditional_law():
    """Words a b^n c with n = 0 to 8 equally likely: where exactly a and c are given, n is still uniform. 180,000 draws;
    about 3,700 of them show this template, so a share of 1/9 has a standard deviation of 0.005."""
    words = [[1, *[2] * n, 3] for n in range(9)]
    template = draw(words * 20_000, ONLY["spans"])
    lengths, roles = template.roles.lengths, template.roles
    fixed = roles.count(roles.values == Role.FIXED)
    opened = template.open_gaps.count(template.open_gaps.values)
    at_ends = roles.count(
        (roles.values == Role.FIXED) & ((roles.columns == 0) | (roles.columns + 1 == lengths[roles.rows]))
    )
    shown = (
        (fixed == 2) & (at_ends == 2) & (opened == 1) & template.open_gaps.values[template.open_gaps.offsets[:-1] + 1]
    )
    law = torch.bincount(lengths[shown] - 2, minlength=9).double() / int(shown.sum())
    assert float((law - 1 / 9).abs().max()) < 0.025


def test_a_mixture_draws_each_kind_as_often_as_it_says():
    """20,000 draws; a share has a standard deviation below 0.0036."""
    template = draw([[1, 2, 3]] * 20_000, Mixture(unconditional=0.25, prefix=0.0, spans=0.0, known_length=0.75))
    known = template.roles.count(template.roles.values == Role.PRESENT) == 3
    assert abs(float(known.double().mean()) - 0.75) < 0.018


def test_templates_belong_to_the_sample_number_alone():
    together = draw([[1, 2, 3, 4]] * 5, Mixture())
    alone = draw([[1, 2, 3, 4]], Mixture(), first=3)
    assert together.roles.tolist()[3] == alone.roles.tolist()[0]
    assert together.open_gaps.tolist()[3] == alone.open_gaps.tolist()[0]


def test_a_mixture_without_weight_is_refused():
    with pytest.raises(ValueError, match="not all 0"):
        Mixture(0, 0, 0, 0)


@given(batches, st.integers(1, MOST_GAPS), st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_one_marked_region_is_cut_out_or_all_together(sequences, count, seed):
    x1 = Ragged.from_lists(sequences)
    places = torch.rand(len(x1), 2 * count, generator=torch.Generator().manual_seed(seed)) * (x1.lengths + 1)[:, None]
    marks = places.long().sort(1).values.view(-1, count, 2)
    only = Mixture(unconditional=0, prefix=0, spans=0, known_length=0, regions=1)
    template = draw_templates(x1, only, 6.0, seed, torch.arange(len(x1)), marks)
    for roles, gaps, regions in zip(template.roles.tolist(), template.open_gaps.tolist(), marks.tolist(), strict=True):
        choices = [[region] for region in regions] + [regions]
        expected = []
        for chosen in choices:
            free = [any(begin <= place < end for begin, end in chosen) for place in range(len(roles))]
            wanted = [Role.FREE if one else Role.FIXED for one in free]
            ahead = [free[:begin].count(False) for begin, _ in chosen]
            expected.append((wanted, [place in ahead for place in range(free.count(False) + 1)]))
        assert (roles, gaps) in expected


def test_each_region_and_all_together_are_cut_out_equally_often():
    x1 = Ragged.from_lists([[1, 2, 3, 4, 5]] * 4000)
    marks = torch.tensor([[1, 2], [3, 5]]).expand(4000, -1, -1)
    only = Mixture(unconditional=0, prefix=0, spans=0, known_length=0, regions=1)
    template = draw_templates(x1, only, 5.0, 0, torch.arange(4000), marks)
    found = [tuple(place for place, role in enumerate(roles) if role == Role.FREE) for roles in template.roles.tolist()]
    for wanted in [(1,), (3, 4), (1, 3, 4)]:
        assert found.count(wanted) / 4000 == pytest.approx(1 / 3, abs=0.03)  # 4 standard errors
