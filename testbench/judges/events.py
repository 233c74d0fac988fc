"""Check of lines of events.jsonl against the table of events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ranklaunch.verdict.events import COMMON, EVENTS, Event, Field

BY_NAME: Mapping[str, Event] = {event.name: event for event in EVENTS}


def misfits(line: Mapping[str, Any]) -> Iterator[str]:
    """Yield the differences between an event's line and the table."""
    event = BY_NAME.get(line.get("event", ""))
    if event is None:
        yield f"unknown event {line.get('event')!r}"
        return
    fields = {field.name: field for field in (*COMMON, *event.fields)}
    yield from (f"{event.name}: no field {name}" for name in fields.keys() - line.keys())
    yield from (f"{event.name}: unknown field {name}" for name in line.keys() - fields.keys())
    for name in fields.keys() & line.keys():
        if not _fits(line[name], fields[name]):
            yield f"{event.name}: {name}={line[name]!r}: expected {fields[name].type.__name__}"


def _fits(value: object, field: Field) -> bool:
    if value is None:
        return field.may_be_null
    if isinstance(value, bool):
        return field.type is bool
    return isinstance(value, (int, float) if field.type is float else field.type)
