"""The table of events: what the sources record is in it, and nothing else is."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import helpers
import pytest

from ranklaunch.verdict.events import EVENTS
from testbench.judges.events import BY_NAME, misfits

READ = {
    "event": "read", "time": "2026-01-01T00:00:00.000000+00:00", "monotonic": 1, "platform": "local", "method": "spawn", "why": "asked",
    "attempt": 1, "container_s": None,
}  # fmt: skip


def recorded() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Of every call of a record's `event`: the event's name, and the names of its fields."""
    texts = (path.read_text(encoding="utf-8") for path in sorted((helpers.ROOT / "src" / "ranklaunch").rglob("*.py")))
    for text in texts:
        for node in ast.walk(ast.parse(text if ".event(" in text else "")):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "event":
                yield ast.literal_eval(node.args[0]), tuple(keyword.arg or "**" for keyword in node.keywords)


def test_what_is_recorded_is_in_the_table() -> None:
    calls = list(recorded())
    assert {name for name, _ in calls} == BY_NAME.keys()
    assert [(name, fields) for name, fields in calls if fields != tuple(field.name for field in BY_NAME[name].fields)] == []


def test_names_are_said_once() -> None:
    assert len(BY_NAME) == len(EVENTS)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, []),
        ({"monotonic": 1.5}, []),
        ({"event": "reed"}, ["unknown event 'reed'"]),
        ({"attempt": "1"}, ["read: attempt='1': expected int"]),
        ({"attempt": True}, ["read: attempt=True: expected int"]),
        ({"why": None}, ["read: why=None: expected str"]),
        ({"more": 1}, ["read: unknown field more"]),
    ],
)
def test_an_event_fits_or_is_told_apart(change: dict[str, object], found: list[str]) -> None:
    assert list(misfits({**READ, **change})) == found


def test_a_field_that_is_not_there() -> None:
    assert list(misfits({name: value for name, value in READ.items() if name != "why"})) == ["read: no field why"]
