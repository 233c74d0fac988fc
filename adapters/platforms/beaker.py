"""Beaker of the Allen Institute for AI: the replicas of a task, of which the first is the leader.

Source: https://github.com/allenai/beaker-gantry, gantry/entrypoint.sh, and its option --leader-selection.
"""

from __future__ import annotations

from ranklaunch import showing
from ranklaunch.adapters.platforms.shared import base, kubernetes
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import JOB_NAME as ANY_JOB_NAME
from ranklaunch.read.settings import MASTER_ADDR as ANY_MASTER_ADDR
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.read.settings import SLOTS as ANY_SLOTS
from ranklaunch.read.settings import devices, make_job, spread

NAME = "beaker"

NODES = ANY_NODES.also("BEAKER_REPLICA_COUNT")
NODE_INDEX = ANY_NODE_INDEX.also("BEAKER_REPLICA_RANK")
MASTER_ADDR = ANY_MASTER_ADDR.also("BEAKER_LEADER_REPLICA_HOSTNAME")
SLOTS = ANY_SLOTS.also("BEAKER_ASSIGNED_GPU_COUNT")
JOB_NAME = ANY_JOB_NAME.also("BEAKER_EXPERIMENT_ID", "BEAKER_WORKLOAD_ID")
SIGNS = Variable(
    "beaker_signs", ("BEAKER_JOB_ID", "BEAKER_NODE_ID"), parse.text, "", "set for a job's container: both say that this is the platform",
    "platform", per_node=True,
)  # fmt: skip
OWN_HOST = Variable(
    "beaker_host", ("BEAKER_NODE_HOSTNAME",), parse.text, "", "name of this replica's machine: the first one's is the leader's", "platform",
    per_node=True,
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (NODES, NODE_INDEX, MASTER_ADDR, SLOTS, JOB_NAME, SIGNS, OWN_HOST)

attempt = base.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

_REMEDY = "give the task leaderSelection: true and hostNetworking: true (gantry run --leader-selection --host-networking)"


def detect(reader: Reader) -> bool:
    return all(reader.env.get(name, "").strip() for name in SIGNS.names)


def read(reader: Reader, program: Program) -> Job:
    nodes = reader.get(NODES)
    own = base.index(reader, nodes, NODE_INDEX)
    _refuse_other_leader(reader, nodes, own)
    job = make_job(
        reader,
        program,
        platform=NAME,
        name=reader.get(JOB_NAME) or NAME,
        attempt=attempt(reader, nodes, own),
        hosts=kubernetes.hosts(reader, nodes, (), "", _REMEDY, MASTER_ADDR),
        slots=spread(reader, SLOTS, reader.get(SLOTS) if reader.given(SLOTS) else (devices(reader),), nodes),
        node_index=own,
        accelerator=("gpu", SLOTS.names[-1]) if reader.given(SLOTS) else ("cpu", "default"),
    )
    if nodes > 1:
        reader.record(MASTER_ADDR)
    return job


def _refuse_other_leader(reader: Reader, nodes: int, own: int) -> None:
    """The leader is the first replica: elsewhere node 0 would be waited for where it is not."""
    leader, here = kubernetes.seen(reader, MASTER_ADDR), reader.get(OWN_HOST)
    if nodes == 1 or own or not (leader and here and reader.given(NODE_INDEX)) or any(map(reader.by_user, (MASTER_ADDR, NODE_INDEX))):
        return
    if leader.partition(".")[0] != here.partition(".")[0]:
        reader.problem(
            f"{reader.told(NODE_INDEX)} is the leader, but {MASTER_ADDR.names[-1]}={showing.clipped(leader)} and "
            f"{OWN_HOST.names[0]}={showing.clipped(here)}: expected one host; set RANKLAUNCH_MASTER_ADDR or RANKLAUNCH_NODE"
        )
