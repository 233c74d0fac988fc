"""Traces of hosts on this machine, to check that none remains after their end."""

from __future__ import annotations

import os
from pathlib import Path

from testbench.hosts import Hosts

_held: list[int] = []


def own_world() -> tuple[object, ...]:
    """Return the state of this machine's own namespaces: links, mounts, named namespaces, /etc/hosts."""
    named = sorted(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else []
    return sorted(os.listdir("/sys/class/net")), Path("/proc/self/mounts").read_text(), named, Path("/etc/hosts").read_bytes()


def world_of(cluster: Hosts) -> set[str]:
    """Return the namespaces, memory groups and processes of hosts. The namespaces are held open until `let_go`, so that the kernel does not
    give their numbers to new ones."""
    assert cluster.switch
    holders = [pid for pid in (cluster.switch.pid, *(host.pid for host in cluster)) if os.path.exists(f"/proc/{pid}")]
    _held.extend(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for pid in holders for name in os.listdir(f"/proc/{pid}/ns"))
    ours = {os.readlink(f"/proc/self/ns/{name}") for name in os.listdir("/proc/self/ns")}
    namespaces = {os.readlink(f"/proc/{pid}/ns/{name}") for pid in holders for name in os.listdir(f"/proc/{pid}/ns")} - ours
    groups = {str(host.memory_group) for host in cluster if host.pid in holders and host.memory_group}
    return namespaces | groups | {f"/proc/{pid}" for pid in holders}


def still_there(world: set[str]) -> set[str]:
    remaining = {name for name in world if name.startswith("/") and os.path.exists(name)}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            remaining |= world & {os.readlink(f"/proc/{pid}/ns/{name}") for name in os.listdir(f"/proc/{pid}/ns")}
        except OSError:  # the process has ended meanwhile
            continue
    return remaining


def let_go() -> None:
    """Close the namespaces that world_of holds open."""
    while _held:
        os.close(_held.pop())
