"""The trusted process between ours and the programs: forks them, watches the clock, and ends whatever they started.

It never sees a program or a test: it passes on the descriptors from which its children read them, so that nothing of
one trial is in the memory of the next. It starts as a bare interpreter, `python -I -S`, with only this folder and the
standard library, so a fork is cheap and there is nothing in it to find.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexmdm.sandbox.candidate import answer
from flexmdm.sandbox.guards import Guards, become_subreaper, confine, enter_namespaces, find_guards, fork, mount_scratch
from flexmdm.sandbox.judge import describe, judge
from flexmdm.sandbox.limits import Limits
from flexmdm.sandbox.values import encode, send

# What programs often import: loaded once here, and there after a fork.
_PRELOADED = (
    "abc bisect calendar cmath collections copy dataclasses datetime decimal enum fractions functools hashlib heapq io "
    "itertools json keyword math numbers operator os random re secrets statistics string struct sys textwrap time "
    "typing unicodedata"
)
_NULL = 0  # the supervisor's own input
_CHANNEL, _RESULT = 3, 4  # descriptors of a child, after input, output and errors
_ABOVE_ALL_OTHERS = 200
_MOST_DESCRIPTORS = 1 << 16


def serve(control: socket.socket, folder: Path, namespaces: bool, seccomp: bool) -> None:
    """Report which guards work, then run one trial per request until the other side has gone.

    A request is JSON, the limits and the name of the entry point, with four descriptors: to read the program, to write
    its output, to read the tests (JSON: context and test) and to write the result.
    """
    os.chdir(folder)
    guards = find_guards(namespaces, seccomp)
    for name in _PRELOADED.split():
        __import__(name)
    proc = os.open("/proc", os.O_DIRECTORY) if os.path.isdir("/proc") else None
    if guards.namespaces:
        enter_namespaces(folder)
    become_subreaper()
    _report(control, vars(guards))
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 4)
        if not request:
            return
        wanted = json.loads(request)
        try:
            scratch = mount_scratch() if guards.namespaces else folder
            trial = Trial(Limits(**wanted["limits"]), guards, scratch, wanted["entry_point"], *descriptors)
            started = trial.start()
        except OSError as error:  # the program has not run, so it is none of its doing
            _report(control, {"error": str(error)})
            return
        _report(control, trial.end(*started, control, proc))


def _report(control: socket.socket, content: dict[str, Any]) -> None:
    control.sendall(json.dumps(content).encode() + b"\n")


@dataclass(frozen=True)
class Trial:
    """One program and its tests; the last four are descriptors."""

    limits: Limits
    guards: Guards
    folder: Path
    entry_point: str
    program: int
    output: int
    tests: int
    result: int

    def start(self) -> tuple[list[int], int, float]:
        """Start both processes; return them, a descriptor that can be read when the judge has ended, and the deadline.

        The program's process is the last step, so if anything fails here, the program has not run.
        """
        deadline = time.monotonic() + self.limits.wall_seconds
        theirs, ours = socket.socketpair()
        judge_ended, held = os.pipe()  # the judge holds an end: when it ends, however it ends, the other can be read
        judging = fork(lambda: self.run_judge(ours.fileno(), held))
        candidate = fork(lambda: self.run_candidate(theirs.fileno()))
        for descriptor in (self.program, self.output, self.tests, self.result, held):
            os.close(descriptor)
        theirs.close()
        ours.close()
        return [candidate, judging], judge_ended, deadline

    def end(
        self, processes: list[int], judge_ended: int, deadline: float, control: socket.socket, proc: int | None
    ) -> dict[str, Any]:
        """Wait until the judge has ended or the time is up, end both processes and report what became of them."""
        readable, _, _ = select.select([judge_ended, control], [], [], max(deadline - time.monotonic(), 0))
        os.close(judge_ended)
        ended = end_children(processes, proc)
        if control in readable:  # nothing is sent during a trial: the other side has gone
            sys.exit()
        codes, cpu_seconds = zip(*(ended[process] for process in processes), strict=True)
        out_of_time = -signal.SIGXCPU in codes or max(cpu_seconds) > self.limits.cpu_seconds
        return {"timed_out": not readable or out_of_time, "judge_code": codes[1]}

    def run_candidate(self, channel: int) -> None:
        """Confine this process, then run the program; only what is sent before the program runs can be believed."""
        source = _read_all(self.program)
        _keep_descriptors([_NULL, self.output, self.output, channel])
        try:
            self._confine()
        except Exception as error:
            send(_CHANNEL, encode({"error": f"the program cannot be confined: {describe(error)}"}))
            return
        send(_CHANNEL, encode({"confined": True}))
        answer(_CHANNEL, source, self.entry_point)
        sys.stdout.flush()

    def run_judge(self, channel: int, held: int) -> None:
        """Confine this process, run the tests and write their result."""
        wanted = json.loads(_read_all(self.tests))
        _keep_descriptors([_NULL, _NULL, _NULL, channel, self.result, held])
        try:
            self._confine()
            result = judge(_CHANNEL, wanted["context"], wanted["test"], self.entry_point)
        except MemoryError:  # of values that the program sent
            result = "failed: MemoryError"
        except BaseException as error:
            result = f"error: the tests cannot run: {describe(error)}"
        os.write(_RESULT, result.encode(errors="backslashreplace"))

    def _confine(self) -> None:
        os.setsid()
        os.chdir(self.folder)
        os.environ.clear()
        sys.argv = [""]
        sys.stdin = None  # to wait for input is an error
        sys.stdout = open(1, "w", buffering=1, errors="replace", closefd=False)
        confine(self.limits, self.guards)


def end_children(leaders: Sequence[int], proc: int | None) -> dict[int, tuple[int, float]]:
    """Kill these leaders of groups, their groups, and whatever else descends from this process; wait for all of them.

    Those that left their group are found by ``proc``, a descriptor of ``/proc`` (``None`` where there is none). Return
    the exit code of each that ended, negative for a signal, and its CPU seconds.
    """
    for pid in leaders:
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)
    ended: dict[int, tuple[int, float]] = {}
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG if ended.keys() >= set(leaders) else 0)
        except ChildProcessError:
            return ended
        if pid:
            ended[pid] = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
            continue
        for orphan in _children(proc):
            with suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
        time.sleep(0.001)


def _children(proc: int | None) -> list[int]:
    """Return the children of this process, also those that came to it when their parent ended."""
    found = []
    for name in filter(str.isdigit, os.listdir(proc) if proc is not None else []):
        with suppress(OSError), open(os.open(f"{name}/stat", os.O_RDONLY, dir_fd=proc)) as file:
            parent = file.read().rpartition(")")[2].split()[1]  # after the name, which may hold anything
            if int(parent) == os.getpid():
                found.append(int(name))
    return found


def _keep_descriptors(descriptors: Sequence[int]) -> None:
    """Renumber these descriptors 0, 1, 2 and so on, and close all others."""
    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _ABOVE_ALL_OTHERS) for descriptor in descriptors]
    for number, copy in enumerate(copies):
        os.dup2(copy, number)
    os.closerange(len(copies), _MOST_DESCRIPTORS)


def _read_all(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8", errors="surrogatepass", newline="") as file:
        return file.read()
