import json
import math
import random
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from flexmdm import FlexMDMInterpolant, PowerSchedule, TextPipeline
from flexmdm.canvas import Prompt, Role, Template
from flexmdm.data.tokenizers import Unanswerable
from flexmdm.objective import likelihood
from flexmdm.sequences import Ragged
from flexmdm.tasks.pipeline import of_each
from flexmdm.tasks.text.pipeline import fillings, pieces_of


def random_pieces(rng, alphabet):
    """A text with 1 to 5 gaps, some of them at an end, some with a single space between them."""
    pieces = ["".join(rng.choices(alphabet, k=rng.choice([1, 2, 7]))) for _ in range(rng.randint(2, 6))]
    pieces[1:-1] = [" " if rng.random() < 0.2 else piece for piece in pieces[1:-1]]
    return [pieces[0] * rng.randint(0, 1), *pieces[1:-1], pieces[-1] * rng.randint(0, 1)]


@pytest.mark.parametrize("tokenizer", ["characters", "bytes", "bpe"])
def test_infilling_keeps_every_fixed_token_of_a_thousand_texts(make_pipeline, lines, tokenizer):
    """1,000 random texts with 1 to 5 gaps over all three kinds of tokens: unicode, spaces, empty pieces."""
    pipeline = make_pipeline(tokenizer, max_length=256, expected_gap=0.7)
    rng = random.Random(0)
    alphabet = sorted(set(lines.read_text()) - {"\n"})
    texts = [random_pieces(rng, alphabet) for _ in range(334)]
    answers = pipeline.fill(texts, steps=4, seed=1)
    empty = 0
    for pieces, answer in zip(texts, answers, strict=True):
        assert len(answer.gaps) == len(pieces) - 1
        assert answer.text == "".join(p + g for p, g in zip(pieces, [*answer.gaps, ""], strict=True))
        fixed = [token for token in answer.prompt.tokens if token is not None]
        spaceless = [p[:-1] if p.endswith(" ") and len(p) > 1 and tokenizer == "bpe" else p for p in pieces[:-1]]
        assert pipeline.task.text.decode(fixed).encode() == "".join([*spaceless, pieces[-1]]).encode()
        rest = iter(answer.tokens)
        assert all(any(token == other for other in rest) for token in fixed)  # in order, nothing lost
        empty += "" in answer.gaps
    assert empty > 10  # empty fillings occur


@pytest.mark.parametrize("tokenizer", ["characters", "bpe"])
def test_a_gap_keeps_to_its_minimum_and_maximum(make_pipeline, tokenizer):
    pipeline = make_pipeline(tokenizer)
    for answer in pipeline.fill([["The ", " sat on ", ""]], 20, minimum=2, maximum=3, steps=8):
        assert 4 <= len(answer.tokens) - sum(token is not None for token in answer.prompt.tokens) <= 6


@pytest.mark.parametrize("tokenizer", ["characters", "bpe"])
def test_every_gap_gets_its_own_tokens(make_pipeline, tokenizer):
    pipeline = make_pipeline(tokenizer)
    for answer in pipeline.fill([["The ", " ", " sat ", ""]], 5, minimum=2, maximum=2, steps=4):
        pieces = pipeline.encode(["The ", " ", " sat ", ""])
        given = [True] * len(answer.tokens)  # everything stood in the prompt, as a token or as a mask
        assert [len(gap) for gap in fillings(answer.tokens, given, answer.prompt, pieces)] == [2, 2, 2]


def test_two_gaps_side_by_side_are_refused(make_pipeline):
    with pytest.raises(ValueError, match="two gaps side by side"):
        make_pipeline().infill("The ______ sat")


def test_a_gap_may_be_drawn_longer_than_the_marker():
    for gap in ("___", "____", "_____"):
        assert pieces_of(f"The {gap} sat on the {gap}") == ["The ", " sat on the ", ""]
    assert pieces_of("The __ cat ___") == ["The __ cat ", ""]
    assert pieces_of("a****b", "***") == ["a", "b"]
    assert pieces_of("<GAP>>", "<GAP>") == ["", ">"]
    assert "" in pieces_of("The _______ sat")[1:-1] and pieces_of("a__b", "_") == ["a", "", "b"]  # are refused


def test_a_smaller_max_length_is_kept_and_a_larger_one_cut(make_pipeline):
    pipeline = make_pipeline()
    assert max(map(len, pipeline.sample(20, steps=4, max_length=2))) <= 2
    assert max(map(len, pipeline.sample(5, steps=4, max_length=10_000))) <= 96


