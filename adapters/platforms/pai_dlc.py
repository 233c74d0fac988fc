"""Alibaba Cloud PAI, Deep Learning Containers (DLC): PyTorch jobs, in which RANK and WORLD_SIZE count containers, not processes.

Source: https://www.alibabacloud.com/help/en/pai/general-environment-variables. The platform has no variable of its own that says whose they
are; the master's address does, which begins with the job's id: dlc18isgeayd-master-0.
"""

from __future__ import annotations

import re

from ranklaunch.adapters.platforms.shared import base, containers
from ranklaunch.adapters.platforms.shared.containers import MASTER, NODE_INDEX, NODES, SLOTS
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import JOB_NAME, make_job

NAME = "pai_dlc"

VARIABLES: tuple[Variable[object], ...] = containers.VARIABLES

attempt = base.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir


def detect(reader: Reader) -> bool:
    return bool(_id(reader)) and containers.counted(reader)


def _id(reader: Reader) -> str:
    job = containers.job_of_master(reader)
    return job if re.fullmatch("dlc[0-9a-z]+", job) else ""


def read(reader: Reader, program: Program) -> Job:
    nodes = reader.get(NODES)
    own = base.index(reader, nodes, NODE_INDEX)
    return make_job(
        reader,
        program,
        platform=NAME,
        name=_name(reader),
        attempt=attempt(reader, nodes, own),
        hosts=containers.hosts(reader, nodes),
        slots=containers.slots(reader, nodes),
        node_index=own,
        accelerator=("gpu", SLOTS.names[-1]),
    )


def _name(reader: Reader) -> str:
    name, found = reader.get(JOB_NAME), _id(reader)
    if not name and found:
        reader.ledger.note(JOB_NAME.value, found, MASTER.names[-1])
    return name or found or NAME
