r"""Rules of RANKLAUNCH_EXPECT: the user's expectations about a job's output. Pure.

Rules are separated by semicolons. Each is a regular expression, and an expectation about the matching lines:

    loading done by 600s; iteration +\d+ every 300s; loss[: ]+(\S+) is number; grad_norm (\S+) < 50x median

A value beyond a limit starts a run; the next value within the limit ends the run. A run breaks the rule once its length is the
limit's `hold_s`.
"""

from __future__ import annotations

import bisect
import math
import operator
import re
from collections import deque
from typing import NamedTuple

BY, EVERY, NUMBER, LIMIT = "by", "every", "is number", "limit"
MOST_RULES = 20
LEAST_VALUES = 20  # values of a rank before its median counts
MOST_VALUES = 200  # values that the median is taken of: the rank's last that kept the limit
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_COMPARED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_AROUND, _BEHIND = " \t'\"", " \t'\",;%)]}"  # characters around, and after, a number in output
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")
_DURATION = r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*(s|min|m|h)?"
_VALUE = r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][+-]?[0-9]{1,3})?"
_TIMED = re.compile(rf"(?s)(.*\S)\s+(by|every)\s+{_DURATION}")
_NUMBERED = re.compile(r"(?s)(.*\S)\s+is\s+(?:a\s+)?number")
# The first group is greedy, so the operator is the last one with blanks around it: the expression may have operators too.
_LIMITED = re.compile(rf"(?s)(.*\S)\s+((<=?|>=?)\s+({_VALUE})(\s*x\s+median)?(?:\s+for\s+{_DURATION})?)")
_LITERAL = re.compile(r"[\w\s:=/-]+")  # an expression that matches itself alone

# For messages about an invalid rule: a pattern, the form that the user probably meant, and an example. The first match counts.
_FORMS = (
    (r"median|[<>]=?\s*[0-9.]+\s*x", "REGEX < Kx median", r"grad_norm (\S+) < 50x median"),
    (r"[<>].*\sfor\b|\sfor\s+[0-9]", "REGEX > NUMBER for N s, m or h", r"tflops (\S+) > 200 for 10m"),
    (r"\s[<>=!]=?\s|[<>]=?\s*[-+.0-9]\S*$|\s[<>]\S+$", "REGEX < NUMBER, <=, > or >=, with blanks around the sign", r"loss (\S+) < 20"),
    (r"\s(?:is|number)\b", "REGEX is number", r"loss (\S+) is number"),
    (r"\sby\b", "REGEX by N s, m or h", r"data loaded by 20m"),
    (r"\severy\b", "REGEX every N s, m or h", r"iteration +\d+ every 300s"),
    ("", "REGEX by N s, REGEX every N s, REGEX is number, or REGEX < NUMBER", r"iteration +\d+ every 300s"),
)


class Limit(NamedTuple):
    """Limit for values. number: the bound, or with of_median the factor for the median. hold_s: seconds during which every value must
    break the limit. text: as written by the user."""

    compare: str
    number: float
    of_median: bool = False
    hold_s: float = 0.0
    text: str = ""


class Expected(NamedTuple):
    """Rule of the user, about lines that match `pattern`.

    | kind | expectation |
    | --- | --- |
    | BY | a first match within `seconds` of the launch |
    | EVERY | after the first match, another one within `seconds` each time |
    | NUMBER | the value of each match is a finite number |
    | LIMIT | the value of each match keeps `limit` |

    The value is the first group, or without groups the last word of the match.
    """

    pattern: re.Pattern[str]
    kind: str
    seconds: float = 0.0
    limit: Limit | None = None

    @property
    def shown(self) -> str:
        """The rule for messages."""
        if self.limit:
            return f"{self.pattern.pattern} {self.limit.text}"
        return f"{self.pattern.pattern} {self.kind}{f' {self.seconds:g}s' if self.seconds else ''}"

    @property
    def is_of_values(self) -> bool:
        """True for a rule about values: the ranks run on after a breach, so stacks do not explain it."""
        return self.kind in (NUMBER, LIMIT)

    def value(self, line: str) -> str | None:
        """Return the value in a line, as text; None without a match."""
        match = self.pattern.search(line)
        if not match:
            return None
        return (match[1] if match.re.groups else re.split(r"[\s:=]+", match[0])[-1]) or ""

    def wrong(self, line: str) -> str | None:
        """Return the value in a line if it is no finite number; None for a number, and without a match."""
        text = self.value(line)
        value = number(text) if text is not None else 0.0
        return None if value is not None and math.isfinite(value) else text


