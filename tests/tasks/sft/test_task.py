"""Pairs as examples: what is fixed, what is free, what is PAD; prepared once; what cannot be used is said."""

import io
import json

import pytest
import torch
from rich.console import Console

from flexmdm.canvas import Role
from flexmdm.data import TextTokenizer, encoding
from flexmdm.tasks.registry import task_of
from flexmdm.tasks.sft.task import SFTTask


def examples(task):
    """(tokens, roles, open gaps) of every training pair."""
    index = torch.arange(len(task.train))
    x1, template = task.train.take(index, index)
    return list(zip(x1.tolist(), template.roles.tolist(), template.open_gaps.tolist(), strict=True))


def written(pairs):
    """The pairs of the file as the plain format writes them."""
    rows = map(json.loads, pairs.read_text().splitlines())
    return {row["question"] + "\n": row["answer"] for row in rows}


@pytest.mark.parametrize("tokenizer", ["characters", "bytes", "bpe"])
def test_flexmdm_sees_the_prompt_fixed_and_the_answer_free(make_task, pairs, tokenizer):
    task = make_task(tokenizer=tokenizer)
    texts, seen = written(pairs), 0
    for tokens, roles, gaps in examples(task):
        length = roles.count(Role.FIXED)
        assert roles == [Role.FIXED] * length + [Role.FREE] * (len(tokens) - length)
        assert gaps == [False] * length + [True]
        prompt = task.text.decode(tokens[:length])
        assert task.text.decode(tokens[length:]) == texts[prompt]
        assert task.encode((("user", prompt[:-1]),)) == tokens[:length]  # token for token what generation starts from
        seen += 1
    assert seen == len(task.train) > 100
    assert task.vocab_size == task.text.size


@pytest.mark.parametrize("pad_id", [None, 3, 500])
def test_mdm_sees_the_answer_and_pad_as_masks(make_task, pairs, pad_id):
    task = make_task("mdm", pad_id=pad_id)
    assert task.pad == (task.text.size if pad_id is None else pad_id)
    assert task.vocab_size == {None: task.text.size + 1, 3: task.text.size, 500: 501}[pad_id]
    plain, texts = make_task(), written(pairs)
    for (tokens, roles, gaps), (clean, clean_roles, _) in zip(examples(task), examples(plain), strict=True):
        length = clean_roles.count(Role.FIXED)
        assert tokens == clean + [task.pad] * (task.width - len(clean))
        assert roles == [Role.FIXED] * length + [Role.PRESENT] * (task.width - length)
        assert gaps == [False] * (task.width + 1)
        if pad_id != 3:  # which is also a character of the text
            assert task.text.decode(task.answer(tokens, length)) == texts[task.text.decode(clean[:length])]
    longest = max(len(tokens) for side in (plain.prepared.train, plain.prepared.validation) for tokens in store(side))
    assert task.width == longest


def store(side):
    return side.take(torch.arange(len(side))).tolist()


def test_an_answer_ends_at_the_first_pad_and_has_no_unknown_tokens(make_task):
    mdm = make_task("mdm", pad_id=2)
    assert mdm.answer([2, 5, 6, 999, 7, 2, 8, 2], 1) == [5, 6, 7]
    assert make_task().answer([2, 5, 2, 999], 1) == [5, 2]


def test_a_state_is_shown_without_pad(make_task):
    task = make_task("mdm")
    prompt = task.encode((("user", "0 Say it."),))
    assert task.show([*prompt, None, None, task.pad, task.pad]) == "0 Say it.\n··"


def test_a_task_comes_back_from_what_a_run_stores(make_task, tmp_path, chat_tokenizer):
    task = make_task("mdm", str(chat_tokenizer()), format="chat", pad_id=2)
    task.save(tmp_path / "run")
    again = task_of(task.to_dict(), tmp_path / "run")
    assert isinstance(again, SFTTask) and again.to_dict() == task.to_dict()
    (tmp_path / "pairs.jsonl").unlink()
    (tmp_path / "chat" / "tokenizer.json").unlink()
    conversation = (("system", "x"), ("user", "y"))
    assert again.encode(conversation) == task.encode(conversation)  # with what the run keeps alone
    with pytest.raises(ValueError, match="the sft task has no mixture; it knows data, model"):
        SFTTask.from_dict({"mixture": {}})


def test_pairs_that_are_too_long_are_dropped_counted_and_said(pairs, make_task):
    said = io.StringIO()
    task = SFTTask((str(pairs),), tokenizer="characters", max_length=24, held_out=0.2).settled(Console(file=said))
    texts = written(pairs)
    long = sum(len(prompt + answer) > 24 for prompt, answer in texts.items())
    assert 0 < long == task.prepared.counts["dropped"] and f"{long} long pairs dropped" in said.getvalue()
    assert len(task.train) + len(task.validation) == len(texts) - long
    for tokens, roles, _ in examples(task):
        prompt = task.text.decode(tokens[: roles.count(Role.FIXED)])
        assert task.text.decode(tokens) == prompt + texts[prompt]  # whole, or not there


