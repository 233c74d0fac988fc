"""Start barrier on node 0: the missing nodes, the reasons, and the deadlines for missing and disagreeing nodes.

This module owns the deadlines and the reasons. The hub's Roll has the present nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ranklaunch.errors import ConfigError, WaitError, reason
from ranklaunch.muster.membership import NAMED, Entry, Roll
from ranklaunch.plan.facts import FIXED
from ranklaunch.plan.model import RENEWED, Muster
from ranklaunch.verdict.blame import Judgement

SETTLE_S = 5.0  # wait after the first disagreement, so that later nodes are compared too
LATE_S = 1.0  # after the first ready node: nodes that are ready later are named
LATE_NAMED = 3  # late nodes that the message names at most
ASK_S = 5.0  # between look-ups of the addresses of missing nodes
STATUS_S = 30.0  # between messages about missing nodes
FIRST_STATUS_S = 2.0


class Gathering:
    """Start barrier. roll: present nodes. later: the job was started before, so some rank tables may still be old ones.
    trouble: why no node can connect; refused: addresses with another key. Times are seconds of the hub's clock."""

    def __init__(self, muster: Muster, roll: Roll, *, later: bool = False) -> None:
        self._later = later
        self.trouble = self.refused = ""
        self._shut_until: float | None = None
        self._muster = muster
        self._roll = roll
        self._deadline: float | None = None
        self._disagree_since: float | None = None
        self._why: dict[int, str] = {}  # by missing node: result of the look-up of its name
        self._looking_up: set[int] = set()

    def ready(self, entry: Entry, facts: Mapping[str, str], now: float) -> None:
        self._roll.ready(entry, facts, now)
        if self._deadline is None:
            self._deadline = now + self._muster.timeout_s

    def at_door(self, trouble: str, refused: str, until: float) -> None:
        """Note the trouble at the door, "" for none. until: time at which a new trouble ends the job."""
        if trouble != self.trouble:
            self._shut_until = until if trouble else None
        self.trouble, self.refused = trouble, refused

    @property
    def complete(self) -> bool:
        return self._roll.complete and not self._roll.doubtful

    @property
    def missing(self) -> str:
        """Missing nodes and other causes of the wait, as one line; "" for none."""
        trouble = f"{self.trouble}; " if self.trouble else ""
        refused = f"; refused: {self.refused}" if self.refused else ""
        waiting = "; ".join(filter(None, (self._roll.waiting(self._why), self._tables)))
        return f"{trouble}{waiting}{refused}"

    @property
    def table(self) -> str:
        """Digest of the rank table that all ready nodes have; "" without a table, or if the tables differ."""
        return next(iter(self._roll.tables), "") if len(self._roll.tables) == 1 else ""

    @property
    def _tables(self) -> str:
        """Message about different rank tables in a later start, where some may still be old ones; "" for none."""
        differ = self._later and len(self._roll.tables) > 1
        return f"the same rank table on all nodes: {self._roll.of_tables()}; {RENEWED}" if differ else ""

    def failure(self, now: float) -> Judgement | None:
        """Return the judgement that the nodes cannot start; None while they may."""
        if self._shut_until is not None and now >= self._shut_until:
            return Judgement("failed", WaitError.exit_code, reason(f"no node can connect to node 0: {self.trouble}"))
        if self._tables:
            return self._timed_out() if self.is_late(now) else None
        if self._roll.doubtful:
            self._disagree_since = now if self._disagree_since is None else self._disagree_since
            return self._refusal() if self._is_settled(self._disagree_since, now) else None
        self._disagree_since = None
        return self._timed_out() if self.is_late(now) and not self._roll.complete else None

    def _is_settled(self, disagree_since: float, now: float) -> bool:
        """Return True if all nodes are ready, or if missing nodes have had time to come and be compared too.

        Two starts of one node may be an earlier start whose host is lost. The kernel reports this after lost_after_s,
        so the wait is at least as long.
        """
        settle_s = SETTLE_S if self._roll.differ else max(SETTLE_S, self._muster.lost_after_s)
        return self._roll.complete or now >= disagree_since + settle_s

    def is_late(self, now: float) -> bool:
        """Return True once the deadline for missing nodes is over."""
        return self._deadline is not None and now >= self._deadline

    def summary(self, now: float) -> str:
        """Return the sentence for the console of node 0: all nodes are ready, and the nodes that came late."""
        last = self._roll.last()
        first_ready = last[-1].ready
        waited = [(entry, entry.ready - first_ready) for entry in last[:LATE_NAMED]]
        late = [f"{self._roll.name(entry.node)} after {seconds:.1f} s" for entry, seconds in waited if seconds >= LATE_S]
        text = f"muster: {'both' if len(last) == 2 else f'all {len(last)}'} nodes are ready"
        return f"{text}; last came {', '.join(late)}" if late else text

    def warnings(self) -> list[str]:
        """Return the warnings about differences that do not prevent the start."""
        return [f"warning: muster: {text}" for text in self._roll.warnings()]

    def ask_why(self) -> list[tuple[int, str]]:
        """Return at most NAMED missing nodes whose names are to be looked up now, as (node, host). resolved() takes the answers."""
        nodes = [node for node in self._roll.missing if node not in self._looking_up][:NAMED]
        named = [(node, self._roll.hosts[node]) for node in nodes if self._roll.hosts[node]]
        self._looking_up.update(node for node, _ in named)
        return named

    def resolved(self, node: int, addresses: Sequence[str], why: str) -> None:
        """Take the result of a look-up. why: the reason that the name has no address, "" if it has one."""
        self._looking_up.discard(node)
        self._why[node] = why or (f"nothing heard of {addresses[0]}" if addresses[0] != self._roll.hosts[node] else "nothing heard of it")

    def _refusal(self) -> Judgement | None:
        """Return the judgement about disagreeing nodes; None if there are no disagreements any more."""
        problems = self._roll.problems()
        if not problems:
            return None
        names = [problem.partition(" differ")[0] for problem in problems if " differ" in problem]
        missing = self.missing
        also = f"; not here yet: {missing}" if missing else ""
        text = reason(f"the nodes disagree: {'; '.join(problems)}{also}{self._hints(names)}")
        return Judgement("failed", ConfigError.exit_code, text)

    def _hints(self, names: Sequence[str]) -> str:
        """Return the setting that allows nodes to differ in these facts, if a job may want that."""
        allowable = ",".join(name for name in names if name not in FIXED)
        slots = self._roll.own_slots() if "slots" in names else ""
        hint = f"; if these numbers are right, set RANKLAUNCH_SLOTS={slots} on every node" if slots else ""
        if "route_plan" in names:
            hint += "; ROUTE_PLAN=false keeps the given order on all, ROUTE_TOPO_WAIT_TIME sets how long a node waits for its topology"
        return hint + (f"; if that is meant, set RANKLAUNCH_MUSTER_ALLOW={allowable} on node 0" if allowable else "")

    def _timed_out(self) -> Judgement:
        how_long = "--muster-timeout-s (RANKLAUNCH_MUSTER_TIMEOUT_S) sets how long"
        text = f"waited {self._muster.timeout_s:g} s in vain for the job's nodes: {self.missing}; {how_long}"
        return Judgement("failed", WaitError.exit_code, text)
