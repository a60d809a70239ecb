"""Filling gaps in functions from the command line: train on programs, go on, and every way to get it wrong."""

import json

import pytest

from flexmdm.tasks.code.pipeline import CodePipeline

TINY = [
    "--task", "code", "--hidden", "16", "--layers", "1", "--heads", "2", "--batch-size", "8", "--max-length", "64",
    "--device", "cpu", "--steps", "4", "--save-every", "2", "--eval-every", "4", "--held-out", "0.2",
]  # fmt: skip
FUNCTION = "def add{n}(x):\n    y = x + {n}\n    return y\n"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    for n in range(40):
        (folder / f"m{n:02}.py").write_text(FUNCTION.format(n=n))
    (folder / "old.py").write_text("print 'two'\n")
    return folder


@pytest.mark.parametrize("model", ["flexmdm", "mdm"])
def test_a_run_trains_resumes_and_fills(model, programs, trained, command):
    run = trained("code", "train", programs, *TINY, "--model", model)
    assert json.loads((run / "run.json").read_text())["task"]["name"] == "code"
    assert (run / "samples.txt").read_text().count("--- step 4") == 2
    out, err, code = command("train", "--out", run, "--resume", "--steps", "6", "--eval-every", "6")
    assert code == 0 and "going on from step 4" in err, err
    last = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()][-1]
    assert last["step"] == 6 and {"eval_bits_per_token", "eval_bits_per_character"} <= set(last)
    pipeline = CodePipeline.from_pretrained(run)
    assert pipeline.model.config.vocab_size == pipeline.task.vocab_size
    (filled,) = pipeline.fill([("def f(x):\n", "    return y\n")], steps=4)
    assert isinstance(filled.text, str)


def test_the_schedules_of_a_configuration_are_those_of_flexmdm(programs, command, tmp_path):
    early = "[interpolant]\ninsertion = { name = 'sine' }\nunmasking = { name = 'polynomial', exponent = 3.0 }\n"
    (tmp_path / "early.toml").write_text(f"[task]\nname = 'code'\n{early}")
    for model, insertion in (("flexmdm", "sine"), ("mdm", "linear")):
        run = tmp_path / model
        options = *TINY, "--steps", "1", "--config", tmp_path / "early.toml", "--model", model
        _, err, code = command("train", programs, *options, "--out", run)
        assert code == 0 and ("this MDM gets linear schedules" in err) == (model == "mdm"), err
        stored = json.loads((run / "run.json").read_text())["interpolant"]
        assert {schedule["name"] for schedule in stored.values()} >= {insertion}
        assert (stored["unmasking"]["name"] == "linear") == (model == "mdm")


@pytest.mark.parametrize("model", ["flexmdm", "mdm"])
def test_infill_fills_the_gap_of_a_program_and_leaves_the_rest(model, programs, trained, command, tmp_path):
    run = trained("code", "train", programs, *TINY, "--model", model)
    program = tmp_path / "program.py"
    program.write_text("def f(x):\n    y = ___\n\n    return y\n")
    out, err, code = command(
        "infill", run, "--file", program, "--steps", 4, "--num", 2, "--json", tmp_path / "out.json"
    )
    assert code == 0, err
    answers = json.loads((tmp_path / "out.json").read_text())
    assert len(answers) == 2
    for answer in answers:
        assert answer["prompt"] == program.read_text()
        assert answer["text"] == f"def f(x):\n    y = {answer['gaps'][0]}\n\n    return y\n" and answer["text"] in out
    out, err, code = command("infill", run, "def f(x): return ___", "--steps", 4, "--watch")
    assert code == 0 and out.splitlines()[-1].startswith("def f(x): return "), err


def test_a_program_that_is_longer_than_the_model_can_see_is_said_to_be(programs, trained, command, tmp_path):
    run = trained("code", "train", programs, *TINY)
    program = tmp_path / "long.py"
    program.write_text("def f(x):\n" + "    x = x + 1\n" * 40 + "    y = ___\n    return y\n")
    out, err, code = command("infill", run, "--file", program, "--steps", 4)
    assert code == 0 and "around the gap it saw the nearest" in " ".join(err.split()), err
    assert out.count("x = x + 1") == 40


def test_what_a_run_on_code_cannot_fill_is_said(programs, trained, command):
    run = trained("code", "train", programs, *TINY)
    for arguments, message in [
        (["a ___ b ___"], "fills one gap, and there are 2"),
        (["a ___", "--min", "2"], "--min and --max are for runs on text"),
        (["a"], "there is no gap in 'a'"),
    ]:
        out, err, code = command("infill", run, *arguments)
        assert code == 2 and message in err, err
    out, err, code = command("sample", run)
    assert code == 2 and "does not write from nothing: flexmdm infill RUN --file program.py" in err, err
    out, err, code = command("infill", "nowhere", "--file", next(programs.glob("*.py")))
    assert code == 2 and "nowhere is not a run" in err, err


def test_programs_that_are_no_python_are_counted(programs, command, monkeypatch):
    monkeypatch.setattr("flexmdm.runs.planning.seconds_per_step", lambda *_: 7.0)
    out, err, code = command("train", programs, *TINY, "--mixture", "line=1", "--dry-run")
    assert code == 0 and "flexmdm on code" in out and "40 functions" in out and "1 bad programs skipped" in out, err


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.py", FUNCTION.format(n=1), [], "with a share of 0.2 of the programs held out"),
        ("a.py", "x = 1\n", [], "it has no function that is long enough"),
        ("a.py", "def f(:\n", [], "every program is bad; the first bad program"),
        ("a.jsonl", '{"text": "x"}\n', [], "no field 'code', only 'text'; say which field holds the code (--field)"),
        ("a.py", FUNCTION, ["--mixture", "prefix=1"], "a mixture has the weights line, lines, span"),
        ("a.py", FUNCTION, ["--prompt-field", "a"], "--prompt-field is for --task sft, and this is code"),
        ("a.py", FUNCTION.format(n=1), ["--max-length", "8"], "longer than 5 tokens"),
        ("a.txt", FUNCTION, [], "there are readers for .py, .jsonl, .csv, .parquet"),
    ],
)
def test_bad_data_and_settings_are_named(name, content, options, message, command, tmp_path):
    (tmp_path / name).write_text(content)
    out, err, code = command("train", tmp_path / name, *TINY, *options, "--out", tmp_path / "run")
    assert code == 2 and err.startswith("error:") and message in err, err
    assert not (tmp_path / "run").exists()
