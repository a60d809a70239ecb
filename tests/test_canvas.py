import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flexmdm import HiddenMarkovSource, generate
from flexmdm.canvas import Canvas, Prompt, Role, Template, gaps_of, rank_within
from flexmdm.randomness import StepRandomness
from flexmdm.sequences import Ragged

MASK = 9
FREE, PRESENT, FIXED = Role.FREE, Role.PRESENT, Role.FIXED
thoroughly = settings(max_examples=100, deadline=None)


def bools(lists):
    return Ragged.from_lists(lists, dtype=torch.bool)


def make_canvas(states, **kwargs):
    """A canvas from (tokens, given, open gaps) per sequence."""
    tokens, given_flags, open_gaps = zip(*states, strict=True) if states else ((), (), ())
    return Canvas(Ragged.from_lists(tokens), MASK, given=bools(given_flags), open_gaps=bools(open_gaps), **kwargs)


def states_of(canvas):
    return list(zip(canvas.tokens.tolist(), canvas.given.tolist(), canvas.open_gaps.tolist(), strict=True))


@st.composite
def states(draw, max_length=6):
    """(tokens, given, open gaps) of one sequence."""
    tokens = draw(st.lists(st.sampled_from([0, 1, 2, MASK]), max_size=max_length))
    n = len(tokens)
    flags = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    gaps = draw(st.lists(st.booleans(), min_size=n + 1, max_size=n + 1))
    return tokens, flags, gaps


@st.composite
def growing_states(draw, largest=3):
    """A batch of states, and for each how many masks go into each gap: none into closed ones."""
    batch = draw(st.lists(states(), max_size=4))
    counts = [[draw(st.integers(0, largest)) if is_open else 0 for is_open in gaps] for _, _, gaps in batch]
    return batch, counts


def flat(counts):
    return torch.tensor([c for row in counts for c in row], dtype=torch.int64)


def insert_slowly(state, counts):
    """insert_masks for one sequence, one entry at a time."""
    tokens, flags, gaps = state
    new_tokens, new_flags, new_gaps = [], [], []
    for gap, count in enumerate(counts):
        for _ in range(count):
            new_gaps.append(gaps[gap])
            new_tokens.append(MASK)
            new_flags.append(False)
        new_gaps.append(gaps[gap])
        if gap < len(tokens):
            new_tokens.append(tokens[gap])
            new_flags.append(flags[gap])
    return new_tokens, new_flags, new_gaps


# Template -------------------------------------------------------------------------------------------------------------


def test_the_free_template_is_flexmdm():
    template = Template.free(Ragged.from_lists([[4, 5, 6], []]))
    assert template.roles.tolist() == [[FREE] * 3, []]
    assert template.open_gaps.tolist() == [[True], [True]]
    assert not bool(template.given.any())


def test_the_template_of_masks_is_mdm():
    template = Template.masks(Ragged.from_lists([[4, 5], []]))
    assert template.roles.tolist() == [[PRESENT] * 2, []]
    assert template.open_gaps.tolist() == [[False] * 3, [False]]
    assert bool(template.given.all())


def test_fixed_tokens_open_exactly_the_gaps_that_hold_free_ones():
    x1 = Ragged.from_lists([[4, 7, 7, 5, 6], [4, 5], []])
    template = Template.fixed(x1, torch.tensor([True, False, False, True, True, True, False]))
    assert template.roles.tolist() == [[FIXED, FREE, FREE, FIXED, FIXED], [FIXED, FREE], []]
    assert template.open_gaps.tolist() == [[False, True, False, False], [False, True], [False]]


def test_gaps_without_free_tokens_may_be_open_too():
    x1 = Ragged.from_lists([[4, 7, 5]])
    template = Template.fixed(x1, torch.tensor([True, False, True]), open_gaps=bools([[True, True, False]]))
    assert template.open_gaps.tolist() == [[True, True, False]]


