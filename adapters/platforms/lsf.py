"""IBM Spectrum LSF. A job's script runs on its first host alone; blaunch, or jsrun on machines like Summit, starts one ranklaunch on each.

Source of the variables: IBM Spectrum LSF 10.1, "Environment variables set for job execution", "blaunch"; that of a task, LSF_PM_TASKID, is
what PRRTE's ess/lsf reads; those of jsrun are what Lightning's LSFEnvironment reads.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from ranklaunch.adapters.platforms.shared import base, batch, several
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import ATTEMPT, HOSTS, NODE_INDEX
from ranklaunch.showing import clipped
from ranklaunch.values import replace

NAME = "lsf"

KILLS_AFTER_S = 20  # SIGINT, SIGTERM and SIGKILL, JOB_TERMINATE_INTERVAL (10 s) apart


def _slots(value: str) -> tuple[tuple[str, int], ...]:
    """Return each host with its slots from HOST SLOTS HOST SLOTS ..."""
    hosts, slots = value.split()[::2], value.split()[1::2]
    if len(hosts) != len(slots) or not all(map(str.isdigit, slots)):
        msg = "expected HOST SLOTS for each host, with spaces between them"
        raise ValueError(msg)
    return tuple(zip(map(parse.host, hosts), map(int, slots)))


JOB_ID = Variable("lsf_job", ("LSB_JOBID",), parse.text, "", "id of the job", "platform")
ARRAY_INDEX = Variable(
    "lsf_array_index", ("LSB_JOBINDEX",), parse.count, 0, "number of the job in its array, from 1; 0: it is in none", "platform"
)
LSF_NAME = Variable("lsf_name", ("LSB_JOBNAME",), parse.text, "", "name of the job", "platform")
HOST_SLOTS: Variable[tuple[tuple[str, int], ...]] = Variable(
    "lsf_host_slots", ("LSB_MCPU_HOSTS",), _slots, (), "the job's hosts, each with the number of its slots, which are processors",
    "platform",
)  # fmt: skip
HOST_FILE = Variable(
    "lsf_host_file", ("LSB_DJOB_HOSTFILE", "LSB_DJOB_RANKFILE"), parse.text, "", "file of the job's hosts, a line for each slot",
    "platform",
)  # fmt: skip
HOST_NAMES: Variable[tuple[str, ...]] = Variable(
    "lsf_hosts", ("LSB_HOSTS",), several.listed, (), "the job's hosts, a name for each slot", "platform",
)  # fmt: skip
TASK = Variable(
    "lsf_task", ("LSF_PM_TASKID",), parse.positive, 1, "number of this task, from 1, by blaunch; the job's script has none", "platform",
    per_node=True,
)  # fmt: skip
JSM_TASK = replace(NODE_INDEX.also("JSM_NAMESPACE_RANK"), per_node=False)
JSM_TASKS = Variable("jsm_tasks", ("JSM_NAMESPACE_SIZE",), parse.positive, 1, "tasks that jsrun has started: one on each host", "platform")
JSM_TASK_HERE = Variable(
    "jsm_task_here", ("JSM_NAMESPACE_LOCAL_RANK",), parse.count, 0, "number of this task among jsrun's of this host", "platform",
)  # fmt: skip
RESTARTED = Variable("lsf_restarted", ("LSB_RESTART",), parse.text, "", "Y: the job was started before", "platform")

VARIABLES: tuple[Variable[object], ...] = (
    JOB_ID, ARRAY_INDEX, LSF_NAME, HOST_SLOTS, HOST_FILE, HOST_NAMES, TASK, JSM_TASK, JSM_TASKS, JSM_TASK_HERE, RESTARTED,
)  # fmt: skip

program = base.no_program
failure_file = base.no_failure_file

ON_ALL = 'blaunch -z "{}" ranklaunch run ...'
ON_ALL_BY_JSM = "jsrun -r 1 -a 1 -g ALL -c ALL ranklaunch run ..."
_LAUNCHING = re.compile("batch|login|launch")
_NAME = re.compile(r"[A-Za-z0-9._+@-]{1,100}")


def detect(reader: Reader) -> bool:
    """True in a job. A shell of a login node has variables of the installation, such as LSF_ENVDIR."""
    return reader.given(JOB_ID) and any(map(reader.given, (HOST_SLOTS, HOST_FILE, HOST_NAMES)))


def read(reader: Reader, program: Program) -> Job:
    several.kills(reader, KILLS_AFTER_S, "LSF")
    named, source, command = _named(reader)
    hosts = batch.hosts(reader, named, source)
    lsf = batch.Batch(NAME, _id(reader), batch.name(reader, _name(reader), _id(reader), JOB_ID.names[0]))
    if base.per_rank(reader) and reader.given(JSM_TASKS):
        return batch.job_of_ranks(reader, program, lsf, hosts, _tasks(reader, len(hosts)))
    index = min(_index(reader, named, command), len(hosts) - 1)
    lsf = lsf._replace(attempt=attempt(reader, len(hosts), index))
    return batch.job(reader, program, lsf, hosts, index, batch.slots(reader, len(hosts)))


def attempt(reader: Reader, nodes: int = 1, index: int = 0) -> int:
    """Return the next attempt by the log folder, and at least 2 where LSF says that the job was started before."""
    number = batch.attempt(reader, _id(reader), nodes, index)
    if reader.given(ATTEMPT) or number > 1 or reader.get(RESTARTED).strip().upper() != "Y":
        return number
    reader.ledger.note(ATTEMPT.value, "2", RESTARTED.names[0])
    return 2


def log_dir(reader: Reader) -> str:
    named, source, command = _named(reader)
    return batch.log_dir(reader, _id(reader), len(batch.hosts(reader, named, source)), _index(reader, named, command))


def _id(reader: Reader) -> str:
    number = reader.get(ARRAY_INDEX)
    return f"{reader.get(JOB_ID)}[{number}]" if number else reader.get(JOB_ID)


def _name(reader: Reader) -> str:
    """Return the name without its array. A job that nobody has named has its command line for a name."""
    called = reader.get(LSF_NAME).partition("[")[0]
    return called if _NAME.fullmatch(called) else NAME


def _named(reader: Reader) -> tuple[tuple[str, ...], str, str]:
    """Return the hosts that compute, what names them, and the line that starts ranklaunch on each.

    On machines like Summit the script runs on a host with one slot, on which jsrun starts nothing.
    """
    listed, source = ({}, reader.source(HOSTS)) if reader.get(HOSTS) else _listed(reader)
    first, *others = listed or [""]
    hosts = reader.get(HOSTS) or tuple(listed)
    if others and listed[first] == 1 and all(listed[host] > 1 for host in others):
        if reader.given(JSM_TASKS) or _LAUNCHING.search(first):
            return tuple(others), f"{source}, but for {first}, which launches", ON_ALL_BY_JSM
        reader.problem(
            f"{source}: {first} has one slot and all others have more, so it may be the launching host of a machine like Summit, or a node "
            f"as the others: set {HOSTS.names[0]}"
        )
    return hosts, source, ON_ALL_BY_JSM if reader.given(JSM_TASKS) else ON_ALL.format(clipped(" ".join(hosts)))


def _listed(reader: Reader) -> tuple[Mapping[str, int], str]:
    """Return the hosts of the job with their slots, and what names them. The file may be on a disk that this host does not have."""
    if reader.get(HOST_SLOTS):
        return dict(reader.get(HOST_SLOTS)), HOST_SLOTS.names[0]
    path = reader.get(HOST_FILE)
    found = batch.listed(reader, path) if path else {}
    return (found, reader.source(HOST_FILE)) if found else (Counter(reader.get(HOST_NAMES)), HOST_NAMES.names[0])


def _tasks(reader: Reader, nodes: int) -> batch.Tasks:
    """Return the tasks of jsrun, else of blaunch, which without -z starts one for each slot."""
    if reader.given(JSM_TASKS):
        return batch.Tasks(batch.even(reader.get(JSM_TASKS), nodes), reader.get(JSM_TASK_HERE), (JSM_TASKS, JSM_TASK_HERE), JSM_TASK)
    return batch.Tasks((1,) * nodes if reader.get(TASK) <= nodes else (), 0, (TASK,))


def _index(reader: Reader, hosts: tuple[str, ...], command: str) -> int:
    if not hosts:  # a malformed list, which is a problem already
        return 0
    here = batch.own_name(reader, hosts)
    started = reader.given(TASK) or reader.given(JSM_TASK)
    script = "" if started else f"neither {TASK.names[0]} of blaunch nor {JSM_TASK.names[-1]} of jsrun"
    return batch.index(reader, NODE_INDEX if here else JSM_TASK, hosts, _tasks(reader, len(hosts)), command, script, here)
