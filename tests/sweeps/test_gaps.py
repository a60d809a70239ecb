"""Gaps in texts: who fills them, what is compared, and how long an MDM thinks that they are."""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from flexmdm import FlexMDMConfig, FlexMDMModel
from flexmdm.sweeps.gaps import Gaps, LengthLaw, guessed, told, with_masks
from flexmdm.sweeps.sweep import Refused, sweep
from flexmdm.tasks.text.cutting import Cut, cuts
from flexmdm.tasks.text.task import TextTask

PARTS = ("a small black cat", "my good old dog"), ("sat down", "ran away"), ("on the old mat.", "home again")
LINES = [" ".join(parts) for parts in product(*PARTS)]
CUTS = list(cuts(LINES, seed=3))
OPTIONS = {"sampler": "spaced", "steps": 4, "temperature": 1.0}


@pytest.fixture(params=["characters", "bpe"])
def tokenizer(request):
    return request.param


@pytest.fixture
def make(tmp_path, monkeypatch, tokenizer):
    """A pipeline with a network that has learned nothing."""
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "lines.txt").write_text("\n".join(LINES * 10))

    def make(model):
        data = TextTask((str(tmp_path / "lines.txt"),), model, tokenizer=tokenizer, max_length=48, held_out=0.2)
        task = replace(data, vocabulary=270 if tokenizer == "bpe" else None).settled()
        torch.manual_seed(0)
        config = FlexMDMConfig(
            vocab_size=task.vocab_size, hidden_size=16, num_layers=1, num_heads=2, condition_size=16, dropout=0.0,
            insertions=task.layout.inserts, task=task.to_dict(),
        )  # fmt: skip
        return task.pipeline(FlexMDMModel(config).eval())

    return make


def test_the_tokens_of_pieces_and_gaps_are_those_of_the_text(make):
    pipeline = make("mdm")
    for cut, sizes in ((cut, told(pipeline, CUTS)(number, 1)[0]) for number, cut in enumerate(CUTS)):
        pieces, gaps = pipeline.encode(cut.pieces), pipeline.encode_gaps(cut.pieces, cut.gaps)
        joined = [token for piece, gap in zip(pieces, [*gaps, []], strict=True) for token in (*piece, *gap)]
        assert joined == pipeline.task.text.encode([cut.text])[0]
        assert tuple(map(len, gaps)) == sizes


def test_masks_are_as_many_as_told_and_the_pieces_stay(make, monkeypatch):
    pipeline, prompts = make("mdm"), []
    inside = pipeline.task.layout.between
    monkeypatch.setattr(
        type(pipeline.task.layout), "between", lambda _, *given: prompts.append(inside(*given)) or prompts[-1]
    )
    answers = with_masks(pipeline, told(pipeline, CUTS), same=True)([cut.pieces for cut in CUTS], **OPTIONS)
    for number, (cut, answer, prompt) in enumerate(zip(CUTS, answers, prompts, strict=True)):
        (sizes,) = told(pipeline, CUTS)(number, 1)
        assert prompt.tokens.count(None) == sum(sizes) and len(prompt.tokens) == pipeline.task.width
        assert answer.text == Cut(cut.pieces, answer.gaps).text


@pytest.mark.parametrize("draws", [1, 3])
def test_answers_are_the_same_wherever_a_batch_begins(make, draws):
    mdm, flex = make("mdm"), make("flexmdm")
    items, law = [cut.pieces for cut in CUTS], LengthLaw.of(mdm, cuts(LINES, seed=4))
    for write in (Gaps(CUTS).writer("flex", flex), with_masks(mdm, guessed(mdm, CUTS, law), same=False)):
        whole = write(items, draws=draws, **OPTIONS)
        rest = write(items[2:], draws=draws, first_sequence=2, **OPTIONS)
        assert [one.text for one in rest] == [one.text for one in whole[2:]]


def test_guessed_lengths_are_those_of_texts_with_as_many_gaps_and_words_left():
    law = LengthLaw({(1, 4): [(1,), (2,), (2,), (9,)], (1, 6): [(5,)], (2, 4): [(1, 3)]})
    rng = np.random.default_rng(0)
    found = Counter(law.draw(1, 4, 8, 3000, rng))  # 9 tokens do not fit
    assert set(found) == {(1,), (2,)} and abs(found[2,] - 2000) < 6 * 26  # 6 standard deviations
    assert law.draw(1, 5, 8, 2, rng)[0] in {(1,), (2,)} and law.draw(1, 9, 8, 2, rng) == [(5,)] * 2  # the nearest
    assert law.draw(2, 7, 8, 1, rng) == [(1, 3)] and law.draw(3, 4, 8, 2, rng) == [(1, 1, 1)] * 2


def test_fillings_are_compared_by_their_words_and_an_item_needs_all(make, tmp_path):
    two = [Cut(("I ", " go ", ""), ("want to", "home now")), Cut(("a ", ""), ("cat",))]
    gaps = Gaps(two)
    lines = [{"gaps": ["want to", "home"], "sizes": [2, 1], "text": ""}, {"gaps": ["cat"], "sizes": [1], "text": ""}]
    scored = gaps.score(lines)
    assert scored.right == [False, True] and scored.figures["length"]["value"] == pytest.approx(2 / 3)
    assert gaps.line(0, Refused("too long"))["sizes"] == [0, 0]
    flex = make("flexmdm")
    entrant = Gaps(CUTS).entrant("mine", flex.task, flex.model)
    (point,) = sweep(Gaps(CUTS), [entrant], [4], 5, tmp_path / "items")
    (longer,) = sweep(Gaps(CUTS), [entrant], [4], None, tmp_path / "items")
    assert (point.num, longer.num) == (5, 8) and longer.right[:5] == point.right
