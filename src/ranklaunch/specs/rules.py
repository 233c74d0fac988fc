"""Interpreter of rules.json: values without a place in a kind of specification, contradictions between values, and forms of texts.

A row is for some kinds of specifications (`kinds`), or for all. In lists of words a group of `WORDS` stands for its members, and `!`
in front means all except these.

- `no_place`: beginnings of paths of values. The first matching row for a value gives the reason.
- `familiar`: advice, and the triggering names in other charts, engines and launchers.
- `meant`: for a key, names of its words elsewhere.
- all other lists: a row with `if` refuses a specification, or in `warnings` warns of the specification, if all conditions hold: true
  for a set value, false for an unset one, or words with the value among them. A row with `form` refuses a text, an item of a list or
  a value of a map without a match of `matches`, with `if` only under its conditions; with `names` the row is about the names of a
  map. {PATH} in a text stands for the value of the path, {PATH!r} for its repr.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from pkgutil import get_data
from typing import Any

from ranklaunch.env.settings import BY_MPI
from ranklaunch.specs import keys
from ranklaunch.specs.model import BY_SCRIPT, OF_CLOUDS, OF_KUBERNETES, JobSpec

WORDS = {"kubernetes": OF_KUBERNETES, "clouds": OF_CLOUDS, "scripts": BY_SCRIPT, "by_mpi": BY_MPI}
SHOWN = 60  # characters of a shown list item

Row = Mapping[str, Any]


@functools.cache
def rules() -> Mapping[str, Any]:
    """Return all of rules.json."""
    result: Mapping[str, Any] = json.loads(get_data("ranklaunch.specs", "rules.json") or b"")
    return result


def no_place(spec: JobSpec) -> Iterator[str]:
    """Yield a problem for each given value that the specification's kind has no place for."""
    for path, value, key in keys.every_value(spec):
        why = "" if value == key.default else why_no_place(spec.engine, path)
        if why:
            yield f"{path}: {why}"


def why_no_place(kind: str, path: str) -> str:
    """Return the reason why a kind has no place for a value, "" if it has one."""
    rows = (row for row in rules()["no_place"] if _is_one(kind, row["kinds"]) and path.startswith(tuple(row["values"].split())))
    row = next(rows, None)
    return str(row.get("why", f"{kind} has no place for it; leave it out")) if row else ""


def problems(spec: JobSpec, name: str) -> Iterator[str]:
    """Yield the messages of one list of rules."""
    values = {path: value for path, value, _ in keys.every_value(spec)}
    for row in rules()[name]:
        if not _is_one(spec.engine, row.get("kinds", "!")):
            continue
        if not all(_holds(_value(path, values), expected) for path, expected in row.get("if", {}).items()):
            continue
        if "form" not in row:
            yield _text(row, values)
        for path in row.get("form", "").split():
            yield from (f"{place}{_text(row, values)}" for place in _unfit(path, values[path], row["matches"], "names" in row))


def _is_one(word: str, words: str) -> bool:
    """Return True if a word is among the words of a row, with groups of WORDS expanded and a leading ! as not."""
    members = [each for word in words.lstrip("!").split() for each in WORDS.get(word, (word,))]
    return (word in members) != words.startswith("!")


def _holds(value: object, expected: bool | str) -> bool:
    return bool(value) == expected if isinstance(expected, bool) else _is_one(str(value), expected)


def _value(path: str, values: Mapping[str, object]) -> object:
    """Return a value of the specification, or of one of its maps."""
    if path in values:
        return values[path]
    place, _, name = path.rpartition(".")
    members = values[place]
    return members.get(name) if isinstance(members, Mapping) else None


def _text(row: Row, values: Mapping[str, object]) -> str:
    def replaced(match: re.Match[str]) -> str:
        value = _value(match[1], values)
        return repr(value) if match[2] else str(value)

    return re.sub(r"\{([\w.]+)(!r)?\}", replaced, row["text"])


def _unfit(path: str, value: object, pattern: str, of_names: bool = False) -> Iterator[str]:
    """Yield the beginning of the message about each text that the pattern does not match."""
    if isinstance(value, Mapping) and of_names:
        places = {f"{path}.{name}: ": name for name in value}
    elif isinstance(value, Mapping):
        places = {f"{path}.{name}={text!r}: ": text for name, text in value.items()}
    elif isinstance(value, tuple):
        places = {f"{path}: {text[:SHOWN]!r}: ": text for text in value}
    else:
        places = {f"{path}={value!r}: ": value}
    return (place for place, text in places.items() if not re.fullmatch(pattern, text))
