"""A small model on letters, and a server with it in a process of its own."""

import os
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
import torch

from flexmdm import FlexMDMConfig, FlexMDMModel
from flexmdm.tasks.text.task import TextTask

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory):
    """A network that has learned nothing, on two letters."""
    folder = tmp_path_factory.mktemp("letters")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLEXMDM_CACHE", str(folder / "cache"))
        (folder / "lines.txt").write_text("abba\nbaab\nab\n" * 20)
        task = TextTask((str(folder / "lines.txt"),), tokenizer="characters", max_length=12, held_out=0.2).settled()
        torch.manual_seed(0)
        config = FlexMDMConfig(
            vocab_size=task.vocab_size, hidden_size=16, num_layers=1, num_heads=2, condition_size=16, dropout=0.0,
            task=task.to_dict(),
        )  # fmt: skip
        yield task.pipeline(FlexMDMModel(config).eval())


@pytest.fixture(scope="session")
def folder(pipeline, tmp_path_factory):
    """The model as `from_pretrained` loads it."""
    folder = tmp_path_factory.mktemp("served") / "letters"
    pipeline.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def start(folder):
    """Start `flexmdm serve` with further options; gives the process and its address."""
    running = []

    def start(*options):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "flexmdm", "serve", str(folder), "--port", str(port), *map(str, options)]
        process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE)
        running.append(process)
        address = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).read()
                return process, address
            except OSError:
                assert process.poll() is None, process.stderr.read().decode()
                time.sleep(0.1)
        raise TimeoutError("the server did not come up")

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture(scope="session")
def server(start):
    return start()[1]
