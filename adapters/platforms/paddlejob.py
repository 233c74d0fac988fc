"""PaddleJobs of Kubeflow's training operator, of workers alone: the number of a worker is at the end of its pod's name.

Source: https://github.com/kubeflow/training-operator, pkg/controller.v1/paddlepaddle/envvar.go.
"""

from __future__ import annotations

import re

from ranklaunch.adapters.platforms.shared import base, kubernetes
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME, RESTARTS
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.parse import Endpoint
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import JOB_NAME as ANY_JOB_NAME
from ranklaunch.read.settings import NODE_INDEX, SLOTS, make_job
from ranklaunch.read.settings import NODES as ANY_NODES

NAME = "paddlejob"

NODES = ANY_NODES.also("PADDLE_NNODES")
JOB_NAME = ANY_JOB_NAME.also("PADDLE_JOB_ID")
MASTER: Variable[tuple[Endpoint, ...]] = Variable(
    "paddle_master", ("PADDLE_MASTER",), parse.endpoints, (), "HOST:PORT of worker 0, which is told its own address", "platform",
)  # fmt: skip
SERVERS = Variable(
    "paddle_servers", ("PADDLE_SERVER_NUM", "PADDLE_TRAINER_NUM"), parse.text, "", "set in jobs of parameter servers, which are refused",
    "platform",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (NODES, JOB_NAME, MASTER, SERVERS, HOSTNAME, RESTARTS)

attempt = kubernetes.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

_WORKER = re.compile(r"(?P<job>.+)-worker-(?P<number>[0-9]{1,7})")


def detect(reader: Reader) -> bool:
    counts = (NODES.names[-1], *SERVERS.names)
    return bool(reader.env.get(JOB_NAME.names[-1], "").strip()) and any(reader.env.get(name, "").strip() for name in counts)


def read(reader: Reader, program: Program) -> Job:
    if reader.given(SERVERS) and not reader.by_user(NODES):
        reader.problem(
            f"{reader.candidates(SERVERS)[0].source} is set: a PaddleJob of parameter servers (paddleReplicaSpecs.Master) is not served; "
            "leave the Master out, or set RANKLAUNCH_NODES, RANKLAUNCH_NODE and RANKLAUNCH_MASTER_ADDR"
        )
    nodes = reader.get(NODES)
    name = reader.get(JOB_NAME)
    job = reader.env.get(JOB_NAME.names[-1], "").strip()
    made = kubernetes.counted(reader, tuple(f"{job}-worker-{i}" for i in range(nodes)), JOB_NAME.names[-1], nodes) if job else ()
    return make_job(
        reader,
        program,
        platform=NAME,
        name=name or NAME,
        attempt=attempt(reader),
        hosts=kubernetes.hosts(reader, nodes, made, JOB_NAME.names[-1], "PADDLE_JOB_ID is missing"),
        slots=kubernetes.slots(reader, SLOTS, nodes),
        node_index=kubernetes.index(reader, NODE_INDEX, nodes, _by_name(reader, job)),
        instance_name=kubernetes.own_name(reader),
    )


def _by_name(reader: Reader, job: str) -> list[tuple[str, int]]:
    """Of this pod, which on the host's network is called as its machine. Of another job's names none is taken."""
    own = _WORKER.fullmatch(kubernetes.own_name(reader))
    if own and own["job"] != job:
        reader.problem(f"{kubernetes.told_name(reader)} is no worker of {JOB_NAME.names[-1]}={job}: unset the wrong one")
    _refuse_other_master(reader, job, own)
    return [(kubernetes.told_name(reader), int(own["number"]))] if own else []


def _refuse_other_master(reader: Reader, job: str, own: re.Match[str] | None) -> None:
    """All workers but the first are told its name, and that one its own address."""
    master = reader.get(MASTER)
    named, first = master[0].host.partition(".")[0] if master else "", f"{job}-worker-0"
    if own and _WORKER.fullmatch(named) and named != first:
        reader.problem(f"{reader.told(MASTER)}, but worker 0 of {JOB_NAME.names[-1]}={job} is {first}: unset the wrong one")
