"""Which host should be left out the next time, and why, for those who start the job again. Only what speaks of the machine counts: a
program's own failure would find it anywhere. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ranklaunch.typed import Any
from ranklaunch.values import Value
from ranklaunch.verdict.endings import SILENT
from ranklaunch.verdict.model import ELSEWHERE, Verdict

_OF_PROGRAM = ("it raised an exception", "an exception has ended a thread of it")  # as a hang is put down to a rank for that


class SuspectHost(Value):
    """host: as the platform calls it. node: its index in this job. why: one sentence."""

    host: str
    node: int
    why: str


def suspect(verdict: Verdict, hosts: Sequence[str], hang: Mapping[str, Any] | None = None) -> SuspectHost | None:
    """hosts: of the job's nodes, in order. hang: what the verdict says of one that stood at the end."""
    if verdict.outcome == "succeeded":
        return None
    found = _by_error(verdict) or _by_silence(verdict) or _by_hang(hang or {}, len(hosts))
    if not found or not 0 <= found[0] < len(hosts) or not hosts[found[0]]:
        return None
    return SuspectHost(hosts[found[0]], *found)


def _by_error(verdict: Verdict) -> tuple[int, str] | None:
    """One that is known to need another host."""
    error = verdict.culprit.error if verdict.culprit else None
    if not verdict.culprit or not error or error.retry != ELSEWHERE:
        return None
    return verdict.culprit.node, f"{error.name}: {error.meaning}"


def _by_silence(verdict: Verdict) -> tuple[int, str] | None:
    """A node that was lost, or node 0, where it was cut off from all others."""
    found = None if verdict.culprit else SILENT.match(verdict.reason)
    return (int(found["node"]), verdict.reason) if found else None


def _by_hang(hang: Mapping[str, Any], nodes: int) -> tuple[int, str] | None:
    """Where all whom it may be put down to are on one of several nodes."""
    suspects = hang.get("suspects", ())
    on = {each["node"] for each in suspects}
    if len(on) != 1 or nodes < 2 or suspects[0]["why"].startswith(_OF_PROGRAM):
        return None
    ranks = ", ".join(str(each["rank"]) for each in suspects[:8])
    return on.pop(), f"the job hung, by rank {ranks}: {suspects[0]['why']}"