@thoroughly
@given(st.lists(st.lists(st.sampled_from([FREE, PRESENT, FIXED]), max_size=7), max_size=4))
def test_token_gaps_point_at_the_gap_each_token_is_in_or_ends(roles):
    template = Template.of_roles(Ragged.from_lists(roles))
    expected_open, expected_gap, base = [], [], 0
    for row in roles:
        given_before = list(itertools.accumulate([int(r != FREE) for r in row], initial=0))
        expected_gap += [base + before for before in given_before[:-1]]
        free_in = {before for r, before in zip(row, given_before, strict=False) if r == FREE}
        expected_open.append([gap in free_in for gap in range(given_before[-1] + 1)])
        base += given_before[-1] + 1
    assert template.open_gaps.tolist() == expected_open
    assert template.token_gaps.tolist() == expected_gap


def test_a_free_token_in_a_closed_gap_is_an_error_that_says_where():
    roles = Ragged.from_lists([[FREE], [FIXED, FREE, FREE]])
    with pytest.raises(ValueError, match="sequence 1 .*position 1.*closed gap"):
        Template(roles, bools([[True], [True, False]]))


@pytest.mark.parametrize("gaps", [[[True], [True]], [[True], [True, True, True]], [[True, True], [True]]])
def test_a_template_has_one_more_gap_than_given_tokens(gaps):
    with pytest.raises(ValueError, match=r"one more gap than given tokens.*\[0, 1\]"):
        Template(Ragged.from_lists([[FREE], [FIXED]]), bools(gaps))


def test_a_batch_of_templates_is_indexed_like_its_sequences():
    roles = Ragged.from_lists([[FREE], [FIXED, FREE], [PRESENT]])
    part = Template.of_roles(roles)[torch.tensor([2, 1])]
    assert part.roles.tolist() == [[PRESENT], [FIXED, FREE]]
    assert part.open_gaps.tolist() == [[False, False], [False, True]]


# Canvas ---------------------------------------------------------------------------------------------------------------


def test_by_default_nothing_is_given_and_all_gaps_are_open():
    canvas = Canvas(Ragged.from_lists([[0, MASK], []]), MASK)
    assert canvas.given.tolist() == [[False, False], []]
    assert canvas.open_gaps.tolist() == [[True] * 3, [True]]
    assert canvas.max_length is None
    assert canvas.ids is None


def test_a_canvas_knows_its_masks():
    canvas = Canvas(Ragged.from_lists([[0, MASK], [], [MASK, 1, MASK]]), MASK)
    assert len(canvas) == 3
    assert canvas.lengths.tolist() == [2, 0, 3]
    assert canvas.masks.tolist() == [1, 2, 4]
    assert canvas.is_mask.tolist() == [False, True, True, False, True]
    assert canvas.num_masks.tolist() == [1, 0, 2]
    assert canvas.num_open.tolist() == [3, 1, 4]


@thoroughly
@given(st.lists(states(), min_size=1, max_size=5), st.data())
def test_parts_of_a_canvas_can_be_taken_and_put_together(batch, data):
    canvas = make_canvas(batch)
    index = data.draw(st.lists(st.integers(0, len(batch) - 1), min_size=1, max_size=5))
    assert states_of(canvas[torch.tensor(index)]) == [batch[i] for i in index]
    cut = data.draw(st.integers(0, len(batch)))
    assert states_of(Canvas.cat([canvas[:cut], canvas[cut:]])) == batch


def test_ids_are_taken_along_and_dropped_when_some_have_none():
    tokens = Ragged.from_lists([[0, MASK], [1]])
    canvas = Canvas(tokens, MASK, ids=tokens.with_values(tokens.columns))
    assert canvas[1].ids.tolist() == [[0]]
    assert Canvas.cat([canvas, canvas[0]]).ids.tolist() == [[0, 1], [0], [0, 1]]
    assert Canvas.cat([canvas, Canvas(tokens, MASK)]).ids is None


@thoroughly
@given(st.lists(states(max_length=2), min_size=1, max_size=8))
def test_distinct_states_are_each_listed_once(batch):
    canvas = make_canvas(batch)
    different, which = canvas.distinct()
    assert states_of(different[which]) == batch
    assert len(different) == len({repr(state) for state in batch})


