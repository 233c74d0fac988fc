"""The program once per node, told where to meet; it starts its own processes, with torch.multiprocessing.spawn for example.

As ModelArts starts the boot file of its PyTorch GPU engine: rank and world_size count nodes.
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

# The platform does not document its port; its older variables named hosts as HOST:6666.
MASTER_PORT = replace(base.MASTER_PORT, default=6666)

INIT_METHOD = Variable(
    "init_method", ("RANKLAUNCH_INIT_METHOD",), parse.init_method, "tcp",
    "how the processes meet: tcp, or file:// and a folder that all nodes share, in which each attempt has a file of its own",
)  # fmt: skip


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    file = _file(job, reader)
    argv = templates.command("pytorch/command.j2", job=job, appended=_appended(job, reader, file))
    process = without_slurm_tasks(base.launcher_process(job, reader, NAME, argv, _uneven(job, reader)), reader)
    if file and job.has_peers and not reader.get(MUSTER):
        reader.problem(f"{reader.described(INIT_METHOD)}: without the muster a node may meet in what an earlier run has left")
    waits = () if file else base.master_waits(job, reader)
    prepare = (_fresh(job, reader, file),) if file and not job.node_index else ()
    return base.planned(
        job, reader, NAME, (process,), waits=waits, prepare=prepare, runs=PROGRAM, slots=tuple(node.slots for node in job.nodes)
    )


def _file(job: Job, reader: Reader) -> str:
    """Return the rendezvous file of this attempt, which the nodes compare; "" where the processes meet by TCP.

    PyTorch leaves the file behind if a process is killed, and a later run with the same file waits in vain.
    """
    way = reader.get(INIT_METHOD)
    if way == "tcp":
        return ""
    name = re.sub(r"[^\w.-]", "_", f"{job.name}.{job.attempt}.rendezvous")
    file = join(way[len("file://") :], name)
    reader.note(INIT_METHOD, f"file://{file}", reader.source(INIT_METHOD))
    return file


def _fresh(job: Job, reader: Reader, path: str) -> Process:
    """Return the step by which node 0 removes the file before the nodes have met, so before anybody uses it."""
    argv = ("sh", "-c", 'mkdir -p -- "${1%/*}/" && rm -f -- "$1"', "sh", path)
    log = base.in_attempt(job, "rendezvous.log")
    return Process("rendezvous file", argv, log=log, env=base.common_env(job, reader), tag="[rendezvous file] ")


def _appended(job: Job, reader: Reader, file: str) -> tuple[str, ...]:
    """The rendezvous as arguments, less those that the user already gives: older guides had people pass rank and world_size."""
    host = base.address(base.meeting_host(job, reader))
    arguments = {"--init_method": f"file://{file}" if file else f"tcp://{host}:{reader.get(MASTER_PORT)}"}
    if job.has_peers:
        arguments.update({"--rank": str(job.node_index), "--world_size": str(len(job.nodes))})
    return tuple(itertools.chain.from_iterable(base.not_own(job, reader, arguments).items()))


def _uneven(job: Job, reader: Reader) -> dict[str, str]:
    """Return variables for nodes with different slots: no program can compute these from the number of nodes and its own processes."""
    if not job.slots_differ:
        return {}
    env = {"RANKLAUNCH_FIRST_RANK": str(job.node.first_rank), "RANKLAUNCH_WORLD_SIZE": str(job.world_size)}
    reader.warn(
        f"slots differ, and --rank and --world_size count nodes: a program that multiplies them by its own processes is wrong; "
        f"its first rank and the world size are in {' and '.join(env)}"
    )
    return env


class Pytorch(Launcher):
    """The program once on each node, told where to meet."""

    NAME = NAME
    VARIABLES = (MASTER_PORT, INIT_METHOD)
    plan = staticmethod(plan)
