"""A store gives back the sequences that were written, in any order."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flexmdm.data.stores import StoreWriter, TokenStore, token_dtype


def written(folder, batches, size=70_000):
    writer = StoreWriter(folder, "some", token_dtype(size))
    for batch in batches:
        writer.append([np.array(sequence, dtype=np.uint32) for sequence in batch], [len(batch)] * len(batch))
    return TokenStore.open(folder, "some", token_dtype(size))


sequences = st.lists(st.integers(0, 69_999), min_size=1, max_size=5)


@settings(max_examples=30)
@given(st.lists(st.lists(sequences, max_size=4), min_size=1, max_size=4).filter(any), st.data())
def test_take_gives_what_a_list_would(tmp_path_factory, batches, data):
    store = written(tmp_path_factory.mktemp("store"), batches)
    expected = [sequence for batch in batches for sequence in batch]
    assert len(store) == len(expected)
    index = data.draw(st.lists(st.integers(-len(expected), len(expected) - 1), max_size=8))
    taken = store.take(torch.tensor(index, dtype=torch.int64))
    assert taken.tolist() == [expected[i] for i in index]
    assert taken.values.dtype == taken.lengths.dtype == torch.int64


def test_lengths_and_characters_are_tensors(tmp_path):
    store = written(tmp_path, [[[1, 2, 3], [4]], [[5, 6]]])
    assert store.lengths.tolist() == [3, 1, 2] and store.lengths.dtype == torch.int64
    assert store.characters.tolist() == [2, 2, 1] and store.characters.dtype == torch.int64


def test_the_tokens_stay_on_disk_and_are_as_small_as_the_vocabulary_allows(tmp_path):
    store = written(tmp_path, [[[1, 65_535]]], size=65_536)
    assert isinstance(store._tokens, np.memmap)
    assert (tmp_path / "some.tokens.bin").stat().st_size == 2 * 2
    assert store.take(torch.tensor([0])).tolist() == [[1, 65_535]]
    assert token_dtype(65_537) == np.uint32


def test_sequences_know_their_prompts(tmp_path):
    writer = StoreWriter(tmp_path, "pairs", token_dtype(10))
    writer.append([np.array([1, 2, 3]), np.array([4])], [5, 0], [2, 1])
    writer.append([], [], [])
    writer.append([np.array([5, 6])], [7], [0])
    store = TokenStore.open(tmp_path, "pairs", token_dtype(10))
    assert store.prompts.tolist() == [2, 1, 0] and store.characters.tolist() == [5, 0, 7]
    assert written(tmp_path, [[[1, 2], [3]]]).prompts.tolist() == [0, 0]
