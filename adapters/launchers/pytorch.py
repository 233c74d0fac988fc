"""The program once per node, told where to meet; it starts its own processes, with torch.multiprocessing.spawn for example.

As ModelArts starts the boot file of its PyTorch GPU engine: rank and world_size count nodes.
"""

from __future__ import annotations

from ranklaunch.adapters.launchers.shared.base import MASTER_PORT as ANY_MASTER_PORT
from ranklaunch.adapters.launchers.shared.base import address, launcher_process, limits, master_waits, meeting_host, nothing_to_explain
from ranklaunch.adapters.launchers.shared.inherited import without_slurm_tasks
from ranklaunch.plan.model import PROGRAM, Plan
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.render.templates import Templates
from ranklaunch.values import replace

NAME = "pytorch"

# The platform does not document its port; its older variables named hosts as HOST:6666.
MASTER_PORT = replace(ANY_MASTER_PORT, default=6666)

VARIABLES: tuple[Variable[object], ...] = (MASTER_PORT,)

explain = nothing_to_explain


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    argv = templates.command("pytorch/command.j2", job=job, appended=_appended(job, reader))
    return Plan(
        job=job,
        method=NAME,
        why="",
        processes=(without_slurm_tasks(launcher_process(job, reader, NAME, argv, _uneven(job, reader)), reader),),
        limits=limits(reader),
        waits=master_waits(job, reader),
        runs=PROGRAM,
    )


def _appended(job: Job, reader: Reader) -> tuple[str, ...]:
    """The rendezvous as arguments, less those that the user already gives: older guides had people pass rank and world_size."""
    told = {"--init_method": f"tcp://{address(meeting_host(job, reader))}:{reader.get(MASTER_PORT)}"}
    if len(job.nodes) > 1:
        told.update({"--rank": str(job.node_index), "--world_size": str(len(job.nodes))})
    own = {word.partition("=")[0] for word in job.program.args}
    for name in sorted(own & told.keys()):
        reader.warn(f"the program's own {name} stands; ranklaunch would have given {told[name]}")
    return tuple(word for name, value in told.items() if name not in own for word in (name, value))


def _uneven(job: Job, reader: Reader) -> dict[str, str]:
    """Where nodes have different slots, what a program cannot make from the number of nodes and its own processes."""
    if not job.slots_differ:
        return {}
    told = {"RANKLAUNCH_FIRST_RANK": str(job.node.first_rank), "RANKLAUNCH_WORLD_SIZE": str(job.world_size)}
    reader.warn(
        f"slots differ, and --rank and --world_size count nodes: a program that multiplies them by its own processes is wrong; "
        f"its first rank and the world size are in {' and '.join(told)}"
    )
    return told
