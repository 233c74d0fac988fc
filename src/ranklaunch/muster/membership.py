"""Roll of a job's nodes: present, missing and duplicate nodes, and facts on which nodes disagree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ranklaunch.errors import runs
from ranklaunch.plan.agreement import ALL, ARGUMENTS, Agreement, Teller, is_of_ranks
from ranklaunch.plan.facts import FIXED
from ranklaunch.plan.model import TABLE

NAMED = 12  # nodes or values that one line names
MOST_SLOTS_NAMED = 64  # nodes whose slots one line names


class Entry:
    """One start of one node. instance: tells two starts apart; address: its source address; facts: None until ready to start; doing: its
    work before then. stated, named: its place and host by its own word, or by a rank table; known once ready; gives: True if the node
    then has something for the rest. arrived: seconds on the hub's clock."""

    def __init__(self, node: int, instance: str, host: str, address: str, arrived: float, doing: str = "") -> None:
        self.node, self.instance, self.host, self.address, self.arrived = node, instance, host, address, arrived
        self.doing = doing
        self.facts: Mapping[str, str] | None = None
        self.ready = 0.0
        self.stated: int | None = None
        self.named = ""
        self.gives = False

    @property
    def place(self) -> int:
        return self.node if self.stated is None else self.stated

    @property
    def moved(self) -> bool:
        """Whether it would give what another node is expected to give."""
        return self.gives and self.place != self.node


