"""What drives the machines of the muster: does what they say on the loop, and tells them what happens."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ranklaunch.fields import NOTHING
from ranklaunch.muster import events, topics
from ranklaunch.muster.dialler import Dialler
from ranklaunch.muster.door import Door
from ranklaunch.muster.events import INSIDE, Action, Event, Machine, Now
from ranklaunch.muster.hub import Hub
from ranklaunch.muster.member import Member
from ranklaunch.muster.wire import Message
from ranklaunch.plan.model import Muster
from ranklaunch.system import lookup
from ranklaunch.system.loop import Loop, Timer
from ranklaunch.verdict.blame import Finish, Judgement, Suspect
from ranklaunch.verdict.model import Note

BACK_S = 2.0  # for a node that is heard again to take the verdict


class Driver:
    """One machine. do: for each kind of action, how it is done; Say, Wake and Rest are the same for all machines."""

    def __init__(
        self, machine: Machine, loop: Loop, say: Callable[[str], None], do: Mapping[type[Action], Callable[[Any], object]]
    ) -> None:
        self._machine = machine
        self._loop = loop
        self._say = say
        self._do: dict[type[Action], Callable[[Any], object]] = {
            events.Say: lambda action: say(action.text),
            events.Wake: self._wake,
            events.Rest: lambda action: self._rest(action.event),
            **do,
        }  # fmt: skip
        self._events: deque[Event] = deque()
        self._timers: dict[Event, Timer] = {}
        self._busy = self._closed = False

    def feed(self, event: Event) -> None:
        """What happens while something is being done comes after that."""
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events and not self._closed:
                for action in self._machine.feed(self._events.popleft(), Now(self._loop.clock(), time.time())):
                    self._do[type(action)](action)
        finally:
            self._busy = False

    def close(self) -> None:
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()

    def _wake(self, action: events.Wake) -> None:
        self._rest(action.event)
        self._timers[action.event] = self._loop.after(action.seconds, lambda: self._woken(action.event))

    def _rest(self, event: Event) -> None:
        timer = self._timers.pop(event, None)
        if timer:
            timer.cancel()

    def _woken(self, event: Event) -> None:
        del self._timers[event]
        self.feed(event)


class HubDriver(Driver):
    """Node 0: the hub and its door. attempt: of this start of it. hear: a word of a node. decide: whether
    another round follows a failed one; None: none does. run_id: of the job, for all nodes."""

    def __init__(
        self, muster: Muster, key: bytes, loop: Loop, say: Callable[[str], None], grace_s: float, success: str, attempt: int = 1,
        hear: Callable[[int, str, Any], object] = lambda node, topic, body: None,
        decide: Callable[[events.Decide], events.Decided] | None = None, run_id: str = "",
    ) -> None:  # fmt: skip
        self.hub = Hub(muster, grace_s, success, os.urandom(8).hex(), attempt, restarts=bool(decide), run_id=run_id)
        self._port = muster.port
        self._inside: Inside | None = None
        self._leaving: list[int] = []
        super().__init__(self.hub, loop, say, {
            events.Send: self._send,
            events.Close: lambda action: self._let_go(action.link),
            events.Admit: lambda action: self.door.admit(action.link),
            events.TurnAway: lambda action: self.door.turn_away(action.link),
            events.Listen: lambda action: self.door.open(),
            events.Sweep: lambda action: self.door.drop_late(),
            events.LookUp: self._look_up,
            # At once: what is said because of it, as an order for evidence, is said before what follows from the next message, as a stop.
            events.Told: lambda action: hear(action.node, action.topic, action.body),
            events.Decide: lambda action: self.feed(decide(action) if decide else events.Decided(False, action.judgement)),
        })  # fmt: skip
        self.feed(events.Start())
        self.door = Door(muster, key, loop, say, self.feed, grace_s)

    def connect(self, inside: Inside) -> None:
        """Node 0's own member."""
        self._inside = inside

    def plan(self, success: str) -> None:
        """success: what is said when everything has succeeded."""
        self.feed(events.Planned(success))

    def dismiss(self) -> None:
        """This side leaves before the others."""
        self.feed(events.Dismiss())

    def end_late(self, finished: str) -> None:
        """Ends a job with followers in which this node has succeeded and others do not end: it cannot leave them alone."""
        self.feed(events.EndLate(finished))

    def say(self, topic: str, body: object, nodes: Iterable[int] = ()) -> None:
        """To these nodes, or to all. Raises WireError, TypeError or ValueError where no frame can hold it."""
        topics.require_room(topic, body)
        self.feed(events.Word(topic, body, tuple(nodes)))

    def hurry(self) -> None:
        """Says what the job died of, as far as that is known; behind what node 0's own member has just said."""
        self._loop.after(0, lambda: self.feed(events.Hurry()))

    @property
    def offers(self) -> dict[int, Mapping[str, str]]:
        """By node."""
        return self.hub.here.offers

    @property
    def others_end(self) -> bool:
        """Whether other nodes are still ending."""
        return self.hub.others_end

    @property
    def settled(self) -> bool:
        """Whether every node that is there has taken the verdict."""
        return self.hub.settled

    def stay(self, since: float, most_s: float, run: Callable[[Callable[[], bool], Callable[[], float]], None]) -> None:
        """For a node that has not taken the verdict, and that nothing was heard of since then: a network that is away for a moment keeps it
        from it, and it would say that node 0 was killed."""
        judged, until = self.hub.judgement, since + most_s
        name = self.hub.unheard(since) if judged and judged.outcome != "stopped" else ""
        left = until - self._loop.clock()
        if name and left > 0:
            text = f"{name} has not taken the verdict: its network may be away, and has {left:.0f} s to come back"
            self._say(f"muster: {text}")
            run(lambda: self.settled or not self.hub.unheard(since), lambda: until)
            soon = self._loop.clock() + BACK_S
            run(lambda: self.settled, lambda: soon)

    @property
    def owed(self) -> bool:
        """Whether a node that has not come yet may still come, and is to hear how the job ended."""
        return self.hub.owed

    def close(self) -> None:
        super().close()
        self.door.close()

    def _send(self, action: events.Send) -> None:
        if self._inside and INSIDE in action.links:
            self._inside.deliver(events.Heard(0, action.message))
        self.door.send(action.message, action.links)

    def _let_go(self, link: int) -> None:
        """Once the job has ended, all at once when each has its verdict: some platforms kill the others when the first leaves."""
        self._leaving.append(link)
        while self._leaving and (self.hub.settled or not self.hub.judgement):
            self._hang_up(self._leaving.pop())

    def _hang_up(self, link: int) -> None:
        if link == INSIDE and self._inside:
            self._inside.deliver(events.Broken(0))
        self.door.drop(link)

    def _look_up(self, action: events.LookUp) -> None:
        def answered(found: list[lookup.Address], why: str) -> None:
            self.feed(events.Resolved(action.node, tuple(str(address.sockaddr[0]) for address in found), why))

        lookup.look_up(action.host, self._port, self._loop, answered)


