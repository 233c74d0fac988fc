"""The program once on each node, untouched. The smallest launcher; copy it to add one."""

from __future__ import annotations

from ranklaunch.adapters.launchers.shared.base import common_env, limits, nothing_to_explain, own_launcher, rank_log
from ranklaunch.adapters.launchers.shared.inherited import misleading, only_secrets
from ranklaunch.plan.model import PROGRAM, Plan, Process
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.render.templates import Templates
from ranklaunch.values import replace

NAME = "plain"

VARIABLES: tuple[Variable[object], ...] = ()

explain = nothing_to_explain


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    # One process each, whatever the slots.
    job = replace(job, nodes=tuple(node._replace(slots=1, first_rank=node.index) for node in job.nodes))
    process = Process(
        name="program",
        argv=templates.command("plain/command.j2", job=job),
        log=rank_log(job, job.node_index),
        rank=job.node_index,
        local_rank=0,
        env=common_env(job, reader),
        # A launcher of the user's own may have been written for what the platform says of ranks.
        unset=only_secrets(reader.env) if own_launcher(job.program) else misleading(reader.env),
    )
    return Plan(job=job, method=NAME, why="", processes=(process,), limits=limits(reader), runs=PROGRAM)
