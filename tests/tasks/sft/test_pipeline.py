import io
import json
import math
import random

import pytest
import torch
from rich.console import Console

from flexmdm import FiniteDistribution
from flexmdm.reports import answers as reports
from flexmdm.tasks.likelihoods import bits
from flexmdm.tasks.previews import Preview
from flexmdm.tasks.sft.pipeline import SFTPipeline

SAMPLERS = [
    {}, {"sampler": "tau"}, {"sampler": "adaptive", "confidence": "top_prob", "window": (5.0, 64), "temperature": 0.0},
]  # fmt: skip


@pytest.mark.parametrize("options", SAMPLERS, ids=["default", "tau", "paper"])
@pytest.mark.parametrize(("model", "tokenizer"), [("flexmdm", "characters"), ("flexmdm", "bpe"), ("mdm", "bytes")])
def test_the_tokens_of_a_prompt_survive_generation(make_pipeline, pairs, model, tokenizer, options):
    """30 random unicode prompts each."""
    pipeline = make_pipeline(model, tokenizer, expected_gap=1.0)
    rng, alphabet = random.Random(0), sorted(set("Où est 漢字 😀 12 + tab\t"))
    questions = ["".join(rng.choices(alphabet, k=rng.randint(1, 9))) for _ in range(30)]
    answers = pipeline.answers(questions, steps=4, **options)
    for question, answer in zip(questions, answers, strict=True):
        prompt = pipeline.task.encode((("user", question),))
        assert list(answer.tokens[: len(prompt)]) == prompt == list(answer.prompt.tokens[: len(prompt)])
        assert answer.text == pipeline.task.text.decode(answer.tokens[len(prompt) :])
        assert answer.evaluations >= 1 and len(answer.tokens) <= pipeline.task.max_length
    assert len({answer.text for answer in answers}) > 1


def test_an_mdm_fills_the_width_with_masks(make_pipeline):
    pipeline = make_pipeline("mdm")
    (answer,) = pipeline.answers(["0 Say it."], steps=4)
    assert len(answer.prompt.tokens) == pipeline.task.width and not any(answer.prompt.open_gaps)
    assert answer.prompt.tokens[len("0 Say it.\n") :] == (None,) * (pipeline.task.width - 10)
    assert pipeline.task.pad not in answer.tokens


def test_strings_in_strings_out(make_pipeline):
    pipeline = make_pipeline()
    assert isinstance(pipeline.answer("Say it.", steps=4), str)
    assert len(pipeline.answer(["Say it.", "one two"], num=2, steps=4)) == 4
    assert isinstance(pipeline.answer([{"role": "user", "content": "Say it."}], steps=4), str)
    assert pipeline.answer([], steps=4) == []


def test_the_same_seed_gives_the_same_answers_in_batches_of_any_size(make_pipeline):
    pipeline = make_pipeline()
    questions = ["Say it.", "one two", "12 + 30"]
    assert pipeline.answer(questions, steps=4, seed=3, batch_size=1) == pipeline.answer(questions, steps=4, seed=3)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        pipeline.answer(questions, batch_size=0)


def test_a_conversation_is_answered_in_its_chat_template(make_pipeline, chat_tokenizer):
    pipeline = make_pipeline(tokenizer=str(chat_tokenizer()), format="chat")
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Où?"}]
    (answer,) = pipeline.answers([talk], steps=4)
    length = len(answer.prompt.tokens)
    shown = pipeline.task.show(answer.tokens[:length])
    assert shown == "<s><|system|>Be brief.<|end|><|user|>Où?<|end|><|assistant|>"


@pytest.mark.parametrize("model", ["flexmdm", "mdm"])
def test_a_model_may_know_more_tokens_than_the_tokenizer(make_pipeline, model):
    """As many again, of which an untrained model draws plenty: they are no text, and left out."""
    pipeline = make_pipeline(model, more=100)
    answers = pipeline.answers(["Say it."] * 10, steps=4)
    assert all(token < pipeline.task.text.size for answer in answers for token in answer.tokens)


def test_a_prompt_without_room_for_an_answer_is_refused(make_pipeline):
    for model, most in (("flexmdm", 96), ("mdm", None)):
        pipeline = make_pipeline(model)
        with pytest.raises(ValueError, match=f"no room for an answer: it has 101 tokens.*at most {most or ''}"):
            pipeline.answer("o" * 100)
    with pytest.raises(ValueError, match="line 7: the prompt leaves no room"):
        pipeline.answers(["Say", "o" * 100], names=["line 3", "line 7"])
    with pytest.raises(ValueError, match="§"):
        pipeline.answer("§")


