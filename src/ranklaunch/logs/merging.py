"""Merge of all nodes' logs, for a job that has ended or still runs.

The parts of a node keep the order in which its supervisor read them. Parts of several nodes are
ordered by their times: by node 0's clock once the nodes have met, else by each node's own.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from ranklaunch.logs import search
from ranklaunch.logs.reading import Files, Round
from ranklaunch.logs.search import Folder
from ranklaunch.logs.times import Part
from ranklaunch.verdict import folders

LOST_S = 30.0  # silence after which a node without a verdict counts as lost, if other nodes have ended
LOOK_AGAIN_S = 1.0  # between searches for folders of further nodes
LATE_S = 1.0  # after a moment, until all lines from before this moment are read
LOOK_S = 0.25  # between reads of growing logs; a part that arrives later than this may be shown behind newer ones
_AT = attrgetter("part.at")  # time of a piece

Make = Callable[[str], Round]


class Piece(NamedTuple):
    """Part of a log of a node. restart: restarts of the ranks before. whole: the last line ends
    here, even without a line end."""

    part: Part
    round: Round
    node: int
    restart: int
    whole: bool = False

    def skip(self) -> None:
        """Skip the lines of this piece."""
        self.round.skip(self.part.name, self.part.end)


class Node:
    """Logs of one node in an attempt. lives: the node may write more."""

    def __init__(self, folder: Folder, make: Make, lives: bool) -> None:
        self.folder = folder
        self.over = False
        self._make = make
        self._lives = lives
        self._rounds: dict[int, Round] = {}
        self._done: set[int] = set()
        self._at = 0  # time of the latest piece: no later round has an earlier time

    def pieces(self) -> Iterator[Piece]:
        """Yield all pieces up to now; for a round that still runs, only pieces with a time."""
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
        """Wait no longer for this node: it ended without a verdict, most likely with its host."""
        self._lives = False

    def _has_ended(self) -> bool:
        return os.path.exists(os.path.join(self.folder.path, folders.VERDICT))


def merged(nodes: list[Node]) -> Iterator[Piece]:
    return nodes[0].pieces() if len(nodes) == 1 else heapq.merge(*(node.pieces() for node in nodes), key=_AT)


def followed(look: Callable[[], list[Node]], wait: Callable[[float], object] = time.sleep) -> Iterator[Piece | None]:
    """Yield pieces until all nodes have ended, or until some have ended and the rest has been silent
    for LOST_S. None asks the caller to show the pieces so far. look: returns the present nodes."""
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
        yield from heapq.merge(*_by_node([*pending, *(piece for piece in new if piece.part.at <= latest)]), key=_AT)
        pending = [piece for piece in new if piece.part.at > latest]


def _by_node(pieces: list[Piece]) -> list[list[Piece]]:
    """Group pieces by node, each node in its own order."""
    nodes: dict[int, list[Piece]] = {}
    for piece in pieces:
        nodes.setdefault(piece.node, []).append(piece)
    return list(nodes.values())


def between(pieces: Iterable[Piece | None], since: int, until: int, follow: bool) -> Iterator[Piece | None]:
    """Yield the pieces between two moments, in microseconds since 1970. Parts before the first moment
    are skipped without reading."""
    for piece in pieces:
        if piece and piece.part.at < since:
            piece.skip()
        elif piece and piece.part.at <= until:
            yield piece
        elif not follow or time.time() > until / 1e6 + LATE_S:
            return
        elif not piece:
            yield None


class Job:
    """Logs of an attempt. folders: of its nodes, as known now. look: returns the folders at a later
    time. follow: the attempt may still run."""

    def __init__(
        self,
        folders: Sequence[Folder],
        look: Callable[[], Sequence[Folder]],
        make: Make,
        follow: bool,
    ) -> None:
        self._folders = folders
        self._follow = follow
        self._look = look
        self._make = make
        self._nodes: dict[str, Node] = {}
        self._looked_at = time.monotonic()

    @property
    def is_of_several(self) -> bool:
        return len(self._nodes) > 1

    def pieces(self) -> Iterator[Piece | None]:
        """Yield all present pieces, and the new pieces of a followed job. None asks the caller to show
        the pieces so far."""
        return followed(self._known) if self._follow else merged(self._known())

    def _known(self) -> list[Node]:
        if self._follow and time.monotonic() - self._looked_at > LOOK_AGAIN_S:
            self._folders = self._look()
            self._looked_at = time.monotonic()
        for folder in self._folders:
            if folder.path not in self._nodes:
                self._nodes[folder.path] = Node(folder, self._make, self._follow)
        return list(self._nodes.values())


def maker(wanted: Callable[[str], bool], say: Callable[[str], None], side_by_side: int) -> Make:
    """Return a function that makes the Round of a folder. All folders share the open files."""
    return partial(Round, wanted=wanted, files=Files(say), say=say, side_by_side=side_by_side)
