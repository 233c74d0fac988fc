"""Evidence of all nodes of a job, merged on node 0."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from ranklaunch import errors, showing
from ranklaunch.evidence import flight
from ranklaunch.files import join
from ranklaunch.hangs.frames import own
from ranklaunch.hangs.suspicion import Missing

MOST_RANKS = 65536
MOST_FRAMES = 20
MOST_TEXT = 300
MOST_NAMES = 64  # ranks that one message names
MOST_MUTE = 2  # ranks of one group with a silent recorder: more of them prove nothing
GONE = "gone"


@dataclass(frozen=True)
class OfRank:
    """Evidence of one rank. state: as in /proc, GONE for a process that is gone. stack: of the main thread, one frame a line, the innermost
    first, "" for none. file: path of the stacks. exception: recorded by the rank, "" for none. call: source line of the innermost frame.
    names: ranks that did not answer, by the rank's last time-out message."""

    node: int
    state: str
    stack: str = ""
    file: str = ""
    exception: str = ""
    call: str = ""
    names: tuple[int, ...] = ()


@dataclass(frozen=True)
class Gathered:
    """Evidence of all nodes. recorded: ranks named by flight recorders. behind: ranks named by NCCL's RAS. mute: ranks with silent
    recorders. silent: nodes without an answer. failed: reason why a node could collect nothing, by node."""

    ranks: Mapping[int, OfRank] = field(default_factory=dict)
    recorded: tuple[Missing, ...] = ()
    behind: tuple[Missing, ...] = ()
    mute: tuple[Missing, ...] = ()
    silent: tuple[int, ...] = ()
    failed: Mapping[int, str] = field(default_factory=dict)


class _Report(NamedTuple):
    """Report of a node about one rank. unread: the recorder's dump exists, but was not read in time."""

    rank: OfRank
    standings: Mapping[str, flight.Standing] | None
    unread: bool


class Gathering:
    """Evidence number `number`, while nodes send their parts. planned: ranks by node; a node is believed about its own ranks only."""

    def __init__(self, number: int, planned: Mapping[int, Collection[int]]) -> None:
        self.number = number
        self._planned = planned
        self._awaited = set(planned)
        self._reports: dict[int, dict[int, _Report]] = {}  # by node, by rank
        self._behind: dict[int, dict[str, Missing]] = {}  # by node
        self._folders: dict[int, str] = {}
        self._failed: dict[int, str] = {}

    def hear(self, node: int, body: Mapping[str, Any]) -> bool:
        """Add a message of a node. Return True once all nodes have sent all their messages. Raises ValueError, TypeError or LookupError for
        an invalid body."""
        folder = str(body["folder"])
        if body.get("failed"):
            self._failed[node] = str(body["failed"])[:MOST_TEXT]
        else:
            self._folders[node] = folder
        reports, behind = self._reports.setdefault(node, {}), self._behind.setdefault(node, {})
        reports.update({int(rank): _report(node, folder, int(rank), fields) for rank, fields in body["ranks"].items()})
        for communicator, rank, operation, launched, most in body["behind"]:
            text = f"it has launched {int(launched)} {operation} operations of communicator {communicator}, others {int(most)}"
            behind[f"{communicator} {rank}"] = Missing((int(rank),), _shown(text[:MOST_TEXT]), join(folder, "ras.txt"))
        if not body["more"]:
            self._awaited.discard(node)
        return not self._awaited

    def gathered(self) -> Gathered:
        is_believed = own(self._planned, self._reports)
        pairs = [
            (rank, report)
            for node, reports in self._reports.items()
            for rank, report in reports.items()
            if 0 <= rank < MOST_RANKS and is_believed(node, rank)
        ]
        known = dict(sorted(pairs, key=itemgetter(0)))
        folders = {rank: self._folders.get(report.rank.node, "") for rank, report in known.items()}
        groups = flight.stuck({rank: report.standings for rank, report in known.items() if report.standings is not None})
        behind = {
            key: each for node, ranks in self._behind.items() for key, each in ranks.items() if is_believed(node, each.ranks[0])
        }  # fmt: skip
        return Gathered(
            {rank: report.rank for rank, report in known.items()}, tuple(_recorded(groups, folders)),
            tuple(behind.values()), tuple(_mute(groups, known, folders)), tuple(sorted(self._awaited)), self._failed,
        )  # fmt: skip


def _report(node: int, folder: str, rank: int, fields: Mapping[str, Any]) -> _Report:
    stack = "\n".join(str(line)[:MOST_TEXT] for line in fields["stack"][:MOST_FRAMES])
    exception, call = (str(fields.get(key, ""))[:MOST_TEXT] for key in ("exception", "call"))
    names = tuple(map(int, fields.get("names", ())[:MOST_NAMES]))
    file = join(folder, f"rank_{rank}.stacks.txt") if stack else ""
    standings = flight.from_json(fields["recorder"]) if fields["recorder"] else None
    of_rank = OfRank(node, str(fields["state"])[:8], stack, file, _shown(exception), call, names)
    return _Report(of_rank, standings, bool(fields.get("unread")))


def _recorded(groups: Sequence[flight.Stuck], folders: Mapping[int, str]) -> Iterator[Missing]:
    """Yield the missing and differing ranks of the first group that has any. A rank held up there is missing in other groups too."""
    group = next((group for group in groups if group.missing or group.differing), None)
    if not group:
        return
    if group.missing:
        yield Missing(group.missing, _shown(f"it has not reached {_place(group)}, where others wait"), folders.get(group.missing[0], ""))
    others = _place(group) if group.op else f"another operation, as {_number(group)}"
    for rank, operation in group.differing:
        yield Missing((rank,), _shown(f"it is in {operation}, where others are in {others}"), folders.get(rank, ""), differs=True)


def _mute(groups: Sequence[flight.Stuck], known: Mapping[int, _Report], folders: Mapping[int, str]) -> Iterator[Missing]:
    """Yield ranks with a silent recorder. The recorder writes its dump in a thread of its own, so a loop may block all threads of the
    rank."""
    for group in groups:
        asked = [rank for rank in group.unknown if rank in known and known[rank].rank.state != GONE]
        if asked and not any(known[rank].unread for rank in asked) and len(asked) <= min(MOST_MUTE, len(group.waiting)):
            text = f"its flight recorder wrote no dump, while others wait in {_place(group)}"
            yield Missing(tuple(asked), _shown(text), folders[asked[0]])
            return


def _place(group: flight.Stuck) -> str:
    return f"{group.op or 'a collective,'} {_number(group)}"


def _number(group: flight.Stuck) -> str:
    return f"number {group.at} of group {group.description or group.group}"


def _shown(text: str) -> str:
    """Return a text on one line and without secrets: it contains names that the program chose."""
    return showing.one_line(errors.reason(text))
