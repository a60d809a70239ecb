import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flexmdm.sequences import Ragged

batches = st.lists(st.lists(st.integers(-(2**40), 2**40), max_size=6), max_size=6)
quickly = settings(max_examples=60, deadline=None)


# Round trips ----------------------------------------------------------------------------------------------------------


@quickly
@given(batches)
def test_lists_come_back_as_they_went_in(lists):
    ragged = Ragged.from_lists(lists)
    assert ragged.tolist() == lists
    assert len(ragged) == len(lists)
    assert ragged.max_length == max((len(x) for x in lists), default=0)
    assert [x.tolist() for x in ragged.split()] == lists


@quickly
@given(batches, st.integers(-3, 3))
def test_padding_and_unpadding_is_the_identity(lists, fill):
    ragged = Ragged.from_lists(lists)
    padded = ragged.to_padded(fill)
    assert padded.shape == (len(lists), ragged.max_length)
    for row, sequence in zip(padded.tolist(), lists, strict=True):
        assert row == sequence + [fill] * (ragged.max_length - len(sequence))
    assert Ragged.from_padded(padded, ragged.lengths).tolist() == lists


@quickly
@given(batches)
def test_rows_columns_and_offsets_say_where_each_entry_is(lists):
    ragged = Ragged.from_lists(lists)
    assert ragged.rows.tolist() == [b for b, sequence in enumerate(lists) for _ in sequence]
    assert ragged.columns.tolist() == [i for sequence in lists for i in range(len(sequence))]
    assert ragged.offsets.tolist() == [sum(len(x) for x in lists[:b]) for b in range(len(lists) + 1)]


def test_trailing_dimensions_are_carried_along():
    values = torch.arange(24.0).reshape(4, 3, 2)
    ragged = Ragged(values, torch.tensor([1, 0, 3]))
    padded = ragged.to_padded(-1.0)
    assert padded.shape == (3, 3, 3, 2)
    assert torch.equal(padded[0, 0], values[0])
    assert bool((padded[1] == -1).all())
    assert torch.equal(padded[2], values[1:])
    back = Ragged.from_padded(padded, ragged.lengths)
    assert torch.equal(back.values, values)
    assert torch.equal(ragged[2].values, values[1:])
    assert torch.equal(ragged.sum(), torch.stack([values[0], torch.zeros(3, 2), values[1:].sum(0)]))


def test_the_dtype_is_kept():
    ragged = Ragged.from_lists([[True], [False, True]], dtype=torch.bool)
    assert ragged.values.dtype == torch.bool
    assert ragged.to_padded(False).dtype == torch.bool
    assert ragged[1].values.dtype == torch.bool


def test_lengths_of_any_integer_type_become_int64():
    assert Ragged(torch.zeros(3), torch.tensor([1, 2], dtype=torch.int32)).lengths.dtype == torch.int64


# Empty things ---------------------------------------------------------------------------------------------------------


def test_the_empty_batch_has_no_sequences():
    empty = Ragged.from_lists([])
    assert len(empty) == 0
    assert empty.tolist() == []
    assert empty.split() == []
    assert empty.max_length == 0
    assert empty.offsets.tolist() == [0]
    assert empty.to_padded(0).shape == (0, 0)
    assert empty.sum().shape == (0,)
    assert empty[:].tolist() == []


def test_a_batch_of_empty_sequences_keeps_them():
    ragged = Ragged.from_lists([[], [], []])
    assert ragged.tolist() == [[], [], []]
    assert ragged.to_padded(0).shape == (3, 0)
    assert ragged.sum().tolist() == [0, 0, 0]
    assert ragged[torch.tensor([1, 1])].tolist() == [[], []]
    assert Ragged.from_padded(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64)).tolist() == [[], [], []]


# Parts ----------------------------------------------------------------------------------------------------------------


@quickly
@given(batches.filter(bool), st.data())
def test_indexing_picks_sequences_as_a_list_would(lists, data):
    ragged = Ragged.from_lists(lists)
    number = data.draw(st.integers(-len(lists), len(lists) - 1))
    assert ragged[number].tolist() == [lists[number]]
    some = data.draw(st.slices(len(lists)).filter(lambda s: s.step is None or s.step > 0))
    assert ragged[some].tolist() == lists[some]
    indices = data.draw(st.lists(st.integers(-len(lists), len(lists) - 1), max_size=5))
    assert ragged[torch.tensor(indices, dtype=torch.int64)].tolist() == [lists[i] for i in indices]
    flags = data.draw(st.lists(st.booleans(), min_size=len(lists), max_size=len(lists)))
    assert ragged[torch.tensor(flags)].tolist() == [x for x, flag in zip(lists, flags, strict=True) if flag]


