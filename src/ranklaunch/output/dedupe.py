"""Merge of equal lines of many ranks: each line once, with its ranks, and each rank's lines in their order.

All waiting lines form one list. A rank's next line joins the first equal line behind the last line that the rank shares. The rank's own
lines in between, which no other rank has written yet, move in front of the joined line. A line without an equal one goes to the end of the
list. The first line is printed when all ranks have joined, when no rank has joined for a while, or after a time limit. So both delay and
memory are bounded, for any output.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterator

QUIET_S = 2.0  # wait of a line after the last rank has joined
MOST_S = 30.0  # wait of a line after the first rank
MOST_COST = 16 * 1024 * 1024  # bytes of memory, approximately
OF_LINE, OF_RANK = 500, 8  # bytes of a line and of a rank, besides the text
MOST_LOOKED = 16  # equal lines that are tried: a rank may repeat a line many times


class Group:
    """Line with its ranks. ranks: in the order of joining. place: position in the list of all lines. began: time of the first
    rank. joined: time of the last rank. alone: no other rank may join."""

    __slots__ = ("alone", "began", "joined", "line", "place", "ranks")

    def __init__(self, line: bytes, rank: int, place: float, now: float, alone: bool = False) -> None:
        self.line = line
        self.ranks = [rank]
        self.place = place
        self.began = self.joined = now
        self.alone = alone


class Rank:
    """Lines of one rank. shared: place of the last line that another rank shares. own: later lines, which no other rank has written."""

    __slots__ = ("own", "shared")

    def __init__(self) -> None:
        self.shared = -1.0
        self.own: deque[Group] = deque()

    def stay(self, place: float) -> None:
        """Settle the lines up to a place: they will not move any more."""
        while self.own and self.own[0].place <= place:
            self.own.popleft()
        self.shared = max(self.shared, place)


class Alike:
    """List of waiting lines. ranks: number of ranks that may write a line."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._groups: dict[float, Group] = {}  # by place
        self._order: list[float] = []  # all places, ascending
        self._equal: dict[bytes, list[float]] = {}  # by line: its places, ascending
        self._of: dict[int, Rank] = {}
        self._next = 0.0
        self._gone = -1.0  # place of the last removed line
        self._cost = 0

    @property
    def waits(self) -> bool:
        """True if lines wait."""
        return bool(self._order)

    def add(self, rank: int, lines: list[bytes], now: float) -> None:
        """Add lines of a rank."""
        state = self._of.setdefault(rank, Rank())
        for line in lines:
            group = self._match(line, rank, state.shared)
            if group and self._make_way(state, group):
                self._join(group, rank, state, now)
            else:
                state.own.append(self._begin(line, rank, now))

    def alone(self, source: int, lines: bytes, now: float) -> None:
        """Add lines of a source that is no rank, such as a launcher. No other line joins them."""
        self._begin(lines, source, now, alone=True)

    def due(self, now: float) -> Iterator[Group]:
        """Remove and yield the groups of lines whose wait is over."""
        while self._order:
            group = self._groups[self._order[0]]
            joins = len(group.ranks) < self._ranks and not group.alone
            if joins and now - group.joined < QUIET_S and now - group.began < MOST_S and self._cost <= MOST_COST:
                return
            yield self._take()

    def all(self) -> Iterator[Group]:
        while self._order:
            yield self._take()

    def _match(self, line: bytes, rank: int, behind: float) -> Group | None:
        equal = self._equal.get(line)
        if not equal:
            return None
        at = bisect.bisect_right(equal, behind)
        groups = (self._groups[place] for place in equal[at : at + MOST_LOOKED])
        return next((group for group in groups if group.ranks[0] != rank), None)

    def _begin(self, line: bytes, rank: int, now: float, alone: bool = False) -> Group:
        group = self._groups[self._next] = Group(line, rank, self._next, now, alone)
        self._order.append(self._next)
        if not alone:
            self._equal.setdefault(line, []).append(self._next)
        self._next += 1
        self._cost += len(line) + OF_LINE
        return group

    def _join(self, group: Group, rank: int, state: Rank, now: float) -> None:
        state.stay(group.place)
        if len(group.ranks) == 1:
            self._of[group.ranks[0]].stay(group.place)
        group.ranks.append(rank)
        group.joined = now
        self._cost += OF_RANK

    def _make_way(self, state: Rank, group: Group) -> bool:
        """Move a rank's own lines in front of the line that the rank joins. Return False if no places are left between two lines."""
        behind = [each for each in state.own if each.place > group.place]
        if not behind:
            return True
        at = bisect.bisect_left(self._order, group.place)
        before = self._order[at - 1] if at else self._gone
        step = (group.place - before) / (len(behind) + 1)
        places = [before + step * (i + 1) for i in range(len(behind))]
        if sorted({before, *places, group.place}) != [before, *places, group.place]:
            return False
        for each, place in zip(behind, places):
            self._move(each, place)
        return True

    def _move(self, group: Group, place: float) -> None:
        for ordered in (self._order, self._equal[group.line]):
            del ordered[bisect.bisect_left(ordered, group.place)]
            bisect.insort(ordered, place)
        del self._groups[group.place]
        self._groups[place] = group
        group.place = place

    def _take(self) -> Group:
        """Remove and return the first line."""
        place = self._gone = self._order.pop(0)
        group = self._groups.pop(place)
        self._cost -= len(group.line) + OF_LINE + OF_RANK * (len(group.ranks) - 1)
        if not group.alone:
            equal = self._equal[group.line]
            del equal[0]
            if not equal:
                del self._equal[group.line]
            if len(group.ranks) == 1:
                self._of[group.ranks[0]].stay(place)
        return group
