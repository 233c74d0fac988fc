"""The program once per node, told where to meet; it starts its own processes, with torch.multiprocessing.spawn for example.

As ModelArts starts the boot file of its PyTorch GPU engine: rank and world_size count nodes.
"""

from __future__ import annotations

import re

from ranklaunch.adapters.launchers.shared.base import MASTER_PORT as ANY_MASTER_PORT
from ranklaunch.adapters.launchers.shared.base import (
    address,
    attempt_dir,
    common_env,
    launcher_process,
    limits,
    master_waits,
    meeting_host,
)
from ranklaunch.adapters.launchers.shared.inherited import without_slurm_tasks
from ranklaunch.adapters.launchers.shared.launcher import Launcher
from ranklaunch.files import join
from ranklaunch.plan.model import PROGRAM, Plan, Process
from ranklaunch.read import parse
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.read.settings import MUSTER
from ranklaunch.render.templates import Templates
from ranklaunch.values import replace

NAME = "pytorch"

# The platform does not document its port; its older variables named hosts as HOST:6666.
MASTER_PORT = replace(ANY_MASTER_PORT, default=6666)

INIT_METHOD = Variable(
    "init_method", ("RANKLAUNCH_INIT_METHOD",), parse.init_method, "tcp",
    "how the processes meet: tcp, or file:// and a folder that all nodes share, in which each attempt has a file of its own",
)  # fmt: skip


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    file = _file(job, reader)
    argv = templates.command("pytorch/command.j2", job=job, appended=_appended(job, reader, file))
    return Plan(
        job=job,
        method=NAME,
        why="",
        processes=(without_slurm_tasks(launcher_process(job, reader, NAME, argv, _uneven(job, reader)), reader),),
        limits=limits(reader),
        waits=() if file else master_waits(job, reader),
        prepare=_fresh(job, reader, file),
        runs=PROGRAM,
    )


def _file(job: Job, reader: Reader) -> str:
    """Return the path of this attempt's rendezvous file, which the nodes compare; "" where the processes meet by TCP. PyTorch leaves the
    file where a process is killed, and the next run waits by what it finds there."""
    way = reader.get(INIT_METHOD)
    if way == "tcp":
        return ""
    name = re.sub(r"[^\w.-]", "_", f"{job.name}.{job.attempt}.rendezvous")
    file = join(way[len("file://") :], name)
    reader.ledger.note(INIT_METHOD.value, f"file://{file}", reader.source(INIT_METHOD))
    return file


def _fresh(job: Job, reader: Reader, file: str) -> tuple[Process, ...]:
    """Return node 0's step that removes the rendezvous file before the nodes have met, so before anybody uses it."""
    if file and len(job.nodes) > 1 and not reader.get(MUSTER):
        reader.problem(f"{reader.told(INIT_METHOD)}: without the muster a node may meet in what an earlier run has left")
    if not file or job.node_index:
        return ()
    argv = ("sh", "-c", 'mkdir -p -- "${1%/*}/" && rm -f -- "$1"', "sh", file)
    log = join(attempt_dir(job), "rendezvous.log")
    return (Process("rendezvous file", argv, log=log, env=common_env(job, reader), tag="[rendezvous file] "),)


def _appended(job: Job, reader: Reader, file: str) -> tuple[str, ...]:
    """Return the rendezvous as arguments, less those that the user already gives: older guides had people pass rank and world_size."""
    url = f"file://{file}" if file else f"tcp://{address(meeting_host(job, reader))}:{reader.get(MASTER_PORT)}"
    options = {"--init_method": url}
    if len(job.nodes) > 1:
        options.update({"--rank": str(job.node_index), "--world_size": str(len(job.nodes))})
    for name in sorted({word.partition("=")[0] for word in job.program.args} & options.keys()):
        value = options.pop(name)
        reader.warn(f"the program's own {name} stands; ranklaunch would have given {value}")
    return tuple(word for option in options.items() for word in option)


def _uneven(job: Job, reader: Reader) -> dict[str, str]:
    """Return what a program cannot compute from the number of nodes and its own processes, where slots differ."""
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


LAUNCHER = Pytorch
