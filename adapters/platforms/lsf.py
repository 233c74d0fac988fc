"""IBM Spectrum LSF. A job's script runs on its first host alone; blaunch, or jsrun on machines like Summit, starts one ranklaunch on each.

Source of the variables: IBM Spectrum LSF 10.1, "Environment variables set for job execution", "blaunch"; that of a task, LSF_PM_TASKID, is
what PRRTE's ess/lsf reads; those of jsrun are what Lightning's LSFEnvironment reads.
"""

from __future__ import annotations

import re

from ranklaunch import showing
from ranklaunch.adapters.platforms.shared import base, batch, own_place, several
from ranklaunch.read import parse
from ranklaunch.read.job import Job, Program
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import ATTEMPT, HOSTS, NODE_INDEX, NODES, make_job
from ranklaunch.typed import TYPE_CHECKING
from ranklaunch.values import replace

if TYPE_CHECKING:
    from ranklaunch.adapters.platforms.shared.per_rank import Tasks

NAME = "lsf"

KILLS_AFTER_S = 20  # SIGINT, SIGTERM and SIGKILL, JOB_TERMINATE_INTERVAL (10 s) apart

JOB_ID = Variable("lsf_job", ("LSB_JOBID",), parse.text, "", "id of the job", "platform")
ARRAY_INDEX = Variable(
    "lsf_array_index", ("LSB_JOBINDEX",), parse.count, 0, "number of the job in its array, from 1; 0: it is in none", "platform"
)
LSF_NAME = Variable("lsf_name", ("LSB_JOBNAME",), parse.text, "", "name of the job", "platform")
HOST_SLOTS = Variable(
    "lsf_host_slots", ("LSB_MCPU_HOSTS",), parse.text, "", "the job's hosts, each with the number of its slots, which are processors",
    "platform",
)  # fmt: skip
HOST_FILE = Variable(
    "lsf_host_file", ("LSB_DJOB_HOSTFILE", "LSB_DJOB_RANKFILE"), parse.text, "", "file of the job's hosts, a line for each slot",
    "platform",
)  # fmt: skip
HOST_NAMES = Variable("lsf_hosts", ("LSB_HOSTS",), parse.text, "", "the job's hosts, a name for each slot", "platform")
TASK = Variable(
    "lsf_task", ("LSF_PM_TASKID",), parse.positive, 1, "number of this task, from 1, by blaunch; the job's script has none", "platform",
    per_node=True,
)  # fmt: skip
JSM_TASK = Variable("jsm_task", ("JSM_NAMESPACE_RANK",), parse.count, 0, "number of this task, from 0, by jsrun", "platform")
JSM_TASKS = Variable("jsm_tasks", ("JSM_NAMESPACE_SIZE",), parse.positive, 1, "tasks that jsrun has started: one on each host", "platform")
JSM_TASK_HERE = Variable(
    "jsm_task_here", ("JSM_NAMESPACE_LOCAL_RANK",), parse.count, 0, "number of this task among jsrun's of this host", "platform",
)  # fmt: skip
JSM_INDEX = NODE_INDEX.also("JSM_NAMESPACE_RANK")
RESTARTED = Variable("lsf_restarted", ("LSB_RESTART",), parse.text, "", "Y: the job was started before", "platform")

VARIABLES: tuple[Variable[object], ...] = (
    JOB_ID, ARRAY_INDEX, LSF_NAME, HOST_SLOTS, HOST_FILE, HOST_NAMES, TASK, JSM_TASK, JSM_TASKS, JSM_TASK_HERE, RESTARTED,
)  # fmt: skip

program = base.no_program
failure_file = base.no_failure_file

ON_ALL = 'blaunch -z "{}" ranklaunch run ...'
ON_ALL_BY_JSM = "jsrun -r 1 -a 1 -g ALL -c ALL ranklaunch run ..."
_LAUNCHING = re.compile("batch|login|launch")


def detect(reader: Reader) -> bool:
    """What a shell of a login node has, LSF_ENVDIR and others of the installation, is none."""
    names = ("LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE", "LSB_HOSTS")
    return several.has(reader, "LSB_JOBID") and any(several.has(reader, name) for name in names)