class Roll:
    """hosts: the name of each node, by index. allowed: facts that may differ, by name."""

    def __init__(self, hosts: Sequence[str], allowed: Collection[str] = ()) -> None:
        self.hosts = hosts
        self.entries: dict[str, Entry] = {}
        self._allowed = allowed
        self._by_node: dict[int, list[Entry]] = {}
        self._ready = 0
        self._ranks = Agreement(allowed)
        self._answers: Counter[frozenset[tuple[str, str]]] = Counter()  # of those that are ready, as far as they must be the same
        self._tables: Counter[str] = Counter()  # of those that are ready, by their digests
        self._strange = 0  # entries with an index that the job does not have
        self._seats: Counter[tuple[int, int]] = Counter()  # of those that are ready: node, and place
        self._places: Counter[int] = Counter()  # of these, each once
        self._misplaced = 0  # of those that are ready

    def add(self, entry: Entry) -> None:
        self.entries[entry.instance] = entry
        self._by_node.setdefault(entry.node, []).append(entry)
        self._strange += not self._is_node(entry.node)

    def remove(self, instance: str) -> None:
        entry = self.entries.pop(instance, None)
        if not entry:
            return
        self._strange -= not self._is_node(entry.node)
        self.renew(entry)
        others = [other for other in self._by_node.pop(entry.node) if other is not entry]
        if others:
            self._by_node[entry.node] = others

    def renew(self, entry: Entry) -> None:
        """It is not ready any more."""
        if entry.facts is None:
            return
        self._ready -= 1
        self._count(entry.facts, -1)
        self._ranks.remove(entry.instance)
        self._sit(entry, -1)
        entry.facts = None

    def ready(self, entry: Entry, facts: Mapping[str, str], now: float) -> None:
        """Ready to start."""
        self._ready += 1
        self._count(facts, 1)
        self._sit(entry, 1)
        entry.facts, entry.ready, entry.doing = facts, now, ""
        names = (entry.host, entry.named, self.hosts[entry.node] if self._is_node(entry.node) else "")
        self._ranks.add(entry.instance, Teller(entry.node, names, entry.address), facts)

    @property
    def missing(self) -> list[int]:
        return [node for node in range(len(self.hosts)) if node not in self._by_node]

    @property
    def busy(self) -> list[Entry]:
        return sorted((entry for entry in self.entries.values() if entry.facts is None), key=lambda entry: entry.node)

    @property
    def complete(self) -> bool:
        return not self._strange and self._ready == len(self.entries) == len(self._by_node) == len(self.hosts)

    @property
    def differ(self) -> bool:
        """Whether some of those that are ready can never start together."""
        misplaced = self._misplaced or len(self._places) < len(self._seats)
        return bool(self._strange or misplaced) or len(self._answers) > 1 or self._ranks.differ

    @property
    def tables(self) -> Collection[str]:
        """Return the digests of the ready nodes' rank tables: all other differences may follow from these."""
        return self._tables

    @property
    def doubtful(self) -> bool:
        """Whether problems() has something to say."""
        return self.differ or len(self._by_node) < len(self.entries)

    def name(self, node: int) -> str:
        """A node as people know it."""
        entry = next((entry for entry in self._by_node.get(node, ()) if entry.stated is not None), None)
        host = entry.named if entry else self.hosts[node] if self._is_node(node) else ""
        index = entry.stated if entry else node
        return f"node {index} ({host})" if host else f"node {index}"

    def waiting(self, why: Mapping[int, str]) -> str:
        """What is still missing, as one line; "" when nothing is. why: what is known of a missing node."""
        missing, busy = self.missing, self.busy
        parts = []
        if missing:
            named = [self._known(node, why.get(node, "")) for node in missing[:NAMED]]
            parts.append(f"{len(missing)} of {len(self.hosts)} nodes: {_listed(named, len(missing))}")
        if busy:
            named = [self._known(entry.node, entry.doing) for entry in busy[:NAMED]]
            parts.append(f"{len(busy)} that {'is' if len(busy) == 1 else 'are'} here, but busy: {_listed(named, len(busy))}")
        return "; ".join(parts)

    def _known(self, node: int, what: str) -> str:
        host = self.hosts[node] if 0 <= node < len(self.hosts) else ""
        known = ", ".join(part for part in (f"node {node}" if host else "", what) if part)
        return f"{host or f'node {node}'} ({known})" if known else f"{host or f'node {node}'}"

    def problems(self) -> list[str]:
        """Why the job must not start although, or before, all are there."""
        return [*self._strangers(), *self._duplicates(), *self._misplacements(), *self._disagreements()]

    def warnings(self) -> list[str]:
        """What the nodes may differ in, and people seldom mean."""
        return [f"{name} differs: {self._values(by_value)}" for name, by_value in self._ranks.problems(steers=False)]

    def of_tables(self) -> str:
        """Return the nodes by rank table."""
        by_value: dict[str | None, list[int]] = {}
        for entry in self.entries.values():
            if entry.facts and TABLE in entry.facts:
                by_value.setdefault(entry.facts[TABLE], []).append(entry.node)
        return self._values(by_value)

    def own_slots(self) -> str:
        """How many each node takes itself to have, as RANKLAUNCH_SLOTS has it; "" where that is not known of all."""
        slots = [_own_slots(node, (entries[0].facts or {}).get("slots", "")) for node, entries in sorted(self._by_node.items())]
        known = len(slots) == len(self.hosts) <= MOST_SLOTS_NAMED and all(slots) and not self._strange
        return ",".join(slots) if known else ""

    def last(self) -> list[Entry]:
        """Return the nodes in the order in which the others waited for them, the last one first."""
        return sorted(self.entries.values(), key=lambda entry: -entry.ready)

    def _compared(self, facts: Mapping[str, str]) -> dict[str, str]:
        some = {name: value for name, value in facts.items() if name in FIXED or not (name in self._allowed or ALL in self._allowed)}
        return {name: value for name, value in some.items() if not is_of_ranks(name)}

    def _is_node(self, index: int) -> bool:
        return 0 <= index < len(self.hosts)

    def _count(self, facts: Mapping[str, str], by: int) -> None:
        """A comparison with all others, at the cost of one."""
        compared = self._compared(facts)
        _count(self._answers, frozenset(compared.items()), by)
        if TABLE in compared:
            _count(self._tables, compared[TABLE], by)

    def _sit(self, entry: Entry, by: int) -> None:
        """Whether all places are different, at the cost of one comparison too."""
        seat = (entry.node, entry.place)
        _count(self._seats, seat, by)
        if self._seats[seat] == max(0, by):  # the first there, or the last
            _count(self._places, entry.place, by)
        self._misplaced += by * (entry.moved or not self._is_node(entry.place))

    def _strangers(self) -> Iterable[str]:
        for node, entries in sorted(self._by_node.items()):
            if not self._is_node(node):
                who = f"{entries[0].host or '(no name)'} at {entries[0].address}"
                yield f"{who} says that it is node {node}: of {len(self.hosts)} nodes the last is {len(self.hosts) - 1}"

    def _duplicates(self) -> Iterable[str]:
        for node, entries in sorted(self._by_node.items()):
            if len(entries) > 1:
                who = " and ".join(f"{entry.host or '(no name)'} at {entry.address}" for entry in entries[:NAMED])
                index = "each needs an index of its own: --node (RANKLAUNCH_NODE)"
                yield f"{len(entries)} containers say that they are node {node}: {who}; {index}"

    def _misplacements(self) -> Iterable[str]:
        """Yield conflicts about places of ready nodes: two nodes in one, one beyond the last, or a new one after keys were handed over."""
        claims: dict[int, dict[int, Entry]] = {}
        for entry in self.entries.values():
            if entry.facts is not None:
                claims.setdefault(entry.place, {})[entry.node] = entry
        for place, claiming in sorted(claims.items()):
            who = " and ".join(self._claim(entry) for _, entry in sorted(claiming.items())[:NAMED])
            if len(claiming) > 1:
                yield f"{len(claiming)} nodes say when they are ready that they are node {place}: {who}"
            elif place not in claiming and not self._is_node(place):
                yield f"{who} says when it is ready that it is node {place}: of {len(self.hosts)} nodes the last is {len(self.hosts) - 1}"
            elif any(entry.moved for entry in claiming.values()):
                yield f"{who} says when it is ready that it is node {place}: where keys are handed over, places are those of the platform"

    @staticmethod
    def _claim(entry: Entry) -> str:
        return f"{entry.host or '(no name)'} at {entry.address}, which came as node {entry.node},"

    def _disagreements(self) -> Iterable[str]:
        ready = [entry for entry in self.entries.values() if entry.facts is not None]
        for name in sorted({name for entry in ready for name in self._compared(entry.facts or {})}):
            by_value: dict[str | None, list[int]] = {}
            for entry in ready:
                by_value.setdefault((entry.facts or {}).get(name), []).append(entry.node)
            if len(by_value) > 1:
                yield f"{name} differs: {self._values(by_value)}"
        for name, differing in self._ranks.problems():
            yield f"{name} {'differ' if name == ARGUMENTS else 'differs'}: {self._values(differing)}"

    def _values(self, by_value: Mapping[str | None, list[int]]) -> str:
        """The rarest values first: they are more likely the wrong ones."""
        values = sorted(by_value.items(), key=lambda item: (len(item[1]), min(item[1])))
        named = [f"{'(none)' if value is None else value} on {self._nodes(nodes)}" for value, nodes in values[:NAMED]]
        return _listed(named, len(values))

    def _nodes(self, nodes: Sequence[int]) -> str:
        if len(nodes) == 1:
            return self.name(nodes[0])
        if len(nodes) > len(self.hosts) // 2 and len(nodes) > NAMED:
            return f"the other {len(nodes)} nodes"
        return f"nodes {spans(nodes)}"


def _count(counter: Counter[Any], what: object, by: int) -> None:
    """Add to a count, and remove the key at a count of 0."""
    counter[what] += by
    if not counter[what]:
        del counter[what]


def spans(numbers: Iterable[int]) -> str:
    """0,1,2,5 as "0-2, 5"."""
    pairs = runs(numbers)
    named = [str(first) if first == last else f"{first}-{last}" for first, last in pairs]
    more = sum(last - first + 1 for first, last in pairs[NAMED:])
    return ", ".join(named[:NAMED]) + (f" and {more} more" if more else "")


def _listed(named: Sequence[str], count: int) -> str:
    more = count - len(named)
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _own_slots(node: int, slots: str) -> str:
    """Of one node, by what it says of all: "8 on each" or "8,4"."""
    each, on_each, _ = slots.partition(" on each")
    numbers = slots.split(",")
    if "..." in slots:  # too many to be told
        return ""
    own = each if on_each else numbers[node] if 0 <= node < len(numbers) else ""
    return own if own.isdecimal() else ""
