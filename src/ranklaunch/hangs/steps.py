"""Steps and saves of one rank, from its printed lines. Pure: bytes and times go in.

A line of a known shape (`SHAPES`) gives its step at once. Any other program's lines are found by their form: a line
with masked digits comes again and again, and one number of the line grows each time by the same.

An output has one StepReader, shared by the hang detector, the pace for the report, and the comparison of ranks with the
plan. Each piece of output is read once, by the first of the three to look.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

MOST_LINE = 8000  # characters of a line that are read: lines of verl have thousands
MOST_LINES = 400  # lines of one feed that are read: the last ones
MOST_FORMS = 64
LONGEST_FORM = 2000  # characters of a line that make its form
SURE = 3  # lines of one form in a row whose number grows by the same amount, before the number counts as the step
READ = 2 * 1024  # bytes at the end of new output that are read; few, since this goes on for the whole job
# Begin and end of a save as Megatron, DeepSpeed, torchtitan, Hugging Face's Trainer and MindFormers print them, and similar programs.
_WHAT = r"(?:(?:a|the|full|model|current) )*(?:checkpoint|ckpt|state)\b"
_BEGINS = re.compile(rf"(?i)(?<!finished )\bsaving {_WHAT}|\[torch\] saving ")
_ENDS = re.compile(rf"(?i)\b(?:successfully saved|finished saving|saved) {_WHAT}|\[torch\] saved |\bcheckpoint (?:was |is )?saved\b")
# Lines about something else, with numbers that may also grow by the same amount: ports, numbers of attempts.
_ELSE = re.compile(
    r"(?i)\bretr(?:y|ies|ying)\b|\battempts?\b|connect|\btime[ds]?[ -]?outs?\b|\bwaiting\b|\bheartbeat|\bport\b|\bsocket|"
    r"rendezvous|\btopology|(?-i:\b(?:WARN|WARNING|ERROR|FATAL)\b)"
)
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+(?::\d+)?")
# Dates and times of loggers, and elapsed times: these also grow by the same amount if all steps take equally long.
_CLOCK = re.compile(r"(?:\d{4}[-/]\d\d[-/]\d\d[T ,]{0,2})?\b\d{1,3}(?::\d\d){1,3}(?:[.,]\d+)?|\d{4}[-/]\d\d[-/]\d\d")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_BAR = re.compile(r"\d/\d+ (?:\[[\d:]+<|\[[=>.]{3,}\])|━━━")
_ANY_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


class Step(NamedTuple):
    """Step in a line of output. shape: name of the line's shape, or its form. at: time of the line, in the caller's seconds. seconds: time
    of one step as the line prints it. samples, tokens: per second, as the line prints them."""

    place: Place
    shape: str
    at: float
    seconds: float | None = None
    samples: float | None = None
    tokens: float | None = None

    @property
    def weight(self) -> int:
        """Weight of the shape: lines with a smaller weight are more informative."""
        return weight(self.shape)


class Steps:
    """Reader of one rank's lines. first, last: the oldest and the newest step, of the most informative lines. count: feeds
    with a new step. largest_gap: seconds between two such feeds, without the first gap (compilation); 0.0 until there are
    two."""

    def __init__(self) -> None:
        self.first: Step | None = None
        self.last: Step | None = None
        self.count = 0
        self.largest_gap = 0.0
        self._measured: Step | None = None  # first step of the average
        self._begun = ""  # last line, without its end yet
        self._epoch = 0  # by the last line that is only about an epoch
        self._forms: dict[str, _Form] = {}

    @property
    def seconds(self) -> float | None:
        """Seconds of one step on average, between the lines since the second feed; None while nothing can be measured."""
        first, last = self._measured, self.last
        if not first or not last or first.place.epoch != last.place.epoch or last.place.step <= first.place.step:
            return None
        return (last.at - first.at) / (last.place.step - first.place.step)

    def feed(self, data: bytes, now: float) -> bool:
        """Read the rank's output since the last feed, or the end of this output. Return True for a new step in it."""
        newest, source = None, ""
        for line in self._lines(data):
            step = self._known(line, now) or self._by_form(line, now)
            if step and (not newest or step.weight <= newest.weight):  # of two kinds of lines, the more informative one counts
                newest, source = step, line
        return newest is not None and self._take(newest, source)

    def _take(self, step: Step, line: str) -> bool:
        """Keep a step with the figures in its line. Return False if the step is not new, or if other lines are more informative."""
        last = self.last
        if last and (step.place <= last.place if step.shape == last.shape else step.weight > last.weight):
            return False
        reading = read(line, self._epoch) or figures(line)
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
        return (plain(line[:MOST_LINE]) for line in lines[-MOST_LINES:] if line)

    def _known(self, line: str, now: float) -> Step | None:
        epoch = heading(line)
        if epoch is not None:
            self._epoch = epoch
            return None
        shaped = find(line, self._epoch)
        return Step(shaped.place, shaped.shape.name, now) if shaped and shaped.place else None

    def _by_form(self, line: str, now: float) -> Step | None:
        if _BAR.search(line) or _ELSE.search(line):  # a bar without a known shape is not about steps
            return None
        masked = _CLOCK.sub("time", _ADDRESS.sub("address", line[:LONGEST_FORM]))
        masked = _THOUSANDS.sub(_without_commas, masked) if "," in masked else masked
        numbers = _ANY_NUMBER.findall(masked)
        if not numbers:
            return None
        key = _ANY_NUMBER.sub("0", masked)
        form = self._forms.pop(key, None) or _Form()
        self._forms[key] = form  # the newest form is the last one
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
    """Reader of one rank's output. saves: saves of checkpoints; None until a user of the reader sets it."""

    def __init__(self, output: Written) -> None:
        self.steps = Steps()
        self.saves: Saves | None = None
        self.output = output
        self._taken = 0  # bytes of the output that were read or skipped

    def look(self) -> None:
        """Read the output since the last look. The time of a step is the time of the newest output."""
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
    """Return the reader of an output; make it at the first call."""
    reader: StepReader = output.step_reader or StepReader(output)
    output.step_reader = reader
    return reader