def test_an_empty_batch_has_no_distinct_states():
    different, which = Canvas(Ragged.from_lists([]), MASK).distinct()
    assert len(different) == 0
    assert which.shape == (0,)


def test_flags_and_gaps_make_states_different():
    tokens = [0, MASK]
    batch = [
        (tokens, [False, False], [True, True, True]),
        (tokens, [True, False], [True, True, True]),
        (tokens, [False, False], [True, True, False]),
        ([0], [False], [True, True]),
        (tokens, [False, False], [True, True, True]),
    ]
    different, which = make_canvas(batch).distinct()
    assert len(different) == 4
    assert which[0] == which[4]


def test_flags_may_be_ragged_flat_or_lists():
    tokens = Ragged.from_lists([[0, MASK], []])
    lists = [[True, False], []], [[True, False, True], [False]]
    for shape in (lambda x: x, bools, lambda x: bools(x).values):
        canvas = Canvas(tokens, MASK, given=shape(lists[0]), open_gaps=shape(lists[1]))
        assert canvas.given.tolist() == lists[0]
        assert canvas.open_gaps.tolist() == lists[1]


def test_flags_must_fit_the_tokens():
    tokens = Ragged.from_lists([[0, 1], []])
    with pytest.raises(ValueError, match=r"given.*\[2, 0\].*\[1, 1\]"):
        Canvas(tokens, MASK, given=bools([[True], [True]]))
    with pytest.raises(ValueError, match=r"open_gaps.*\[3, 1\].*\[2, 1\]"):
        Canvas(tokens, MASK, open_gaps=[[True, True], [True]])
    with pytest.raises(ValueError, match="add up to 4"):
        Canvas(tokens, MASK, open_gaps=torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="boolean"):
        Canvas(tokens, MASK, given=tokens)
    with pytest.raises(ValueError, match="boolean"):
        Canvas(tokens, MASK, open_gaps=gaps_of(tokens, torch.ones(4)))


# Insertion and reveal -------------------------------------------------------------------------------------------------


@thoroughly
@given(growing_states())
def test_inserting_masks_is_what_a_slow_loop_does(case):
    batch, counts = case
    grown = make_canvas(batch).insert_masks(flat(counts))
    assert states_of(grown) == [insert_slowly(state, row) for state, row in zip(batch, counts, strict=True)]


@thoroughly
@given(growing_states(), st.data())
def test_insertion_loses_nothing_and_ids_follow_their_entries(case, data):
    batch, counts = case
    canvas = make_canvas(batch)
    canvas = make_canvas(batch, ids=canvas.tokens.with_values(canvas.tokens.columns), max_length=50)
    grown = canvas
    for _ in range(2):  # twice, so that ids that are no longer in order go through an insertion as well
        before = grown
        counts = [
            [data.draw(st.integers(0, 2)) if is_open else 0 for is_open in row] for row in before.open_gaps.tolist()
        ]
        grown = before.insert_masks(flat(counts))
        assert grown.max_length == 50
        for row, (old_ids, new_ids) in enumerate(zip(before.ids.tolist(), grown.ids.tolist(), strict=True)):
            assert sorted(new_ids) == list(range(len(new_ids)))
            assert [i for i in new_ids if i < len(old_ids)] == old_ids
            assert len(new_ids) == len(old_ids) + sum(counts[row])
    for (tokens, flags, _), new_tokens, new_flags, ids in zip(
        batch, grown.tokens.tolist(), grown.given.tolist(), grown.ids.tolist(), strict=True
    ):
        where = {i: index for index, i in enumerate(ids)}
        assert [new_tokens[where[i]] for i in range(len(tokens))] == tokens
        assert [new_flags[where[i]] for i in range(len(tokens))] == flags
        assert all(new_tokens[where[i]] == MASK for i in range(len(tokens), len(ids)))


def test_an_inserted_mask_is_not_given_and_splits_its_gap_into_two_open_ones():
    canvas = make_canvas([([4, 5], [True, True], [False, True, False])])
    grown = canvas.insert_masks(torch.tensor([0, 1, 0]))
    assert states_of(grown) == [([4, MASK, 5], [True, False, True], [False, True, True, False])]
    assert states_of(canvas) == [([4, 5], [True, True], [False, True, False])]


