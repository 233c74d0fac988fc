"""Events and actions of the muster's state machines, as frozen values: a test writes down the events of a job and their times."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Union

from ranklaunch.muster import wire
from ranklaunch.muster.wire import Message
from ranklaunch.verdict.blame import Finish, Judgement, Suspect
from ranklaunch.verdict.model import Note

INSIDE = 0  # the number of the connection of node 0's own member, which no connection through the door has


class Now(NamedTuple):
    """One moment by both clocks. clock: monotonic seconds; wall: seconds since 1970."""

    clock: float
    wall: float

    def wall_of(self, clock: float) -> float:
        return self.wall - (self.clock - clock)


@dataclass(frozen=True)
class Event:
    """What happens. link: the number of a connection; a member has one at a time, which is 0."""


@dataclass(frozen=True)
class Start(Event):
    """The machine begins."""


@dataclass(frozen=True)
class First(Event):
    """A connection has signed its first message. address: where it comes from."""

    link: int
    address: str
    message: Message


@dataclass(frozen=True)
class Heard(Event):
    """A later message, of one that was admitted; a member's first too."""

    link: int
    message: Message


@dataclass(frozen=True)
class Nonsense(Event):
    """What one that was admitted has sent is no message."""

    link: int
    why: str


@dataclass(frozen=True)
class Broken(Event):
    """A connection is over. error: None where the other side closed it. spoke: whether it had greeted as ranklaunch does."""

    link: int = 0
    error: OSError | None = None
    spoke: bool = True


@dataclass(frozen=True)
class Overdue(Event):
    """Time is up for a node whose connection broke."""

    instance: str


@dataclass(frozen=True)
class Tick(Event):
    """The hub looks after what has no event of its own."""


@dataclass(frozen=True)
class Resolved(Event):
    """A name was looked up. why: it was not found."""

    node: int
    addresses: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class AtDoor(Event):
    """Trouble at the door: the reason that no node can enter, and refused peers. patience_s: seconds before the job ends by the trouble."""

    trouble: str
    refused: str
    patience_s: float = float("inf")


@dataclass(frozen=True)
class Planned(Event):
    """What is said when all have succeeded."""

    success: str


@dataclass(frozen=True)
class Dismiss(Event):
    """Node 0 leaves before the others; they go on without it."""


@dataclass(frozen=True)
class EndLate(Event):
    """Node 0 has succeeded, and the remaining nodes do not end; node 0 cannot leave them alone. finished: result of node 0, in words."""

    finished: str


@dataclass(frozen=True)
class Hurry(Event):
    """Node 0 waits for nobody any more."""


@dataclass(frozen=True)
class Decided(Event):
    """Answer to Decide. again: all start once more; judgement: of the ended round. next: facts for the nodes on the next round,
    in JSON's form."""

    again: bool
    judgement: Judgement
    next: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reached(Event):
    """Something answers at node 0's port."""


@dataclass(frozen=True)
class Greeted(Event):
    """It greets as node 0 does, and can be spoken to."""


@dataclass(frozen=True)
class Unreached(Event):
    """Nothing answers, or the name is not known. refused: it was node 0's port that did not answer; silent: nor did its host."""

    why: str
    refused: bool
    silent: bool = False


@dataclass(frozen=True)
class Retry(Event):
    """It is time to come again. again: to where node 0 was a moment ago."""

    again: bool = False


@dataclass(frozen=True)
class GreetingDue(Event):
    """What answers at the port should have welcomed this node by now."""


@dataclass(frozen=True)
class PingDue(Event):
    pass


@dataclass(frozen=True)
class Remind(Event):
    """The time has come for a message about the missing nodes."""


@dataclass(frozen=True)
class Busy(Event):
    doing: str


@dataclass(frozen=True)
class Ready(Event):
    """index, host: this node's place, from the rank table if there is one. offers: short texts for node 0; node 0's own are
    for all nodes."""

    facts: Mapping[str, str]
    index: int
    host: str
    offers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Fail(Event):
    """The first that went wrong here; Report says the rest."""

    suspect: Suspect


@dataclass(frozen=True)
class Done(Event):
    """unseen: how many of its ranks nobody saw."""

    finish: Finish
    unseen: int = 0


@dataclass(frozen=True)
class Report(Event):
    """How this node has ended. state: for whoever decides whether another round follows, as JSON has it."""

    suspects: tuple[Suspect, ...] = ()
    finishes: tuple[Finish, ...] = ()
    notes: tuple[Note, ...] = ()
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Word(Event):
    """Message of one side to the other, in the sender's words. body: in JSON's form. nodes: receivers of node 0's message; (): all."""

    topic: str
    body: Any
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Leave(Event):
    """This node leaves: before the others, or with them, when it has written down how the job ended."""


@dataclass(frozen=True)
class Action:
    """What is to be done."""


@dataclass(frozen=True)
class Send(Action):
    """One message, to each of these connections."""

    message: Message
    links: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Close(Action):
    link: int = 0


@dataclass(frozen=True)
class Admit(Action):
    """A connection may stay, and may say more."""

    link: int


