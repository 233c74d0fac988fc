"""Google Cloud Batch: a task group with one task on each virtual machine (taskCountPerNode: 1) and a file of their hosts.

Source: https://cloud.google.com/batch/docs/reference/rest/v1/projects.locations.jobs#TaskGroup
"""

from __future__ import annotations

from ranklaunch.adapters.platforms.shared import base, own_place, several
from ranklaunch.files import text_of
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import ATTEMPT as ANY_ATTEMPT
from ranklaunch.read.settings import HOSTS, JOB_NAME, NODE_INDEX, SLOTS, make_job
from ranklaunch.read.settings import NODES as ANY_NODES
from ranklaunch.showing import clipped

NAME = "gcp_batch"

NODES = ANY_NODES.also("BATCH_TASK_COUNT")
FILE = Variable(
    "hosts_file", ("BATCH_HOSTS_FILE",), parse.text, "", "file with a host on each line, in which a node finds its own (requireHostsFile)",
    "platform",
)  # fmt: skip
TASK = Variable("task_index", ("BATCH_TASK_INDEX",), parse.count, 0, "index of the task; only whether it is set counts", "platform")
RETRIES = Variable("retries", ("BATCH_TASK_RETRY_ATTEMPT",), parse.count, 0, "how often the task was retried, from 0", "platform")

VARIABLES: tuple[Variable[object], ...] = (NODES, FILE, TASK, RETRIES)

program = base.no_program
failure_file = base.no_failure_file
log_dir = base.log_dir

STAND_IN = ("localhost",)
_MOST_BYTES = 1024 * 1024


def detect(reader: Reader) -> bool:
    return several.has(reader, *TASK.names, *FILE.names)


def attempt(reader: Reader) -> int:
    if reader.given(ANY_ATTEMPT):
        return reader.get(ANY_ATTEMPT)
    number = reader.get(RETRIES) + 1
    reader.ledger.note(ANY_ATTEMPT.value, str(number), f"{RETRIES.names[0]} + 1" if reader.given(RETRIES) else "default")
    return number


def read(reader: Reader, program: Program) -> Job:
    several.starts_late(reader, NAME)
    path = reader.get(FILE)
    listed = _listed(reader, path)
    nodes = 1 if listed == STAND_IN else _count(reader, path, len(listed))
    hosts = several.hosts(reader, nodes, listed, path)
    return make_job(
        reader,
        program,
        platform=NAME,
        name=reader.get(JOB_NAME) or NAME,
        attempt=attempt(reader),
        hosts=hosts,
        slots=several.slots(reader, SLOTS, nodes),
        node_index=_index(reader, path, listed, nodes),
    )


def _listed(reader: Reader, path: str) -> tuple[str, ...]:
    """In the order of the file. What is wrong with it is a problem, and a stand-in is returned."""
    try:
        found = several.listed(text_of(reader.files, path, _MOST_BYTES)) if path else ()
    except ValueError as error:
        reader.problem(f"{path}: {error}")
        return STAND_IN
    if not found and not any(map(reader.given, (ANY_NODES, HOSTS))):
        reader.problem(f"{reader.told(FILE)}: there is no such file, or no host in it: nothing says which nodes the job has")
        return STAND_IN
    return found


def _count(reader: Reader, path: str, listed: int) -> int:
    tasks = several.count(reader, NODES, [(f"{path} with {listed} hosts", listed)] if listed and not reader.given(NODES) else ())
    if not listed or tasks == listed or reader.by_user(NODES) or reader.given(HOSTS):
        return tasks
    reader.problem(
        f"{reader.told(NODES)}, but {path} names {listed} hosts: expected one task on each, all at once: taskCountPerNode: 1, and as many "
        "by parallelism and taskCount"
    )
    return listed


def _index(reader: Reader, path: str, listed: tuple[str, ...], nodes: int) -> int:
    """The host's own place: nobody says that the lines are in the order of the tasks."""
    if nodes == 1 or reader.given(NODE_INDEX) or reader.given(HOSTS) or not listed:
        return base.index(reader, nodes, NODE_INDEX)
    found = own_place.find(reader, listed)
    if len(found) != 1:
        which = f"{', '.join(listed[i] for i in found)} are all" if found else "no line is"
        reader.problem(f"{path}: {clipped(which)} {clipped(own_place.told(reader))}; {NODE_INDEX.both} says which line it is, from 0")
    own = found[0] if found else 0
    reader.ledger.note(NODE_INDEX.value, str(own), f"{path} has {listed[own]}")
    return min(own, nodes - 1)
