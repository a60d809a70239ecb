"""Run untrusted Python against tests, in processes of its own, with a verdict that it cannot forge.

A program and its tests never share a process. The *candidate* process runs the program and then answers calls of its
entry point; the *judge* process runs the tests, with a stand-in for the entry point that asks the candidate. What
travels between them are plain values (see `values`), so all that a program can do is to return values, and it passes
only if every assertion of the tests holds for them, in a process that it cannot reach. Leaving early, patching
builtins, printing what a test would print, closing descriptors, objects that are equal to everything: none of it is an
answer. The tests and the reference solution are not in the candidate's memory either.

A program that uses more CPU or wall time than its limits has timed out, whatever else became of it. A mistake of ours or
of the tests is an ``OSError`` of `Sandbox.run` and no verdict.

What holds on every POSIX system: limits on CPU and wall time, memory, file size and open files; no new process or
thread; a working directory of its own; no environment; no descriptors but null input, a capped output and the
channel; killed as a group, with whatever was started. The rest depends on the kernel, and `Sandbox.guards` says what is
in force:

| guard | where | what it adds |
|---|---|---|
| namespaces | Linux 5.12 or later, as root or where users may make namespaces | sees only the folders of the standard library and of shared libraries, read-only and with those of installed packages emptied, and an empty directory in memory, which vanishes with it; no network |
| seccomp | Linux on x86-64 and ARM64 | an allow-list of system calls: no sockets, processes, signals to others or tracing; without namespaces also no writing anywhere, not even in its directory; but what the user may read can be read, `/proc` included |
| audit | where seccomp is missing | the same as seccomp, refused by an audit hook inside the interpreter: stops ordinary Python, not machine code smuggled into it |

Run as root, programs become the user nobody. Only the standard library can be imported; without namespaces, a program
that knows where other packages are can add their folder to its path.

>>> test = "def check(candidate):\\n    assert candidate(2) == 4"
>>> with Sandbox() as sandbox:
...     for body in ("return 2 * x", "return 3 * x", "raise SystemExit(0)"):
...         print(sandbox.run(Program(f"def double(x): {body}", test, "double")).result)
passed
failed: AssertionError
failed: SystemExit: 0
"""  # noqa: E501

from flexmdm.sandbox.guards import Guards
from flexmdm.sandbox.limits import Limits
from flexmdm.sandbox.runner import BROKE, Program, Sandbox, Verdict, run_all

__all__ = ["BROKE", "Guards", "Limits", "Program", "Sandbox", "Verdict", "run_all"]
