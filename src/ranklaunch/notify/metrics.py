"""How a node of a job stands, as metrics. Pure: what is known goes in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ranklaunch.openmetrics import COUNTER, Family, text

PHASES = ("starting", "running", "done", "stopping", "ended")
STATES = ("running", "sleeping", "uninterruptible", "stopped", "traced", "ended", "gone", "unknown")
Rank = Mapping[str, Any]


@dataclass(frozen=True)
class Standing:
    """labels: of all samples. info: texts. ranks: of this node, and those of others that write through it, as its desk tells.
    exit_code: None while the job runs. began, now: seconds since 1970."""

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


def shown(standing: Standing) -> str:
    return text(_families(standing), standing.labels)


def _families(standing: Standing) -> Iterator[Family]:
    yield Family("ranklaunch_job_info", "what the job is; always 1", [(standing.info, 1)])
    yield from _of_job(standing)
    yield from _of_node(standing)
    yield from _of_ranks(standing.ranks)


def _of_job(standing: Standing) -> Iterator[Family]:
    yield Family("ranklaunch_attempt", "which start of the job this is, from 1", [({}, standing.attempt)])
    yield Family("ranklaunch_restarts", "restarts of all ranks in place, in this attempt", [({}, standing.restarts)], COUNTER)
    yield Family("ranklaunch_nodes", "nodes that take part", [({}, standing.nodes)])
    yield Family("ranklaunch_world_size", "ranks of all nodes", [({}, standing.world_size)])
    yield Family("ranklaunch_hang_suspected", "1 where an alarm stands that nothing moves", [({}, int(standing.hangs))])
    yield Family("ranklaunch_slow", "1 while a step takes much longer than before", [({}, int(standing.slow))])
    yield Family("ranklaunch_start_time_seconds", "when this attempt began, since 1970", [({}, standing.began)], unit="seconds")
    yield Family("ranklaunch_written_time_seconds", "when this file was written, since 1970", [({}, standing.now)], unit="seconds")
    yield Family("ranklaunch_exit_code", "of the job; not there while it runs", _one(standing.exit_code))


def _of_node(standing: Standing) -> Iterator[Family]:
    phases = [({"phase": phase}, int(phase == standing.phase)) for phase in PHASES]
    yield Family("ranklaunch_phase", "1 for what this node does", phases)
    states = Counter(rank["state"] for rank in standing.ranks if "state" in rank)
    counts = [({"state": state}, states[state]) for state in dict.fromkeys((*STATES, *states))]
    yield Family("ranklaunch_ranks", "ranks of this node, by state", counts)
    steps = [rank["step"] for rank in standing.ranks if "step" in rank]
    yield Family("ranklaunch_step", "the highest step of a rank that writes here", _one(max(steps, default=None)))
    seconds = [rank["step_s"] for rank in standing.ranks if rank.get("step_s") is not None]
    mean = sum(seconds) / len(seconds) if seconds else None
    yield Family("ranklaunch_step_time_seconds", "of one step, on average over the ranks that write here", _one(mean), unit="seconds")


def _one(value: float | None) -> list[tuple[Mapping[str, Any], float]]:
    return [] if value is None else [({}, value)]


def _of_ranks(ranks: Sequence[Rank]) -> Iterator[Family]:
    def each(key: str, factor: float = 1) -> Iterable[tuple[Mapping[str, Any], float]]:
        return [({"rank": rank["rank"]}, rank[key] * factor) for rank in ranks if rank.get(key) is not None]

    yield Family("ranklaunch_rank_step", "the last that its output told of", each("step"))
    yield Family("ranklaunch_rank_step_time_seconds", "of one step, on average", each("step_s"), unit="seconds")
    yield Family("ranklaunch_rank_output_bytes", "that it has written", each("output_bytes"), COUNTER, "bytes")
    yield Family("ranklaunch_rank_silent_seconds", "since it wrote last", each("last_output_s"), unit="seconds")
    yield Family("ranklaunch_rank_cpu_seconds", "of its process tree", each("cpu_s"), COUNTER, "seconds")
    yield Family("ranklaunch_rank_resident_bytes", "of its process tree", each("rss_kb", 1024), unit="bytes")


class Growing:
    """What only grows, of ranks that are started once: a process that has ended takes nothing of it away."""

    KEYS = ("cpu_s", "output_bytes")

    def __init__(self) -> None:
        self._most: dict[tuple[int, str], float] = {}

    def kept(self, ranks: Iterable[Rank]) -> list[Rank]:
        return [
            {**rank, **{key: self._grown(rank["rank"], key, rank[key]) for key in self.KEYS if rank.get(key) is not None}} for rank in ranks
        ]

    def _grown(self, rank: int, key: str, value: float) -> float:
        most = self._most[rank, key] = max(value, self._most.get((rank, key), 0))
        return most
