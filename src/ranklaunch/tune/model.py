"""Values of a search: metrics, experiments, results and settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GRID, RANDOM, MODEL = TUNERS = ("gridsearch", "random", "model_based")
THROUGHPUT, LATENCY, FLOPS = METRICS = ("throughput", "latency", "flops")
TOKENS = "tokens"  # among the metrics of a result whose throughput is in tokens

PROFILE, TRIAL, CONFIRM = KINDS = ("profile", "trial", "confirm")

OK = "ok"
OUT_OF_MEMORY = "out of memory"
FAILED = "failed"
HUNG = "hung"
NO_METRIC = "no metric"  # the program ended well, and nothing tells how fast it was
STOPPED = "stopped"  # the search itself was ended: this one is tried again at the next start
STATUSES = (OK, OUT_OF_MEMORY, FAILED, HUNG, NO_METRIC, STOPPED)


_LEAST, _MOST = 1e-100, 1e100  # sums, quotients and logarithms of what lies between are finite


def is_figure(value: float) -> bool:
    """Whether a machine can have it: samples or operations a second, seconds of a step, numbers of parameters or bytes."""
    return _LEAST < value < _MOST


@dataclass(frozen=True)
class Experiment:
    """One start of the program. name: stable from one start of the search to the next, and fit for a folder. config: complete, but for
    the paths that `ranklaunch.tune.metrics.placed` puts in once the folder is known. args: what options of the program have to be for it,
    {"--per_device_train_batch_size": "4"}."""

    name: str
    kind: str  # of KINDS
    config: Mapping[str, Any]
    nodes: int
    slots: int  # ranks on each node
    args: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """metrics: throughput in samples a second of all ranks (in tokens with TOKENS), latency in seconds a step of the optimizer, flops in
    operations a second and device; those that are known. info: of a profile run, in parameters and bytes."""

    name: str
    kind: str
    status: str  # of STATUSES
    metrics: Mapping[str, float] = field(default_factory=dict)
    info: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0  # how long the experiment took
    reason: str = ""  # in words, where it is not OK
    exit_code: int | None = None
    folder: str = ""


@dataclass(frozen=True)
class Settings:
    """What a search follows from; the same settings, seed and results make the same search. `ranklaunch.tune.autotuning.settled` makes
    them of the user's file and options."""

    config: Mapping[str, Any]  # the user's, without its section "autotuning"
    section: Mapping[str, Any] = field(default_factory=dict)  # that section
    words: tuple[str, ...] = ()  # the program's arguments
    nodes: int = 1  # of each experiment
    slots: int = 1  # ranks on each of them
    memory: int = 0  # bytes of each device; 0: unknown
    device: str = ""  # "cpu": what a profile run says of memory is of a process then, and of little use
    width: int = 1  # experiments side by side: each is chosen without the results of so many less one before it
    tuner: str = GRID
    metric: str = THROUGHPUT
    max_trials: int = 50
    early_stop: int = 5  # trials in a row without a better one, after which no other is made; 0: all are made
    fast: bool = True  # only stage, micro-batch, accumulation, offload and the user's own lists
    start_step: int = 3  # steps of the optimizer that are left out, for they warm up
    end_step: int = 13  # the last that is measured, after which the experiment ends
    seed: int = 0
    mp_size: int = 1  # ranks that share one model
    arg_mappings: Mapping[str, str] = field(default_factory=dict)  # {"train_micro_batch_size_per_gpu": "--per_device_train_batch_size"}
    info: Mapping[str, float] = field(default_factory=dict)  # of the model, where the user says it: no profile run is needed then
    confirm: bool = True  # the best is run a second time
    warnings: tuple[str, ...] = ()
    of: str = ""  # whatever else measurements depend on: the program, and how it is started

    @property
    def ranks(self) -> int:
        return self.nodes * self.slots

    @property
    def replicas(self) -> int:
        """Ranks with data of their own."""
        return max(1, self.ranks // self.mp_size)


@dataclass(frozen=True)
class Candidate:
    """A point of the space. offload: device of the optimizer's states, and "+" device of the parameters, "" where both stay: "cpu",
    "none+cpu", "cpu+nvme". others: values of lists, by the key's path: {"zero_optimization.overlap_comm": True}. reserve: slower for
    certain, tried where nothing else fits. config: complete, without "autotuning"."""

    name: str
    stage: int
    micro: int  # samples of a rank's micro-batch
    steps: int  # micro-batches of one step of the optimizer
    offload: str
    others: Mapping[str, Any]
    config: Mapping[str, Any]
    reserve: bool = False


@dataclass(frozen=True)
class Row:
    """A candidate, as tables show it. status: of STATUSES, or one of those below."""

    name: str
    stage: int
    micro: int
    steps: int
    offload: str
    others: Mapping[str, Any] = field(default_factory=dict)
    status: str = "waiting"
    value: float | None = None  # of the metric
    reason: str = ""
    seconds: float = 0.0


WAITING, RUNNING, PRUNED, LEFT = "waiting", "running", "pruned", "not tried"


def as_object(text: str) -> dict[str, Any]:
    """Of a file that a program may have been writing when it ended: {} where it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
