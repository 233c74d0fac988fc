"""Modules of one kind, by name, each imported when it is asked for: a start needs few of them, and is waited for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar, cast

M = TypeVar("M")


class Modules(Mapping[str, M]):
    """package: whose modules these are; names: in the order that counts. attribute: of a module, in its place; "": the module itself."""

    def __init__(self, package: str, names: tuple[str, ...], attribute: str = "") -> None:
        self._package = package
        self._names = names
        self._attribute = attribute

    def __getitem__(self, name: str) -> M:
        if name not in self._names:
            raise KeyError(name)
        module = import_module(f"{self._package}.{name}")
        return cast("M", getattr(module, self._attribute) if self._attribute else module)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
