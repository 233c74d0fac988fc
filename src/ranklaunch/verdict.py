"""What happened, as a value: who was the culprit, who the victims, and why."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

SCHEMA = "ranklaunch.verdict/1"


@dataclass(frozen=True)
class Culprit:
    """The process whose failure decided. exit_code: 128+N when signal N killed it. rank: None for a launcher or a preparing step."""

    node: int
    rank: int | None
    pid: int | None
    exit_code: int
    signal: str | None
    out_of_memory: bool
    last_lines: tuple[str, ...]
    name: str = ""


@dataclass(frozen=True)
class Victim:
    """A process that ranklaunch ended because of the culprit. signal: the last one it was sent."""

    node: int
    rank: int | None
    signal: str | None
    name: str = ""


@dataclass(frozen=True)
class Verdict:
    """outcome: succeeded, failed or stopped. started, ended: UTC, ISO 8601."""

    outcome: str
    exit_code: int
    reason: str
    culprit: Culprit | None
    victims: tuple[Victim, ...]
    started: str
    ended: str


@dataclass(frozen=True)
class Failure:
    """What a launcher's own output says of the rank that failed first.

    exit_code: 128+N when signal N killed it. node: None for the node that ran it. last_lines: of that rank, where the output has
    them. victims: (rank, signal) of those that the launcher ended.
    """

    rank: int | None
    exit_code: int
    signal: int = 0
    pid: int | None = None
    message: str = ""
    node: int | None = None
    last_lines: tuple[str, ...] = ()
    victims: tuple[tuple[int, int], ...] = ()


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Contract-bound JSON (schema ranklaunch.verdict/1): keys are only ever added."""
    return {"schema": SCHEMA, **dataclasses.asdict(verdict)}
