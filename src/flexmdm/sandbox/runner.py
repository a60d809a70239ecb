"""Our side of the sandbox: hands programs to a supervisor process and collects their verdicts."""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from flexmdm.sandbox.guards import Guards
from flexmdm.sandbox.limits import Limits

BROKE = "failed: the sandbox broke"
"""The result of a program with which the sandbox ended each time; who ended it is not known for certain."""

# Empty modules stand for the packages: their own __init__ would load torch.
_START = """
import socket, sys, types
from pathlib import Path
package, control, folder, namespaces, seccomp = sys.argv[1:]
for name, path in (("flexmdm", package), ("flexmdm.sandbox", package + "/sandbox")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from flexmdm.sandbox.supervisor import serve
serve(socket.socket(fileno=int(control)), Path(folder), namespaces == "True", seccomp == "True")
"""
_PACKAGE = Path(__file__).parents[1]
_GRACE_SECONDS = 20.0  # beyond the wall time, until a supervisor that does not answer is given up
_CLOSING_SECONDS = 5.0
_TRIES = 2  # of a program with which the supervisor ends: somebody else may have ended it


@dataclass(frozen=True)
class Program:
    """A program and its tests."""

    source: str  # not trusted; it defines a function named entry_point
    test: str  # trusted; it defines check(candidate), which raises unless the function is right
    entry_point: str  # the function that is tested; the tests may also call it by this name
    context: str = ""  # trusted; its other names the tests may use: helper functions that belong to the problem

    def __post_init__(self) -> None:
        if not self.entry_point.isidentifier():
            raise ValueError(f"the entry point is the name of a function, got {self.entry_point!r}")


@dataclass(frozen=True)
class Verdict:
    """The result (``passed``, ``timed out``, or ``failed:`` and why), the beginning of the output, the wall time."""

    result: str
    output: str
    seconds: float

    @property
    def passed(self) -> bool:
        return self.result == "passed"