def _end(tail: bytes, new: int) -> bytes:
    """Return the last READ of the `new` bytes, and the beginning of their first line if the line is no longer than MOST_LINE.

    A newline stands before data that does not continue the previous piece.
    """
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
        """Read a piece of output from time `at`. stepped: a new step is in the piece.

        A save with begin and end in one piece is not counted: it was short, or its duration is unknown.
        """
        if b"sav" not in data and b"Sav" not in data:
            self._began = None if stepped else self._began  # a step during the save: it runs in the background, and costs no time
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
    """Return the position of the last match, -1 for none."""
    return max((match.start() for match in pattern.finditer(text)), default=-1)


class _Form:
    """Lines that differ in their numbers only; one number may count the steps. Several ranks may print into one output, some a step
    behind."""

    def __init__(self) -> None:
        self._fields: list[_Field] = []

    def grown(self, numbers: list[str]) -> int | None:
        """Return the highest value of the number that counts steps; None until this number is known."""
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


def _without_commas(match: re.Match[str]) -> str:
    return match[0].replace(",", "")


# Shapes of lines about training steps
#
# SHAPES is the table. Each row names the program; tests/hangs/test_shapes.py has a line of each, and where its program prints this line.
# A new shape is a row: earlier rows are for lines that are more informative about a step.
#
# Names of groups in patterns: `epoch`, `step`, `of`; for a time `us`, `ms`, `s`, or `rate` in steps per second.

_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
_MANY = rf"(?:[0-9]{{1,3}}(?:,[0-9]{{3}})+(?:\.[0-9]*)?(?![0-9])|{_NUMBER})"  # commas between thousands
_START = r"(?:^|[\s\]>:)])"  # of a line, or behind the tag of a rank or a logger
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x08+")  # colours, moves of the cursor, backspaces
_HEADING = re.compile(rf"{_START}Epoch (\d+)/\d+ *$")
_PREPARES = re.compile(
    r"(?i)\b(?:load|download|fetch|tokeniz|resolv|generat|filter|extract|preprocess|convert|map|shards|files?|checkpoint|eval|valid|predict|"
    r"test|compil|saving|upload|read|index|cache|cach)"
)


class Place(NamedTuple):
    """Progress of a training. In comparisons the epoch counts first. of: number of all steps, or of the epoch's steps if there is an
    epoch; 0 if the line has no such number."""

    epoch: int
    step: int
    of: int = 0


class Reading(NamedTuple):
    """Values that one line prints. shape: the name of its row. place: None if the line has no number of a step. seconds: of one step.
    samples, tokens: per second, of all ranks or of one, as the program counts."""

    shape: str
    place: Place | None = None
    seconds: float | None = None
    samples: float | None = None
    tokens: float | None = None


