from hypothesis import given, settings
from hypothesis import strategies as st

from flexmdm.canvas import Role
from flexmdm.tasks.layouts import gap_examples

tokens = st.lists(st.integers(0, 9), max_size=6)


@given(st.lists(st.tuples(tokens, tokens), min_size=1, max_size=8))
@settings(max_examples=100, deadline=None)
def test_the_prompt_is_fixed_and_only_the_gap_behind_it_is_open(pairs):
    x1, template = gap_examples([(prompt, answer, []) for prompt, answer in pairs])
    assert x1.tolist() == [prompt + answer for prompt, answer in pairs]
    for (prompt, answer), roles, gaps in zip(pairs, template.roles.tolist(), template.open_gaps.tolist(), strict=True):
        assert roles == [Role.FIXED] * len(prompt) + [Role.FREE] * len(answer)
        assert gaps == [False] * len(prompt) + [True]  # also for an empty answer