class Inside:
    """The way of node 0's own member to the hub, inside this process. What one says the other hears in the loop's next turn, as through
    a socket. It needs no signature, and nothing that comes through the door can take its place."""

    flushed = True

    def __init__(self, loop: Loop, hub: HubDriver, feed: Callable[[Event], None]) -> None:
        self._loop = loop
        self._hub = hub
        self._feed = feed
        self._said = False
        hub.connect(self)

    def dial(self, again: bool) -> None:
        self._said = False
        self.deliver(events.Reached())
        self.deliver(events.Greeted())

    def send(self, message: Message) -> None:
        event = events.Heard(INSIDE, message) if self._said else events.First(INSIDE, "this container", message)
        self._said = True
        self._loop.after(0, lambda: self._hub.feed(event))

    def deliver(self, event: Event) -> None:
        self._loop.after(0, lambda: self._feed(event))

    def hang_up(self) -> None:
        self._loop.after(0, lambda: self._hub.feed(events.Broken(INSIDE)))

    def close(self) -> None:
        self._feed = lambda event: None


@dataclass(frozen=True)
class Calls:
    """What a member calls, in a turn of the loop of its own. released: all may start, and who was late. stop: another node has failed.
    judged: what the job died of, or that it has succeeded. lost: node 0 is gone. dismissed: node 0 leaves, having waited for the others
    long enough. word: of node 0. again: all start once more."""

    released: Callable[[str], object]
    stop: Callable[[Judgement], object]
    judged: Callable[[Judgement], object]
    lost: Callable[[Suspect], object]
    dismissed: Callable[[], object]
    word: Callable[[str, Any], object] = lambda topic, body: None
    again: Callable[[events.Again], object] = lambda action: None


