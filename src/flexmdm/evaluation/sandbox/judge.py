"""The process that runs the tests of a program, which is elsewhere, and says whether it passed."""

from __future__ import annotations

import builtins
from contextlib import suppress
from typing import Any, NoReturn

from flexmdm.evaluation.sandbox.values import encode, receive, send

_LONGEST_RESULT = 2000


class ProgramError(BaseException):
    """The program has gone, broke the protocol or raised what no test may catch, such as SystemExit."""


class Remote:
    """The entry point as the tests see it: a call is answered by the candidate process."""

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.problem: str | None = None

    def start(self) -> None:
        """Wait until the program has defined what it defines."""
        self._reply()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._send({"args": args, "kwargs": kwargs})
        reply = self._reply()
        if isinstance(reply.get("changed"), dict):
            for place, content in reply["changed"].items():
                _refresh(args[place], content)
        return reply.get("value")

    def _send(self, call: dict[str, Any]) -> None:
        try:
            send(self.channel, encode(call))
        except OSError:
            self._fail("the program ended before its tests did")

    def _reply(self) -> dict[str, Any]:
        try:
            reply = receive(self.channel)
        except (EOFError, OSError):
            self._fail("the program ended before its tests did")
        except ValueError as error:
            self._fail(f"the program sent {error}")
        if not isinstance(reply, dict):
            self._fail("the program sent something that is no reply")
        if "raised" in reply:
            raise self._exception(reply["raised"], reply.get("text"))
        return reply

    def _exception(self, names: Any, text: Any) -> BaseException:
        """The nearest exception that Python itself has, so that a test may expect it."""
        names = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
        text = text if isinstance(text, str) else ""
        for name in names:
            kind = getattr(builtins, name, None)
            if isinstance(kind, type) and issubclass(kind, Exception):
                with suppress(TypeError):  # some take more than a text; then their base has to do
                    return kind(text) if text else kind()
        self.problem = f"{names[0] if names else 'an exception'}: {text}"
        return ProgramError(self.problem)

    def _fail(self, problem: str) -> NoReturn:
        self.problem = problem
        raise ProgramError(problem)


def judge(channel: int, context: str, test: str, entry_point: str) -> str:
    """``passed``, or ``failed:`` and why.

    Args:
        channel: leads to the candidate.
        context: trusted source whose names the tests may use, as helper functions of the problem.
        test: defines ``check(candidate)``.
        entry_point: what the tests call the program's function.
    """
    remote = Remote(channel)
    try:
        remote.start()
        names: dict[str, Any] = {}
        exec(compile(context, "<context>", "exec", dont_inherit=True), names)
        names[entry_point] = remote
        exec(compile(f"{test}\ncheck({entry_point})", "<test>", "exec", dont_inherit=True), names)
    except ProgramError as error:
        return f"failed: {error}"[:_LONGEST_RESULT]
    except BaseException as error:
        return f"failed: {_described(error)}"[:_LONGEST_RESULT]
    return "passed" if remote.problem is None else f"failed: {remote.problem}"[:_LONGEST_RESULT]


def _described(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _refresh(old: Any, new: Any) -> None:
    """Give an argument the content that the call left in it."""
    if isinstance(old, list):
        old[:] = new
    elif isinstance(old, dict | set):
        old.clear()
        old.update(new)
