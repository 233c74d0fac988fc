"""Which host is left out the next time: by what speaks of the machine, never by a program's own failure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import helpers

from ranklaunch.hangs import suspicion
from ranklaunch.muster import liveness
from ranklaunch.verdict import blame
from ranklaunch.verdict.model import Culprit, Judgement, KnownError

HOSTS = ("h0", "h1", "h2")
ERROR = KnownError("ecc", "cause", "a line", "memory of the device is broken", "replace it", "a source", "elsewhere")
CULPRIT = Culprit(1, 4, 12, 1, None, False, (), "rank 4", "h1", "", ERROR)
FAILED = Judgement("failed", 1, "rank 4 on node 1 (h1) exited with code 1", CULPRIT)
LOST = replace(FAILED, culprit=None, reason=liveness.suspect(2, "h2", True, 0.0, " for 30 s").reason)
CUT_OFF = replace(FAILED, culprit=None, reason=liveness.cut_off(0, "h0", 2, 0.0, 1.0, 20.0).reason)
KILLED = replace(FAILED, reason=liveness.suspect(2, "h2", False, 0.0).reason, culprit=liveness.suspect(2, "h2", False, 0.0).culprit)
RAISED = [suspicion.Known(0, 0), suspicion.Known(1, 1, raised=suspicion.Raised(1, 9.0, False, "Traceback ...", "ValueError: label 1003"))]
HUNG = replace(FAILED, culprit=None, reason="the job hangs")


def hang(*nodes: int, rule: str = "stopped-or-stuck") -> dict[str, Any]:
    return {"suspects": [{"rank": 10 + node, "node": node, "why": "it sleeps", "file": None, "rule": rule} for node in nodes]}


def before(*nodes: int, rule: str = "stopped-or-stuck") -> list[dict[str, Any]]:
    """What ended a round before."""
    return [{"round": 0, **hang(*nodes, rule=rule)}]


TWICE = ("h2", 2, "the job hung in 2 rounds, by rank 12, 12: it sleeps")
CASES = {
    "an error that needs another host": (FAILED, HOSTS, None, ("h1", 1, "ecc: memory of the device is broken")),
    "one that does not": (replace(FAILED, culprit=replace(CULPRIT, error=replace(ERROR, retry="no"))), HOSTS, None, None),
    "unknown": (replace(FAILED, culprit=replace(CULPRIT, error=None)), HOSTS, None, None),
    "a host that does not answer": (LOST, HOSTS, None, ("h2", 2, LOST.reason)),
    "node 0, cut off from all others": (CUT_OFF, HOSTS, None, ("h0", 0, CUT_OFF.reason)),
    "without a name": (LOST, ("h0", "h1", ""), None, None),
    "a container that was killed": (KILLED, HOSTS, None, None),
    "a hang by one node": (HUNG, HOSTS, hang(2, 2), None),
    "a hang by one node in two rounds": (HUNG, HOSTS, hang(2, 2), TWICE, before(2)),
    "hangs by two nodes": (HUNG, HOSTS, hang(2, 2), None, before(1)),
    "a hang by several": (HUNG, HOSTS, hang(1, 2), None, before(1, 2)),
    "a hang of one node's job": (HUNG, HOSTS[:1], hang(0), None, before(0)),
    "a hang that somebody stopped": (replace(HUNG, outcome="stopped"), HOSTS, hang(2, 2), TWICE, before(2)),
    "a stack of the program": (HUNG, HOSTS, hang(2, rule="outside-collective"), None, before(2)),
    "a stack of the program before": (HUNG, HOSTS, hang(2), None, before(2, rule="outside-collective")),
    "a hang by an exception": (
        HUNG, HOSTS, {"suspects": [suspicion.suspects(RAISED)[0]._asdict()]}, None,
    ),
    "a success": (replace(HUNG, outcome="succeeded"), HOSTS, hang(1), None),
    "a node that there is not": (replace(LOST, reason="node 7 does not answer: it is down"), HOSTS, None, None),
}  # fmt: skip


def test_which_host_is_left_out() -> None:
    def check(judgement: Judgement, hosts: tuple[str, ...], hang: Any, told: tuple[str, int, str] | None, restarts: Any = ()) -> None:
        found = blame.host_to_avoid(judgement, hosts, hang, restarts)
        assert (found and (found.host, found.node, found.why)) == told

    helpers.check_each(check, CASES)
