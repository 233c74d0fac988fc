"""A hostfile, as DeepSpeed's launcher and MPI have them: a line `HOST slots=N` for each node. A node finds itself there by its names and
addresses, which are read from files, so that a plan needs no network."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence

from ranklaunch.adapters.platforms.shared.base import HOSTFILE, USUAL_HOSTFILE
from ranklaunch.files import absolute, text_of
from ranklaunch.read import parse
from ranklaunch.read.reader import Reader
from ranklaunch.read.settings import HOSTS, NODE_INDEX
from ranklaunch.redact import clipped
from ranklaunch.values import Value

_LINE = re.compile(r"(\S+)\s+slots=([0-9]{1,5})\b")
_MOST_BYTES = 16 * 1024 * 1024
_LOOPBACK = re.compile(r"localhost|127\..*|::1")
_OWN_NAMES = ("/proc/sys/kernel/hostname", "/etc/hostname")


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
        match = _LINE.match(bare)
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
    names, addresses = _names(reader), set(_addresses(reader))
    by_name = [i for i, host in enumerate(hosts) if host in names] or [i for i, host in enumerate(hosts) if _short(host) in names]
    known = _known(reader)
    found = by_name or [i for i, host in enumerate(hosts) if addresses.intersection((host, *known.get(host, ())))]
    if not found and len(hosts) == 1 and _LOOPBACK.fullmatch(hosts[0]):
        found = [0]
    if len(found) != 1:
        called = f"this node, called {', '.join(sorted(names)) or 'nothing'}, with {', '.join(sorted(addresses)) or 'no address'}"
        which = f"{', '.join(hosts[i] for i in found)} are all" if found else "no line is"
        reader.problem(f"{path}: {clipped(which)} {clipped(called)}; {NODE_INDEX.both} says which line it is, from 0")
        return 0
    reader.ledger.note(NODE_INDEX.value, str(found[0]), f"{path} has {hosts[found[0]]}")
    return found[0]


def _names(reader: Reader) -> set[str]:
    """What the kernel says is this network's own; HOSTNAME may come from elsewhere."""
    of_kernel = (text_of(reader.files, path, _MOST_BYTES).strip() for path in _OWN_NAMES)
    told = next(filter(None, (*of_kernel, reader.env.get("HOSTNAME", ""))), "")
    return {told, _short(told)} if told else set()


def _short(host: str) -> str:
    return host if re.fullmatch(r"[0-9.]+|.*:.*", host) else host.partition(".")[0]


def _addresses(reader: Reader) -> Iterator[str]:
    """This node's own, as the kernel lists them, but for those that every node has."""
    for address in re.findall(r"\|-- ([0-9.]+)\n\s*/32 host LOCAL", text_of(reader.files, "/proc/net/fib_trie", _MOST_BYTES)):
        if not address.startswith("127."):
            yield address
    for digits in re.findall(r"^([0-9a-f]{32}) ", text_of(reader.files, "/proc/net/if_inet6", _MOST_BYTES), re.MULTILINE):
        address = ipaddress.ip_address(int(digits, 16))
        if not address.is_loopback:
            yield str(address)


def _known(reader: Reader) -> dict[str, list[str]]:
    """Addresses of names, where no server need be asked."""
    known: dict[str, list[str]] = {}
    for line in text_of(reader.files, "/etc/hosts", _MOST_BYTES).splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        for name in names:
            known.setdefault(name, []).append(address)
    return known
