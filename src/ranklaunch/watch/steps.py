"""Steps of a training, from the lines that a rank writes. Pure: bytes and times go in.

Known shapes come first, each as its source writes it:
- Megatron: " iteration       10/     500 | consumed samples: ..." (training_log of megatron/training/training.py);
- DeepSpeed: "[Rank 0] step=10, skipped=0, lr=[...]" (_report_progress of deepspeed/runtime/engine.py);
- torchtitan: "step: 10  loss:  7.9  grad_norm: ..." (torchtitan/components/metrics.py);
- MindFormers: "{ Epoch:[  1/  2], step:[   10/  500], loss: ..." (MFLossMonitor of mindformers/core/callback/callback.py);
- MindSpore: "epoch: 1 step: 10, loss is 2.3" (LossMonitor of mindspore/train/callback/_loss_monitor.py);
- Lightning: "Epoch 3:  20%|##   | 10/50 [00:12<00:48,  0.83it/s, v_num=1]" (its progress bar upon tqdm);
- tqdm, and Hugging Face's Trainer, which uses it: " 20%|##   | 10/50 [00:12<00:48,  1.21s/it]", but for bars that prepare something.

Any other program's are found by their own form: a line whose digits are masked comes again and again, and one number in it grows each time
by the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ranklaunch.typed import NamedTuple

MOST_LINE = 2000  # characters of one that are looked at
MOST_LINES = 400  # of one feed, the last
MOST_FORMS = 64
SURE = 3  # times that a form must come, and its number grow by the same
_PREPARES = re.compile(
    r"(?i)\b(?:load|download|fetch|tokeniz|resolv|generat|filter|extract|preprocess|convert|map|shards|files?|checkpoint|eval|valid|predict|"
    r"test|compil|saving|upload|read|index|cache|cach)"
)
# Of lines that are about something else, with numbers that may grow by the same all the same: ports, times that something was tried.
_ELSE = re.compile(
    r"(?i)\bretr(?:y|ies|ying)\b|\battempts?\b|connect|\btime[ds]?[ -]?outs?\b|\bwaiting\b|\bheartbeat|\bport\b|\bsocket|"
    r"rendezvous|\btopology|(?-i:\b(?:WARN|WARNING|ERROR|FATAL)\b)"
)
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+(?::\d+)?")
# Loggers' dates and clocks, and times that have passed: they grow by the same where steps take as long.
_CLOCK = re.compile(r"(?:\d{4}[-/]\d\d[-/]\d\d[T ,]{0,2})?\b\d{1,3}(?::\d\d){1,3}(?:[.,]\d+)?|\d{4}[-/]\d\d[-/]\d\d")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_BAR = re.compile(r"\d/\d+ \[[\d:]+<")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


class Place(NamedTuple):
    """How far a training is. In comparisons the epoch counts first. of: steps in sum, or of the epoch where there is one; 0 where the line
    does not say."""

    epoch: int
    step: int
    of: int = 0


_KNOWN: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (name, needed, re.compile(pattern))
    for name, needed, pattern in (
        ("Megatron", "iteration", r"\biteration +(?P<step>\d+)/ *(?P<of>\d+) *\|"),
        ("DeepSpeed", "skipped=", r"\bstep=(?P<step>\d+), skipped="),
        ("torchtitan", "step:", r"\bstep: *(?P<step>\d+) +loss: "),
        ("MindFormers", "step:[", r"[Ee]poch: ?\[ *(?P<epoch>\d+)/ *\d+\], step: ?\[ *(?P<step>\d+)/ *(?P<of>\d+)\]"),
        ("MindSpore", "step:", r"\bepoch: (?P<epoch>\d+),? step: (?P<step>\d+), ?loss"),
        ("Lightning", "Epoch", r"\bEpoch (?P<epoch>\d+): .{0,400}?\b(?P<step>\d+)/(?P<of>\d+) \["),
        ("Lightning with rich", "•", r"\bEpoch (?P<epoch>\d+)/\d+ .{0,400}?\b(?P<step>\d+)/(?P<of>\d+) +[\d:]+ +• "),
        ("tqdm", "[", r"(?:\||^| )(?P<step>\d+)/(?P<of>\d+) \[[\d:]+<[\d:?]+"),
    )
)


class Step(NamedTuple):
    """shape: by which line it is known. at: when it was seen, in the caller's seconds."""

    place: Place
    shape: str
    at: float

    @property
    def weight(self) -> int:
        """The smaller, the more the line says."""
        return next((number for number, (name, _, _) in enumerate(_KNOWN) if name == self.shape), len(_KNOWN))

    @property
    def is_last(self) -> bool:
        return bool(self.place.of) and self.place.step >= self.place.of


