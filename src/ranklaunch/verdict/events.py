"""Events of a job, as in each attempt's events.jsonl: names, fields, and types.

The table is in events.json; the documentation shows it. Readers of events files rely on it, so fields are only ever added.
"""

from __future__ import annotations

import json
from pkgutil import get_data
from typing import Any, NamedTuple

_TYPES = {kind.__name__: kind for kind in (str, int, float, bool, list)}


class Field(NamedTuple):
    """Field of an event. may_be_null: the value may be missing or unknown."""

    name: str
    type: type
    meaning: str = ""
    may_be_null: bool = False


class Event(NamedTuple):
    name: str
    when: str
    fields: tuple[Field, ...] = ()


def _field(name: str, entry: str | list[str]) -> Field:
    """Return a field. entry: the type, or the type and the meaning."""
    kind, meaning = (entry, "") if isinstance(entry, str) else entry
    return Field(name, _TYPES[kind.removesuffix(" or null")], meaning, kind.endswith(" or null"))


def _event(name: str, entry: dict[str, Any]) -> Event:
    return Event(name, entry["when"], tuple(_field(*each) for each in entry.get("fields", {}).items()))


_common, *_events = (_event(*each) for each in json.loads(get_data("ranklaunch.verdict", "events.json") or b"").items())
COMMON = _common.fields  # of each event
EVENTS = tuple(_events)
