"""Frames: messages of a node to node 0, each about one window.

Frames are short: a message of the muster has at most 128 KiB, and a node may have 1,024 ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from ranklaunch.hangs.sample import Seen
from ranklaunch.hangs.suspicion import Raised

T = TypeVar("T")
MOST_RANKS = 1500  # of a frame; further ranks are left out
MOST_TEXT = 80
MOST_RAISED, MOST_TOLD = 64, 4  # exceptions in a frame, and exceptions with their tracebacks, at most
MOST_OF_TRACEBACK, MOST_OF_LINE = 1000, 200  # characters


class Rule(NamedTuple):
    """State of one rule of RANKLAUNCH_EXPECT on a node.

    | field | rule about lines (BY, EVERY, NUMBER) | limit (LIMIT) |
    | --- | --- | --- |
    | age_s | seconds since the last match, None for none | seconds since the first value of the earliest breach |
    | wrong, rank | text in place of a number, and its rank | value of the earliest breach, and its rank |
    | bound | None | the broken multiple of the median, None for a fixed bound |
    """

    age_s: float | None = None
    wrong: str = ""
    rank: int | None = None
    bound: float | None = None


class Frame(NamedTuple):
    """Window of one node.

    traffic: True if the ranks exchanged data with others. devices: True if a device worked. hears: True if a rank can catch SIGTERM. None
    for these three: unknown. raised: exceptions of ranks whose output this node reads, also of ranks on other nodes.
    """

    seconds: float
    ranks: tuple[Seen, ...]
    traffic: bool | None = None
    devices: bool | None = None
    rules: tuple[Rule, ...] = ()
    hears: bool | None = None
    raised: tuple[Raised, ...] = ()


def ranks_of(frame: Frame) -> set[int]:
    return {sample.rank for sample in frame.ranks if sample.rank is not None}


def own(planned: Mapping[int, Collection[int]], spoken: Mapping[int, Collection[int]]) -> Callable[[int, int], bool]:
    """Return a function of a node and a rank: True if the node's report about the rank counts.

    planned: ranks of each node by the plan. spoken: ranks that each node has reported. Only the planned node may report a rank, if it has
    reported any of its planned ranks, or no rank at all. Otherwise every node may: a launcher such as torchrun's c10d numbers ranks in
    another way than planned.
    """
    return _Speakers(planned, spoken).may_speak


class _Speakers:
    """Planned node of each rank, and the nodes whose reports about their planned ranks are the only ones that count."""

    def __init__(self, planned: Mapping[int, Collection[int]], spoken: Mapping[int, Collection[int]]) -> None:
        self._owner = {rank: node for node, ranks in planned.items() for rank in ranks}
        owner = self._owner.get
        self._speaking = {node for node, ranks in spoken.items() if not ranks or any(owner(rank) == node for rank in ranks)}

    def may_speak(self, node: int, rank: int) -> bool:
        owner = self._owner.get(rank, node)
        return owner == node or owner not in self._speaking


def packed(frame: Frame) -> dict[str, Any]:
    """Return a frame as JSON. Booleans in rows are 0 and 1, to save space."""
    cut = [
        each._replace(traceback=each.traceback[-MOST_OF_TRACEBACK:], line=each.line[:MOST_OF_LINE]) for each in frame.raised[:MOST_RAISED]
    ]
    return {
        **frame._asdict(),
        "seconds": round(frame.seconds, 2),
        "ranks": [_row(sample) for sample in frame.ranks[:MOST_RANKS]],
        "rules": [_row(rule._replace(wrong=rule.wrong[:MOST_TEXT])) for rule in frame.rules],
        "raised": [_row(each if number < MOST_TOLD else each._replace(traceback="", line="")) for number, each in enumerate(cut)],
    }


def _row(values: Iterable[Any]) -> list[Any]:
    return [round(each, 2) if type(each) is float else int(each) if type(each) is bool else each for each in values]


def unpacked(body: Any) -> Frame:
    """Return the frame in a message. Raises ValueError, TypeError or LookupError for another form: nodes may send anything."""
    return Frame(
        seconds=_amount(body["seconds"]),
        ranks=tuple(_seen(row) for row in body["ranks"]),
        traffic=_known(bool, body["traffic"]),
        devices=_known(bool, body["devices"]),
        hears=_known(bool, body["hears"]),
        rules=tuple(_rule(*row) for row in body["rules"]),
        raised=tuple(_raised(*row) for row in body["raised"][:MOST_RAISED]),
    )


def _seen(row: Any) -> Seen:
    rank, state, output, io, cpu, full, traced, started, step, gap, printed = row
    return Seen(
        _known(int, rank), str(state)[:1], int(_amount(output)), _known(_amount, io), _known(_amount, cpu), bool(full), bool(traced),
        bool(started), int(step), _amount(gap), bool(printed),
    )  # fmt: skip


def _rule(age_s: Any, wrong: Any, rank: Any, bound: Any) -> Rule:
    limit = _known(float, bound)
    if limit is not None and not math.isfinite(limit):
        msg = f"{bound!r} is no bound"
        raise ValueError(msg)
    return Rule(_known(_amount, age_s), str(wrong)[:MOST_TEXT], _known(int, rank), limit)


def _raised(rank: Any, silent_s: Any, sure: Any, traceback: Any, line: Any, pid: Any, of_thread: Any) -> Raised:
    text, name = str(traceback)[-MOST_OF_TRACEBACK:], str(line)[:MOST_OF_LINE]
    return Raised(int(rank), _amount(silent_s), bool(sure), text, name, _known(int, pid), bool(of_thread))


def _known(read: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else read(value)


def _amount(value: Any) -> float:
    number = float(value)
    if not 0 <= number < 1e15:
        msg = f"{value!r} is no amount"
        raise ValueError(msg)
    return number
