import math

import pytest
import torch

from flexmdm import Canvas, Ragged
from flexmdm.backbones.dit import DiT, LogClock
from flexmdm.backbones.heads import CountHead, Regions, insertion_head
from flexmdm.backbones.model import FlexMDMConfig
from flexmdm.canvas import Prompt

SMALL = {"vocab_size": 5, "hidden": 32, "layers": 2, "heads": 2, "condition": 16, "dropout": 0.0}


def head_and_gaps(randomised, num: int = 30):
    head = randomised(CountHead(16, 8, (12.0, 80.0)), seed=3)
    lengths = torch.tensor([5, 0, num - 8])
    given = torch.zeros(int(lengths.sum()), dtype=torch.bool)
    given[[2, 9]] = True
    regions = Regions.of(lengths, given, given)
    features = torch.randn(int(lengths.sum()) + 3, 16, generator=torch.Generator().manual_seed(0))
    return head, features, regions


def silent(head: CountHead) -> CountHead:
    for layer in head.last_layers:
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    return head


def test_regions_are_the_gaps_between_given_entries():
    canvas = Canvas.of_prompts([Prompt.infill([[1], [2, 3]]), Prompt.empty(), Prompt.masks(2)], mask_id=9)
    canvas = canvas.insert_masks(torch.tensor([0, 2, 0, 0, 3, 0, 0, 0]))
    regions = Regions.of(canvas.lengths, canvas.given.values, ~canvas.is_mask)
    assert regions.of_gap.tolist() == [0, 1, 1, 1, 2, 3, 4, 4, 4, 4, 5, 6, 7]
    assert regions.free.tolist() == [0, 2, 0, 0, 3, 0, 0, 0]
    assert regions.sequence.tolist() == [0, 0, 0, 0, 1, 2, 2, 2]
    assert (
        regions.whole.tolist() == [False] * 4 + [True] + [False] * 3
    )  # the masks of the last were there from the start
    assert torch.equal(regions.blank, regions.whole)


def test_a_blank_canvas_is_counted_by_the_law_of_the_data_whatever_was_learned(randomised):
    laws = {"whole": [0.1, 0.2, 0.0, 0.7], "between": [0.6, 0.4]}
    network, untrained = randomised(DiT(**SMALL, regions=laws)), DiT(**SMALL, regions=laws)
    canvas = Canvas(Ragged.from_lists([[5, 5], [5, 1], []]), mask_id=5)
    inputs = canvas.tokens.values, canvas.lengths, canvas.given.values, canvas.open_gaps.values
    (_, g), (_, start) = (net(*inputs, torch.full((3,), 0.3)) for net in (network, untrained))
    totals, expected = (canvas.open_gaps.sum(x.detach()) for x in (g, start))
    torch.testing.assert_close(totals[[0, 2]], expected[[0, 2]], rtol=1e-5, atol=0)
    assert abs(float(totals[1] - expected[1])) > 1e-3  # here a token tells something


def test_the_count_of_negative_binomial_lengths_is_exact_before_training():
    """E[missing | n free, alpha] by summing over lengths, against the head with nothing learned."""
    mean, shape = 9.0, 2.5
    head = silent(CountHead(4, 8, (mean, mean + mean**2 / shape)))
    length = torch.arange(400, dtype=torch.float64)
    log_p = torch.lgamma(length + shape) - torch.lgamma(length + 1) + length * math.log(mean / (mean + shape))
    for n, alpha in ((0, 0.0), (0, 0.3), (1, 0.01), (4, 0.1), (10, 0.7)):
        missing = length - n
        choose = torch.lgamma(length + 1) - torch.lgamma(missing.clamp(min=0) + 1)
        log_w = torch.where(missing >= 0, log_p + choose + missing * math.log1p(-alpha), -torch.inf)
        expected = float((log_w.softmax(0) * missing).sum())
        lengths = torch.tensor([n])
        regions = Regions.of(lengths, *torch.zeros(2, n, dtype=torch.bool))
        g = head(torch.randn(n + 1, 4), torch.tensor([alpha]), regions)
        assert float(g.sum().detach()) == pytest.approx(expected, rel=1e-4)
        assert torch.allclose(g, g.mean().expand(n + 1))


