"""Values out of what was read: whoever wrote it, what is not of its kind counts as not there. Pure."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from ranklaunch import showing
from ranklaunch.fields import NOTHING
from ranklaunch.redact import output_text
from ranklaunch.redact.lines import shown
from ranklaunch.report.model import Outcome

MOST_TEXT = 2000  # characters of a text
MOST_LINES = 400
_PLAIN = re.compile(r"[A-Za-z0-9 ._:,()-]{0,32}")
_LAST = 32503680000.0  # the year 3000


def text(value: object, most: int = MOST_TEXT) -> str:
    """Fit to be shown, as sentences of ours are; what is to be shorter than a sentence may be is one line."""
    if not isinstance(value, str):
        return ""
    if _PLAIN.fullmatch(value):
        return value
    return _shown(value[:most] if most == MOST_TEXT else value[:most].replace("\n", " "))


@functools.lru_cache(maxsize=4096)
def _shown(value: str) -> str:
    return output_text.text(value.encode(errors="replace").decode(), own=True)


_OUTCOMES: Mapping[object, Outcome] = {"succeeded": "succeeded", "failed": "failed", "stopped": "stopped"}


def outcome(value: object) -> Outcome | None:
    return _OUTCOMES.get(value) if isinstance(value, str) else None


def lines(values: Iterable[object], most: int = MOST_LINES) -> tuple[str, ...]:
    """Of what a process wrote, the last ones."""
    found = [value[:MOST_TEXT].encode(errors="replace").decode() for value in values if isinstance(value, str)][-most:]
    return tuple(map(showing.printable, shown(found)))


def texts(value: object, most: int = 64) -> tuple[str, ...]:
    return tuple(text(each) for each in each_of(value)[:most] if isinstance(each, str))


def number(value: object) -> float | None:
    """A finite one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53 else None


def index(value: object, most: int = 1 << 20) -> int | None:
    """Of a node, a rank, an attempt."""
    found = whole(value)
    return found if found is not None and 0 <= found < most else None


def each_of(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else NOTHING


def time(value: object) -> float | None:
    """Seconds since 1970, of ISO 8601."""
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        found = datetime.fromisoformat(value.replace("Z", "+00:00"))
        seconds = (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < _LAST else None


def iso(at: float) -> str:
    """UTC, with milliseconds."""
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")
