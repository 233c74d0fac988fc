"""OpenPAI: jobs of one task role, each task of which is a node.

Source: https://openpai.readthedocs.io/en/latest/manual/cluster-user/how-to-use-advanced-job-settings.html, "Environmental Variables and
Port Reservation". Names of variables end with the role's name.
"""

from __future__ import annotations

from ranklaunch import showing
from ranklaunch.adapters.platforms.shared import base
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import HOSTS, NODES, make_job, spread
from ranklaunch.read.settings import JOB_NAME as ANY_JOB_NAME
from ranklaunch.read.settings import NODE_INDEX as ANY_NODE_INDEX
from ranklaunch.read.settings import SLOTS as ANY_SLOTS

NAME = "openpai"

ROLE = Variable("task_role", ("PAI_CURRENT_TASK_ROLE_NAME",), parse.text, "", "role of this container", "platform")
ROLES: Variable[tuple[str, ...]] = Variable(
    "task_roles", ("PAI_TASK_ROLE_LIST",), parse.names, (), "roles of the job: one, unless hosts are given", "platform",
)  # fmt: skip
NODE_INDEX = ANY_NODE_INDEX.also("PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX", "PAI_TASK_INDEX", agree=True)
JOB_NAME = ANY_JOB_NAME.also("PAI_JOB_NAME")

VARIABLES: tuple[Variable[object], ...] = (ROLE, ROLES, NODE_INDEX, JOB_NAME)

attempt = base.attempt
program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

_COUNT, _HOST, _RESOURCES = "PAI_TASK_ROLE_TASK_COUNT_{}", "PAI_HOST_IP_{}_{}", "PAI_RESOURCE_{}"


def detect(reader: Reader) -> bool:
    return reader.given(ROLE) and reader.given(ROLES)


def read(reader: Reader, program: Program) -> Job:
    role = reader.get(ROLE)
    hosts = _hosts(reader, role)
    own = base.index(reader, len(hosts), NODE_INDEX)
    return make_job(
        reader,
        program,
        platform=NAME,
        name=reader.get(JOB_NAME) or NAME,
        attempt=attempt(reader, len(hosts), own),
        hosts=hosts,
        slots=_slots(reader, role, len(hosts)),
        node_index=own,
        accelerator=("gpu", _RESOURCES.format(role)),
    )


def _hosts(reader: Reader, role: str) -> tuple[str, ...]:
    given = reader.get(HOSTS)
    if given:
        return given
    others = [name for name in reader.get(ROLES) if name != role]
    if others:
        reader.problem(
            f"{reader.told(ROLES)}: which roles train together nobody says; expected one role, or the hosts of all nodes in "
            f"{HOSTS.names[0]} with this one's index in {ANY_NODE_INDEX.names[0]}"
        )
    count = _count(reader, role)
    return tuple(_host(reader, _HOST.format(role, i)) for i in range(count)) if count > 1 else ("localhost",)


def _count(reader: Reader, role: str) -> int:
    variable = Variable(NODES.value, (*NODES.names, _COUNT.format(role)), parse.positive, 1, NODES.meaning, "platform", NODES.option)
    return reader.get(variable)


def _host(reader: Reader, name: str) -> str:
    try:
        return parse.host(reader.env.get(name, ""))
    except ValueError as error:
        reader.problem(f"{name}={showing.clipped(reader.env.get(name, ''))!r}: {error}")
        return ""


def _slots(reader: Reader, role: str, nodes: int) -> tuple[int, ...]:
    """The first of a role's resources is its number of GPUs."""
    name = _RESOURCES.format(role)
    text = reader.env.get(name, "")
    if reader.given(ANY_SLOTS) or not text:
        return spread(reader, ANY_SLOTS, reader.get(ANY_SLOTS), nodes)
    first = text.partition(",")[0]
    try:
        number = parse.whole(first, 0, parse.MOST_SLOTS)
    except ValueError as error:
        reader.problem(f"{name}={showing.clipped(text)!r}: {error}, before the first comma: the GPUs of a task")
        number = 0
    reader.ledger.note(ANY_SLOTS.value, str(number), name)
    return (number,) * nodes