def test_the_gap_mask_of_a_prompt_shifts_as_tokens_are_inserted():
    canvas = Canvas.of_prompts([Prompt.infill([[7], [8], []]), Prompt.prefix([5, 6])], MASK)
    canvas = canvas.insert_masks(torch.tensor([0, 2, 0] + [0, 0, 1]))
    assert canvas.tokens.tolist() == [[7, MASK, MASK, 8], [5, 6, MASK]]
    assert canvas.open_gaps.tolist() == [[False, True, True, True, True], [False, False, True, True]]
    canvas = canvas.insert_masks(torch.tensor([0, 0, 0, 1, 1] + [0, 0, 1, 0]))
    assert canvas.tokens.tolist() == [[7, MASK, MASK, MASK, 8, MASK], [5, 6, MASK, MASK]]
    assert canvas.open_gaps.tolist() == [[False] + [True] * 6, [False, False, True, True, True]]
    assert canvas.given.tolist() == [[True, False, False, False, True, False], [True, True, False, False]]


def test_inserting_nothing_changes_nothing():
    canvas = make_canvas([([4, MASK], [True, False], [False, True, False])])
    assert states_of(canvas.insert_masks(torch.zeros(3, dtype=torch.int64))) == states_of(canvas)
    empty = Canvas(Ragged.from_lists([]), MASK)
    assert len(empty.insert_masks(torch.zeros(0, dtype=torch.int64))) == 0


def test_a_reveal_writes_tokens_and_leaves_flags_gaps_and_the_old_canvas_alone():
    batch = [([MASK, 4, MASK], [True, True, False], [False, False, True, True]), ([MASK], [False], [True, True])]
    canvas = make_canvas(batch)
    revealed = canvas.reveal(torch.tensor([0, 3]), torch.tensor([1, 2]))
    assert revealed.tokens.tolist() == [[1, 4, MASK], [2]]
    assert revealed.given.tolist() == canvas.given.tolist()
    assert revealed.open_gaps.tolist() == canvas.open_gaps.tolist()
    assert states_of(canvas) == batch


def test_revealing_nothing_changes_nothing():
    canvas = Canvas(Ragged.from_lists([[MASK]]), MASK)
    nothing = torch.zeros(0, dtype=torch.int64)
    assert canvas.reveal(nothing, nothing).tokens.tolist() == [[MASK]]


# The length limit -----------------------------------------------------------------------------------------------------


def limited(counts, canvas, seed=0, step=0):
    return canvas.within_limit(counts, StepRandomness(seed, torch.arange(len(canvas)), step))


@thoroughly
@given(growing_states(largest=5), st.integers(0, 12), st.integers(0, 5))
def test_no_sequence_outgrows_the_limit_and_all_room_is_used(case, max_length, seed):
    batch, counts = case
    canvas = make_canvas(batch, max_length=max_length)
    wanted = flat(counts)
    cut = limited(wanted, canvas, seed)
    assert bool(((cut >= 0) & (cut <= wanted)).all())
    kept = Ragged(cut, canvas.open_gaps.lengths).sum().tolist()
    room = [max(0, max_length - len(tokens)) for tokens, _, _ in batch]
    assert kept == [min(sum(row), r) for row, r in zip(counts, room, strict=True)]
    grown = canvas.insert_masks(cut)
    for (tokens, _, _), length in zip(batch, grown.lengths.tolist(), strict=True):
        assert length <= max(max_length, len(tokens))


@thoroughly
@given(growing_states(largest=5), st.integers(0, 12))
def test_the_limit_never_costs_an_old_token(case, max_length):
    batch, counts = case
    canvas = make_canvas(batch, max_length=max_length)
    canvas = make_canvas(batch, max_length=max_length, ids=canvas.tokens.with_values(canvas.tokens.columns))
    grown = canvas.insert_masks(limited(flat(counts), canvas))
    for (tokens, flags, _), state, ids in zip(batch, states_of(grown), grown.ids.tolist(), strict=True):
        old = [index for index, i in enumerate(ids) if i < len(tokens)]
        assert [state[0][index] for index in old] == tokens
        assert [state[1][index] for index in old] == flags


