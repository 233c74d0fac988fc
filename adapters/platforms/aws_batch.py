"""AWS Batch: multi-node parallel jobs. Its main node, which may be any of them, is our node 0: the others know its address alone.

Source: https://docs.aws.amazon.com/batch/latest/userguide/mnp-env-vars.html, job_env_vars.html and mnp-job-lifecycle.html beside it.
"""

from __future__ import annotations

from ranklaunch.adapters.platforms.shared import base, own_place, several
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import ATTEMPT as ANY_ATTEMPT
from ranklaunch.read.settings import HOSTS, MASTER_ADDR, NODE_INDEX, SLOTS, make_job
from ranklaunch.read.settings import JOB_NAME as ANY_JOB_NAME
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.values import replace

NAME = "aws_batch"

NODES = ANY_NODES.also("AWS_BATCH_JOB_NUM_NODES")
INDEX = Variable(
    "batch_index", ("AWS_BATCH_JOB_NODE_INDEX",), parse.count, 0,
    "index of this node; those below the main node are one more here, and the main node is 0", "platform", per_node=True,
)  # fmt: skip
MAIN = Variable(
    "main_index", ("AWS_BATCH_JOB_MAIN_NODE_INDEX",), parse.count, 0, "index of the main node, which is node 0 here", "platform"
)
MAIN_ADDRESS = Variable(
    "main_address", ("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS",), parse.host, "", "address of the main node, on the others alone",
    "platform",
)  # fmt: skip
ATTEMPT = ANY_ATTEMPT.also("AWS_BATCH_JOB_ATTEMPT")
JOB_NAME = ANY_JOB_NAME.also("AWS_BATCH_JOB_ID")

VARIABLES: tuple[Variable[object], ...] = (NODES, INDEX, MAIN, MAIN_ADDRESS, ATTEMPT, JOB_NAME)

program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir


def detect(reader: Reader) -> bool:
    return several.has(reader, *NODES.names[1:], *INDEX.names)


def attempt(reader: Reader) -> int:
    return reader.get(ATTEMPT)


def read(reader: Reader, program: Program) -> Job:
    several.starts_late(reader, NAME)
    nodes = several.count(reader, NODES)
    own = _index(reader, nodes)
    is_main = reader.given(INDEX) and reader.get(INDEX) == reader.get(MAIN)
    address = own_place.address(reader) if is_main else ""
    job = make_job(
        reader,
        program,
        platform=NAME,
        name=several.name(reader, JOB_NAME, NAME),
        attempt=attempt(reader),
        hosts=_hosts(reader, nodes),
        slots=several.slots(reader, SLOTS, nodes),
        node_index=own,
    )
    return job if nodes == 1 or reader.given(HOSTS) or reader.given(MASTER_ADDR) else replace(job, own_address=address)


def _hosts(reader: Reader, nodes: int) -> tuple[str, ...]:
    """On the main node, and where another node is planned there, its own address, else a name that only itself understands."""
    child = reader.given(INDEX) and reader.get(INDEX) != reader.get(MAIN)
    if child or reader.given(MAIN_ADDRESS) or reader.given(HOSTS):
        return several.hosts(reader, nodes, (), "", MAIN_ADDRESS)
    return (own_place.address(reader) or "localhost", *("",) * (nodes - 1))


def _index(reader: Reader, nodes: int) -> int:
    if reader.by_user(NODE_INDEX) or not reader.given(INDEX):
        return base.index(reader, nodes, NODE_INDEX)
    for variable in (INDEX, MAIN):
        if reader.get(variable) >= nodes:
            reader.problem(f"{reader.told(variable)}: expected 0 to {nodes - 1}, for {nodes} nodes")
    index, main = reader.get(INDEX), reader.get(MAIN)
    own = 0 if index == main else index + 1 if index < main else index
    source = INDEX.names[0] if own == index else f"{INDEX.names[0]}={index} with {MAIN.names[0]}={main}"
    reader.ledger.note(NODE_INDEX.value, str(min(own, nodes - 1)), source)
    return min(own, nodes - 1)
