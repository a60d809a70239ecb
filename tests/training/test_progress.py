"""The log goes on where a run goes on, and a person sees how far it is and how long it will take."""

import io
import json
from types import SimpleNamespace

import pytest
from rich.console import Console

from flexmdm.training.progress import FileLog, LiveProgress, read_log
from flexmdm.training.timing import ENDLESS, TimeLimit


def at(step, most=100):
    return SimpleNamespace(global_step=step, max_steps=most)


def log_steps(folder, clock, resumed_at, steps):
    """A session of training: one line per step, and each takes ten seconds."""
    log = FileLog(folder)
    log.on_train_begin(None, at(resumed_at), None)
    for step in steps:
        clock.now += 10
        log.on_log(None, at(step), None, {"loss": float(step), "epoch": 0.5})


# The log -------------------------------------------------------------------------------------------------------------


def test_a_line_has_the_step_the_seconds_and_the_figures(tmp_path, clock):
    log_steps(tmp_path, clock, 0, [1, 2])
    assert read_log(tmp_path / "log.jsonl") == [
        {"step": 1, "seconds": 10.0, "loss": 1.0},
        {"step": 2, "seconds": 20.0, "loss": 2.0},
    ]


def test_a_resumed_log_has_every_step_once_and_its_seconds_go_on(tmp_path, clock):
    log_steps(tmp_path, clock, 0, [1, 2, 3, 4, 5])
    clock.now += 10_000  # the night in between does not count
    log_steps(tmp_path, clock, 3, [4, 5, 6])
    lines = read_log(tmp_path / "log.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [line["seconds"] for line in lines] == [10, 20, 30, 40, 50, 60]


def test_a_run_that_starts_again_from_the_beginning_has_a_new_log(tmp_path, clock):
    log_steps(tmp_path, clock, 0, [1, 2, 3])
    log_steps(tmp_path, clock, 0, [1])
    assert [line["step"] for line in read_log(tmp_path / "log.jsonl")] == [1]


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_last_line_that_was_cut_off_is_left_out_and_the_log_goes_on(cut, tmp_path, clock):
    log_steps(tmp_path, clock, 0, [1, 2, 3])
    file = tmp_path / "log.jsonl"
    file.write_text(file.read_text().rstrip("\n")[:-cut])
    assert [line["step"] for line in read_log(file)] == [1, 2]
    log_steps(tmp_path, clock, 3, [4])
    assert [line["step"] for line in read_log(file)] == [1, 2, 4]
    assert read_log(file)[-1]["seconds"] == 30


def test_what_is_neither_a_loss_nor_an_evaluation_is_no_line(tmp_path, clock):
    log = FileLog(tmp_path)
    log.on_train_begin(None, at(0), None)
    log.on_log(None, at(1), None, {"train_runtime": 3.0})
    log.on_log(None, at(1), None, None)
    log.on_log(None, at(1), None, {"eval_loss": 2.0})
    assert [line["eval_loss"] for line in read_log(tmp_path / "log.jsonl")] == [2.0]


def test_no_log_has_no_lines(tmp_path):
    assert read_log(tmp_path / "log.jsonl") == []


# What a person sees --------------------------------------------------------------------------------------------------


def test_off_a_terminal_there_is_a_line_now_and_then_and_one_for_every_evaluation(clock, console):
    live = LiveProgress(console, "maze")
    live.on_train_begin(None, at(20), None)
    for step in range(21, 41):
        clock.now += 10
        live.on_step_end(None, at(step), None)
        live.on_log(None, at(step), None, {"loss": 2.0, "tokens_per_second": 1234.0})
    live.on_evaluate(None, at(40), None, {"eval_loss": 3.0, "eval_unmasking": 1.0, "eval_insertion": 2.0})
    live.on_train_end()
    lines = console.file.getvalue().splitlines()
    assert 4 <= len(lines) <= 7
    assert lines[1].startswith("maze 25/100  loss 2.000  1,234 tokens/s") and "12 min left" in lines[1]
    assert lines[-1] == "maze step 40: held-out loss 3.000 (unmasking 1.000, insertion 2.000)"


def test_an_evaluation_of_mdm_has_no_insertions_and_bits_have_their_error(console):
    live = LiveProgress(console, "mdm")
    bits = {"eval_bits_per_character": 2.5, "eval_bits_per_character_standard_error": 0.25}
    live.on_evaluate(None, at(40), None, {"eval_loss": 3.0, "eval_unmasking": 3.0, "eval_insertion": 0.0, **bits})
    assert console.file.getvalue() == "mdm step 40: held-out loss 3.000, 2.500 ± 0.250 bits per character\n"


def test_where_tokens_are_characters_their_bits_are_said_once(console):
    live = LiveProgress(console, "names")
    losses = {"eval_loss": 3.0, "eval_unmasking": 3.0, "eval_insertion": 0.0}
    errors = {f"eval_bits_per_{what}_standard_error": 0.125 for what in ("token", "character")}
    for token in (5.25, 9.5):
        bits = {"eval_bits_per_token": token, "eval_bits_per_character": 5.25}
        live.on_evaluate(None, at(40), None, {**losses, **bits, **errors})
    once, twice = console.file.getvalue().splitlines()
    assert once == "names step 40: held-out loss 3.000, 5.250 ± 0.125 bits per character"
    assert twice.endswith("9.500 ± 0.125 bits per token, 5.250 ± 0.125 bits per character")


def test_less_than_a_minute_is_left_in_seconds(clock, console):
    live = LiveProgress(console, "maze")
    live.on_train_begin(None, at(0), None)
    clock.now += 40
    live.on_log(None, at(80), None, {"loss": 2.0})
    assert console.file.getvalue().endswith("10 s left\n")


@pytest.mark.parametrize(
    ("most", "left"),
    [(ENDLESS, "3 min left"), (60, "50 s left")],  # a new run, and one that goes on and has all its steps before
)
def test_with_a_limit_the_time_is_shown_that_is_left_of_it(most, left, clock, console):
    limit = TimeLimit(230)
    live = LiveProgress(console, "maze", limit)
    for one in (live, limit):
        one.on_train_begin(None, at(0, most), None)
    clock.now += 50
    live.on_step_end(None, at(30, most), None)
    (bar,) = live.bar.progress.tasks
    assert bar.completed == 50 and bar.total == (230 if most == ENDLESS else 100)
    live.on_log(None, at(30, most), None, {"loss": 2.0, "tokens_per_second": 1234.0})
    assert console.file.getvalue() == f"maze step 30  loss 2.000  1,234 tokens/s  {left}\n"


def test_on_a_terminal_there_is_a_bar():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    live = LiveProgress(console, "maze")
    live.on_train_begin(None, at(0), None)
    live.on_log(None, at(1), None, {"loss": 2.0})
    live.on_step_end(None, at(30), None)
    live.on_train_end()
    live.stop()  # again: no harm
    shown = console.file.getvalue()
    assert "maze" in shown and "30/100" in shown and "loss 2.000" in shown


def test_every_line_of_the_log_is_json_on_its_own(tmp_path, trainer):
    trainer(FileLog(tmp_path), steps=3, eval_every=2).train()
    lines = [json.loads(text) for text in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(line["step"], "eval_loss" in line) for line in lines] == [
        (1, False), (2, False), (2, True), (3, False), (3, True)
    ]  # fmt: skip
    assert [line["sequences"] for line in lines] == [8, 16, 16, 24, 24]
    assert {"loss", "unmasking", "insertion", "learning_rate", "grad_norm", "tokens_per_second"} <= set(lines[0])
