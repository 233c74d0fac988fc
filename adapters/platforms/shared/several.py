"""What places have in common that tell a node its number and where others are in variables of their own: several that must say the same,
lists of addresses in any form, and how long they take to start and to kill a job."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ranklaunch.read import parse
from ranklaunch.read.provenance import Candidate
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import GRACE_S, HOSTS, MASTER_ADDR, NODES, SLOTS, devices, spread


def listed(value: str) -> tuple[str, ...]:
    """Hosts with white space or commas between them, as lines for instance; none in an empty list."""
    try:
        return tuple(map(parse.host, parse.text(value).replace(",", " ").split()))
    except ValueError:
        msg = "expected host names or IP addresses with line breaks, spaces or commas between them"
        raise ValueError(msg) from None


def has(reader: Reader, *names: str) -> bool:
    """Whether all of these variables are set: for detecting."""
    return all(reader.env.get(name, "").strip() for name in names)


def hosts(
    reader: Reader, nodes: int, found: Sequence[str], source: str, first: Variable[str] | None = None, others: Sequence[str] = ()
) -> tuple[str, ...]:
    """Of all nodes: the user's, else those that the platform lists (found, by source), else node 0's alone. first: the platform's own word
    on node 0, with which its list must begin. others: names of more variables, for the message where nobody knows."""
    given = reader.get(HOSTS)
    address = reader.get(first) if first and not given else ""
    if given or found:
        if not given:
            reader.ledger.note(HOSTS.value, ",".join(found), source)
        if first and address and not given and _differ(found[0], address) and not reader.by_user(MASTER_ADDR):
            reader.problem(f"{source} begins with {found[0]}, but {reader.told(first)}: expected the same host; or set {HOSTS.names[0]}")
        return _as_many(reader, given or (found[0] or address, *found[1:]), reader.source(HOSTS) if given else source, nodes)
    malformed = bool(reader.env.get(source, "").strip())  # which is said already
    if nodes > 1 and not address and not malformed and not reader.given(MASTER_ADDR):
        names = dict.fromkeys((*HOSTS.names, *([source] if source else ()), *(first.names if first else ()), *others, *MASTER_ADDR.names))
        reader.problem(f"{nodes} nodes, but none of {', '.join(names)} says where node 0 is")
    return (address or "localhost", *("",) * (nodes - 1))


def _as_many(reader: Reader, found: Sequence[str], source: str, nodes: int) -> tuple[str, ...]:
    if len(found) == nodes:
        return tuple(found)
    reader.problem(f"{source} names {len(found)} hosts, but {reader.told(NODES)}: expected as many names as nodes")
    return (found[0],) * nodes


def _differ(one: str, other: str) -> bool:
    """Whether these are two hosts. A name may be longer or shorter, and an address that of a name."""
    numbers = [bool(re.fullmatch(r"[0-9.]+|.*:.*", host)) for host in (one, other)]
    if not (one and other) or numbers[0] != numbers[1]:
        return False
    return one != other and (numbers[0] or not (f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")))


def slots(reader: Reader, variable: Variable[tuple[int, ...]], nodes: int) -> tuple[int, ...]:
    """Of every node, as told; else, and where the platform says 0, as many as this container has devices."""
    said = reader.get(variable) if reader.given(variable) else ()
    if any(said) or reader.by_user(variable):
        return spread(reader, variable, said, nodes)
    return spread(reader, SLOTS, (devices(reader),), nodes)


def kills(reader: Reader, after_s: float, platform: str) -> None:
    """A platform that kills sooner than 30 seconds after its signal: ranks have less time then."""
    reader.offer(GRACE_S.value, Candidate(f"{platform}, which kills after {after_s:g} s", f"{after_s * 0.8:g}"))