def read(reader: Reader, program: Program) -> Job:
    several.kills(reader, KILLS_AFTER_S, "LSF")
    if base.per_rank(reader) and reader.given(JSM_TASKS):
        from ranklaunch.adapters.platforms.shared import per_rank  # most have one on a node

        name = batch.name(reader, LSF_NAME, _id(reader), NAME, JOB_ID.names[0])
        return per_rank.job(reader, program, _tasks(reader), platform=NAME, name=name, folder=_id(reader))
    hosts, index = _hosts(reader)
    job = make_job(
        reader,
        program,
        platform=NAME,
        name=batch.name(reader, LSF_NAME, _id(reader), NAME, JOB_ID.names[0]),
        attempt=_attempt(reader, len(hosts), index),
        hosts=hosts,
        slots=batch.slots(reader, len(hosts)),
        node_index=index,
    )
    return replace(job, log_dir=batch.log_dir(reader, _id(reader), len(hosts), index))


def _tasks(reader: Reader) -> Tasks:
    """Those of jsrun, as many on each host."""
    from ranklaunch.adapters.platforms.shared.per_rank import Tasks

    listed, source = _listed(reader)
    hosts = reader.get(HOSTS) or _computing(reader, listed, source)
    tasks, nodes = reader.get(JSM_TASKS), max(1, len(hosts))
    names = ", ".join(variable.names[0] for variable in (JSM_TASKS, JSM_TASK, JSM_TASK_HERE))
    each = tasks // nodes if tasks % nodes == 0 else 0
    return Tasks(tasks, reader.get(JSM_TASK_HERE), each, JSM_INDEX, names, hosts, nodes)


def attempt(reader: Reader) -> int:
    return _attempt(reader, 1, 0)


def _attempt(reader: Reader, nodes: int, index: int) -> int:
    """LSF says that it is not the first, and not which: one after those that the log folder has, and at least 2."""
    found = batch.attempt(reader, _id(reader), nodes, index)
    if reader.given(ATTEMPT) or found > 1 or reader.get(RESTARTED).strip().upper() != "Y":
        return found
    reader.ledger.note(ATTEMPT.value, "2", RESTARTED.names[0])
    return 2


def log_dir(reader: Reader) -> str:
    """The same folder, also where the job cannot be made out."""
    hosts = reader.get(HOSTS) or tuple(_listed(reader)[0])
    own = own_place.find(reader, hosts)
    return batch.log_dir(reader, _id(reader), len(hosts) or reader.get(NODES), reader.get(NODE_INDEX) or (own[0] if own else 0))


def _id(reader: Reader) -> str:
    number = reader.get(ARRAY_INDEX)
    return f"{reader.get(JOB_ID)}[{number}]" if number else reader.get(JOB_ID)


def _hosts(reader: Reader) -> tuple[tuple[str, ...], int]:
    """And which of them this is."""
    given = reader.get(HOSTS)
    listed, source = ({}, "") if given else _listed(reader)
    hosts = given or _computing(reader, listed, source)
    index = _index(reader, hosts) if hosts else 0  # malformed, which is said already
    if not reader.given(NODES) and hosts:
        reader.ledger.note(NODES.value, str(len(hosts)), reader.source(HOSTS) if given else source)
    nodes = reader.get(NODES) if reader.given(NODES) else max(1, len(hosts))
    return several.hosts(reader, nodes, () if given else hosts, source or HOST_SLOTS.names[0]), min(index, nodes - 1)


def _listed(reader: Reader) -> tuple[dict[str, int], str]:
    """The hosts with their slots, and who says so: all that is there must name the same."""
    told = [(found, source) for found, source in (_by_slots(reader), _by_file(reader), _by_names(reader)) if found]
    if not told:
        return {}, ""
    first, source = told[0]
    for other, another in told[1:]:
        if {*other} != {*first}:
            strange = sorted({*other} ^ {*first})[0]
            reader.problem(
                f"{source} and {another} do not name the same hosts ({strange} is in one of them alone): one of them is another job's; "
                f"unset the wrong one or set {HOSTS.names[0]}"
            )
            return {**first, **other}, source
    return first, source


def _by_slots(reader: Reader) -> tuple[dict[str, int], str]:
    words, source = reader.get(HOST_SLOTS).split(), HOST_SLOTS.names[0]
    names, numbers = words[::2], words[1::2]
    if len(words) % 2 or not all(re.fullmatch("[0-9]{1,6}", number) for number in numbers):
        reader.problem(f"{reader.quoted(HOST_SLOTS)}: expected HOST SLOTS for each host, with spaces between them")
        return {}, source
    found = dict.fromkeys(batch.counted(reader, source, names), 0)
    for name, number in zip(names, numbers) if found else ():
        found[name] += int(number)
    return found, source