def test_the_count_of_any_law_of_lengths_is_exact_before_training_up_to_the_share_of_unseen_sizes():
    """Nothing given: the law of whole sequences. Beside given entries: the law of regions there."""
    laws = {"whole": [0.0] * 5 + [0.3] + [0.0] * 20 + [0.7], "between": [0.6, 0.0, 0.1, 0.3]}
    head = silent(CountHead(4, 8, laws))
    for name, n, alpha in (
        ("whole", 0, 0.0), ("whole", 0, 0.2), ("whole", 3, 0.3), ("whole", 6, 0.5),
        ("between", 0, 0.0), ("between", 0, 0.5), ("between", 1, 0.1), ("between", 2, 0.9),
    ):  # fmt: skip
        share = torch.tensor(laws[name], dtype=torch.float64)
        ways = torch.tensor([math.comb(size, n) * (1 - alpha) ** max(size - n, 0) for size in range(len(share))])
        missing = (torch.arange(len(share)) - n).clamp(min=0)
        expected = float((share * ways * missing).sum() / (share * ways).sum())
        given = torch.tensor([False] * n + [True] * (name == "between"))
        regions = Regions.of(torch.tensor([len(given)]), given, given)
        g = regions.sum(head(torch.randn(len(given) + 1, 4), torch.tensor([alpha]), regions))
        assert float(g[0].detach()) == pytest.approx(expected, rel=0.02)


def test_more_tokens_than_any_sequence_of_the_data_had_leave_a_finite_count():
    head = silent(CountHead(4, 8, {"whole": [0.0, 1.0], "between": [1.0]}))
    regions = Regions.of(torch.tensor([40]), *torch.zeros(2, 40, dtype=torch.bool))
    for clock in (0.0, 0.5, 1.0):
        g = head(torch.zeros(41, 4), torch.tensor([clock]), regions)
        assert bool(g.isfinite().all()) and float(g.min().detach()) >= 0


def test_statistics_that_are_none_are_refused():
    for wrong in ((1.0,), (0.0, 1.0), {"whole": [1.0]}, {"whole": [0.0], "between": [1.0]}):
        with pytest.raises(ValueError, match="regions must"):
            FlexMDMConfig(vocab_size=5, regions=wrong)


def test_lengths_that_vary_less_than_poisson_start_from_a_poisson_count():
    head = silent(CountHead(4, 8, (6.0, 1.0)))
    g = head(
        torch.zeros(3, 4), torch.tensor([0.5]), Regions.of(torch.tensor([2]), *torch.zeros(2, 2, dtype=torch.bool))
    )
    assert float(g.sum().detach()) == pytest.approx(3.0, rel=0.01)


def test_the_insertion_loss_is_that_of_the_count_and_that_of_the_placement(randomised):
    head, features, regions = head_and_gaps(randomised)
    g = head(features, torch.tensor([0.1, 0.5, 0.9]), regions)
    missing = torch.rand(len(g), generator=torch.Generator().manual_seed(1)) * 3
    count, shares = regions.sum(g), g / regions.sum(g)[regions.of_gap]
    split = (count - regions.sum(missing) * count.log()).sum() - (missing * shares.log()).sum()
    assert float((g - missing * g.log()).sum().detach()) == pytest.approx(float(split.detach()), rel=1e-5)


def test_the_expected_number_never_rises_with_the_clock_for_the_same_features(randomised):
    head, features, regions = head_and_gaps(randomised)
    counted = torch.nn.Linear(16 + 5, 8)
    with torch.no_grad():
        counted.weight.copy_(head.count[0].weight)
        counted.weight[:, 16:] = 0  # what is counted aside, the clock enters by its power alone
        head.count[0].weight.copy_(counted.weight)
    totals = torch.stack([head(features, torch.full((3,), a), regions).sum() for a in (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)])
    assert bool((totals.diff() < 0).all()) and bool((totals > 0).all())


