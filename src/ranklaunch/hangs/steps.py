"""Steps and saves of one rank, from the lines that the rank prints. Computes only: bytes and times go in.

A line of a known shape (`ranklaunch.hangs.shapes`) gives its step at once. The lines of any other program are found by their form: a
line whose digits are masked comes again and again, and one number in it grows each time by the same.

An output has one StepReader, shared by the hang detector, the pace for the report, and the comparison of ranks with the plan. Each piece
of output is read once, by whichever of the three looks first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from ranklaunch.hangs import shapes
from ranklaunch.hangs.shapes import Place

MOST_LINE = 8000  # characters of one that are looked at: lines of verl have thousands
MOST_LINES = 400  # of one feed, the last
MOST_FORMS = 64
LONGEST_FORM = 2000  # characters of a line by which its form is known
SURE = 3  # times that a form must come, and its number grow by the same
READ = 2 * 1024  # bytes at the end of new output that are read: ranks are read for as long as the job lasts
# Megatron, DeepSpeed, torchtitan, Hugging Face's Trainer, MindFormers, and programs that print the same words.
_WHAT = r"(?:(?:a|the|full|model|current) )*(?:checkpoint|ckpt|state)\b"
_BEGINS = re.compile(rf"(?i)(?<!finished )\bsaving {_WHAT}|\[torch\] saving ")
_ENDS = re.compile(rf"(?i)\b(?:successfully saved|finished saving|saved) {_WHAT}|\[torch\] saved |\bcheckpoint (?:was |is )?saved\b")
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
        """Return the weight of the shape: lines of a smaller weight say more."""
        return shapes.weight(self.shape)


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
        """Yield whole lines, without colours. A carriage return ends a line too: a bar draws itself anew."""
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


class Written(Protocol):
    """Output of a rank. tail: its last bytes. taken: bytes in all. written_at: time of the newest."""

    tail: bytes
    taken: int
    written_at: float | None
    step_reader: Any


class StepReader:
    """Steps of one rank. saves: saves of checkpoints, None until somebody asks for them."""

    def __init__(self, output: Written) -> None:
        self.steps = Steps()
        self.saves: Saves | None = None
        self.output = output
        self._taken = 0  # bytes of the output that were read or passed over

    def look(self) -> None:
        """Read the output since the last look. The time of a step is that of the newest output."""
        output = self.output
        new = output.taken - self._taken
        if new <= 0 or output.written_at is None:
            return
        self._taken = output.taken
        data = _end(output.tail, new)
        stepped = self.steps.feed(data, output.written_at)
        if self.saves:
            self.saves.feed(data, output.written_at, stepped)


def step_reader(output: Written) -> StepReader:
    """Return the one reader of an output."""
    reader: StepReader = output.step_reader or StepReader(output)
    output.step_reader = reader
    return reader


def _end(tail: bytes, new: int) -> bytes:
    """Return the last READ of the `new` bytes, and the beginning of their first line if the line is no longer than MOST_LINE.

    A newline stands before data that does not continue the piece before."""
    data = tail[-new:]
    if new <= READ:
        return data
    start = len(data) - READ
    begins = max(data.rfind(b"\n", 0, start), data.rfind(b"\r", 0, start)) + 1
    if start - begins > MOST_LINE or (begins == 0 and new > len(tail)):
        return b"\n" + data[start:].partition(b"\n")[2]
    return b"\n" + data[begins:] if begins else data


class Saves:
    """Saves of checkpoints by one rank, during which the rank printed no step."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._saved: list[tuple[float, float]] = []

    def feed(self, data: bytes, at: float, stepped: bool) -> None:
        """Read a piece of output that came at `at`. stepped: a new step is in the piece.

        A save that begins and ends in one piece is not counted: it was short, or its duration is unknown.
        """
        if b"sav" not in data and b"Sav" not in data:
            self._began = None if stepped else self._began  # a save in the background costs no time
            return
        text = data.decode(errors="replace")
        begins, ends = _last(_BEGINS, text), _last(_ENDS, text)
        began, self._began = self._began, None
        if began is not None and ends >= 0:
            self._saved.append((began, at))
        elif began is not None and not stepped:
            self._began = began
        if begins > ends and self._began is None:
            self._began = at

    def taken(self) -> list[tuple[float, float]]:
        """Return the begin and end of each save since the last call."""
        saved, self._saved = self._saved, []
        return saved


def _last(pattern: re.Pattern[str], text: str) -> int:
    """Return where the last match begins, -1 for none."""
    return max((match.start() for match in pattern.finditer(text)), default=-1)


class _Form:
    """Lines that differ in their numbers only. One number may count the steps. Several ranks may print such lines, some a step behind."""

    def __init__(self) -> None:
        self._fields: list[_Field] = []

    def grown(self, numbers: list[str]) -> int | None:
        """Return the highest value of the number that counts, once it is known."""
        if len(self._fields) != len(numbers):
            self._fields = [_Field(number) for number in numbers]
            return None
        for field, number in zip(self._fields, numbers):
            field.read(number)
        return next((field.highest for field in self._fields if field.times >= SURE - 1), None)


class _Field:
    """A number of a form. by: its growth from one line to the next. times: lines in a row with this growth."""

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
