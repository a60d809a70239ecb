"""The batch stays full within its room, and nothing that comes out depends on who was under way at the same time."""

from itertools import pairwise

import pytest
import torch

from flexmdm import Canvas, FiniteDistribution, HiddenMarkovSource, Prompt, Ragged, generate, stream
from flexmdm.generation.loop import Room

WORDS = FiniteDistribution(
    {(0, 1): 0.2, (0, 2, 1): 0.3, (1, 0, 2, 1): 0.2, (0, 2, 2, 2, 1): 0.2, (0, 0, 0): 0.1}, vocab_size=3
)
CHAIN = HiddenMarkovSource(
    [0.5, 0.3, 0.2],
    [[0.2, 0.5, 0.2], [0.6, 0.1, 0.1], [0.3, 0.3, 0.2]],
    [0.1, 0.2, 0.2],
    [0, 1, 2],
    vocab_size=3,
    empty=0.05,
)
PROMPTS = [
    Prompt.empty(),
    Prompt.prefix([0]),
    Prompt.masks(4),
    Prompt.infill([[], [2], []], minimum=1, maximum=3),
    Prompt.infill([[0], [1]]),
]
LENGTHS = [Prompt.masks(n) for n in (3, 4, 2, 1, 5)]
SAMPLERS = ["tau", "adaptive", "spaced", "entropy_bounded", "dilated", "likeliest", "low_confidence"]


class Spy:
    """Writes down what a denoiser is asked."""

    def __init__(self, denoiser):
        self.denoiser, self.vocab_size, self.mask_id = denoiser, denoiser.vocab_size, denoiser.mask_id
        self.asked = []

    def __call__(self, canvas, alpha):
        self.asked.append((canvas, alpha))
        return self.denoiser(canvas, alpha)

    @property
    def sizes(self):
        return [len(canvas) for canvas, _ in self.asked]

    @property
    def tokens(self):
        """Return the tokens of each batch, and one more for each sequence."""
        return [len(canvas.tokens.values) + len(canvas) for canvas, _ in self.asked]


def prompts_for(sampler):
    return LENGTHS if sampler == "low_confidence" else PROMPTS


def fields(out):
    return [out.sequences, out.evaluations, out.possible, out.hit_max_length, out.given, out.trace]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("source", [WORDS, CHAIN], ids=["words", "chain"])
def test_room_makes_no_difference_to_what_comes_out(sampler, source):
    """Also to sequences that waited half done, with whatever their sampler remembered of them."""
    settings = {"sampler": sampler, "steps": 6, "seed": 3, "max_length": 9, "trace": True}
    everything = generate(source.denoiser(), 4, prompts=prompts_for(sampler), **settings)
    for room in ({"batch_size": 3}, {"tokens_in_flight": 1}, {"tokens_in_flight": 17}, {"tokens_in_flight": 40}):
        spy = Spy(source.denoiser())
        assert fields(generate(spy, 4, prompts=prompts_for(sampler), **settings, **room)) == fields(everything)
        assert sum(spy.sizes) == sum(everything.evaluations)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_batch_is_full_until_nothing_waits(sampler):
    spy = Spy(CHAIN.denoiser())
    generate(spy, 6, prompts=prompts_for(sampler), sampler=sampler, steps=6, batch_size=4)
    begun = spy.sizes.index(max(spy.sizes))
    last = max(i for i, size in enumerate(spy.sizes) if size == 4)
    assert begun == 0 and spy.sizes[: last + 1] == [4] * (last + 1)
    assert spy.sizes[last:] == sorted(spy.sizes[last:], reverse=True)  # at the end there are too few


def test_tokens_in_flight_stay_within_their_number_and_close_to_it():
    """Lengths of 4.5 tokens on average: the batch holds 60 tokens at most, and 50 where there are enough samples."""
    spy = Spy(CHAIN.denoiser())
    generate(spy, 300, steps=8, tokens_in_flight=60)
    assert max(spy.tokens) <= 60
    middle = spy.tokens[: 3 * len(spy.tokens) // 4]
    assert sum(middle) / len(middle) > 50


def test_a_sequence_that_is_too_long_for_the_room_goes_on_alone():
    spy = Spy(WORDS.denoiser())
    out = generate(spy, 2, prompts=[Prompt.masks(5), Prompt.masks(2)], sampler="tau", steps=4, tokens_in_flight=3)
    assert [len(sequence) for sequence in out.sequences] == [5, 5, 2, 2]
    assert spy.sizes == [1] * len(spy.sizes)


def test_samples_come_as_they_finish():
    prompts = [Prompt.masks(n) for n in (5, 1, 3, 2)]
    options = {"prompts": prompts, "sampler": "low_confidence", "steps": 5, "trace": True}
    found = list(stream(WORDS.denoiser(), **options))
    assert [one.number for one in found] == [1, 3, 2, 0]
    out = generate(WORDS.denoiser(), **options)
    for one in found:
        assert out.sequences[one.number] == one.sequence and out.given[one.number] == one.given
        assert out.evaluations[one.number] == one.evaluations and out.trace[one.number] == one.trace


def test_nothing_is_asked_before_it_is_wanted_and_bad_settings_are_refused_at_once():
    spy = Spy(CHAIN.denoiser())
    samples = stream(spy, 100, steps=4, batch_size=5)
    assert not spy.asked
    next(samples)
    assert max(spy.sizes) == 5 and len(spy.asked) < 20
    for settings, message in (
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"tokens_in_flight": 0}, "tokens_in_flight must be at least 1"),
        ({"steps": 0}, "steps must be"),
    ):
        with pytest.raises(ValueError, match=message):
            stream(spy, **settings)


def test_gradients_are_off_inside_the_loop_and_as_they_were_outside():
    class Watching(Spy):
        def __call__(self, canvas, alpha):
            assert not torch.is_grad_enabled()
            return super().__call__(canvas, alpha)

    for _ in stream(Watching(WORDS.denoiser()), 3, steps=4):
        assert torch.is_grad_enabled()


def test_what_is_finished_or_impossible_from_the_start_makes_room_at_once():
    canvas = Canvas(Ragged.from_lists([[0, 1], [1, 1, 1], [0, 3], [0, 1]]), mask_id=3)
    spy = Spy(WORDS.denoiser())
    alpha = torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    out = generate(spy, canvas=canvas, alpha=alpha, batch_size=1)
    assert out.sequences == [[0, 1], [1, 1, 1], [0, 1], [0, 1]]
    assert out.evaluations == [0, 1, 1, 0] and out.possible == [True, False, True, True]
    assert spy.sizes == [1, 1]


def test_the_share_of_what_is_done_counts_those_that_wait():
    shares = []
    generate(
        CHAIN.denoiser(), 40, steps=6, tokens_in_flight=20, callback=lambda progress: shares.append(progress.share)
    )
    assert all(after > before - 1e-12 for before, after in pairwise(shares)) and shares[-1] == 1.0


def test_there_is_room_for_the_first_samples_whatever_their_lengths():
    lengths = torch.tensor([9, 0, 3, 1])
    assert [Room(tokens=n).fitting(lengths) for n in (1, 10, 11, 14, 15, 16, 17)] == [1, 1, 2, 2, 3, 3, 4]
    assert Room().fitting(lengths) == 4 and Room(samples=2, tokens=100).fitting(lengths) == 2
    assert Room(samples=2, tokens=3).fitting(lengths[:0]) == 0
