import pytest

from flexmdm import generate
from flexmdm.evaluation import nine_words
from flexmdm.reports.growth import draw_growth, frames_of, thin_out


@pytest.mark.parametrize("sampler", ["tau", "spaced"])
def test_frames_lead_from_nothing_to_the_sequence(sampler):
    out = generate(nine_words().denoiser(), 50, sampler=sampler, steps=16, trace=True, seed=2)
    for sequence, events, possible in zip(out.sequences, out.trace, out.possible, strict=True):
        frames = frames_of(events)
        assert frames[0].entries == ()
        if possible:
            assert [entry.token for entry in frames[-1].entries] == sequence
        for before, after in zip(frames[:-1], frames[1:], strict=True):
            order = [entry.identity for entry in after.entries]
            kept = [entry.identity for entry in before.entries]
            assert [identity for identity in order if identity in kept] == kept


def test_a_thinned_film_ends_with_the_same_frame_and_marks_what_changed_since_the_last_one():
    out = generate(nine_words().denoiser(), 1, sampler="tau", steps=200, trace=True, seed=1)
    frames = frames_of(out.trace[0])
    assert len(frames) > 4
    film = thin_out(frames, 3)
    assert len(film) == 3
    assert [e.token for e in film[-1].entries] == out.sequences[0]
    for before, after in zip(film[:-1], film[1:], strict=True):
        known = {entry.identity: entry.token for entry in before.entries}
        assert all(e.new == (known.get(e.identity, "not there") != e.token) for e in after.entries)


def test_a_film_has_a_picture():
    out = generate(nine_words().denoiser(), 1, sampler="spaced", steps=8, trace=True)
    assert draw_growth(out.trace[0], "abc", "growing").axes
