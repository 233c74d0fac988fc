"""The names of what a job leaves behind, for those who write it and those who look for it. Paths are text; nothing here touches a disk.

    LOGS[/job_<id>][/node_<i>]/attempt_<k>/    plan.json, events.jsonl, verdict.json, rank_<r>.log, and what launchers keep
        evidence/node_<i>/<n>/                 what was taken the n-th time

The middle two are there where several jobs or nodes may have one log folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ranklaunch.files import join

PLAN, EVENTS, VERDICT = "plan.json", "events.jsonl", "verdict.json"
EVIDENCE = "evidence"
ATTEMPTS, OF_NODES = "attempt_*", "node_*/attempt_*"  # for people

_ATTEMPT = re.compile("attempt_([0-9]{1,6})")


def job(logs: str, name: str) -> str:
    """name: the id of a job, fit for a file."""
    return join(logs, f"job_{name}")


def node(logs: str, index: int) -> str:
    return join(logs, f"node_{index}")


def attempt(logs: str, number: int) -> str:
    """logs: the folder of one node, or of all where each has a disk of its own."""
    return join(logs, f"attempt_{number}")


def rank_log(attempt: str, rank: int) -> str:
    return join(attempt, f"rank_{rank}.log")


def evidence(attempt: str, node: int) -> str:
    """Of one node, with a folder in it for each time that it was taken."""
    return join(join(attempt, EVIDENCE), f"node_{node}")


def attempts(names: Iterable[str]) -> list[int]:
    """The numbers of the attempts among the names in a folder, ascending."""
    return sorted(int(found[1]) for found in map(_ATTEMPT.fullmatch, names) if found)


def newest(names: Iterable[str]) -> int:
    """The number of the last attempt among the names in a folder, 0 where there is none."""
    return max(attempts(names), default=0)
