"""The program once on each node, untouched. The smallest launcher; copy it to add one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ranklaunch.adapters.launchers.shared.base import (
    MASTER_PORT,
    common_env,
    is_script,
    limits,
    master_waits,
    nothing_to_explain,
    own_launcher,
    rank_log,
)
from ranklaunch.adapters.launchers.shared.inherited import misleading, only_secrets
from ranklaunch.plan.model import PROGRAM, Plan, Process
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.render.templates import Templates
from ranklaunch.values import replace

if TYPE_CHECKING:
    from ranklaunch.adapters.launchers.shared.scripts.own import Script

NAME = "plain"

VARIABLES: tuple[Variable[object], ...] = (MASTER_PORT,)

explain = nothing_to_explain


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    script = own_script(job, reader)
    given = reader.candidates(MASTER_PORT)
    if given and given[0].by_user and not reader.ledger.reading(MASTER_PORT.value):
        reader.warn(f"{given[0].quoted} has no effect with method {NAME}")
    waits = master_waits(job, reader) if script else ()
    # One process each, whatever the slots.
    job = replace(job, nodes=tuple(node._replace(slots=1, first_rank=node.index) for node in job.nodes))
    process = Process(
        name="program",
        argv=templates.command("plain/command.j2", job=job),
        log=rank_log(job, job.node_index),
        rank=job.node_index,
        local_rank=0,
        env={**common_env(job, reader), **(script.env if script else {})},
        unset=script.unset if script else _unset(job, reader),
    )
    return Plan(job=job, method=NAME, why="", processes=(process,), limits=limits(reader), waits=waits, runs=PROGRAM)


def own_script(job: Job, reader: Reader) -> Script | None:
    """The program, where it is a shell script that starts ranks itself. job: with the slots that the platform has."""
    if not is_script(job.program):
        return None
    from ranklaunch.adapters.launchers.shared.scripts import own  # most programs are none

    return own.find(job, reader)


def _unset(job: Job, reader: Reader) -> tuple[str, ...]:
    """A launcher of the user's own may have been written for what the platform says of ranks."""
    return only_secrets(reader.env) if own_launcher(job.program) else misleading(reader.env)
