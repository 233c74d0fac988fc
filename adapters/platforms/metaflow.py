"""Metaflow: steps with @parallel, or with a decorator made of it, on AWS Batch and on Kubernetes. The control task is node 0.

Source: metaflow/plugins/parallel_decorator.py and metaflow/plugins/aws/batch of https://github.com/Netflix/metaflow.
"""

from __future__ import annotations

import re

from ranklaunch.adapters.platforms.shared import base, several
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import ATTEMPT as ANY_ATTEMPT
from ranklaunch.read.settings import HOSTS, SLOTS, make_job
from ranklaunch.read.settings import JOB_NAME as ANY_JOB_NAME
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES

NAME = "metaflow"

NODES = ANY_NODES.also("MF_PARALLEL_NUM_NODES")
NODE_INDEX = ANY_NODE_INDEX.also("MF_PARALLEL_NODE_INDEX")
MAIN = Variable("first_host", ("MF_PARALLEL_MAIN_IP",), parse.host, "", "address of the control task, which is node 0", "platform")
ATTEMPT = ANY_ATTEMPT.also("AWS_BATCH_JOB_ATTEMPT")
RESTARTS = Variable(
    "jobset_restarts", ("JOBSET_RESTART_ATTEMPT",), parse.count, 0, "how often the JobSet was restarted, from 0", "platform"
)
IN_BATCH = Variable("batch_nodes", ("AWS_BATCH_JOB_NUM_NODES",), parse.positive, 1, "number of nodes, by AWS Batch below", "platform")
JOB_NAME = ANY_JOB_NAME.also("AWS_BATCH_JOB_ID")

VARIABLES: tuple[Variable[object], ...] = (NODES, NODE_INDEX, MAIN, ATTEMPT, RESTARTS, IN_BATCH, JOB_NAME)

program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

_LOOPBACK = re.compile(r"localhost|127\..*|::1")


def detect(reader: Reader) -> bool:
    return several.has(reader, *NODES.names[1:], *NODE_INDEX.names[1:])


def attempt(reader: Reader, nodes: int = 1, index: int = 0) -> int:
    if reader.given(ATTEMPT):
        return reader.get(ATTEMPT)
    if not reader.given(RESTARTS):
        return base.attempt(reader, nodes, index)
    number = reader.get(RESTARTS) + 1
    reader.ledger.note(ATTEMPT.value, str(number), f"{RESTARTS.names[0]} + 1")
    return number


def read(reader: Reader, program: Program) -> Job:
    several.starts_late(reader, NAME)
    nodes = several.count(reader, NODES, several.told(reader, IN_BATCH))
    hosts = several.hosts(reader, nodes, (), "", MAIN)
    _refuse_one_machine(reader, nodes)
    own = several.index(reader, NODE_INDEX, nodes)
    return make_job(
        reader,
        program,
        platform=NAME,
        name=several.name(reader, JOB_NAME, NAME),
        attempt=attempt(reader, nodes, own),
        hosts=hosts,
        slots=several.slots(reader, SLOTS, nodes),
        node_index=own,
    )


def _refuse_one_machine(reader: Reader, nodes: int) -> None:
    """A run without --with batch or kubernetes has all tasks on the user's machine, each of which would start a rank on each device."""
    if nodes > 1 and _LOOPBACK.fullmatch(reader.get(MAIN)) and not reader.by_user(SLOTS) and not reader.given(HOSTS):
        reader.problem(
            f"{reader.told(MAIN)} with {reader.told(NODES)}: all tasks of this step run on one machine, whose devices they share: run the "
            f"flow with --with batch or --with kubernetes, or set {SLOTS.names[0]} to the ranks of each task"
        )
