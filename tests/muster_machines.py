"""The machines of the muster in a time of their own: no sockets, no clock, no loop."""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ranklaunch.muster import events, wire
from ranklaunch.muster.events import Action, Event, Machine, Now
from ranklaunch.muster.hub import Hub
from ranklaunch.muster.member import Member
from ranklaunch.plan.model import Muster
from ranklaunch.verdict import messages
from ranklaunch.verdict.blame import Finish, Suspect
from ranklaunch.verdict.model import Culprit

FACTS = {"method": "torchrun", "nodes": "n", "torch": "2.6.0"}
STAMP = {"attempt": 1, "round": 0}
EPOCH = 1.7e9  # by the wall, when the clock is at 0


def hosts(count: int) -> tuple[str, ...]:
    """Loopback addresses: nothing is looked up anywhere."""
    return ("127.0.0.1", *(f"127.1.{i // 250}.{i % 250 + 1}" for i in range(1, count)))


def muster(nodes: int, node: int = 0, port: int = 18889, **more: Any) -> Muster:
    values: dict[str, Any] = {"timeout_s": 600.0, "lost_after_s": 20.0, "end_timeout_s": 600.0, **more}
    return Muster(node=node, hosts=hosts(nodes), port=port, **values)


def as_sent(message: dict[str, Any]) -> dict[str, Any]:
    """What comes out at the other end. Raises WireError where it is too large."""
    received: dict[str, Any] = json.loads(wire.body(message))
    return received


class Time:
    """Seconds from 0, and what is to happen in them. Of what happens at one moment the first that was asked for is first."""

    def __init__(self) -> None:
        self.clock = 0.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()

    @property
    def now(self) -> Now:
        return Now(self.clock, EPOCH + self.clock)

    def after(self, seconds: float, what: Callable[..., object], *args: object) -> None:
        heapq.heappush(self._due, (self.clock + seconds, next(self._order), partial(what, *args)))

    def until(self, clock: float, done: Callable[[], bool] = lambda: False) -> None:
        while self._due and self._due[0][0] <= clock and not done():
            self.clock, _, what = heapq.heappop(self._due)
            what()
        self.clock = max(self.clock, clock) if not done() else self.clock

    def run(self, seconds: float) -> None:
        self.until(self.clock + seconds)


class Running:
    """A machine, whose timers are kept. do: what is done for its other actions."""

    def __init__(self, machine: Machine, time: Time, do: Callable[[Action], object]) -> None:
        self.machine = machine
        self.time = time
        self.do = do
        self.said: list[str] = []
        self._timers: dict[Event, object] = {}

    def feed(self, event: Event) -> None:
        for action in self.machine.feed(event, self.time.now):
            if isinstance(action, events.Say):
                self.said.append(action.text)
            elif isinstance(action, events.Wake):
                self._wake(action)
            elif isinstance(action, events.Rest):
                self._timers.pop(action.event, None)
            else:
                self.do(action)

    def _wake(self, action: events.Wake) -> None:
        mark = self._timers[action.event] = object()

        def woken() -> None:
            if self._timers.get(action.event) is mark:
                del self._timers[action.event]
                self.feed(action.event)

        self.time.after(action.seconds, woken)


class Peer:
    """A connection to the hub, and what stands at its other end."""

    def __init__(self, bench: Bench, link: int) -> None:
        self.bench = bench
        self.link = link
        self.messages: list[dict[str, Any]] = []
        self.closed = False  # by the hub
        self.admitted = self.turned_away = False
        self.on_message: Callable[[dict[str, Any]], object] = lambda message: None
        self._spoke = False

    def types(self) -> list[str]:
        return [message["type"] for message in self.messages]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["type"] == kind]

    def send(self, **message: Any) -> None:
        self.send_raw({**STAMP, **message})

    def send_raw(self, message: dict[str, Any]) -> None:
        if not self.closed:
            first, self._spoke = not self._spoke, True
            self.bench.feed(events.First(self.link, f"10.0.0.{self.link}", message) if first else events.Heard(self.link, message))

    def cut(self, error: OSError | None = None) -> None:
        """The connection breaks, and not by the hub."""
        self.bench.peers.pop(self.link, None)
        if self.admitted:
            self.bench.feed(events.Broken(self.link, error))


