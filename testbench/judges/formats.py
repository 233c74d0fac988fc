"""Validation of ranklaunch's JSON files by docs/schemas/."""

from __future__ import annotations

import functools
import json
import os
import re
from pathlib import Path
from typing import Any

from testbench.places import ROOT

FOLDER = ROOT / "docs" / "schemas"
OF_ATTEMPT = {
    "plan.json": "plan",
    "verdict.json": "verdict",
    "ends.json": "ends",
    "round.json": "round",
    "hang.json": "hang",
    "slow.json": "slow",
}
RECORD = re.compile(r"(rank|launcher|exception|exit)(-[0-9]+){3,4}\.json")
MOST_RECORDS = 64  # records of a node that are checked


def check(name: str, document: Any) -> None:
    """Raise AssertionError with the best matching error of the schema."""
    from jsonschema.exceptions import best_match

    worst = best_match(_validator(name).iter_errors(document))
    assert worst is None, f"{name}{worst.json_path[1:]}: {worst.message:.500}"


def check_events(lines: list[Any]) -> None:
    for line in lines:
        assert isinstance(line, dict), line
        kind = _event(str(line.get("event")))
        assert kind, f"no schema of event {line.get('event')!r}"
        check(f"events#{kind}", line)


def check_attempt(folder: Path) -> None:
    """Check all files of ranklaunch in the folder of an attempt or a round."""
    for name in (*OF_ATTEMPT, "events.jsonl"):
        path = folder / name
        if path.exists():
            _check_file(path, os.stat(path).st_mtime_ns, os.stat(path).st_size)
    for node in folder.glob("records/node_*"):
        for path in [path for path in sorted(node.glob("*.json")) if RECORD.fullmatch(path.name)][:MOST_RECORDS]:
            check_record(path)


def check_record(path: Path) -> None:
    """Check a record that a rank or a launcher has written."""
    check("record", json.loads(path.read_text(encoding="utf-8")))


@functools.lru_cache(maxsize=4096)
def _check_file(path: Path, changed: int, size: int) -> None:
    text = path.read_text(encoding="utf-8")
    if path.name in OF_ATTEMPT:
        check(OF_ATTEMPT[path.name], json.loads(text))
    else:
        check_events([json.loads(line) for line in text.splitlines()])


def schema(name: str) -> dict[str, Any]:
    return dict(_schema(name))


@functools.cache
def _schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8"))
    return found


@functools.cache
def _event(event: str) -> str:
    kinds = _schema("events")["$defs"]
    return next((name for name, kind in kinds.items() if kind["properties"]["event"]["const"] == event), "")


@functools.cache
def _validator(name: str) -> Any:
    """Return a validator. name: schema, or SCHEMA#PART for one of its $defs: errors of one event are clearer than those of oneOf."""
    from jsonschema import Draft202012Validator

    file, _, part = name.partition("#")
    whole = _schema(file)
    Draft202012Validator.check_schema(whole)
    return Draft202012Validator({**whole["$defs"][part], "$defs": whole["$defs"]} if part else whole)
