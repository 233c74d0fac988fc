"""Facts about a job that a platform's module finds: each is one more source of a value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ranklaunch.env import parse
from ranklaunch.env.reader import Reader, Variable, platform_text
from ranklaunch.env.settings import HOSTS, NODES, SLOTS

Fact = tuple[Variable[Any], str, object]  # variable, source, value
FIRST = platform_text("first_host", (), "host of node 0")
LISTED_SLOTS: Variable[tuple[int, ...]] = Variable("listed_slots", (), parse.counts, (), SLOTS.meaning, "platform")


def of_hosts(by: str, hosts: Sequence[str], slots: Sequence[int] = ()) -> Iterator[Fact]:
    """Yield the hosts and slots of a list. A list with an empty host gives only the number of hosts, and node 0's host.

    by: source of the list.
    """
    if hosts and not all(hosts):
        yield NODES, f"number of hosts in {by}", len(hosts)
    if hosts and hosts[0]:
        yield (HOSTS, by, hosts) if all(hosts) else (FIRST, by, hosts[0])
    if any(slots):
        yield LISTED_SLOTS, by, slots


def copied(reader: Reader, variable: Variable[Any], source: Variable[Any]) -> Iterator[Fact]:
    """Yield the values of `source`, each with its own source, as values of `variable`."""
    return ((variable, each.source, each.value) for each in reader.candidates(source))