@pytest.mark.parametrize(("question", "answer", "side"), [(" ", "x", "prompt"), ("x", "", "answer")])
def test_an_empty_side_of_a_pair_is_an_error_or_counted(pairs, question, answer, side):
    with pairs.open("a") as file:
        file.write(json.dumps({"question": question, "answer": answer}) + "\n")
    message = f"pairs.jsonl, line 181: the {side} of this pair is empty"
    with pytest.raises(ValueError, match=message):
        SFTTask((str(pairs),)).settled()
    said = io.StringIO()
    task = SFTTask((str(pairs),), skip_bad=True).settled(Console(file=said))
    assert task.prepared.counts["skipped"] == 1 and len(task.train) + len(task.validation) == 180
    assert "1 bad lines skipped" in said.getvalue() and message in said.getvalue()


def test_if_no_pair_fits_that_is_said(make_task):
    with pytest.raises(ValueError, match=r"of 180 pair\(s\) none is left to train on \(180 longer than 4 tokens"):
        make_task(max_length=4)


def test_a_tokenizer_learns_from_prompts_and_answers(make_task, pairs):
    with pairs.open("a") as file:
        file.write('{"question": "Ж", "answer": "Ω"}\n')
    text = make_task().text
    assert text.decode(text.encode(["ЖΩ\n"])[0]) == "ЖΩ\n"
    assert make_task(tokenizer="bpe", vocabulary=280).text.size == 280


def test_the_tokenizer_of_another_run_can_be_used_and_the_run_loaded_again(make_task, tmp_path):
    other = make_task(tokenizer="bpe")
    other.save(tmp_path / "other")
    task = make_task(tokenizer=str(tmp_path / "other"), format="{prompt} ")
    task.save(tmp_path / "run")
    again = task_of(task.to_dict(), tmp_path / "run")
    assert again.text.to_json() == other.text.to_json() and examples(again) == examples(task)


def test_all_characters_that_another_run_does_not_know_are_named_at_once(make_task, tmp_path):
    file = tmp_path / "sums.csv"
    file.write_text("prompt,answer\n" + "1,2\n" * 5000 + "1+1?,2\n")  # the unknown ones are in another batch
    digits = TextTokenizer.train("characters", ["0123456789"])
    digits.save(tmp_path / "digits")
    settings = {"tokenizer": str(tmp_path / "digits"), "held_out": 0.2}
    with pytest.raises(ValueError) as error:
        SFTTask((str(file),), **settings).settled()
    assert str(error.value) == (
        "the data with its prompts written as '{prompt}\\n' has 3 character(s) that the tokenizer does not know: "
        "'\\n' (U+000A), '+' (U+002B), '?' (U+003F); a characters tokenizer knows only the characters of the data that "
        "it was made from: start from a run with bpe or bytes, or train without --from"
    )
    file.write_text("prompt,answer\n" + "1,2\n" * 50)
    with pytest.raises(ValueError, match=r"1 character.*without --from, or choose a --format without them, such as"):
        SFTTask((str(file),), **settings).settled()
    assert len(SFTTask((str(file),), format="0{prompt}0", **settings).settled().train) > 20
    file.write_text("prompt,answer\nabcdefghijklmnopqrst,2\n")
    with pytest.raises(ValueError, match=r"has 21 character.*'i' \(U\+0069\), \.\.\.; a characters tokenizer"):
        SFTTask((str(file),), **settings).settled()


def test_the_data_is_prepared_once_and_anew_for_another_format(make_task, monkeypatch):
    first, other = make_task(), make_task(format="Q: {prompt}A: ", tokenizer="bytes")
    monkeypatch.setattr(encoding, "numbered", None)
    again = make_task()
    assert again.prepared.folder == first.prepared.folder != other.prepared.folder
    assert again.contents == first.contents and examples(again) == examples(first)
    assert make_task("mdm").prepared.folder == first.prepared.folder  # the same for the baseline


def test_other_files_can_be_held_out(make_task, tmp_path):
    other = tmp_path / "held.csv"
    other.write_text("question,answer\nSay,it\n")
    task = make_task(held_out_data=(str(other),))
    assert len(task.train) == 180 and len(task.validation) == 1
    _, _, tokens, characters = task.validation.to_find(torch.arange(1))
    assert tokens.tolist() == [2] and characters.tolist() == [2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pad_id": -1}, "pad_id is a token"),
        ({"remove": "("}, "what to remove is a regular expression"),
        ({"format": "chatty"}, "a format is plain, chat"),
        ({"model": "ar"}, "flexmdm or mdm"),
        ({"prompt_field": "q"}, "no field 'q', only 'question', 'answer'"),
    ],
)
def test_bad_settings_are_refused(make_task, settings, message):
    with pytest.raises(ValueError, match=message):
        make_task(**settings)