def test_an_index_that_is_not_there_is_an_error():
    with pytest.raises(IndexError):
        Ragged.from_lists([[1], [2]])[2]


@quickly
@given(batches, st.data())
def test_keep_count_and_sum_work_sequence_by_sequence(lists, data):
    ragged = Ragged.from_lists(lists)
    size = sum(len(x) for x in lists)
    flags = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    mask, flag = torch.tensor(flags, dtype=torch.bool), iter(flags)
    kept = [[value for value in sequence if next(flag)] for sequence in lists]
    assert ragged.keep(mask).tolist() == kept
    assert ragged.count(mask).tolist() == [len(x) for x in kept]
    assert ragged.sum().tolist() == [sum(x) for x in lists]
    assert ragged.sum(2 * ragged.values).tolist() == [2 * sum(x) for x in lists]


@quickly
@given(st.lists(batches, min_size=1, max_size=4))
def test_cat_puts_batches_one_after_the_other(parts):
    assert Ragged.cat([Ragged.from_lists(part) for part in parts]).tolist() == [x for part in parts for x in part]


def test_with_values_keeps_the_lengths():
    ragged = Ragged.from_lists([[1, 2], [], [3]])
    assert ragged.with_values(torch.tensor([0.5, 1.5, 2.5])).tolist() == [[0.5, 1.5], [], [2.5]]


def test_moving_to_a_device_moves_values_and_lengths():
    ragged = Ragged.from_lists([[1, 2], []]).to("cpu")
    assert ragged.device == ragged.lengths.device == torch.device("cpu")
    assert ragged.tolist() == [[1, 2], []]


def test_the_repr_shows_small_batches_and_sums_up_large_ones():
    assert repr(Ragged.from_lists([[1], []])) == "Ragged([[1], []])"
    assert repr(Ragged.from_lists([[0] * 60, [1] * 5])) == "Ragged(2 sequences, 65 values)"


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [[1, 2], [1], [], [0]])
def test_lengths_that_do_not_add_up_are_an_error(lengths):
    with pytest.raises(ValueError, match=rf"lengths add up to {sum(lengths)} .*2"):
        Ragged(torch.tensor([5, 6]), torch.tensor(lengths, dtype=torch.int64))


def test_negative_lengths_are_an_error_that_shows_them():
    with pytest.raises(ValueError, match=r"negative.*\[3, -1\]"):
        Ragged(torch.tensor([5, 6]), torch.tensor([3, -1]))


@pytest.mark.parametrize("lengths", [torch.tensor([1.0, 1.0]), torch.tensor([[1, 1]]), torch.tensor(2)])
def test_lengths_must_be_a_row_of_integers(lengths):
    with pytest.raises(ValueError, match="1-D integer"):
        Ragged(torch.tensor([5, 6]), lengths)


def test_values_need_at_least_one_dimension():
    with pytest.raises(ValueError, match="lengths add up to 1"):
        Ragged(torch.tensor(5), torch.tensor([1]))


def test_values_and_lengths_on_different_devices_are_an_error():
    with pytest.raises(ValueError, match="meta.*move one"):
        Ragged(torch.tensor([5, 6]), torch.tensor([2], device="meta"))


def test_a_padded_tensor_that_is_too_narrow_is_an_error():
    with pytest.raises(ValueError, match="length of 3 does not fit in a width of 2"):
        Ragged.from_padded(torch.zeros(2, 2), torch.tensor([1, 3]))


@pytest.mark.parametrize("padded", [torch.zeros(3, 2), torch.zeros(2)])
def test_a_padded_tensor_needs_one_row_per_length(padded):
    with pytest.raises(ValueError, match="B = 2"):
        Ragged.from_padded(padded, torch.tensor([1, 1]))


def test_concatenating_nothing_is_an_error():
    with pytest.raises(ValueError, match="at least one"):
        Ragged.cat([])
