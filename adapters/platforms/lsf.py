"""IBM Spectrum LSF. A job's script runs on the first host alone. blaunch, or jsrun on machines like Summit, starts one ranklaunch on each
host.

Sources of the variables: IBM Spectrum LSF 10.1, "Environment variables set for job execution" and "blaunch"; PRRTE's ess/lsf for
LSF_PM_TASKID, the variable of a task; Lightning's LSFEnvironment for jsrun's variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ranklaunch.adapters.platforms.shared import batch
from ranklaunch.adapters.platforms.shared.facts import Fact, copied, of_hosts
from ranklaunch.env import parse
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader, Variable, platform_count, platform_text
from ranklaunch.env.settings import ATTEMPT, HOSTS, NODE_INDEX
from ranklaunch.showing import clipped


def _slots(value: str) -> tuple[tuple[str, int], ...]:
    """Return the hosts and their slots from a text HOST SLOTS HOST SLOTS ..."""
    words = iter(value.split())
    return tuple((parse.host(host), parse.count(next(words, ""))) for host in words)


JOB_ID = platform_text("lsf_job", ("LSB_JOBID",), "id of the job")
ARRAY_INDEX = platform_count("lsf_array_index", ("LSB_JOBINDEX",), "number of the job in its array, from 1; 0: not in an array")
HOST_SLOTS: Variable[tuple[tuple[str, int], ...]] = Variable(
    "lsf_host_slots", ("LSB_MCPU_HOSTS",), _slots, (), "the job's hosts as HOST SLOTS HOST SLOTS; slots are processors",
    "platform",
)  # fmt: skip
HOST_FILE = platform_text("lsf_host_file", ("LSB_DJOB_HOSTFILE", "LSB_DJOB_RANKFILE"), "file of the job's hosts, a line for each slot")
TASK = Variable(
    "lsf_task", ("LSF_PM_TASKID",), parse.positive, 1, "number of this task of blaunch, from 1; unset in the job's script", "platform",
    per_node=True,
)  # fmt: skip
JSM_TASK = replace(NODE_INDEX.also("JSM_NAMESPACE_RANK"), per_node=False)
JSM_TASKS = Variable("jsm_tasks", ("JSM_NAMESPACE_SIZE",), parse.positive, 1, "tasks that jsrun has started: one on each host", "platform")
JSM_TASK_HERE = platform_count("jsm_task_here", ("JSM_NAMESPACE_LOCAL_RANK",), "number of this task among jsrun's of this host")
RESTARTED = platform_text("lsf_restarted", ("LSB_RESTART",), "Y: the job was started before")


_WHICH_LAUNCHES = ", which launches"
_LAUNCHING = "batch|login|launch"


class Lsf(batch.System):
    OWN = (
        JOB_ID, ARRAY_INDEX, HOST_SLOTS, HOST_FILE, TASK, JSM_TASK, JSM_TASKS, JSM_TASK_HERE, RESTARTED,
    )  # fmt: skip
    JOB_ID = JOB_ID

    def facts(self, reader: Reader) -> Iterator[Fact]:
        hosts = reader.get(HOSTS)
        if not hosts:
            source, hosts = _listed(reader)
            yield from of_hosts(source, hosts)
        here = list(batch.own_index(reader, hosts))
        yield from here or copied(reader, NODE_INDEX, JSM_TASK)

    def finished(self, reader: Reader, job: Job) -> Job:
        """Return the job as attempt 2 if LSF has restarted it and the log folder has no earlier attempt."""
        if job.attempt > 1 or reader.is_set(ATTEMPT) or reader.get(RESTARTED).strip().upper() != "Y":
            return job
        reader.note(ATTEMPT, "2", RESTARTED.name)
        return replace(job, attempt=2)

    def job_id(self, reader: Reader) -> str:
        number = reader.get(ARRAY_INDEX)
        return f"{reader.get(JOB_ID)}[{number}]" if number else reader.get(JOB_ID)

    def tasks(self, reader: Reader, nodes: int) -> batch.Tasks:
        """Return the tasks of jsrun, else of blaunch. A task number above the number of nodes is blaunch's without -z, one task a slot."""
        hosts = reader.get(HOSTS)
        if reader.is_set(JSM_TASKS) or reader.source(HOSTS).endswith(_WHICH_LAUNCHES):
            counts, command = batch.even(reader.get(JSM_TASKS), nodes), "jsrun -r 1 -a 1 -g ALL -c ALL ranklaunch run ..."
            tasks = batch.Tasks(counts, reader.get(JSM_TASK_HERE), (JSM_TASKS, JSM_TASK_HERE), JSM_TASK, command=command)
        else:
            command = f'blaunch -z "{clipped(" ".join(hosts))}" ranklaunch run ...'
            tasks = batch.Tasks(() if hosts and reader.get(TASK) > nodes else (1,) * nodes, 0, (TASK,), command=command)
        started = reader.is_set(TASK) or reader.is_set(JSM_TASKS)
        return tasks._replace(script="" if started else f"neither {TASK.name} of blaunch nor {JSM_TASK.names[-1]} of jsrun")


def _listed(reader: Reader) -> tuple[str, tuple[str, ...]]:
    """Return the source of the list of compute hosts, and these hosts.

    On machines like Summit the script runs on a launching host with one slot, on which jsrun starts nothing: this host is left out.
    """
    listed, source = dict(reader.get(HOST_SLOTS)), HOST_SLOTS.name
    if not listed and reader.is_set(HOST_FILE):
        listed, source = batch.listed(reader, reader.get(HOST_FILE)), reader.source(HOST_FILE)
    first, *rest = listed or [""]
    if not rest or listed[first] > 1 or 1 in map(listed.get, rest):
        return source, tuple(listed)
    if reader.is_set(JSM_TASKS) or re.search(_LAUNCHING, first):
        return f"{source}, but for {first}{_WHICH_LAUNCHES}", tuple(rest)
    reader.problem(
        f"{source}: {first} has one slot and all others have more, so it may be the launching host of a machine like Summit, or a node "
        f"as the others: set {HOSTS.name}"
    )
    return source, tuple(listed)
