"""Nodes of a job as node 0 knows them: present, missing and duplicate nodes, and facts on which nodes disagree."""

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
    """One start of one node.

    | field | meaning |
    | --- | --- |
    | instance | differs between two starts of a node |
    | address | source address of its connection |
    | arrived, ready | time of its first message and of its readiness, by the hub's clock |
    | doing | its work before it is ready, in words |
    | facts | values that must agree, by name; None until it is ready |
    | stated, named | its index and its host by its rank table or its own environment; known once it is ready |
    | gives | True if the ready node has offers for the other nodes, such as ssh keys |
    """

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
        """Index that the ready node states; before, the index of its hello."""
        return self.node if self.stated is None else self.stated

    @property
    def moved(self) -> bool:
        """True if the node has offers, and states another index than in its hello: the other nodes expect the offers of that index."""
        return self.gives and self.place != self.node


class Roll:
    """Nodes of a job. hosts: name of each node, by index. allowed: names of facts that may differ.

    Counters are kept up to date, so that a new node costs one comparison, not one with each other node.
    """

    def __init__(self, hosts: Sequence[str], allowed: Collection[str] = ()) -> None:
        self.hosts = hosts
        self.entries: dict[str, Entry] = {}
        self._allowed = allowed
        self._by_node: dict[int, list[Entry]] = {}
        self._ready = 0
        self._ranks = Agreement(allowed)
        self._answers: Counter[frozenset[tuple[str, str]]] = Counter()  # of ready nodes: facts that must be equal
        self._tables: Counter[str] = Counter()  # of ready nodes: digests of rank tables
        self._strange = 0  # entries with an index that the job does not have
        self._seats: Counter[tuple[int, int]] = Counter()  # of ready nodes: index in the hello, and place
        self._places: Counter[int] = Counter()  # places in _seats, each pair counted once
        self._misplaced = 0  # ready nodes with a place that the job does not have, or with offers and a new place

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
        duplicates = [each for each in self._by_node.pop(entry.node) if each is not entry]
        if duplicates:
            self._by_node[entry.node] = duplicates

    def renew(self, entry: Entry) -> None:
        """Mark an entry as not ready."""
        if entry.facts is None:
            return
        self._ready -= 1
        self._count(entry.facts, -1)
        self._ranks.remove(entry.instance)
        self._sit(entry, -1)
        entry.facts = None

    def ready(self, entry: Entry, facts: Mapping[str, str], now: float) -> None:
        """Mark an entry as ready to start, with its facts."""
        self._ready += 1
        self._count(facts, 1)
        self._sit(entry, 1)
        entry.facts, entry.ready, entry.doing = facts, now, ""
        names = (entry.host, entry.named, self.hosts[entry.node] if self._is_node(entry.node) else "")
        self._ranks.add(entry.instance, Teller(entry.node, names, entry.address), facts)

    @property
    def missing(self) -> list[int]:
        """Indexes of nodes that have not connected."""
        return [node for node in range(len(self.hosts)) if node not in self._by_node]

    @property
    def busy(self) -> list[Entry]:
        """Nodes that have connected and are not ready."""
        return sorted((entry for entry in self.entries.values() if entry.facts is None), key=lambda entry: entry.node)

    @property
    def complete(self) -> bool:
        """True if every node of the job is ready, each once."""
        return not self._strange and self._ready == len(self.entries) == len(self._by_node) == len(self.hosts)

    @property
    def differ(self) -> bool:
        """True if some ready nodes can never start together."""
        misplaced = self._misplaced or len(self._places) < len(self._seats)
        return bool(self._strange or misplaced) or len(self._answers) > 1 or self._ranks.differ

    @property
    def tables(self) -> Collection[str]:
        """Digests of the ready nodes' rank tables. If these differ, all other differences may follow from them."""
        return self._tables

    @property
    def doubtful(self) -> bool:
        """True if problems() is not empty."""
        return self.differ or len(self._by_node) < len(self.entries)

    def name(self, node: int) -> str:
        """Return the name of a node for people: "node 3 (worker-3)"."""
        entry = next((entry for entry in self._by_node.get(node, ()) if entry.stated is not None), None)
        host = entry.named if entry else self.hosts[node] if self._is_node(node) else ""
        index = entry.stated if entry else node
        return f"node {index} ({host})" if host else f"node {index}"

    def waiting(self, why: Mapping[int, str]) -> str:
        """Return missing and busy nodes as one line; "" for none. why: by missing node, the result of the look-up of its name."""
        missing, busy = self.missing, self.busy
        parts = []
        if missing:
            named = [self._described(node, why.get(node, "")) for node in missing[:NAMED]]
            parts.append(f"{len(missing)} of {len(self.hosts)} nodes: {_listed(named, len(missing))}")
        if busy:
            named = [self._described(entry.node, entry.doing) for entry in busy[:NAMED]]
            parts.append(f"{len(busy)} that {'is' if len(busy) == 1 else 'are'} here, but busy: {_listed(named, len(busy))}")
        return "; ".join(parts)

    def _described(self, node: int, detail: str) -> str:
        """Return a node with details: "worker-3 (node 3, DETAIL)"."""
        host = self.hosts[node] if 0 <= node < len(self.hosts) else ""
        details = ", ".join(part for part in (f"node {node}" if host else "", detail) if part)
        return f"{host or f'node {node}'} ({details})" if details else f"{host or f'node {node}'}"

    def problems(self) -> list[str]:
        """Return the reasons that the present nodes cannot start together."""
        return [*self._strangers(), *self._duplicates(), *self._misplacements(), *self._disagreements()]

    def warnings(self) -> list[str]:
        """Return differences that are allowed, but are mostly mistakes."""
        return [f"{name} differs: {self._values(by_value)}" for name, by_value in self._ranks.problems(steers=False)]

    def of_tables(self) -> str:
        """Return the nodes by rank table."""
        by_value: dict[str | None, list[int]] = {}
        for entry in self.entries.values():
            if entry.facts and TABLE in entry.facts:
                by_value.setdefault(entry.facts[TABLE], []).append(entry.node)
        return self._values(by_value)

    def own_slots(self) -> str:
        """Return the number of slots that each node states for itself, in the form of RANKLAUNCH_SLOTS; "" if one is unknown."""
        slots = [_own_slots(node, (entries[0].facts or {}).get("slots", "")) for node, entries in sorted(self._by_node.items())]
        known = len(slots) == len(self.hosts) <= MOST_SLOTS_NAMED and all(slots) and not self._strange
        return ",".join(slots) if known else ""

    def last(self) -> list[Entry]:
        """Return the nodes in the order in which the others waited for them, the last one first."""
        return sorted(self.entries.values(), key=lambda entry: -entry.ready)

    def _compared(self, facts: Mapping[str, str]) -> dict[str, str]:
        """Return the facts that must be equal on all nodes. Facts about ranks are left out: Agreement compares these."""
        fixed = {name: value for name, value in facts.items() if name in FIXED or not (name in self._allowed or ALL in self._allowed)}
        return {name: value for name, value in fixed.items() if not is_of_ranks(name)}

    def _is_node(self, index: int) -> bool:
        return 0 <= index < len(self.hosts)

    def _count(self, facts: Mapping[str, str], by: int) -> None:
        """Count the facts of a node (by: 1), or remove them (by: -1). Two different facts in a Counter are a disagreement."""
        compared = self._compared(facts)
        _count(self._answers, frozenset(compared.items()), by)
        if TABLE in compared:
            _count(self._tables, compared[TABLE], by)

    def _sit(self, entry: Entry, by: int) -> None:
        """Count the place of a node (by: 1), or remove it (by: -1)."""
        seat = (entry.node, entry.place)
        _count(self._seats, seat, by)
        if self._seats[seat] == max(0, by):  # the first entry with this seat came, or the last one left
            _count(self._places, entry.place, by)
        self._misplaced += by * (entry.moved or not self._is_node(entry.place))

    def _strangers(self) -> Iterable[str]:
        """Yield nodes with an index that the job does not have."""
        for node, entries in sorted(self._by_node.items()):
            if not self._is_node(node):
                place = f"{entries[0].host or '(no name)'} at {entries[0].address}"
                yield f"{place} says that it is node {node}: of {len(self.hosts)} nodes the last is {len(self.hosts) - 1}"

    def _duplicates(self) -> Iterable[str]:
        """Yield indexes that several starts have."""
        for node, entries in sorted(self._by_node.items()):
            if len(entries) > 1:
                places = " and ".join(f"{entry.host or '(no name)'} at {entry.address}" for entry in entries[:NAMED])
                index = "each needs an index of its own: --node (RANKLAUNCH_NODE)"
                yield f"{len(entries)} containers say that they are node {node}: {places}; {index}"

    def _misplacements(self) -> Iterable[str]:
        """Yield conflicts about places of ready nodes: two nodes with one place, a place that the job does not have, or a place that
        differs from the index in the hello although the node has offers (ssh keys)."""
        claims: dict[int, dict[int, Entry]] = {}
        for entry in self.entries.values():
            if entry.facts is not None:
                claims.setdefault(entry.place, {})[entry.node] = entry
        for place, claiming in sorted(claims.items()):
            names = " and ".join(self._claim(entry) for _, entry in sorted(claiming.items())[:NAMED])
            if len(claiming) > 1:
                yield f"{len(claiming)} nodes are node {place} by their rank tables: {names}"
            elif place not in claiming and not self._is_node(place):
                yield f"{names} is node {place} by its rank table: of {len(self.hosts)} nodes the last is {len(self.hosts) - 1}"
            elif any(entry.moved for entry in claiming.values()):
                yield f"{names} is node {place} by its rank table: nodes that exchange ssh keys must keep the indexes of the platform"

    @staticmethod
    def _claim(entry: Entry) -> str:
        return f"{entry.host or '(no name)'} at {entry.address}, which came as node {entry.node},"

    def _disagreements(self) -> Iterable[str]:
        """Yield facts with different values on ready nodes."""
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
        """Return values with their nodes. The rarest values come first: they are more likely wrong."""
        values = sorted(by_value.items(), key=lambda item: (len(item[1]), min(item[1])))
        named = [f"{'(none)' if value is None else value} on {self._nodes(nodes)}" for value, nodes in values[:NAMED]]
        return _listed(named, len(values))

    def _nodes(self, nodes: Sequence[int]) -> str:
        if len(nodes) == 1:
            return self.name(nodes[0])
        if len(nodes) > len(self.hosts) // 2 and len(nodes) > NAMED:
            return f"the other {len(nodes)} nodes"
        return f"nodes {spans(nodes)}"


def _count(counter: Counter[Any], key: object, by: int) -> None:
    """Add to a count, and remove the key at a count of 0."""
    counter[key] += by
    if not counter[key]:
        del counter[key]


def spans(numbers: Iterable[int]) -> str:
    """Return numbers as ranges for people: "0-2, 5" for 0, 1, 2, 5."""
    pairs = runs(numbers)
    named = [str(first) if first == last else f"{first}-{last}" for first, last in pairs]
    more = sum(last - first + 1 for first, last in pairs[NAMED:])
    return ", ".join(named[:NAMED]) + (f" and {more} more" if more else "")


def _listed(named: Sequence[str], count: int) -> str:
    more = count - len(named)
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _own_slots(node: int, slots: str) -> str:
    """Return the slots that a node states for itself, in its fact about all nodes: "8 on each" or "8,4"."""
    each, on_each, _ = slots.partition(" on each")
    numbers = slots.split(",")
    if "..." in slots:  # a shortened list
        return ""
    number = each if on_each else numbers[node] if 0 <= node < len(numbers) else ""
    return number if number.isdecimal() else ""
