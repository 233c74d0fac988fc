"""Detection of slow jobs, on every node and on node 0.

Each node watches the steps of its first rank with printed steps: steps are synchronous, so one rank shows the pace of
the job. A node reports to node 0 when its steps become slow, and when they recover. Node 0 asks all nodes for the step
times printed by their ranks, names the slowest rank if one stands out, and reports once that the job is slow. When all
nodes have recovered, node 0 reports this.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ranklaunch.hangs.steps import Place, Step
from ranklaunch.hangs.straggler import Change, Slow, median, slowest
from ranklaunch.system.loop import Timer
from ranklaunch.verdict import blame

if TYPE_CHECKING:
    from ranklaunch.supervise.attempt import Attempt

SLOW = "slow"  # topic of the messages between nodes
ASK_S = 3.0  # for all nodes to answer with the step times of their ranks
LAST = 5  # step times of a rank that are kept


class Slowness:
    """One node of the job. slow: state of the job, as node 0 announces it."""

    def __init__(self, attempt: Attempt) -> None:
        self.slow = False
        self._attempt = attempt
        plan = attempt.plan
        self._watched = Slow(plan.watch.slow)
        self._rank: int | None = None  # the watched rank
        self._taken: dict[int, Step] = {}  # the newest step of each rank
        self._printed: dict[int, deque[float]] = {}  # by rank: step times that its lines state
        attempt.nodes.hear(SLOW, self._on_word)
        if plan.job.node_index == 0 or not plan.muster:
            _Node0(attempt)

    def feed(self, rank: int, step: Step) -> None:
        """Take the newest step that a rank has printed. The same step again is ignored."""
        if step == self._taken.get(rank):
            return
        self._taken[rank] = step
        if step.seconds:
            self._printed.setdefault(rank, deque(maxlen=LAST)).append(step.seconds)
        if self._rank is None:
            self._rank = rank
        change = self._watched.feed(step) if rank == self._rank else None
        if change:
            change = change._replace(since=self._attempt.nodes.wall(change.since))
            self._attempt.nodes.tell_node_0(SLOW, {"change": change})

    def _on_word(self, node: int, body: Any) -> None:
        if "ask" in body:
            times = [[rank, round(median(seconds), 4)] for rank, seconds in self._printed.items()]
            self._attempt.nodes.tell_node_0(SLOW, {"times": times})
            return
        self.slow = not body["over"]
        self._attempt.record.event(
            "slow", text=body["text"], over=body["over"], since=body["since"], step_s=body["step_s"], baseline_s=body["baseline_s"],
            factor=body["factor"], rank=body["rank"], node=body["node"],
        )  # fmt: skip


def _unpacked(row: Any) -> Change:
    """Return a change in the form of JSON. Raises TypeError or ValueError for a row of another form."""
    slow, since, place, step_s, baseline_s, intervals = row
    change = Change(bool(slow), float(since), Place(*map(int, place)), float(step_s), float(baseline_s), int(intervals))
    if not (math.isfinite(change.since) and math.isfinite(change.step_s) and 0 < change.baseline_s < math.inf):
        msg = "expected finite times"
        raise ValueError(msg)
    return change


class _Node0:
    """Node 0's part. Without a muster, every node does this for itself."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        plan = attempt.plan
        self._nodes = [node.index for node in plan.job.nodes if node.slots] if plan.muster else [plan.job.node_index]
        self._reports: dict[int, Change] = {}  # of nodes that are slow, by node 0's clock
        self._times: dict[int, tuple[float, int]] = {}  # by rank: its own step time, and its node
        self._unanswered: set[int] = set()
        self._timer: Timer | None = None  # while answers are awaited
        self._announced = False
        attempt.nodes.hear(SLOW, self._on_word, at_node_0=True)

    def _on_word(self, node: int, body: Any) -> None:
        if self._attempt.ending:
            return
        node = node if self._attempt.plan.muster else self._nodes[0]
        if "times" in body:
            self._on_times(node, body["times"])
            return
        report = _unpacked(body["change"])
        if report.slow:
            self._reports[node] = report
            self._ask()
        elif self._reports.pop(node, None) and self._announced and not self._reports:
            self._announced = False
            self._publish(report, f"the job is as fast as before: a step takes {_seconds(report.step_s)}", None)

    def _ask(self) -> None:
        if self._announced or self._timer:
            return
        self._times.clear()
        self._unanswered = set(self._nodes)
        self._timer = self._attempt.loop.after(ASK_S, self._announce)
        self._attempt.nodes.tell_nodes(SLOW, {"ask": True})

    def _on_times(self, node: int, times: Iterable[Iterable[Any]]) -> None:
        """Keep the step times of a node's ranks. Only node 0 may report other nodes' ranks: it may have the output of all."""
        node_of = {rank: each.index for each in self._attempt.plan.job.nodes for rank in each.ranks}
        for rank, seconds in times:
            if node in (0, node_of.get(rank)) and 0 < float(seconds) < math.inf:
                self._times[int(rank)] = (float(seconds), node_of.get(rank, node))
        self._unanswered.discard(node)
        if self._timer and not self._unanswered:
            self._announce()

    def _announce(self) -> None:
        """Announce that the job is slow, unless all nodes have recovered meanwhile."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if not self._reports or self._attempt.ending:
            return
        self._announced = True
        first = min(self._reports.values(), key=attrgetter("since"))
        rank = slowest({rank: seconds for rank, (seconds, _) in self._times.items()})
        epoch = f" of epoch {first.place.epoch}" if first.place.epoch else ""
        before = f"{_seconds(first.baseline_s)} before (baseline of {first.intervals} intervals)"
        text = f"the job is slow: a step takes {_seconds(first.step_s)}, {before}, since step {first.place.step}{epoch}{self._named(rank)}"
        self._attempt.around.teller().slow(self._publish(first, text, rank))

    def _named(self, rank: int | None) -> str:
        if rank is None:
            return ""
        seconds, node = self._times[rank]
        place = f" on node {node}" if len(self._nodes) > 1 else ""
        return f"; rank {rank}{place} is the slowest with {_seconds(seconds)}"

    def _publish(self, report: Change, text: str, rank: int | None) -> dict[str, Any]:
        """Announce a change to the console and to all nodes. Return the event."""
        event = {
            "text": text, "over": not report.slow, "since": blame.iso(report.since), "step_s": round(report.step_s, 4),
            "baseline_s": round(report.baseline_s, 4), "factor": round(report.step_s / report.baseline_s, 2),
            "rank": rank, "node": None if rank is None else self._times[rank][1],
        }  # fmt: skip
        self._attempt.say(text)
        self._attempt.nodes.tell_nodes(SLOW, event)
        return event


def _seconds(value: float) -> str:
    return f"{value:.{1 if value >= 1 else 2 if value >= 0.1 else 4}f} s"
