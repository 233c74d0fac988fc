r"""Shapes of output lines about training steps: `read` returns the step, its time and the throughput that one line prints.

SHAPES is the table. Each row names the program; tests/hangs/test_shapes.py has a line of each, and where its program prints it. A new
shape is a row: the earlier it stands, the more its lines say about a step. Computes only.

Names of groups in patterns: `epoch`, `step`, `of`; for a time `us`, `ms`, `s`, or `rate` in steps per second.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from typing import NamedTuple

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
    """How far a training is. In comparisons the epoch counts first. of: steps in sum, or of the epoch where there is one; 0 where the line
    does not say."""

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
    """A row of SHAPES. needed: text that each such line contains, cheaper to look for than `pattern`. time, samples, tokens: patterns for
    values that only lines of this shape print so. is_bar: drawn by tqdm or rich. is_any_bar: also drawn for loading or evaluating, by what
    stands before it. follows_heading: its epoch stands in an earlier line, "Epoch 1/10"."""

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
        "epoch and step in brackets",  # as many tutorials print it
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
# Times of a step that say themselves what they are, in lines of any shape.
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
_NO_MINUS = r"(?<!^-)(?<![\s:=,;|(\[{'\"]-)"  # before a number; that of 100-200 is a dash


def _forms(unit: str) -> tuple[str, str, str]:
    """Return patterns for UNIT: NUMBER, UNIT NUMBER without a number before it, and NUMBER UNIT."""
    return (
        rf"(?i){unit}['\"]?\s{{0,4}}[:=]\s{{0,4}}({_MANY})",
        rf"(?i)(?<![0-9.] )(?<![0-9.]){unit}\s{{1,4}}({_MANY})(?![\w.%/])",
        rf"(?i)(?<![0-9.,]){_NO_MINUS}({_MANY}) ?{unit}(?!['\"]?\s{{0,4}}[:=])(?P<more>.{{0,80}})",
    )


_OF_SAMPLES, _OF_TOKENS = _forms(_SAMPLES), _forms(_TOKENS)
# Behind NUMBER UNIT: a second number without a unit, so that this one may be the samples and the one before them the loss.
_EITHER = re.compile(rf"\s{{1,4}}-?{_NUMBER}\s{{0,4}}(?:$|[,;|)\]]|[A-Za-z_]\w{{0,40}}[ :=]{{1,4}}[0-9])")


def weight(shape: str) -> int:
    """Return the place of a shape in the table: lines of a smaller weight say more. An unknown name weighs most."""
    return _WEIGHTS.get(shape, len(_WEIGHTS))


def plain(line: str) -> str:
    """Return a line without colours and moves of the cursor."""
    return _CONTROL.sub("", line) if "\x1b" in line or "\x08" in line else line


def heading(line: str) -> int | None:
    """Return the epoch of a line such as "Epoch 1/10", which later lines belong to."""
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
    """Search for a pattern, "" for none. Most patterns are never needed, so they are compiled at their first use."""
    return _compiled(pattern).search(text) if pattern else None


_compiled = functools.lru_cache(maxsize=None)(re.compile)


def _positive(value: float) -> float | None:
    """Return None for 0 and for infinity."""
    return value if 0 < value < math.inf else None
