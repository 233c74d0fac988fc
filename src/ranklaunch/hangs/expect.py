"""RANKLAUNCH_EXPECT: what users know of their job's output that no detector can.

Rules with semicolons between them, each a regular expression and what is expected of the lines that match it:

    loading done by 600s; iteration +\\d+ every 300s; loss[: ]+(\\S+) is number; grad_norm (\\S+) < 50x median
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from ranklaunch.hangs.limits import Limit, number

BY, EVERY, NUMBER, LIMIT = "by", "every", "is number", "limit"
MOST_RULES = 20
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*(s|min|m|h)?"
_VALUE = r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][+-]?[0-9]{1,3})?"
_TIMED = re.compile(rf"(?s)(.*\S)\s+(by|every)\s+{_DURATION}")
_NUMBERED = re.compile(r"(?s)(.*\S)\s+is\s+(?:a\s+)?number")
# The first group takes all it can, so the operator is the last one with blanks around it, whatever the expression has.
_LIMITED = re.compile(rf"(?s)(.*\S)\s+((<=?|>=?)\s+({_VALUE})(\s*x\s+median)?(?:\s+for\s+{_DURATION})?)")
_LITERAL = re.compile(r"[\w\s:=/-]+")  # an expression that matches itself alone

# The form that a rule without one comes nearest to, and an example of it: the first whose signs the rule has.
_FORMS = (
    (r"median|[<>]=?\s*[0-9.]+\s*x", "REGEX < Kx median", r"grad_norm (\S+) < 50x median"),
    (r"[<>].*\sfor\b|\sfor\s+[0-9]", "REGEX > NUMBER for N s, m or h", r"tflops (\S+) > 200 for 10m"),
    (r"\s[<>=!]=?\s|[<>]=?\s*[-+.0-9]\S*$|\s[<>]\S+$", "REGEX < NUMBER, <=, > or >=, with blanks around the sign", r"loss (\S+) < 20"),
    (r"\s(?:is|number)\b", "REGEX is number", r"loss (\S+) is number"),
    (r"\sby\b", "REGEX by N s, m or h", r"data loaded by 20m"),
    (r"\severy\b", "REGEX every N s, m or h", r"iteration +\d+ every 300s"),
    ("", "REGEX by N s, REGEX every N s, REGEX is number, or REGEX < NUMBER", r"iteration +\d+ every 300s"),
)


class Expected(NamedTuple):
    """kind: BY: a first match within so many seconds of the launch. EVERY: from the first match on, another within so many seconds each
    time. NUMBER: what its first group matches, or else the whole of it, is a finite number each time. LIMIT: the same is a number that
    keeps the limit."""

    pattern: re.Pattern[str]
    kind: str
    seconds: float = 0.0
    limit: Limit | None = None

    @property
    def shown(self) -> str:
        if self.limit:
            return f"{self.pattern.pattern} {self.limit.text}"
        return f"{self.pattern.pattern} {self.kind}{f' {self.seconds:g}s' if self.seconds else ''}"

    @property
    def is_of_values(self) -> bool:
        """True for a rule that a value breaks: the job goes on, so neither stacks nor silence explain the breach."""
        return self.kind in (NUMBER, LIMIT)

    def value(self, line: str) -> str | None:
        """Return the text of the first group, or else the last word of the match; None without a match."""
        found = self.pattern.search(line)
        if not found:
            return None
        words = re.split(r"[\s:=]+", found[0])
        return (found[1] if found.re.groups else words[-1]) or ""

    def wrong(self, line: str) -> str | None:
        """What stands where a number should; None: no match, or a number."""
        text = self.value(line)
        if text is None:
            return None
        value = number(text)
        return None if value is not None and math.isfinite(value) else text


def parse(text: str) -> tuple[Expected, ...]:
    """Raises ValueError with what was expected."""
    found = tuple(_rule(rule.strip()) for rule in re.split(r"(?<!\\)[;\n]", text) if rule.strip())
    if len(found) > MOST_RULES:
        msg = f"expected {MOST_RULES} rules at most"
        raise ValueError(msg)
    return found


def _rule(written: str) -> Expected:
    text = written.replace("\\;", ";")
    timed, numbered, limited = _TIMED.fullmatch(text), _NUMBERED.fullmatch(text), _LIMITED.fullmatch(text)
    if timed:
        return Expected(_compiled(timed[1], written), timed[2], _seconds(timed[3], timed[4], written))
    if numbered:
        return Expected(_compiled(numbered[1], written), NUMBER)
    if limited:
        return _limited(limited, written)
    form, example = next((form, example) for signs, form, example in _FORMS if re.search(signs, text))
    msg = f"'{written}': expected {form}, as in: {example}"
    raise ValueError(msg)


def _limited(found: re.Match[str], written: str) -> Expected:
    expression, text, compare, value, median, seconds, unit = found.groups()
    if _LITERAL.fullmatch(expression):
        msg = f"'{written}': expected a group that matches the number, as in: {expression} (\\S+) {text}"
        raise ValueError(msg)
    hold_s = _seconds(seconds, unit, written) if seconds else 0.0
    limit = Limit(compare, float(value), bool(median), hold_s, text)
    if not math.isfinite(limit.number):
        msg = f"'{written}': expected a finite number, as in: loss (\\S+) < 20"
        raise ValueError(msg)
    if median and limit.number <= 0:
        msg = f"'{written}': expected more than 0 times the median, as in: grad_norm (\\S+) < 50x median"
        raise ValueError(msg)
    return Expected(_compiled(expression, written), LIMIT, limit=limit)


def _seconds(count: str, unit: str | None, written: str) -> float:
    seconds = float(count) * _UNITS[unit or "s"]
    if seconds <= 0:
        msg = f"'{written}': expected more than 0 seconds"
        raise ValueError(msg)
    return seconds


def _compiled(pattern: str, written: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        msg = f"'{written}': '{pattern}' is no regular expression: {error}"
        raise ValueError(msg) from None