class Bench:
    """A hub, and its connections. asked: names that it has looked up. words: that it has heard."""

    def __init__(self, nodes: int, *, grace_s: float = 1.0, restarts: bool = False, **more: Any) -> None:
        self.time = Time()
        self.decisions: list[events.Decide] = []
        self.hosts = hosts(nodes)
        self.hub = Hub(muster(nodes, **more), grace_s, "all succeeded", "this hub", restarts=restarts)
        self.running = Running(self.hub, self.time, self._do)
        self.peers: dict[int, Peer] = {}
        self.asked: list[str] = []
        self.words: list[events.Told] = []
        self._links = itertools.count(1)
        self._is_inside = False
        self.feed(events.Start())

    @property
    def said(self) -> list[str]:
        return self.running.said

    def feed(self, event: Event) -> None:
        self.running.feed(event)

    def _do(self, action: Action) -> None:
        if isinstance(action, events.Send):
            message = as_sent(action.message)
            for peer in [self.peers[link] for link in action.links if link in self.peers]:
                peer.messages.append(message)
                self.time.after(0, lambda peer=peer: peer.on_message(message))  # type: ignore[misc]
        elif isinstance(action, events.Close):
            peer = self.peers.pop(action.link, None)
            if peer:
                peer.closed = True
        elif isinstance(action, events.Admit):
            self.peers[action.link].admitted = True
        elif isinstance(action, events.TurnAway):
            self.peers[action.link].turned_away = True
        elif isinstance(action, events.Told):
            self.words.append(action)
        elif isinstance(action, events.Decide):
            self.decisions.append(action)
            self.time.after(0, lambda: self.feed(events.Decided(not action.away, action.judgement)))
        elif isinstance(action, events.LookUp):
            self.asked.append(action.host)
            self.feed(events.Resolved(action.node, (action.host,), ""))
        else:
            assert isinstance(action, (events.Listen, events.Sweep)), action

    def connection(self, node: int = -1) -> Peer:
        """node: whose it is. The first of node 0 is its own member's, which comes from inside."""
        number = next(self._links)
        link = events.INSIDE if node == 0 and not self._is_inside else number
        self._is_inside |= link == events.INSIDE
        peer = self.peers[link] = Peer(self, link)
        return peer

    def member(self, node: int, instance: str = "", *, facts: Any = FACTS, **more: Any) -> Peer:
        """Says hello, and is ready as soon as it is welcome (facts None: never); obeys."""
        peer = self.connection(node)

        def answer(message: dict[str, Any]) -> None:
            if message["type"] == "welcome" and facts is not None:
                named = self.hosts[node] if node < len(self.hosts) else ""
                peer.send(type="ready", facts=facts, index=node, host=named)
            elif message["type"] == "stop":
                peer.send(type="stopping")

        peer.on_message = answer
        hello = {"type": "hello", "node": node, "instance": instance or f"i{node}", "host": f"h{node}", "doing": "starting", **more}
        peer.send(**hello)
        self.time.run(0)
        return peer

    def members(self, nodes: Iterable[int], **more: Any) -> list[Peer]:
        return [self.member(node, **more) for node in nodes]

    def released(self, nodes: int) -> list[Peer]:
        """All come, and are."""
        members = self.members(range(nodes))
        self.time.run(0)
        assert all(m.of("release") for m in members)
        return members

    def judged(self, members: Iterable[Peer]) -> dict[str, Any]:
        """The one judgement that all of them got."""
        found = [m.of("judgement")[-1]["judgement"] for m in members]
        assert all(judgement == found[0] for judgement in found)
        judgement: dict[str, Any] = found[0]
        return judgement

    def fails(self, members: list[Peer], node: int = 1, code: int = 3) -> dict[str, Any]:
        """One of the released members fails, and all get the same."""
        value = suspect(node, EPOCH + self.time.clock, code=code)
        members[node].send(type="fail", suspect=value)
        self.time.run(0)
        assert all(m.of("stop") for m in members)
        for m in members:
            m.send(type="report", suspects=[value] if m is members[node] else [], finishes=[])
        judgement = self.judged(members)
        assert (judgement["outcome"], judgement["exit_code"], judgement["culprit"]["node"]) == ("failed", code, node)
        for m in members:
            m.send(type="bye")
        assert self.hub.settled
        return judgement

    def fails_once(self, members: list[Peer]) -> None:
        """The last of the released members fails, and all start again."""
        members[-1].send(type="fail", suspect=suspect(len(members) - 1, EPOCH + self.time.clock))
        self.time.run(0)
        for m in members:
            m.send(type="report", suspects=[], finishes=[])
        self.time.run(0)
        assert all([message["round"] for message in m.of("again")] == [1] for m in members)


class Lone:
    """A member, of node 1 of two, and what it wants."""

    def __init__(self, **more: Any) -> None:
        self.time = Time()
        self.member = Member(muster(2, 1, **more), "me", "my-host")
        self.running = Running(self.member, self.time, self._do)
        self.sent: list[dict[str, Any]] = []
        self.dials: list[bool] = []
        self.hung_up = 0
        self.calls: list[Action] = []

    @property
    def said(self) -> list[str]:
        return self.running.said

    def _do(self, action: Action) -> None:
        if isinstance(action, events.Send):
            self.sent.append(as_sent(action.message))
        elif isinstance(action, events.Dial):
            self.dials.append(action.again)
        elif isinstance(action, events.Close):
            self.hung_up += 1
        else:
            self.calls.append(action)

    def feed(self, *all_events: Event) -> None:
        for event in all_events:
            self.running.feed(event)

    def hear(self, kind: str, **message: Any) -> None:
        self.feed(events.Heard(0, {"type": kind, **STAMP, **message}))

    def come(self, hub: str = "this hub", **more: Any) -> None:
        """To node 0, which welcomes it."""
        self.feed(events.Reached(), events.Greeted())
        self.hear("welcome", hub=hub, **more)

    def types(self) -> list[str]:
        return [message["type"] for message in self.sent]


def suspect(node: int, at: float = EPOCH, code: int = 3, **more: Any) -> dict[str, Any]:
    culprit = Culprit(node, node, 100, code, None, False, ("boom",), f"rank {node}", f"h{node}")
    return {**messages.as_message(Suspect(node, at, "failed", code, "", culprit)), **more}


def finish(node: int, at: float = EPOCH) -> dict[str, Any]:
    return messages.as_message(Finish(node, None, at))
