"""What jobs leave in a log folder, written by ranklaunch's own writers with a clock that a test sets."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import helpers
import pytest

from ranklaunch.diagnose.failures import inner_report
from ranklaunch.plan.model import as_json
from ranklaunch.supervise import judge, record
from ranklaunch.supervise.record import Record
from ranklaunch.verdict import folders
from ranklaunch.verdict.model import Culprit, Judgement, Verdict

BEGAN = 1_790_000_000.0  # seconds since 1970
DOWN_S = 5_000.0  # that the machine had been up


class LeftBehind:
    """at: seconds since the beginning. fast: by which a node's wall clock is ahead."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, nodes: int = 2, slots: int = 2) -> None:
        self.folder = folder
        self.at = 0.0
        self.fast = 0.0
        self._nodes, self._slots = nodes, slots
        monkeypatch.setattr(record, "time", Clock(self))

    def node(self, node: int = 0, attempt: int = 1, restart: int = 0) -> OnNode:
        return OnNode(self, node, attempt, restart)

    def plan(self, node: int, attempt: int, restart: int) -> dict[str, Any]:
        hosts = ",".join(f"h{i}" for i in range(self._nodes))
        env = {
            "PATH": "/usr/bin", "RANKLAUNCH_NODES": str(self._nodes), "RANKLAUNCH_SLOTS": str(self._slots), "RANKLAUNCH_NODE": str(node),
            "RANKLAUNCH_HOSTS": hosts, "RANKLAUNCH_ATTEMPT": str(attempt), "RANKLAUNCH_JOB_NAME": "bert",
        }  # fmt: skip
        planned = helpers.plan(env, method="spawn", python="python3")
        return as_json(replace(planned, job=replace(planned.job, restart=restart)))


class Clock:
    """The module `time`, for a writer in a folder of LeftBehind."""

    strftime = staticmethod(time.strftime)
    gmtime = staticmethod(time.gmtime)

    def __init__(self, left: LeftBehind) -> None:
        self._left = left

    def monotonic(self) -> float:
        return DOWN_S + self._left.at

    def time_ns(self) -> int:
        return int((BEGAN + self._left.at + self._left.fast) * 1e6) * 1000


class OnNode:
    """One node in one round."""

    def __init__(self, left: LeftBehind, node: int, attempt: int, restart: int) -> None:
        self._left = left
        self.number = node
        self.attempt = folders.attempt(folders.node(str(left.folder), node), attempt)
        self.folder = Path(folders.restart(self.attempt, restart))
        self._record = Record(str(self.folder), attempt=self.attempt if restart else "")
        self._record.open()
        self._restart, self._attempt = restart, attempt
        self.ranks = range(node * left._slots, (node + 1) * left._slots)

    def tell(self, at: float, event: str, **details: Any) -> OnNode:
        self._left.at = at
        self._record.event(event, **details)
        return self

    def starts(self, at: float, released: float, launched: float) -> OnNode:
        self.tell(at, "read", platform="local", method="spawn", why="", attempt=self._attempt, container_s=None)
        self._record.plan(self._left.plan(self.number, self._attempt, self._restart))
        self.tell(at, "wait", kind="muster", what="2 nodes", timeout_s=600.0)
        self.tell(released, "released", late="all are here", clock_s=-self._left.fast)
        self.tell(released, "waited", kind="muster", what="2 nodes", seconds=released - at)
        for rank in self.ranks:
            self.tell(launched, "spawn", name=f"rank {rank}", rank=rank, pid=100 + rank)
        return self

    def steps(self, at: float, step: int, ago_s: float = 0.0) -> OnNode:
        return self.tell(at, "steps", ranks=[[self.ranks[0], self.ranks[-1], 0, step, 100, ago_s]])

    def stacks(self, **frames: list[str]) -> OnNode:
        """Evidence of ranks that stand in these functions, as rank_0=["step", "main"]."""
        folder = self.folder / "evidence" / f"node_{self.number}" / "1"
        folder.mkdir(parents=True)
        ranks = {
            rank.partition("_")[2]: {"state": "S", "stack": [f'File "train.py", line {i} in {name}' for i, name in enumerate(names)]}
            for rank, names in frames.items()
        }
        (folder / "summary.json").write_text(json.dumps({"ranks": ranks}))
        return self

    def ends(self, decided: float, ended: float, outcome: str = "succeeded", code: int = 0, by: str = "rank 1") -> OnNode:
        self.tell(decided, "ending", outcome=outcome, by=by)
        return self.tell(ended, "end", outcome=outcome, exit_code=code)

    def verdict(self, outcome: str = "succeeded", code: int = 0, reason: str = "all is well", **more: Any) -> OnNode:
        self._record.verdict(_verdict(outcome, code, reason, more))
        return self

    def round(self, reason: str, decision: str) -> OnNode:
        self._record.of_round(_verdict("failed", 1, reason, {}), {"round": self._restart, "decision": decision, "reason": reason})
        return self

    def close(self) -> None:
        self._record.close()


def _verdict(outcome: str, code: int, reason: str, more: Mapping[str, Any]) -> Verdict:
    given = dict(more)
    culprit = given.pop("culprit", None)
    failures, notes, victims = given.pop("failures", ()), given.pop("notes", ()), given.pop("victims", ())
    judgement = Judgement(outcome, code, reason, culprit, failures, notes)
    return Verdict(judgement, victims, record.now(), record.now(), given)


def culprit(rank: int = 1, node: int = 0, **more: Any) -> Culprit:
    return Culprit(node, rank, 100 + rank, more.pop("exit_code", 1), more.pop("signal", None), more.pop("out_of_memory", False),
                   more.pop("last_lines", ("what a pity",)), f"rank {rank}", **more)  # fmt: skip


def told(text: str, code: int, program: str = "./train.sh", ranks: int = 1) -> tuple[str, str]:
    """The line of the entry that explains it, and what its own launcher says where that is the reason."""
    plan = helpers.plan(helpers.local(ranks), method="plain" if ranks == 1 else "spawn", program=program)
    error = judge.known_error(text.encode(), plan, code=code)
    return (error.line if error else ""), inner_report(text)
