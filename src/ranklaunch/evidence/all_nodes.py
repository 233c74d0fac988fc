"""What all nodes of a job have found at one time, put together on node 0."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ranklaunch import errors, showing
from ranklaunch.evidence import flight
from ranklaunch.files import join

MOST_RANKS = 65536
MOST_FRAMES = 20
MOST_TEXT = 300
MOST_NAMES = 64  # ranks that one message names
MOST_MUTE = 2  # ranks, of which that says something
GONE = "gone"


@dataclass(frozen=True)
class OfRank:
    """state: as in /proc, GONE where it is. stack: of its main thread, a frame a line, the innermost first, "" where there is none.
    file: where its stacks are. exception: that it wrote down of itself by then, "" for none. call: source line of the innermost frame.
    names: ranks that did not answer, by its last time-out message."""

    node: int
    state: str
    stack: str = ""
    file: str = ""
    exception: str = ""
    call: str = ""
    names: tuple[int, ...] = ()


@dataclass(frozen=True)
class Named:
    """Ranks that a recorder names, and what it says of them. file: where that is. differs: they are in another operation than others, and
    not only late."""

    ranks: tuple[int, ...]
    what: str
    file: str = ""
    differs: bool = False


@dataclass(frozen=True)
class Gathered:
    """recorded: by flight recorders; behind: by NCCL's RAS; mute: where few recorders have not answered and those of others have. silent:
    nodes that have not answered. failed: why nodes could take none. folders: by node."""

    number: int
    why: str
    ranks: Mapping[int, OfRank] = field(default_factory=dict)
    recorded: tuple[Named, ...] = ()
    behind: tuple[Named, ...] = ()
    mute: tuple[Named, ...] = ()
    silent: tuple[int, ...] = ()
    failed: Mapping[int, str] = field(default_factory=dict)
    folders: Mapping[int, str] = field(default_factory=dict)


class Gathering:
    """hear() for each message of a node, until it says that all have answered. own: from the ranks of which each node has spoken to whether
    a node may speak of a rank: a node is believed for its own."""

    def __init__(
        self, number: int, why: str, nodes: int, own: Callable[[Mapping[int, Collection[int]]], Callable[[int, int], bool]]
    ) -> None:
        self._number, self._why, self._own = number, why, own
        self._awaited = set(range(nodes))
        self._told: dict[int, dict[int, tuple[OfRank, dict[str, flight.Standing] | None]]] = {}  # of its ranks, by each node
        self._unread: set[int] = set()  # whose recorders have answered all the same
        self._lags: dict[int, dict[str, Named]] = {}  # by each node
        self._ranks: dict[int, OfRank] = {}
        self._standings: dict[int, dict[str, flight.Standing]] = {}
        self._folders: dict[int, str] = {}
        self._failed: dict[int, str] = {}

    def hear(self, node: int, body: Mapping[str, Any]) -> bool:
        """Raises ValueError, TypeError or LookupError where it is none of these messages."""
        folder = str(body["folder"])
        if body.get("failed"):
            self._failed[node] = str(body["failed"])[:MOST_TEXT]
        else:
            self._folders[node] = folder
        ranks, lags = self._told.setdefault(node, {}), self._lags.setdefault(node, {})
        for name, told in body["ranks"].items():
            rank = int(name)
            if 0 <= rank < MOST_RANKS:
                stack = "\n".join(str(line)[:MOST_TEXT] for line in told["stack"][:MOST_FRAMES])
                file = join(folder, f"rank_{rank}.stacks.txt") if stack else ""
                seen = OfRank(
                    node, str(told["state"])[:8], stack, file, _shown(str(told.get("exception", ""))[:MOST_TEXT]),
                    str(told.get("call", ""))[:MOST_TEXT], tuple(map(int, told.get("names", ())[:MOST_NAMES])),
                )  # fmt: skip
                self._unread |= {rank} if told.get("unread") else set()
                ranks[rank] = seen, flight.from_json(told["recorder"]) if told["recorder"] else None
        for communicator, rank, operation, launched, most in body["behind"]:
            what = f"it has launched {int(launched)} {operation} operations of communicator {communicator}, others {int(most)}"
            lags[f"{communicator} {rank}"] = Named((int(rank),), _shown(what[:MOST_TEXT]), join(folder, "ras.txt"))
        if not body["more"]:
            self._awaited.discard(node)
        return not self._awaited

    def gathered(self) -> Gathered:
        may_speak = self._own(self._told)
        told = [(rank, of_rank) for node, ranks in self._told.items() for rank, of_rank in ranks.items() if may_speak(node, rank)]
        self._ranks = {rank: seen for rank, (seen, _) in sorted(told, key=lambda each: each[0])}
        self._standings = {rank: standings for rank, (_, standings) in told if standings is not None}
        behind = {name: each for node, lags in self._lags.items() for name, each in lags.items() if may_speak(node, each.ranks[0])}
        return Gathered(
            self._number, self._why, self._ranks, tuple(self._recorded()), tuple(behind.values()),
            tuple(self._mute()), tuple(sorted(self._awaited)), self._failed, self._folders,
        )  # fmt: skip

    def _recorded(self) -> Iterator[Named]:
        """Of the first group that names somebody: a rank that is held up there is missing elsewhere too."""
        for group in flight.stuck(self._standings):
            if group.missing:
                what = f"it has not come to {_place(group)}, where others wait"
                yield Named(group.missing, _shown(what), self._folder_of(group.missing[0]))
            for rank, own in group.differing:
                what = f"it is in {own}, where others are in {_place(group) if group.op else f'something else, as {_number(group)}'}"
                yield Named((rank,), _shown(what), self._folder_of(rank), differs=True)
            if group.missing or group.differing:
                return

    def _mute(self) -> Iterator[Named]:
        """Who may be in a loop that lets no other thread of its process run: the dump is another thread's."""
        for group in flight.stuck(self._standings):
            asked = [rank for rank in group.unknown if rank in self._ranks and self._ranks[rank].state != GONE]
            if asked and not self._unread.intersection(asked) and len(asked) <= min(MOST_MUTE, len(group.waiting)):
                what = f"its recorder gives no dump, where others wait in {_place(group)}"
                yield Named(tuple(asked), _shown(what), self._folder_of(asked[0]))
                return

    def _folder_of(self, rank: int) -> str:
        return self._folders.get(self._ranks[rank].node, "") if rank in self._ranks else ""


def _place(group: flight.Stuck) -> str:
    return f"{group.op or 'a collective,'} {_number(group)}"


def _number(group: flight.Stuck) -> str:
    return f"number {group.at} of group {group.description or group.group}"


def _shown(text: str) -> str:
    """Names that programs have given to groups and operations."""
    return showing.one_line(errors.reason(text))
