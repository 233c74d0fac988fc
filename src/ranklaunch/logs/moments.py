"""Parser of moments: a time of day, a date-time or an age. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timezone

EXPECTED = "expected a time of day (14:30), a date-time (2026-11-23T14:30) or an age (30s, 10m, 2h, 3d)"
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_AGE = re.compile(r"([0-9]{1,9})([smhd])")
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_DATE, _ZONE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}", r"(?:Z|[+-][0-9]{2}:[0-9]{2})"
_ISO = re.compile(rf"{_DATE}(?:[T ][0-9:]{{5,8}}(?:\.[0-9]{{3}}(?:[0-9]{{3}})?)?{_ZONE}?)?")


def is_clock(text: str) -> bool:
    return bool(_CLOCK.fullmatch(text))


def moment(text: str, now: float, first: float = 0.0, last: float = 0.0) -> float:
    """Return a moment in seconds since 1970; a text without a zone is in UTC.

    first, last: begin and end of a job. For a time of day, return the moment nearest to the job, the
    newest of several. Raises ValueError.
    """
    if age := _AGE.fullmatch(text):
        return now - int(age[1]) * UNITS_S[age[2]]
    if clock := _CLOCK.fullmatch(text):
        hours, minutes, seconds = (int(each or 0) for each in clock.groups())
        return _nearest(3600 * hours + 60 * minutes + seconds, first, last)
    if not _ISO.fullmatch(text):
        raise ValueError(EXPECTED)
    try:
        date = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(EXPECTED) from None
    return (date if date.tzinfo else date.replace(tzinfo=timezone.utc)).timestamp()


def _nearest(of_day: int, first: float, last: float) -> float:
    day = UNITS_S["d"]
    days = range(int(first // day) - 1, int(last // day) + 2)
    return max(
        (day * each + of_day for each in days),
        key=lambda at: (-max(first - at, at - last, 0), at),
    )  # fmt: skip