def test_without_a_limit_all_insertions_are_kept():
    canvas = Canvas(Ragged.from_lists([[0]]), MASK)
    assert limited(torch.tensor([100, 100]), canvas).tolist() == [100, 100]


def test_sequences_with_enough_room_are_untouched_by_others_that_have_none():
    canvas = Canvas(Ragged.from_lists([[0, 1, 2], [0]]), MASK, max_length=4)
    assert limited(torch.tensor([2, 2, 2, 2, 1, 2]), canvas)[4:].tolist() == [1, 2]


SEQUENCES = 4000  # of the test below: the standard error of a share is at most 0.5 / sqrt(4000) = 0.008


@pytest.mark.parametrize(
    ("length", "counts", "max_length"),
    [
        (1, [1, 1], 2),
        (1, [1, 3], 3),
        (3, [2, 1, 0, 4], 5),
        (1, [6, 6], 2),  # more in one gap than the limit
        (2, [1, 20, 5], 3),
        (0, [50], 4),
    ],
)
def test_which_insertions_the_limit_keeps_is_unbiased(length, counts, max_length):
    canvas = Canvas(Ragged.from_lists([[0] * length] * SEQUENCES), MASK, max_length=max_length)
    kept = limited(torch.tensor(counts * SEQUENCES), canvas).reshape(SEQUENCES, -1).double()
    total, room = sum(counts), max_length - length
    for gap, count in enumerate(counts):
        share = count / total
        variance = room * share * (1 - share) * (total - room) / max(total - 1, 1)  # hypergeometric
        assert abs(float(kept[:, gap].mean()) - room * share) <= 4 * math.sqrt(variance / SEQUENCES) + 1e-12


def test_the_limit_treats_a_sequence_alike_alone_and_in_a_batch():
    counts = torch.tensor([3, 4, 5])
    batch = Canvas(Ragged.from_lists([[0, 1]] * 5), MASK, max_length=6)
    together = batch.within_limit(counts.repeat(5), StepRandomness(0, torch.arange(5) + 10, 2)).reshape(5, 3)
    for row in range(5):
        alone = batch[row].within_limit(counts, StepRandomness(0, torch.tensor([row + 10]), 2))
        assert torch.equal(alone, together[row])


# rank_within ----------------------------------------------------------------------------------------------------------


@thoroughly
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=20))
def test_ranks_are_counted_within_rows_and_ties_keep_their_order(items):
    items.sort(key=lambda item: item[0])
    expected = [
        sum(r == row and (k, j) < (key, i) for j, (r, k) in enumerate(items)) for i, (row, key) in enumerate(items)
    ]
    rows = torch.tensor([row for row, _ in items], dtype=torch.int64)
    keys = torch.tensor([key for _, key in items], dtype=torch.float64)
    assert rank_within(rows, keys).tolist() == expected


# Prompt ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "tokens", "open_gaps"),
    [
        (Prompt.empty(), (), "o"),
        (Prompt.prefix([7, 8]), (7, 8), "..o"),
        (Prompt.prefix([]), (), "o"),
        (Prompt.infill([[7], [8, 9]]), (7, 8, 9), ".o.."),
        (Prompt.infill([[], [7], []]), (7,), "oo"),
        (Prompt.infill([[], [7, 8]]), (7, 8), "o.."),
        (Prompt.infill([[7], [], [8]]), (7, 8), ".o."),
        (Prompt.infill([[1], [2], [3], []]), (1, 2, 3), ".ooo"),
        (Prompt.through([1, 2, 3]), (1, 2, 3), ".oo."),
        (Prompt.masks(2), (None, None), "..."),
    ],
)
def test_prompts_open_the_gaps_they_say(prompt, tokens, open_gaps):
    assert prompt.tokens == tokens
    assert prompt.open_gaps == tuple(gap == "o" for gap in open_gaps)