class Sandbox(AbstractContextManager["Sandbox"]):
    """Runs programs, one at a time; close it, or use it in a ``with`` statement.

    Guards are used where the kernel allows it, unless ``namespaces`` or ``seccomp`` is false.
    """

    def __init__(self, limits: Limits | None = None, *, namespaces: bool = True, seccomp: bool = True) -> None:
        self.limits = limits or Limits()
        self._wanted = (namespaces, seccomp)
        self._start()

    def run(self, program: Program) -> Verdict:
        """Run a program against its tests. Whatever it does, this returns soon after its limits.

        Raises:
            OSError: the program could not be judged, for want of means such as a full disk, because its tests are
                broken or by a mistake in the sandbox; it tells nothing about the program.
        """
        started = time.monotonic()
        for _ in range(_TRIES):
            verdict = self._run(program)
            if verdict is not None:
                return verdict
            self._restart()
        return Verdict(BROKE, "", time.monotonic() - started)

    def close(self) -> None:
        """End the supervisor and all that it started."""
        self._control.close()
        try:
            _, self._errors = self._supervisor.communicate(timeout=_CLOSING_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._supervisor.pid, signal.SIGKILL)
            _, self._errors = self._supervisor.communicate()
        with suppress(OSError):
            os.rmdir(self._folder)

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="flexmdm-sandbox-")
        os.chmod(self._folder, 0o755)  # programs may have become another user
        self._control, theirs = socket.socketpair()
        arguments = [str(_PACKAGE), str(theirs.fileno()), self._folder, *map(str, self._wanted)]
        loader = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        with theirs:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", "-c", _START, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=loader,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        first = self._control.recv(1 << 16)
        if not first:
            _, self._errors = self._supervisor.communicate()
            raise OSError(f"the sandbox does not start: {self._reason()}")
        self.guards = Guards(**json.loads(first))

    def _restart(self) -> None:
        """Start another supervisor; an ``OSError`` if the last one ended by an exception, as that is our mistake."""
        self.close()
        code, reason = self._supervisor.returncode, self._reason()
        self._start()
        if code > 0:
            raise OSError(f"the sandbox ended before the program was judged: {reason}")

    def _reason(self) -> str:
        return self._errors.decode(errors="replace").strip() or "no reason given"

    def _run(self, program: Program) -> Verdict | None:
        """Return the verdict, or ``None`` if the supervisor or the judge was ended.

        A program can only do that with the weakest guards; it may have been somebody else.
        """
        started = time.monotonic()
        request = {"limits": vars(self.limits), "entry_point": program.entry_point}
        tests = json.dumps({"context": program.context, "test": program.test})
        (printed, output), (written, judged) = _pipe(), _pipe()
        with printed, written:
            with output, judged, _file(program.source) as source_file, _file(tests) as tests_file:
                self._send(request, [file.fileno() for file in (source_file, output, tests_file, judged)])
            text, reply = self._wait(printed)
            result = written.read(1 << 16).decode(errors="replace") if reply else ""
        if reply is None:
            return None
        if "error" in reply:
            raise OSError(f"the sandbox cannot start a program: {reply['error']}")
        if result.startswith("error: "):
            raise OSError(f"the sandbox cannot judge a program: {result.removeprefix('error: ')}")
        if reply["timed_out"]:
            result = "timed out"
        elif not result:
            if reply["judge_code"] < 0:
                return None
            raise OSError("the sandbox cannot judge a program: its tests ended without a result")
        return Verdict(result, text.decode(errors="replace"), time.monotonic() - started)

    def _send(self, request: dict[str, Any], descriptors: list[int]) -> None:
        message = [json.dumps(request).encode()]
        try:
            socket.send_fds(self._control, message, descriptors)
        except ConnectionError:  # somebody ended the supervisor while it had nothing to do
            self._restart()
            socket.send_fds(self._control, message, descriptors)

    def _wait(self, output: BinaryIO) -> tuple[bytes, dict[str, Any] | None]:
        """Return what the program prints until the supervisor reports, and the report; ``None`` if there is none."""
        kept, deadline = bytearray(), time.monotonic() + self.limits.wall_seconds + _GRACE_SECONDS
        watched: list[Any] = [self._control, output]
        while True:
            readable, _, _ = select.select(watched, [], [], max(deadline - time.monotonic(), 0))
            if output in readable:
                part = output.read(1 << 16)
                kept += part[: self.limits.output_bytes - len(kept)]
                if not part:
                    watched.remove(output)
            elif self._control in readable:  # only when no output is left
                try:
                    reply = self._control.recv(1 << 16)
                except ConnectionError:
                    reply = b""
                return bytes(kept), json.loads(reply) if reply else None
            else:
                return bytes(kept), None


def run_all(
    programs: Sequence[Program], limits: Limits | None = None, workers: int | None = None
) -> Iterator[tuple[int, Verdict]]:
    """Run programs side by side and yield the index of each with its verdict, in the order in which they end.

    As many as ``workers`` run at a time; by default one for each core.

    >>> test = "def check(candidate):\\n    assert candidate() == 1"
    >>> programs = [Program(f"def one():\\n    return {value}", test, "one") for value in (0, 1, 2)]
    >>> sorted((index, verdict.result) for index, verdict in run_all(programs, workers=2))
    [(0, 'failed: AssertionError'), (1, 'passed'), (2, 'failed: AssertionError')]
    """
    workers = min(workers or os.cpu_count() or 1, len(programs))
    if workers < 1:
        return
    idle: queue.SimpleQueue[Sandbox] = queue.SimpleQueue()

    def run(program: Program) -> Verdict:
        sandbox = idle.get()
        try:
            return sandbox.run(program)
        finally:
            idle.put(sandbox)

    with ExitStack() as stack:
        for _ in range(workers):
            idle.put(stack.enter_context(Sandbox(limits)))
        pool = ThreadPoolExecutor(workers)
        stack.callback(pool.shutdown, cancel_futures=True)  # before the sandboxes are closed
        indices = {pool.submit(run, program): index for index, program in enumerate(programs)}
        for done in as_completed(indices):
            yield indices[done], done.result()


def _pipe() -> tuple[Any, Any]:
    """Return the end of a pipe to read from and the end to write to."""
    reading, writing = os.pipe()
    return open(reading, "rb", buffering=0), open(writing, "wb", buffering=0)


def _file(text: str) -> Any:
    """Return a file without a name, to be read from its start."""
    file = tempfile.TemporaryFile()
    file.write(text.encode(errors="surrogatepass"))  # half a character is the program's mistake, not ours
    file.seek(0)
    return file
