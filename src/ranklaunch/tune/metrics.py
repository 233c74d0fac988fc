"""Speed of an experiment, from the file that DeepSpeed writes for autotuning, else from lines about steps in the program's output.
Warm-up steps are left out; the median of the other steps counts.

`ranklaunch.hangs.steps` reads the lines. SHAPES lists the kinds of lines, the most reliable first. Notes on some of them:
- DeepSpeed's timers are read here. With its autotuning on, each step prints
  "[Rank 0] time (ms) | fwd: 0.53 | bwd: 2.17 | ... | step: 2.03"
  (SynchronizedWallClockTimer.log of deepspeed/utils/timer.py); older versions print "forward" and "backward".
- Hugging Face's Trainer prints one figure for the whole run, warm-up steps included.
- Tokens a second are used as the throughput. There is no latency then: the number of tokens in a sample is unknown.
- A step of a progress bar counts as a step of the optimizer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ranklaunch.files import join
from ranklaunch.hangs import steps
from ranklaunch.plan.ds_config import TRAIN
from ranklaunch.tune.autotuning import SECTION
from ranklaunch.tune.model import FLOPS, LATENCY, PROFILE, THROUGHPUT, TOKENS, Experiment, as_object, is_figure

METRICS_FILE, INFO_FILE = "metrics.json", "model_info.json"  # in the folder of an experiment, named as DeepSpeed's tuner does
INFO_KEYS = ("num_params", "trainable_num_params", "activation_mem_per_gpu")
PER_SECOND = 1_000_000  # DeepSpeed's file counts in microseconds
MOST_OUTPUT = 8 << 20  # characters at the end of the output that are read
MOST_LINE = 4000
GIB = 1024**3
_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
_TIMERS = re.compile(rf"time \(ms\)((?: \| [\w-]+: {_NUMBER})+)")
_TIMER = re.compile(rf"\| ([\w-]+): ({_NUMBER})")
_ALLOCATED = re.compile(r"(?:^|\] )MA ([0-9]{1,6}(?:\.[0-9]{1,9})?) GB +Max_MA ", re.MULTILINE)


@dataclass(frozen=True)
class Measured:
    """Measured speed. metrics: as in Result. source: source of the metrics, in words, "" without any. steps: number of measured steps."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    steps: int = 0


@dataclass(frozen=True)
class Speed:
    """Speed in one line of output. step: 0 if not in the line. seconds: duration of one step of the optimizer. samples, tokens: a second,
    of all ranks. A value of 0 is unknown."""

    step: int = 0
    seconds: float = 0.0
    samples: float = 0.0
    tokens: float = 0.0


def placed(experiment: Experiment, folder: str) -> dict[str, Any]:
    """Return the configuration of an experiment, with the paths of the files for DeepSpeed's measurements."""
    section = dict(experiment.config[SECTION])
    key, name = ("model_info_path", INFO_FILE) if experiment.kind == PROFILE else ("metric_path", METRICS_FILE)
    return {**experiment.config, SECTION: {**section, key: join(folder, name)}}


def info(text: str, output: str = "") -> dict[str, float]:
    """Return facts of the model from a profile run, in parameters and bytes. text: content of INFO_FILE. output: output of rank 0, which
    shows the memory before the optimizer's states are made (see_memory_usage of deepspeed/runtime/utils.py)."""
    profile = as_object(text)
    numbers = {key: _positive(profile.get(key)) for key in INFO_KEYS}
    begun = max((float(size) * GIB for size in _ALLOCATED.findall(output[-MOST_OUTPUT:])), default=0.0)
    return {key: number for key, number in {**numbers, "begun": begun}.items() if number and number < math.inf and any(numbers.values())}


def measured(experiment: Experiment, file: str, output: str) -> Measured:
    """Return the speed of a trial. file: content of METRICS_FILE, "" if missing. output: output of rank 0, or of all ranks."""
    lines = [steps.plain(line[:MOST_LINE]) for line in re.split(r"[\r\n]+", output[-MOST_OUTPUT:])]
    from_file = _from_file(file)
    if from_file:
        return _with_steps(experiment, from_file, lines)
    for source, read in SHAPES.items():
        speeds = [speed for line in lines for speed in [read(line)] if speed]
        kept = _warm(speeds, experiment.config[SECTION].get("start_profile_step", 0))
        if kept:
            return Measured(_metrics(experiment, kept), source, len(kept))
    return Measured()


