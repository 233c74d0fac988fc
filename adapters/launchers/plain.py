"""Method plain: the program once on each node, without changes."""

from __future__ import annotations

from ranklaunch.adapters.launchers.shared.base import MASTER_PORT, Launcher, once, script_of_program
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader
from ranklaunch.plan.model import Plan
from ranklaunch.render.templates import Templates


class Plain(Launcher):
    NAME = "plain"
    VARIABLES = (MASTER_PORT,)  # for a script that starts ranks itself, and for --pass

    @staticmethod
    def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
        result = once(job, reader, templates, Plain.NAME, "plain/command.j2", script_of_program(job, reader))
        if reader.by_user(MASTER_PORT) and not reader.ledger.reading(MASTER_PORT.value):
            reader.warn(f"{reader.candidates(MASTER_PORT)[0].quoted} has no effect with method plain")
        return result
