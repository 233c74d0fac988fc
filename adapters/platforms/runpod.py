"""RunPod's Instant Clusters. Their variables have common names: several of them together are known.

Source: https://docs.runpod.io/instant-clusters/configuration
"""

from __future__ import annotations

from ranklaunch.adapters.platforms.shared import base, several
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import JOB_NAME, make_job
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.read.settings import SLOTS as ANY_SLOTS
from ranklaunch.values import replace

NAME = "runpod"

NODES = ANY_NODES.also("NUM_NODES")
# Not by the node in the table: elsewhere it may be anything, and it is removed from what every rank inherits.
NODE_INDEX = replace(ANY_NODE_INDEX.also("NODE_RANK"), per_node=False)
SLOTS = ANY_SLOTS.also("NUM_TRAINERS")
FIRST = Variable(
    "first_host", ("PRIMARY_ADDR", "MASTER_ADDR"), parse.host, "", "address of node 0", "platform", agree=True,
)  # fmt: skip
OWN = Variable("own_address", ("NODE_ADDR",), parse.host, "", "address of this node", "platform", per_node=True)
ALL_GPUS = Variable("processes", ("WORLD_SIZE",), parse.count, 0, "GPUs of all nodes", "platform")

VARIABLES: tuple[Variable[object], ...] = (NODES, NODE_INDEX, SLOTS, FIRST, OWN, ALL_GPUS)

attempt = base.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir


def detect(reader: Reader) -> bool:
    return several.has(reader, "NODE_ADDR", "PRIMARY_ADDR", "NUM_TRAINERS", "NUM_NODES")


def read(reader: Reader, program: Program) -> Job:
    nodes = several.count(reader, NODES)
    hosts = several.hosts(reader, nodes, (), "", FIRST)
    own = several.index(reader, NODE_INDEX, nodes)
    _refuse_other_first(reader, nodes, own)
    slots = several.slots(reader, SLOTS, nodes)
    if reader.given(ALL_GPUS) and not reader.by_user(SLOTS) and not reader.by_user(NODES) and reader.get(ALL_GPUS) != sum(slots):
        reader.problem(f"{reader.told(ALL_GPUS)}, but {reader.told(NODES)} with {reader.told(SLOTS)}: expected their product")
    return make_job(
        reader,
        program,
        platform=NAME,
        name=reader.get(JOB_NAME) or NAME,
        attempt=attempt(reader, nodes, own),
        hosts=hosts,
        slots=slots,
        node_index=own,
        accelerator=("gpu", SLOTS.names[-1]),
    )


def _refuse_other_first(reader: Reader, nodes: int, own: int) -> None:
    """The addresses of the first node and of this one are the same on the first alone."""
    if nodes == 1 or reader.by_user(NODE_INDEX) or not reader.given(OWN) or not reader.given(NODE_INDEX):
        return
    if (reader.get(OWN) == reader.get(FIRST)) != (own == 0):
        reader.problem(
            f"{reader.told(NODE_INDEX)}, but {reader.told(OWN)} and {reader.told(FIRST)}: expected the same address on node 0 alone; "
            f"unset the wrong one or set {ANY_NODE_INDEX.names[0]}"
        )
