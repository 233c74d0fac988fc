"""Method pytorch: the program once per node, with the rendezvous as arguments. The program starts its own ranks, for example
with torch.multiprocessing.spawn.

ModelArts starts the boot file of its PyTorch GPU engine in this way: --rank and --world_size count nodes.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

from ranklaunch.adapters.launchers.shared import base
from ranklaunch.adapters.launchers.shared.base import Launcher
from ranklaunch.adapters.launchers.shared.variables import without_slurm_tasks
from ranklaunch.env import parse
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.env.settings import MUSTER
from ranklaunch.files import join
from ranklaunch.plan.model import PROGRAM, Plan, Process
from ranklaunch.render.templates import Templates

NAME = "pytorch"

# ModelArts does not document its port; its older variables have hosts as HOST:6666.
MASTER_PORT = replace(base.MASTER_PORT, default=6666)

INIT_METHOD = Variable(
    "init_method", ("RANKLAUNCH_INIT_METHOD",), parse.init_method, "tcp",
    "rendezvous of the processes: tcp, or file:// and a folder that all nodes share; each attempt has its own file there",
)  # fmt: skip


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    file = _file(job, reader)
    argv = templates.command("pytorch/command.j2", job=job, appended=_appended(job, reader, file))
    process = without_slurm_tasks(base.launcher_process(job, reader, NAME, argv, _uneven(job, reader)), reader)
    if file and job.has_peers and not reader.get(MUSTER):
        reader.problem(
            f"{reader.described(INIT_METHOD)}: without the muster a node may read the file of an earlier run; turn the muster on, or "
            "use tcp"
        )
    waits = () if file else base.master_waits(job, reader)
    prepare = (_fresh(job, reader, file),) if file and not job.node_index else ()
    return base.planned(
        job, reader, NAME, (process,), waits=waits, prepare=prepare, runs=PROGRAM, slots=tuple(node.slots for node in job.nodes)
    )


def _file(job: Job, reader: Reader) -> str:
    """Return the path of this attempt's rendezvous file, "" for a rendezvous by TCP. The muster checks that all nodes have the same path.

    PyTorch does not remove the file if a process is killed, and a later run with the same file would wait forever.
    """
    method = reader.get(INIT_METHOD)
    if method == "tcp":
        return ""
    name = re.sub(r"[^\w.-]", "_", f"{job.name}.{job.attempt}.rendezvous")
    file = join(method[len("file://") :], name)
    reader.note(INIT_METHOD, f"file://{file}", reader.source(INIT_METHOD))
    return file


def _fresh(job: Job, reader: Reader, path: str) -> Process:
    """Return the step in which node 0 removes an old file. It runs before the muster, so before any process uses the file."""
    argv = ("sh", "-c", 'mkdir -p -- "${1%/*}/" && rm -f -- "$1"', "sh", path)
    log = base.in_attempt(job, "rendezvous.log")
    return Process("rendezvous file", argv, log=log, env=base.common_env(job, reader), tag="[rendezvous file] ")


def _appended(job: Job, reader: Reader, file: str) -> tuple[str, ...]:
    """Return the arguments for the rendezvous, without those in the user's command: older guides told users to pass rank and world_size."""
    host = base.address(base.meeting_host(job, reader))
    arguments = {"--init_method": f"file://{file}" if file else f"tcp://{host}:{reader.get(MASTER_PORT)}"}
    if job.has_peers:
        arguments.update({"--rank": str(job.node_index), "--world_size": str(len(job.nodes))})
    return tuple(itertools.chain.from_iterable(base.without_user_options(job, reader, arguments).items()))


def _uneven(job: Job, reader: Reader) -> dict[str, str]:
    """Return variables for nodes with different slots: a program cannot compute them from the number of nodes and its own processes."""
    if not job.slots_differ:
        return {}
    env = {"RANKLAUNCH_FIRST_RANK": str(job.node.first_rank), "RANKLAUNCH_WORLD_SIZE": str(job.world_size)}
    reader.warn(
        f"slots differ between nodes, and --rank and --world_size count nodes: do not multiply them by the number of local processes; "
        f"read the first rank and the world size from {' and '.join(env)}"
    )
    return env


class Pytorch(Launcher):
    """Launcher of the program once on each node, with the rendezvous as arguments."""

    NAME = NAME
    VARIABLES = (MASTER_PORT, INIT_METHOD)
    plan = staticmethod(plan)
