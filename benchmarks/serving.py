"""`flexmdm serve` under load: one request at a time against many, fifty clients for a minute, and a fuzzer's requests.

A server runs in a process of its own, on this machine alone. First requests are sent one after the other, then by as
many clients at once, each with its own seed; both must give the same answers. Then the clients go on for a minute:
every request is answered, or refused because too much waits (429). Last, schemathesis (to be installed by hand) makes
requests from the API's own description, right and wrong ones; no answer may be an error of the server (5xx).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil

EXAMPLES = """examples:
  python benchmarks/serving.py                      the committed results, about ten minutes
  python benchmarks/serving.py --run runs/mine      another model of text
  python benchmarks/serving.py --quick              to see that it works (nothing is written)
"""
RESULTS = Path(__file__).parent / "results"
PROMPTS = ["", "I have never ", "She ", "Where did you ", "My father "]
TIMEOUT = 300


@contextmanager
def serving(run: str, port: int) -> Iterator[psutil.Process]:
    """Start a server and end it politely."""
    which = ["--pretrained", run] if "/" not in run else [run]
    command = [sys.executable, "-m", "flexmdm", "serve", *which, "--port", str(port), "--most-waiting", "256"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 120
        while True:
            try:
                ask(port, "GET", "/health")
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > until:
                    raise SystemExit("the server did not come up") from None
                time.sleep(0.2)
        yield psutil.Process(server.pid)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def ask(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Return the status and the body of an answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.request(
            method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        text = answer.read().decode()
        return answer.status, json.loads(text) if text.startswith("{") else text
    finally:
        connection.close()


def complete(port: int, seed: int) -> tuple[int, str]:
    """Return the status and the text of one completion."""
    status, body = ask(port, "POST", "/v1/completions", {"prompt": PROMPTS[seed % len(PROMPTS)], "seed": seed})
    return status, body["choices"][0]["text"] if status == 200 else ""


def throughput(port: int, num: int, clients: int) -> dict[str, Any]:
    """Return how many requests are answered per second, one at a time and by many clients, and how many differ."""
    began = time.perf_counter()
    alone = [complete(port, seed) for seed in range(num)]
    one = num / (time.perf_counter() - began)
    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        together = list(pool.map(lambda seed: complete(port, seed), range(num)))
    many = num / (time.perf_counter() - began)
    different = sum(a != b for a, b in zip(alone, together, strict=True))
    return {"requests": num, "one_at_a_time": one, "together": many, "ratio": many / one, "different": different}


def load(port: int, server: psutil.Process, clients: int, seconds: float) -> dict[str, Any]:
    """Return what clients that never stop asking get, and the memory of the server before, half way and after."""
    until = time.monotonic() + seconds
    memory = [server.memory_info().rss]

    def client(number: int) -> Counter[int]:
        statuses: Counter[int] = Counter()
        while time.monotonic() < until:
            status, _ = complete(port, 1000 * number + sum(statuses.values()))
            statuses[status] += 1
        return statuses

    with ThreadPoolExecutor(clients) as pool:
        asked = [pool.submit(client, number) for number in range(clients)]
        time.sleep(seconds / 2)
        memory.append(server.memory_info().rss)
        statuses = sum((one.result() for one in asked), Counter())
    memory.append(server.memory_info().rss)
    return {
        "clients": clients, "seconds": seconds, "statuses": {str(code): n for code, n in sorted(statuses.items())},
        "megabytes": [round(size / 1e6) for size in memory],
    }  # fmt: skip


def fuzz(port: int, examples: int) -> dict[str, Any]:
    """Return how many requests a fuzzer made from the API's description, and how many were errors of the server."""
    before = _statuses(port)
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{port}/openapi.json", "--checks",
        "not_a_server_error", "--max-examples", str(examples), "--seed", "0", "--continue-on-failure", "--no-shrink",
        "--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all", "--warnings", "off",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:  # where it leaves what it found
        done = subprocess.run(command, capture_output=True, text=True, timeout=3600, cwd=folder)
    after = _statuses(port)
    if after == before:
        raise SystemExit(f"schemathesis asked nothing: {(done.stdout + done.stderr)[-2000:]}")
    statuses = Counter(after)
    statuses.subtract(before)
    return {
        "requests": sum(statuses.values()),
        "statuses": {code: n for code, n in sorted(statuses.items()) if n},
        "server_errors": sum(n for code, n in statuses.items() if code.startswith("5")),
    }


def _statuses(port: int) -> Counter[str]:
    text = ask(port, "GET", "/metrics")[1]
    return Counter({code: int(n) for code, n in re.findall(r'responses_total\{status="(\d+)"\} (\d+)', text)})


def markdown(results: dict[str, Any]) -> str:
    """Return the results as a page."""
    rate, many, fuzzed = results["throughput"], results["load"], results["fuzzing"]
    rows = [
        ("requests one at a time", f"{rate['one_at_a_time']:.1f} per second"),
        (f"by {many['clients']} clients at once", f"{rate['together']:.1f} per second"),
        ("ratio", f"{rate['ratio']:.1f}"),
        ("answers that differ", f"{rate['different']} of {rate['requests']}"),
        (f"{many['clients']} clients for {many['seconds']:.0f} s", _said(many["statuses"])),
        ("memory before, half way, after", f"{', '.join(map(str, many['megabytes']))} MB"),
        (f"{fuzzed['requests']:,} requests of a fuzzer", _said(fuzzed["statuses"])),
        ("errors of the server", str(fuzzed["server_errors"])),
    ]
    lines = ["# A server under load", "", f"Made by `{results['command']}`, model `{results['run']}`, one thread.", ""]
    lines += ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows), ""]
    return "\n".join(lines)


def _said(statuses: dict[str, int]) -> str:
    return ", ".join(f"{n:,} × {code}" for code, n in statuses.items())


def main() -> None:
    """Measure, print, and write benchmarks/results/serving.{json,md}."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", default="text", help="weights of the package by name, or the folder of a run")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--examples", type=int, default=700, help="of the fuzzer, for each operation")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if arguments.quick:
        arguments.seconds, arguments.examples = 3.0, 10
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with serving(arguments.run, port) as server:
        complete(port, 0)
        results = {
            "command": "python benchmarks/serving.py",
            "run": arguments.run,
            "python": platform.python_version(),
            "throughput": throughput(port, 10 if arguments.quick else 200, arguments.clients),
            "load": load(port, server, arguments.clients, arguments.seconds),
            "fuzzing": fuzz(port, arguments.examples),
        }
    print(markdown(results))
    if not arguments.quick:
        (RESULTS / "serving.json").write_text(json.dumps(results, indent=1) + "\n")
        (RESULTS / "serving.md").write_text(markdown(results))


if __name__ == "__main__":
    main()
