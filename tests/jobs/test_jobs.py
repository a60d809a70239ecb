"""A job ends with one answer per line, the same however it was interrupted and whoever answered."""

import json
import multiprocessing
import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from flexmdm import TextPipeline
from flexmdm.data.tokenizers import Unanswerable
from flexmdm.jobs import engines
from flexmdm.jobs import job as job_module
from flexmdm.jobs.job import Answerer, Shard
from flexmdm.jobs.journal import locked
from flexmdm.jobs.run import run

BAD = 9  # lines of `make_job`


def started(job, out, **options):
    """Run a job in a process of its own, which begins as a copy of this one: nothing is imported again."""
    process = multiprocessing.get_context("fork").Process(target=run, args=(job, Path(out)), kwargs=options)
    process.start()
    return process


def lines_of(out):
    return out.read_text().splitlines()


def test_a_job_killed_five_times_ends_as_if_nothing_had_happened(make_job, tmp_path):
    """At random moments, and once more with a line half written."""
    job, whole, out, rng = make_job(), tmp_path / "whole.jsonl", tmp_path / "out.jsonl", random.Random(0)
    assert run(job, whole).refused == BAD
    for kill in range(5):
        before = out.stat().st_size if out.exists() else 0
        process = started(job, out)
        deadline = time.monotonic() + 60
        while (not out.exists() or out.stat().st_size == before) and process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(rng.random() * 0.1)
        process.kill()
        process.join()
        if kill == 2:
            with open(out, "ab") as log:
                log.write(b'{"prompt": "half a li')
    outcome = run(job, out)
    assert (outcome.lines, outcome.refused) == (209, BAD)
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "lines.jsonl", "out.json", "out.jsonl", "whole.json", "whole.jsonl",
    ]  # fmt: skip


def test_a_job_that_is_done_does_nothing_again(make_job, tmp_path, monkeypatch):
    job, out = make_job(20), tmp_path / "out.jsonl"
    first = run(job, out)
    written = out.read_bytes()
    monkeypatch.setattr("flexmdm.jobs.engines.Answerer", None)
    assert run(job, out) == first and out.read_bytes() == written


def test_every_line_has_its_answer_or_an_error_in_its_place(make_job, tmp_path):
    job, out = make_job(50, num=2), tmp_path / "out.jsonl"
    outcome = run(job, out)
    rows = [json.loads(line) for line in lines_of(out)]
    assert len(rows) == 59 and outcome.refused == BAD
    assert str(outcome) == f"59 lines answered, 9 of them with an error: {out}"
    for number, (row, line) in enumerate(zip(rows, Path(job.file).read_text().split("\n"), strict=False)):
        if "error" in row:
            assert row["line"] == number + 1 and "answers" not in row
        else:
            assert {name: row[name] for name in ("id", "prompt")} == json.loads(line)
            assert [answer["text"][:2] for answer in row["answers"]] == [row["prompt"][:2]] * 2
    errors = [row["error"] for row in rows if "error" in row]
    for error, expected in zip(errors, [
        "the line is not JSON", 'no "prompt" in the line; it has text', "the prompt must be a text", "this is a list",
        "1 character(s) that the tokenizer does not know: 'ä'", "the line is not JSON", "there is no gap in 'anna'",
        "the text leaves no room", "half a surrogate pair",
    ], strict=True):  # fmt: skip
        assert expected in error


def test_answers_do_not_depend_on_the_lines_beside_them(make_job, tmp_path, monkeypatch):
    """Nor on how many are answered at a time: those of one line alone are those of the whole job."""
    job, out = make_job(40), tmp_path / "out.jsonl"
    run(job, out)
    rows = [json.loads(line) for line in lines_of(out)]
    monkeypatch.setattr(job_module, "_SEQUENCES", 7)
    other = tmp_path / "other.jsonl"
    run(job, other)
    assert other.read_bytes() == out.read_bytes()
    pipeline = TextPipeline.from_pretrained(job.run)
    for number in (0, 20, 45):
        text = pipeline.infill(rows[number]["prompt"], first_sequence=number, seed=3, steps=3, best=0)
        assert rows[number]["answers"][0]["text"] == text


def test_ranked_answers_say_what_they_are_worth(make_job, tmp_path):
    job, out = make_job(10, num=6, best=2), tmp_path / "out.jsonl"
    run(job, out)
    for row in map(json.loads, lines_of(out)):
        if "answers" in row:
            assert 1 <= len(row["answers"]) <= 2
            assert all(a["log_prob"] <= 0 and a["standard_error"] >= 0 for a in row["answers"])
            assert sum(row["answers"][0]["lengths"][0].values()) == pytest.approx(1, abs=2e-3)


