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
from decimal import Decimal
from fractions import Fraction
from typing import Any

LONGEST_MESSAGE = 16 << 20
_LENGTH_BYTES = 4
_LARGEST_PLAIN_INT = 2**63
_MOST_ITEMS = 1_000_000  # of an iterator that may have no end


class Opaque:
    """A stand-in for something that is no plain value; only the name of its type is known."""

    def __init__(self, name: str) -> None:
        self.name = name

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

_VIEWS: dict[type, str] = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}
_AS_PLAIN = {Counter: dict, OrderedDict: dict}  # with a dict they compare as a dict does
_BASES = (bool, int, float, str, list, tuple, dict, set, frozenset, bytes, bytearray, complex, range, deque)


def _pack(value: Any) -> Any:
    kind = _kind(value)
    if kind in (type(None), bool):
        return value
    if kind in (float, str):
        return kind(value)
    if kind is int:
        number = int(value)
        return number if abs(number) < _LARGEST_PLAIN_INT else {"int": hex(number)}
    if kind is list:
        return [_pack(item) for item in value]
    if kind is dict:
        return {"dict": [[_pack(key), _pack(item)] for key, item in value.items()]}
    if kind in (tuple, set, frozenset, deque):
        return {kind.__name__: [_pack(item) for item in value]}
    if kind in (bytes, bytearray):
        return {kind.__name__: value.hex()}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    if kind is range:
        return {"range": [_pack(value.start), _pack(value.stop), _pack(value.step)]}
    if kind is Fraction:
        return {"Fraction": [_pack(value.numerator), _pack(value.denominator)]}
    if kind is Decimal:
        return {"Decimal": str(value)}
    if kind in _VIEWS:
        return {_VIEWS[kind]: [_pack(item) for item in value]}
    if isinstance(value, Iterator):
        return {"iterator": [_pack(item) for _, item in zip(range(_MOST_ITEMS), value, strict=False)]}
    return {"opaque": type(value).__name__}


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
    ((tag, content),) = packed.items() if len(packed) == 1 else [("", None)]
    if tag not in _UNPACK:
        raise ValueError(f"no plain value: {str(tag)[:40]!r} is not a known type")
    return _UNPACK[tag](content)


def _pairs(content: Any) -> dict[Any, Any]:
    return {_unpack(key): _unpack(value) for key, value in content}


_UNPACK: dict[str, Callable[[Any], Any]] = {
    "int": lambda content: int(content, 16),
    "dict": _pairs,
    "tuple": lambda content: tuple(map(_unpack, content)),
    "set": lambda content: set(map(_unpack, content)),
    "frozenset": lambda content: frozenset(map(_unpack, content)),
    "deque": lambda content: deque(map(_unpack, content)),
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "complex": lambda content: complex(*content),
    "range": lambda content: range(*map(_unpack, content)),
    "Fraction": lambda content: Fraction(*map(_unpack, content)),
    "Decimal": Decimal,
    "keys": lambda content: dict.fromkeys(map(_unpack, content)).keys(),
    "values": lambda content: dict(enumerate(map(_unpack, content))).values(),
    "items": lambda content: dict(map(_unpack, content)).items(),
    "iterator": lambda content: iter([_unpack(item) for item in content]),
    "opaque": lambda content: Opaque(str(content)),
}
