"""The process that runs the tests of a program, which runs in another process, and decides whether it passed."""

from __future__ import annotations

import builtins
from contextlib import suppress
from typing import Any, NoReturn

from flexmdm.sandbox.values import encode, receive, send, text_of

_LONGEST_RESULT = 2000


class TrialEnded(BaseException):
    """Raised to end the tests at once; no test can catch it and pass."""


class Remote:
    """The entry point as the tests see it: a call is answered by the candidate process."""

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.result: str | None = None  # whatever the tests make of it

    def start(self) -> None:
        """Wait until the candidate process is confined, and then until the program has defined its names.

        The first message was written before the program ran, so unlike all others it can be believed.
        """
        try:
            first = receive(self.channel)
        except (EOFError, OSError):
            self._end("error: the process of the program ended before the program ran")
        if "error" in first:
            self._end(f"error: {first['error']}")
        self._value(self._receive())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the answer to a call, and give the arguments the contents that the call left in them."""
        try:
            call = encode({"args": args, "kwargs": kwargs})
            with suppress(OSError):  # the program has gone, as the next line finds
                send(self.channel, call)
            reply = self._receive()
            changed = reply.get("changed", {})
            for index, content in changed.items() if isinstance(changed, dict) else [(None, None)]:
                if type(index) is not int or not 0 <= index < len(args) or not _replaced(args[index], content):
                    self._end("failed: the program sent something that is no reply")
        except (MemoryError, RecursionError) as error:  # values of the program can be too large for us
            self._end(f"failed: {describe(error)}")
        except Exception as error:  # a mistake of ours, which must not count against the program
            self._end(f"error: {describe(error)}")
        return self._value(reply)

    def _receive(self) -> dict[str, Any]:
        try:
            reply = receive(self.channel)
        except (EOFError, OSError):
            self._end("failed: the program ended before its tests did")
        except (ValueError, MemoryError) as error:
            self._end(f"failed: the program sent {error or 'too much'}")
        if not isinstance(reply, dict):
            self._end("failed: the program sent something that is no reply")
        return reply

    def _value(self, reply: dict[str, Any]) -> Any:
        """Return what a call returned, or raise what it raised."""
        if "raised" in reply:
            raise self._exception(reply["raised"], reply.get("text"))
        return reply.get("value")

    def _exception(self, names: Any, text: Any) -> Exception:
        """Return the nearest exception that Python itself has, so that a test may expect it."""
        names = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
        text = text if isinstance(text, str) else ""
        for name in names:
            kind = getattr(builtins, name, None)
            if isinstance(kind, type) and issubclass(kind, Exception):
                with suppress(TypeError):  # some take more than a text; then their base has to do
                    return kind(text) if text else kind()
        self._end(f"failed: {names[0] if names else 'an exception'}: {text}")

    def _end(self, result: str) -> NoReturn:
        self.result = result
        raise TrialEnded(result)


def judge(channel: int, context: str, test: str, entry_point: str) -> str:
    """Return ``passed``, ``failed:`` and why, or ``error:`` and why the program could not be judged; see `Program`."""
    names: dict[str, Any] = {}
    try:
        exec(compile(context, "<context>", "exec", dont_inherit=True), names)
        tests = compile(test, "<test>", "exec", dont_inherit=True)
    except Exception as error:
        return f"error: the tests of {entry_point} cannot run: {describe(error)}"[:_LONGEST_RESULT]
    names[entry_point] = remote = Remote(channel)
    try:
        remote.start()
        exec(tests, names)
        if "check" not in names:
            return f"error: the tests of {entry_point} define no function 'check'"
        names["check"](remote)
        result = "passed"
    except BaseException as error:
        result = f"failed: {describe(error)}"
    return (remote.result or result)[:_LONGEST_RESULT]


def describe(error: BaseException) -> str:
    """Return the type of an exception, and its text where it has one."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _replaced(old: Any, new: Any) -> bool:
    """Give an argument its new contents, if these are of the same type; return whether they are."""
    if not any(isinstance(old, kind) and isinstance(new, kind) for kind in (list, dict, set)):
        return False
    old.clear()
    (old.extend if isinstance(old, list) else old.update)(new)
    return True
