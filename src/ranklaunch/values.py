"""Frozen values with named fields, as dataclasses are, whose making costs next to nothing.

A program that starts ranks is waited for. To make a frozen dataclass takes Python half a millisecond, for it writes and compiles five
methods, and the module that does it imports half of the standard library's introspection: for the forty of them that a start needs,
a third of all its time. These have the same methods, written once.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ranklaunch.typed import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> object:
        return lambda cls: cls


NOTHING: Mapping[Any, Any] = MappingProxyType({})  # for a field whose default is an empty dict

V = TypeVar("V", bound="Value")


@dataclass_transform(frozen_default=True)
class Value:
    """The annotations of a subclass are its fields, in their order; what is assigned to one is its default. Two values are equal where
    they are of one class and their fields are; `_aside` names fields that do not count for that and are not shown."""

    _fields: ClassVar[tuple[str, ...]] = ()
    _aside: ClassVar[tuple[str, ...]] = ()
    _compared: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[Mapping[str, Any]] = NOTHING
    _known: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        cls._fields = tuple(dict.fromkeys((*cls._fields, *(name for name in cls.__annotations__ if name[0] != "_"))))
        cls._defaults = {name: getattr(cls, name) for name in cls._fields if hasattr(cls, name)}
        cls._known = frozenset(cls._fields)
        cls._compared = tuple(name for name in cls._fields if name not in cls._aside)

    if not TYPE_CHECKING:

        def __init__(self, *args: Any, **named: Any) -> None:
            values = self.__dict__
            values.update(self._defaults)
            values.update(zip(self._fields, args))
            values.update(named)
            wrong = len(args) > len(self._fields) or not named.keys() <= self._known or len(values) < len(self._fields)
            if wrong or (args and not named.keys().isdisjoint(self._fields[: len(args)])):
                msg = f"{type(self).__name__}({', '.join(self._fields)}) was given {len(args)} values in order and {sorted(named)}"
                raise TypeError(msg)

        def __setattr__(self, name: str, value: object) -> None:
            msg = f"{type(self).__name__}.{name} cannot be changed"
            raise AttributeError(msg)

        def __delattr__(self, name: str) -> None:
            self.__setattr__(name, None)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if type(self) is type(other) and isinstance(other, Value) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self._compared)
        return f"{type(self).__name__}({shown})"

    def _key(self) -> tuple[object, ...]:
        values = self.__dict__
        return tuple([values[name] for name in self._compared])


def replace(value: V, **changes: Any) -> V:
    """The same but for these fields. Raises TypeError for one that it does not have."""
    return type(value)(**{**{name: value.__dict__[name] for name in value._fields}, **changes})


def fields(kind: type[Value]) -> tuple[str, ...]:
    """Their names, in their order."""
    return kind._fields


def as_dict(value: Value) -> dict[str, Any]:
    """With the values in it, and the tuples, lists and dicts between them, as dicts and lists."""
    return {name: _plain(value.__dict__[name]) for name in value._fields}


def _plain(value: Any) -> Any:
    if isinstance(value, Value):
        return as_dict(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value
