"""PyTorchJobs of training operators before 1.7, and of the PyTorch operator before these: RANK and WORLD_SIZE count pods, PET_ variables
there are none, and of the oldest the master itself is told localhost.

Source: https://github.com/kubeflow/training-operator, pkg/controller.v1/pytorch/pytorch.go of v1.3.0 to v1.6.0. Newer ones are read by
kubeflow_trainer.
"""

from __future__ import annotations

import re

from ranklaunch.adapters.platforms.shared import base, containers, kubernetes, unrecognised
from ranklaunch.adapters.platforms.shared.containers import MASTER, NODE_INDEX, NODES
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME, RESTARTS
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import MASTER_ADDR, SLOTS, make_job

NAME = "pytorchjob"

# Of jobs that another adapter reads, or that are none of PyTorch: XGBoost's has the addresses of its workers.
NOT_OURS = Variable(
    "not_pytorchjob", ("PET_NNODES", "PET_RDZV_ENDPOINT", "WORKER_ADDRS"), parse.text, "",
    "set in jobs that are no PyTorchJob of before PET_ variables; only whether they are set counts", "platform",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (NODES, NODE_INDEX, MASTER, NOT_OURS, HOSTNAME, RESTARTS)

attempt = kubernetes.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

_OWN_MACHINE = re.compile(r"localhost|127\..*|::1")


def detect(reader: Reader) -> bool:
    """Two counts, and a pod whose name and whose master's are one job's. A launcher's rank has such counts too, and more."""
    if not containers.counted(reader) or reader.given(NOT_OURS) or reader.candidates(unrecognised.RANK_SIGNS):
        return False
    return bool(containers.job_of_pod(reader)) and containers.job_of_pod(reader) == _job(reader)


def _job(reader: Reader) -> str:
    """By the master's address; on the oldest master that is this machine."""
    if "-master-" in kubernetes.own_name(reader) and _is_here(reader):
        return containers.job_of_pod(reader)
    return containers.job_of_master(reader)


def _is_here(reader: Reader) -> bool:
    return bool(_OWN_MACHINE.fullmatch(reader.env.get(MASTER.names[-1], "").strip()))


def read(reader: Reader, program: Program) -> Job:
    nodes = reader.get(NODES)
    job = _job(reader)
    made = f"{job}-master-0" if job and _is_here(reader) and not reader.by_user(MASTER_ADDR) and nodes > 1 else ""
    return make_job(
        reader,
        program,
        platform=NAME,
        name=kubernetes.name(reader, job, HOSTNAME.names[0] if made else MASTER.names[-1], NAME),
        attempt=attempt(reader),
        hosts=containers.hosts(reader, nodes, made),
        slots=kubernetes.slots(reader, SLOTS, nodes),
        node_index=kubernetes.index(reader, NODE_INDEX, nodes, containers.by_name(reader)),
        instance_name=kubernetes.own_name(reader),
    )
