"""How FlexMDM lays out a sequence, with and without tokens that stand around it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flexmdm.canvas import Prompt, Role, Template
from flexmdm.interpolants import FlexMDMInterpolant
from flexmdm.sequences import Ragged
from flexmdm.tasks.layouts import Grown, layout_of

FRAME = ((90, 91), (92,))
MASK = 99


@st.composite
def examples(draw):
    """Sequences with the roles of their tokens and gaps that are open where they need be, and elsewhere by chance."""
    rows = draw(st.lists(st.lists(st.sampled_from(list(Role)), max_size=6), min_size=1, max_size=4))
    roles = Ragged.from_lists([[int(role) for role in row] for row in rows])
    template = Template.of_roles(roles)
    more = draw(
        st.lists(st.booleans(), min_size=len(template.open_gaps.values), max_size=len(template.open_gaps.values))
    )
    gaps = template.open_gaps.with_values(template.open_gaps.values | torch.tensor(more, dtype=torch.bool))
    return roles.with_values(torch.arange(len(roles.values))), Template(roles, gaps)


@given(examples())
def test_what_stands_around_a_sequence_is_fixed_and_nothing_comes_beyond_it(example):
    x1, template = example
    framed, around = Grown(9, FRAME).example(x1, template)
    assert framed.tolist() == [[90, 91, *row, 92] for row in x1.tolist()]
    assert around.roles.tolist() == [[2, 2, *row, 2] for row in template.roles.tolist()]
    assert around.open_gaps.tolist() == [[False, False, *row, False] for row in template.open_gaps.tolist()]


def test_in_every_state_what_stands_around_is_there_and_the_gaps_beyond_are_closed():
    x1 = Ragged.from_lists([[1, 2, 3], [], [4]])
    sample = FlexMDMInterpolant().sample(*reordered(Grown(9, FRAME).example(x1, Template.free(x1))), mask_id=MASK)
    for tokens, given_ones, gaps in zip(
        sample.canvas.tokens.tolist(), sample.canvas.given.tolist(), sample.canvas.open_gaps.tolist(), strict=True
    ):
        assert tokens[:2] == [90, 91] and tokens[-1] == 92
        assert given_ones == [True, True, *[False] * (len(tokens) - 3), True]
        assert gaps == [False, False, *[True] * (len(tokens) - 2), False]


def reordered(example):
    """The arguments of `FlexMDMInterpolant.sample`."""
    x1, template = example
    return x1, torch.tensor([0.2, 0.5, 0.9]), template


def test_prompts_begin_and_end_with_what_stands_around_a_sequence():
    layout = Grown(9, FRAME)
    assert layout.between([[], []]) == Prompt((90, 91, 92), (False, False, True, False))
    assert layout.between([[5], [6]]) == Prompt.infill([[90, 91, 5], [6, 92]])
    assert layout.between([[5], [6]], 1, 2) == Prompt.infill([[90, 91, 5], [6, 92]], 1, 2)
    assert layout.clean([90, 91, 5, 7, 6, 92]) == [5, 7, 6] and layout.most_entries == 12


def test_an_mdm_has_nothing_around_its_sequences():
    assert layout_of("mdm", 9, 9, 50).framed([[1], []]) == [[1], []]
    with pytest.raises(ValueError, match="would tell where they end"):
        layout_of("mdm", 9, 9, 50, FRAME)
