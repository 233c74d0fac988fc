"""Drivers of the two state machines: perform their actions on the event loop, and feed events back to them."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from ranklaunch.fields import NOTHING
from ranklaunch.muster import events, wire
from ranklaunch.muster.dialler import Dialler
from ranklaunch.muster.door import Door
from ranklaunch.muster.events import INSIDE, Action, Event, Machine, Now
from ranklaunch.muster.hub import Hub
from ranklaunch.muster.member import Member
from ranklaunch.muster.wire import Message
from ranklaunch.plan.model import Muster
from ranklaunch.system import lookup
from ranklaunch.system.loop import Loop, Timer
from ranklaunch.verdict.blame import Finish, Suspect
from ranklaunch.verdict.model import Note


class Owner(Protocol):
    """Supervisor's side of both drivers."""

    def on_word(self, word: events.Told, *, at_node_0: bool = False) -> None:
        """Take a word from node 0; at_node_0: as node 0, a word from a node."""

    def on_news(self, action: Action) -> None:
        """Take Released, Stop, Again, Judged, Lost or Dismissed, each in its own turn of the loop."""

    def decide(self, question: events.Decide) -> events.Decided:
        """Decide as node 0 if another round follows a failed one."""


class Driver:
    """One machine on the loop. Performs Say, Wake and Rest; subclasses perform all other actions."""

    def __init__(self, machine: Machine, loop: Loop, say: Callable[[str], None]) -> None:
        self._machine = machine
        self._loop = loop
        self._say = say
        self._events: deque[Event] = deque()
        self._timers: dict[Event, Timer] = {}
        self._busy = self._closed = False

    def feed(self, event: Event) -> None:
        """Feed an event to the machine once the actions of the previous event are performed."""
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events and not self._closed:
                now = Now(self._loop.clock(), time.time())
                for action in self._machine.feed(self._events.popleft(), now):
                    self._perform(action)
        finally:
            self._busy = False

    def close(self) -> None:
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()

    def _perform(self, action: Action) -> None:
        if isinstance(action, events.Say):
            self._say(action.text)
        elif isinstance(action, events.Rest):
            self._rest(action.event)
        elif isinstance(action, events.Wake):
            self._rest(action.event)
            fire = partial(self._fire, action.event)
            self._timers[action.event] = self._loop.after(action.seconds, fire)
        else:
            self._do(action)

    def _do(self, action: Action) -> None:
        """Perform an action other than Say, Wake and Rest."""
        raise NotImplementedError

    def _rest(self, event: Event) -> None:
        timer = self._timers.pop(event, None)
        if timer:
            timer.cancel()

    def _fire(self, event: Event) -> None:
        del self._timers[event]
        self.feed(event)


class HubDriver(Driver):
    """Node 0: the hub and its door.

    attempt: number of this start of node 0. restarts: another round may follow a failed one.
    run_id: id of the job, for all nodes.
    """

    def __init__(
        self, muster: Muster, key: bytes, loop: Loop, say: Callable[[str], None], owner: Owner,
        grace_s: float, success: str, attempt: int = 1, *, restarts: bool = False, run_id: str = "",
    ) -> None:  # fmt: skip
        name = os.urandom(8).hex()
        self.hub = Hub(muster, grace_s, success, name, attempt, restarts=restarts, run_id=run_id)
        super().__init__(self.hub, loop, say)
        self._port = muster.port
        self._owner = owner
        self._inside: Inside | None = None
        self._leaving: list[int] = []
        self.feed(events.Start())
        self.door = Door(muster, key, loop, say, self.feed, grace_s)

    def connect(self, inside: Inside) -> None:
        """Add the connection of node 0's own member."""
        self._inside = inside

    def plan(self, success: str) -> None:
        """success: sentence for the success of the whole job."""
        self.feed(events.Planned(success))

    def dismiss(self) -> None:
        """Leave before the other nodes."""
        self.feed(events.Dismiss())

    def end_late(self, finished: str) -> None:
        """End a job with followers: this node has succeeded, and other nodes do not end. finished: result of this node, in words."""
        self.feed(events.EndLate(finished))

    def say(self, topic: str, body: object, nodes: Iterable[int] = ()) -> None:
        """Send a word to these nodes, or to all.

        Raises WireError, TypeError or ValueError if no frame can hold the word.
        """
        wire.require_room(topic, body)
        self.feed(events.Word(topic, body, tuple(nodes)))

    def hurry(self) -> None:
        """Judge the job by the reports so far, in the loop's next turn: after the messages that node 0's own member has just sent."""
        self._loop.after(0, partial(self.feed, events.Hurry()))

    def close(self) -> None:
        super().close()
        self.door.close()

    def _do(self, action: Action) -> None:
        if isinstance(action, events.Send):
            self._send(action)
        elif isinstance(action, events.Close):
            self._let_go(action.link)
        elif isinstance(action, events.Admit):
            self.door.admit(action.link)
        elif isinstance(action, events.TurnAway):
            self.door.turn_away(action.link)
        elif isinstance(action, events.Listen):
            self.door.open()
        elif isinstance(action, events.Sweep):
            self.door.drop_late()
        elif isinstance(action, events.LookUp):
            lookup.look_up(action.host, self._port, self._loop, partial(self._resolved, action.node))
        elif isinstance(action, events.Told):
            # At once: an order to collect evidence must come before the stop that the next message causes.
            self._owner.on_word(action, at_node_0=True)
        elif isinstance(action, events.Decide):
            self.feed(self._owner.decide(action))

    def _send(self, action: events.Send) -> None:
        if self._inside and INSIDE in action.links:
            self._inside.deliver(events.Heard(0, action.message))
        self.door.send(action.message, action.links)

    def _let_go(self, link: int) -> None:
        """Close a connection. After the end of the job, close all together, once every node has its verdict.

        Some platforms kill the other containers when the first one exits.
        """
        self._leaving.append(link)
        while self._leaving and (self.hub.settled or not self.hub.judgement):
            link = self._leaving.pop()
            if link == INSIDE and self._inside:
                self._inside.deliver(events.Broken(0))
            self.door.drop(link)

    def _resolved(self, node: int, looked_up: list[lookup.Address], why: str) -> None:
        addresses = tuple(str(address.sockaddr[0]) for address in looked_up)
        self.feed(events.Resolved(node, addresses, why))


