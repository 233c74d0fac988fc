"""Values of a search: metrics, experiments, results and settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GRID, RANDOM, MODEL = TUNERS = ("gridsearch", "random", "model_based")
THROUGHPUT, LATENCY, FLOPS = METRICS = ("throughput", "latency", "flops")
TOKENS = "tokens"  # a further metric of a result whose throughput is in tokens

PROFILE, TRIAL, CONFIRM = KINDS = ("profile", "trial", "confirm")

OK = "ok"
OUT_OF_MEMORY = "out of memory"
FAILED = "failed"
HUNG = "hung"
NO_METRIC = "no metric"  # the program succeeded, and printed no speed
STOPPED = "stopped"  # together with the search; tried again at the next start
STATUSES = (OK, OUT_OF_MEMORY, FAILED, HUNG, NO_METRIC, STOPPED)


_LEAST, _MOST = 1e-100, 1e100  # sums, quotients and logarithms of numbers between them are finite


def is_figure(value: float) -> bool:
    """Return True for a plausible measurement: samples or operations a second, seconds of a step, numbers of parameters or bytes."""
    return _LEAST < value < _MOST


@dataclass(frozen=True)
class Experiment:
    """One start of the program. name: equal in each start of the search, and fit for a folder.
    config: complete, without the paths that `ranklaunch.tune.metrics.placed` adds. args: options of
    the program that must follow the configuration, {"--per_device_train_batch_size": "4"}."""

    name: str
    kind: str  # of KINDS
    config: Mapping[str, Any]
    nodes: int
    slots: int  # ranks on each node
    args: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """Result of an experiment. metrics: the known values of throughput (samples a second of all ranks, or
    tokens with TOKENS), latency (seconds a step of the optimizer) and flops (operations a second and
    device). info: facts of the model from a profile run, in parameters and bytes."""

    name: str
    kind: str
    status: str  # of STATUSES
    metrics: Mapping[str, float] = field(default_factory=dict)
    info: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0  # duration of the experiment
    reason: str = ""  # text for users if the status is not OK
    exit_code: int | None = None
    folder: str = ""


@dataclass(frozen=True)
class Settings:
    """Settings of a search. Equal settings, seed and results make equal searches.
    `ranklaunch.tune.autotuning.settled` makes them from the user's file and options."""

    config: Mapping[str, Any]  # the user's configuration without the section "autotuning"
    section: Mapping[str, Any] = field(default_factory=dict)  # the section "autotuning"
    words: tuple[str, ...] = ()  # the program's arguments
    nodes: int = 1  # of each experiment
    slots: int = 1  # ranks on each of these nodes
    memory: int = 0  # bytes of each device; 0: unknown
    device: str = ""  # "cpu": a profile run measures memory of a process, which is of little use
    width: int = 1  # experiments side by side: each is chosen without the results of the last width - 1
    tuner: str = GRID
    metric: str = THROUGHPUT
    max_trials: int = 50
    early_stop: int = 5  # the search ends after so many trials in a row without a better one; 0: never
    fast: bool = True  # try only stage, micro-batch, accumulation, offload and the user's lists
    start_step: int = 3  # warm-up steps of the optimizer, not measured
    end_step: int = 13  # last measured step, with which the experiment ends
    seed: int = 0
    mp_size: int = 1  # ranks that share one model
    arg_mappings: Mapping[str, str] = field(default_factory=dict)  # {"train_micro_batch_size_per_gpu": "--per_device_train_batch_size"}
    info: Mapping[str, float] = field(default_factory=dict)  # the user's facts of the model, in place of a profile run
    confirm: bool = True  # run the best a second time
    warnings: tuple[str, ...] = ()
    of: str = ""  # digest of other conditions of the measurements: the program and its launcher

    @property
    def ranks(self) -> int:
        return self.nodes * self.slots

    @property
    def replicas(self) -> int:
        """Return the number of data-parallel ranks."""
        return max(1, self.ranks // self.mp_size)


@dataclass(frozen=True)
class Candidate:
    """Point of the search space. offload: device of the optimizer's states and, after "+", of the
    parameters: "" for none, "cpu", "none+cpu", "cpu+nvme". others: values from the user's lists, by the
    key's path: {"zero_optimization.overlap_comm": True}. reserve: certainly slower, and tried only if
    nothing else fits. config: complete, without "autotuning"."""

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
    """Candidate in a table. status: of STATUSES, or one of WAITING, RUNNING, PRUNED, NOT_TRIED."""

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


WAITING, RUNNING, PRUNED, NOT_TRIED = "waiting", "running", "pruned", "not tried"


def as_object(text: str) -> dict[str, Any]:
    """Return a JSON object; {} for any other text, such as a file cut off in the middle."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
