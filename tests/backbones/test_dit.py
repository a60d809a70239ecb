"""The network: the same answers in any company, work only where it is needed, and a sane start.

Batches are canvases whose mask is token 7, as the network wants it. Every parameter is random unless a test says that
it is about the initialisation, where most of the network is silent.
"""

import copy
import math
import shutil
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from flexmdm import Canvas, Ragged
from flexmdm.backbones import dit
from flexmdm.backbones.attention import Layout, prefers_bins
from flexmdm.backbones.dit import Block, Clock, DiT, hashed_pairs
from flexmdm.backbones.heads import GapHead, Regions
from flexmdm.backbones.model import FlexMDMConfig

V = 7  # tokens; the mask is token 7
SMALL = {"vocab_size": V, "hidden": 32, "layers": 2, "heads": 4, "condition": 16}
NO_MASKS, SOME_MASKS, ONLY_MASKS = 0.0, 0.4, 1.0


def states(lengths, masks=SOME_MASKS, seed=0):
    """Random tokens, masks and flags for sequences of these lengths, and their clocks."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor(lengths, dtype=torch.int64)
    total, gaps = int(lengths.sum()), int(lengths.sum()) + len(lengths)
    tokens = torch.randint(0, V, (total,), generator=generator)
    tokens[torch.rand(total, generator=generator) < masks] = V
    given_flags = torch.rand(total, generator=generator) < 0.3
    open_gaps = torch.rand(gaps, generator=generator) < 0.7
    canvas = Canvas(Ragged(tokens, lengths), mask_id=V, given=given_flags, open_gaps=open_gaps)
    return canvas, torch.rand(len(lengths), generator=generator)


def ask(network, canvas, alpha):
    """log f ``[M, V]`` and g ``[N + B]``."""
    logits, insertions = network(
        canvas.tokens.values, canvas.lengths, canvas.given.values, canvas.open_gaps.values, alpha
    )
    return logits.log_softmax(1), insertions


def ask_padded(network, canvas, alpha):
    """The same, the ordinary way: ``[B, W, D]`` with padding behind every sequence and keys that are masked out."""
    size, width = len(canvas), canvas.tokens.max_length + 1
    column = torch.zeros(size, 1, dtype=torch.int64)
    ids = torch.cat([column + V + 1, canvas.tokens.to_padded(0)], 1)  # [B, W]: the start, the entries, padding
    flags = torch.cat([column, canvas.given.to_padded(False).long()], 1)
    real = torch.arange(width) <= canvas.lengths[:, None]
    is_open = canvas.open_gaps.to_padded(False).long().view(size, width)
    x = network.embedding(ids) + network.given(flags) + network.open(is_open)

    angle = 1000 * alpha[:, None] * torch.exp(-math.log(10_000) * torch.arange(128) / 128)
    condition = network.clock.mlp(torch.cat([angle.cos(), angle.sin()], 1))[:, None]  # [B, 1, C]

    for block in network.blocks:
        heads, per_head = block.heads, x.shape[-1] // block.heads
        shift1, scale1, gate1, shift2, scale2, gate2 = block.modulation(condition).chunk(6, -1)
        q, k, v = block.qkv(F.layer_norm(x, x.shape[-1:]) * (1 + scale1) + shift1).chunk(3, -1)
        q, k, v = (y.view(size, width, heads, per_head).transpose(1, 2) for y in (q, k, v))  # [B, H, W, E]
        score = turned(q) @ turned(k).transpose(-1, -2) / math.sqrt(per_head)
        weights = score.masked_fill(~real[:, None, None], -torch.inf).softmax(-1)
        mixed = (weights @ v).transpose(1, 2).flatten(2)
        x = x + gate1 * block.merge(mixed)
        y = F.layer_norm(x, x.shape[-1:]) * (1 + scale2) + shift2
        x = x + gate2 * block.narrow(F.gelu(block.widen(y), approximate="tanh"))

    shift, scale = network.modulation(condition).chunk(2, -1)
    x = F.layer_norm(x, x.shape[-1:]) * (1 + scale) + shift
    log_f = network.token_head(x[(ids == V) & real]).log_softmax(1)

    right = torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], 1).masked_fill(~real.roll(-1, 1)[..., None], 0.0)
    right[:, -1] = 0.0
    level, slope = network.insertion_head.mlp(torch.cat([x, right], -1)).unbind(-1)
    expected_gap = 1.0
    g = F.softplus(math.log(math.exp(expected_gap) - 1) + level + F.softplus(slope) * torch.log(1 - alpha)[:, None])
    return log_f, g[real] * canvas.open_gaps.values


def turned(x):
    """Rotary positions for ``[B, H, W, E]``: pair e with e + E/2 as one complex number and turn it by its position."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * 10_000.0 ** (-torch.arange(half) / half)
    z = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([z.real, z.imag], -1)


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def any_batch(most=8, longest=24):
    def decorate(test):
        for lengths, masks in [([], 0.4), ([0], 0.4), ([0, 0, 0], 0.4), ([9], 0.4), ([5, 0, 5], 1.0), ([3, 8], 0.0)]:
            test = example(lengths=lengths, masks=masks, seed=1)(test)
        return given(
            lengths=st.lists(st.integers(0, longest), max_size=most),
            masks=st.sampled_from([NO_MASKS, SOME_MASKS, ONLY_MASKS]),
            seed=st.integers(0, 2**31),
        )(settings(max_examples=15, deadline=None)(test))

    return decorate