class Inside:
    """Connection of node 0's own member to the hub, inside this process.

    A message arrives in the loop's next turn, as through a socket. No signature is needed, and no other connection has the number INSIDE.
    """

    flushed = True

    def __init__(self, loop: Loop, hub: HubDriver, feed: Callable[[Event], None]) -> None:
        self._loop = loop
        self._hub = hub
        self._feed = feed
        self._has_sent = False
        hub.connect(self)

    def dial(self, again: bool) -> None:
        self._has_sent = False
        self.deliver(events.Reached())
        self.deliver(events.Greeted())

    def send(self, message: Message) -> None:
        event = events.Heard(INSIDE, message) if self._has_sent else events.First(INSIDE, "this container", message)
        self._has_sent = True
        self._loop.after(0, self._hub.feed, event)

    def deliver(self, event: Event) -> None:
        self._loop.after(0, self._feed, event)

    def hang_up(self) -> None:
        self._loop.after(0, lambda: self._hub.feed(events.Broken(INSIDE)))

    def close(self) -> None:
        self._feed = lambda event: None


class MemberDriver(Driver):
    """A node: the member and its connection to node 0.

    attempt: number of this start of the node. hub: on node 0, the hub in this process.
    """

    def __init__(
        self, muster: Muster, key: bytes, loop: Loop, say: Callable[[str], None], owner: Owner,
        attempt: int = 1, hub: HubDriver | None = None,
    ) -> None:  # fmt: skip
        self.member = Member(muster, os.urandom(8).hex(), socket.gethostname(), attempt)
        super().__init__(self.member, loop, say)
        self._owner = owner
        self._pending = 0  # actions that are not yet passed to the owner
        self._connection = Inside(loop, hub, self.feed) if hub else Dialler(muster, key, loop, self.feed)

    def start(self) -> None:
        self.feed(events.Start())

    def busy(self, doing: str) -> None:
        self.feed(events.Busy(doing))

    def ready(self, facts: Mapping[str, str], index: int, host: str, offers: Mapping[str, str] = NOTHING) -> None:
        self.feed(events.Ready(facts, index, host, offers))

    def fail(self, suspect: Suspect) -> None:
        """Send the first failure of this node; report() sends the rest."""
        self.feed(events.Fail(suspect))

    def done(self, finish: Finish, unseen: int = 0) -> None:
        """Report the success of this node. unseen: number of ranks without a known end."""
        self.feed(events.Done(finish, unseen))

    def report(
        self, suspects: Iterable[Suspect], finishes: Iterable[Finish], notes: Iterable[Note],
        state: Mapping[str, Any] = NOTHING,
    ) -> None:  # fmt: skip
        """Report how this node has ended. state: for the decision about another round."""
        self.feed(events.Report(tuple(suspects), tuple(finishes), tuple(notes), state))

    def say(self, topic: str, body: object) -> None:
        """Send a word to node 0. Raises WireError, TypeError or ValueError if no frame can hold the word."""
        wire.require_room(topic, body)
        self.feed(events.Word(topic, body))

    def leave(self) -> None:
        self.feed(events.Leave())

    def close(self) -> None:
        super().close()
        self._connection.close()

    @property
    def over(self) -> bool:
        """True once node 0 will send nothing more, and the owner has taken all actions."""
        return self.member.over and not self._pending

    @property
    def flushed(self) -> bool:
        """True if no message waits to be sent."""
        return self._connection.flushed

    def strange_s(self, now: float) -> float:
        """Seconds for which another ranklaunch has answered at node 0's port."""
        return 0.0 if self.member.strange_since is None else now - self.member.strange_since

    def wall(self, clock: float) -> float:
        """Return a time of this node's monotonic clock as seconds since 1970, by node 0's clock once the difference is measured."""
        return self._loop.wall(clock) if self.member.offset is None else clock + self.member.offset

    def _do(self, action: Action) -> None:
        if isinstance(action, events.Send):
            self._connection.send(action.message)
        elif isinstance(action, events.Close):
            self._connection.hang_up()
        elif isinstance(action, events.Dial):
            self._connection.dial(action.again)
        else:
            self._pending += 1
            self._loop.after(0, partial(self._pass_on, action))

    def _pass_on(self, action: Action) -> None:
        """Pass an action to the owner."""
        self._pending -= 1
        if isinstance(action, events.Told):
            self._owner.on_word(action)
        else:
            self._owner.on_news(action)
