"""Every node's side of the muster: connect to node 0, wait for the release, report failures, and follow the orders of node 0.

A state machine without input or output: events go in, actions come out, and TABLE has the method for each event in each state.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

from ranklaunch.muster import events, liveness, wire
from ranklaunch.muster.events import NO, REFUSED, TAKEN, Broken, Event, Heard, Kept, Key, Machine, Row
from ranklaunch.muster.wire import Message
from ranklaunch.plan.model import Muster
from ranklaunch.verdict import blame, messages

# gathering: before the first release. released: after a release. stopping: after the order to stop. gate: before the release of a later
# round. over: node 0 will send nothing more. In each state the node is either joined, or still connecting to node 0.
STATES = GATHERING, RELEASED, STOPPING, GATE, OVER = "gathering", "released", "stopping", "gate", "over"

# fmt: off
TABLE: dict[Key, Row] = {
    # message             gathering       released         stopping         gate             over       of another round
    "welcome":           ("join",         "rejoin",        "rejoin",        "rejoin",        NO,        TAKEN),
    "pong":              ("measure",      "measure",       "measure",       "measure",       "measure", TAKEN),
    "status":            ("heed",         NO,              NO,              "heed",          NO,        REFUSED),
    "release":           ("release",      NO,              NO,              "release",       NO,        REFUSED),
    "stop":              ("stop",         "stop",          "stop",          "stop",          NO,        REFUSED),
    "judgement":         ("accept",       "accept",        "accept",        "accept",        NO,        REFUSED),
    "again":             ("go_again",     "go_again",      "go_again",      "go_again",      NO,        TAKEN),
    "word":              (NO,             "hear_word",     "hear_word",     NO,              NO,        REFUSED),
    "dismissed":         ("part",         "part",          "part",          "part",          NO,        TAKEN),
    # event of this side
    events.Start:        ("dial",         NO,              NO,              NO,              NO),
    events.Reached:      ("wait",         "wait",          "wait",          "wait",          "hang_up"),
    events.Greeted:      ("greet",        "greet",         "greet",         "greet",         "hang_up"),
    events.Unreached:    ("retry",        "retry_or_lose", "retry_or_lose", "retry_or_lose", NO),
    Broken:              ("come_again",   "come_again",    "come_again",    "come_again",    "let_go"),
    events.GreetingDue:  ("give_up",      "give_up",       "give_up",       "give_up",       "hang_up"),
    events.Retry:        ("dial",         "dial",          "dial",          "dial",          NO),
    events.PingDue:      ("ping",         "ping",          "ping",          "ping",          "ping"),
    events.Remind:       ("remind",       NO,              "remind",        "remind",        NO),
    events.Busy:         ("tell_busy",    "tell_busy",     "tell_busy",     "tell_busy",     NO),
    events.Ready:        ("tell_ready",   "tell_ready",    "tell_ready",    "tell_ready",    NO),
    events.Fail:         ("tell_fail",    "tell_fail",     "tell_fail",     "tell_fail",     NO),
    events.Done:         ("tell_done",    "tell_done",     "tell_done",     "tell_done",     NO),
    events.Report:       ("tell_report",  "tell_report",   "tell_report",   "tell_report",   NO),
    events.Word:         (NO,             "say_word",      "say_word",      NO,              NO),
    events.Leave:        ("leave",        "leave",         "leave",         "leave",         "take_leave"),
}
# fmt: on

RETRY_S = 0.5  # between two attempts to connect, at most
FIRST_RETRY_S = 0.01  # half of the first pause, since node 0 may start within milliseconds; later pauses double
GREETING_S = 10.0  # for the program at node 0's port to welcome this node
STATUS_S = 30.0  # between two console lines about the wait
FIRST_STATUS_S = 2.0
PINGS = 4  # quick pings after a connection, to compare the clocks
PING_S = 0.1  # between quick pings
TRUSTED_S = 300.0  # for which a measurement with a short round trip is kept; then clocks have drifted
SLACK_S = 0.2  # drift of two clocks within TRUSTED_S, at most; a larger difference means that a clock was set


class Member(Machine):
    """Machine of every node.

    instance: differs between two starts of a node. host: this node's own name. joined: True while node 0 has welcomed this node. why: the
    reason that the node is not joined. shared, run_id, table: from the release: node 0's offers, the job's id, and the digest of the
    rank table. offset: seconds by which node 0's wall clock is ahead of this node's monotonic one; None until measured.
    """

    def __init__(self, muster: Muster, instance: str, host: str, attempt: int = 1) -> None:
        super().__init__(GATHERING, attempt)
        self.joined = False
        self.why = "nothing heard of it yet"
        self.shared: Mapping[str, str] = {}
        self.run_id = self.table = ""
        self.offset: float | None = None
        self._muster = muster
        self._instance = instance
        self._host = host
        self._hub_name = ""
        self._hub_attempt = 0
        self._doing = "starting"
        self._ready: Message | None = None
        self._kept: list[Message] = []  # sent again after each new connection: failures, success, report
        self._words = Kept()
        self._missing = ""
        self._is_released = False
        self._greeted = False
        self._tries = 0
        self._answered = False  # True if any program answered at the last attempt: `why` then has a reason worth keeping
        self._other_key = ""  # the reason of an attempt refused for another key; kept, since later reasons say less
        self.strange_since: float | None = None  # time since which another ranklaunch answers at node 0's port
        self._broken_since: float | None = None
        self._broken_by: OSError | None = None
        self._best: tuple[float, float] | None = None  # round trip, when it was measured
        self._pings = 0
        self._ping_s = liveness.beat_s(len(muster.hosts), muster.lost_after_s)

    @property
    def over(self) -> bool:
        """True once node 0 will send nothing more."""
        return self.state == OVER

    @property
    def missing(self) -> str:
        """Missing nodes, or node 0 and the reason, as far as this node knows; "" after the release."""
        if self._is_released:
            return ""
        if self.joined:
            return self._missing or "the other nodes"
        return f"{blame.place(0, self._muster.hosts[0])}: {self.why}"

    def _take(self, event: Event) -> None:
        if not isinstance(event, Heard):
            super()._take(event)
            return
        try:
            self._hear(event.message)
        except wire.NOT_UNDERSTOOD as error:
            self._refuse(f"invalid message from node 0: {wire.why(error)}")

    def _hear(self, message: Message) -> None:
        kind = message.get("type")
        rule = self.rules.get((self.state, kind or ""))  # unknown types, perhaps of a later version, are ignored
        if rule and (self._is_of_round(message) or kind in COUNTS_ALWAYS):
            rule(self, message)

    def _is_of_round(self, message: Message) -> bool:
        """Return True for node 0's attempt and this round, and before the welcome: until then the node knows neither.

        Node 0 counts its attempts by itself, so they are compared with its welcome.
        """
        round_of_node_0 = wire.number(message, "attempt"), wire.number(message, "round")
        return not self.joined or round_of_node_0 == (self._hub_attempt, self.round)

    # Connection to node 0

    def _dial(self, event: Event) -> None:
        """The node connects to node 0. After a lost connection it uses the last address, because
        name servers may be slow. Otherwise it looks up the name."""
        self._do(events.Dial(again=isinstance(event, events.Retry) and event.again))

    def _wait(self, event: events.Reached) -> None:
        """The node waits for the greeting of node 0."""
        if not self._answered:
            self._explain(f"the program at port {self._muster.port} sends no greeting")
        self._do(events.Wake(events.GreetingDue(), GREETING_S))

    def _greet(self, event: events.Greeted) -> None:
        """The node sends its number, its host and its present work."""
        self._greeted = True
        hello = {"type": "hello", "node": self._muster.node, "host": self._host, "instance": self._instance, "doing": self._doing}
        self._do(events.Send(self._stamped(hello)))

    def _hang_up(self, event: Event) -> None:
        """The node no longer needs the connection, and closes it."""
        self._do(events.Close())

    def _retry(self, event: events.Unreached) -> None:
        """Nothing answers. The node connects again, with growing pauses."""
        self.strange_since = None
        self._answered = self._answered and not event.refused
        self._come_later(event.why)

    def _retry_or_lose(self, event: events.Unreached) -> None:
        """Nothing answers. The node connects again while node 0 may return; afterwards node 0 is
        lost. A killed node 0 closes its connections. A reset and then silence mean that the host of
        node 0 is cut off from this node."""
        self._answered = self._answered and not event.refused
        if event.silent and liveness.reset(self._broken_by):
            self._broken_by = OSError(errno.ETIMEDOUT, event.why)
        self._come_later_or_lose(event.why)

    def _come_later_or_lose(self, why: str, again: bool = False) -> None:
        waited = 0.0 if self._broken_since is None else self._now.clock - self._broken_since
        if self._broken_since is not None and (waited >= liveness.RETURN_S or liveness.silence(self._broken_by)):
            self._explain(why)
            self._lose()
        else:
            self._come_later(why, again)

    def _come_later(self, why: str, again: bool = False) -> None:
        self._explain(why)
        self._tries += 1
        seconds = min(RETRY_S, FIRST_RETRY_S * 2 ** min(self._tries, 10))
        self._do(events.Wake(events.Retry(again), seconds))

    def _give_up(self, event: events.GreetingDue) -> None:
        """The program at this port does not greet like ranklaunch. The node closes the
        connection."""
        self._refuse("the program at the port does not answer as ranklaunch")

    def _refuse(self, why: str) -> None:
        self._do(events.Close())
        super()._take(Broken(0, OSError(errno.EPROTO, why), self._greeted))

    def _come_again(self, event: Broken) -> None:
        """The connection is lost. The node writes the reason and connects again, unless node 0 has
        ended."""
        self._do(events.Rest(events.GreetingDue()))
        self._do(events.Rest(events.PingDue()))
        again = self.joined
        self._answered, self.joined, self._greeted = True, False, False
        why = liveness.words(event.error) if event.error else f"the program at port {self._muster.port} is not ranklaunch"
        if again:
            self._broken_since, self._broken_by = self._now.clock, event.error
            why = why if event.error else "the connection was closed"
        elif event.spoke and event.error is None:
            self.strange_since = self._now.clock if self.strange_since is None else self.strange_since
            why = self._other_key = "it closes the connection: another RANKLAUNCH_SECRET there, or another job's name"
        if self.state == GATHERING:
            self._come_later(why, again)
        else:
            self._come_later_or_lose(why, again)

    def _explain(self, why: str) -> None:
        self.why = f"{why}; before that: {self._other_key}" if self._other_key not in why else why

    def _lose(self) -> None:
        self.state = OVER
        since = self._now.clock if self._broken_since is None else self._broken_since
        at = self._now.wall_of(since) if self.offset is None else since + self.offset
        # Without `since`, which differs between nodes: all nodes must print the same reason.
        self._do(events.Lost(liveness.suspect(0, self._muster.hosts[0], liveness.silence(self._broken_by), at)))

    # Messages of node 0

    def _join(self, message: Message) -> None:
        """Node 0 welcomes this node. The node sends again all facts that node 0 needs, as facts of
        node 0's round."""
        if wire.text(message, "hub") == self._hub_name:
            self._settle_in(message)
            return
        self.round = wire.number(message, "round")
        if self._ready:
            self._ready = self._stamped(self._ready)
        self._kept = [self._stamped(kept) for kept in self._kept]
        self._settle_in(message)

    def _rejoin(self, message: Message) -> None:
        """Like join. If node 0 was started anew, this node has no part in the new attempt, and node
        0 is lost."""
        if wire.text(message, "hub") != self._hub_name:
            self._do(events.Rest(events.GreetingDue()))
            self._lose()
            return
        self._settle_in(message)

    def _settle_in(self, message: Message) -> None:
        self._do(events.Rest(events.GreetingDue()))
        self._hub_name, self._hub_attempt = str(message["hub"]), wire.number(message, "attempt")
        self.joined, self._broken_since, self.strange_since, self._other_key = True, None, None, ""
        self._pings = 0
        self._ping(events.PingDue())
        for kept in (self._ready, *self._words, *self._kept):
            if kept:
                self._do(events.Send(kept))

    def _measure(self, message: Message) -> None:
        """The node measures the difference of the clocks, to within the round trip."""
        self._words.drop(message)
        now, sent, wall = self._now.clock, float(message["sent"]), float(message["time"])
        trip = now - sent
        if not (0 <= trip <= 60 and 0 <= wall <= 4e10):
            return
        offset = wall - (sent + now) / 2
        if not self._best or trip <= self._best[0] or now - self._best[1] > TRUSTED_S or self._was_set(offset, trip):
            self._best, self.offset = (trip, now), offset

    def _was_set(self, offset: float, trip: float) -> bool:
        """Return True if a clock was set since the best measurement. A measurement is wrong by at most half of its round trip."""
        return bool(self._best and self.offset is not None and abs(offset - self.offset) > (trip + self._best[0]) / 2 + SLACK_S)

    def _heed(self, message: Message) -> None:
        """Node 0 sends the names of missing nodes from time to time. The node prints them once it
        is ready."""
        self._missing = wire.text(message, "missing")
        if self._ready:
            self._do(events.Say(f"muster: waiting for {self._missing}"))

    def _release(self, message: Message) -> None:
        """All nodes may start. The node starts its ranks."""
        self.state, self._is_released = RELEASED, True
        self.shared = wire.texts(message.get("shared", {}))
        self._do(events.Rest(events.Remind()))
        self.run_id = wire.text({"run": "", **message}, "run")[: blame.WORD]
        self.table = wire.text({"table": "", **message}, "table")
        self._do(events.Released(wire.text({"text": "", **message}, "text")))

    def _stop(self, message: Message) -> None:
        """Another node has failed. The node confirms the order, and stops its ranks."""
        judgement = messages.judgement(message["judgement"])
        self.state = STOPPING
        self._say({"type": "stopping"})
        self._do(events.Stop(judgement))

    def _hear_word(self, message: Message) -> None:
        """The node reads the message, unless it is a repetition."""
        self._hear_once(0, self._words, message)

    def _accept(self, message: Message) -> None:
        """The node receives the judgement. Only its files remain to be written."""
        judgement = messages.judgement(message["judgement"])
        self.state = OVER
        self._do(events.Judged(judgement))

    def _go_again(self, message: Message) -> None:
        """The round has ended, and all nodes start once more. The node drops the messages of the
        old round. It ignores any round but the next."""
        judgement, following = messages.judgement(message["judgement"]), wire.following(message)
        if (wire.number(message, "attempt"), wire.number(message, "round")) != (self._hub_attempt, self.round + 1):
            return
        self.round += 1
        self.state, self._is_released = GATE, False
        self._ready, self._missing, self._doing = None, "", "starting again"
        self._kept.clear()
        self._words.clear()
        self._do(events.Rest(events.Remind()))
        self._do(events.Again(self.round, judgement, following))

    def _part(self, message: Message) -> None:
        """Node 0 leaves. The node says good-bye, and continues alone."""
        self._say({"type": "bye"})
        self.state = OVER
        self._do(events.Dismissed())

    # Events of this node's supervisor

    def _tell_busy(self, event: events.Busy) -> None:
        """The node reports its present work."""
        self._doing = event.doing
        self._say({"type": "busy", "doing": event.doing})

    def _tell_ready(self, event: events.Ready) -> None:
        """The node reports that it is ready, or ready again with another rank table."""
        again = {"again": self._ready.get("again", 0) + 1} if self._ready else {}
        self._ready = self._stamped({
            "type": "ready", "facts": dict(event.facts), "index": event.index, "host": event.host, "offers": dict(event.offers), **again,
        })  # fmt: skip
        self._say(self._ready)
        self._do(events.Wake(events.Remind(), FIRST_STATUS_S))

    def _tell_fail(self, event: events.Fail) -> None:
        """The node reports its first failure."""
        self._keep({"type": "fail", "suspect": messages.as_message(event.suspect)})

    def _tell_done(self, event: events.Done) -> None:
        """The node reports that its ranks have succeeded."""
        self._keep({"type": "done", "finish": messages.as_message(event.finish), "unseen": event.unseen})

    def _tell_report(self, event: events.Report) -> None:
        """The node reports how its processes ended."""
        self._keep({
            "type": "report",
            "suspects": [messages.as_message(suspect) for suspect in event.suspects],
            "finishes": [messages.as_message(finish) for finish in event.finishes],
            "notes": [messages.as_message(note) for note in event.notes],
            **({"state": dict(event.state)} if event.state else {}),
        })  # fmt: skip

    def _say_word(self, event: events.Word) -> None:
        """The node sends a message to node 0, and keeps it until node 0 has acknowledged it."""
        message = self._worded(event)
        self._words.add(message)
        self._say(message)

    def _leave(self, event: events.Leave) -> None:
        """The node says good-bye, and leaves before the others."""
        self._say({"type": "bye"})
        self.state = OVER

    def _take_leave(self, event: events.Leave) -> None:
        """The node has written its verdict. It says good-bye, and waits until node 0 releases
        it."""
        self._say({"type": "bye"})

    def _let_go(self, event: Broken) -> None:
        """Node 0 has closed the connection. The node does not connect again."""
        self.joined = False

    def _keep(self, message: Message) -> None:
        self._kept.append(self._stamped(message))
        self._say(message)

    def _say(self, message: Message) -> None:
        if self.joined:
            self._do(events.Send(self._stamped(message)))

    # Time

    def _ping(self, event: events.PingDue) -> None:
        """The node asks node 0 for its time: often at first, to compare the clocks."""
        self._say({"type": "ping", "sent": self._now.clock, "heard": self._words.heard})
        self._pings += 1
        self._do(events.Wake(events.PingDue(), PING_S if self._pings < PINGS else self._ping_s))

    def _remind(self, event: events.Remind) -> None:
        """The node prints that it waits for node 0, and the reason."""
        self._do(events.Wake(events.Remind(), STATUS_S))
        if not self.joined:
            self._do(events.Say(f"muster: waiting for {self.missing}"))


Member.rules = events.rules(Member, STATES, TABLE)
COUNTS_ALWAYS = events.taken(TABLE)