# The company of other sequences ---------------------------------------------------------------------------------------


@any_batch()
def test_a_sequence_gets_the_same_answer_alone_and_in_a_batch(network, lengths, masks, seed):
    canvas, alpha = states(lengths, masks, seed)
    log_f, g = ask(network, canvas, alpha)
    assert log_f.shape == (int(canvas.num_masks.sum()), V) and g.shape == (sum(lengths) + len(lengths),)
    alone = [ask(network, canvas[b], alpha[b : b + 1]) for b in range(len(canvas))]
    same(torch.cat([log_f[:0], *(a[0] for a in alone)]), log_f)
    same(torch.cat([g[:0], *(a[1] for a in alone)]), g)


@any_batch()
def test_the_order_of_the_sequences_makes_no_difference(network, lengths, masks, seed):
    canvas, alpha = states(lengths, masks, seed)
    order = torch.randperm(len(canvas), generator=torch.Generator().manual_seed(seed))
    log_f, g = ask(network, canvas, alpha)
    log_f, g = Ragged(log_f, canvas.num_masks), Ragged(g, canvas.lengths + 1)
    shuffled_log_f, shuffled_g = ask(network, canvas[order], alpha[order])
    same(shuffled_log_f, log_f[order].values)
    same(shuffled_g, g[order].values)


@any_batch()
def test_packed_and_padded_are_the_same_network(network, lengths, masks, seed):
    canvas, alpha = states(lengths, masks, seed)
    for packed, padded in zip(ask(network, canvas, alpha), ask_padded(network, canvas, alpha), strict=True):
        same(packed, padded)


@any_batch(most=5, longest=12)
def test_gradients_add_up_over_the_sequences_and_are_those_of_the_padded_network(network, lengths, masks, seed):
    canvas, alpha = states(lengths, masks, seed)
    parameters = list(network.parameters())
    direction = torch.linspace(-1, 1, V)

    def gradients(asked, canvas, alpha):
        log_f, g = asked(network, canvas, alpha)
        loss = ((log_f @ direction).sum() + g.square().sum()) / (sum(lengths) + len(lengths))
        return torch.autograd.grad(loss, parameters)

    alone = [gradients(ask, canvas[b], alpha[b : b + 1]) for b in range(len(canvas))]
    packed = gradients(ask, canvas, alpha) if alone else []
    padded = gradients(ask_padded, canvas, alpha) if alone else []
    for gradient, reference, *parts in zip(packed, padded, *alone, strict=True):
        same(gradient, sum(parts))
        same(gradient, reference)


WORD = [1, V, 2, 3, V, 4]
OTHERS = {
    "a token": Canvas(Ragged.from_lists([[1, V, 2, 5, V, 4]]), V),
    "the order": Canvas(Ragged.from_lists([[1, V, 3, 2, V, 4]]), V),
    "one more": Canvas(Ragged.from_lists([[*WORD, 6]]), V),
    "a given flag": Canvas(Ragged.from_lists([WORD]), V, given=[[False] * 5 + [True]]),
    "an open flag": Canvas(Ragged.from_lists([WORD]), V, open_gaps=[[True] * 6 + [False]]),
    "the clock": Canvas(Ragged.from_lists([WORD]), V),
}


