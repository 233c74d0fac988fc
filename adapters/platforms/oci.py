"""Jobs of Oracle Cloud's Data Science service on several nodes, whose addresses are in a file that grows until all have come.

Source: https://github.com/oracle/accelerated-data-science, ads/jobs/templates/driver_pytorch.py. Jobs before these, one job run for each
node, hand node 0's address over through their logs alone.
"""

from __future__ import annotations

import json

from ranklaunch.adapters.platforms.shared import base, kubernetes
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, MASTER_ADDR, SLOTS, make_job
from ranklaunch.read.settings import JOB_NAME as ANY_JOB_NAME
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.typed import Any
from ranklaunch.values import replace

NAME = "oci"

NODES = ANY_NODES.also("INITIAL_CLUSTER_SIZE", "NODE_COUNT", agree=True)
# Not by the node in the table: other platforms have a variable of this name.
NODE_INDEX = replace(ANY_NODE_INDEX.also("NODE_RANK"), per_node=False)
FILE = Variable(
    "oci_nodes_file", ("CLUSTER_NODES_METADATA_FILE",), parse.text, "", "file with rank and address of each node, as JSON", "platform",
)  # fmt: skip
# Of the first node, by which the others of an older job know it: so all have one name.
JOB_NAME = ANY_JOB_NAME.also("MAIN_JOB_RUN_OCID", "JOB_RUN_OCID")

VARIABLES: tuple[Variable[object], ...] = (NODES, NODE_INDEX, FILE, JOB_NAME)

attempt = base.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

_MOST_BYTES = 16 * 1024 * 1024


def detect(reader: Reader) -> bool:
    run, index = JOB_NAME.names[-1], NODE_INDEX.names[-1]
    return all(reader.env.get(name, "").strip() for name in (run, index)) and any(
        reader.env.get(name, "").strip() for name in NODES.names[1:]
    )


def read(reader: Reader, program: Program) -> Job:
    nodes = reader.get(NODES)
    own = base.index(reader, nodes, NODE_INDEX)
    told = reader.given(HOSTS) or reader.given(MASTER_ADDR) or nodes == 1
    return make_job(
        reader,
        program,
        platform=NAME,
        name=reader.get(JOB_NAME) or NAME,
        attempt=attempt(reader, nodes, own),
        hosts=kubernetes.hosts(reader, nodes, (), "", "") if told else _hosts(reader, nodes),
        slots=kubernetes.slots(reader, SLOTS, nodes),
        node_index=own,
    )


def _hosts(reader: Reader, nodes: int) -> tuple[str, ...]:
    path = reader.get(FILE)
    if not path:
        reader.problem(
            f"{reader.told(NODES)}, but {FILE.names[0]} is not set: a job of one run for each node hands node 0's address over through its "
            f"logs alone; set RANKLAUNCH_MASTER_ADDR (beside RANKLAUNCH_NODES) to it, or make it a job of several nodes"
        )
        return ("localhost",) * nodes
    found = _addresses(reader, path)
    if found is None:
        return ("localhost",) * nodes
    if len(found) < nodes:
        reader.problem(
            f"{reader.told(FILE)} has {len(found)} of {nodes} nodes yet: start ranklaunch when it has all, such as by "
            f'until [ "$(grep -o IPAddress {path} | wc -l)" -ge {nodes} ]; do sleep 5; done'
        )
        return ("localhost",) * nodes
    if set(found) != set(range(nodes)):
        told = reader.told(FILE)
        reader.problem(f"{told} has ranks {', '.join(map(str, sorted(found)))}, but {reader.told(NODES)}: expected 0 to {nodes - 1}")
        return ("localhost",) * nodes
    hosts = tuple(found[rank] for rank in range(nodes))
    reader.ledger.note(HOSTS.value, ",".join(hosts), FILE.names[0])
    return hosts


def _addresses(reader: Reader, path: str) -> dict[int, str] | None:
    """By rank; what is half written counts as no node. None: it is no such file."""
    try:
        text = reader.files.text(path, _MOST_BYTES) or "[]"
        entries: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    try:
        return {parse.count(str(each["Rank"])): parse.host(str(each["IPAddress"])) for each in entries}
    except (ValueError, KeyError, TypeError):
        expected = '[{"Rank": 0, "IPAddress": "10.0.0.2"}, ...]'
        reader.problem(f"{reader.told(FILE)} is not understood: expected {expected}; else set RANKLAUNCH_HOSTS")
        return None
