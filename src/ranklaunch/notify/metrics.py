"""Metrics of a node: their families, and their file. The HTTP endpoint is in endpoint.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ranklaunch.openmetrics import COUNTER, GAUGE, Family, Samples, prometheus_text, text
from ranklaunch.system import disk
from ranklaunch.system.bounded import Apart
from ranklaunch.system.loop import Loop

PHASES = ("starting", "running", "done", "stopping", "ended")
STATES = ("running", "sleeping", "uninterruptible", "stopped", "traced", "ended", "gone", "unknown")
LAST_S = 2.0  # for the last write
Rank = Mapping[str, Any]

# Metrics of the node: name after ranklaunch_, help, field of Standing, kind, unit.
_OF_NODE = (
    ("attempt", "number of this start of the job, from 1", "attempt", GAUGE, ""),
    ("restarts", "restarts of all ranks in place, in this attempt", "restarts", COUNTER, ""),
    ("nodes", "nodes of the job", "nodes", GAUGE, ""),
    ("world_size", "ranks of all nodes", "world_size", GAUGE, ""),
    ("hang_suspected", "1 while there is a hang alarm", "hangs", GAUGE, ""),
    ("slow", "1 while a step takes much longer than before", "slow", GAUGE, ""),
    ("start_time_seconds", "start of this attempt, since 1970", "began", GAUGE, "seconds"),
    ("written_time_seconds", "time of these metrics, since 1970", "now", GAUGE, "seconds"),
    ("exit_code", "exit code of the job; absent while it runs", "exit_code", GAUGE, ""),
)
# Metrics of each rank: the same columns, with the key in Standing.ranks.
_OF_RANKS = (
    ("step", "last step in the rank's output", "step", GAUGE, ""),
    ("step_time_seconds", "average time of one step", "step_s", GAUGE, "seconds"),
    ("output_bytes", "bytes that the rank has written", "output_bytes", COUNTER, "bytes"),
    ("silent_seconds", "time since the rank's last output", "last_output_s", GAUGE, "seconds"),
    ("cpu_seconds", "CPU time of the rank's process tree", "cpu_s", COUNTER, "seconds"),
    ("resident_bytes", "resident memory of the rank's process tree", "rss_kb", GAUGE, "bytes"),
)


@dataclass(frozen=True)
class Standing:
    """State of a node. labels: of all samples. info: labels of ranklaunch_job_info. ranks: as rank_states.ranks returns them, with ranks of
    other nodes whose output is read here. exit_code: None while the job runs. began, now: seconds since 1970."""

    labels: Mapping[str, Any]
    info: Mapping[str, Any]
    phase: str
    ranks: Sequence[Rank]
    nodes: int
    world_size: int
    attempt: int
    restarts: int
    hangs: bool
    began: float
    now: float
    exit_code: int | None = None
    slow: bool = False


def shown(standing: Standing, *, openmetrics: bool = True) -> str:
    """Return the metrics in the form of OpenMetrics, or in Prometheus' own."""
    form = text if openmetrics else prometheus_text
    return form(_families(standing), standing.labels)


def _families(standing: Standing) -> Iterator[Family]:
    ranks = standing.ranks
    yield Family("ranklaunch_job_info", "labels of the job; always 1", [(standing.info, 1)])
    for name, help_text, field, kind, unit in _OF_NODE:
        yield Family(f"ranklaunch_{name}", help_text, _one(getattr(standing, field)), kind, unit)
    phases = [({"phase": phase}, phase == standing.phase) for phase in PHASES]
    yield Family("ranklaunch_phase", "1 for the present phase of this node", phases)
    states = Counter(rank["state"] for rank in ranks if "state" in rank)
    counts = [({"state": state}, states[state]) for state in dict.fromkeys((*STATES, *states))]
    yield Family("ranklaunch_ranks", "ranks of this node, by state", counts)
    step = max((rank["step"] for rank in ranks if "step" in rank), default=None)
    yield Family("ranklaunch_step", "highest step of the ranks whose output this node reads", _one(step))
    seconds = [rank["step_s"] for rank in ranks if rank.get("step_s") is not None]
    mean = sum(seconds) / len(seconds) if seconds else None
    yield Family(
        "ranklaunch_step_time_seconds", "time of one step, average of the ranks whose output this node reads", _one(mean), unit="seconds"
    )
    for name, help_text, key, kind, unit in _OF_RANKS:
        factor = 1024 if key == "rss_kb" else 1
        samples = [({"rank": rank["rank"]}, rank[key] * factor) for rank in ranks if rank.get(key) is not None]
        yield Family(f"ranklaunch_rank_{name}", help_text, samples, kind, unit)


def _one(value: float | None) -> Samples:
    return [] if value is None else [({}, value)]


class Growing:
    """Counters that never decrease within a round, although a process that ends is missing from the sums."""

    KEYS = ("cpu_s", "output_bytes")

    def __init__(self) -> None:
        self._most: dict[tuple[int, str], float] = {}

    def kept(self, ranks: Iterable[Rank]) -> list[Rank]:
        """Return the ranks, with the largest value so far of each counter."""
        return [{**rank, **{key: self._grown(rank, key) for key in self.KEYS if rank.get(key) is not None}} for rank in ranks]

    def _grown(self, rank: Rank, key: str) -> float:
        place = rank["rank"], key
        self._most[place] = max(rank[key], self._most.get(place, 0))
        return self._most[place]


class MetricsFile:
    """File of metrics. If its mount does not answer, the job continues and nothing is written.

    say: prints a console line, once until a write succeeds again.
    """

    def __init__(self, path: str, loop: Loop, say: Callable[[str], None]) -> None:
        self._path = path
        self._loop = loop
        self._say = say
        self._writing: Apart | None = None
        self._troubled = False

    def write(self, content: str, *, last: bool) -> None:
        """Write the file in a child process. last: wait for the child process."""
        if self._writing:
            self.trouble(f"{self._path}: its file system does not answer")
            if not last:
                return
            self._end(0.0)
        try:
            self._writing = Apart(partial(_written, self._path, content))
        except OSError as error:  # no process or descriptor left
            self.trouble(f"{self._path}: {error.strerror}")
            return
        self._loop.on_readable(self._writing.readable, self._hear)
        if last:
            self._hear()

    def trouble(self, reason: str) -> None:
        """Print the reason that metrics are not written, unless one was printed since the last success."""
        if not self._troubled:
            self._say(f"metrics: {reason}")
        self._troubled = True

    def _hear(self) -> None:
        answer = self._end(LAST_S)
        if answer is None:
            self.trouble(f"{self._path}: its file system does not answer")
        elif answer:
            self.trouble(answer.decode())
        else:
            self._troubled = False

    def _end(self, seconds: float) -> bytes | None:
        assert self._writing
        writing, self._writing = self._writing, None
        self._loop.forget(writing.readable)
        return writing.answer(seconds)


def _written(path: str, content: str) -> bytes:
    """Write the file. Return the reason of a failure, b"" for success."""
    try:
        disk.write(path, content.encode(), 0o644)
    except (OSError, disk.NotRegularError) as error:
        return f"{type(error).__name__}: {error}".encode()
    return b""
