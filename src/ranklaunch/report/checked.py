"""Checked values of JSON that may be damaged: a value of a wrong type counts as missing. Pure."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any, TypeVar

from ranklaunch import showing
from ranklaunch.fields import NOTHING, names
from ranklaunch.redact.lines import shown
from ranklaunch.report.model import Outcome

MOST_TEXT = 2000  # characters of a text
MOST_LINES = 400
MOST_CLOCK_S = 4e9  # accepted error of a clock: a clock that was never set is at 1970
_PLAIN = re.compile(r"[A-Za-z0-9 ._:,()-]{0,32}")
_LAST = 32503680000.0  # the year 3000
_T = TypeVar("_T")


def text(value: object, most: int = MOST_TEXT) -> str:
    """Return a text that is safe to print, with secrets hidden, "" for no text. A text with a smaller limit than MOST_TEXT becomes one
    line."""
    if not isinstance(value, str):
        return ""
    if _PLAIN.fullmatch(value):
        return value
    return _shown(value[:most] if most == MOST_TEXT else value[:most].replace("\n", " "))


@functools.lru_cache(maxsize=4096)
def _shown(value: str) -> str:
    return showing.fit_to_show(value.encode(errors="replace").decode(), own=True)


_OUTCOMES: Mapping[object, Outcome] = {"succeeded": "succeeded", "failed": "failed", "stopped": "stopped"}


def outcome(value: object) -> Outcome | None:
    return _OUTCOMES.get(value) if isinstance(value, str) else None


def lines(values: object) -> tuple[str, ...]:
    """Return the last lines of a process's output, safe to print."""
    texts = [value[:MOST_TEXT].encode(errors="replace").decode() for value in each_of(values) if isinstance(value, str)][-MOST_LINES:]
    return tuple(map(showing.printable, shown(texts)))


def line(value: object) -> str:
    """Return one line of a process's output, safe to print."""
    return next(iter(lines([value])), "")


def texts(value: object, most: int = 64) -> tuple[str, ...]:
    return tuple(text(each) for each in each_of(value)[:most] if isinstance(each, str))


def number(value: object) -> float | None:
    """Return a finite number, None for any other value."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        finite = float(value)
    except OverflowError:
        return None
    return finite if math.isfinite(finite) else None


def seconds(value: object) -> float | None:
    """Return a duration of at most some months, None for any other value."""
    duration = number(value)
    return duration if duration is not None and 0 <= duration < 1e7 else None


def _clock(value: object) -> float | None:
    at = number(value)
    return at if at is not None and abs(at) < MOST_CLOCK_S else None


def whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53 else None


def index(value: object) -> int | None:
    """Return a number of a node, a rank or an attempt, None for any other value."""
    whole_number = whole(value)
    return whole_number if whole_number is not None and 0 <= whole_number < 1 << 20 else None


def is_true(value: object) -> bool:
    return value is True


def each_of(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else NOTHING


def time(value: object) -> float | None:
    """Return the seconds since 1970 of a time in ISO 8601, None for any other value."""
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        date = datetime.fromisoformat(value.replace("Z", "+00:00"))
        seconds = (date if date.tzinfo else date.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < _LAST else None


def iso(at: float) -> str:
    """Return a time in ISO 8601, UTC, with milliseconds."""
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")


# Fields of verdict.json, plan.json and events.jsonl by name: a name has the same kind of values in all of these files.
_MOST = {"name": 255, "host": 255, "kind": 40, "what": 300, "late": 600, "signal": 40, "time": 40, "file": 600, "rule": 80, "says": 300,
         "platform": 60, "method": 60, "accelerator": 20, "saved": 20, "ranklaunch": 40, "state": 8, "call": 300}  # fmt: skip
_READERS: Mapping[str, Callable[[object], Any]] = {
    "node": index, "rank": index, "index": index, "slots": index, "first_rank": index, "round": index, "pid": whole, "exit_code": whole,
    "max_rss_kb": whole, "number": whole, "attempt": whole, "world_size": whole, "container_s": seconds, "seconds": seconds,
    "ago_s": seconds, "clock_s": _clock, "lost_s": number, "since": time, "over": is_true, "out_of_memory": is_true, "outcome": outcome,
    "last_lines": lines, "line": line, "signals": texts, "notes": texts,
}  # fmt: skip


def field(name: str, value: Mapping[str, Any]) -> Any:
    """Return a field by its name. A value of a wrong kind counts as missing: "" for a text, () for a list, False for a flag, else None."""
    return _READERS[name](value.get(name)) if name in _READERS else text(value.get(name), _MOST.get(name, MOST_TEXT))


def filled(kind: Callable[..., _T], value: Mapping[str, Any], *without: str, **more: Any) -> _T:
    """Return a dataclass filled from a mapping. without: fields that keep their default. more: values of further fields."""
    return kind(**{name: field(name, value) for name in names(kind) if name not in (*without, *more)}, **more)  # type: ignore[arg-type]
