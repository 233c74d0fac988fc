"""Division of this container's cores among its ranks, as by DeepSpeed's --bind_cores_to_rank and --bind_core_list: each rank gets
the same number, a remainder stays unused. One hardware thread of each core is used, unless a list names others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ranklaunch import spans
from ranklaunch.env import parse
from ranklaunch.env.reader import Reader
from ranklaunch.env.settings import BIND, BIND_CORES
from ranklaunch.errors import counted
from ranklaunch.files import Files, text_of

MOST_BYTES = 65536
STATUS, CPUS, NODES = "/proc/self/status", "/sys/devices/system/cpu", "/sys/devices/system/node"


class Divided(NamedTuple):
    """Shares of the ranks. cores: list of cores as text, by local rank. memory: NUMA node of these cores, by local rank; "" if they
    are on several. each: cores of one rank."""

    cores: tuple[str, ...]
    memory: tuple[str, ...]
    each: int


def divided(reader: Reader, ranks: int) -> Divided | None:
    """Divide the cores among the ranks of this node. Return None after a problem, and for a plan of another machine (--root), whose
    cores are unknown."""
    allowed, listed = _allowed(reader.files), reader.peek(BIND_CORES)
    asked = reader.described(BIND_CORES if listed else BIND)
    if not allowed:
        result = "the listed ones are not checked" if listed else "the plan shows none"
        reader.warn(f"{asked}: {STATUS} does not list the cores of this container, so {result}")
    if not (allowed or listed):
        return None
    nodes = _numa(reader.files)
    cores, why = _wanted(reader, allowed, listed, nodes, ranks)
    each = len(cores) // ranks
    if not each:
        what = f"{counted(ranks, 'rank')} on this node and {counted(len(cores), 'core')} ({spans.text(cores)}, {why})"
        reader.problem(f"{asked}: {what}: expected a core for each rank; {BIND.both} none binds none")
        return None
    shares = [cores[i * each : (i + 1) * each] for i in range(ranks)]
    reader.ledger.note("cores", " ".join(map(spans.text, shares)), why)
    return Divided(tuple(map(spans.text, shares)), tuple(_common_node(share, nodes) for share in shares), each)


def _wanted(reader: Reader, allowed: Sequence[int], listed: Sequence[int], nodes: dict[int, str], ranks: int) -> tuple[list[int], str]:
    """Return the cores in the order in which ranks get them, and their source. allowed: cores of this container, empty if unknown.
    listed: cores that the user lists, empty for none. nodes: NUMA node of each core."""
    if listed:
        foreign = [core for core in listed if allowed and core not in {*allowed}]
        if foreign:
            reader.problem(
                f"{reader.quoted(BIND_CORES)}: this container may not use {spans.text(foreign)}, only {spans.text(allowed)} ({STATUS})"
            )
        return list(listed), reader.source(BIND_CORES)
    whole = [cpu for cpu in allowed if cpu == _first_thread(reader.files, cpu, {*allowed})]
    alone = len(whole) >= ranks or len(allowed) < ranks
    if not alone:
        reader.warn(
            f"{reader.described(BIND)}: {ranks} ranks on {counted(len(whole), 'core')}: ranks share cores, each with threads of its own"
        )
    order = sorted(whole if alone else allowed, key=lambda cpu: (nodes.get(cpu, ""), cpu))
    return order, f"{'one thread of each core' if alone else 'every thread'} of {STATUS}"


def _allowed(files: Files) -> tuple[int, ...]:
    match = re.search(r"^Cpus_allowed_list:\s*([0-9,-]+)$", text_of(files, STATUS, MOST_BYTES), re.MULTILINE)
    return _listed(match[1]) if match else ()


def _first_thread(files: Files, cpu: int, allowed: set[int]) -> int:
    """Return the first of the container's hardware threads on the same core as `cpu`."""
    threads = {*_listed(text_of(files, f"{CPUS}/cpu{cpu}/topology/thread_siblings_list", MOST_BYTES))} & allowed
    return min(threads, default=cpu)


def _numa(files: Files) -> dict[int, str]:
    """Return the NUMA node of each CPU, with leading zeros, so that the texts sort like numbers."""
    names = [name for name in files.names(NODES) if re.fullmatch("node[0-9]{1,4}", name)]
    return {cpu: f"{name[4:]:0>4}" for name in names for cpu in _listed(text_of(files, f"{NODES}/{name}/cpulist", MOST_BYTES))}


def _common_node(share: Sequence[int], nodes: dict[int, str]) -> str:
    homes = {nodes.get(cpu, "") for cpu in share}
    only = homes.pop() if len(homes) == 1 else ""
    return str(int(only)) if only else ""


def _listed(text: str) -> tuple[int, ...]:
    try:
        return parse.cores(text.strip())
    except ValueError:
        return ()
