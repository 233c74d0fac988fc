"""What a value of a job's specification looks like: the table from which reading, messages and docs/spec-values.md come."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

TEXT, WHOLE, FLAG, TEXTS, WHOLES, PAIRS, OBJECT, OBJECTS = (
    "string", "integer", "true or false", "list of strings", "list of integers", "map of strings", "object", "list of objects",
)  # fmt: skip
LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
QUANTITY = r"[0-9]+(?:\.[0-9]+)?(?:m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?"
RESOURCE = r"(?:[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?"
PATH = r"/[^\0]*"


class Key(NamedTuple):
    """kind: of the value. legal: where only these are right. pattern: of a string that is not empty. low, high: of an integer."""

    kind: str
    default: object
    meaning: str
    legal: tuple[str, ...] = ()
    pattern: str = ""
    low: int = 0
    high: int = 0


def text(default: str, meaning: str, *legal: str, pattern: str = "") -> Any:
    return _field(Key(TEXT, default, meaning, legal, pattern))


def whole(default: int, low: int, high: int, meaning: str) -> Any:
    return _field(Key(WHOLE, default, meaning, low=low, high=high))


def flag(default: bool, meaning: str) -> Any:
    return _field(Key(FLAG, default, meaning))


def texts(meaning: str, *legal: str, pattern: str = "") -> Any:
    return _field(Key(TEXTS, (), meaning, legal, pattern))


def wholes(default: tuple[int, ...], low: int, high: int, meaning: str) -> Any:
    return _field(Key(WHOLES, default, meaning, low=low, high=high))


def pairs(meaning: str, pattern: str = "") -> Any:
    """pattern: of the names."""
    return dataclasses.field(default_factory=dict, metadata={"key": Key(PAIRS, {}, meaning, pattern=pattern)})


def an_object(meaning: str) -> Any:
    return dataclasses.field(default_factory=dict, metadata={"key": Key(OBJECT, {}, meaning)})


def objects(meaning: str) -> Any:
    return _field(Key(OBJECTS, (), meaning))


def group(kind: type) -> Any:
    return dataclasses.field(default_factory=kind, metadata={"group": kind})


def _field(key: Key) -> Any:
    return dataclasses.field(default=key.default, metadata={"key": key})


def written(name: str) -> str:
    """An attribute's name as it is written in values: devices_per_node is devicesPerNode."""
    return re.sub("_([a-z])", lambda match: match[1].upper(), name)


def fields(kind: type) -> dict[str, dataclasses.Field[Any]]:
    return {written(field.name): field for field in dataclasses.fields(kind)}


def every(kind: type, place: str = "") -> Iterator[tuple[str, Key]]:
    """Each value below a group, by its path: ("device.kind", Key(...))."""
    for name, field in fields(kind).items():
        if "group" in field.metadata:
            yield from every(field.metadata["group"], f"{place}{name}.")
        else:
            yield f"{place}{name}", field.metadata["key"]


def given(group: object, place: str = "") -> Iterator[tuple[str, object, Key]]:
    """Every key of a specification, by its path, with the value that it has there."""
    for name, field in fields(type(group)).items():
        value = getattr(group, field.name)
        if "group" in field.metadata:
            yield from given(value, f"{place}{name}.")
        else:
            yield f"{place}{name}", value, field.metadata["key"]
