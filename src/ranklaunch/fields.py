"""Names and defaults of the fields of frozen dataclasses, and an empty mapping for defaults of parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

NOTHING: Mapping[Any, Any] = MappingProxyType({})


def names(kind: type) -> tuple[str, ...]:
    """Return the names of a dataclass's fields, in their order."""
    return tuple(each.name for each in dataclasses.fields(kind))


def defaults(kind: type) -> dict[str, Any]:
    """Return the default of each field that has one."""
    return {each.name: _default(each) for each in dataclasses.fields(kind) if not _required(each)}


def _default(of: dataclasses.Field[Any]) -> Any:
    return of.default if of.default_factory is dataclasses.MISSING else of.default_factory()


def _required(of: dataclasses.Field[Any]) -> bool:
    return of.default is dataclasses.MISSING and of.default_factory is dataclasses.MISSING


def as_dict(value: Any) -> dict[str, Any]:
    """Return a dataclass as JSON has it."""
    return {name: json_of(getattr(value, name)) for name in names(type(value))}


def json_of(value: Any) -> Any:
    """Return a value as JSON has it: dataclasses and mappings as dicts, tuples as lists."""
    if dataclasses.is_dataclass(value):
        return as_dict(value)
    if isinstance(value, (list, tuple)):
        return [json_of(item) for item in value]
    return {key: json_of(item) for key, item in value.items()} if isinstance(value, Mapping) else value
