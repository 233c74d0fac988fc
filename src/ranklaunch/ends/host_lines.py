"""Lines of each host in an output of pdsh, with the host's name as prefix. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ranklaunch.ends.model import NodeFacts

_ADDRESS = re.compile(r"[0-9.]+|.*:.*")


def of_hosts(text: str, hosts: Iterable[str]) -> Mapping[str, str]:
    """Return the lines of each host by its name, without pdsh's prefix."""
    by_host: dict[str, list[str]] = {host: [] for host in hosts}
    for line in text.splitlines(keepends=True):
        host, _, rest = line.partition(": ")
        if host in by_host:
            by_host[host].append(rest)
    return {host: "".join(lines) for host, lines in by_host.items() if lines}


def names_of(nodes: Sequence[NodeFacts]) -> dict[str, int]:
    """Return the index of each node by its full and its short host name; pdsh leaves out a common
    domain. A short name of several nodes is left out."""
    short = [(node.host.partition(".")[0], node.index) for node in nodes if not _ADDRESS.fullmatch(node.host)]
    times = Counter(name for name, _ in short)
    indices = {**{node.host: node.index for node in nodes}, **{name: index for name, index in short if times[name] == 1}}
    return {name: index for name, index in indices.items() if name and times[name] <= 1}
