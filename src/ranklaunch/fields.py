"""Fields of frozen dataclasses (names, defaults, to JSON and back), and an empty mapping for parameters' defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

NOTHING: Mapping[Any, Any] = MappingProxyType({})
_PLAIN: Mapping[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}
_T = TypeVar("_T")


def names(kind: type) -> tuple[str, ...]:
    """Return the names of a dataclass's fields, in their order."""
    return tuple(each.name for each in dataclasses.fields(kind))


def defaults(kind: type) -> dict[str, Any]:
    """Return the default of each field that has one."""
    return {each.name: _default(each) for each in dataclasses.fields(kind) if not _required(each)}


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def as_dict(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, by name, as values of JSON."""
    return {name: json_of(getattr(value, name)) for name in names(type(value))}


def json_of(value: Any) -> Any:
    """Return a value of JSON: dataclasses and mappings become dicts, tuples become lists. A dataclass's own as_json() comes first."""
    if dataclasses.is_dataclass(value):
        return value.as_json() if hasattr(value, "as_json") else as_dict(value)
    if isinstance(value, (list, tuple)):
        return [json_of(item) for item in value]
    return {key: json_of(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def from_dict(kind: Callable[..., _T], data: Any) -> _T:
    """Return a dataclass from JSON in as_dict's form, by the annotations of its fields.

    A missing field gets its default; an unknown key is ignored. A dataclass's own from_json() comes first. Raises ValueError.
    """
    if hasattr(kind, "from_json"):
        return kind.from_json(data)  # type: ignore[no-any-return]
    if not isinstance(data, Mapping):
        msg = f"expected an object, not {data!r:.80}"
        raise ValueError(msg)
    known = vars(kind)["__init__"].__globals__  # the names in the module of the dataclass
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(kind)  # type: ignore[arg-type]
    used = [each for each in fields if each.name in data or _required(each)]
    return kind(**{each.name: _from_json(str(each.type), data.get(each.name), each.name, known) for each in used})


def _from_json(annotation: str, value: Any, name: str, known: Mapping[str, Any]) -> Any:
    """Return the value of one field. name: the field's, for messages. known: types by their names in annotations."""
    bare = annotation.removesuffix(" | None")
    if value is None and bare != annotation:
        return None
    if bare in _PLAIN or bare.startswith(("tuple[", "Mapping[")):
        kinds = _PLAIN.get(bare, (list, tuple) if bare.startswith("tuple[") else (dict,))
        if not isinstance(value, kinds) or (isinstance(value, bool) and bare != "bool"):
            msg = f"{name} is {value!r:.80}"
            raise ValueError(msg)
    if bare.startswith("tuple["):
        items = bare[len("tuple[") : -1]
        every = [items.removesuffix(", ...")] * len(value) if items.endswith("...") else items.split(", ")
        return tuple(_from_json(item, each, name, known) for item, each in zip(every, value))
    return value if bare in _PLAIN or bare.startswith("Mapping[") else from_dict(known[bare], value)