@dataclass(frozen=True)
class TurnAway(Action):
    """It may hear why, and not stay."""

    link: int


@dataclass(frozen=True)
class Listen(Action):
    """Where nobody listens at node 0's port yet."""


@dataclass(frozen=True)
class Sweep(Action):
    """Connections that have not signed in time go."""


@dataclass(frozen=True)
class LookUp(Action):
    """Ends in Resolved."""

    node: int
    host: str


@dataclass(frozen=True)
class Dial(Action):
    """Ends in Reached or Unreached. again: where node 0 was a moment ago, without looking its name up."""

    again: bool = False


@dataclass(frozen=True)
class Say(Action):
    text: str


@dataclass(frozen=True)
class Wake(Action):
    """Feeds the event so many seconds from now, and not when an equal one was to be fed."""

    event: Event
    seconds: float


@dataclass(frozen=True)
class Rest(Action):
    """The event is not to be fed any more."""

    event: Event


@dataclass(frozen=True)
class Released(Action):
    """All may start. text: who was late."""

    text: str


@dataclass(frozen=True)
class Stop(Action):
    """Another node has failed."""

    judgement: Judgement


@dataclass(frozen=True)
class Judged(Action):
    """The judgement of the whole job: its failure, or its success."""

    judgement: Judgement


@dataclass(frozen=True)
class Decide(Action):
    """A round has failed, and all present nodes have ended; Decided follows soon. released: True if the round had begun. away: a node
    that
    is gone, or has not reported its end. states: the other nodes' own statements."""

    judgement: Judgement
    round: int
    released: bool
    away: str
    states: tuple[Mapping[str, object], ...] = ()


@dataclass(frozen=True)
class Again(Action):
    """All start once more, as this round. judgement: of the one before. next: as in Decided."""

    round: int
    judgement: Judgement
    next: Mapping[str, Any]


@dataclass(frozen=True)
class Told(Action):
    """A word has come. node: from whom; a member hears node 0 alone."""

    node: int
    topic: str
    body: Any


@dataclass(frozen=True)
class Lost(Action):
    """Node 0 is gone."""

    suspect: Suspect


@dataclass(frozen=True)
class Dismissed(Action):
    """Node 0 leaves, having waited for the others long enough."""


# Tables. A row is what comes: a message by its type, or an event of this side. Its cells are what is done, one for each state; a
# message's last one says what becomes of one of another round.
NO = "-"
TAKEN, REFUSED = "taken", "refused"
Row = tuple[str, ...]
Key = Union[str, type[Event]]


class Kept:
    """Messages from one side to the other for a possible repetition, in order. heard: the number of the last message from there.

    Each message is heard once, and in order, however often a connection breaks: the message has a number, is kept until a ping or a pong
    confirms its arrival, and is sent again after a new connection.
    """

    def __init__(self) -> None:
        self.heard = 0
        self._said: deque[Message] = deque()

    def __iter__(self) -> Iterator[Message]:
        return iter(self._said)

    def add(self, message: Message) -> None:
        self._said.append(message)

    def drop(self, message: Message) -> None:
        """What was heard there, as a message of the other side tells; one that tells nothing is of an older version."""
        last = wire.number({"heard": 0, **message}, "heard")
        while self._said and self._said[0]["number"] <= last:
            self._said.popleft()

    def clear(self) -> None:
        self._said.clear()


class Machine:
    """One without input or output. attempt: of this start of its node. round: which of the job's rounds this is, by which messages are
    fenced."""

    rules: ClassVar[Mapping[tuple[str, Key], Callable[..., Any]]]

    def __init__(self, state: str, attempt: int) -> None:
        self.state = state
        self.attempt = attempt
        self.round = 0
        self._last_word = 0
        self._now = Now(0.0, 0.0)
        self._actions: list[Action] = []

    def feed(self, event: Event, now: Now) -> list[Action]:
        """What is to be done because of it, in this order."""
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
        """Every message says of which attempt and round it is."""
        return {**message, "attempt": self.attempt, "round": self.round}

    def _hear_once(self, node: int, kept: Kept, message: Message) -> None:
        number, topic, body = wire.number(message, "number"), wire.text(message, "topic"), message["body"]
        if number > kept.heard:
            kept.heard = number
            self._do(Told(node, topic, body))

    def _worded(self, word: Word) -> Message:
        self._last_word += 1
        return self._stamped({"type": "word", "number": self._last_word, "topic": word.topic, "body": word.body})


def rules(machine: type, states: tuple[str, ...], table: Mapping[Key, Row]) -> dict[tuple[str, Key], Callable[..., Any]]:
    """The function for each state and what comes in it: the cell "stop_all" is the machine's method _stop_all."""
    return {(state, key): getattr(machine, f"_{word}") for key, row in table.items() for state, word in zip(states, row) if word != NO}


def taken(table: Mapping[Key, Row]) -> frozenset[Key]:
    """The messages that count whatever their round."""
    return frozenset(key for key, row in table.items() if row[-1] == TAKEN)
