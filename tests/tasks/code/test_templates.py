"""The formats of the appendix: what is fixed, what is free, and that nothing gets lost."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flexmdm import Ragged
from flexmdm.canvas import Role
from flexmdm.tasks.code.cutting import Cut
from flexmdm.tasks.code.templates import Specials, behind, in_place

tokens = st.lists(st.integers(0, 9), max_size=6)
triples = st.lists(st.tuples(tokens, tokens, tokens), min_size=1, max_size=8)
SPECIALS = Specials(10)


def cut_of(parts):
    begin = torch.tensor([len(prefix) for prefix, _, _ in parts])
    return Cut(
        Ragged.from_lists([sum(three, []) for three in parts]),
        begin,
        begin + torch.tensor([len(m) for _, m, _ in parts]),
    )


@given(triples)
@settings(max_examples=100, deadline=None)
def test_flexmdm_has_the_middle_between_separators_and_only_that_gap_open(parts):
    x1, template = in_place(cut_of(parts), SPECIALS)
    rows = zip(parts, x1.tolist(), template.roles.tolist(), template.open_gaps.tolist(), strict=True)
    for (prefix, middle, suffix), sequence, roles, gaps in rows:
        left, right = SPECIALS.in_place(prefix, suffix)
        assert sequence == left + middle + right
        assert roles == [Role.FIXED] * len(left) + [Role.FREE] * len(middle) + [Role.FIXED] * len(right)
        assert gaps == [False] * len(left) + [True] + [False] * len(right)  # also for an empty middle


@given(triples)
@settings(max_examples=100, deadline=None)
def test_mdm_has_the_middle_behind_prefix_and_suffix(parts):
    x1, roles = behind(cut_of(parts), SPECIALS)
    for (prefix, middle, suffix), sequence, role in zip(parts, x1.tolist(), roles.tolist(), strict=True):
        ahead = SPECIALS.ahead(prefix, suffix)
        assert sequence == ahead + middle
        assert role == [Role.FIXED] * len(ahead) + [Role.PRESENT] * len(middle)
        assert ahead == [SPECIALS.pre, *prefix, SPECIALS.suf, *suffix, SPECIALS.sep]
