"""Steps of one rank, from the lines that the rank prints. Pure: bytes and times go in.

A line of a known shape (`ranklaunch.hangs.shapes`) gives its step at once. The lines of any other program are found by their form: a
line whose digits are masked comes again and again, and one number in it grows each time by the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ranklaunch.hangs import shapes
from ranklaunch.hangs.shapes import Place

MOST_LINE = 8000  # characters of one that are looked at: lines of verl have thousands
MOST_LINES = 400  # of one feed, the last
MOST_FORMS = 64
LONGEST_FORM = 2000  # characters of a line by which its form is known
SURE = 3  # times that a form must come, and its number grow by the same
# Lines about something else, with numbers that may grow by the same all the same: ports, times that something was tried.
_ELSE = re.compile(
    r"(?i)\bretr(?:y|ies|ying)\b|\battempts?\b|connect|\btime[ds]?[ -]?outs?\b|\bwaiting\b|\bheartbeat|\bport\b|\bsocket|"
    r"rendezvous|\btopology|(?-i:\b(?:WARN|WARNING|ERROR|FATAL)\b)"
)
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+(?::\d+)?")
# Loggers' dates and clocks, and times that have passed: they grow by the same where steps take as long.
_CLOCK = re.compile(r"(?:\d{4}[-/]\d\d[-/]\d\d[T ,]{0,2})?\b\d{1,3}(?::\d\d){1,3}(?:[.,]\d+)?|\d{4}[-/]\d\d[-/]\d\d")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_BAR = re.compile(r"\d/\d+ (?:\[[\d:]+<|\[[=>.]{3,}\])|━━━")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


class Step(NamedTuple):
    """A step in a line of output. shape: the name of the line's shape, or its form. at: when the line came, in the caller's seconds.
    seconds: the time of one step as the line prints it. samples, tokens: per second, as the line prints them."""

    place: Place
    shape: str
    at: float
    seconds: float | None = None
    samples: float | None = None
    tokens: float | None = None

    @property
    def weight(self) -> int:
        """The smaller, the more the line says."""
        return shapes.weight(self.shape)

    @property
    def is_last(self) -> bool:
        return bool(self.place.of) and self.place.step >= self.place.of


class Steps:
    """Reader of one rank's lines. first, last: the oldest and the newest step, of lines that say most. count: feeds that had a new step.
    largest_gap: seconds between two such feeds, without the first gap, in which the program compiles; 0.0 until there are two."""

    def __init__(self) -> None:
        self.first: Step | None = None
        self.last: Step | None = None
        self.count = 0
        self.largest_gap = 0.0
        self._measured: Step | None = None  # the average counts from this one
        self._begun = ""
        self._epoch = 0  # by the last line that is only about it
        self._forms: dict[str, _Form] = {}

    @property
    def seconds(self) -> float | None:
        """Seconds of one step on average, between the lines since the second feed; None while nothing can be measured."""
        first, last = self._measured, self.last
        if not first or not last or first.place.epoch != last.place.epoch or last.place.step <= first.place.step:
            return None
        return (last.at - first.at) / (last.place.step - first.place.step)

    def feed(self, data: bytes, now: float) -> bool:
        """Read what the rank has printed since the last feed, or the end of it. Return True if a new step is among it."""
        newest, source = None, ""
        for line in self._lines(data):
            step = self._known(line, now) or self._by_form(line, now)
            if step and (not newest or step.weight <= newest.weight):  # of two kinds of lines, those that say more stay
                newest, source = step, line
        return newest is not None and self._take(newest, source)

    def _take(self, step: Step, line: str) -> bool:
        """Keep a step with the figures in its line. Return False if it is not new, or if other lines say more."""
        last = self.last
        if last and (step.place <= last.place if step.shape == last.shape else step.weight > last.weight):
            return False
        reading = shapes.read(line, self._epoch) or shapes.figures(line)
        step = step._replace(seconds=reading.seconds, samples=reading.samples, tokens=reading.tokens)
        if not last or step.shape != last.shape:
            self._measured, self.first = None, step
        else:
            if self.count > 1:
                self.largest_gap = max(self.largest_gap, step.at - last.at)
            if not self._measured or self._measured.place.epoch != step.place.epoch:
                self._measured = step
        self.count += 1
        self.last = step
        return True

    def _lines(self, data: bytes) -> Iterator[str]:
        """Whole ones, without colours. A carriage return ends a line too: a bar draws itself anew."""
        text = self._begun + data.decode(errors="replace")
        *lines, begun = re.split(r"[\r\n]", text)
        self._begun = begun[:MOST_LINE]
        return (shapes.plain(line[:MOST_LINE]) for line in lines[-MOST_LINES:] if line)

    def _known(self, line: str, now: float) -> Step | None:
        epoch = shapes.heading(line)
        if epoch is not None:
            self._epoch = epoch
            return None
        shaped = shapes.find(line, self._epoch)
        return Step(shaped.place, shaped.shape.name, now) if shaped and shaped.place else None

    def _by_form(self, line: str, now: float) -> Step | None:
        if _BAR.search(line) or _ELSE.search(line):  # a bar is of something known, or of no step
            return None
        masked = _CLOCK.sub("time", _ADDRESS.sub("address", line[:LONGEST_FORM]))
        masked = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), masked) if "," in masked else masked
        numbers = _NUMBER.findall(masked)
        if not numbers:
            return None
        key = _NUMBER.sub("0", masked)
        form = self._forms.pop(key, None) or _Form()
        self._forms[key] = form  # the newest stand last
        if len(self._forms) > MOST_FORMS:
            del self._forms[next(iter(self._forms))]
        step = form.grown(numbers)
        return None if step is None else Step(Place(0, step), key[:60], now)


class _Form:
    """Lines of which only the numbers differ. One number may count the steps. Several ranks may print them, some a step behind."""

    def __init__(self) -> None:
        self._fields: list[_Field] = []

    def grown(self, numbers: list[str]) -> int | None:
        """Return the highest value of the number that counts, once that is sure."""
        if len(self._fields) != len(numbers):
            self._fields = [_Field(number) for number in numbers]
            return None
        for field, number in zip(self._fields, numbers):
            field.read(number)
        return next((field.highest for field in self._fields if field.times >= SURE - 1), None)


class _Field:
    """by: how much it grows. times: how many times it has grown by that."""

    def __init__(self, number: str) -> None:
        self.by = self.times = 0
        self.highest = _whole(number)

    def read(self, number: str) -> None:
        now, before = _whole(number), self.highest
        if now is not None and before is not None and before - self.by <= now <= before:
            return
        more = now - before if now is not None and before is not None and now > before else 0
        self.times = 0 if not more else self.times + 1 if more == self.by else 1
        self.by, self.highest = more, now


def _whole(number: str) -> int | None:
    return int(number[:15]) if number.isdecimal() else None
