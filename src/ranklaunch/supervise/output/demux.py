"""Takes the output of a launcher apart into that of its ranks: mpirun puts a tag before each piece that a rank has written."""

from __future__ import annotations

import re
from collections.abc import Callable

from ranklaunch.supervise.output.pipe import Output

LONGEST_TAG = 48  # bytes
OWN_RULE = b"-" * 60  # what mpirun draws before it says something itself, also right behind a rank's unfinished line

_BEGUN = re.compile(rb"\[(?:[0-9]+(?:,(?:[0-9]+(?:\](?:<(?:[a-z]+(?:>:?)?)?)?)?)?)?)?\Z")


class Demux:
    """Is fed like an Output. own: takes what no rank has written. output: makes that of a rank, by the key in its tag, or gives None
    for a key that no rank has."""

    def __init__(self, pattern: str, own: Output, output: Callable[[str], Output | None]) -> None:
        self._tag = re.compile(pattern.encode())
        self._own = own
        self._output = output
        self._by_key: dict[bytes, Output] = {}
        self._to = own
        self._left = b""  # may be the beginning of a tag or a rule

    @property
    def tail(self) -> bytes:
        return self._own.tail

    def tail_of(self, key: str) -> bytes:
        """The last of what a rank has written."""
        output = self._by_key.get(key.encode())
        return output.tail if output else b""

    def feed(self, data: bytes) -> None:
        data = self._left + data
        whole = _without_begun(data)
        self._left = data[whole:]
        self._take(data[:whole])

    def finish(self) -> None:
        self._take(self._left)
        self._left = b""
        for output in (*self._by_key.values(), self._own):
            output.finish()

    def _take(self, data: bytes) -> None:
        at = 0
        for tag in self._tag.finditer(data):
            self._give(data[at : tag.start()])
            self._to = self._rank(tag[1])
            at = tag.end()
        self._give(data[at:])

    def _give(self, piece: bytes) -> None:
        """A tag holds until the end of the line."""
        while piece:
            rule = piece.find(OWN_RULE) if self._to is not self._own else -1
            end = piece.find(b"\n") + 1 or len(piece)
            if 0 <= rule < end:
                end = rule
            if end:
                self._to.feed(piece[:end])
            if rule == end or piece[end - 1 : end] == b"\n":
                self._to = self._own
            piece = piece[end:]

    def _rank(self, key: bytes) -> Output:
        if key not in self._by_key:
            made = self._output(key.decode())
            if not made:
                return self._own
            self._by_key[key] = made
        return self._by_key[key]


def _without_begun(data: bytes) -> int:
    """How much of it can be looked at: not a tag, nor a rule, whose end has not come yet."""
    begun = _BEGUN.search(data, max(0, len(data) - LONGEST_TAG))
    if begun:
        return begun.start()
    dashes = len(data) - len(data.rstrip(b"-"))
    return len(data) - (dashes if dashes < len(OWN_RULE) else 0)
