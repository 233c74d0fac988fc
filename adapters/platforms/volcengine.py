"""Volcengine's machine learning platform (BytePlus abroad): jobs of workers.

Source: https://www.volcengine.com/docs/6459/75329 and https://docs.byteplus.com/en/docs/mlp/List_of_common_environment_variables.
"""

from __future__ import annotations

from ranklaunch.adapters.platforms.shared import base
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS as ANY_HOSTS
from ranklaunch.read.settings import JOB_NAME as ANY_JOB_NAME
from ranklaunch.read.settings import MASTER_ADDR, make_job, spread
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.read.settings import SLOTS as ANY_SLOTS

NAME = "volcengine"

NODES = ANY_NODES.also("MLP_WORKER_NUM")
SLOTS = ANY_SLOTS.also("MLP_WORKER_GPU")
HOSTS = ANY_HOSTS.also("MLP_WORKER_ALL_HOSTS")
FIRST_HOST = Variable("first_host", ("MLP_WORKER_0_HOST",), parse.host, "", "host of worker 0", "platform")
NODE_INDEX = ANY_NODE_INDEX.also("MLP_ROLE_INDEX")
ROLE = Variable("role", ("MLP_ROLE",), parse.text, "WORKER", "role of this container: WORKER", "platform")
JOB_NAME = ANY_JOB_NAME.also("MLP_TASK_ID")

VARIABLES: tuple[Variable[object], ...] = (NODES, SLOTS, HOSTS, FIRST_HOST, NODE_INDEX, ROLE, JOB_NAME)

attempt = base.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir


def detect(reader: Reader) -> bool:
    return all(reader.env.get(name, "").strip() for name in (*JOB_NAME.names[1:], *NODES.names[1:]))


def read(reader: Reader, program: Program) -> Job:
    nodes = reader.get(NODES)
    hosts = _hosts(reader, nodes)
    _refuse_other_role(reader)
    own = base.index(reader, nodes, NODE_INDEX)
    return make_job(
        reader,
        program,
        platform=NAME,
        name=reader.get(JOB_NAME) or NAME,
        attempt=attempt(reader, nodes, own),
        hosts=hosts,
        slots=spread(reader, SLOTS, reader.get(SLOTS), nodes),
        node_index=own,
        accelerator=("gpu", SLOTS.names[-1]),
    )


def _hosts(reader: Reader, nodes: int) -> tuple[str, ...]:
    hosts, first = reader.get(HOSTS), reader.get(FIRST_HOST)
    if hosts and len(hosts) != nodes:
        reader.problem(f"{reader.source(HOSTS)} names {len(hosts)} hosts, but {reader.told(NODES)}: expected as many names as nodes")
        hosts = hosts[:1] * nodes
    if hosts and first and hosts[0] != first and not reader.by_user(HOSTS):
        reader.problem(f"{reader.told(HOSTS)} begins with {hosts[0]}, but {reader.told(FIRST_HOST)}: expected the same host")
    if not hosts and not first and nodes > 1 and not reader.given(MASTER_ADDR):
        reader.problem(
            f"{nodes} nodes, but none of {', '.join((*HOSTS.names, *FIRST_HOST.names, *MASTER_ADDR.names))} says where node 0 is"
        )
    return hosts or (first or "localhost",) + ("",) * (nodes - 1)


def _refuse_other_role(reader: Reader) -> None:
    role = reader.get(ROLE).strip()
    if role.upper() != ROLE.default:
        reader.problem(
            f"{reader.told(ROLE)}: expected {ROLE.default}; for ps and workers say where they are with --platform local "
            "and RANKLAUNCH_PS_HOSTS"
        )
