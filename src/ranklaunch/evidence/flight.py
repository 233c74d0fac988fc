"""Analysis of flight recorders' dumps: the ranks for which a collective waits.

Each rank records the collectives that it has entered, numbered within their group. A group stands at the lowest number that any rank
has entered but not finished. Members that have not reached this number are missing; members in another operation at this number differ.

Source of the format: PyTorch's torch/csrc/distributed/c10d/FlightRecorder.hpp and torch/distributed/flight_recorder, versions 2.0 to
2.10 of the dump; torch_npu writes the same format.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ranklaunch.evidence import pickles

# Operations that need tensors of the same sizes on all ranks; for other operations, such as all_to_all, the sizes may differ.
_SAME_SIZES = re.compile("all_?reduce|broadcast|_?all_?gather(_base|_into_tensor)?|_?reduce_scatter(_base|_tensor)?|reduce")
# Message of a rank's watchdog about a group after the time-out of a collective, on this or another rank (ProcessGroupNCCL.cpp).
_STATUS = re.compile(
    r"\[PG ID [0-9]{1,6} PG GUID (?P<group>[0-9]{1,20})\((?P<description>[^()\n]{0,100})\) Rank [0-9]{1,7}\] .{0,300}?"
    r"[Ll]ast enqueued (?:NCCL )?work: (?P<entered>[0-9]{1,18}), last completed (?:NCCL )?work: (?P<done>[0-9]{1,18})"
)
# Names of operations in dumps and watchdogs, in lower case without underscores; the longer ones first.
_FAMILY = re.compile("reducescatter|allreduce|allgather|alltoall|broadcast|barrier|gather|scatter|reduce")
_OPERATION = r"WorkNCCL\(SeqNum={number}, OpType=([A-Z_]{{1,40}}),"
MOST_GROUPS = 64
MOST_MEMBERS = 64  # of a group, in a message
MOST_TEXT = 200


class Standing(NamedTuple):
    """Place of one rank in one group. done: number of the last finished collective, 0 for none. entered: number of the last entered
    collective. at: the lowest number entered but not finished, 0 for none. op, sizes: of this collective."""

    done: int
    entered: int
    at: int = 0
    op: str = ""
    sizes: str = ""
    members: tuple[int, ...] = ()
    description: str = ""


@dataclass(frozen=True)
class Stuck:
    """Group that waits. at: number of the collective. op: operation of most members there, "" without a majority. missing: members that
    have not entered the collective. differing: members in another operation there, with the operation; all of them if op is "".
    unknown: members without a dump."""

    group: str
    description: str
    at: int
    op: str
    waiting: tuple[int, ...]
    missing: tuple[int, ...] = ()
    differing: tuple[tuple[int, str], ...] = ()
    unknown: tuple[int, ...] = ()


def standings(dump: bytes, is_late: Callable[[], bool] = bool) -> dict[str, Standing]:
    """Return the standings of a rank, by group. Raises ValueError for other data, and TimeoutError like pickles.plain."""
    content = pickles.plain(dump, is_late)
    if not isinstance(content, dict) or not isinstance(content.get("entries"), (list, tuple)):
        msg = "not a dump of a flight recorder"
        raise ValueError(msg)
    entries: dict[str, list[Mapping[str, Any]]] = {}
    for entry in content["entries"]:
        name = _group(entry)
        if name and _sequence_number(entry):
            entries.setdefault(name, []).append(entry)
    return {name: _standing(content, name, of_group) for name, of_group in list(entries.items())[:MOST_GROUPS]}


def standings_in_output(text: str) -> dict[str, Standing]:
    """Return the standings of a rank by its watchdog's messages, for a rank without a dump."""
    by_group = {}
    for status in _STATUS.finditer(text):
        done, entered = int(status["done"]), int(status["entered"])
        at = done + 1 if entered > done else 0
        operation = re.search(_OPERATION.format(number=at), text) if at else None
        op = operation[1].lower() if operation else "collective" if at else ""
        by_group[status["group"]] = Standing(done, entered, at, op, description=status["description"])
    return dict([*by_group.items()][:MOST_GROUPS])


def stuck(ranks: Mapping[int, Mapping[str, Standing]]) -> list[Stuck]:
    """Return the groups that wait: groups with missing or differing ranks first, then by size, the smallest first. A rank that is held up
    in a small group is missing in larger groups too. ranks: standings of all known ranks of a job."""
    names = dict.fromkeys(name for of_rank in ranks.values() for name in of_rank)
    groups = [each for name in names for each in _stuck(name, ranks)]
    return sorted(groups, key=_order)


def _order(group: Stuck) -> tuple[bool, int, str]:
    """Return the sort key of a group: groups with missing or differing ranks first, then by size."""
    return not (group.missing or group.differing), len(group.waiting) + len(group.missing), group.group


def as_json(of_rank: Mapping[str, Standing]) -> dict[str, Any]:
    """Return standings for a message; large groups are without their members."""
    return {name: [*each._replace(members=each.members if len(each.members) <= MOST_MEMBERS else ())] for name, each in of_rank.items()}


def from_json(content: Any) -> dict[str, Standing]:
    """Return the standings in another node's message. Invalid ones are left out."""
    result = {}
    for name, fields in content.items() if isinstance(content, dict) else ():
        if isinstance(name, str) and isinstance(fields, list) and len(fields) == 7 and all(type(n) is int for n in fields[:3]):
            done, entered, at, op, sizes, raw_members, description = fields
            members = tuple(n for n in raw_members if type(n) is int) if isinstance(raw_members, list) else ()
            result[name] = Standing(done, entered, at, _text(op), _text(sizes), members, _text(description))
    return result


