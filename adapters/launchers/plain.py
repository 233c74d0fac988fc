"""The program once on each node, untouched. The smallest launcher; copy it to add one."""

from __future__ import annotations

from ranklaunch.adapters.launchers.shared.base import MASTER_PORT, nothing_to_explain, once, own_script
from ranklaunch.plan.model import Plan
from ranklaunch.read.job import Job
from ranklaunch.read.reader import Reader, Variable
from ranklaunch.render.templates import Templates

NAME = "plain"

VARIABLES: tuple[Variable[object], ...] = (MASTER_PORT,)  # of a script that starts ranks itself, and of --pass

explain = nothing_to_explain


def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
    found = once(job, reader, templates, NAME, "plain/command.j2", own_script(job, reader))
    given = reader.candidates(MASTER_PORT)
    if given and given[0].by_user and not reader.ledger.reading(MASTER_PORT.value):
        reader.warn(f"{given[0].quoted} has no effect with method {NAME}")
    return found
