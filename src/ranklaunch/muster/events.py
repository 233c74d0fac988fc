"""Events and actions of the muster's state machines, and the machines' common base.

Events and actions are frozen values, so a test can feed the events of a job, with their times, and compare the actions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Union

from ranklaunch.muster import wire
from ranklaunch.muster.wire import Message
from ranklaunch.verdict.blame import Finish, Judgement, Suspect
from ranklaunch.verdict.model import Note

INSIDE = 0  # number of the connection of node 0's own member; connections through the listener count from 1


class Now(NamedTuple):
    """One moment by both clocks. clock: monotonic seconds; wall: seconds since 1970."""

    clock: float
    wall: float

    def wall_of(self, clock: float) -> float:
        """Return a time of the monotonic clock as seconds since 1970."""
        return self.wall - (self.clock - clock)


@dataclass(frozen=True)
class Event:
    """Input of a machine. link: number of a connection; a member has one connection at a time, with number 0."""


@dataclass(frozen=True)
class Start(Event):
    """The machine begins."""


@dataclass(frozen=True)
class First(Event):
    """First message of a connection to node 0, with a valid signature. address: the peer's."""

    link: int
    address: str
    message: Message


@dataclass(frozen=True)
class Heard(Event):
    """Later message of an admitted connection; at a member, every message."""

    link: int
    message: Message


@dataclass(frozen=True)
class Nonsense(Event):
    """Invalid bytes from an admitted connection."""

    link: int
    why: str


@dataclass(frozen=True)
class Broken(Event):
    """End of a connection. error: None if the other side closed it. spoke: True if the other side had sent ranklaunch's greeting."""

    link: int = 0
    error: OSError | None = None
    spoke: bool = True


@dataclass(frozen=True)
class Overdue(Event):
    """End of the time for a node to connect again after a broken connection."""

    instance: str


@dataclass(frozen=True)
class Tick(Event):
    """Timer of the hub: deadlines, the listener, unsigned connections."""


@dataclass(frozen=True)
class Resolved(Event):
    """Result of the look-up of a missing node's name. why: the reason that the name has no address, or ""."""

    node: int
    addresses: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class AtDoor(Event):
    """State of the listener. trouble: why no node can connect, or "". refused: addresses of peers with another key. patience_s: seconds
    until the trouble ends the job."""

    trouble: str
    refused: str
    patience_s: float = float("inf")


@dataclass(frozen=True)
class Planned(Event):
    """New sentence for the success of the whole job."""

    success: str


@dataclass(frozen=True)
class Dismiss(Event):
    """Node 0 leaves. The other nodes continue alone."""


@dataclass(frozen=True)
class EndLate(Event):
    """Node 0 has succeeded, and the remaining nodes do not end; node 0 cannot leave them alone. finished: result of node 0, in words."""

    finished: str


@dataclass(frozen=True)
class Hurry(Event):
    """End of node 0's wait for reports."""


@dataclass(frozen=True)
class Decided(Event):
    """Answer to Decide. again: True if all nodes start again. judgement: of the ended round. next: facts for the nodes on the next
    round, as JSON."""

    again: bool
    judgement: Judgement
    next: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reached(Event):
    """A program answers at node 0's port; its greeting is awaited."""


@dataclass(frozen=True)
class Greeted(Event):
    """The program at node 0's port has sent ranklaunch's greeting, and takes messages."""


@dataclass(frozen=True)
class Unreached(Event):
    """No answer from node 0, or its name is unknown. refused: True if the port did not answer, False if the name is unknown. silent: the
    host did not answer either."""

    why: str
    refused: bool
    silent: bool = False


@dataclass(frozen=True)
class Retry(Event):
    """Time to connect again. again: to the last addresses of node 0, without a look-up."""

    again: bool = False


@dataclass(frozen=True)
class GreetingDue(Event):
    """End of the time for the program at node 0's port to welcome this node."""


@dataclass(frozen=True)
class PingDue(Event):
    """Time for a ping."""


@dataclass(frozen=True)
class Remind(Event):
    """Time for a console line about the wait."""


@dataclass(frozen=True)
class Busy(Event):
    """Work of this node before it is ready. doing: in words."""

    doing: str


@dataclass(frozen=True)
class Ready(Event):
    """This node is ready to start. index, host: its place, from the rank table if there is one. offers: short texts for node 0;
    node 0's own offers are for all nodes."""

    facts: Mapping[str, str]
    index: int
    host: str
    offers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Fail(Event):
    """First failure of this node. Report has all of them."""

    suspect: Suspect


@dataclass(frozen=True)
class Done(Event):
    """Success of this node's ranks. unseen: number of its ranks without a known end."""

    finish: Finish
    unseen: int = 0


@dataclass(frozen=True)
class Report(Event):
    """End of this node. state: for the decision about another round, as JSON."""

    suspects: tuple[Suspect, ...] = ()
    finishes: tuple[Finish, ...] = ()
    notes: tuple[Note, ...] = ()
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Word(Event):
    """Message between supervisors, which the muster only carries. body: as JSON. nodes: receivers of node 0's message; () for all."""

    topic: str
    body: Any
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Leave(Event):
    """This node leaves: before the other nodes, or together with them after it has written its verdict."""


@dataclass(frozen=True)
class Action:
    """Output of a machine, performed by its driver."""


@dataclass(frozen=True)
class Send(Action):
    """Send one message to each of these connections."""

    message: Message
    links: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Close(Action):
    """Close a connection."""

    link: int = 0


@dataclass(frozen=True)
class Admit(Action):
    """Keep a signed connection, and accept messages of full size."""

    link: int


