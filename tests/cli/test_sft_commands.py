"""Instruction fine-tuning from the command line: train on pairs, go on, and every way to get it wrong."""

import json

import pytest

from flexmdm.tasks.sft.pipeline import SFTPipeline

TINY = [
    "--task", "sft", "--hidden", "16", "--layers", "1", "--heads", "2", "--batch-size", "8", "--max-length", "16",
    "--device", "cpu", "--steps", "4", "--save-every", "2", "--eval-every", "4",
]  # fmt: skip
SUMS = [(f"{a}+{b}", str(a + b)) for a in range(12) for b in range(8)]


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "sums.jsonl"
    file.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in SUMS))
    return file


@pytest.mark.parametrize("model", ["flexmdm", "mdm"])
def test_a_run_trains_resumes_and_answers(model, sums, trained, command, tmp_path):
    run = trained("sums", "train", sums, *TINY, "--model", model)
    assert json.loads((run / "run.json").read_text())["task"]["name"] == "sft"
    assert (run / "samples.txt").read_text().count("--- step 4") == 2
    out, err, code = command("train", "--out", run, "--resume", "--steps", "6", "--eval-every", "6")
    assert code == 0 and "going on from step 4" in err, err
    last = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()][-1]
    assert last["step"] == 6 and {"eval_bits_per_token", "eval_bits_per_character"} <= set(last)
    pipeline, file = SFTPipeline.from_pretrained(run), tmp_path / "answers.json"
    assert pipeline.model.config.vocab_size == pipeline.task.vocab_size
    questions = tmp_path / "questions.txt"
    questions.write_text("3+4\n5+6\n")
    options = ["--num", 2, "--json", file, "--watch", "--steps", 4]
    out, err, code = command("complete", run, "--file", questions, *options)
    assert code == 0 and "clock" in out, err
    answers = pipeline.answer(["3+4", "5+6"], 2, full=True, steps=4)
    rows = json.loads(file.read_text())
    assert [row["prompt"] for row in rows] == ["3+4", "3+4", "5+6", "5+6"]
    assert [row["answer"] for row in rows] == [one.text for one in answers]
    assert all(row["evaluations"] == one.evaluations >= 1 for row, one in zip(rows, answers, strict=True))


def test_what_a_run_on_pairs_cannot_do_is_said(sums, trained, command):
    run = trained("sums", "train", sums, *TINY)
    out, err, code = command("eval", run, "--num", "5")
    assert code == 2 and "sums: a run on sft is measured by --benchmark gsm8k --data FOLDER" in err
    for wrong in (["sample", run], ["infill", run, "a___b"]):
        assert 'flexmdm complete RUN "a question"' in command(*wrong)[1]
    out, err, code = command("complete", run, "")
    assert code == 2 and "the prompt is empty, and this model answers prompts: write a question" in err
    out, err, code = command("complete", run, "1+1", "--sampler", "low_confidence")
    expected = f"--sampler low_confidence is for MDM only, and {run} is a FlexMDM: take spaced, adaptive or tau"
    assert code == 2 and expected in err and "Prompt" not in err


def test_from_a_run_of_characters_all_unknown_ones_are_named_at_once(sums, trained, command, tmp_path):
    file = tmp_path / "digits.txt"
    file.write_text("".join(f"{number}\n" for number in range(100, 300)))
    run = trained("digits", "train", file, *TINY[2:], "--tokenizer", "characters")
    out, err, code = command("train", sums, "--task", "sft", "--from", run, "--steps", "2", "--out", tmp_path / "run")
    assert code == 2 and r"2 character(s) that the tokenizer does not know: '\n' (U+000A), '+' (U+002B);" in err, err
    assert "start from a run with bpe or bytes, or train without --from" in err
    assert not (tmp_path / "run").exists()


def test_pairs_with_an_empty_side_are_skipped_and_counted(command, tmp_path):
    file = tmp_path / "sums.jsonl"
    rows = [*SUMS, ("3+4", ""), ("", "7")]
    file.write_text("".join(json.dumps({"prompt": q, "answer": a}) + "\n" for q, a in rows))
    out, err, code = command("train", file, *TINY, "--skip-bad", "--out", tmp_path / "run")
    assert code == 0 and "2 bad lines skipped" in err and "line 97: the answer of this pair is empty" in err, err


def test_a_csv_trains_with_named_fields_and_a_format(command, tmp_path):
    file = tmp_path / "sums.csv"
    file.write_text("q,a\n" + "".join(f"{q},{a}\n" for q, a in SUMS))
    options = ["--prompt-field", "q", "--answer-field", "a", "--format", "{prompt}=", "--tokenizer", "bytes"]
    out, err, code = command("train", file, *TINY, *options, "--out", tmp_path / "run")
    assert code == 0, err
    task = SFTPipeline.from_pretrained(tmp_path / "run").task
    assert bytes(task.encode((("user", "3+4"),))) == b"3+4="


def test_a_dry_run_shows_prompts_with_masks_behind_them(sums, command, monkeypatch, tmp_path):
    monkeypatch.setattr("flexmdm.runs.planning.seconds_per_step", lambda *_: 7.0)
    out, err, code = command("train", sums, *TINY, "--dry-run")
    assert code == 0 and "flexmdm on sft" in out and "alpha" in out, err


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b'{"title": "a", "body": "b"}\n', [], "only 'title', 'body'; say which hold the prompt and the answer"),
        (b'{"prompt": "a", "answer": "b"}\n{"prompt": \n', [], "line 2: malformed JSON"),
        (b'{"prompt": "a", "answer": ""}\n', [], "line 1: the answer of this pair is empty"),
        (b'{"prompt": "", "answer": "b"}\n', [], "line 1: the prompt of this pair is empty"),
        (b'{"prompt": "a", "answer": "b"}\n' * 50, ["--max-length", "2"], "50 longer than 2 tokens"),
        (b'{"prompt": "a", "answer": "b"}\n' * 50, ["--format", "chat"], "name one that has a chat template"),
        (b'{"prompt": "a", "answer": "b"}\n' * 50, ["--format", "chatty"], "a format is plain, chat, or a text"),
        (
            b'{"prompt": "a", "answer": "b"}\n' * 50,
            ["--field", "prompt"],
            "--field is for --task text or code, and this is sft",
        ),
        (b'{"prompt": "a", "answer": "b"}\n' * 50, ["--size", "huge"], "tiny, small, base"),
    ],
)
def test_bad_data_and_settings_are_named(content, options, message, command, tmp_path):
    file = tmp_path / "pairs.jsonl"
    file.write_bytes(content)
    out, err, code = command("train", file, *TINY, *options, "--out", tmp_path / "run")
    assert code == 2 and err.startswith("error:") and message in err, err
    assert not (tmp_path / "run").exists()


def test_answers_are_learned_by_the_weights_that_come_with_the_package_by_a_recipe_for_their_size(sums, command):
    out, err, code = command("train", sums, "--task", "sft", "--from", "text", "--max-length", "16", "--dry-run")
    assert code == 0, err
    said = " ".join((out + err).split())  # lines are broken where they are long
    assert "7.74M weights are trained" in said and "1,000 steps of 128 sequences" in said


def test_a_base_that_is_not_there_is_said_before_any_data_is_read(sums, command, monkeypatch):
    monkeypatch.setattr("flexmdm.data.encoding.Encoder", None)  # not to be called
    out, err, code = command("train", sums, "--task", "sft", "--from", "runs/nowhere.not", "--out", "runs/never")
    assert code == 2 and "there is no pretrained model 'runs/nowhere.not'" in err, err
