"""Flux. One ranklaunch on each node, started by flux run with as many tasks as nodes.

Source of the variables: flux-core, doc/man7/flux-environment.rst, doc/man5/flux-config-exec.rst.
"""

from __future__ import annotations

import re

from ranklaunch.adapters.platforms.shared import batch
from ranklaunch.env import parse, settings
from ranklaunch.env.reader import Reader, Variable, platform_count, platform_text

JOB_ID = platform_text(
    "flux_job",
    ("FLUX_JOB_ID", "FLUX_ENCLOSING_ID"),
    "id of the job; FLUX_ENCLOSING_ID: of the flux batch or flux alloc whose script this is",
)
TASKS = Variable("flux_tasks", ("FLUX_JOB_SIZE",), parse.positive, 1, "tasks of the job: one on each node", "platform")
TASK_HERE = platform_count("flux_task_here", ("FLUX_TASK_LOCAL_ID",), "number of this task on its node, from 0", per_node=True)
RANK = settings.NODE_INDEX.also("FLUX_TASK_RANK")


class Flux(batch.System):
    OWN = (JOB_ID, TASKS, TASK_HERE)
    JOB_ID = JOB_ID

    def job_id(self, reader: Reader) -> str:
        """Return the id with f as first letter, Flux's form in a locale without \u0192: the nodes' locales may differ."""
        return re.sub("^\u0192", "f", reader.get(JOB_ID).strip())

    def tasks(self, reader: Reader, nodes: int) -> batch.Tasks:
        script = "" if reader.env.get(JOB_ID.name, "").strip() else f"no {RANK.names[-1]} of flux run"
        command = f"flux run -N {nodes} -n {nodes} ranklaunch run ..."
        counts = batch.even(reader.get(TASKS), nodes)
        return batch.Tasks(counts, reader.get(TASK_HERE), (TASKS, TASK_HERE), RANK, script=script, command=command)
