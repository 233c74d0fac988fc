"""Facts that a module has about a job: each is one more source of a value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ranklaunch.env import parse
from ranklaunch.env.reader import Reader, Variable, platform_text
from ranklaunch.env.settings import HOSTS, NODES, SLOTS

Fact = tuple[Variable[Any], str, object]  # with the source of the value
FIRST = platform_text("first_host", (), "host of node 0")
LISTED_SLOTS: Variable[tuple[int, ...]] = Variable("listed_slots", (), parse.counts, (), SLOTS.meaning, "platform")


def of_hosts(by: str, hosts: Sequence[str], slots: Sequence[int] = ()) -> Iterator[Fact]:
    """Yield what a list of hosts says. One with a gap tells their number, and node 0's host."""
    if hosts and not all(hosts):
        yield NODES, f"number of hosts in {by}", len(hosts)
    if hosts and hosts[0]:
        yield (HOSTS, by, hosts) if all(hosts) else (FIRST, by, hosts[0])
    if any(slots):
        yield LISTED_SLOTS, by, slots


def copied(reader: Reader, variable: Variable[Any], source: Variable[Any]) -> Iterator[Fact]:
    """Yield the values of another variable as sources of this one."""
    return ((variable, each.source, each.value) for each in reader.candidates(source))
