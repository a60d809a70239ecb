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


def draw(sequences, mixture, may_cut=None, seed=0, first=0):
    x1 = Ragged.from_lists(sequences)
    may_cut = torch.ones(len(x1.values), dtype=torch.bool) if may_cut is None else may_cut
    return draw_templates(x1, may_cut, mixture, 6.0, seed, torch.arange(first, first + len(x1)))


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
        fixed = roles.count(Role.FIXED)
        assert roles == [Role.FIXED] * fixed + [Role.FREE] * (len(roles) - fixed)
        assert gaps == [False] * fixed + [True]


@given(batches, st.integers(0, 1000), st.data())
@settings(max_examples=100, deadline=None)
def test_spans_begin_and_end_where_a_word_may_be_cut(sequences, seed, data):
    x1 = Ragged.from_lists(sequences)
    may_cut = torch.tensor([data.draw(st.booleans()) for _ in range(len(x1.values))], dtype=torch.bool)
    template = draw(sequences, ONLY["spans"], may_cut, seed)
    begins = x1.with_values(may_cut).tolist()
    for roles, gaps, cut in zip(template.roles.tolist(), template.open_gaps.tolist(), begins, strict=True):
        assert 1 <= sum(gaps) <= MOST_GAPS
        for place in range(1, len(roles)):
            if roles[place] != roles[place - 1]:
                assert cut[place]


def test_the_length_of_a_prefix_does_not_depend_on_what_follows():
    """P(prefix of k tokens | x1) is the same for all sequences that have k tokens: 20,000 draws for two lengths each,
    so that shares differ by less than 5 standard deviations of their difference (0.025)."""
    count = 20_000
    shares = []
    for length in (6, 12):
        roles = draw([[0] * length] * count, ONLY["prefix"], first=length * count).roles
        fixed = roles.count(roles.values == Role.FIXED)
        shares.append(torch.bincount(fixed, minlength=7)[1:7].double() / count)
    assert float((shares[0] - shares[1]).abs().max()) < 0.025


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