class Shape(NamedTuple):
    """Row of SHAPES.

    | field | meaning |
    | --- | --- |
    | needed | text in each such line, faster to search for than `pattern` |
    | time, samples, tokens | patterns for values that only lines of this shape print in this way |
    | is_bar | True for a progress bar of tqdm, rich or Keras |
    | is_any_bar | True for a bar that programs also draw for loading or evaluating: the text before the bar tells |
    | follows_heading | True if the epoch is in an earlier line: "Epoch 1/10" |
    """

    name: str
    needed: str
    pattern: str
    time: str = ""
    samples: str = ""
    tokens: str = ""
    is_bar: bool = False
    is_any_bar: bool = False
    follows_heading: bool = False


DEEPSPEED_THROUGHPUT = "DeepSpeed's throughput"
_TIME = rf"(?i)\btime:? *(?:(?P<ms>{_NUMBER}) ?ms|(?P<s>{_NUMBER}))"
_IPS = rf"\bips: *({_MANY})"

SHAPES: tuple[Shape, ...] = (
    Shape("NeMo", "Training epoch", r"\bTraining epoch (?P<epoch>\d+), iteration (?P<step>\d+)/(?P<of>\d+)"),
    Shape("Megatron", "iteration", r"\biteration +(?P<step>\d+)/ *(?P<of>\d+) *\|"),
    Shape("DeepSpeed", "skipped=", r"\bstep=(?P<step>\d+), skipped="),
    Shape(
        DEEPSPEED_THROUGHPUT,
        "SamplesPerSec",
        rf"(?:global_step=(?P<step>[0-9]+), |[0-9]+/[0-9]+, )?(?:RunningAvg)?SamplesPerSec={_NUMBER}",
        samples=rf".*[Ss]amplesPerSec=({_NUMBER})",
    ),
    Shape("torchtitan", "step:", r"(?<!validate )\bstep: *(?P<step>\d+) +[\w/]*loss\w*: "),
    Shape(
        "MindFormers",
        "step:[",
        r"[Ee]poch: ?\[ *(?P<epoch>\d+)/ *\d+\], step: ?\[ *(?P<step>\d+)/ *(?P<of>\d+)\]",
        time=_TIME,
    ),
    Shape("MindCV", "batch: [", r"\bEpoch: \[(?P<epoch>\d+)/\d+\], batch: \[(?P<step>\d+)/(?P<of>\d+)\]", time=_TIME),
    Shape("MindSpore", "step:", r"\bepoch: (?P<epoch>\d+),? step: (?P<step>\d+), ?(?:loss|output)"),
    Shape(
        "verl",
        "step:",
        r"\bstep:(?P<step>\d+) - \w",
        time=rf"\b(?:perf/time_per_step|timing_s/step):(?:np\.float64\()?(?P<s>{_NUMBER})",
        tokens=rf"\bperf/throughput:(?:np\.float64\()?({_NUMBER})",
    ),
    Shape(
        "MaxText",
        "completed step:",
        r"\bcompleted step: (?P<step>\d+), seconds: ",
        time=rf"\bseconds: (?P<s>{_NUMBER})",
    ),
    Shape("ms-swift", "global_step/max_steps", r"'global_step/max_steps': '(?P<step>\d+)/(?P<of>\d+)'"),
    Shape(
        "nanoGPT",
        "iter ",
        r"\biter (?P<step>\d+): loss ",
        time=_TIME,
    ),
    Shape(
        "mmengine",
        "lr:",
        r"\b(?:Epoch(?:\(train\))? +\[(?P<epoch>\d+)\]|Iter(?:\(train\))? *)\[ *(?P<step>\d+)/ *(?P<of>\d+)\]\s+(?:base_)?lr:",
        time=_TIME,
    ),
    Shape(
        "timm",
        "Train: ",
        r"\bTrain: (?P<epoch>\d+) \[ *(?P<step>\d+)/(?P<of>\d+) +\( *\d+%\)\]",
        time=_TIME,
        samples=rf"\bTime: *{_NUMBER}s, *({_NUMBER})/s",
    ),
    Shape("detectron2", "iter: ", r"\biter: (?P<step>\d+) +(?:total_)?loss: ", time=_TIME),
    Shape(
        "torchvision",
        "Epoch: [",
        r"\bEpoch: \[(?P<epoch>\d+)\] *\[ *(?P<step>\d+)/ *(?P<of>\d+)\]",
        time=_TIME,
        samples=_IPS,
    ),
    Shape(
        "epoch and step in brackets",  # in many tutorials
        "poch [",
        r"\b[Ee]poch \[(?P<epoch>\d+)/\d+\],? *(?:[Ss]tep|[Bb]atch|[Ii]ter(?:ation)?):? *\[(?P<step>\d+)/(?P<of>\d+)\]",
    ),
    Shape(
        "PyTorch's MNIST",
        "Train Epoch: ",
        r"\bTrain Epoch: (?P<epoch>\d+) \[(?P<step>\d+)/(?P<of>\d+) \( *\d+%\)\]",
    ),
    Shape(
        "PaddleNLP",
        "interval_runtime",
        r"\bglobal_step: (?P<step>\d+), .{0,400}?\binterval_runtime: ",
        samples=rf"\binterval_samples_per_second: ({_NUMBER})",
    ),
    Shape("PaddleClas", "[Iter: ", r"\[Epoch (?P<epoch>\d+)/\d+\]\[Iter: *(?P<step>\d+)/(?P<of>\d+)\]", samples=_IPS),
    Shape(
        "PaddlePaddle",
        "epoch: ",
        r"\bepoch: \[?(?P<epoch>\d+)(?:/\d+)?\]?, (?:batch|batch_id|iter|step|global_step): (?P<step>\d+)(?:/(?P<of>\d+))?,",
        samples=_IPS,
    ),
    Shape(
        "fairseq",
        "num_updates",
        r'"epoch": (?P<epoch>\d+), .{0,1500}?"num_updates": "?(?P<step>\d+)',
        time=rf'"ups": "(?P<rate>{_NUMBER})',
        tokens=rf'"wps": "({_NUMBER})',
    ),
    Shape(
        "fairseq's simple lines",
        "epoch ",
        r"\bepoch (?P<epoch>\d+): +(?P<step>\d+) / (?P<of>\d+) \w+=",
        time=rf"\bups=(?P<rate>{_NUMBER})",
        tokens=rf"\bwps=({_NUMBER})",
    ),
    Shape("Composer", "[batch=", r"(?:\[epoch=(?P<epoch>\d+)(?:/\d+)?\])?\[batch=(?P<step>\d+)/(?P<of>\d+)\]:"),
    Shape(
        "torchtune",
        "|Loss: ",
        rf"{_START}(?P<epoch>\d+)\|\d+\|Loss: .{{0,200}}?\| *(?P<step>\d+)/(?P<of>\d+) \[",
        is_bar=True,
    ),
    Shape(
        "Ultralytics",
        "%",
        rf"{_START}(?P<epoch>\d+)/\d+ +[\d.]+[GM] .{{0,200}}?\b(?P<step>\d+)/(?P<of>\d+) (?:\[[\d:]+<|[\d.]+(?:it/s|s/it) )",
        is_bar=True,
    ),
    Shape(
        "Keras",
        "loss: ",
        rf"{_START}(?P<step>\d+)/(?:Unknown|(?P<of>\d+) +(?:[━╸╺─]+|\[[=>.]+\])) .*\bloss: ",
        is_bar=True,
        follows_heading=True,
    ),
    Shape(
        "Lightning",
        "Epoch",
        r"\bEpoch (?P<epoch>\d+): .{0,400}?\b(?P<step>\d+)(?:/(?:(?P<of>\d+)|\?)|it) \[",
        is_bar=True,
    ),
    Shape(
        "Lightning with rich",
        "•",
        r"\bEpoch (?P<epoch>\d+)/\d+ .{0,400}?\b(?P<step>\d+)/(?P<of>\d+) +[\d:]+ +• ",
        is_bar=True,
    ),
    Shape(
        "tqdm of an epoch",
        "[",
        r"\b[Ee]poch[ :=#]*\[?(?P<epoch>\d+)\b(?:(?!valid|eval|test|predict|load)[^\r\n]){0,200}?[|\s\]>:)]"
        r"(?P<step>\d+)/(?:(?P<of>\d+)|\?) \[[\d:]+<[\d:?]+",
        is_bar=True,
        is_any_bar=True,
    ),
    Shape(
        "tqdm",
        "[",
        r"(?:^|[|\s\]>:)])(?P<step>\d+)/(?:(?P<of>\d+)|\?) \[[\d:]+<[\d:?]+",
        is_bar=True,
        is_any_bar=True,
    ),
    Shape("tqdm without a total", "it [", r"(?:^|[|\s\]>:)])(?P<step>\d+)it \[[\d:]+, ", is_bar=True, is_any_bar=True),
)
BARS = frozenset(shape.name for shape in SHAPES if shape.is_bar)
_WEIGHTS = {shape.name: number for number, shape in enumerate(SHAPES)}