def parse(text: str) -> tuple[Expected, ...]:
    """Return the rules in a text. Raises ValueError with the expected form of a wrong rule."""
    rules = tuple(_rule(rule.strip()) for rule in re.split(r"(?<!\\)[;\n]", text) if rule.strip())
    if len(rules) > MOST_RULES:
        msg = f"expected {MOST_RULES} rules at most"
        raise ValueError(msg)
    return rules


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
    raise _error(written, f"expected {form}, as in: {example}")


def _limited(match: re.Match[str], written: str) -> Expected:
    expression, text, compare, value, median, seconds, unit = match.groups()
    if _LITERAL.fullmatch(expression):
        raise _error(written, f"expected a group that matches the number, as in: {expression} (\\S+) {text}")
    hold_s = _seconds(seconds, unit, written) if seconds else 0.0
    limit = Limit(compare, float(value), bool(median), hold_s, text)
    if not math.isfinite(limit.number):
        raise _error(written, "expected a finite number, as in: loss (\\S+) < 20")
    if median and limit.number <= 0:
        raise _error(written, "expected more than 0 times the median, as in: grad_norm (\\S+) < 50x median")
    return Expected(_compiled(expression, written), LIMIT, limit=limit)


def _seconds(count: str, unit: str | None, written: str) -> float:
    seconds = float(count) * _UNITS[unit or "s"]
    if seconds <= 0:
        raise _error(written, "expected more than 0 seconds")
    return seconds


def _compiled(pattern: str, written: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise _error(written, f"'{pattern}' is no regular expression: {error}") from None


def _error(written: str, problem: str) -> ValueError:
    return ValueError(f"'{written}': {problem}")


# Values and limits


class Breach(NamedTuple):
    """Breach of a limit. value: as the rank wrote it. since: time of the first value of the run. bound: the multiple of the median that
    was broken; None for a fixed bound."""

    value: str
    since: float
    bound: float | None = None


def number(text: str) -> float | None:
    """Return the number in a text as programs write it (1,234 or 95.2% or '0.5'), perhaps inf or nan; None for other text."""
    bare = _bare(text)
    try:
        return float(bare.replace(",", "") if _THOUSANDS.fullmatch(bare) else bare)
    except ValueError:
        return None


def _bare(text: str) -> str:
    return text.strip(_AROUND).rstrip(_BEHIND)


class _Median:
    """Median of the last MOST_VALUES values."""

    def __init__(self) -> None:
        self._values: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, value: float) -> None:
        self._values.append(value)
        bisect.insort(self._sorted, value)
        if len(self._values) > MOST_VALUES:
            del self._sorted[bisect.bisect_left(self._sorted, self._values.popleft())]

    def times(self, factor: float) -> float | None:
        """Return the multiple of the median; None before LEAST_VALUES values, and for a median of 0 or less (no sensible multiples)."""
        if len(self._sorted) < LEAST_VALUES:
            return None
        half = len(self._sorted) // 2
        median = self._sorted[half] / 2 + self._sorted[~half] / 2
        bound = factor * median
        return bound if median > 0 and math.isfinite(bound) else None


class _OnRank:
    """Values of one rank. since: time of the first value of the run; None while the limit is kept."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._median = _Median()

    def feed(self, limit: Limit, value: float, text: str, at: float) -> Breach | None:
        """Take a value. Return a breach if the value breaks the limit and its run is long enough."""
        bound = self._median.times(limit.number) if limit.of_median else limit.number
        if math.isfinite(value) and (bound is None or _COMPARED[limit.compare](value, bound)):
            self.since = None
            if limit.of_median:
                self._median.add(value)
            return None
        self.since = at if self.since is None else self.since
        if at - self.since < limit.hold_s:
            return None
        return Breach(_bare(text), self.since, bound if limit.of_median else None)


class OnNode:
    """Values of all ranks of a node, for one limit."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._ranks: dict[int, _OnRank] = {}
        self._breaches: dict[int, Breach] = {}
        self._recovered: set[int] = set()  # ranks whose breach is over and not yet reported

    def feed(self, rank: int, text: str, at: float) -> None:
        """Judge a value. Text that is no number neither keeps nor breaks a limit."""
        value = number(text)
        if value is None:
            return
        on_rank = self._ranks.setdefault(rank, _OnRank())
        breach = on_rank.feed(self._limit, value, text, at)
        if breach:
            self._breaches.setdefault(rank, breach)
            self._recovered.discard(rank)
        elif on_rank.since is None and rank in self._breaches:
            self._recovered.add(rank)

    def report(self) -> tuple[int, Breach] | None:
        """Return the earliest breach since the last report, with its rank; None for none. A breach that is over is reported once more, then
        forgotten."""
        first = min(((breach.since, rank) for rank, breach in self._breaches.items()), default=None)
        earliest = (first[1], self._breaches[first[1]]) if first else None
        for rank in self._recovered:
            del self._breaches[rank]
        self._recovered.clear()
        return earliest
