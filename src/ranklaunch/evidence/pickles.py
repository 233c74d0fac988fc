"""Safe reader of pickles with plain values: None, bool, numbers, str, bytes, lists, tuples and dicts. Flight recorders dump such
pickles.

Anybody with write access to a job's folder can put a pickle there, and Python's unpickler would import, call and allocate as the pickle
says. This reader decodes the opcodes with pickletools, imports and calls nothing, and makes at most MOST_VALUES values.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any
from warnings import catch_warnings, simplefilter

MOST_BYTES = 32 * 1024 * 1024
MOST_VALUES = 4_000_000  # opcodes; a dump of 2,000 collectives with their stacks has several hundred thousand
_BETWEEN_LOOKS = 1024  # opcodes between two calls of is_late
_KEYS = (str, bytes, int, float, type(None))
_PUSHED = {
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "NONE",
}  # fmt: skip
_PUTS, _GETS = {"BINPUT", "LONG_BINPUT", "MEMOIZE"}, {"BINGET", "LONG_BINGET"}
_CONSTANTS = {"NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_EMPTY: dict[str, type] = {"EMPTY_DICT": dict, "EMPTY_LIST": list}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED = {"PROTO", "FRAME", "STOP"}


def plain(data: bytes, is_late: Callable[[], bool] = bool) -> Any:
    """Return the value of a pickle. is_late: returns True after the deadline.

    Raises ValueError for other values, an incomplete pickle, or one that is too large. Raises TimeoutError after the deadline.
    """
    if len(data) > MOST_BYTES:
        msg = f"a pickle of {len(data)} bytes, more than the limit of {MOST_BYTES}"
        raise ValueError(msg)
    try:
        with catch_warnings():
            simplefilter("ignore")  # Python warns of invalid escapes in a damaged pickle
            return _Machine().value(data, is_late)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        msg = f"not a pickle of plain values: {type(error).__name__}: {error}"
        raise ValueError(msg) from None


class _Machine:
    """Stack machine of pickles. stack: values since the last mark. marked: the stacks below the marks."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._marked: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def value(self, data: bytes, is_late: Callable[[], bool]) -> Any:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if not number % _BETWEEN_LOOKS and is_late():
                raise TimeoutError
            if number > MOST_VALUES:
                msg = f"more than {MOST_VALUES} values"
                raise ValueError(msg)
            self._do(opcode.name, argument)
        if self._marked or len(self._stack) != 1:
            msg = "not exactly one value"
            raise ValueError(msg)
        return self._stack[0]

    def _do(self, name: str, argument: Any) -> None:
        if name in _PUSHED:  # genops gives None as the argument of NONE
            self._stack.append(argument)
        elif name in _PUTS:
            self._memo[len(self._memo) if argument is None else argument] = self._stack[-1]
        elif name in _GETS:
            self._stack.append(self._memo[argument])
        elif name in _EMPTY:
            self._stack.append(_EMPTY[name]())
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            self._stack.append(tuple(self._pop(_TUPLES[name])))
        elif name == "MARK":
            self._marked.append(self._stack)
            self._stack = []
        elif name not in _IGNORED:
            self._gather(name)

    def _gather(self, name: str) -> None:
        """Make a tuple of values from the stack, or add values to a list or dict."""
        if name == "TUPLE":
            self._stack.append(tuple(self._since_mark()))
        elif name in ("APPEND", "APPENDS"):
            items = self._pop(1) if name == "APPEND" else self._since_mark()
            self._last(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self._pop(2) if name == "SETITEM" else self._since_mark()
            keys, values = items[::2], items[1::2]
            # No tuples as keys: the hash of deeply nested tuples may take forever.
            if len(keys) != len(values) or not all(isinstance(key, _KEYS) for key in keys):
                raise TypeError(name)
            self._last(dict).update(zip(keys, values))
        else:
            raise ValueError(name)

    def _pop(self, count: int) -> list[Any]:
        values = self._stack[-count:]
        if len(values) < count:
            raise IndexError(count)
        del self._stack[-count:]
        return values

    def _since_mark(self) -> list[Any]:
        values, self._stack = self._stack, self._marked.pop()
        return values

    def _last(self, kind: type) -> Any:
        value = self._stack[-1]
        if type(value) is not kind:
            raise TypeError(kind.__name__)
        return value
