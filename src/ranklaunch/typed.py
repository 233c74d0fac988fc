"""What type checkers read of the module typing, for modules that a start imports: whoever starts ranks is waited for, and importing typing
takes a quarter of the time of a whole start of Python. When a program runs, these names stand for next to nothing."""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, ClassVar, Generic, NamedTuple, NoReturn, Optional, Protocol, TypeVar, Union, cast
else:
    from collections import namedtuple

    Any = ClassVar = NoReturn = object

    class _Choice:
        def __getitem__(self, _kinds):
            return object

    Optional = Union = _Choice()

    def TypeVar(_name, **_how):
        return object

    def cast(_kind, value):
        return value

    class Protocol:
        pass

    class Generic:
        def __class_getitem__(cls, _kinds):
            return cls

    class _Named(type):
        """Of a class's annotations, a tuple with these names."""

        def __new__(cls, name, bases, space):
            names = space["__annotations__"]
            defaults = [space.pop(each) for each in names if each in space]
            made = namedtuple(name, names, defaults=defaults, module=space["__module__"])
            for key, value in space.items():
                if key not in ("__dict__", "__module__", "__qualname__"):
                    setattr(made, key, value)
            return made

    NamedTuple = type.__new__(_Named, "NamedTuple", (), {})

__all__ = (
    "TYPE_CHECKING", "Any", "ClassVar", "Generic", "NamedTuple", "NoReturn", "Optional", "Protocol", "TypeVar", "Union", "cast",
)  # fmt: skip
