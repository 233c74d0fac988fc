"""Form of each value of a job's specification: the table behind the parser, its messages and docs/spec-values.md."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

TEXT, WHOLE, FLAG, TEXTS, WHOLES, PAIRS, OBJECT, OBJECTS = (
    "string", "integer", "true or false", "list of strings", "list of integers", "map of strings", "object", "list of objects",
)  # fmt: skip
LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
QUANTITY = r"[0-9]+(?:\.[0-9]+)?(?:m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?"
MEMORY = r"[0-9]{7,}|[0-9]+(?:\.[0-9]+)?(?:k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)"  # fewer than 7 digits without a unit: bytes were hardly meant
CPUS = "[1-9][0-9]{0,5}"
NAMES = rf"{LABEL}(?:\.{LABEL})*"
RESOURCE = rf"(?:{NAMES}/)?[A-Za-z0-9](?:[-_.A-Za-z0-9]{{0,61}}[A-Za-z0-9])?"
PATH = r"/[^\0]*"
VARIABLE = r"[A-Za-z_][A-Za-z0-9_.-]*"
TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
DIGEST = r"sha256:[0-9a-f]{64}"
INTERFACE = r"[A-Za-z0-9_.:-]{1,15}"
CHIP = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
CAPABILITY = r"[A-Z_]+"
ARN = r"arn:[!-~]+"
MODULE = r"[A-Za-z_][A-Za-z0-9_.]*"
OPTION = r"--[a-z][A-Za-z0-9-]*(?:=[!-~]*)?"
# Patterns in words, for messages.
FORMS: Mapping[str, str] = {
    LABEL: "small letters, digits and dashes, at most 63",
    NAMES: "small letters, digits, dashes and dots, as objects are called",
    QUANTITY: "a quantity such as 4 or 16Gi",
    MEMORY: "an amount of memory with its unit, such as 16Gi",
    RESOURCE: "letters, digits, dashes, dots and underscores, with at most one slash, as in vendor.example/name",
    PATH: "a path from the root",
    VARIABLE: "letters, digits, dots, dashes and underscores, not beginning with a digit",
    TAG: "letters, digits, dots, dashes and underscores, at most 128",
    DIGEST: "sha256: and 64 digits, which are 0 to 9 and a to f",
    INTERFACE: "the name of a network interface, such as eth0",
    CHIP: "letters, digits, dashes, dots and underscores, such as ascend-910b",
    CAPABILITY: "the capability's name in capitals, without CAP_, such as IPC_LOCK",
    ARN: "a name of Amazon's, arn:aws:...",
    r"[A-Za-z0-9_./*-]+": "letters, digits, dots, dashes, underscores, slashes and stars",
    MODULE: "the name of a module, such as team.train",
    r"(?:obs:/)?/[^\0]*/": "a folder of OBS that ends with a slash, such as /bucket/code/",
    r"/home/[^\0]+": "a folder below /home",
    r"[A-Za-z0-9_.,+-]+": "letters, digits, commas, dots, dashes, pluses and underscores",
    r"[A-Za-z0-9_.-]+": "letters, digits, dots, dashes and underscores",
    r"[A-Za-z0-9_.,-]+": "letters, digits, commas, dots, dashes and underscores",
    OPTION: "a long option without spaces, such as --exclusive or --comment=a",
}


class Key(NamedTuple):
    """Key of a specification.

    kind: TEXT, WHOLE, ... legal: the legal words, () for any. pattern: for a string that is not empty; FORMS has it in words. low, high:
    limits of an integer. of: Kubernetes type of an object (specs/kubernetes/fields.py), "" for another object.
    """

    kind: str
    default: object
    meaning: str
    legal: tuple[str, ...] = ()
    pattern: str = ""
    low: int = 0
    high: int = 0
    of: str = ""

    @property
    def form(self) -> str:
        """Pattern in words."""
        return FORMS.get(self.pattern, "another form: docs/spec-values.md has its meaning")


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
    """Return the field of a map of strings. pattern: for the names."""
    return dataclasses.field(default_factory=dict, metadata={"key": Key(PAIRS, {}, meaning, pattern=pattern)})


def an_object(meaning: str, of: str = "") -> Any:
    return dataclasses.field(default_factory=dict, metadata={"key": Key(OBJECT, {}, meaning, of=of)})


def objects(meaning: str, of: str = "") -> Any:
    return _field(Key(OBJECTS, (), meaning, of=of))


def group(kind: type) -> Any:
    return dataclasses.field(default_factory=kind, metadata={"group": kind})


def _field(key: Key) -> Any:
    return dataclasses.field(default=key.default, metadata={"key": key})


def written(name: str) -> str:
    """Return an attribute's name in the spelling of values: devices_per_node is devicesPerNode."""
    return re.sub("_([a-z])", lambda match: match[1].upper(), name)


def fields(kind: type) -> dict[str, dataclasses.Field[Any]]:
    return {written(field.name): field for field in dataclasses.fields(kind)}


def every(kind: type, place: str = "") -> Iterator[tuple[str, Key]]:
    """Yield path and key of each value below a group: ("device.kind", Key(...))."""
    for name, field in fields(kind).items():
        if "group" in field.metadata:
            yield from every(field.metadata["group"], f"{place}{name}.")
        else:
            yield f"{place}{name}", field.metadata["key"]


def paths(kind: type, place: str = "") -> Iterator[str]:
    """Yield the path of each value and of each group."""
    for name, field in fields(kind).items():
        yield f"{place}{name}"
        if "group" in field.metadata:
            yield from paths(field.metadata["group"], f"{place}{name}.")


def every_value(group: object, place: str = "") -> Iterator[tuple[str, object, Key]]:
    """Yield path, value and key of every value of a specification."""
    for name, field in fields(type(group)).items():
        value = getattr(group, field.name)
        if "group" in field.metadata:
            yield from every_value(value, f"{place}{name}.")
        else:
            yield f"{place}{name}", value, field.metadata["key"]
