"""Index of this host in a list of hosts, by its names and addresses. These are read from files: a plan needs no network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ranklaunch.env.reader import Reader

_OWN_NAMES = ("/proc/sys/kernel/hostname", "/etc/hostname")


def find(reader: Reader, hosts: Sequence[str]) -> list[int]:
    """Return the indices of the hosts that may be this one: one if its names or addresses are clear, several or none if not."""
    names = _names(reader)
    by_name = [i for i, host in enumerate(hosts) if host in names] or [i for i, host in enumerate(hosts) if _short(host) in names]
    if by_name:
        return by_name
    addresses, of_names = set(_addresses(reader)), known(reader)
    return [i for i, host in enumerate(hosts) if addresses.intersection((host, *of_names.get(host, ())))]


def address(reader: Reader) -> str:
    """Return the address of this node for its peers: its name's in /etc/hosts, else its only IPv4 address; "" if neither is known."""
    by_name = [each for name in sorted(_names(reader)) for each in known(reader).get(name, ())]
    usable = [each for each in (*by_name, *_addresses(reader)) if not re.match(r"127\.|169\.254\.|::1$|fe80:", each)]
    ipv4 = [each for each in usable if ":" not in each]
    return usable[0] if usable and usable[0] in by_name else ipv4[0] if len(set(ipv4)) == 1 else ""


def describe(reader: Reader) -> str:
    """Return the names and addresses of this node, for messages."""
    names, addresses = _names(reader), set(_addresses(reader))
    return f"this node, called {', '.join(sorted(names)) or 'nothing'}, with {', '.join(sorted(addresses)) or 'no address'}"


def _names(reader: Reader) -> set[str]:
    """Return the name of this host, and the part before its first dot. The kernel's name comes first: HOSTNAME may be another host's."""
    of_kernel = (reader.text(path).strip() for path in _OWN_NAMES)
    name = next(filter(None, (*of_kernel, reader.env.get("HOSTNAME", ""))), "")
    return {name, _short(name)} if name else set()


def _short(host: str) -> str:
    return host if re.fullmatch(r"[0-9.]+|.*:.*", host) else host.partition(".")[0]


def _addresses(reader: Reader) -> Iterator[str]:
    """Yield the addresses of this node, without loopback ones, as the kernel lists them."""
    for address in re.findall(r"\|-- ([0-9.]+)\n\s*/32 host LOCAL", reader.text("/proc/net/fib_trie")):
        if not address.startswith("127."):
            yield address
    import ipaddress  # imported here: most starts need no address

    for digits in re.findall(r"^([0-9a-f]{32}) ", reader.text("/proc/net/if_inet6"), re.MULTILINE):
        address = ipaddress.ip_address(int(digits, 16))
        if not address.is_loopback:
            yield str(address)


def known(reader: Reader) -> dict[str, list[str]]:
    """Return the addresses in /etc/hosts, by name."""
    addresses: dict[str, list[str]] = {}
    for line in reader.text("/etc/hosts").splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        for name in names:
            addresses.setdefault(name, []).append(address)
    return addresses
