"""The process that runs a program and then answers calls of its entry point. Nothing that it says is believed."""

from __future__ import annotations

from typing import Any

from flexmdm.sandbox.values import encode, receive, send, text_of


def answer(channel: int, source: str, entry_point: str) -> None:
    """Run the program, report that it is ready, then answer calls until the judge has gone."""
    try:
        names: dict[str, Any] = {}
        exec(compile(source, "<program>", "exec", dont_inherit=True), names)
        if entry_point not in names:
            raise NameError(f"the program defines no {entry_point!r}")
        function = names[entry_point]
        send(channel, encode({"ready": True}))
    except BaseException as error:
        send(channel, _raised(error))
        return
    while True:
        try:
            call = receive(channel)
        except EOFError:
            return
        send(channel, _reply(function, call["args"], call["kwargs"]))


def _reply(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Encode what a call returns or raises, and the arguments that it changed."""
    try:
        before = _encoded(args)
        value = function(*args, **kwargs)
        changed = {index: args[index] for index, content in _encoded(args).items() if content != before[index]}
        return encode({"value": value, "changed": changed})
    except BaseException as error:
        return _raised(error)


def _encoded(args: tuple[Any, ...]) -> dict[int, bytes]:
    """Encode those arguments that a call can change, by their index."""
    return {index: encode(arg) for index, arg in enumerate(args) if isinstance(arg, list | dict | set)}


def _raised(error: BaseException) -> bytes:
    return encode({"raised": [kind.__name__ for kind in type(error).__mro__], "text": text_of(error)[:1000]})
