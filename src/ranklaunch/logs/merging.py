"""The parts of all nodes' logs in one order, of a job that has ended or that goes on.

A node's parts come in the order in which its supervisor has read them. Between nodes the times decide, which are by node 0's clock where
the nodes have met.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ranklaunch.logs import search
from ranklaunch.logs.reading import Files, Round
from ranklaunch.logs.search import Folder
from ranklaunch.logs.times import Part
from ranklaunch.verdict import folders

LOST_S = 30.0  # after the end of others, for a node whose end nobody will write down
LOOK_S = 0.25  # between looks at logs that grow: parts that come later than this after others may stand behind them


class Piece(NamedTuple):
    """A part of a log of a node. restart: the start of the ranks that it is of. whole: its last line ends here, whatever stands there."""

    part: Part
    round: Round
    node: int
    restart: int
    whole: bool = False


class Node:
    """The logs of an attempt of one node. lives: it may go on."""

    def __init__(self, folder: Folder, make: Callable[[str], Round], lives: bool) -> None:
        self.folder = folder
        self.over = False
        self._make = make
        self._lives = lives
        self._rounds: dict[int, Round] = {}
        self._done: set[int] = set()
        self._at = 0  # of the latest piece: what was written in one round comes before what was in the next

    def pieces(self) -> Iterator[Piece]:
        """All that is there; of a round that may go on, what has a time."""
        ended = not self._lives or self._has_ended()
        rounds = search.rounds(self.folder.path)
        for i, (restart, path) in enumerate(rounds):
            yield from self._round(restart, path, ended or i + 1 < len(rounds))
        self.over = ended

    def _round(self, restart: int, path: str, ended: bool) -> Iterator[Piece]:
        if restart in self._done:
            return
        each = self._rounds.setdefault(restart, self._make(path))
        for part in each.timed():
            yield self._piece(part, each, restart)
        if ended:
            self._done.add(restart)
            for part in each.rest():
                yield self._piece(part, each, restart, whole=True)
        elif self._lives:
            for part in each.grown(time.time()):
                yield self._piece(part, each, restart)

    def _piece(self, part: Part, each: Round, restart: int, whole: bool = False) -> Piece:
        if part.at < self._at:
            part = part._replace(at=self._at)
        self._at = part.at
        return Piece(part, each, self.folder.node, restart, whole)

    def give_up(self) -> None:
        """It ends without a verdict: with its host, most likely."""
        self._lives = False

    def _has_ended(self) -> bool:
        return os.path.exists(os.path.join(self.folder.path, folders.VERDICT))


def merged(nodes: list[Node]) -> Iterator[Piece]:
    return nodes[0].pieces() if len(nodes) == 1 else heapq.merge(*(node.pieces() for node in nodes), key=lambda piece: piece.part.at)


def followed(look: Callable[[], list[Node]], wait: Callable[[float], object] = time.sleep) -> Iterator[Piece | None]:
    """Until all nodes have ended, or some have and for LOST_S no other has written anything. look: those that there are by now. None: what
    was given so far should be shown."""
    yield from merged(look())
    pending: list[Piece] = []
    silent_s = 0.0
    while True:
        yield None
        nodes = look()
        if not pending and all(node.over for node in nodes):
            return
        wait(LOOK_S)
        silent_s = silent_s + LOOK_S if any(node.over for node in nodes) else 0.0
        for node in nodes if silent_s >= LOST_S else ():
            node.give_up()
        new = [piece for node in nodes if not node.over for piece in node.pieces()]
        silent_s = 0.0 if new else silent_s
        latest = max((piece.part.at for piece in pending), default=0)
        yield from heapq.merge(*_by_node([*pending, *(piece for piece in new if piece.part.at <= latest)]), key=lambda piece: piece.part.at)
        pending = [piece for piece in new if piece.part.at > latest]


def _by_node(pieces: list[Piece]) -> list[list[Piece]]:
    """Each in its own order."""
    nodes: dict[int, list[Piece]] = {}
    for piece in pieces:
        nodes.setdefault(piece.node, []).append(piece)
    return list(nodes.values())


def maker(wanted: Callable[[str], bool], say: Callable[[str], None], side_by_side: int) -> Callable[[str], Round]:
    files = Files(say)
    return lambda path: Round(path, wanted, files, say, side_by_side)