def _from_file(text: str) -> dict[str, float]:
    """Return the metrics of DeepSpeed's file. They count forward, backward and step, without the time between steps."""
    figures = as_object(text)
    latency, throughput = _positive(figures.get("latency")), _positive(figures.get("throughput"))
    flops = _positive(figures.get("FLOPS_per_gpu"))
    if not latency or not throughput:
        return {}
    return {THROUGHPUT: throughput, LATENCY: latency / PER_SECOND, **({FLOPS: flops} if flops else {})}


def _with_steps(experiment: Experiment, from_file: Mapping[str, float], lines: Sequence[str]) -> Measured:
    """Return the median of the step in DeepSpeed's file and of the steps in lines of timers: the file has only the last step."""
    speeds = [speed for line in lines for speed in [_timers(line)] if speed]
    kept = speeds[experiment.config[SECTION].get("start_profile_step", 0) + 1 :]  # the first is slow: operations are counted in it
    if not kept:
        return Measured(from_file, "DeepSpeed's metric file", 1)
    seconds = _median([from_file[LATENCY], *(speed.seconds for speed in kept)])
    factor = from_file[LATENCY] / seconds
    rates = {key: value * factor for key, value in from_file.items() if key != LATENCY}
    return Measured({**rates, LATENCY: seconds}, "DeepSpeed's metric file and timers", len(kept) + 1)


def _metrics(experiment: Experiment, speeds: Sequence[Speed]) -> dict[str, float]:
    tokens = [speed.tokens for speed in speeds if speed.tokens]
    if tokens:
        return dict.fromkeys((THROUGHPUT, TOKENS), _median(tokens))
    batch = float(experiment.config[TRAIN])
    seconds = _median([speed.seconds or batch / speed.samples for speed in speeds])
    samples = _median([speed.samples or batch / speed.seconds for speed in speeds])
    return {THROUGHPUT: samples, LATENCY: seconds}


def _warm(speeds: Sequence[Speed], start: int) -> list[Speed]:
    """Return the speeds after warm-up: those of steps after `start`. Without step numbers, skip the first `start` lines, but never the
    last line."""
    if any(speed.step for speed in speeds):
        return [speed for speed in speeds if speed.step > start]
    return list(speeds[start:] or speeds[-1:])


def _timers(line: str) -> Speed | None:
    match = _TIMERS.search(line)
    if not match:
        return None
    times = {name: float(value) for name, value in _TIMER.findall(match[1])}
    forward, backward = (times.get(short, times.get(long)) for short, long in (("fwd", "forward"), ("bwd", "backward")))
    if not forward or not backward or "step" not in times:
        return None
    return _speed(seconds=(forward + backward + times["step"]) / 1000)


def _deepspeed(line: str) -> Speed | None:
    reading = steps.read(line) if "SamplesPerSec" in line else None
    return _of_reading(reading) if reading and reading.shape == steps.DEEPSPEED_THROUGHPUT else None


def _megatron(line: str) -> Speed | None:
    reading = steps.read(line) if "elapsed time per iteration" in line else None
    return _of_reading(reading) if reading and reading.seconds else None


def _samples(line: str) -> Speed | None:
    return _speed(samples=steps.samples_per_second(line))


def _trainer(line: str) -> Speed | None:
    return _speed(samples=steps.average_samples_per_second(line))


def _tokens(line: str) -> Speed | None:
    return _speed(tokens=steps.tokens_per_second(line))


def _step(line: str) -> Speed | None:
    reading = steps.read(line)
    return _of_reading(reading) if reading and reading.shape not in steps.BARS else None


def _bar(line: str) -> Speed | None:
    reading = steps.read(line)
    return _of_reading(reading) if reading and reading.shape in steps.BARS else None


def _of_reading(reading: steps.Reading) -> Speed | None:
    return _speed(reading.place.step if reading.place else 0, reading.seconds or 0.0, reading.samples or 0.0)


def _speed(step: int = 0, seconds: float = 0.0, samples: float = 0.0, tokens: float = 0.0) -> Speed | None:
    known = [value for value in (seconds, samples, tokens) if value]
    return Speed(step, seconds, samples, tokens) if known and all(map(is_figure, known)) else None


SHAPES: dict[str, Callable[[str], Speed | None]] = {
    "DeepSpeed's throughput lines": _deepspeed,
    "DeepSpeed's timers": _timers,
    "Megatron's step lines": _megatron,
    "lines of samples a second": _samples,
    "the end of Hugging Face's Trainer": _trainer,
    "lines of tokens a second": _tokens,
    "lines of steps": _step,
    "a progress bar": _bar,
}


def _positive(value: Any) -> float:
    """Return a plausible number, else 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not is_figure(value):
        return 0.0
    return float(value)


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
