"""The program once on each node, untouched."""

from __future__ import annotations

from ranklaunch.adapters.launchers.shared.base import MASTER_PORT, Launcher, once, own_script
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader
from ranklaunch.plan.model import Plan
from ranklaunch.render.templates import Templates


class Plain(Launcher):
    NAME = "plain"
    VARIABLES = (MASTER_PORT,)  # of a script that starts ranks itself, and of --pass

    @staticmethod
    def plan(job: Job, reader: Reader, templates: Templates) -> Plan:
        result = once(job, reader, templates, Plain.NAME, "plain/command.j2", own_script(job, reader))
        if reader.by_user(MASTER_PORT) and not reader.ledger.reading(MASTER_PORT.value):
            reader.warn(f"{reader.candidates(MASTER_PORT)[0].quoted} has no effect with method plain")
        return result
