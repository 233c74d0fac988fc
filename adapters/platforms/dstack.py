"""dstack: tasks of several nodes. A dev environment and a service are one node.

Source: https://dstack.ai/docs/concepts/tasks, "Distributed tasks"; runner/internal/runner/executor/executor.go of
https://github.com/dstackai/dstack.
"""

from __future__ import annotations

import re

from ranklaunch import showing
from ranklaunch.adapters.platforms.shared import base, several
from ranklaunch.files import text_of
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import JOB_NAME as ANY_JOB_NAME
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.read.settings import SLOTS as ANY_SLOTS
from ranklaunch.read.settings import make_job

NAME = "dstack"


def _lines(value: str) -> tuple[str, ...]:
    """An address on each line, or nothing where there is no private network; none where no line has any."""
    lines = value.removesuffix("\n").split("\n")
    found = several.listed(value)
    return tuple(line.strip() for line in lines) if 0 < len(found) < len(lines) else found


NODES = ANY_NODES.also("DSTACK_NODES_NUM")
NODE_INDEX = ANY_NODE_INDEX.also("DSTACK_NODE_RANK")
ADDRESSES: Variable[tuple[str, ...]] = Variable(
    "node_addresses", ("DSTACK_NODES_IPS",), _lines, (), "addresses of all nodes, in node order, a line each, which may be empty",
    "platform",
)  # fmt: skip
FIRST = Variable("first_host", ("DSTACK_MASTER_NODE_IP",), parse.host, "", "address of node 0", "platform")
SLOTS = ANY_SLOTS.also("DSTACK_GPUS_PER_NODE")
ALL_GPUS = Variable(
    "gpus_of_job", ("DSTACK_GPUS_NUM",), parse.count, 0, "GPUs of all nodes, where no file has them node by node", "platform",
)  # fmt: skip
HOST_FILE = Variable(
    "mpi_hostfile", ("DSTACK_MPI_HOSTFILE",), parse.text, "", "file with a line `ADDRESS slots=N` for each node, `ADDRESS` for one without "
    "GPUs", "platform",
)  # fmt: skip
JOB_NAME = ANY_JOB_NAME.also("DSTACK_RUN_NAME")

VARIABLES: tuple[Variable[object], ...] = (NODES, NODE_INDEX, ADDRESSES, FIRST, SLOTS, ALL_GPUS, HOST_FILE, JOB_NAME)

attempt = base.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

KILLS_AFTER_S = 10.0
_LINE = re.compile(r"(\S+)(?:\s+slots=([0-9]{1,4}))?")
_MOST_BYTES = 16 * 1024 * 1024


def detect(reader: Reader) -> bool:
    return several.has(reader, *NODES.names[1:], *NODE_INDEX.names[1:])


def read(reader: Reader, program: Program) -> Job:
    several.kills(reader, KILLS_AFTER_S, NAME)
    nodes = several.count(reader, NODES)
    hosts = several.hosts(reader, nodes, reader.get(ADDRESSES), ADDRESSES.names[0], FIRST)
    own = several.index(reader, NODE_INDEX, nodes)
    return make_job(
        reader,
        program,
        platform=NAME,
        name=reader.get(JOB_NAME) or NAME,
        attempt=attempt(reader, nodes, own),
        hosts=hosts,
        slots=_slots(reader, nodes, own),
        node_index=own,
        accelerator=("gpu", SLOTS.names[-1]),
    )


def _slots(reader: Reader, nodes: int, own: int) -> tuple[int, ...]:
    """The file has those of all nodes, which may differ; the variable those of this node."""
    listed = () if reader.by_user(SLOTS) else _listed(reader)
    if listed and len(listed) != nodes:
        reader.problem(f"{reader.told(HOST_FILE)} has {len(listed)} nodes, but {reader.told(NODES)}: expected a line for each node")
    elif listed:
        _refuse_other_own(reader, listed[own])
        if 0 in listed and any(listed):
            reader.warn(f"{reader.told(HOST_FILE)}: some nodes have GPUs and some have none, so the muster refuses ranks on all of them")
        reader.ledger.note(SLOTS.value, showing.show(listed), reader.told(HOST_FILE).partition("=")[2])
        return listed
    found = several.slots(reader, SLOTS, nodes)
    if not listed and reader.given(SLOTS) and not reader.by_user(SLOTS) and reader.given(ALL_GPUS) and sum(found) != reader.get(ALL_GPUS):
        reader.problem(
            f"{reader.told(SLOTS)} on each of {nodes} nodes contradicts {reader.told(ALL_GPUS)}: where nodes differ, set "
            f"{ANY_SLOTS.names[0]} to a number for each, as 8,4, on all of them"
        )
    return found


def _refuse_other_own(reader: Reader, listed: int) -> None:
    if reader.given(SLOTS) and not reader.by_user(ANY_NODE_INDEX) and reader.get(SLOTS) != (listed,):
        reader.problem(
            f"{reader.told(SLOTS)} contradicts slots={listed} of this node in {reader.told(HOST_FILE)}: unset the wrong one or set "
            f"{ANY_SLOTS.names[0]}"
        )


def _listed(reader: Reader) -> tuple[int, ...]:
    """Of each node; none where there is no such file, or no line in it, as where addresses are missing."""
    path = reader.get(HOST_FILE)
    lines = text_of(reader.files, path, _MOST_BYTES).splitlines() if path else []
    try:
        return tuple(_slots_of(line.strip()) for line in lines if line.strip())
    except ValueError as error:
        reader.problem(f"{path}: {error}")
        return ()


def _slots_of(line: str) -> int:
    match = _LINE.fullmatch(line)
    try:
        parse.host(match[1] if match else "")
    except ValueError:
        msg = f"{showing.clipped(line)!r}: expected ADDRESS slots=N, or ADDRESS for a node without GPUs"
        raise ValueError(msg) from None
    return int(match[2] or 0) if match else 0