_SECONDS = rf"(?P<s>{_NUMBER})(?: ?s(?:ec)?\b|(?![\w.%]))"  # the unit may be missing
# Times of a step with an explicit name, in lines of any shape.
_TIMES = (
    rf"elapsed time per iteration \(ms\): *(?P<ms>{_NUMBER})",
    rf"train_step_timing in s[:=] *(?P<s>{_NUMBER})",
    rf"(?i)\bper[_ ]step[_ ]time: *(?:(?P<ms>{_NUMBER}) ?ms|(?P<s>{_NUMBER}) ?s)\b",
    rf"(?i)(?<![a-z])(?:elapsed_)?time_per_step ?[:=] *(?:(?P<ms>{_NUMBER}) ?ms\b|(?P<s>{_NUMBER}))",
    rf"(?i)(?<![a-z])(?<!per[_ ])(?:step|iter|iteration|batch)[_ ](?:time|cost)(?: ?[:=] *| +)(?:(?P<ms>{_NUMBER}) ?ms\b|{_SECONDS})",
    rf"steps_per_second['\"]?[:=] *(?P<rate>{_NUMBER})",
    rf"train_speed\(iter/s\)': '?(?P<rate>{_NUMBER})",
    rf"train_speed\(s/it\)': '?(?P<s>{_NUMBER})",
    rf"(?<![\w.,])(?:(?P<us>{_NUMBER}) ?us|(?P<ms>{_NUMBER}) ?ms|(?P<s>{_NUMBER}) ?s)/(?:step|iter|iteration|it|batch)\b",
    rf"(?<![\w.,])(?P<rate>{_NUMBER}) ?(?:iters?|it|steps?|batch|batches)/s(?:ec)?\b",
)
_BATCH = rf"\bglobal batch size: *({_NUMBER})"
_AVERAGE = rf"['\"]?train_samples_per_second['\"]?\s*[:=]\s*['\"]?({_NUMBER})"
_EACH_SECOND = r"(?:/s(?:ec(?:ond)?)?\b| per sec(?:ond)?\b)"
_SAMPLES = rf"(?:samples|images|examples|sequences|imgs?){_EACH_SECOND}"
_TOKENS = rf"(?:tok(?:en)?s?(?:{_EACH_SECOND}|_per_sec(?:ond)?\b)(?:/(?:gpu|npu|device|rank)\b)?|\btps\b)"
_NO_MINUS = r"(?<!^-)(?<![\s:=,;|(\[{'\"]-)"  # no minus sign before the number; the dash in 100-200 is none


