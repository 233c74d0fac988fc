"""MosaicML's platform (MCLI), which Databricks goes on with as AI Runtime: WORLD_SIZE counts all processes there, NODE_RANK nodes.

Its own pages do not say what a node is told. Source: what Composer's launcher reads (https://github.com/mosaicml/composer,
composer/cli/launcher.py), and what users have seen in runs.
"""

from __future__ import annotations

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
from ranklaunch.values import replace

NAME = "mosaicml"

SIGN = Variable("mosaicml_sign", ("MOSAICML_PLATFORM",), parse.text, "", "true: this is the platform", "platform")
NODES = ANY_NODES.also("NUM_NODES")
# Not by the node in the table: other platforms have variables of these names.
NODE_INDEX = replace(ANY_NODE_INDEX.also("NODE_RANK", "POD_RANK", agree=True), per_node=False)
SLOTS = ANY_SLOTS.also("LOCAL_WORLD_SIZE")
PROCESSES = Variable("mosaicml_processes", ("WORLD_SIZE",), parse.positive, 1, "processes of the job", "platform")
MASTER_ADDR = ANY_MASTER_ADDR.also("MASTER_ADDR")
JOB_NAME = ANY_JOB_NAME.also("RUN_NAME")

VARIABLES: tuple[Variable[object], ...] = (SIGN, NODES, NODE_INDEX, SLOTS, PROCESSES, MASTER_ADDR, JOB_NAME)

attempt = base.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir


def detect(reader: Reader) -> bool:
    return reader.env.get(SIGN.names[0], "").strip().lower() == "true" and bool(reader.env.get(NODES.names[-1], "").strip())


def read(reader: Reader, program: Program) -> Job:
    nodes = reader.get(NODES)
    own = base.index(reader, nodes, NODE_INDEX)
    slots = spread(reader, SLOTS, reader.get(SLOTS) if reader.given(SLOTS) else (devices(reader),), nodes)
    _refuse_other_count(reader, nodes, slots)
    job = make_job(
        reader,
        program,
        platform=NAME,
        name=reader.get(JOB_NAME) or NAME,
        attempt=attempt(reader, nodes, own),
        hosts=kubernetes.hosts(reader, nodes, (), "", "set RANKLAUNCH_MASTER_ADDR", MASTER_ADDR),
        slots=slots,
        node_index=own,
        accelerator=("gpu", SLOTS.names[-1]) if reader.given(SLOTS) else ("cpu", "default"),
    )
    if nodes > 1:
        reader.record(MASTER_ADDR)
    return job


def _refuse_other_count(reader: Reader, nodes: int, slots: tuple[int, ...]) -> None:
    by_user = reader.by_user(NODES) or reader.by_user(SLOTS)
    if by_user or not (reader.given(PROCESSES) and reader.given(SLOTS)) or reader.get(PROCESSES) == sum(max(1, each) for each in slots):
        return
    reader.problem(
        f"{reader.told(PROCESSES)}, but {reader.told(NODES)} and {reader.told(SLOTS)}: expected their product; set RANKLAUNCH_NODES and "
        "RANKLAUNCH_SLOTS"
    )