def _by_file(reader: Reader) -> tuple[dict[str, int], str]:
    """On a disk that the hosts share, as a rule; where this one does not have it, the variables say the same."""
    return (batch.listed(reader, reader.get(HOST_FILE)) if reader.given(HOST_FILE) else {}), reader.source(HOST_FILE)


def _by_names(reader: Reader) -> tuple[dict[str, int], str]:
    return batch.counted(reader, reader.source(HOST_NAMES), reader.get(HOST_NAMES).split()), HOST_NAMES.names[0]


def _computing(reader: Reader, listed: dict[str, int], source: str) -> tuple[str, ...]:
    """On machines like Summit the first host is where the script runs, with one slot, and computes nothing: jsrun starts nothing there."""
    first, *others = listed or [""]
    if not others or listed[first] != 1 or any(listed[host] == 1 for host in others):
        return tuple(listed)
    if reader.given(JSM_TASKS) or _LAUNCHING.search(first):
        reader.ledger.note(HOSTS.value, ",".join(others), f"{source}, but for {first}, which launches")
        return tuple(others)
    reader.problem(
        f"{source}: {first} has one slot and all others have more, so it may be the launching host of a machine like Summit, or a node as "
        f"the others: set {HOSTS.names[0]}"
    )
    return tuple(listed)


def _index(reader: Reader, hosts: tuple[str, ...]) -> int:
    _refuse_several_tasks(reader, hosts)
    if len(hosts) == 1 or reader.by_user(NODE_INDEX):
        return base.index(reader, len(hosts), NODE_INDEX)
    found = own_place.find(reader, hosts)
    if len(found) == 1:
        index, why = found[0], f"{hosts[found[0]]} is this host"
    elif reader.given(JSM_TASK) and reader.get(JSM_TASK) < len(hosts):
        index, why = reader.get(JSM_TASK), JSM_TASK.names[0]
    else:
        _refuse_stranger(reader, hosts)
        return 0
    reader.ledger.note(NODE_INDEX.value, str(index), why)
    _refuse_script(reader, hosts, index)
    return index


def _refuse_stranger(reader: Reader, hosts: tuple[str, ...]) -> None:
    """Whatever is no host of the job. The script of a machine like Summit is started on one that is none."""
    if own_place.find(reader, tuple(_listed(reader)[0])) and not reader.given(HOSTS):
        batch.starts_once(reader, f"{len(hosts)} hosts, and this is the one that launches", ON_ALL_BY_JSM)
        return
    called = showing.clipped(own_place.told(reader))
    reader.problem(f"{called}, is none of {showing.clipped(', '.join(hosts))}; {NODE_INDEX.both} says which it is, from 0")


def _refuse_script(reader: Reader, hosts: tuple[str, ...], index: int) -> None:
    if index == 0 and not reader.given(TASK) and not reader.given(JSM_TASK):
        remedy = ON_ALL.format(showing.clipped(" ".join(hosts)))
        batch.starts_once(reader, f"{len(hosts)} hosts, and no {TASK.names[0]} of blaunch's on the first, where the script runs", remedy)


def _refuse_several_tasks(reader: Reader, hosts: tuple[str, ...]) -> None:
    """blaunch without -z starts a task for each slot, jsrun as many as it is told."""
    if reader.by_user(NODE_INDEX):
        return
    tasks = reader.get(JSM_TASKS)
    if reader.given(JSM_TASKS) and (tasks != len(hosts) or reader.get(JSM_TASK_HERE) > 0):
        reader.problem(
            f"{reader.told(JSM_TASKS)} on {len(hosts)} hosts: expected one ranklaunch on each, which starts the ranks there: "
            f"{ON_ALL_BY_JSM}, with --slots for their number; or --per-rank, with which each stands before one rank"
        )
    elif reader.get(TASK) > len(hosts):
        reader.problem(
            f"{reader.told(TASK)} on {len(hosts)} hosts: blaunch without -z starts ranklaunch once for each slot; expected one on each "
            f"host: {ON_ALL.format(showing.clipped(' '.join(hosts)))}, with --slots for the number of ranks"
        )