def test_plain_lines_and_samples_are_jobs_too(make_job, tmp_path):
    job = make_job(1)
    Path(tmp_path / "lines.txt").write_bytes(b"\xef\xbb\xbfan\r\n\n\xff\nia")
    plain = replace(job, method="complete", file=str(tmp_path / "lines.txt"), options={"steps": 3})
    outcome = run(plain, tmp_path / "plain.jsonl")
    first, empty, bytes_, last = map(json.loads, lines_of(tmp_path / "plain.jsonl"))
    assert first["prompt"] == "an" and first["answers"][0]["text"].startswith("an") and outcome.refused == 2
    assert empty["error"] == "the prompt is empty" and "not UTF-8" in bytes_["error"] and last["prompt"] == "ia"
    samples = replace(job, method="sample", file=None, num=40, options={"steps": 3})
    run(samples, tmp_path / "samples.jsonl")
    texts = [json.loads(line)["text"] for line in lines_of(tmp_path / "samples.jsonl")]
    assert texts == TextPipeline.from_pretrained(job.run).sample(40, seed=3, steps=3)


def test_a_line_too_long_for_memory_is_refused_and_the_next_one_read(make_job, tmp_path, monkeypatch):
    monkeypatch.setattr(job_module, "_LONGEST", 100)
    monkeypatch.setattr(job_module, "_BLOCK", 64)
    job = replace(make_job(1), file=str(tmp_path / "long.txt"))
    Path(job.file).write_text("a" * 100 + "\n" + "a" * 101 + "\n" + "b" * 1000 + "\nan___\n" + "c" * 500)
    run(job, tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in lines_of(tmp_path / "out.jsonl")]
    assert ["too long" in row.get("error", "") for row in rows] == [False, True, True, False, True]
    assert "there is no gap" in rows[0]["error"] and "answers" in rows[3]


def test_two_processes_do_not_write_one_file(make_job, tmp_path):
    job, out = make_job(5), tmp_path / "out.jsonl"
    with locked(out):
        with pytest.raises(ValueError, match="another process is writing .*out.jsonl: wait until it has ended"):
            run(job, out)
    assert run(job, out).lines == 14


def test_answers_of_another_job_are_moved_aside(make_job, tmp_path):
    job, out, console = make_job(5), tmp_path / "out.jsonl", Console(record=True, width=200)
    run(job, out)
    before = out.read_bytes()
    run(replace(job, seed=4), out, console=console)
    assert "begun anew, as these have changed: seed" in console.export_text()
    assert (tmp_path / "out.1.jsonl").read_bytes() == before != out.read_bytes()


@pytest.mark.parametrize(
    ("out", "options", "message"),
    [
        ("out.json", {}, "is called .jsonl"),
        ("lines.jsonl", {}, "would write over"),
        ("out.jsonl", {"workers": 0}, "--workers must be at least 1"),
        ("out.jsonl", {"engine": "spark"}, "choose from local, ray"),
    ],
)
def test_what_cannot_be_run_is_refused(make_job, tmp_path, out, options, message):
    with pytest.raises(ValueError, match=message):
        run(make_job(1), tmp_path / out, **options)


def test_options_that_fit_no_line_end_the_job(make_job, tmp_path):
    with pytest.raises(ValueError, match="sampler 'tau' has no window") as refused:
        run(make_job(5, sampler="tau", window=(5.0, 4)), tmp_path / "out.jsonl")
    assert not isinstance(refused.value, Unanswerable)


class Deadly(Answerer):
    """Kills its process over the shard that begins at line 32, until a file is there."""

    def __call__(self, shard: Shard):
        done = Path(f"{self.job.file}.died")
        if shard.first == 32 and not done.exists():
            done.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(shard)


class Deadlier(Answerer):
    def __call__(self, shard: Shard):
        os.kill(os.getpid(), signal.SIGKILL)


def begin_deadly(job, workers):
    torch.set_num_threads(1)
    engines._answerer.append(Deadly(job))


def begin_deadlier(job, workers):
    engines._answerer.append(Deadlier(job))


@pytest.fixture
def forked(monkeypatch):
    """Workers begin as copies of this process: nothing is imported again."""
    monkeypatch.setattr(engines, "get_context", lambda _: multiprocessing.get_context("fork"))
    monkeypatch.setattr(engines, "_answerer", [])


def test_the_shard_of_a_worker_that_died_is_done_again(make_job, tmp_path, monkeypatch, forked):
    job, out, alone = make_job(120), tmp_path / "out.jsonl", tmp_path / "alone.jsonl"
    run(job, alone)
    monkeypatch.setattr(engines, "_begin", begin_deadly)
    run(job, out, workers=2)
    assert Path(f"{job.file}.died").exists() and out.read_bytes() == alone.read_bytes()


def test_a_shard_that_kills_every_worker_ends_the_job(make_job, tmp_path, monkeypatch, forked):
    monkeypatch.setattr(engines, "_begin", begin_deadlier)
    with pytest.raises(ValueError, match="workers died 3 times over the same lines, of which 1 is the first"):
        run(make_job(40), tmp_path / "out.jsonl", workers=2)


@pytest.mark.slow
def test_workers_end_with_a_job_that_is_killed(make_job, tmp_path):
    """With processes that begin from nothing, as outside of tests."""
    psutil = pytest.importorskip("psutil")
    job, out = make_job(2000), tmp_path / "out.jsonl"
    process = started(job, out, workers=2)
    deadline = time.monotonic() + 120
    while (not out.exists() or not out.stat().st_size) and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert workers
    process.kill()
    process.join()
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive
