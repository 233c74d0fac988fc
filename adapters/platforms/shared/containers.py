"""PyTorch jobs whose RANK and WORLD_SIZE count containers, not processes: PAI DLC's, AIHC's, and PyTorchJobs of before PET_ variables."""

from __future__ import annotations

import re

from ranklaunch.adapters.platforms.shared import kubernetes
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, devices, spread
from ranklaunch.read.settings import MASTER_ADDR as ANY_MASTER_ADDR
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.read.settings import SLOTS as ANY_SLOTS
from ranklaunch.values import replace

NODES = ANY_NODES.also("WORLD_SIZE")
# Not by the node in the table: elsewhere RANK may be anything, and it is removed from what every rank inherits.
NODE_INDEX = replace(ANY_NODE_INDEX.also("RANK"), per_node=False)
SLOTS = ANY_SLOTS.also("NPROC_PER_NODE")
MASTER = ANY_MASTER_ADDR.also("MASTER_ADDR")

VARIABLES: tuple[Variable[object], ...] = (NODES, NODE_INDEX, SLOTS, MASTER)

_POD = re.compile(r"(?P<job>.+)-(?P<role>master|worker)-(?P<number>[0-9]{1,7})")
_MASTER = re.compile(r"(?P<job>[^.]+)-master-0(?:\..+)?")


def counted(reader: Reader) -> bool:
    """Whether both counts are there."""
    return all(reader.env.get(name, "").strip() for name in (*NODES.names[1:], *NODE_INDEX.names[1:]))


def job_of_master(reader: Reader) -> str:
    """The job whose master's address it is, "" where it is no such address."""
    found = _MASTER.fullmatch(reader.env.get(MASTER.names[-1], "").strip())
    return found["job"] if found else ""


def job_of_pod(reader: Reader) -> str:
    """The job whose container this is by its name."""
    pod = _POD.fullmatch(kubernetes.own_name(reader))
    return pod["job"] if pod else ""


def by_name(reader: Reader) -> list[tuple[str, int]]:
    """Where operators name containers so: the master is container 0, worker I is container I + 1."""
    pod = _POD.fullmatch(kubernetes.own_name(reader))
    return [(kubernetes.told_name(reader), int(pod["number"]) + (pod["role"] == "worker"))] if pod else []


def slots(reader: Reader, nodes: int) -> tuple[int, ...]:
    return spread(reader, SLOTS, reader.get(SLOTS) if reader.given(SLOTS) else (devices(reader),), nodes)


def hosts(reader: Reader, nodes: int, master: str = "") -> tuple[str, ...]:
    """As the user names them, else node 0's alone."""
    told = reader.get(HOSTS)
    if told and len(told) != nodes:
        reader.problem(f"{reader.source(HOSTS)} names {len(told)} hosts, but {reader.told(NODES)}: expected as many names as nodes")
        return told[:1] * nodes
    return told or (master or reader.get(MASTER) or "localhost", *("",) * (nodes - 1))
