"""Words that nodes say to each other once all have started, whatever they are about: any node to node 0, node 0 to some or to all.

Each is heard once, and in the order in which it was said, however often a connection breaks: it has a number, is kept by the side that
said it until a ping or a pong of the other tells that it was heard, and is said again to whoever comes back. Who hears what is nobody's
business here: a topic, and a body that JSON can hold.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ranklaunch.muster import events, wire
from ranklaunch.muster.events import Machine
from ranklaunch.muster.wire import Message

LARGE = 10**12  # a number as large as any that is sent


class Kept:
    """What one side has said to the other and may have to say again, in order. heard: the number of the last that came from there."""

    def __init__(self) -> None:
        self.heard = 0
        self._said: deque[Message] = deque()

    def __iter__(self) -> Any:
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


class Speaker(Machine):
    """A machine that says words, and counts them."""

    _last_word = 0

    def _hear_once(self, node: int, kept: Kept, message: Message) -> None:
        number, topic, body = wire.number(message, "number"), wire.text(message, "topic"), message["body"]
        if number > kept.heard:
            kept.heard = number
            self._do(events.Told(node, topic, body))

    def _worded(self, event: events.Word) -> Message:
        self._last_word += 1
        return self._stamped({"type": "word", "number": self._last_word, "topic": event.topic, "body": event.body})


def require_room(topic: str, body: object) -> None:
    """Raises WireError where a frame cannot hold it, TypeError or ValueError where JSON cannot."""
    wire.body({"type": "word", "number": LARGE, "topic": topic, "body": body, "attempt": LARGE, "round": LARGE})
