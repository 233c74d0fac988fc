"""A hostfile, as DeepSpeed's launcher and MPI have them: a line `HOST slots=N` for each node."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ranklaunch.adapters.platforms.shared import own_place
from ranklaunch.adapters.platforms.shared.base import HOSTFILE, USUAL_HOSTFILE
from ranklaunch.files import absolute
from ranklaunch.read import parse
from ranklaunch.read.reader import Reader
from ranklaunch.read.settings import HOSTS, NODE_INDEX
from ranklaunch.showing import clipped
from ranklaunch.values import Value

_LINE = re.compile(r"(\S+)\s+slots=([0-9]{1,5})(?:\s+(?!slots=)[A-Za-z_-]+=\S+)*\s*(?:#.*)?")  # MPI's files have max_slots= and others
_MOST_BYTES = 16 * 1024 * 1024


class Listed(Value):
    """path: of the file. node_index: of this node; None where the user says it."""

    path: str
    hosts: tuple[str, ...]
    slots: tuple[int, ...]
    node_index: int | None


def read(reader: Reader) -> Listed | None:
    """None where it cannot be used, which is a problem then."""
    path = _path(reader)
    try:
        text = reader.files.text(path, _MOST_BYTES)
    except ValueError as error:
        reader.problem(f"{path}: {error}")
        return None
    if text is None:
        reader.problem(f"{reader.told(HOSTFILE)}: no such file, or it cannot be read")
        return None
    return _listed(reader, path, text)


def _path(reader: Reader) -> str:
    if not reader.given(HOSTFILE):
        reader.ledger.note(HOSTFILE.value, USUAL_HOSTFILE, "platform file")
        return USUAL_HOSTFILE
    if reader.given(HOSTS):
        beside = f"{reader.candidates(HOSTFILE)[0].quoted} beside {reader.candidates(HOSTS)[0].quoted}"
        reader.problem(f"{beside}: both name the nodes of the job; give one of them")
    return absolute(reader.get(HOSTFILE), reader.cwd)


def _listed(reader: Reader, path: str, text: str) -> Listed | None:
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        match = _LINE.fullmatch(bare)
        wrong = _wrong(match, found)
        if wrong or not match:
            reader.problem(f"{path}, line {number}: {wrong}, found {clipped(bare)!r}")
            return None
        found[match[1]] = int(match[2])
    if not found:
        reader.problem(f"{path}: expected a line HOST slots=N for each node, found none")
        return None
    return Listed(path, tuple(found), tuple(found.values()), _own(reader, path, tuple(found)))


def _wrong(match: re.Match[str] | None, before: dict[str, int]) -> str:
    if not match:
        return "expected HOST slots=N"
    try:
        parse.host(match[1])
    except ValueError as error:
        return str(error)
    if match[1] in before:
        return "expected each host once"
    return "" if 1 <= int(match[2]) <= parse.MOST_SLOTS else f"expected slots from 1 to {parse.MOST_SLOTS}"


def _own(reader: Reader, path: str, hosts: Sequence[str]) -> int | None:
    """Which of them this node is, where nobody has said it."""
    if reader.given(NODE_INDEX):
        return None
    found = own_place.find(reader, hosts)
    if not found and len(hosts) == 1 and parse.is_loopback(hosts[0]):
        found = [0]
    if len(found) != 1:
        which = f"{', '.join(hosts[i] for i in found)} are all" if found else "no line is"
        reader.problem(f"{path}: {clipped(which)} {clipped(own_place.told(reader))}; {NODE_INDEX.both} says which line it is, from 0")
        return 0
    reader.ledger.note(NODE_INDEX.value, str(found[0]), f"{path} has {hosts[found[0]]}")
    return found[0]