@pytest.mark.parametrize("empty", ["", " \n", [{"role": "user", "content": ""}]])
def test_an_empty_prompt_is_refused(make_pipeline, empty):
    with pytest.raises(ValueError, match="the prompt is empty, and this model answers prompts: write a question"):
        make_pipeline().answer(empty)


def test_a_run_of_another_task_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not a run"):
        SFTPipeline.from_pretrained(tmp_path)


# While it trains ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["flexmdm", "mdm"])
def test_a_preview_shows_answers_and_measures_held_out_ones(make_pipeline, tmp_path, model):
    pipeline = make_pipeline(model)
    console = Console(file=io.StringIO())
    figures = Preview(pipeline.task, tmp_path, console)(pipeline.model, 7)
    assert {"eval_bits_per_token", "eval_bits_per_character"} <= set(figures)
    assert all(math.isfinite(value) and value > 0 for value in figures.values())
    assert (tmp_path / "samples.txt").read_text().count("--- step 7") == 2


def test_every_line_of_a_sample_is_marked_and_an_empty_one_is_seen(make_pipeline, tmp_path, monkeypatch):
    pipeline, console = make_pipeline(), Console(file=io.StringIO(), width=200)
    samples = ["What?\nPlease [b]\n(empty)", ""]
    monkeypatch.setattr(type(pipeline), "preview", lambda *_, **__: samples)
    Preview(pipeline.task, tmp_path, console)(pipeline.model, 7)
    lines = console.file.getvalue().splitlines()
    assert [line.rstrip() for line in lines] == ["  | What?", "  | Please [b]", "  | (empty)", "  | (empty)"]
    assert (tmp_path / "samples.txt").read_text().endswith("--- step 7\n\n")  # as it is


def test_an_empty_answer_is_seen_in_the_preview(make_pipeline, monkeypatch):
    pipeline = make_pipeline()
    monkeypatch.setattr(type(pipeline.task), "answer", lambda *_: [])
    shown = pipeline.preview(2, seed=7)
    assert len(shown) == 2 and all(text.endswith("\n(empty)") for text in shown)


@pytest.mark.parametrize("terminal", [True, False])
def test_an_empty_answer_is_seen_on_a_terminal_alone(make_pipeline, monkeypatch, tmp_path, terminal, capsys):
    pipeline, file = make_pipeline(), tmp_path / "new" / "answers.json"
    monkeypatch.setattr(type(pipeline.task), "answer", lambda *_: [])
    console = Console(file=io.StringIO(), force_terminal=terminal, color_system=None)
    reports.show(pipeline, pipeline.answer(["Say it."], full=True, steps=4), ["Say it."], file, console=console)
    assert console.file.getvalue() == ("(empty)\n" if terminal else "\n")
    assert json.loads(file.read_text())[0]["answer"] == ""
    assert f"written to {file}" in capsys.readouterr().err


class Exact:
    """Stands for a model: the exact posteriors of a distribution."""

    def __init__(self, law, vocab_size):
        self.source = FiniteDistribution(law, vocab_size)

    def denoiser(self):
        return self.source.denoiser()


@pytest.mark.parametrize("model", ["flexmdm", "mdm"])
def test_bits_are_those_of_the_answers_given_their_prompts(make_task, tmp_path, model):
    """Two prompts, and behind each of them an answer of 1/2 or of two with 1/4: 1, 2 and 2 bits, whatever the prompts'
    own chances. 2,000 times per pair, which give the mean of the six pairs a standard error of 0.05 bits."""
    rows = [("a", "b", 1), ("a", "ba", 2), ("a", "bb", 2), ("b", "a", 1), ("b", "ab", 2), ("b", "aab", 2)]
    file = tmp_path / "held.csv"
    file.write_text("prompt,answer\n" + "".join(f"{prompt},{answer}\n" for prompt, answer, _ in rows))
    settings = {"prompt_field": None, "tokenizer": "bytes", "held_out_data": (str(file),), "format": "{prompt}"}
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "a", "answer": "b"}\n')
    task = make_task(model, **settings)
    index = torch.arange(6)
    x1, _ = task.validation.take(index, index)
    law = dict(zip(map(tuple, x1.tolist()), [0.1, 0.05, 0.05, 0.4, 0.2, 0.2], strict=True))
    score = bits(Exact(law, task.vocab_size), task, index, num_times=2000)
    assert score.per_sequence.value == pytest.approx(sum(number for *_, number in rows) / 6, abs=0.15)
    assert score.per_token.value == score.per_character.value == pytest.approx(10 / 11, abs=0.1)
