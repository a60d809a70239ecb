"""The likeliest sampler: the law of a number from its mean along the clock, and what is made of it."""

import math

import pytest
import torch

from flexmdm import Canvas, FiniteDistribution, Prompt, generate
from flexmdm.generation import Grid, LikeliestSampler, number_law

CLOCKS = torch.linspace(0, 0.99, 200, dtype=torch.float64)


def lengths(law):
    """A source of sequences of 0, by the chance of each length."""
    return FiniteDistribution({(0,) * n: p for n, p in law.items()}, vocab_size=2)


def expected_missing(denoiser, prompt):
    """What a denoiser says is missing in the open gaps of a prompt, at each of the `CLOCKS`: ``[G, K]``."""
    canvas = Canvas.of_prompts([prompt], denoiser.mask_id)
    said = [denoiser(canvas, clock[None]).insertions.values[canvas.open_gaps.values] for clock in CLOCKS]
    return torch.stack(said, 1)


@pytest.mark.parametrize(
    "law",
    [{1: 1.0}, {0: 0.3, 1: 0.7}, {1: 0.6, 4: 0.4}, {0: 0.2, 2: 0.5, 5: 0.3}, {0: 1.0}, {3: 0.5, 6: 0.5}],
)
def test_the_mean_along_the_clock_tells_the_law_of_the_number(law):
    """Small numbers exactly; larger ones are smeared over their neighbours, so it is sums of chances that are right."""
    found = number_law(expected_missing(lengths(law).denoiser(), Prompt.empty()), CLOCKS, most=6, rounds=20_000)[0]
    truth = torch.tensor([law.get(n, 0.0) for n in range(7)], dtype=torch.float64)
    assert float(found.sum()) == pytest.approx(1)
    assert found[:2].tolist() == pytest.approx(truth[:2].tolist(), abs=0.01)
    assert float((found.cumsum(0) - truth.cumsum(0)).abs().max()) < 0.1


def test_a_law_depends_on_what_is_fixed():
    source = FiniteDistribution({(0, 2, 2, 1): 0.5, (1, 2, 0): 0.3, (1, 0): 0.2}, vocab_size=3)
    for fixed, truth in (((0,), (0.0, 0.0, 0.0, 1.0)), ((1,), (0.0, 0.4, 0.6, 0.0))):
        found = number_law(expected_missing(source.denoiser(), Prompt.prefix(fixed)), CLOCKS, most=3, rounds=5000)
        assert found[0].tolist() == pytest.approx(truth, abs=0.02)


@pytest.mark.parametrize(("law", "likeliest"), [({1: 0.6, 6: 0.4}, 1), ({1: 0.3, 2: 0.7}, 2), ({0: 0.7, 5: 0.3}, 0)])
def test_the_number_is_the_likeliest_and_neither_the_mean_nor_drawn(law, likeliest):
    out = generate(lengths(law).denoiser(), 5, sampler=LikeliestSampler(Grid(32), most=8))
    assert out.sequences == [[0] * likeliest] * 5
    assert out.evaluations == [32 + likeliest] * 5


def test_a_larger_number_is_found_roughly():
    out = generate(lengths({1: 0.1, 12: 0.9}).denoiser(), sampler=LikeliestSampler(Grid(32), most=24))
    assert 9 <= len(out.sequences[0]) <= 15


@pytest.mark.parametrize("number", [1, 2, 5, 10, 12, 20, 40, 60])
def test_a_number_that_is_certain_is_found_whatever_its_size(number):
    out = generate(lengths({number: 1.0}).denoiser(), sampler=LikeliestSampler(Grid(16)))
    assert len(out.sequences[0]) == number


def test_every_gap_has_a_number_of_its_own():
    source = FiniteDistribution({(7, 3, 3, 8): 0.9, (7, 4, 8, 5): 0.1}, vocab_size=9)
    for pieces, found in (([[7], [8], []], [7, 3, 3, 8]), ([[7], [8, 5]], [7, 4, 8, 5])):
        out = generate(source.denoiser(), prompts=[Prompt.infill(pieces)], sampler="likeliest")
        assert out.sequences == [found] and sum(out.given[0]) == sum(map(len, pieces))


def test_limits_are_kept_and_the_likeliest_number_within_them_is_taken():
    denoiser = lengths({0: 0.1, 1: 0.2, 2: 0.7}).denoiser()
    for limit, number in ((None, 2), (2, 2), (1, 1)):
        prompt = Prompt((), (True,), (limit,))
        assert generate(denoiser, prompts=[prompt], sampler="likeliest", steps=64).sequences == [[0] * number]
    (short,) = generate(denoiser, sampler="likeliest", steps=64, max_length=1).sequences
    assert len(short) == 1


def test_what_has_no_open_gap_is_revealed_surest_first():
    source = FiniteDistribution({(0, 1, 1): 0.6, (1, 1, 0): 0.4}, vocab_size=2)
    out = generate(source.denoiser(), prompts=[Prompt.masks(3)], sampler="likeliest", temperature=0.0, trace=True)
    assert out.sequences == [[0, 1, 1]] and out.evaluations == [3]
    assert [event.position for event in out.trace[0]][0] == 1  # always a 1


def test_a_sequence_is_the_same_alone_and_in_a_batch():
    source = FiniteDistribution({(0,): 0.3, (1, 0): 0.3, (1, 1, 1, 0): 0.4}, vocab_size=2)
    prompts = [Prompt.empty(), Prompt.prefix([1]), Prompt.infill([[1], [0]]), Prompt.masks(2)]
    together = generate(source.denoiser(), prompts=prompts, sampler="likeliest")
    for number, prompt in enumerate(prompts):
        alone = generate(source.denoiser(), prompts=[prompt], sampler="likeliest", first_sequence=number)
        assert (alone.sequences[0], alone.evaluations[0]) == (together.sequences[number], together.evaluations[number])
    later = torch.tensor([0.0, 0.5, 0.0, 0.9])  # some are inserted while others are still asked about
    out = generate(source.denoiser(), prompts=[Prompt.empty()] * 4, alpha=later, sampler="likeliest")
    assert all(sequence in ([0], [1, 0], [1, 1, 1, 0]) for sequence in out.sequences)
    parts = generate(source.denoiser(), prompts=prompts, sampler="likeliest", batch_size=1)
    assert parts.sequences == together.sequences


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="at least 1 token per gap"):
        LikeliestSampler(Grid(4), most=0)
    assert math.isclose(float(LikeliestSampler(Grid(4))._clocks(CLOCKS)[-1]), 0.98)
