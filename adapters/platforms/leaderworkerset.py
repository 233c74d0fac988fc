"""LeaderWorkerSet of Kubernetes (LWS): each group of a leader and its workers is one job.

Source: https://github.com/kubernetes-sigs/lws, pkg/utils/pod/pod_utils.go. The leader is NAME-GROUP, worker I is NAME-GROUP-I, all of them
in the Service that the leader's address names.
"""

from __future__ import annotations

import re

from ranklaunch.adapters.platforms.shared import base, kubernetes
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME, RESTARTS
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import MASTER_ADDR as ANY_MASTER_ADDR
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.read.settings import SLOTS, make_job

NAME = "leaderworkerset"

NODES = ANY_NODES.also("LWS_GROUP_SIZE")
NODE_INDEX = ANY_NODE_INDEX.also("LWS_WORKER_INDEX")
MASTER_ADDR = ANY_MASTER_ADDR.also("LWS_LEADER_ADDRESS")

VARIABLES: tuple[Variable[object], ...] = (NODES, NODE_INDEX, MASTER_ADDR, HOSTNAME, RESTARTS)

attempt = kubernetes.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

# An address without a number at the end of the pod's name is one of a group that has none: its workers are called otherwise.
_LEADER = re.compile(r"(?P<pod>[^.]+-[0-9]{1,7})\.(?P<service>[^.]+)(?:\..+)?")


def detect(reader: Reader) -> bool:
    return all(reader.env.get(name, "").strip() for name in (NODES.names[-1], MASTER_ADDR.names[-1]))


def read(reader: Reader, program: Program) -> Job:
    nodes = kubernetes.count(reader, NODES, "set RANKLAUNCH_NODES to the group's size")
    address = reader.env.get(MASTER_ADDR.names[-1], "").strip()
    leader = _LEADER.fullmatch(address)
    pod = leader["pod"] if leader else address.partition(".")[0]
    made = () if not leader or reader.by_user(MASTER_ADDR) else (address, *(_worker(leader, number) for number in range(1, nodes)))
    job = make_job(
        reader,
        program,
        platform=NAME,
        name=kubernetes.name(reader, pod, MASTER_ADDR.names[-1], NAME),
        attempt=attempt(reader),
        hosts=kubernetes.hosts(reader, nodes, made, MASTER_ADDR.names[-1], "the leader's address is missing", MASTER_ADDR),
        slots=kubernetes.slots(reader, SLOTS, nodes),
        node_index=kubernetes.index(reader, NODE_INDEX, nodes, _by_name(reader, pod)),
        instance_name=kubernetes.own_name(reader),
    )
    if nodes > 1 and not made:
        reader.record(MASTER_ADDR)
    return job


def _worker(leader: re.Match[str], number: int) -> str:
    own = leader["pod"]
    return f"{own}-{number}{leader[0][len(own) :]}"


def _by_name(reader: Reader, leader: str) -> list[tuple[str, int]]:
    """This pod's place in the group, where it is called as one of it; not on the host's network."""
    own = kubernetes.own_name(reader)
    worker = re.fullmatch(rf"{re.escape(leader)}-([0-9]{{1,7}})", own) if leader else None
    if worker or (leader and own == leader):
        return [(kubernetes.told_name(reader), int(worker[1]) if worker else 0)]
    return []
