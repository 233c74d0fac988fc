"""Node 0's view of the job until the start: missing nodes with the reasons, and deadlines for missing and disagreeing nodes.

Owns the deadlines and the reasons. The hub's Roll has the present nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ranklaunch.errors import ConfigError, WaitError, reason
from ranklaunch.muster.membership import NAMED, Entry, Roll
from ranklaunch.plan.facts import FIXED
from ranklaunch.plan.model import RENEWED, Muster
from ranklaunch.verdict.blame import Judgement

SETTLE_S = 5.0  # once the nodes disagree: for the others to come and be compared too
LATE_S = 1.0  # after the first: who comes later than that is named
LATE_NAMED = 3
ASK_S = 5.0  # between questions for the addresses of those who are missing
STATUS_S = 30.0  # between words on who is missing
FIRST_STATUS_S = 2.0


class Gathering:
    """Start barrier. roll: present nodes. later: the job was started before, so some rank tables may still be old ones.
    trouble: why nobody can come in; refused: a newcomer with another key. Times are the hub's, in seconds."""

    def __init__(self, muster: Muster, roll: Roll, *, later: bool = False) -> None:
        self._later = later
        self.trouble = self.refused = ""
        self._shut_until: float | None = None
        self._muster = muster
        self._roll = roll
        self._deadline: float | None = None
        self._doubted: float | None = None
        self._why: dict[int, str] = {}  # a node is missing
        self._asked: set[int] = set()

    def ready(self, entry: Entry, facts: Mapping[str, str], now: float) -> None:
        self._roll.ready(entry, facts, now)
        if self._deadline is None:
            self._deadline = now + self._muster.timeout_s

    def at_door(self, trouble: str, refused: str, until: float) -> None:
        """until: when the trouble, where it is new, has lasted too long."""
        if trouble != self.trouble:
            self._shut_until = until if trouble else None
        self.trouble, self.refused = trouble, refused

    @property
    def complete(self) -> bool:
        return self._roll.complete and not self._roll.doubtful

    @property
    def missing(self) -> str:
        """As one line; "" when nothing is."""
        trouble = f"{self.trouble}; " if self.trouble else ""
        refused = f"; refused: {self.refused}" if self.refused else ""
        waiting = "; ".join(filter(None, (self._roll.waiting(self._why), self._tables)))
        return f"{trouble}{waiting}{refused}"

    @property
    def table(self) -> str:
        """The digest of the rank table by which all start, "" where there is none or they may have several."""
        return next(iter(self._roll.tables), "") if len(self._roll.tables) == 1 else ""

    @property
    def _tables(self) -> str:
        """What is waited for until they have one rank table."""
        differ = self._later and len(self._roll.tables) > 1
        return f"the same rank table on all nodes: {self._roll.of_tables()}; {RENEWED}" if differ else ""

    def failure(self, now: float) -> Judgement | None:
        """Why the nodes will not start, once it is certain."""
        if self._shut_until is not None and now >= self._shut_until:
            return Judgement("failed", WaitError.exit_code, reason(f"nobody can come in: {self.trouble}"))
        if self._tables:
            return self._in_vain() if self.is_late(now) else None
        if self._roll.doubtful:
            self._doubted = now if self._doubted is None else self._doubted
            return self._refusal() if self._is_settled(self._doubted, now) else None
        self._doubted = None
        return self._in_vain() if self.is_late(now) and not self._roll.complete else None

    def _is_settled(self, doubted: float, now: float) -> bool:
        """Return True once no other node is waited for, to be compared too.

        A start that was lost with its host counts as here until the kernel finds out.
        """
        settle_s = SETTLE_S if self._roll.differ else max(SETTLE_S, self._muster.lost_after_s)
        return self._roll.complete or now >= doubted + settle_s

    def is_late(self, now: float) -> bool:
        """Whether nobody is waited for any more."""
        return self._deadline is not None and now >= self._deadline

    def summary(self, now: float) -> str:
        """Return the sentence for the console of node 0: all nodes are ready, and the nodes that came late."""
        last = self._roll.last()
        first = last[-1].ready
        waited = [(entry, entry.ready - first) for entry in last[:LATE_NAMED]]
        late = [f"{self._roll.name(entry.node)} after {seconds:.1f} s" for entry, seconds in waited if seconds >= LATE_S]
        text = f"muster: {'both' if len(last) == 2 else f'all {len(last)}'} nodes are ready"
        return f"{text}; last came {', '.join(late)}" if late else text

    def warnings(self) -> list[str]:
        """Of those who may start all the same."""
        return [f"warning: muster: {text}" for text in self._roll.warnings()]

    def ask_why(self) -> list[tuple[int, str]]:
        """Return missing nodes for a lookup of their names now, as (node, host); some at a time. found() has the answers."""
        some = [node for node in self._roll.missing if node not in self._asked][:NAMED]
        asked = [(node, self._roll.hosts[node]) for node in some if self._roll.hosts[node]]
        self._asked.update(node for node, _ in asked)
        return asked

    def found(self, node: int, addresses: Sequence[str], why: str) -> None:
        """why: its name is not known."""
        self._asked.discard(node)
        self._why[node] = why or (f"nothing heard of {addresses[0]}" if addresses[0] != self._roll.hosts[node] else "nothing heard of it")

    def _refusal(self) -> Judgement | None:
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
        may = ",".join(name for name in names if name not in FIXED)
        slots = self._roll.own_slots() if "slots" in names else ""
        hint = f"; if each has the slots that it says, set RANKLAUNCH_SLOTS={slots} on every node" if slots else ""
        if "route_plan" in names:
            hint += "; ROUTE_PLAN=false keeps the given order on all, ROUTE_TOPO_WAIT_TIME sets how long a node waits for its topology"
        return hint + (f"; if that is meant, set RANKLAUNCH_MUSTER_ALLOW={may} on node 0" if may else "")

    def _in_vain(self) -> Judgement:
        how_long = "--muster-timeout-s (RANKLAUNCH_MUSTER_TIMEOUT_S) sets how long"
        text = f"waited {self._muster.timeout_s:g} s in vain for the job's nodes: {self.missing}; {how_long}"
        return Judgement("failed", WaitError.exit_code, text)
