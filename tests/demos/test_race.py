import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

from flexmdm.demos import race
from flexmdm.runs.config import RunConfig

SLEEP = "import time; time.sleep(60)"


def log_line(folder, **values):
    with (folder / "log.jsonl").open("a") as file:
        file.write(json.dumps(values) + "\n")


@pytest.fixture
def scripts(monkeypatch):
    """Let the runners run these scripts instead of `flexmdm train`, one after the other."""
    queue, start = [], subprocess.Popen

    def popen(command, **options):
        return start([sys.executable, "-c", queue.pop(0)], **options)

    monkeypatch.setattr(race.subprocess, "Popen", popen)
    return queue


def start_all(tmp_path):
    folders = {"one": tmp_path / "one", "two": tmp_path / "two"}
    return folders, dict.fromkeys(folders, ())


def test_no_runner_outlives_an_interruption(tmp_path, scripts):
    scripts += [SLEEP, "import signal; signal.signal(signal.SIGTERM, signal.SIG_DFL); " + SLEEP]
    with pytest.raises(KeyboardInterrupt), race.runners(*start_all(tmp_path)) as everyone:
        assert all(runner.process.poll() is None for runner in everyone)
        raise KeyboardInterrupt
    assert all(runner.process.poll() is not None for runner in everyone)


def test_a_failure_shows_its_last_words_and_ends_the_others(tmp_path, scripts):
    scripts += [SLEEP, "import sys; sys.exit('[no] memory left')"]
    console = Console(file=io.StringIO())
    with pytest.raises(ChildProcessError, match=r"training two failed with exit code 1; .*two\.txt"):
        race.race(*start_all(tmp_path), console)  # would take a minute if the first went on
    assert "[no] memory left" in console.file.getvalue()


def test_one_thread_each_and_a_line_for_each_at_the_end(tmp_path, scripts):
    scripts += ["import os; print(os.environ['OMP_NUM_THREADS'])"] * 2
    console = Console(file=io.StringIO())
    race.race(*start_all(tmp_path), console)
    assert (tmp_path / "one.txt").read_text() == "1\n"
    assert [line.split()[0] for line in console.file.getvalue().splitlines()] == ["one", "two"]


def test_what_a_run_writes_is_what_is_shown(tmp_path, scripts):
    scripts += [SLEEP]
    folder = tmp_path / "one"
    with race.runners({"one": folder}, {"one": ()}, seconds=60.0) as (runner,):
        runner.look()
        assert runner.figures == "getting ready" and runner.step == 0
        RunConfig({"name": "maze"}).write(folder)  # plans 10,000 steps
        log_line(folder, step=100, seconds=1.0, loss=12.34, tokens_per_second=4321.0)
        log_line(folder, step=100, seconds=1.2, eval_loss=12.0)
        runner.look()
        assert runner.step == 100 and runner.planned == 10_000
        assert runner.figures.split() == ["loss", "12.3", "4,321", "tokens/s", "0:59", "left"]  # not 99 s: time is up