def test_strings_in_strings_out(make_pipeline):
    pipeline = make_pipeline()
    assert isinstance(pipeline.infill("The ___ sat", steps=4), str)
    assert pipeline.infill("The <GAP> sat", gap_marker="<GAP>", steps=4).startswith("The ")
    completed = pipeline.complete(["The", "A"], num=2, steps=4)
    assert [text[:1] for text in completed] == ["T", "T", "A", "A"]
    assert len(pipeline.sample(3, steps=4)) == 3


def test_the_same_seed_gives_the_same_text_alone_and_in_a_batch(make_pipeline):
    pipeline = make_pipeline()
    assert pipeline.sample(3, steps=4, seed=5) == pipeline.sample(5, steps=4, seed=5)[:3]


def test_the_space_before_a_gap_is_there_once(make_pipeline):
    pipeline = make_pipeline("bpe")
    decode, encode = pipeline.task.text.decode, pipeline.task.text.encode
    given = pipeline.encode(["The ", " sat"])
    with_space = pipeline._decode(["The ", " sat"], given, encode([" cat"]))
    without = pipeline._decode(["The ", " sat"], given, encode(["cat"]))
    assert with_space == (("cat",), True)
    assert without == (("cat",), False)  # the token would have run into what stands before
    assert decode(pipeline.encode(["The ", " sat"])[0]) == "The"


@pytest.fixture
def published(lines, tmp_path):
    """Tokenizers as others publish them, where a token that begins a word implies a blank."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    def make(kind):
        wanted = {"vocab_size": 160, "special_tokens": ["[UNK]"], "show_progress": False}
        if kind == "word pieces":
            tokenizer, trainer = Tokenizer(models.WordPiece(unk_token="[UNK]")), trainers.WordPieceTrainer(**wanted)
            tokenizer.normalizer = normalizers.Lowercase()
            tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        else:
            tokenizer, trainer = Tokenizer(models.Unigram()), trainers.UnigramTrainer(unk_token="[UNK]", **wanted)
            tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        tokenizer.train([str(lines)], trainer)
        (tmp_path / kind).mkdir()
        tokenizer.save(str(tmp_path / kind / "tokenizer.json"))
        return str(tmp_path / kind)

    return make


@pytest.mark.parametrize("kind", ["word pieces", "unigram"])
def test_words_of_a_published_tokenizer_do_not_run_together(make_pipeline, published, kind):
    pipeline = make_pipeline(published(kind))

    def filled(pieces, *gaps):
        found, _ = pipeline._decode(pieces, pipeline.encode(pieces), pipeline.task.text.encode(gaps))
        return "".join(piece + gap for piece, gap in zip(pieces, [*found, ""], strict=True))

    assert filled(["one two", ""], "three four") == "one two three four"
    assert filled(["one two ", ""], "three") == filled(["one two", ""], "three") == "one two three"
    assert filled(["The ", " sat on the ", "."], "dog", "mat")[:19] == "The dog sat on the "
    assert filled(["One", "three"], "two") == "One two three"
    if kind == "word pieces":  # white space has no tokens
        assert filled(["One", " ", "four"], "two", "three") == "One two three four"
        assert filled(["One", " ", "two"], "", "") == "One two"
        assert filled(["One\n", "\nthree"], "two") == "One\ntwo\nthree"
    assert filled(["", "two"], "one") == "one two"
    assert filled(["", "two"], "") == "two"


@pytest.mark.parametrize("kind", ["word pieces", "unigram"])
def test_a_published_tokenizer_shows_what_the_model_saw_around_what_was_given(make_pipeline, published, kind):
    pipeline = make_pipeline(published(kind))
    tokenizer, rng = pipeline.task.text, random.Random(0)
    words = "The cat sat on a mat one two three the end of day said dog".split()
    texts = [[" ".join(rng.choices(words, k=rng.randint(1, 3))) for _ in range(rng.randint(2, 4))] for _ in range(12)]
    for pieces, answer in zip(texts, pipeline.fill(texts, steps=4, seed=1), strict=True):
        assert answer.text == "".join(p + g for p, g in zip(pieces, [*answer.gaps, ""], strict=True))
        assert answer.text.lower() == tokenizer.decode(answer.tokens).lower()


def test_an_mdm_completes_and_fills_gaps_of_known_length(make_pipeline):
    pipeline = make_pipeline(model="mdm")
    assert pipeline.complete("The cat", steps=4).startswith("The cat")
    answer = pipeline.fill([["The ", " sat"]], minimum=3, maximum=3, steps=4)[0]
    assert len(answer.tokens) <= len("The  sat") + 3
    assert len(answer.prompt.tokens) == pipeline.task.width  # as wide as in training
    with pytest.raises(ValueError, match="equal --min and --max"):
        pipeline.infill("The ___ sat")


def test_a_text_without_a_gap_is_refused(make_pipeline):
    with pytest.raises(ValueError, match="there is no gap in 'The cat': write ___ where something is to be found"):
        make_pipeline().infill("The cat")
    with pytest.raises(ValueError, match="the gap marker is empty"):
        pieces_of("The ___", "")


def test_a_text_that_leaves_no_room_is_refused(make_pipeline):
    pipeline = make_pipeline(max_length=8)
    with pytest.raises(ValueError, match="leaves no room: 9 tokens are given.*at most 8"):
        pipeline.infill("The dog___ s")
    with pytest.raises(ValueError, match="leaves no room"):
        pipeline.infill("The ___", minimum=5)


def test_all_bad_texts_of_a_list_are_named(make_pipeline):
    with pytest.raises(ValueError, match="text 2: there is no gap in 'cat'.*; bad too: text 4"):
        make_pipeline().infill(["a___", "cat", "___b", "dog"])
    with pytest.raises(ValueError, match="text 1: 1 character.*'§'.*; bad too: text 3"):
        make_pipeline().complete(["§", "a", "§"])


def test_a_bad_request_does_not_wait_for_heavy_libraries():
    code = "import sys, flexmdm.tasks.text.pipeline; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"transformers", "datasets", "matplotlib", "scipy"} & set(loaded)


def test_unknown_characters_are_named(make_pipeline):
    with pytest.raises(ValueError, match="§"):
        make_pipeline().infill("§ ___")


@pytest.mark.parametrize("tokenizer", ["characters", "bytes", "bpe"])
def test_bytes_that_are_no_utf_8_are_refused(make_pipeline, tokenizer):
    pipeline = make_pipeline(tokenizer)
    for ask in (pipeline.infill, pipeline.complete):
        with pytest.raises(ValueError, match=r"^'The caf\\udce9 ' has the byte 0xe9, which is not UTF-8; write the"):
            ask("The caf\udce9 ___" if ask == pipeline.infill else "The caf\udce9 ")
    with pytest.raises(ValueError, match="text 2: .* has half a surrogate pair, which is no character; take it out"):
        pipeline.complete(["The", "cat \ud83d"])


@pytest.mark.parametrize("kind", ["word pieces", "unigram"])
def test_unknown_characters_of_a_published_tokenizer_are_named_too(make_pipeline, published, kind):
    pipeline = make_pipeline(published(kind))
    with pytest.raises(ValueError, match=r"1 character\(s\) that the tokenizer does not know: '§' \(U\+00A7\); take"):
        pipeline.infill("The c§t ___")
    with pytest.raises(ValueError, match="'§'"):
        pipeline.complete("The §")


def test_fillings_are_found_even_if_they_repeat_what_is_given():
    prompt = Prompt.infill([[1], [2], [1]], minimum=1, maximum=3)
    sequence = [1, 2, 2, 2, 1, 1, 1]
    given = [True, True, False, True, True, False, True]
    assert fillings(sequence, given, prompt, [[1], [2], [1]]) == [[2, 2], [1, 1]]


def test_a_run_of_another_task_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not a run"):
        TextPipeline.from_pretrained(tmp_path)


# Saved, shared, scored ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["flexmdm", "mdm"])
def test_a_saved_pipeline_needs_nothing_but_its_folder(make_pipeline, lines, tmp_path, model):
    pipeline = make_pipeline("bpe", model)
    pipeline = replace(pipeline, task=pipeline.task.settled())
    expected = pipeline.complete(["The cat", "A"], steps=4, seed=3)
    before = pipeline.model.config.task
    pipeline.save_pretrained(tmp_path / "shared")
    assert pipeline.model.config.task is before and str(lines) in before["data"]
    stored = json.loads((tmp_path / "shared" / "config.json").read_text())
    assert stored["task"]["data"] == ["lines.txt"] and str(tmp_path) not in json.dumps(stored)
    lines.unlink()
    shutil.rmtree(tmp_path / "cache")
    moved = (tmp_path / "shared").rename(tmp_path / "moved")
    again = TextPipeline.from_pretrained(moved, "cpu")
    assert again.complete(["The cat", "A"], steps=4, seed=3) == expected
    assert again.tokenizer.same_tokens(pipeline.tokenizer)


def test_what_is_pushed_to_the_hub_is_what_is_saved(make_pipeline, tmp_path, monkeypatch):
    pipeline, seen = make_pipeline(), {}

    class Hub:
        def __init__(self, token=None):
            seen["token"] = token

        def create_repo(self, repo_id, **options):
            seen["created"] = repo_id, options
            return f"https://huggingface.co/{repo_id}"

        def upload_folder(self, *, repo_id, folder_path, commit_message):
            shutil.copytree(folder_path, tmp_path / "hub" / repo_id)

    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    assert pipeline.push_to_hub("someone/stories", private=True, token="t") == "https://huggingface.co/someone/stories"
    assert seen == {"token": "t", "created": ("someone/stories", {"private": True, "exist_ok": True})}
    pushed = TextPipeline.from_pretrained(tmp_path / "hub/someone/stories", "cpu")
    assert pushed.sample(2, steps=4) == pipeline.sample(2, steps=4)


@pytest.mark.parametrize("model", ["flexmdm", "mdm"])
def test_the_score_of_a_text_is_its_likelihood_in_bits(make_pipeline, model):
    pipeline = make_pipeline(model=model)
    text = "The cat sat"
    tokens = pipeline.tokenizer.encode([text])[0]
    padded = tokens if model == "flexmdm" else tokens + [pipeline.task.pad] * (pipeline.task.width - len(tokens))
    x1 = Ragged.from_lists([padded])
    template = Template.free(x1)
    if model == "mdm":  # masks that are there from the start, PAD too
        template = Template.of_roles(x1.with_values(torch.full((len(padded),), int(Role.PRESENT))))
    found = likelihood(pipeline.model.denoiser(), x1, num_times=32, seed=5, template=template)
    score = pipeline.score(text, num_times=32, seed=5)
    assert score.value == pytest.approx(float(found.nats) / math.log(2))
    assert score.standard_error == pytest.approx(float(found.standard_error) / math.log(2))
    with pytest.raises(Unanswerable, match="§"):
        pipeline.score("§")


def test_a_string_where_a_list_is_expected_is_refused_and_not_taken_apart(make_pipeline):
    pipeline = make_pipeline()
    for texts in ("The cat", ["The ", "cat"]):
        with pytest.raises(ValueError, match=r"fill takes the pieces of each text, such as .*; for texts use infill"):
            pipeline.fill(texts)
    with pytest.raises(ValueError, match="requests are a list, and this is one text: .'The cat'."):
        pipeline.answers("The cat")


# Requests that cannot be taken ----------------------------------------------------------------------------------------


def test_a_request_that_cannot_be_taken_is_told_from_an_error_of_ours(make_pipeline):
    pipeline = make_pipeline(max_length=8)
    with pytest.raises(Unanswerable, match="leaves no room"):
        pipeline.complete("The cat sat on")
    with pytest.raises(Unanswerable, match="text 1: .*leaves no room.*; bad too: text 2"):
        pipeline.complete(["The cat sat on", "The dog ran to"])
    for bad in ("§", "caf\udce9"):
        with pytest.raises(Unanswerable):
            pipeline.complete(bad)


def test_one_error_names_all_bad_requests_and_has_their_type():
    def make(request):
        if request == "long":
            raise Unanswerable("no room")
        return int(request)

    assert of_each(["1", "2"], make) == [1, 2]
    with pytest.raises(Unanswerable, match="text 1: no room; bad too: text 3"):
        of_each(["long", "1", "long"], make)
    with pytest.raises(ValueError, match="text 1: no room; bad too: text 2") as mixed:
        of_each(["long", "one"], make)
    assert not isinstance(mixed.value, Unanswerable)


def test_a_list_given_to_score_is_refused(make_pipeline):
    with pytest.raises(ValueError, match="score takes one text, and this is a list"):
        make_pipeline().score(["one", "two"])


@pytest.mark.parametrize("model", ["flexmdm", "mdm"])
def test_the_most_probable_of_several_draws_are_kept_the_best_first(make_pipeline, model):
    pipeline = make_pipeline(model=model)
    options = {"minimum": 2, "maximum": 2, "steps": 8, "seed": 3, "full": True}
    drawn = pipeline.infill("The ___ sat", 12, best=0, **options)
    best = pipeline.infill("The ___ sat", 12, best=3, **options)
    chances = [answer.log_prob for answer in best]
    assert chances == sorted(chances, reverse=True) and len({answer.text for answer in best}) == 3
    assert {answer.text for answer in best} <= {answer.text for answer in drawn if answer.fits}
    assert all(answer.log_prob is None for answer in drawn)


def test_draws_are_ranked_for_each_text_on_its_own(make_pipeline):
    pipeline, options = make_pipeline(), {"best": 2, "steps": 8, "full": True}
    both = pipeline.infill(["The ___ sat", "___ cat"], 6, **options)
    assert [(answer.request, answer.pieces) for answer in both] == [(0, ("The ", " sat"))] * 2 + [(1, ("", " cat"))] * 2
    assert [answer.text for answer in both[:2]] == [a.text for a in pipeline.infill("The ___ sat", 6, **options)]
    assert pipeline.infill(["___", "The ___ sat"], 4, best=0, steps=2)[4:] != [] == pipeline.infill(["___"], 0)


def test_without_best_an_answer_is_the_best_of_eight_draws(make_pipeline):
    pipeline = make_pipeline()
    assert pipeline.infill("The ___ sat", 2, steps=4) == pipeline.infill("The ___ sat", 16, best=2, steps=4)
    (answer,) = pipeline.infill("The ___ sat", steps=4, full=True)
    assert answer.log_prob < 0 <= answer.standard_error and not answer.confidence and not answer.lengths


@pytest.mark.parametrize("text", ["The ___ sat", "The ___ sat ___"])
@pytest.mark.parametrize("model", ["flexmdm", "mdm"])
def test_ranked_answers_say_how_sure_each_token_is_and_how_long_a_gap_may_be(make_pipeline, model, text):
    pipeline = make_pipeline(model=model)
    known = {"minimum": 2, "maximum": 2} if model == "mdm" else {"minimum": 1}
    for answer in pipeline.infill(text, 8, best=3, steps=4, full=True, **known):
        assert "".join(name for name, _ in answer.confidence) == "".join(answer.gaps)
        assert all(0 <= chance <= 1 for _, chance in answer.confidence) and len(answer.lengths) == len(answer.gaps)
        for law in answer.lengths:
            assert sum(law.values()) == pytest.approx(1) and min(law) >= known["minimum"]
            assert model == "flexmdm" or law == {2: 1.0}
        row = pipeline.row(answer)
        assert row["log_prob"] == answer.log_prob and len(row["confidence"]) == sum(map(len, answer.gaps))


def test_answers_that_do_not_fit_come_last(make_pipeline):
    """An empty gap, or a token that does not begin a word where a space was written, is kept for want of others."""
    pipeline = make_pipeline("bpe", expected_gap=0.3)
    for answer in pipeline.infill("The ___ sat", 200, best=0, steps=2, full=True):
        filled = answer.gaps[0].strip() and answer.text.startswith("The ")
        starts_a_word = pipeline.task.text.decode(answer.tokens).startswith("The ")
        assert answer.fits == bool(filled and starts_a_word)
    ranked = pipeline.infill("The ___ sat", 80, best=80, steps=2, full=True)
    assert [answer.fits for answer in ranked] == sorted((answer.fits for answer in ranked), reverse=True)


def test_more_answers_than_are_drawn_cannot_be_kept(make_pipeline):
    with pytest.raises(ValueError, match="from 1 to 3, or 0; got 4"):
        make_pipeline().infill("The ___ sat", 3, best=4)


def test_texts_are_sampled_with_other_schedules_than_those_of_the_training(make_pipeline):
    pipeline = make_pipeline()
    usual, named = pipeline.model.interpolant, {"insertion_schedule": "power:2.9", "unmasking_schedule": "power:2"}
    both = FlexMDMInterpolant(PowerSchedule(2.9), PowerSchedule(2.0))
    assert pipeline.sample(4, steps=6, **named) == pipeline.sample(4, steps=6, interpolant=both)
    assert pipeline.sample(4, steps=6, **named) != pipeline.sample(4, steps=6)
    one = FlexMDMInterpolant(usual.insertion, PowerSchedule(2.0))
    named.pop("insertion_schedule")
    assert pipeline.complete(["The"], steps=6, **named) == pipeline.complete(["The"], steps=6, interpolant=one)
    assert pipeline.model.interpolant == usual


def test_an_mdm_has_no_schedule_of_insertions(make_pipeline):
    pipeline = make_pipeline(model="mdm")
    assert len(pipeline.sample(2, steps=4, unmasking_schedule="power:0.5")) == 2
    with pytest.raises(ValueError, match="an MDM inserts nothing: leave its --insertion-schedule out"):
        pipeline.sample(1, insertion_schedule="linear")
