"""Conversion of nested values, from a file and options, to a JobSpec. Each problem names the path of its key."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field
from typing import Any, NamedTuple, NoReturn, TypeVar

from ranklaunch.env.parse import flag
from ranklaunch.showing import shown
from ranklaunch.specs import documents, familiar, keys, sbatch
from ranklaunch.specs.image import parts_of_image
from ranklaunch.specs.keys import Key
from ranklaunch.specs.model import Image, JobSpec

T = TypeVar("T")
PATHS = tuple(keys.paths(JobSpec))
MOST_UNKNOWN = 20  # reported unknown keys of a group
ENVIRONMENT = "env"  # the place whose values may be secrets: no message shows them


class Problem(NamedTuple):
    """Message about a wrong value. on_command_line: the value is from an option."""

    text: str
    on_command_line: bool = False


class Values:
    """Reader of values, which collects problems. sources: option of a value, by the value's path, for values that are not from the file."""

    def __init__(self, sources: Mapping[str, str] | None = None) -> None:
        self.problems: list[Problem] = []
        self._sources = dict(sources or {})

    def spec(self, values: object) -> JobSpec:
        return self._group(JobSpec, values, "")

    def _group(self, kind: type[T], values: object, place: str) -> T:
        if values is None:
            return kind()
        if not isinstance(values, Mapping):
            names = ", ".join(keys.fields(kind))
            hint = f", such as {json.dumps(parts_of_image(values))}" if kind is Image and isinstance(values, str) else ""
            self._wrong(place.rstrip(".") or "values", values, f"expected a map with keys of {names}{hint}")
            return kind()
        known = keys.fields(kind)
        self.problems += map(Problem, _unknown([name for name in values if name not in known], known, place))
        return kind(**{field.name: self._field(f"{place}{name}", field, values[name]) for name, field in known.items() if name in values})

    def _field(self, place: str, field: Field[Any], value: object) -> object:
        of = field.metadata
        return self._group(of["group"], value, f"{place}.") if "group" in of else self._value(place, of["key"], value)

    def _value(self, place: str, key: Key, value: object) -> object:
        if value is None:  # an empty value in YAML
            return key.default
        try:
            if isinstance(value, str) and key.legal and value not in key.legal:
                _refuse(f"expected one of {', '.join(word or repr(word) for word in key.legal)}{familiar.word(place, value, key.legal)}")
            if place == ENVIRONMENT and isinstance(value, list):
                _refuse("expected a map of strings; a list as Kubernetes has it goes into extraEnv")
            return CHECKS[key.kind](key, value)
        except ValueError as error:
            self._wrong(place, value, str(error))
            return key.default

    def _wrong(self, place: str, value: object, expected: str) -> None:
        source = self._sources.get(place, place)
        written = "" if place == ENVIRONMENT else f"={shown(place, _written(value))!r}"
        self.problems.append(Problem(f"{source}{written}: {expected}", source.startswith("option ")))


def _unknown(names: list[object], known: Iterable[str], place: str) -> Iterator[str]:
    for name in names[:MOST_UNKNOWN]:
        path = f"{place}{name}"
        hint = sbatch.hint(path) or familiar.hint(path, PATHS, known) or f": expected one of {', '.join(known)}"
        yield f"{place}{name}: unknown key{hint}"
    if len(names) > MOST_UNKNOWN:
        yield f"{place.rstrip('.') or 'values'}: and {len(names) - MOST_UNKNOWN} more unknown keys"


def _written(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError):  # names that are not texts, or a value that contains itself
        return repr(value)


def parsed(key: Key, text: str) -> object:
    """Return the value of an option's text: a number, a flag, or a list or map from JSON.

    A malformed text is returned as it is, and the check refuses it later. Raises ValueError for well-formed text that is no value.
    """
    if key.kind == keys.WHOLE:
        return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else text
    if key.kind == keys.FLAG:
        try:
            return flag(text)
        except ValueError:
            return text
    if key.kind == keys.TEXT:
        return text
    try:
        return documents.of_json(text)
    except documents.UnfitError:
        raise
    except ValueError:
        return text


def _text(key: Key, value: object) -> str:
    if not isinstance(value, str):
        _refuse("expected a string; a number or true needs quotes around it")
    if value and key.pattern and not re.fullmatch(key.pattern, value):
        _refuse(f"expected {key.form}")
    return _plain(value)


def _item(key: Key, value: object) -> str:
    """Return an item of a list. Unlike a value of its own, an item must match the key's pattern even if it is empty."""
    if key.pattern and isinstance(value, str) and not re.fullmatch(key.pattern, value):
        _refuse(f"expected {key.form}, found {value[:60]!r}")
    return _text(key, value)


def _plain(value: str) -> str:
    """Return a text that fits into a file and an environment. Raises ValueError."""
    try:
        value.encode()
    except UnicodeEncodeError:
        _refuse("expected text that UTF-8 can say")
    if "\0" in value:
        _refuse("expected text without NUL")
    return value


def _whole(key: Key, value: object) -> int:
    if isinstance(value, float) and value.is_integer():  # JSON schemas, and so Helm, take 1.0 for an integer
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not key.low <= value <= key.high:
        _refuse(f"expected an integer from {key.low} to {key.high}")
    return value


def _flag(key: Key, value: object) -> bool:
    if not isinstance(value, bool):
        _refuse("expected true or false")
    return value


def _list(item: Callable[[Key, object], T], what: str) -> Callable[[Key, object], tuple[T, ...]]:
    def check(key: Key, value: object) -> tuple[T, ...]:
        if not isinstance(value, (list, tuple)):
            _refuse(f"expected a list of {what}")
        return tuple(item(key, each) for each in value)

    return check


def _pairs(key: Key, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        _refuse("expected a map of strings")
    for name, text in value.items():
        if not isinstance(name, str) or (key.pattern and not re.fullmatch(key.pattern, name)):
            _refuse(f"name {str(name)[:60]!r}: expected {key.form}")
        if not isinstance(text, str):
            _refuse(f"{name}: expected a string; a number or true needs quotes around it")
        _plain(name)
        _plain(text)
    return dict(value)


def _object(key: Key, value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        _refuse("expected an object")
    try:
        text = json.dumps(value, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError):  # YAML has dates and other types that JSON has not
        _refuse("expected only strings, numbers, true, false, lists and maps")
    if re.search(r"(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])", text) and not _encodable(value):
        _refuse("expected text that UTF-8 can say, without NUL")
    copied: dict[str, object] = json.loads(text)
    return copied


def _encodable(value: object) -> bool:
    try:
        text = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return b"\\u0000" not in text


def _refuse(expected: str) -> NoReturn:
    raise ValueError(expected)


CHECKS: Mapping[str, Callable[[Key, Any], object]] = {
    keys.TEXT: _text,
    keys.WHOLE: _whole,
    keys.FLAG: _flag,
    keys.TEXTS: _list(_item, "strings"),
    keys.WHOLES: _list(_whole, "integers"),
    keys.PAIRS: _pairs,
    keys.OBJECT: _object,
    keys.OBJECTS: _list(_object, "objects"),
}