def _stuck(name: str, ranks: Mapping[int, Mapping[str, Standing]]) -> Iterator[Stuck]:
    here = {rank: of_rank[name] for rank, of_rank in ranks.items() if name in of_rank}
    at = min((standing.at for standing in here.values() if standing.at), default=0)
    if not at:
        return
    waiting = {rank: standing for rank, standing in here.items() if standing.at == at}
    members = next((standing.members for standing in here.values() if standing.members), ())
    without = [rank for rank in members if rank not in here]  # members without a collective of this group
    most = _most(Counter(map(_entered, waiting.values())))
    missing = [*(rank for rank, standing in here.items() if standing.entered < at), *(rank for rank in without if rank in ranks)]
    yield Stuck(
        name, next(iter(here.values())).description, at, most[0] if most else "", tuple(sorted(waiting)), tuple(sorted(missing)),
        tuple(sorted(_differing(waiting, most))), tuple(sorted(rank for rank in without if rank not in ranks)),
    )  # fmt: skip


def _differing(waiting: Mapping[int, Standing], most: _Entered | None) -> Iterator[tuple[int, str]]:
    for rank, standing in waiting.items():
        if not (most and _agree(_entered(standing), most)):
            yield rank, _operation_text(standing)


_Entered = tuple[str, str, bool]  # an operation, its sizes if they must be the same, and True for known sizes


def _entered(standing: Standing) -> _Entered:
    return _op(standing.op), _sizes(standing), bool(standing.sizes)


def _most(waiting: Mapping[_Entered, int]) -> _Entered | None:
    """Return the operation on which more than half of the ranks agree, preferably one with sizes; None without a majority. waiting: number
    of ranks in each operation."""
    often = sorted(waiting, key=lambda each: (not each[2], -waiting[each]))[:MOST_GROUPS]
    total = sum(waiting.values())
    return next((each for each in often if 2 * sum(n for other, n in waiting.items() if _agree(each, other)) > total), None)


def _agree(one: _Entered, other: _Entered) -> bool:
    """True if two operations may be the same. Watchdogs print no sizes, and use other names than dumps."""
    if one[2] and other[2]:
        return one == other
    families = {match[0] for op, *_ in (one, other) if (match := _FAMILY.search(op.lower().replace("_", "")))}
    return one[0] == other[0] or len(families) < 2


def _standing(content: Mapping[str, Any], name: str, entries: list[Mapping[str, Any]]) -> Standing:
    done = max((_sequence_number(entry) for entry in entries if entry.get("state") == "completed"), default=0)
    done = max(
        done, _completed(content, {str(identifier) for entry in entries if isinstance(identifier := entry.get("pg_id"), (str, int))})
    )
    unfinished = [entry for entry in entries if _sequence_number(entry) > done]
    first = min(unfinished, key=_sequence_number, default=None)
    entered = max(map(_sequence_number, entries))
    members, description = _members(content, name), _text(entries[0]["process_group"][-1])
    if first is None:
        return Standing(done, entered, members=members, description=description)
    number = _sequence_number(first)
    return Standing(done, entered, number, _text(first.get("profiling_name")), _as_text(first.get("input_sizes")), members, description)


def _sequence_number(entry: Mapping[str, Any]) -> int:
    return _number(entry, "collective_seq_id")


def _completed(content: Mapping[str, Any], ids: set[str]) -> int:
    """Return the last completed collective by the group's status. gloo needs this, because it marks no entry as completed."""
    status = content.get("pg_status")
    states = [status.get(each) for each in ids] if isinstance(status, dict) else []
    return max((_number(each, "last_completed_collective") for each in states if isinstance(each, dict)), default=0)


def _members(content: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Return the ranks of a group. gloo's default group has an empty name here."""
    config = content.get("pg_config")
    if not isinstance(config, dict):
        return ()
    of_group = config.get(name, config.get("") if name == "0" else None)
    ranks = of_group.get("ranks") if isinstance(of_group, dict) else None
    try:
        listed = json.loads(ranks) if isinstance(ranks, str) and len(ranks) < 1 << 20 else ranks
    except (ValueError, RecursionError):
        return ()
    return tuple(rank for rank in listed if type(rank) is int and rank >= 0) if isinstance(listed, (list, tuple)) else ()


def _group(entry: Any) -> str:
    group = entry.get("process_group") if isinstance(entry, dict) else None
    usable = isinstance(group, (list, tuple)) and group and isinstance(group[0], str) and not entry.get("is_p2p")
    return group[0][:MOST_TEXT] if usable else ""  # type: ignore[index]


def _number(entry: Mapping[str, Any], key: str) -> int:
    value = entry.get(key)
    return value if type(value) is int and 0 < value < 1 << 62 else 0


def _text(value: Any) -> str:
    return value[:MOST_TEXT] if isinstance(value, str) else ""


def _as_text(sizes: Any) -> str:
    """Return sizes as text, such as [[4], [2, 3]]; "" for invalid ones."""
    usable = isinstance(sizes, (list, tuple)) and len(sizes) < 100
    rows = [[n for n in row if type(n) is int][:16] for row in sizes if isinstance(row, (list, tuple))] if usable else []
    return str(rows)[:MOST_TEXT] if rows else ""


def _op(name: str) -> str:
    """Return an operation without its backend: all_reduce for gloo:all_reduce."""
    return name.rpartition(":")[2]


def _operation_text(standing: Standing) -> str:
    return f"{_op(standing.op)} of {standing.sizes}" if _sizes(standing) else _op(standing.op)


def _sizes(standing: Standing) -> str:
    return standing.sizes if _SAME_SIZES.fullmatch(_op(standing.op)) else ""
