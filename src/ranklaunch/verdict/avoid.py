"""Which host should be left out the next time, and why, for those who start the job again. Only what speaks of the machine counts: a
program's own failure would find it anywhere. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ranklaunch.verdict.endings import SILENT
from ranklaunch.verdict.model import ELSEWHERE, Verdict

# Rules of ranklaunch.hangs.suspicion that may speak of a machine. A stack or an exception speaks of the program.
OF_MACHINE = (
    "missing-in-collective", "behind-in-collectives", "named-by-timeouts", "stopped-or-stuck", "gone", "unlike-in-cpu", "behind-in-steps",
    "recorder-without-answer",
)  # fmt: skip


@dataclass(frozen=True)
class SuspectHost:
    """host: as the platform calls it. node: its index in this job. why: one sentence."""

    host: str
    node: int
    why: str


def suspect(
    verdict: Verdict, hosts: Sequence[str], hang: Mapping[str, Any] | None = None, restarts: Sequence[Mapping[str, Any]] = ()
) -> SuspectHost | None:
    """Return the host to leave out, None if nothing speaks of one. hosts: of the job's nodes, in order. hang: the hang that stood at the
    end, as in verdict.json. restarts: what ended earlier rounds, as there."""
    if verdict.outcome == "succeeded":
        return None
    found = _by_error(verdict) or _by_silence(verdict) or _by_hang(hang or {}, restarts, len(hosts))
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


def _by_hang(hang: Mapping[str, Any], restarts: Sequence[Mapping[str, Any]], nodes: int) -> tuple[int, str] | None:
    """Return the one node of all suspects of a hang, if a hang of an earlier round had suspects there as well, and not by their stacks."""
    suspects = hang.get("suspects", ())
    node = _node_of(suspects)
    before = [each.get("round") for each in restarts if _node_of(each.get("suspects", ())) == node]
    if node is None or nodes < 2 or not before:
        return None
    ranks = ", ".join(str(each["rank"]) for each in suspects[:8])
    return node, f"the job hung in {len(before) + 1} rounds, by rank {ranks}: {suspects[0]['why']}"


def _node_of(suspects: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the node of all these suspects, None for several, and where a rule may speak of the program."""
    found = {each["node"] for each in suspects if each.get("rule") in OF_MACHINE}
    return found.pop() if len(found) == 1 and all(each.get("rule") in OF_MACHINE for each in suspects) else None
