"""The formats of the appendix: what is fixed, what is free, and that nothing gets lost."""

from hypothesis import given, settings
from hypothesis import strategies as st

from flexmdm.canvas import Role
from flexmdm.tasks.code.task import Specials
from flexmdm.tasks.layouts import Padded, gap_examples

tokens = st.lists(st.integers(0, 9), max_size=6)
triples = st.lists(st.tuples(tokens, tokens, tokens), min_size=1, max_size=8)
SPECIALS = Specials(10, 11, 12, 13)


def written(parts, inserts):
    """Each function as a model reads it: left of the middle, the middle, right of it."""
    sides = [SPECIALS.around(prefix, suffix, inserts) for prefix, _, suffix in parts]
    return [(left, middle, right) for (left, right), (_, middle, _) in zip(sides, parts, strict=True)]


@given(triples)
@settings(max_examples=100, deadline=None)
def test_flexmdm_has_the_middle_between_separators_and_only_that_gap_open(parts):
    functions = written(parts, inserts=True)
    x1, template = gap_examples(functions)
    rows = zip(parts, functions, x1.tolist(), template.roles.tolist(), template.open_gaps.tolist(), strict=True)
    for (prefix, middle, suffix), (left, _, right), sequence, roles, gaps in rows:
        assert sequence == [*prefix, SPECIALS.sep, *middle, SPECIALS.sep, *suffix]
        assert roles == [Role.FIXED] * len(left) + [Role.FREE] * len(middle) + [Role.FIXED] * len(right)
        assert gaps == [False] * len(left) + [True] + [False] * len(right)  # also for an empty middle


@given(triples)
@settings(max_examples=100, deadline=None)
def test_mdm_has_the_middle_behind_prefix_and_suffix_and_then_pad(parts):
    x1, template = Padded(25, SPECIALS.pad).example(*gap_examples(written(parts, inserts=False)))
    for (prefix, middle, suffix), sequence, role in zip(parts, x1.tolist(), template.roles.tolist(), strict=True):
        ahead = [SPECIALS.pre, *prefix, SPECIALS.suf, *suffix, SPECIALS.sep]
        masks = 25 - len(ahead)
        assert sequence == ahead + middle + [SPECIALS.pad] * (masks - len(middle))
        assert role == [Role.FIXED] * len(ahead) + [Role.PRESENT] * masks