def test_a_sequence_alone_has_the_insertions_that_it_has_in_a_batch(randomised):
    network = randomised(DiT(**SMALL, regions=(4.0, 9.0), clock="logarithms"), seed=1).eval()
    canvas = Canvas(Ragged.from_lists([[5, 1], [], [5, 5, 2, 5]]), mask_id=5)
    alpha = torch.tensor([0.2, 0.0, 0.7])

    def ask(canvas: Canvas, alpha: torch.Tensor) -> torch.Tensor:
        return network(canvas.tokens.values, canvas.lengths, canvas.given.values, canvas.open_gaps.values, alpha)[1]

    together = ask(canvas, alpha)
    alone = torch.cat([ask(canvas[row], alpha[row : row + 1]) for row in range(3)])
    assert torch.allclose(together, alone, rtol=1e-4)


def test_gradients_reach_both_parts_of_the_head_and_are_finite_at_both_ends_of_the_clock():
    network = DiT(**SMALL, regions=(4.0, 9.0))
    canvas = Canvas(Ragged.from_lists([[5, 1], [], [5, 5, 2, 5]]), mask_id=5)
    for clock in (0.0, 0.5, 0.999999, 1.0):
        _, g = network(
            canvas.tokens.values, canvas.lengths, canvas.given.values, canvas.open_gaps.values, torch.full((3,), clock)
        )
        missing = torch.arange(len(g)) % 3
        loss = (g - missing * g.clamp(min=1e-30).log()).sum()
        gradients = torch.autograd.grad(loss, list(network.insertion_head.parameters()))
        assert all(bool(gradient.isfinite().all()) for gradient in gradients)
        last = [layer.weight for layer in network.insertion_head.last_layers]
        _, g = network(
            canvas.tokens.values, canvas.lengths, canvas.given.values, canvas.open_gaps.values, torch.full((3,), clock)
        )
        loss = (g - missing * g.clamp(min=1e-30).log()).sum()
        assert all(float(gradient.abs().sum()) > 1e-4 for gradient in torch.autograd.grad(loss, last))


def test_clocks_that_are_close_have_conditions_that_are_close(randomised):
    clock = randomised(LogClock(32, 16), seed=2)
    near, far = clock(torch.tensor([0.010, 0.011])), clock(torch.tensor([0.01, 0.5]))
    assert float((near[0] - near[1]).detach().norm()) < 0.2 * float((far[0] - far[1]).detach().norm())
    assert bool(clock(torch.tensor([0.0, 1.0])).isfinite().all())


def test_without_statistics_of_regions_the_head_is_that_of_earlier_checkpoints():
    assert set(dict(insertion_head(8, 4, 1.0, None).named_parameters())) == {
        f"mlp.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")
    }


def test_a_count_that_nothing_bounds_stays_finite_and_closed_gaps_stay_0():
    network = DiT(**SMALL, regions=(4.0, 9.0))
    with torch.no_grad():
        network.insertion_head.count[-1].bias.fill_(200.0)
    tokens, lengths, given = torch.tensor([1, 5]), torch.tensor([2]), torch.tensor([True, False])
    _, g = network(tokens, lengths, given, torch.tensor([False, True, True]), torch.zeros(1))
    assert bool(g.isfinite().all()) and float(g[0]) == 0


def test_the_mean_over_many_gaps_does_not_overflow_in_half_precision():
    head = CountHead(4, 8, (10.0, 60.0)).half()
    regions = Regions.of(torch.tensor([3000]), *torch.zeros(2, 3000, dtype=torch.bool))
    assert bool(head(torch.full((3001, 4), 40.0).half(), torch.tensor([0.5]), regions).isfinite().all())