def _forms(unit: str) -> tuple[str, str, str]:
    """Return patterns for UNIT: NUMBER, UNIT NUMBER without a number before it, and NUMBER UNIT."""
    return (
        rf"(?i){unit}['\"]?\s{{0,4}}[:=]\s{{0,4}}({_MANY})",
        rf"(?i)(?<![0-9.] )(?<![0-9.]){unit}\s{{1,4}}({_MANY})(?![\w.%/])",
        rf"(?i)(?<![0-9.,]){_NO_MINUS}({_MANY}) ?{unit}(?!['\"]?\s{{0,4}}[:=])(?P<more>.{{0,80}})",
    )


_OF_SAMPLES, _OF_TOKENS = _forms(_SAMPLES), _forms(_TOKENS)
# After NUMBER UNIT: a second number without a unit. Then the unit may belong to the second number, and the first may be the loss.
_EITHER = re.compile(rf"\s{{1,4}}-?{_NUMBER}\s{{0,4}}(?:$|[,;|)\]]|[A-Za-z_]\w{{0,40}}[ :=]{{1,4}}[0-9])")


def weight(shape: str) -> int:
    """Return the weight of a shape: its index in the table. A smaller weight means more informative lines. An unknown name weighs most."""
    return _WEIGHTS.get(shape, len(_WEIGHTS))