class Steps:
    """Of one rank. last: the newest step. count: how many times it went on. largest_gap: seconds between two looks at which it had gone on,
    the first left out, which compiles; 0.0 until there are two."""

    def __init__(self) -> None:
        self.last: Step | None = None
        self.count = 0
        self.largest_gap = 0.0
        self._first: Step | None = None
        self._begun = ""
        self._forms: dict[str, _Form] = {}

    @property
    def seconds(self) -> float | None:
        """Of one step, on average since the second look; None while that cannot be told."""
        first, last = self._first, self.last
        if not first or not last or first.place.epoch != last.place.epoch or last.place.step <= first.place.step:
            return None
        return (last.at - first.at) / (last.place.step - first.place.step)

    def feed(self, data: bytes, now: float) -> bool:
        """What the rank has written since the last time, or the end of it; whether a step is among it."""
        newest = None
        for line in self._lines(data):
            newest = self._known(line, now) or self._by_form(line, now) or newest
        if not newest or (self.last and self.last.shape == newest.shape and newest.place <= self.last.place):
            return False
        self._take(newest)
        return True

    def _take(self, step: Step) -> None:
        if self.last and self.last.shape == step.shape:
            if self.count > 1:
                self.largest_gap = max(self.largest_gap, step.at - self.last.at)
            if not self._first or self._first.place.epoch != step.place.epoch:
                self._first = step
        elif self.last and step.weight > self.last.weight:
            return  # of two kinds of lines, those that say more stay
        else:
            self._first = None
        self.count += 1
        self.last = step

    def _lines(self, data: bytes) -> Iterator[str]:
        """Whole ones. A carriage return ends a line too: a bar draws itself anew."""
        text = self._begun + data.decode(errors="replace")
        *lines, begun = re.split(r"[\r\n]", text)
        self._begun = begun[-MOST_LINE:]
        return (line[:MOST_LINE] for line in lines[-MOST_LINES:] if line)

    def _known(self, line: str, now: float) -> Step | None:
        for name, needed, pattern in _KNOWN:
            found = pattern.search(line) if needed in line else None
            if found and not (name == "tqdm" and _PREPARES.search(line[: found.start()])):
                numbers = {key: int(value[:15]) for key, value in found.groupdict().items() if value}
                return Step(Place(numbers.get("epoch", 0), numbers["step"], numbers.get("of", 0)), name, now)
        return None

    def _by_form(self, line: str, now: float) -> Step | None:
        if _BAR.search(line) or _ELSE.search(line):  # a bar is of something known, or of no step
            return None
        line = _CLOCK.sub("time", _ADDRESS.sub("address", line))
        line = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), line) if "," in line else line
        numbers = _NUMBER.findall(line)
        if not numbers:
            return None
        key = _NUMBER.sub("0", line)
        form = self._forms.pop(key, None) or _Form()
        self._forms[key] = form  # the newest stand last
        if len(self._forms) > MOST_FORMS:
            del self._forms[next(iter(self._forms))]
        step = form.grown(numbers)
        return None if step is None else Step(Place(0, step), key[:60], now)


class _Form:
    """A line of which the numbers alone differ: which of them counts? Several ranks may write it, of which some are a step behind."""

    def __init__(self) -> None:
        self._fields: list[_Field] = []

    def grown(self, numbers: list[str]) -> int | None:
        """The highest of the number that counts, once that is sure."""
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
