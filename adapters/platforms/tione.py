"""Tencent Cloud TI-ONE: training tasks in DDP mode, each of whose nodes starts the same command.

Source: https://cloud.tencent.com/document/product/851/103087. In MPI mode the command runs on the launcher alone, which is refused.
"""

from __future__ import annotations

import re

from ranklaunch import showing
from ranklaunch.adapters.platforms.shared import base, containers, kubernetes
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.parse import Endpoint
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS as ANY_HOSTS
from ranklaunch.read.settings import MASTER_ADDR, make_job, spread
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.read.settings import SLOTS as ANY_SLOTS
from ranklaunch.values import replace

NAME = "tione"


def _listed(value: str) -> tuple[Endpoint, ...]:
    try:
        return parse.endpoints(value)
    except ValueError:
        msg = "expected HOST:GPUS with commas between them"
        raise ValueError(msg) from None


_LIST = "host and GPUs of each node, in node order"
NODE_LIST: Variable[tuple[Endpoint, ...]] = Variable("node_list", ("NODE_LIST",), _listed, (), _LIST, "platform")
NODES = ANY_NODES.also("WORLD_SIZE")
# Names that others use as well, and that say what platform this is.
NODE_INDEX = replace(ANY_NODE_INDEX.also("INDEX", "RANK", agree=True), per_node=False)
SLOTS = ANY_SLOTS.also("GPU_NUM_PER_NODE")
MASTER = MASTER_ADDR.also("MASTER_ADDR")
MPI_LIST = Variable(
    "mpi_node_list", ("NODE_IP_SLOT_LIST",), parse.text, "", "ADDRESS:GPUS of each node, on the launcher of a task in MPI mode", "platform",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (NODE_LIST, NODES, NODE_INDEX, SLOTS, MASTER, MPI_LIST, HOSTNAME)

attempt = base.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

_POD = re.compile(r"(?P<task>.+?)-(?:launcher|master|(?:launcher|master|worker)-[0-9]{1,7})(?:\..+)?")
_BY_MPI = (
    'mpirun -H "$NODE_IP_SLOT_LIST" --map-by ppr:1:node -x PATH sh -c \'RANKLAUNCH_PLATFORM=local RANKLAUNCH_NODES=$OMPI_COMM_WORLD_SIZE '
    "RANKLAUNCH_NODE=$OMPI_COMM_WORLD_RANK RANKLAUNCH_MASTER_ADDR={first} exec ranklaunch run ...'"
)


def detect(reader: Reader) -> bool:
    """All three of what every mode has, of names that others could use for something else."""
    return ":" in reader.env.get(NODE_LIST.names[0], "") and all(
        reader.env.get(name, "").strip() for name in (NODE_INDEX.names[1], SLOTS.names[-1])
    )


def read(reader: Reader, program: Program) -> Job:
    listed = reader.get(NODE_LIST)
    nodes = reader.get(NODES) if reader.given(NODES) else max(1, len(listed) or len(reader.get(ANY_HOSTS)))
    _refuse_other_modes(reader, nodes)
    if listed and len(listed) != nodes and not reader.by_user(NODES):
        reader.problem(f"{NODE_LIST.names[0]} names {len(listed)} nodes, but {reader.told(NODES)}: unset the wrong one")
    own = kubernetes.index(reader, NODE_INDEX, nodes)
    return make_job(
        reader,
        program,
        platform=NAME,
        name=kubernetes.name(reader, _name(listed), NODE_LIST.names[0], NAME),
        attempt=attempt(reader, nodes, own),
        hosts=_hosts(reader, nodes, listed),
        slots=_slots(reader, nodes, listed),
        node_index=own,
        accelerator=("gpu", SLOTS.names[-1]),
        instance_name=kubernetes.own_name(reader),
    )


def _refuse_other_modes(reader: Reader, nodes: int) -> None:
    """Whose nodes do not all run the command: DDP's alone have a rank, and the master's address."""
    if nodes == 1 or any(map(reader.by_user, (NODES, NODE_INDEX, ANY_HOSTS))) or all(map(reader.env.get, ("MASTER_ADDR", "RANK"))):
        return
    if reader.given(MPI_LIST):
        reader.problem(
            f"{MPI_LIST.names[0]} without MASTER_ADDR and RANK: in MPI mode TI-ONE runs the command on the launcher alone; choose DDP "
            f"mode, or start ranklaunch once on each node: {_BY_MPI.format(first=reader.get(MPI_LIST).partition(':')[0])}"
        )
        return
    reader.problem(
        f"{NODE_LIST.names[0]} names {nodes} nodes, but MASTER_ADDR and RANK, which TI-ONE sets in DDP mode, are not both there: choose "
        "DDP mode, or set RANKLAUNCH_NODES, RANKLAUNCH_NODE and RANKLAUNCH_HOSTS where every node runs this command"
    )


def _hosts(reader: Reader, nodes: int, listed: tuple[Endpoint, ...]) -> tuple[str, ...]:
    """Of node 0 the address that the platform gives, of the others their names."""
    names = tuple(endpoint.host for endpoint in listed) if len(listed) == nodes else ()
    if reader.get(ANY_HOSTS) or not names or nodes == 1:
        return containers.hosts(reader, nodes)
    first = reader.get(MASTER) or names[0]
    reader.ledger.note(ANY_HOSTS.value, ",".join((first, *names[1:])), f"{NODE_LIST.names[0]}, {MASTER.names[-1]}")
    return (first, *names[1:])


def _slots(reader: Reader, nodes: int, listed: tuple[Endpoint, ...]) -> tuple[int, ...]:
    told = tuple(endpoint.port for endpoint in listed)
    if reader.by_user(SLOTS) or len(told) != nodes:
        return spread(reader, SLOTS, reader.get(SLOTS), nodes)
    each = reader.get(SLOTS)
    if any(count not in told for count in each):
        reader.problem(f"{reader.told(SLOTS)}, but {NODE_LIST.names[0]} has {showing.show(told)} for the nodes: unset the wrong one")
    return told


def _name(listed: tuple[Endpoint, ...]) -> str:
    """Of the task: what all its nodes' names begin with."""
    pod = _POD.fullmatch(listed[0].host) if listed else None
    return pod["task"] if pod else ""
