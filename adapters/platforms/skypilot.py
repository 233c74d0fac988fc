"""SkyPilot: the task's run stage, which starts on every node of the job at once.

Source: https://docs.skypilot.co/en/latest/running-jobs/environment-variables.html and distributed-jobs.html beside it;
sky/skylet/constants.py of https://github.com/skypilot-org/skypilot.
"""

from __future__ import annotations

from ranklaunch.adapters.platforms.shared import base, several
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import JOB_NAME as ANY_JOB_NAME
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.read.settings import SLOTS as ANY_SLOTS
from ranklaunch.read.settings import make_job

NAME = "skypilot"

NODES = ANY_NODES.also("SKYPILOT_NUM_NODES")
NODE_INDEX = ANY_NODE_INDEX.also("SKYPILOT_NODE_RANK")
ADDRESSES: Variable[tuple[str, ...]] = Variable(
    "node_addresses", ("SKYPILOT_NODE_IPS",), several.listed, (), "addresses of all nodes, in node order, a line each", "platform",
)  # fmt: skip
SLOTS = ANY_SLOTS.also("SKYPILOT_NUM_GPUS_PER_NODE")
JOB_NAME = ANY_JOB_NAME.also("SKYPILOT_TASK_ID")
SETUP = Variable(
    "setup_stage", ("SKYPILOT_SETUP_NODE_IPS", "SKYPILOT_SETUP_NODE_RANK"), parse.text, "",
    "set in the setup stage, in which nothing is trained", "platform",
)  # fmt: skip

VARIABLES: tuple[Variable[object], ...] = (NODES, NODE_INDEX, ADDRESSES, SLOTS, JOB_NAME, SETUP)

attempt = base.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir


def detect(reader: Reader) -> bool:
    return _runs(reader) or bool(reader.candidates(SETUP))


def _runs(reader: Reader) -> bool:
    return several.has(reader, *NODE_INDEX.names[1:], *ADDRESSES.names)


def read(reader: Reader, program: Program) -> Job:
    if reader.given(SETUP) and not _runs(reader):
        reader.problem(
            f"{SETUP.names[0]} is set: this is the setup stage, which runs on every node of the cluster and not on those of the job; put "
            "it into run"
        )
        reader.leave_aside("SKYPILOT_")
    found = reader.get(ADDRESSES)
    lines = [(f"{ADDRESSES.names[0]} with {len(found)} addresses", len(found))] if found and not reader.given(NODES) else []
    nodes = several.count(reader, NODES, lines)
    hosts = several.hosts(reader, nodes, found, ADDRESSES.names[0])
    own = several.index(reader, NODE_INDEX, nodes)
    return make_job(
        reader,
        program,
        platform=NAME,
        name=reader.get(JOB_NAME) or NAME,
        attempt=attempt(reader, nodes, own),
        hosts=hosts,
        slots=several.slots(reader, SLOTS, nodes),
        node_index=own,
        accelerator=("gpu", SLOTS.names[-1]),
    )
