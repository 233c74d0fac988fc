"""Baidu AI Heterogeneous Computing (AIHC, Baige): PyTorch jobs, in which RANK and WORLD_SIZE count containers, not processes.

Source: https://cloud.baidu.com/doc/AIHC/s/mm346i20k.
"""

from __future__ import annotations

from ranklaunch.adapters.platforms.shared import base, containers, kubernetes
from ranklaunch.adapters.platforms.shared.containers import MASTER, NODE_INDEX, NODES, SLOTS
from ranklaunch.adapters.platforms.shared.kubernetes import HOSTNAME
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import JOB_NAME as ANY_JOB_NAME
from ranklaunch.read.settings import make_job

NAME = "aihc"

JOB_NAME = ANY_JOB_NAME.also("AIHC_JOB_NAME")

VARIABLES: tuple[Variable[object], ...] = (*containers.VARIABLES, JOB_NAME, HOSTNAME)

attempt = base.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir


def detect(reader: Reader) -> bool:
    return bool(reader.env.get(JOB_NAME.names[-1], "").strip()) and containers.counted(reader)


def read(reader: Reader, program: Program) -> Job:
    nodes = reader.get(NODES)
    _refuse_another_jobs(reader)
    own = kubernetes.index(reader, NODE_INDEX, nodes, containers.by_name(reader))
    return make_job(
        reader,
        program,
        platform=NAME,
        name=reader.get(JOB_NAME) or NAME,
        attempt=attempt(reader, nodes, own),
        hosts=containers.hosts(reader, nodes),
        slots=containers.slots(reader, nodes),
        node_index=own,
        accelerator=("gpu", SLOTS.names[-1]),
        instance_name=kubernetes.own_name(reader),
    )


def _refuse_another_jobs(reader: Reader) -> None:
    """The master's address begins with the job's name."""
    job, of = reader.env.get(JOB_NAME.names[-1], "").strip(), containers.job_of_master(reader)
    if job and of and job != of:
        address = f"{MASTER.names[-1]}={reader.env[MASTER.names[-1]].strip()}"
        reader.problem(f"{address} is the master of another job than {JOB_NAME.names[-1]}={job}: unset the wrong one")