class MemberDriver(Driver):
    """A node: the member and its way to node 0. attempt: of this start of the node. hub: on node 0, the one in this process."""

    def __init__(
        self, muster: Muster, key: bytes, loop: Loop, say: Callable[[str], None], calls: Calls, attempt: int = 1,
        hub: HubDriver | None = None,
    ) -> None:  # fmt: skip
        self._pending = 0  # calls
        self.member = Member(muster, os.urandom(8).hex(), socket.gethostname(), attempt)
        self._way = Inside(loop, hub, self.feed) if hub else Dialler(muster, key, loop, self.feed)
        super().__init__(self.member, loop, say, {
            events.Send: lambda action: self._way.send(action.message),
            events.Close: lambda action: self._way.hang_up(),
            events.Dial: lambda action: self._way.dial(action.again),
            events.Released: lambda action: self._call(lambda: calls.released(action.text)),
            events.Stop: lambda action: self._call(lambda: calls.stop(action.judgement)),
            events.Again: lambda action: self._call(lambda: calls.again(action)),
            events.Judged: lambda action: self._call(lambda: calls.judged(action.judgement)),
            events.Lost: lambda action: self._call(lambda: calls.lost(action.suspect)),
            events.Dismissed: lambda action: self._call(calls.dismissed),
            events.Told: lambda action: self._call(lambda: calls.word(action.topic, action.body)),
        })  # fmt: skip

    def start(self) -> None:
        self.feed(events.Start())

    def busy(self, doing: str) -> None:
        self.feed(events.Busy(doing))

    def ready(self, facts: Mapping[str, str], index: int, host: str, offers: Mapping[str, str] = NOTHING) -> None:
        self.feed(events.Ready(facts, index, host, offers))

    def fail(self, suspect: Suspect) -> None:
        """The first that went wrong here; report() says the rest."""
        self.feed(events.Fail(suspect))

    def done(self, finish: Finish, unseen: int = 0) -> None:
        self.feed(events.Done(finish, unseen))

    def report(
        self, suspects: Iterable[Suspect], finishes: Iterable[Finish], notes: Iterable[Note], state: Mapping[str, Any] = NOTHING
    ) -> None:
        """How this node has ended."""
        self.feed(events.Report(tuple(suspects), tuple(finishes), tuple(notes), state))

    def say(self, topic: str, body: object) -> None:
        """To node 0. Raises WireError, TypeError or ValueError where no frame can hold it."""
        topics.require_room(topic, body)
        self.feed(events.Word(topic, body))

    def leave(self) -> None:
        self.feed(events.Leave())

    def close(self) -> None:
        super().close()
        self._way.close()

    @property
    def joined(self) -> bool:
        return self.member.joined

    @property
    def over(self) -> bool:
        """Nothing more will be heard, and all that was is told."""
        return self.member.over and not self._pending

    @property
    def missing(self) -> str:
        """What is waited for, as far as it is known here; "" once all are released."""
        return self.member.missing

    def strange_s(self, now: float) -> float:
        """For how long another ranklaunch has answered at node 0's port."""
        return 0.0 if self.member.strange_since is None else now - self.member.strange_since

    @property
    def shared(self) -> Mapping[str, str]:
        """What node 0 offers, once all are released."""
        return self.member.shared

    @property
    def table(self) -> str:
        """The digest of the rank table by which all start."""
        return self.member.table

    @property
    def run_id(self) -> str:
        """Of the job, as node 0 says it, once all are released."""
        return self.member.run_id

    @property
    def flushed(self) -> bool:
        """Whether all that was said is on its way."""
        return self._way.flushed

    def wall(self, clock: float) -> float:
        """A time of this node's monotonic clock as seconds since 1970, by node 0's clock where that is known."""
        return self._loop.wall(clock) if self.member.offset is None else clock + self.member.offset

    def _call(self, what: Callable[[], object]) -> None:
        def call() -> None:
            self._pending -= 1
            what()

        self._pending += 1
        self._loop.after(0, call)
