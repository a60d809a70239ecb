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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexmdm.evaluation.sandbox.candidate import answer
from flexmdm.evaluation.sandbox.guards import Guards, adopt_orphans, available, confine, fresh_scratch, hide_outside
from flexmdm.evaluation.sandbox.judge import judge
from flexmdm.evaluation.sandbox.limits import Limits

# What programs often import: loaded once here, and there after a fork.
_POPULAR = (
    "abc bisect calendar cmath collections copy dataclasses datetime decimal enum fractions functools hashlib heapq io "
    "itertools json keyword math numbers operator os random re secrets statistics string struct sys textwrap time "
    "typing unicodedata"
)
_NULL = 0  # the warden's own input
_CHANNEL, _RESULT = 3, 4  # descriptors of a child, after input, output and errors
_ABOVE_ALL_OTHERS = 200
_MOST_DESCRIPTORS = 1 << 16


def serve(control: socket.socket, folder: Path, namespaces: bool, seccomp: bool) -> None:
    """Say which guards work, then run one trial per request until the other side has gone.

    A request is JSON, the limits and the name of the entry point, with four descriptors: to read the program, to write
    its output, to read the tests (JSON: context and test) and to write the result.
    """
    os.chdir(folder)
    guards = available(namespaces, seccomp)
    for name in _POPULAR.split():
        __import__(name)
    processes = os.open("/proc", os.O_DIRECTORY) if os.path.isdir("/proc") else None
    if guards.namespaces:
        hide_outside(folder)
    adopt_orphans()
    control.sendall(json.dumps(vars(guards)).encode() + b"\n")
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 4)
        if not request:
            return
        wanted = json.loads(request)
        try:
            place = fresh_scratch() if guards.namespaces else folder
            trial = Trial(Limits(**wanted["limits"]), guards, place, wanted["entry_point"], *descriptors)
            started = trial.start()
        except OSError as error:  # the program has not run, so it is none of its doing
            control.sendall(json.dumps({"error": str(error)}).encode() + b"\n")
            raise
        reply = started.end(control, processes)
        control.sendall(json.dumps(reply).encode() + b"\n")


@dataclass(frozen=True)
class Trial:
    """One program and its tests; the last four are descriptors."""

    limits: Limits
    guards: Guards
    place: Path
    entry_point: str
    program: int
    output: int
    tests: int
    result: int

    def start(self) -> Started:
        """Start both processes; the program's is the last step, so if anything fails here, the program has not run."""
        deadline = time.monotonic() + self.limits.wall_seconds
        theirs, ours = socket.socketpair()
        alive, held = os.pipe()  # the judge holds an end: when it ends, however it ends, the other can be read
        judging = _fork(lambda: self.be_judge(ours.fileno(), held))
        candidate = _fork(lambda: self.be_candidate(theirs.fileno()))
        for one in (self.program, self.output, self.tests, self.result, held):
            os.close(one)
        theirs.close()
        ours.close()
        return Started(self.limits, candidate, judging, alive, deadline)

    def be_candidate(self, channel: int) -> None:
        source = _read_all(self.program)
        self._settle([_NULL, self.output, self.output, channel])
        answer(_CHANNEL, source, self.entry_point)
        sys.stdout.flush()

    def be_judge(self, channel: int, held: int) -> None:
        wanted = json.loads(_read_all(self.tests))
        self._settle([_NULL, _NULL, _NULL, channel, self.result, held])
        os.write(_RESULT, judge(_CHANNEL, wanted["context"], wanted["test"], self.entry_point).encode())

    def _settle(self, descriptors: Sequence[int]) -> None:
        """Keep these descriptors, as 0, 1, 2 and so on, and nothing else; then be confined."""
        os.setsid()
        os.chdir(self.place)
        copies = [fcntl.fcntl(one, fcntl.F_DUPFD, _ABOVE_ALL_OTHERS) for one in descriptors]
        for number, copy in enumerate(copies):
            os.dup2(copy, number)
        os.closerange(len(copies), _MOST_DESCRIPTORS)
        os.environ.clear()
        sys.argv = [""]
        sys.stdin = None  # to wait for input is an error
        sys.stdout = open(1, "w", buffering=1, errors="replace", closefd=False)
        confine(self.limits, self.guards)


@dataclass(frozen=True)
class Started:
    """A trial whose processes run; ``alive`` can be read when the judge has ended."""

    limits: Limits
    candidate: int
    judging: int
    alive: int
    deadline: float

    def end(self, control: socket.socket, processes: int | None) -> dict[str, Any]:
        """Wait until the judge has ended or the time is up, and leave nothing of both."""
        readable, _, _ = select.select([self.alive, control], [], [], max(self.deadline - time.monotonic(), 0))
        os.close(self.alive)
        ended = end_children([self.candidate, self.judging], processes)
        if control in readable:  # nothing is sent during a trial: the other side has gone
            sys.exit()
        return {"timed_out": not readable or ended[self.candidate] > self.limits.cpu_seconds - 0.1}


def end_children(leaders: Sequence[int], processes: int | None) -> dict[int, float]:
    """Kill these children, their groups, and whatever else descends from this process; wait for all of them.

    Args:
        leaders: children that lead a group of their own, or are about to.
        processes: a descriptor of ``/proc``, to find those that left their group; ``None`` where there is none.

    Returns:
        The CPU seconds of each that ended.
    """
    for pid in leaders:
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)
    ended: dict[int, float] = {}
    while True:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG if ended.keys() >= set(leaders) else 0)
        except ChildProcessError:
            return ended
        if pid:
            ended[pid] = usage.ru_utime + usage.ru_stime
            continue
        for orphan in _children(processes):
            with suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
        time.sleep(0.001)


def _children(processes: int | None) -> list[int]:
    """Children of this process, also those that came to it when their parent ended."""
    found = []
    for name in os.listdir(processes) if processes is not None else []:
        with suppress(OSError):
            if name.isdigit() and _parent(int(name), processes) == os.getpid():
                found.append(int(name))
    return found


def _parent(pid: int, processes: int | None) -> int:
    with open(os.open(f"{pid}/stat", os.O_RDONLY, dir_fd=processes)) as file:
        return int(file.read().rpartition(")")[2].split()[1])  # after the name, which may hold anything


def _fork(step: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            step()
            os._exit(0)
        finally:
            os._exit(1)
    return pid


def _read_all(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8", errors="surrogatepass", newline="") as file:
        return file.read()
