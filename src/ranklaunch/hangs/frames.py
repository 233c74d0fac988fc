"""What one node says to node 0 of a window: short, for a message of the muster holds 128 KiB and a node may have 1,024 ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from ranklaunch.hangs.sample import Seen
from ranklaunch.hangs.suspicion import Raised

MOST_RANKS = 1500  # of a frame: what is beyond is counted with the last
MOST_TEXT = 80
MOST_RAISED, MOST_TOLD = 64, 4  # ranks of a frame that have raised an exception, and of which it is told
MOST_OF_TRACEBACK, MOST_OF_LINE = 1000, 200  # characters
_TRACED, _FULL, _STARTED, _PRINTED = 1, 2, 4, 8


class Rule(NamedTuple):
    """What has become of one of RANKLAUNCH_EXPECT's rules on a node. age_s: seconds since its last match, None: there was none. wrong: what
    stood where a number should, and the rank that wrote it. Of a limit: the value of the earliest breach, and age_s: seconds since its
    first value. bound: the multiple of the median that the value broke, None for a fixed number."""

    age_s: float | None = None
    wrong: str = ""
    rank: int | None = None
    bound: float | None = None


class Frame(NamedTuple):
    """traffic, devices: whether there was any, and whether any worked; hears: whether any rank has a way to hear SIGTERM; None: this node
    cannot tell. wall: when the window began, in seconds since 1970. raised: of ranks whose output is here, wherever they run."""

    seconds: float
    wall: float
    ranks: tuple[Seen, ...]
    traffic: bool | None = None
    devices: bool | None = None
    rules: tuple[Rule, ...] = ()
    hears: bool | None = None
    raised: tuple[Raised, ...] = ()


def ranks_of(frame: Frame) -> set[int]:
    return {seen.rank for seen in frame.ranks if seen.rank is not None}


def own(planned: Mapping[int, Collection[int]], said: Mapping[int, Collection[int]]) -> Callable[[int, int], bool]:
    """Whether a node, the first number, may speak of a rank, the second. planned: the ranks of each node; said: those of which each has
    spoken. Nobody else does of the ranks of a node that has spoken of any of its own, or of none at all. Where ranks are numbered in
    another way than planned, as by torchrun's c10d, a node speaks of others' alone."""
    owner = {rank: node for node, ranks in planned.items() for rank in ranks}
    speaking = {node for node, ranks in said.items() if not ranks or any(owner.get(rank) == node for rank in ranks)}
    return lambda node, rank: owner.get(rank, node) == node or owner[rank] not in speaking


def packed(frame: Frame) -> dict[str, Any]:
    """As JSON has it."""
    return {
        "seconds": round(frame.seconds, 2),
        "wall": round(frame.wall, 2),
        "traffic": frame.traffic,
        "devices": frame.devices,
        "hears": frame.hears,
        "ranks": [_packed(seen) for seen in frame.ranks[:MOST_RANKS]],
        "rules": [_packed_rule(rule) for rule in frame.rules],
        "raised": [_told(each, number < MOST_TOLD) for number, each in enumerate(frame.raised[:MOST_RAISED])],
    }


def unpacked(body: Any) -> Frame:
    """Raises ValueError, TypeError or LookupError where it is none: a body is whatever a node says."""
    return Frame(
        seconds=_number(body["seconds"]),
        wall=_number(body["wall"]),
        ranks=tuple(_unpacked(row) for row in body["ranks"]),
        traffic=_answer(body["traffic"]),
        devices=_answer(body["devices"]),
        hears=_answer(body["hears"]),
        rules=tuple(_rule(*row) for row in body["rules"]),
        raised=tuple(_raised(*row) for row in body.get("raised", ())[:MOST_RAISED]),
    )


def _packed(seen: Seen) -> list[Any]:
    flags = _TRACED * seen.traced + _FULL * seen.full + _STARTED * seen.started + _PRINTED * seen.printed
    cpu = None if seen.cpu is None else round(100 * seen.cpu)
    return [seen.rank, seen.state, seen.output, seen.io, cpu, flags, round(seen.silent_s), seen.step, round(seen.gap, 1)]


def _packed_rule(rule: Rule) -> list[Any]:
    row = [None if rule.age_s is None else round(rule.age_s, 1), rule.wrong[:MOST_TEXT], rule.rank]
    return row if rule.bound is None else [*row, rule.bound]


def _told(raised: Raised, whole: bool) -> list[Any]:
    text = (raised.said[-MOST_OF_TRACEBACK:], raised.line[:MOST_OF_LINE]) if whole else ("", "")
    return [raised.rank, round(raised.silent_s, 1), raised.sure, *text, raised.pid, raised.of_thread]


def _unpacked(row: Any) -> Seen:
    rank, state, output, io, cpu, flags, silent_s, step, gap = row
    return Seen(
        rank=_rank(rank), state=str(state)[:1], output=int(_number(output)), io=None if io is None else int(_number(io)),
        cpu=None if cpu is None else _number(cpu) / 100, full=bool(int(flags) & _FULL), traced=bool(int(flags) & _TRACED),
        started=bool(int(flags) & _STARTED), silent_s=_number(silent_s), step=int(step), gap=_number(gap),
        printed=bool(int(flags) & _PRINTED),
    )  # fmt: skip


def _rule(age_s: Any, wrong: Any, rank: Any, bound: Any = None) -> Rule:
    limit = None if bound is None else float(bound)
    if limit is not None and not math.isfinite(limit):
        msg = f"{bound!r} is no bound"
        raise ValueError(msg)
    return Rule(None if age_s is None else _number(age_s), str(wrong)[:MOST_TEXT], _rank(rank), limit)


def _raised(rank: Any, silent_s: Any, sure: Any, said: Any, line: Any, pid: Any, of_thread: Any = False) -> Raised:
    text, name = str(said)[-MOST_OF_TRACEBACK:], str(line)[:MOST_OF_LINE]
    return Raised(int(rank), _number(silent_s), sure is True, text, name, None if pid is None else int(pid), of_thread is True)


def _rank(value: Any) -> int | None:
    return None if value is None else int(value)


def _answer(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _number(value: Any) -> float:
    number = float(value)
    if not 0 <= number < 1e15:
        msg = f"{value!r} is no amount"
        raise ValueError(msg)
    return number