def test_pieces_may_be_any_iterables_of_integers():
    assert Prompt.infill(iter([torch.tensor([1, 2]), range(3, 4)])) == Prompt.infill([[1, 2], [3]])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Prompt.infill([[1, 2]]),
        lambda: Prompt.infill([]),
        lambda: Prompt.through([5]),
        lambda: Prompt.masks(0),
        lambda: Prompt((1,), (False, False)),
    ],
)
def test_a_prompt_that_leaves_nothing_to_generate_is_an_error(make):
    with pytest.raises(ValueError, match="nothing to generate.*open a gap"):
        make()


def test_a_prompt_has_one_more_gap_than_tokens():
    with pytest.raises(ValueError, match="a prompt of 2 tokens has 3 gaps, got 2"):
        Prompt((1, None), (True, True))


def test_a_canvas_of_prompts_has_everything_given():
    prompts = [Prompt.empty(), Prompt((3, None), (False, True, False)), Prompt.prefix([4])]
    canvas = Canvas.of_prompts(prompts, MASK, max_length=7)
    assert states_of(canvas) == [
        ([], [], [True]),
        ([3, MASK], [True, True], [False, True, False]),
        ([4], [True], [False, True]),
    ]
    assert canvas.mask_id == MASK
    assert canvas.max_length == 7


@pytest.mark.parametrize("sampler", ["tau", "adaptive", "spaced"])
def test_gaps_of_a_prompt_keep_to_their_minimum_and_maximum(sampler):
    """Every gap of an infilling gets 1 to 3 tokens from a source that would like about 20."""
    source = HiddenMarkovSource(
        torch.tensor([1.0, 0.0]),
        torch.tensor([[0.5, 0.45], [0.45, 0.5]]),
        torch.tensor([0.05, 0.05]),
        torch.tensor([0, 1]),
        vocab_size=2,
    )
    prompt = Prompt.infill([[0], [1, 1], [0]], minimum=1, maximum=3)
    out = generate(source.denoiser(), 300, prompts=[prompt, Prompt.infill([[0], [1]])], sampler=sampler, steps=16)
    limited, unlimited = out.sequences[:300], out.sequences[300:]
    for sequence, flags in zip(limited, out.given, strict=False):
        fixed = [n for n, flag in enumerate(flags) if flag]
        assert [sequence[n] for n in fixed if n not in (fixed[1], fixed[4])] == [0, 1, 1, 0]
        first, second = fixed[2] - fixed[0] - 1, fixed[5] - fixed[3] - 1
        assert 1 <= first <= 3 and 1 <= second <= 3
    assert max(map(len, limited)) == 10  # both full
    assert max(map(len, unlimited)) > 10


def test_a_prompt_refuses_a_maximum_below_its_minimum():
    with pytest.raises(ValueError, match="0 <= minimum <= maximum; got 3 to 2"):
        Prompt.infill([[1], [2]], minimum=3, maximum=2)
    with pytest.raises(ValueError, match="nothing to generate"):
        Prompt.infill([[1], [2]], minimum=0, maximum=0)
    assert Prompt.infill([[1], [2]], minimum=2, maximum=2).tokens == (1, None, None, 2)
    assert not any(Prompt.infill([[1], [2]], minimum=2, maximum=2).open_gaps)


def test_every_gap_of_a_prompt_may_have_limits_of_its_own():
    prompt = Prompt.infill([[1], [2], []], minimum=[2, 0], maximum=[2, 3])
    assert prompt.tokens == (1, None, None, 2) and prompt.open_gaps == (False, False, False, False, True)
    assert prompt.limits == (None, None, None, 0, 3)
    assert Prompt.infill([[1], [2], []], [1, 1], [4, 4]) == Prompt.infill([[1], [2], []], 1, 4)
    with pytest.raises(ValueError, match=r"one for each of the 2, got \[1\]"):
        Prompt.infill([[1], [2], []], minimum=[1])
    with pytest.raises(ValueError, match="0 <= minimum <= maximum; got 3 to 2"):
        Prompt.infill([[1], [2], []], minimum=[0, 3], maximum=[1, 2])