@pytest.mark.parametrize("what", OTHERS)
def test_the_random_network_is_sensitive_to_all_that_it_sees(network, what):
    """Or else the invariances above would say nothing."""
    log_f, g = ask(network, Canvas(Ragged.from_lists([WORD]), V), torch.tensor([0.4]))
    other_log_f, other_g = ask(network, OTHERS[what], torch.tensor([0.41 if what == "the clock" else 0.4]))
    assert (log_f - other_log_f).abs().max(1).values.min().item() > 1e-3
    assert (g - other_g[:7])[:6].abs().max().item() > 1e-3


# Work only where it is needed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("masks", [NO_MASKS, SOME_MASKS, ONLY_MASKS])
def test_linear_layers_see_no_padding_and_the_token_head_sees_masks_only(randomised, masks):
    network = randomised(DiT(**SMALL))
    canvas, alpha = states([1, 30, 2, 0, 17], masks)
    rows = {}
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(
                lambda _, inputs, name=name: rows.update({name: inputs[0].numel() // inputs[0].shape[-1]})
            )
    ask(network, canvas, alpha)
    sequences, everything = len(canvas), len(canvas.tokens.values) + len(canvas)
    assert rows.pop("token_head") == int(canvas.num_masks.sum())
    of_the_clock = {name: rows.pop(name) for name in list(rows) if "clock" in name or "modulation" in name}
    assert set(of_the_clock.values()) == {sequences}
    assert set(rows.values()) == {everything} and len(rows) == 2 * 4 + 2  # four in every block, two for insertions


# Neighbours -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hidden", "heads"), [(256, 8), (64, 4), (32, 1)])
def test_before_training_one_head_looks_left_and_the_next_one_right(hidden, heads):
    network = DiT(7, hidden=hidden, layers=2, heads=heads, neighbours=True)
    layout, width = Layout.of(torch.tensor([12])), hidden // heads
    nothing = torch.zeros(12, hidden)  # no token: what the biases alone do
    q, k, _ = network.blocks[0].project(nothing, *torch.zeros(2, 12, hidden), layout.rotation(width, torch.float32))
    weights = (torch.einsum("qhe,khe->hqk", q, k) / width**0.5).softmax(-1).detach()
    for head, side in list(enumerate((-1, 1)))[:heads]:
        row = torch.arange(2, 10)
        assert float(weights[head, row, row + side].min()) > 0.5
        torch.testing.assert_close(
            (weights[head, row, row + side] / weights[head, row, row + 2 * side]).log(), torch.full((8,), 3.0)
        )
    assert torch.equal(weights[2:], torch.full_like(weights[2:], 1 / 12))  # all others look everywhere
    assert not network.blocks[1].qkv.bias.any()


def test_the_heads_may_start_without_neighbour_biases():
    assert not any(block.qkv.bias.any() for block in DiT(**SMALL).blocks)


# The clock ------------------------------------------------------------------------------------------------------------


def waves(alpha):
    """What the clock gives to its first layer."""
    seen = []
    clock = Clock(waves=128, inner=16, width=16)
    clock.mlp[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    clock(alpha)
    return seen[0]


def test_nearby_alphas_are_told_apart():
    """The unscaled trap: sinusoids made for thousands of positions hardly move over [0, 1]."""
    near = torch.pdist(waves(torch.tensor([0.500, 0.505])))
    far = torch.pdist(waves(torch.linspace(0.05, 0.95, 10))).mean()
    assert float(near / far) > 0.3  # 0.006 if unscaled


def test_every_wave_of_the_clock_is_used_and_rounding_is_not_amplified():
    moved = waves(torch.linspace(0, 1, 1001)).std(0)
    assert float(moved.min()) > 1e-4 and float(moved.median()) > 0.1
    assert float((waves(torch.tensor([0.7])) - waves(torch.tensor([0.7 + 1e-6]))).abs().max()) < 1e-2


def test_alpha_may_be_float64(network):
    canvas, alpha = states([6, 3])
    for a, b in zip(ask(network, canvas, alpha), ask(network, canvas, alpha.double()), strict=True):
        assert a.dtype == b.dtype == torch.float32
        same(a, b)


# Insertions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", [0.05, 1.0, 4.0, 1000.0])
def test_before_training_every_open_gap_is_expected_to_miss_what_it_was_told(expected):
    """The trap: a head that starts out at hundreds of tokens per gap."""
    canvas, _ = states([6, 0, 3])
    _, g = ask(DiT(**SMALL, expected_gap=expected), canvas, torch.zeros(3))
    is_open = canvas.open_gaps.values
    torch.testing.assert_close(g[is_open], torch.full_like(g[is_open], expected), rtol=1e-5, atol=0)
    assert not g[~is_open].any()


def test_before_training_less_is_missing_as_alpha_grows_and_nothing_breaks_at_1():
    network = DiT(**SMALL)
    canvas = Canvas(Ragged.from_lists([[1, V, 2]] * 6), V)
    alpha = torch.tensor([0.0, 0.3, 0.6, 0.9, 0.999, 1.0])
    _, g = ask(network, canvas, alpha)
    per_clock = g.view(6, 4)
    assert bool((per_clock.diff(dim=0) < 0).all()) and bool((g > 0).all())
    assert per_clock[-1].max().item() < 1e-3


def test_the_slope_in_alpha_is_never_up(randomised):
    """With the same rows the head says less at a later clock, whatever its weights."""
    head = randomised(GapHead(16, 8, 1.0), seed=4)
    x = torch.randn(40, 16, generator=torch.Generator().manual_seed(0))
    each = Regions.of(torch.zeros(40, dtype=torch.int64), *torch.zeros(2, 0, dtype=torch.bool))
    answers = torch.stack([head(x, torch.full((40,), a), each) for a in (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)])
    assert bool((answers.diff(dim=0) < 0).all()) and bool((answers > 0).all())


@any_batch()
def test_insertions_are_finite_positive_in_open_gaps_and_0_in_closed_ones(network, lengths, masks, seed):
    canvas, alpha = states(lengths, masks, seed)
    for clock in (alpha, torch.zeros_like(alpha), torch.ones_like(alpha)):
        _, g = ask(network, canvas, clock)
        assert bool(g.isfinite().all())
        assert torch.equal(g > 0, canvas.open_gaps.values)


def test_the_gradient_of_the_insertion_head_is_alive_from_the_start_and_finite_at_alpha_1():
    network = DiT(**SMALL)
    canvas, _ = states([6, 4])
    for clock in (0.0, 0.5, 0.99, 1.0):
        _, g = ask(network, canvas, torch.full((2,), clock))
        missing = 2.0 * canvas.open_gaps.values
        loss = (g - missing * g.clamp(min=1e-30).log()).sum()
        last = network.insertion_head.mlp[-1]
        weight, bias = torch.autograd.grad(loss, [last.weight, last.bias])
        assert bool(weight.isfinite().all()) and bool(bias.isfinite().all())
        learns = [0] if clock == 0 else [0, 1]  # the level; the slope, which is nothing at alpha = 0
        assert float(weight[learns].abs().sum(1).min()) > 1e-3 and float(bias[learns].abs().min()) > 1e-3


# The start of training ------------------------------------------------------------------------------------------------


def test_flags_make_no_difference_before_training(randomised):
    network = DiT(**SMALL)
    assert not network.given.weight.any() and not network.open.weight.any()
    flags = copy.deepcopy(network.given.weight.data)
    randomised(network)  # everything but the flags
    network.given.weight.data.copy_(flags)
    network.open.weight.data.copy_(flags)
    canvas, alpha = states([8, 0, 5])
    flipped = Canvas(canvas.tokens, V, given=~canvas.given.values, open_gaps=torch.ones_like(canvas.open_gaps.values))
    (log_f, g), (other_log_f, other_g) = ask(network.eval(), canvas, alpha), ask(network, flipped, alpha)
    assert torch.equal(log_f, other_log_f)
    assert torch.equal(g, other_g * canvas.open_gaps.values)


@pytest.mark.parametrize("flag", ["given", "open"])
def test_a_flag_can_be_learned_from_zero(flag):
    """Token 1 where the flag is set, else token 0; nothing else tells."""
    torch.manual_seed(0)
    network = DiT(**SMALL, dropout=0.0)
    flags = torch.arange(8) % 2 == 0
    neither = torch.zeros_like(flags)
    canvas = Canvas(
        Ragged.from_lists([[V]] * 8),
        V,
        given=flags if flag == "given" else neither,
        open_gaps=(flags if flag == "open" else neither).repeat_interleave(2),
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    losses = []
    for _ in range(80):
        log_f, _ = ask(network, canvas, torch.full((8,), 0.5))
        loss = F.nll_loss(log_f, flags.long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(V))
    assert losses[-1] < 0.1  # log 2 = 0.69 for who does not see the flag


@pytest.mark.parametrize(
    ("lengths", "masks", "is_open"), [([4, 2], NO_MASKS, False), ([0], 0.4, False), ([], 0.4, True)]
)
def test_every_parameter_gets_a_gradient_also_from_a_batch_with_nothing_to_learn(network, lengths, masks, is_open):
    """Data-parallel training hangs or fails otherwise."""
    canvas, alpha = states(lengths, masks)
    canvas = Canvas(canvas.tokens, V, open_gaps=torch.full_like(canvas.open_gaps.values, is_open))
    log_f, g = ask(network, canvas, alpha)
    gradients = torch.autograd.grad(log_f.sum() + g.sum(), list(network.parameters()), allow_unused=True)
    assert all(gradient is not None and bool(gradient.isfinite().all()) for gradient in gradients)


def test_a_mdm_has_no_insertion_head():
    network = DiT(**SMALL, insertions=False)
    assert not [name for name, _ in network.named_parameters() if "insertion" in name]
    canvas, alpha = states([5, 2])
    log_f, g = ask(network, canvas, alpha)
    assert log_f.shape == (int(canvas.num_masks.sum()), V)
    assert g.shape == (9,) and not g.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_says_about_the_same(network, dtype):
    canvas, alpha = states([9, 0, 4])
    log_f, g = ask(network, canvas, alpha)
    half_log_f, half_g = ask(copy.deepcopy(network).to(dtype), canvas, alpha)
    assert half_log_f.dtype == dtype and half_g.dtype == torch.float32
    assert (half_log_f.exp() - log_f.exp()).abs().max().item() < 0.1
    assert (half_g - g).abs().max().item() < 0.1 * g.max().item()


def test_autocast_gives_finite_gradients_in_full_precision(randomised):
    network = randomised(DiT(**SMALL))
    canvas, alpha = states([9, 0, 4])
    with torch.autocast("cpu", torch.bfloat16):
        log_f, g = ask(network, canvas, alpha)
    gradients = torch.autograd.grad(log_f.float().sum() + g.sum(), list(network.parameters()))
    assert all(gradient.dtype == torch.float32 and bool(gradient.isfinite().all()) for gradient in gradients)


# Memory and speed -----------------------------------------------------------------------------------------------------


def step(network, seed=5):
    """The loss and the gradients of one step with dropout."""
    canvas, alpha = states([7, 0, 12, 3])
    torch.manual_seed(seed)
    log_f, g = ask(network, canvas, alpha)
    loss = log_f[:, 0].mean() + g.mean()
    return loss.detach(), torch.autograd.grad(loss, list(network.parameters()))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradient_checkpointing_changes_nothing(randomised, monkeypatch, dropout):
    calls = []
    forward = Block.forward
    monkeypatch.setattr(Block, "forward", lambda self, *args: (calls.append(self), forward(self, *args))[1])
    network = randomised(DiT(**SMALL, dropout=dropout)).train()
    loss, gradients = step(network)
    assert len(calls) == 2
    assert bool((loss == step(network, seed=6)[0]).all()) == (dropout == 0)  # dropout is at work

    network.gradient_checkpointing = True
    calls.clear()
    again, checkpointed = step(network)
    assert len(calls) == 4  # every block once more on the way back
    assert torch.equal(again, loss)
    for gradient, other in zip(gradients, checkpointed, strict=True):
        torch.testing.assert_close(gradient, other, rtol=0, atol=1e-7)


def test_the_clock_reaches_the_blocks_without_hooks_or_hidden_state(randomised):
    """AdaLN by forward hooks that keep a condition between calls breaks under checkpointing."""
    network = randomised(DiT(**SMALL))
    before = {name: dict(vars(module)) for name, module in network.named_modules()}
    step(network)
    for name, module in network.named_modules():
        assert not module._forward_hooks and not module._forward_pre_hooks and not list(module.buffers())
        assert vars(module).keys() == before[name].keys()
        assert all(vars(module)[key] is value for key, value in before[name].items())


def test_in_training_bins_change_nothing_but_the_way(randomised, monkeypatch):
    network = randomised(DiT(**SMALL, dropout=0.0)).train()
    packed, gradients = step(network)
    monkeypatch.setattr(dit, "prefers_bins", lambda device, compiled: True)
    binned, others = step(network)
    torch.testing.assert_close(binned, packed, rtol=0, atol=1e-4)
    for gradient, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(other, gradient, rtol=1e-4, atol=1e-4)


def test_bins_are_for_training_in_half_precision_or_compiled_on_a_cpu():
    cpu = torch.device("cpu")
    assert prefers_bins(cpu, compiled=True) and not prefers_bins(cpu, compiled=False)
    assert not prefers_bins(torch.device("cuda"), compiled=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert prefers_bins(cpu, compiled=False)
        with torch.no_grad():
            assert not prefers_bins(cpu, compiled=True)


def test_pairs_of_neighbours_are_told_apart_and_stay_within_their_sequence():
    ids, layout = torch.tensor([8, 1, 2, 8, 1, 2, 3, 2, 1]), Layout.of(torch.tensor([3, 6]))
    left, right = hashed_pairs(ids, layout, rows=2**20)
    assert left[1] == left[4] and left[0] == left[3]  # (start, outside) and (outside, outside)
    assert left[2] == left[5]  # (1, start)
    assert len({left[2].item(), left[6].item(), left[7].item(), left[8].item()}) == 4
    assert right[0] == right[3] and right[2] == right[8]  # (1, 2) and (outside, outside)
    assert right[1] != right[4]  # (2, outside) and (2, 3)
    assert not bool((left == right).any())  # the side counts


def test_hashes_of_pairs_are_spread_evenly():
    ids = torch.randint(0, 4096, (80_000,), generator=torch.Generator().manual_seed(0))
    for pair in hashed_pairs(ids, Layout.of(torch.tensor([80_000])), rows=1000):
        counts = torch.bincount(pair, minlength=1000).double()
        assert 6 < float(counts.std()) < 12  # 9 for even chances, and 80 on average


def test_with_pairs_of_neighbours_a_sequence_has_the_same_answer_in_any_company(randomised):
    network = DiT(**SMALL, pairs=50)
    canvas, alpha = states([7, 0, 12, 3])
    before = ask(DiT(**SMALL), canvas, alpha)
    assert all(a.shape == b.shape for a, b in zip(ask(network, canvas, alpha), before, strict=True))
    assert not network.pairs.weight.any()  # at first they change nothing
    network = randomised(network).eval()
    log_f, g = ask(network, canvas, alpha)
    alone = [ask(network, canvas[b], alpha[b : b + 1]) for b in range(4)]
    same(torch.cat([a[0] for a in alone]), log_f)
    same(torch.cat([a[1] for a in alone]), g)


def test_the_activation_is_the_one_that_is_named():
    x = torch.tensor([-2.0, 0.5, 3.0])
    assert torch.equal(dit.ACTIVATIONS["squared_relu"](x), torch.tensor([0.0, 0.25, 9.0]))
    torch.testing.assert_close(dit.ACTIVATIONS["gelu"](x), torch.nn.functional.gelu(x), rtol=0, atol=1e-3)
    network = DiT(**SMALL, activation="squared_relu")
    assert network.blocks[0].activate is dit.ACTIVATIONS["squared_relu"]
    with pytest.raises(ValueError, match="activation must be gelu or squared_relu"):
        FlexMDMConfig(vocab_size=V, activation="tanh")


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler")
def test_compiled_blocks_compute_the_same(randomised):
    """At any size, with gradients, and in a copy, which has its own weights."""
    torch._dynamo.reset()
    network = randomised(DiT(**SMALL, dropout=0.0))
    compiled = copy.deepcopy(network)
    compiled.compile_blocks()
    for gradient, other in zip(step(network)[1], step(compiled)[1], strict=True):
        same(gradient, other)
    network, compiled = randomised(network, seed=9), randomised(copy.deepcopy(compiled), seed=9)
    for lengths in ([7, 0, 12, 3], [2, 30]):
        canvas, alpha = states(lengths)
        for a, b in zip(ask(network, canvas, alpha), ask(compiled, canvas, alpha), strict=True):
            same(a, b)


# Imports --------------------------------------------------------------------------------------------------------------


def test_the_network_needs_nothing_of_hugging_face():
    code = """
import sys, flexmdm, flexmdm.backbones.dit, flexmdm.denoiser, flexmdm.generation, flexmdm.objective
print(sorted({"transformers", "accelerate", "peft", "datasets", "tokenizers", "huggingface_hub"} & set(sys.modules)))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
