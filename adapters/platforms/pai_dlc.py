"""Alibaba Cloud PAI, Deep Learning Containers (DLC): PyTorch jobs, in which RANK and WORLD_SIZE count containers, not processes.

Source: https://www.alibabacloud.com/help/en/pai/general-environment-variables. The platform has no variable of its own that says whose they
are; the master's address does, which begins with the job's id: dlc18isgeayd-master-0.
"""

from __future__ import annotations

import re

from ranklaunch.adapters.platforms.shared import base
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, JOB_NAME, devices, make_job, spread
from ranklaunch.read.settings import MASTER_ADDR as ANY_MASTER_ADDR
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.read.settings import SLOTS as ANY_SLOTS
from ranklaunch.values import replace

NAME = "pai_dlc"

NODES = ANY_NODES.also("WORLD_SIZE")
# Not by the node in the table: elsewhere RANK may be anything, and it is removed from what every rank inherits.
NODE_INDEX = replace(ANY_NODE_INDEX.also("RANK"), per_node=False)
SLOTS = ANY_SLOTS.also("NPROC_PER_NODE")
MASTER = ANY_MASTER_ADDR.also("MASTER_ADDR")

VARIABLES: tuple[Variable[object], ...] = (NODES, NODE_INDEX, SLOTS, MASTER)

attempt = base.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

_MASTER = re.compile(r"(dlc[0-9a-z]+)-master-0(?:\..+)?")


def detect(reader: Reader) -> bool:
    return bool(_named(reader)) and all(reader.env.get(name, "").strip() for name in (*NODES.names[1:], *NODE_INDEX.names[1:]))


def _named(reader: Reader) -> re.Match[str] | None:
    return _MASTER.fullmatch(reader.env.get(MASTER.names[-1], "").strip())


def read(reader: Reader, program: Program) -> Job:
    nodes = reader.get(NODES)
    slots = reader.get(SLOTS) if reader.given(SLOTS) else (devices(reader),)
    own = base.index(reader, nodes, NODE_INDEX)
    return make_job(
        reader,
        program,
        platform=NAME,
        name=_name(reader),
        attempt=attempt(reader, nodes, own),
        hosts=_hosts(reader, nodes),
        slots=spread(reader, SLOTS, slots, nodes),
        node_index=own,
        accelerator=("gpu", SLOTS.names[-1]),
    )


def _hosts(reader: Reader, nodes: int) -> tuple[str, ...]:
    hosts = reader.get(HOSTS)
    if hosts and len(hosts) != nodes:
        reader.problem(f"{reader.source(HOSTS)} names {len(hosts)} hosts, but {reader.told(NODES)}: expected as many names as nodes")
        return hosts[:1] * nodes
    return hosts or (reader.get(MASTER) or "localhost", *("",) * (nodes - 1))


def _name(reader: Reader) -> str:
    name = reader.get(JOB_NAME)
    found = _named(reader)
    if not name and found:
        reader.ledger.note(JOB_NAME.value, found[1], MASTER.names[-1])
    return name or (found[1] if found else NAME)
