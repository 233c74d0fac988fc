"""RANKLAUNCH_EXPECT: what users know of their job's output that no detector can.

Rules with semicolons between them, each a regular expression and what is expected of the lines that match it:

    loading done by 600s; iteration +\\d+ every 300s; loss[: ]+(\\S+) is number
"""

from __future__ import annotations

import math
import re

from ranklaunch.typed import NamedTuple

BY, EVERY, NUMBER = "by", "every", "is number"
MOST_RULES = 20
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_TIMED = re.compile(r"(?s)(.*\S)\s+(by|every)\s+([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*(s|min|m|h)?")
_NUMBERED = re.compile(r"(?s)(.*\S)\s+is\s+(?:a\s+)?number")


class Expected(NamedTuple):
    """kind: BY: a first match within so many seconds of the launch. EVERY: from the first match on, another within so many seconds each
    time. NUMBER: what its first group matches, or else the whole of it, is a finite number each time."""

    pattern: re.Pattern[str]
    kind: str
    seconds: float = 0.0

    @property
    def shown(self) -> str:
        return f"{self.pattern.pattern} {self.kind}{f' {self.seconds:g}s' if self.seconds else ''}"

    def wrong(self, line: str) -> str | None:
        """What stands where a number should; None: no match, or a number."""
        found = self.pattern.search(line)
        if not found:
            return None
        text = found[1] if found.re.groups else found[0]
        return None if _is_finite(text or "") else text or ""


def parse(text: str) -> tuple[Expected, ...]:
    """Raises ValueError with what was expected."""
    rules = [rule.strip().replace("\\;", ";") for rule in re.split(r"(?<!\\)[;\n]", text)]
    found = tuple(_rule(rule) for rule in rules if rule)
    if len(found) > MOST_RULES:
        msg = f"expected {MOST_RULES} rules at most"
        raise ValueError(msg)
    return found


def _rule(text: str) -> Expected:
    timed, numbered = _TIMED.fullmatch(text), _NUMBERED.fullmatch(text)
    if timed:
        seconds = float(timed[3]) * _UNITS[timed[4] or "s"]
        if seconds <= 0:
            msg = f"{text!r}: expected more than 0 seconds"
            raise ValueError(msg)
        return Expected(_compiled(timed[1]), timed[2], seconds)
    if numbered:
        return Expected(_compiled(numbered[1]), NUMBER)
    msg = f"{text!r}: expected a regular expression and by N s, every N s or is number, as in: iteration +\\d+ every 300s"
    raise ValueError(msg)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        msg = f"{pattern!r} is no regular expression: {error}"
        raise ValueError(msg) from None


def _is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text.strip().rstrip(",;")))
    except ValueError:
        return False
