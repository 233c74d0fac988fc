"""Reads a pickle of plain values: None, truth, numbers, texts, bytes, lists, tuples and dicts. Flight recorders dump these.

Whoever can write to the folder of a job can put any pickle there, and Python's own unpickler does what a pickle says: it imports, calls,
and makes room for as many objects as it is told to. Here nothing is imported or called, and no more is made than MOST_VALUES.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

MOST_BYTES = 32 * 1024 * 1024
MOST_VALUES = 4_000_000  # opcodes: each makes one value at most. A dump of 2,000 collectives with their stacks has some hundred thousand
MOST_LONG = 64  # bytes of a number
_ASKS_WHETHER_LATE = 1024  # values between two times
_MARK = object()
_KEYS = (str, bytes, int, float, type(None))

# Opcodes of a fixed number of bytes behind them, with the format of these.
_NUMBERS = {b"J": "<i", b"K": "<B", b"M": "<H", b"G": ">d"}
_CONSTANTS: dict[bytes, Callable[[], Any]] = {
    b"N": lambda: None, b"\x88": lambda: True, b"\x89": lambda: False, b"}": dict, b"]": list, b")": tuple,
}  # fmt: skip
_SIZED = {b"X": "<I", b"\x8c": "<B", b"\x8d": "<Q", b"B": "<I", b"C": "<B", b"\x8e": "<Q", b"\x8a": "<B"}
_TEXTS = (b"X", b"\x8c", b"\x8d")
_TUPLES = {b"\x85": 1, b"\x86": 2, b"\x87": 3}
_PUT = {b"q": "<B", b"r": "<I"}
_GET = {b"h": "<B", b"j": "<I"}


def plain(data: bytes, is_late: Callable[[], bool] = bool) -> Any:
    """is_late: whether the time for it is over. Raises ValueError where it is none of plain values, is not whole, or is too large, and
    TimeoutError where it is late."""
    if len(data) > MOST_BYTES:
        msg = f"{len(data)} bytes, more than the {MOST_BYTES} that are read"
        raise ValueError(msg)
    try:
        return _Reader(data).value(is_late)
    except (IndexError, KeyError, TypeError, struct.error, UnicodeDecodeError) as error:
        msg = f"no pickle of plain values: {type(error).__name__}"
        raise ValueError(msg) from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def value(self, is_late: Callable[[], bool]) -> Any:
        for number in range(MOST_VALUES):
            if not number % _ASKS_WHETHER_LATE and is_late():
                raise TimeoutError
            opcode = self._take(1)
            if opcode == b".":
                value = self._pop()
                if self._stack:
                    msg = "no pickle of plain values: something is left over"
                    raise ValueError(msg)
                return value
            self._do(opcode)
        msg = f"no pickle of plain values: more than {MOST_VALUES} of them"
        raise ValueError(msg)

    def _do(self, opcode: bytes) -> None:
        if opcode in _CONSTANTS:
            self._stack.append(_CONSTANTS[opcode]())
        elif opcode in _NUMBERS:
            self._stack.append(self._number(_NUMBERS[opcode]))
        elif opcode in _SIZED:
            self._stack.append(self._sized(opcode))
        elif opcode in _TUPLES:
            self._stack[-_TUPLES[opcode] :] = [tuple(self._last(_TUPLES[opcode]))]
        elif opcode in _PUT or opcode == b"\x94":
            self._memo[len(self._memo) if opcode == b"\x94" else int(self._number(_PUT[opcode]))] = self._last(1)[0]
        elif opcode in _GET:
            self._stack.append(self._memo[int(self._number(_GET[opcode]))])
        elif opcode == b"(":
            self._stack.append(_MARK)
        elif opcode == b"\x80":
            self._take(1)
        elif opcode == b"\x95":
            self._take(8)
        else:
            self._gather(opcode)

    def _gather(self, opcode: bytes) -> None:
        """What makes one of several, or adds them to one."""
        if opcode == b"t":
            self._stack.append(tuple(self._to_mark()))
        elif opcode in (b"a", b"e"):
            items = self._to_mark() if opcode == b"e" else [self._pop()]
            self._top(list).extend(items)
        elif opcode in (b"s", b"u"):
            items = self._to_mark() if opcode == b"u" else [*reversed([self._pop(), self._pop()])]
            if len(items) % 2:
                msg = "no pickle of plain values: a key without a value"
                raise ValueError(msg)
            if not all(isinstance(key, _KEYS) for key in items[::2]):  # of a tuple within tuples, hashing may never end
                raise TypeError
            self._top(dict).update(zip(items[::2], items[1::2]))
        else:
            msg = f"no pickle of plain values: opcode {opcode!r}"
            raise ValueError(msg)

    def _sized(self, opcode: bytes) -> Any:
        size = int(self._number(_SIZED[opcode]))
        if opcode == b"\x8a" and size > MOST_LONG:
            msg = f"no pickle of plain values: a number of {size} bytes"
            raise ValueError(msg)
        data = self._take(size)
        if opcode == b"\x8a":
            return int.from_bytes(data, "little", signed=True)
        return data.decode("utf-8", "surrogatepass") if opcode in _TEXTS else data

    def _number(self, layout: str) -> Any:
        return struct.unpack(layout, self._take(struct.calcsize(layout)))[0]

    def _take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            msg = "no pickle of plain values: it is not whole"
            raise ValueError(msg)
        self._at += size
        return found

    def _pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise TypeError
        return value

    def _last(self, count: int) -> list[Any]:
        found = self._stack[-count:]
        if len(found) < count or any(each is _MARK for each in found):
            raise TypeError
        return found

    def _top(self, kind: type) -> Any:
        value = self._stack[-1]
        if type(value) is not kind:
            raise TypeError
        return value

    def _to_mark(self) -> list[Any]:
        for i in range(len(self._stack) - 1, -1, -1):
            if self._stack[i] is _MARK:
                found = self._stack[i + 1 :]
                del self._stack[i:]
                return found
        raise TypeError
