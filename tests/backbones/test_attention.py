"""Where packed rows go, and attention within each sequence, against plain attention one sequence at a time."""

import math
from functools import partial
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flexmdm.backbones import attention, dit
from flexmdm.backbones.attention import Layout, attend, prefers_varlen, rotate

HEADS, WIDTH = 2, 6
lengths_of_any_kind = st.lists(st.one_of(st.integers(0, 6), st.integers(0, 60)), max_size=14)
on_any_lengths = settings(max_examples=30, deadline=None)


def rows(count, seed=0):
    """Queries, keys and values."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(count, HEADS, WIDTH, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(3)
    ]


def plain_attention(q, k, v, window=None):
    """Softmax attention of one sequence, ``[n, H, E]`` -> ``[n, H * E]``."""
    score = torch.einsum("ihe,jhe->hij", q, k) / math.sqrt(q.shape[-1])
    if window is not None:
        position = torch.arange(len(q))
        score = score.masked_fill((position[:, None] - position).abs() >= window, -math.inf)
    return torch.einsum("hij,jhe->ihe", score.softmax(-1), v).flatten(1)


def one_at_a_time(q, k, v, lengths, window=None):
    parts = zip(*(x.split(lengths) for x in (q, k, v)), strict=True)
    return torch.cat([plain_attention(*part, window) for part in parts])


def reference_varlen(q, k, v, bounds_q, bounds_k, longest_q, longest_k, *, scale=None, window_size=(-1, -1)):
    """What the kernel for variable lengths promises, and what it asks for."""
    assert bounds_q.dtype == bounds_k.dtype == torch.int32
    assert q.is_contiguous() and k.is_contiguous() and v.is_contiguous()
    assert longest_q >= max(bounds_q.diff().tolist(), default=0) and longest_k >= max(
        bounds_k.diff().tolist(), default=0
    )
    out = torch.empty_like(q)
    for queries, keys in zip(pairwise(bounds_q), pairwise(bounds_k), strict=True):
        one = (q[slice(*queries)], k[slice(*keys)], v[slice(*keys)])
        i, j = torch.arange(len(one[0]))[:, None] + len(one[1]) - len(one[0]), torch.arange(len(one[1]))
        near = (i - j).abs() <= window_size[0] if window_size[0] >= 0 else None
        mixed = F.scaled_dot_product_attention(*(x.transpose(0, 1) for x in one), attn_mask=near, scale=scale)
        out[slice(*queries)] = mixed.transpose(0, 1)
    return out


# Layout ---------------------------------------------------------------------------------------------------------------


@given(lengths_of_any_kind)
@on_any_lengths
def test_a_row_knows_its_sequence_and_its_place_in_it(lengths):
    layout = Layout.of(torch.tensor(lengths, dtype=torch.int64))
    assert layout.sequence.tolist() == [b for b, n in enumerate(lengths) for _ in range(n)]
    assert layout.position.tolist() == [i for n in lengths for i in range(n)]
    assert layout.offsets.tolist() == [sum(lengths[:b]) for b in range(len(lengths) + 1)]
    assert layout.longest == max(lengths, default=0)


@given(lengths_of_any_kind)
@example([])
@example([0, 0])
@example([10] * 10 + [0])
@on_any_lengths
def test_every_row_is_in_exactly_one_place_and_padding_is_no_key(lengths):
    layout = Layout.of(torch.tensor(lengths, dtype=torch.int64))
    slots, real = layout.slots, [torch.ones(0, dtype=torch.bool)]
    for bucket, rows in zip(
        layout.buckets, slots.split([b * w for b, w in (x.shape for x in layout.buckets)]), strict=True
    ):
        b, w = bucket.shape
        keys = torch.ones(b, w, dtype=torch.bool) if bucket.keys is None else bucket.keys.view(b, w)
        member = layout.sequence[rows].view(b, w)
        assert bool((member == member[:, :1]).all()), "a row of a bucket belongs to one sequence, padding too"
        assert torch.equal(keys, torch.arange(w) < torch.tensor(lengths)[member[:, 0], None])
        real.append(keys.flatten())
    everything, real = torch.arange(sum(lengths)), torch.cat(real)
    assert torch.equal(slots[real].sort().values, everything)
    assert torch.equal(slots[layout.back], everything) and bool(real[layout.back].all())


@given(lengths_of_any_kind)
@on_any_lengths
def test_no_bucket_is_padded_by_more_than_15_percent(lengths):
    for bucket in Layout.of(torch.tensor(lengths, dtype=torch.int64)).buckets:
        assert bucket.keys is None or float(bucket.keys.float().mean()) >= 0.85


def test_there_are_few_buckets():
    generator = torch.Generator().manual_seed(0)
    assert len(Layout.of(torch.full((64,), 17)).buckets) == 1
    assert len(Layout.of(torch.randint(40, 50, (64,), generator=generator)).buckets) == 1
    assert len(Layout.of(torch.randint(1, 1025, (64,), generator=generator)).buckets) < 20


# Attention ------------------------------------------------------------------------------------------------------------


@given(lengths_of_any_kind)
@example([])
@example([0, 0])
@example([10] * 10 + [0])
@example([0] + [10] * 10)
@on_any_lengths
@pytest.mark.parametrize("window", [None, 1, 3])
def test_attention_stays_within_each_sequence_and_within_its_window(window, lengths):
    layout, qkv = Layout.of(torch.tensor(lengths, dtype=torch.int64)), rows(sum(lengths))
    out = attend(*qkv, layout, window=window)
    assert out.shape == (sum(lengths), HEADS * WIDTH)
    if not sum(lengths):
        return
    expected = one_at_a_time(*qkv, lengths, window)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    direction = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out)
    gradients, truth = (torch.autograd.grad((x * direction).sum(), qkv) for x in (out, expected))
    torch.testing.assert_close(gradients, truth, rtol=0, atol=1e-12)


@given(lengths_of_any_kind)
@example([])
@example([0, 0])
@example([32] * 40)
@on_any_lengths
def test_in_bins_each_row_has_a_slot_and_attention_stays_within_each_sequence(lengths):
    qkv, packed = rows(sum(lengths)), Layout.of(torch.tensor(lengths, dtype=torch.int64))
    bins = packed.in_bins()
    count, _, width, _ = bins.bias.shape
    assert len(bins.slots) == count * width and width % 32 == 0 and width >= packed.longest
    assert torch.equal(bins.slots[bins.back], torch.arange(sum(lengths)))
    assert torch.equal(bins.sequence[bins.back], packed.sequence)
    assert torch.equal(bins.position[bins.back], packed.position)
    if not sum(lengths):
        return
    out = attend(*(x.index_select(0, bins.slots) for x in qkv), bins)[bins.back]
    expected = attend(*qkv, packed)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    direction = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out)
    gradients, truth = (torch.autograd.grad((x * direction).sum(), qkv) for x in (out, expected))
    torch.testing.assert_close(gradients, truth, rtol=0, atol=1e-12)


def test_bins_of_a_batch_are_nearly_full_and_have_few_shapes():
    shapes = set()
    for seed in range(30):
        lengths = torch.randint(4, 40, (512,), generator=torch.Generator().manual_seed(seed))
        bins = Layout.of(lengths).in_bins()
        shapes.add(bins.bias.shape)
        assert int(lengths.sum()) >= 0.9 * len(bins.slots)
    assert len(shapes) <= 4


@given(lengths_of_any_kind)
@example([])
@on_any_lengths
@pytest.mark.parametrize("window", [None, 3])
def test_the_kernel_for_variable_lengths_is_asked_for_the_same(window, lengths):
    lengths, qkv = torch.tensor(lengths, dtype=torch.int64), rows(sum(lengths))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.nn.attention.varlen.varlen_attn", reference_varlen)
        layout = Layout.of(lengths, varlen=True)
        assert layout.buckets is None
        by_kernel, by_buckets = (attend(*qkv, x, window=window) for x in (layout, Layout.of(lengths)))
        torch.testing.assert_close(by_kernel, by_buckets, rtol=0, atol=1e-12)


@given(lengths_of_any_kind)
@example([0, 3, 0, 7, 3])
@on_any_lengths
@pytest.mark.parametrize("window", [None, 3])
def test_an_unseen_last_row_sees_all_in_its_window_and_is_seen_by_itself_alone(window, lengths):
    lengths = torch.tensor(lengths, dtype=torch.int64) + 1
    q, k, v = rows(int(lengths.sum()))
    layout = Layout.of(lengths, unseen_last=True)
    last, mixed = layout.is_last, attend(q, k, v, layout, window=window)
    undisturbed = attend(*(x[~last] for x in (q, k, v)), Layout.of(lengths - 1), window=window)
    torch.testing.assert_close(mixed[~last], undisturbed, rtol=0, atol=1e-12)
    all_seen = attend(q, k, v, Layout.of(lengths), window=window)
    torch.testing.assert_close(mixed[last], all_seen[last], rtol=0, atol=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.nn.attention.varlen.varlen_attn", reference_varlen)
        by_kernel = attend(q, k, v, Layout.of(lengths, varlen=True, unseen_last=True), window=window)
    torch.testing.assert_close(by_kernel, mixed, rtol=0, atol=1e-12)


def test_the_network_says_the_same_with_either_kernel(network, monkeypatch):
    lengths = torch.tensor([4, 0, 11, 4])
    tokens, flags = torch.arange(19) % 8, torch.arange(23) % 3 > 0
    batch = (tokens, lengths, flags[:19], flags, torch.tensor([0.1, 0.2, 0.5, 0.9]))
    logits, insertions = network(*batch)
    monkeypatch.setattr(dit, "prefers_varlen", lambda device, dtype: True)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", reference_varlen)
    monkeypatch.setattr(attention, "_buckets", None)  # not to be called
    other_logits, other_insertions = network(*batch)
    torch.testing.assert_close(other_logits, logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(other_insertions, insertions, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("device", "dtype", "preferred"),
    [
        ("cuda", torch.bfloat16, True),
        ("cuda", torch.float16, True),
        ("cuda", torch.float32, False),
        ("cpu", torch.bfloat16, False),
        ("mps", torch.float16, False),
    ],
)
def test_the_kernel_for_variable_lengths_is_for_half_precision_on_cuda(device, dtype, preferred):
    assert prefers_varlen(torch.device(device), dtype) == preferred


@pytest.mark.parametrize(("device", "preferred"), [("cuda", True), ("cpu", False), ("meta", False)])
def test_under_autocast_its_precision_decides_and_not_that_of_the_weights(device, preferred, monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: True)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.bfloat16)
    assert prefers_varlen(torch.device(device), torch.float32) == preferred
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.float32)
    assert not prefers_varlen(torch.device(device), torch.bfloat16)


@pytest.mark.parametrize("unseen_last", [False, True])
def test_under_autocast_the_kernel_for_variable_lengths_gets_one_half_precision(unseen_last, monkeypatch):
    """Queries and keys come rotated in float32, values as the projection made them."""
    seen = set()

    def kernel(q, k, v, *bounds, **options):
        seen.update((q.dtype, k.dtype, v.dtype))
        return reference_varlen(q, k, v, *bounds, **options)

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)
    lengths = torch.tensor([4, 1, 11])
    q, k, v = (x.float() for x in rows(16))
    with torch.autocast("cpu", torch.bfloat16):
        layouts = [Layout.of(lengths, varlen, unseen_last) for varlen in (True, False)]
        by_kernel, by_buckets = (attend(q, k, v.bfloat16(), layout) for layout in layouts)
    assert seen == {torch.bfloat16} and by_kernel.dtype == by_buckets.dtype == torch.bfloat16
    torch.testing.assert_close(by_kernel, by_buckets, rtol=0, atol=0.02)


def test_the_network_under_autocast_reaches_the_kernel_for_variable_lengths(network, monkeypatch):
    """As on CUDA, with the CPU in its place."""
    seen = set()

    def kernel(q, k, v, *bounds, **options):
        seen.update((q.dtype, k.dtype, v.dtype))
        return reference_varlen(q, k, v, *bounds, **options)

    lengths = torch.tensor([4, 0, 11])
    tokens, flags = torch.arange(15) % 8, torch.arange(18) % 3 > 0
    batch = (tokens, lengths, flags[:15], flags, torch.tensor([0.1, 0.2, 0.5]))
    on_cuda = partial(prefers_varlen, torch.device("cuda"))
    monkeypatch.setattr(dit, "prefers_varlen", lambda device, dtype: on_cuda(dtype))
    enabled, dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: enabled("cpu"))
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: dtype("cpu"))
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)
    network(*batch)
    assert not seen  # in full precision there is no such kernel
    with torch.autocast("cpu", torch.bfloat16):
        logits, insertions = network(*batch)
    assert seen == {torch.bfloat16}
    expected_logits, expected = network(*batch)
    torch.testing.assert_close(logits.float(), expected_logits, rtol=0, atol=0.15)
    torch.testing.assert_close(insertions, expected, rtol=0, atol=0.15)


# Positions ------------------------------------------------------------------------------------------------------------


def test_a_query_and_a_key_meet_at_their_distance_alone():
    """The score of a rotated pair depends on how far apart they are, not on where: q_i . k_j = s(i - j)."""
    n, width = 12, 8
    layout = Layout.of(torch.tensor([n]))
    q, k = torch.randn(2, 1, 1, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    q, k = (rotate(x.expand(n, 1, width), layout.rotation(width, torch.float64)).squeeze(1) for x in (q, k))
    score = q @ k.T
    for shift in range(1, n):
        for diagonal in (score.diagonal(shift), score.diagonal(-shift)):
            torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-6)
    assert float((score[0] - score[0, 0]).abs()[1:].min()) > 1e-3  # and it does depend on that
    assert not torch.allclose(score, score.T, atol=1e-3)  # and on which comes first
    torch.testing.assert_close(q.norm(dim=1), q.norm(dim=1)[:1].expand(n), rtol=0, atol=1e-6)


def test_positions_start_anew_in_every_sequence():
    cos, sin = Layout.of(torch.tensor([3, 0, 5])).rotation(8, torch.float32)
    assert torch.equal(cos[:3], cos[3:6]) and torch.equal(sin[:3], sin[3:6])
    assert torch.equal(cos[0], torch.ones_like(cos[0])) and torch.equal(sin[0], torch.zeros_like(sin[0]))
