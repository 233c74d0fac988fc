"""Hostfile of DeepSpeed's launcher and of MPI: a line `HOST slots=N` for each node."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ranklaunch.adapters.platforms.shared import self_index
from ranklaunch.adapters.platforms.shared.base import HOSTFILE, USUAL_HOSTFILE
from ranklaunch.env import parse
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import HOSTS, NODE_INDEX, SLOTS
from ranklaunch.files import MOST_BYTES
from ranklaunch.showing import clipped

_LINE = r"(\S+)\s+slots=([0-9]{1,5})(?:\s+(?!slots=)[A-Za-z_-]+=\S+)*\s*(?:#.*)?"  # MPI's files may have max_slots= and the like


def offer(reader: Reader) -> None:
    """Offer hosts, slots and this node's index. Raise ConfigError if the file cannot be used, or does not name this node."""
    path = _path(reader)
    slots = _slots(reader, path)
    if not slots:
        reader.check()
    reader.offer(HOSTS, path, [*slots])
    reader.offer(SLOTS, path, [*slots.values()])
    if not reader.is_set(NODE_INDEX):
        _offer_own(reader, path, tuple(slots))


def _path(reader: Reader) -> str:
    if not reader.is_set(HOSTFILE):
        reader.note(HOSTFILE, USUAL_HOSTFILE, "platform file")
        return USUAL_HOSTFILE
    if reader.is_set(HOSTS):
        beside = f"{reader.candidates(HOSTFILE)[0].quoted} beside {reader.candidates(HOSTS)[0].quoted}"
        reader.problem(f"{beside}: both name the nodes of the job; set only one of them")
    return reader.absolute(reader.get(HOSTFILE))


def _slots(reader: Reader, path: str) -> dict[str, int]:
    """Return the slots of each host, {} if the file cannot be used."""
    try:
        text = reader.files.text(path, MOST_BYTES)
    except ValueError as error:
        reader.problem(f"{path}: {error}")
        return {}
    if text is None:
        reader.problem(f"{reader.described(HOSTFILE)}: no such file, or no permission to read it")
        return {}
    slots: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        match = re.fullmatch(_LINE, bare)
        mistake = _mistake(match, slots)
        if mistake or not match:
            reader.problem(f"{path}, line {number}: {mistake}, found {clipped(bare)!r}")
            return {}
        slots[match[1]] = int(match[2])
    if not slots:
        reader.problem(f"{path}: expected a line HOST slots=N for each node, found none")
    return slots


def _mistake(match: re.Match[str] | None, earlier: dict[str, int]) -> str:
    """Return the expected form of a wrong line, "" for a correct one. earlier: slots of the hosts on earlier lines."""
    if not match:
        return "expected HOST slots=N"
    try:
        parse.host(match[1])
    except ValueError as error:
        return str(error)
    if match[1] in earlier:
        return "expected each host once"
    return "" if 1 <= int(match[2]) <= parse.MOST_SLOTS else f"expected slots from 1 to {parse.MOST_SLOTS}"


def _offer_own(reader: Reader, path: str, hosts: Sequence[str]) -> None:
    indices = self_index.find(reader, hosts)
    if not indices and len(hosts) == 1 and parse.is_loopback(hosts[0]):
        indices = [0]
    if len(indices) != 1:
        lines = f"{', '.join(hosts[i] for i in indices)} are all" if indices else "no line is"
        remedy = f"set {NODE_INDEX.both} to this node's line, from 0"
        reader.problem(f"{path}: {clipped(lines)} {clipped(self_index.describe(reader))}; {remedy}")
        reader.check()
    else:
        reader.offer(NODE_INDEX, f"{path} has {hosts[indices[0]]}", indices[0])