def plain(line: str) -> str:
    """Return a line without colours and cursor movements."""
    return _CONTROL.sub("", line) if "\x1b" in line or "\x08" in line else line


def heading(line: str) -> int | None:
    """Return the epoch of a line such as "Epoch 1/10", for the lines after it; None for another line."""
    match = _HEADING.search(line) if "Epoch" in line else None
    return int(match[1][:15]) if match else None


class ShapedLine(NamedTuple):
    """A line of a known shape. place: None without the number of a step. text: the line from where the shape begins."""

    shape: Shape
    place: Place | None
    text: str


def read(line: str, epoch: int = 0) -> Reading | None:
    """Return the values of a line that has a known shape. epoch: by the last `heading`, 0 before one."""
    shaped = find(plain(line), epoch)
    return _reading(shaped.text, shaped.shape, shaped.place) if shaped else None


def find(line: str, epoch: int = 0) -> ShapedLine | None:
    """Return a line with its shape and its step, None for an unknown shape. line: without colours. `read` costs ten times as much."""
    for shape in SHAPES:
        match = _search(shape.pattern, line) if shape.needed in line and (epoch or not shape.follows_heading) else None
        if match and not (shape.is_any_bar and _PREPARES.search(line[: match.start()])):
            return ShapedLine(shape, _place(match.groupdict(), epoch if shape.follows_heading else 0), line[match.start() :])
    return None


def _place(values: Mapping[str, str | None], epoch: int) -> Place | None:
    numbers = [int((values.get(key) or "0")[:15]) for key in Place._fields]
    return Place(numbers[0] or epoch, *numbers[1:]) if values.get("step") else None


def figures(line: str) -> Reading:
    """Return the time and the throughput in a line that is known to be about a step, whatever its shape."""
    return _reading(line, Shape("", "", ""))


def _reading(text: str, shape: Shape, place: Place | None = None) -> Reading:
    """Return the values in a text: by the patterns of the shape, else by the words of lines of any shape."""
    times = (seconds for pattern in (shape.time, *_TIMES) if (match := _search(pattern, text)) and (seconds := _time(match)))
    seconds = next(times, None)
    samples, tokens = _value(shape.samples, text), _value(shape.tokens, text)
    batch = _value(_BATCH, text)
    if seconds and batch and not samples:
        samples = _positive(batch / seconds)
    samples, tokens = samples or _positive(samples_per_second(text)), tokens or _positive(tokens_per_second(text))
    return Reading(shape.name, place, seconds, samples, tokens)


def samples_per_second(line: str) -> float:
    """Return the number beside a unit such as samples/s or images/sec, 0 without one, or if another number may be meant."""
    return _figure(line, _OF_SAMPLES)


def tokens_per_second(line: str) -> float:
    """Return the number beside a unit such as tokens/s or tps, 0 without one, or if another number may be meant."""
    return _figure(line, _OF_TOKENS)


def average_samples_per_second(line: str) -> float:
    """Return the throughput of a whole run, which Hugging Face's Trainer prints at its end; 0 without one."""
    match = _search(_AVERAGE, line)
    return float(match[1]) if match else 0.0


def _figure(line: str, forms: tuple[str, str, str]) -> float:
    match = next((match for form in forms if (match := _search(form, line))), None)
    if not match or _EITHER.match(match.groupdict().get("more", "")):
        return 0.0
    return float(match[1].replace(",", ""))


def _time(match: re.Match[str]) -> float | None:
    """Return the seconds of one step from the group `us`, `ms`, `s` or `rate` that matched."""
    unit, value = next((unit, float(value)) for unit, value in match.groupdict().items() if value)
    if unit == "rate":
        return _positive(1 / value) if value else None
    return _positive(value * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit])


def _value(pattern: str, text: str) -> float | None:
    match = _search(pattern, text)
    return _positive(float(match[1].replace(",", ""))) if match else None


def _search(pattern: str, text: str) -> re.Match[str] | None:
    """Search for a pattern; "" matches nothing. Most patterns are never needed, so they are compiled at their first use."""
    return _compiled(pattern).search(text) if pattern else None


_compiled = functools.lru_cache(maxsize=None)(re.compile)


def _positive(value: float) -> float | None:
    """Return None for 0 and for infinity."""
    return value if 0 < value < math.inf else None
