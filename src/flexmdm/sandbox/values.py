"""Plain values as bytes, between a process that is trusted and one that is not.

Decoding runs no code of the sender and makes nothing but numbers, strings, the containers of Python and a few types of
its standard library. Whatever else a function returns arrives as an `Opaque`, which is equal to nothing.

>>> decode(encode([1, (2.5, "x"), {"a": {3}}, 10**30]))
[1, (2.5, 'x'), {'a': {3}}, 1000000000000000000000000000000]
>>> list(decode(encode(x * x for x in range(3))))
[0, 1, 4]
>>> class Anything:
...     def __eq__(self, other):
...         return True
>>> Anything() == 42, decode(encode(Anything())) == 42
(True, False)
"""

from __future__ import annotations

import json
import os
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any

LONGEST_MESSAGE = 16 << 20
_LENGTH_BYTES = 4
_LARGEST_PLAIN_INT = 2**63
_MOST_ITEMS = 1_000_000  # of an iterator that may have no end


@dataclass(eq=False, repr=False)
class Opaque:
    """A stand-in for something that is no plain value; only the name of its type is known."""

    name: str

    def __repr__(self) -> str:
        return f"<{self.name}>"


def encode(value: Any) -> bytes:
    """Return a value as bytes; iterators are read to their end (or to a million items)."""
    return json.dumps(_pack(value)).encode()


def decode(data: bytes) -> Any:
    """Return the value that `encode` wrote; a ``ValueError`` if the bytes are no such thing."""
    try:
        return _unpack(json.loads(data))
    except (TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"no plain value ({type(error).__name__}: {error})") from error


def text_of(error: BaseException) -> str:
    """Return the text of an exception, whatever its class does when asked for it."""
    try:
        return str(error)
    except Exception:
        return ""


def send(channel: int, data: bytes) -> None:
    """Write an encoded value to a descriptor."""
    rest = memoryview(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    while rest:
        rest = rest[os.write(channel, rest) :]


def receive(channel: int) -> Any:
    """Return the next value from a descriptor; ``EOFError`` if the other side has gone."""
    length = int.from_bytes(_read(channel, _LENGTH_BYTES), "big")
    if length > LONGEST_MESSAGE:
        raise ValueError(f"a message of {length} bytes is too long; at most {LONGEST_MESSAGE} are read")
    return decode(_read(channel, length))


def _read(channel: int, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        part = os.read(channel, length - len(data))
        if not part:
            raise EOFError("the other side has gone")
        data += part
    return bytes(data)


# A JSON array is a list, an object with one key is any other type: {"tuple": [...]}. ----------------------------------

# How a value of a type becomes a text or a list of values, and is made from it again.
_PARTS: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    int: (hex, lambda text: int(text, 16)),  # a large one
    dict: (lambda value: [list(pair) for pair in value.items()], dict),
    tuple: (list, tuple),
    set: (list, set),
    frozenset: (list, frozenset),
    deque: (list, deque),
    bytes: (bytes.hex, bytes.fromhex),
    bytearray: (bytearray.hex, bytearray.fromhex),
    complex: (lambda value: [value.real, value.imag], lambda parts: complex(*parts)),
    range: (lambda value: [value.start, value.stop, value.step], lambda parts: range(*parts)),
    Fraction: (lambda value: [value.numerator, value.denominator], lambda parts: Fraction(*parts)),
    Decimal: (str, Decimal),
    type({}.keys()): (list, lambda parts: dict.fromkeys(parts).keys()),
    type({}.values()): (list, lambda parts: dict(enumerate(parts)).values()),
    type({}.items()): (list, lambda parts: dict(parts).items()),
    Iterator: (lambda value: list(islice(value, _MOST_ITEMS)), iter),
    Opaque: (lambda value: type(value).__name__, lambda name: Opaque(str(name))),
}
_MADE_FROM = {kind.__name__: make for kind, (_, make) in _PARTS.items()}
_AS_PLAIN = {Counter: dict, OrderedDict: dict}  # with a dict they compare as a dict does
_BASES = (bool, int, float, str, list, tuple, dict, set, frozenset, bytes, bytearray, complex, range, deque)


def _pack(value: Any) -> Any:
    kind = _kind(value)
    if kind in (type(None), bool):
        return value
    if kind in (float, str):
        return kind(value)
    if kind is int and abs(int(value)) < _LARGEST_PLAIN_INT:
        return int(value)
    if kind is list:
        return [_pack(item) for item in value]
    if kind not in _PARTS:
        kind = Iterator if isinstance(value, Iterator) else Opaque
    return {kind.__name__: _pack(_PARTS[kind][0](value))}


def _kind(value: Any) -> type:
    """Return the type to send a value as: of a subclass that compares as its base does, the base."""
    kind = type(value)
    for base in _BASES:
        if issubclass(kind, base) and kind.__eq__ is base.__eq__:
            return base
    return _AS_PLAIN.get(kind, kind)


def _unpack(packed: Any) -> Any:
    if isinstance(packed, list):
        return [_unpack(item) for item in packed]
    if not isinstance(packed, dict):
        return packed
    ((name, parts),) = packed.items() if len(packed) == 1 else [("", None)]
    if name not in _MADE_FROM or not isinstance(parts, list | str):
        raise ValueError(f"no plain value: {str(name)[:40]!r} is not a known type")
    return _MADE_FROM[name](_unpack(parts))
