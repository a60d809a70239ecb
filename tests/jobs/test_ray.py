"""Ray Data answers as one process does, also when a worker is killed."""

import threading
import time

import pytest

from flexmdm.jobs.run import run

ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'flexmdm[ray]'")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Two workers fit in it, and no more."""
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=10**8,
        runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}},
    )  # fmt: skip
    yield
    ray.shutdown()


def kill_a_worker(out, killed):
    """Kill a process that answers, once some answers are written."""
    psutil = pytest.importorskip("psutil")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not killed:
        if out.exists() and out.stat().st_size:
            for process in psutil.Process().children(recursive=True):
                if "MapWorker" in " ".join(process.cmdline()):
                    process.kill()
                    killed.append(process.pid)
                    return
        time.sleep(0.005)


def test_two_workers_one_of_which_is_killed_answer_as_one_process(make_job, tmp_path):
    job, alone, out = make_job(400), tmp_path / "alone.jsonl", tmp_path / "out.jsonl"
    run(job, alone)
    killed: list[int] = []
    killer = threading.Thread(target=kill_a_worker, args=(out, killed))
    killer.start()
    outcome = run(job, out, workers=2, engine="ray")
    killer.join()
    assert killed and outcome.lines == 409 and out.read_bytes() == alone.read_bytes()