@dataclass(frozen=True)
class TurnAway(Action):
    """Keep a connection only until it has read why it has no place in the job."""

    link: int


@dataclass(frozen=True)
class Listen(Action):
    """Listen on node 0's port, unless this is done."""


@dataclass(frozen=True)
class Sweep(Action):
    """Close connections that have not signed in time."""


@dataclass(frozen=True)
class LookUp(Action):
    """Look up the name of a missing node. The answer is Resolved."""

    node: int
    host: str


@dataclass(frozen=True)
class Dial(Action):
    """Connect to node 0. The answer is Reached or Unreached. again: to the last addresses of node 0, without a look-up."""

    again: bool = False


@dataclass(frozen=True)
class Say(Action):
    """Print a line on the console."""

    text: str


@dataclass(frozen=True)
class Wake(Action):
    """Feed the event after so many seconds. Replaces the timer of an equal event."""

    event: Event
    seconds: float


@dataclass(frozen=True)
class Rest(Action):
    """Cancel the timer of an event."""

    event: Event


@dataclass(frozen=True)
class Released(Action):
    """Start of all nodes. text: for the console, with the nodes that came late."""

    text: str


@dataclass(frozen=True)
class Stop(Action):
    """Order to stop: another node has failed."""

    judgement: Judgement


@dataclass(frozen=True)
class Judged(Action):
    """Judgement of the whole job: failed or succeeded."""

    judgement: Judgement


@dataclass(frozen=True)
class Decide(Action):
    """A round has failed, and all present nodes have ended. The answer is Decided. released: True if the round had begun. away: a
    node that is lost or has not reported its end, "" for none. states: Report.state of each node."""

    judgement: Judgement
    round: int
    released: bool
    away: str
    states: tuple[Mapping[str, object], ...] = ()


@dataclass(frozen=True)
class Again(Action):
    """All nodes start again, as this round. judgement: of the round before. next: as in Decided."""

    round: int
    judgement: Judgement
    next: Mapping[str, Any]


@dataclass(frozen=True)
class Told(Action):
    """Received word. node: the sender; a member receives words of node 0 only."""

    node: int
    topic: str
    body: Any


@dataclass(frozen=True)
class Lost(Action):
    """Node 0 is lost."""

    suspect: Suspect


@dataclass(frozen=True)
class Dismissed(Action):
    """Node 0 leaves after its success: the wait for the other nodes has run out."""


# Tables. A row is a message, by its type, or an event of this side. Its cells name the method for each state. The last cell of a message
# tells if a message of another round is taken or refused.
NO = "-"
TAKEN, REFUSED = "taken", "refused"
Row = tuple[str, ...]
Key = Union[str, type[Event]]


class Kept:
    """Sent words that are not yet confirmed, in order. heard: number of the last word received from the other side.

    Each word is taken once, and in order, however often a connection breaks. A word has a number, is kept until a ping or a pong
    confirms its arrival, and is sent again after a new connection.
    """

    def __init__(self) -> None:
        self.heard = 0
        self._sent: deque[Message] = deque()

    def __iter__(self) -> Iterator[Message]:
        return iter(self._sent)

    def add(self, message: Message) -> None:
        self._sent.append(message)

    def drop(self, message: Message) -> None:
        """Drop the words that a ping or pong confirms. One without `heard` is from an older version, and confirms nothing."""
        last = wire.number({"heard": 0, **message}, "heard")
        while self._sent and self._sent[0]["number"] <= last:
            self._sent.popleft()

    def clear(self) -> None:
        self._sent.clear()


class Machine:
    """State machine without input or output. attempt: number of this start of its node. round: number of the job's round; messages of
    another round may be refused."""

    rules: ClassVar[Mapping[tuple[str, Key], Callable[..., Any]]]

    def __init__(self, state: str, attempt: int) -> None:
        self.state = state
        self.attempt = attempt
        self.round = 0
        self._last_word = 0
        self._now = Now(0.0, 0.0)
        self._actions: list[Action] = []

    def feed(self, event: Event, now: Now) -> list[Action]:
        """Return the actions that an event causes, in order."""
        self._now = now
        self._actions = []
        self._take(event)
        return self._actions

    def _take(self, event: Event) -> None:
        rule = self.rules.get((self.state, type(event)))
        if rule:
            rule(self, event)

    def _do(self, action: Action) -> None:
        self._actions.append(action)

    def _stamped(self, message: Message) -> Message:
        """Return a message with this machine's attempt and round."""
        return {**message, "attempt": self.attempt, "round": self.round}

    def _hear_once(self, node: int, kept: Kept, message: Message) -> None:
        """Pass a word on, unless it is a repetition."""
        number, topic, body = wire.number(message, "number"), wire.text(message, "topic"), message["body"]
        if number > kept.heard:
            kept.heard = number
            self._do(Told(node, topic, body))

    def _worded(self, word: Word) -> Message:
        """Return a word as a message with the next number."""
        self._last_word += 1
        return self._stamped({"type": "word", "number": self._last_word, "topic": word.topic, "body": word.body})


def rules(machine: type, states: tuple[str, ...], table: Mapping[Key, Row]) -> dict[tuple[str, Key], Callable[..., Any]]:
    """Return the method for each state and row of a table: the cell "stop_all" is the machine's method _stop_all."""
    return {(state, key): getattr(machine, f"_{word}") for key, row in table.items() for state, word in zip(states, row) if word != NO}


def taken(table: Mapping[Key, Row]) -> frozenset[Key]:
    """Return the types of messages that are taken from any round."""
    return frozenset(key for key, row in table.items() if row[-1] == TAKEN)
