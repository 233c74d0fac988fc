"""Everything that will happen on one node, as values: printed by `plan`, executed by `run`, compared by the golden tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ranklaunch import redact
from ranklaunch.job import Job
from ranklaunch.settings import Candidate, Reading

SCHEMA = "ranklaunch.plan/1"


@dataclass(frozen=True)
class File:
    """A file to write before anything starts. mode: octal digits."""

    path: str
    text: str
    mode: str = "0600"


@dataclass(frozen=True)
class Wait:
    """Something that must be true before launch. kind: "rank table", "hosts" or "muster"; what: the path, the names with commas, or
    who meets where; seen: what there is in its place so far."""

    kind: str
    what: str
    timeout_s: float
    seen: str = ""


@dataclass(frozen=True)
class Process:
    """One process that ranklaunch starts and supervises.

    rank and local_rank: None for a launcher (torchrun), which starts the ranks itself, and for preparing steps.
    env: values added to the inherited environment; unset: inherited names removed from it. cwd: None for the inherited folder.
    log: file that receives its output; copies: further files that do. tag: what stands before each of its lines on the console.
    node: index of the node that it plays, where that is not this one. ranks_below: the ranks are its children, so signals that are
    meant for ranks go to these. failing: text in its output that says that a rank has failed and that it ends the others; "" where
    its own exit is what tells.
    """

    name: str
    argv: tuple[str, ...]
    log: str
    rank: int | None = None
    local_rank: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    cwd: str | None = None
    tag: str = ""
    copies: tuple[str, ...] = ()
    node: int | None = None
    ranks_below: bool = False
    failing: str = ""


@dataclass(frozen=True)
class RankOutputs:
    """Where a launcher's own ranks write, so that their lines can be told apart: files below `folder`, one folder per attempt and
    local rank, in torchrun's layout. logs: file and tag of each local rank."""

    folder: str
    logs: tuple[tuple[str, str], ...]
    first_rank: int


@dataclass(frozen=True)
class Limits:
    """Seconds. wait: each wait before launch. grace: from the first signal to SIGKILL."""

    wait_s: float
    grace_s: float


@dataclass(frozen=True)
class Muster:
    """Where and how the nodes of the job meet before launch and stay in touch after it (docs/muster.md).

    node, hosts: this node's index and the names of all, in the platform's order, which a rank table may change afterwards. port: node
    0's. timeout_s: how long all wait for the last. lost_after_s: silence of a host's network after which the node
    counts as lost. end_timeout_s: how long a node whose ranks have succeeded waits for the others. secret: where the key comes from,
    "" where there is none and it is derived from the job's name. facts: what must be the same on all nodes; allowed: facts that
    may differ.
    """

    node: int
    hosts: tuple[str, ...]
    port: int
    timeout_s: float
    lost_after_s: float
    end_timeout_s: float
    secret: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """gather: steps that bring facts for planning, which is then done anew. prepare: steps run to their end, in order, before the
    processes. outputs: where a launcher's ranks write. muster: None for one node, or where it is switched off."""

    job: Job
    method: str
    why: str
    processes: tuple[Process, ...]
    limits: Limits
    files: tuple[File, ...] = ()
    services: tuple[Process, ...] = ()
    waits: tuple[Wait, ...] = ()
    gather: tuple[Process, ...] = ()
    prepare: tuple[Process, ...] = ()
    outputs: RankOutputs | None = None
    muster: Muster | None = None
    values: tuple[Reading, ...] = ()
    warnings: tuple[str, ...] = ()


def as_json(plan: Plan) -> dict[str, Any]:
    """The plan as contract-bound JSON (schema ranklaunch.plan/1): keys are only ever added. Secrets are hidden."""
    job = plan.job
    return {
        "schema": SCHEMA,
        "platform": job.platform,
        "method": plan.method,
        "why": plan.why,
        "job": {
            "name": job.name,
            "attempt": job.attempt,
            "world_size": job.world_size,
            "node_index": job.node_index,
            "accelerator": job.accelerator,
            "nodes": [node._asdict() for node in job.nodes],
        },
        "files": [dataclasses.asdict(file) for file in plan.files],
        "services": [_process(service) for service in plan.services],
        "waits": [{"for": wait.kind, "what": wait.what, "timeout_s": wait.timeout_s, "seen": wait.seen} for wait in plan.waits],
        "muster": _muster(plan.muster) if plan.muster else None,
        "gather": [_process(step) for step in plan.gather],
        "prepare": [_process(step) for step in plan.prepare],
        "processes": [_process(process) for process in plan.processes],
        "rank_logs": [{"rank": plan.outputs.first_rank + i, "log": log, "tag": tag} for i, (log, tag) in enumerate(plan.outputs.logs)]
        if plan.outputs
        else [],
        "limits": dataclasses.asdict(plan.limits),
        "values": [_reading(reading) for reading in plan.values],
        "warnings": list(plan.warnings),
    }


def _muster(muster: Muster) -> dict[str, Any]:
    values = dataclasses.asdict(muster)
    return {"host": values.pop("hosts")[0], **values, "allowed": list(muster.allowed)}


def _process(process: Process) -> dict[str, Any]:
    return {
        "name": process.name,
        "rank": process.rank,
        "local_rank": process.local_rank,
        "argv": list(redact.argv(process.argv)),
        "env": redact.environment(process.env),
        "unset": list(process.unset),
        "cwd": process.cwd,
        "log": process.log,
        "copies": list(process.copies),
        "tag": process.tag,
    }


def _reading(reading: Reading) -> dict[str, Any]:
    return {
        "name": reading.name,
        "value": reading.value,
        "source": reading.source,
        "overrides": [_candidate(candidate) for candidate in reading.overrides],
    }


def _candidate(candidate: Candidate) -> dict[str, str]:
    return {"source": candidate.source, "value": candidate.value}
