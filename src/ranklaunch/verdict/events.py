"""Events of a job, as in each attempt's events.jsonl: their names, and the fields of each with their types.

events.json has the table. Readers of events files rely on this table, and the documentation shows it. Fields are only
ever added.
"""

from __future__ import annotations

import json
from pkgutil import get_data
from typing import Any, NamedTuple

_TYPES = {kind.__name__: kind for kind in (str, int, float, bool, list)}


class Field(NamedTuple):
    """may_be_null: of a value that is not there, or that nobody knows."""

    name: str
    type: type
    meaning: str = ""
    may_be_null: bool = False


class Event(NamedTuple):
    name: str
    when: str
    fields: tuple[Field, ...] = ()


def _field(name: str, written: str | list[str]) -> Field:
    """written: the type, or the type and the meaning."""
    kind, meaning = (written, "") if isinstance(written, str) else written
    return Field(name, _TYPES[kind.removesuffix(" or null")], meaning, kind.endswith(" or null"))


def _event(name: str, written: dict[str, Any]) -> Event:
    return Event(name, written["when"], tuple(_field(*each) for each in written.get("fields", {}).items()))


_each, *_events = (_event(*each) for each in json.loads(get_data("ranklaunch.verdict", "events.json") or b"").items())
COMMON = _each.fields  # of each event
EVENTS = tuple(_events)
