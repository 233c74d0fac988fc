"""Steps of a node before the nodes meet: the platform's, the user's, and the digests of files that must be equal on all nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from ranklaunch import showing
from ranklaunch.adapters.launchers.shared import base
from ranklaunch.adapters.launchers.shared.variables import misleading
from ranklaunch.adapters.platforms.shared.base import HOSTS_COMMAND
from ranklaunch.env import settings
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader
from ranklaunch.files import folder_of, join, own_program
from ranklaunch.plan.model import Plan, Process, Wait

MEASURE = own_program("measure.py")
MEASURED = "same.json"
MOST_MEASURED = 1024 * 1024  # bytes


def steps(job: Job, reader: Reader) -> tuple[Process, ...]:
    """Return the steps in order. The digests come last, since the steps before may change the files."""
    return (*_platforms(job, reader), *_once(job, reader), *_same(job, reader))


def without_hosts(plan: Plan, reader: Reader) -> Plan:
    """Return the plan of a job whose hosts a command names, with the wait for the command's output."""
    described, nodes = reader.described(HOSTS_COMMAND), reader.ledger.reading(settings.NODES.value)
    if not nodes or nodes.source == "default":
        where = "only run and check execute the command, and check not one from an --env-file"
        reader.problem(f"{described}: {where}; set {settings.NODES.both} to the number of nodes")
    wait = Wait("hosts command", reader.get(HOSTS_COMMAND), plan.limits.wait_s)
    return replace(plan, waits=(wait, *plan.waits))


def measured(job: Job, reader: Reader) -> dict[str, str]:
    """Return the measured facts for the nodes to compare; empty before the measurement."""
    try:
        content = json.loads(reader.files.text(_result(job), MOST_MEASURED) or "{}")
    except (ValueError, RecursionError):  # the file is half written, too large, or another program's
        return {}
    if not isinstance(content, dict):
        return {}
    texts = {path: content.get(reader.absolute(path)) for path in reader.get(settings.SAME)}  # by the path as given: equal on all nodes
    return {f"same {showing.clipped(path)}": text for path, text in texts.items() if isinstance(text, str) and text}


def _platforms(job: Job, reader: Reader) -> Iterator[Process]:
    """Yield the steps that ModelArts' own images run before the boot file; here they run in every image.

    The script comes first: pip may need what it prepares.
    """
    if job.program.module or not reader.get(settings.PRE_START) or (job.among and job.among[0]):
        return
    folder = folder_of(job.program.path)
    script = next((name for name in settings.PRE_START_SCRIPTS if reader.files.exists(join(folder, name))), "")
    if script:
        yield _step(job, reader, script, ("bash", join(folder, script)))
    if reader.files.exists(join(folder, settings.REQUIREMENTS)):
        argv = (job.python, "-m", "pip", "install", "-r", join(folder, settings.REQUIREMENTS))
        yield _step(job, reader, settings.REQUIREMENTS, argv)


def _once(job: Job, reader: Reader) -> Iterator[Process]:
    """Yield the user's command for node 0. The muster makes the remaining nodes wait for its end."""
    command = reader.peek(settings.ONCE)
    if command and len(job.everyone) > 1 and not reader.get(settings.MUSTER):
        reader.problem(f"{reader.described(settings.ONCE)}: the other nodes would not wait for it with {reader.described(settings.MUSTER)}")
    if command and not job.node_index:
        yield _step(job, reader, "once", ("sh", "-c", command))


def _same(job: Job, reader: Reader) -> Iterator[Process]:
    paths = [reader.absolute(path) for path in reader.peek(settings.SAME)]
    if paths and len(job.everyone) > 1 and reader.get(settings.MUSTER):
        yield _step(job, reader, "same", (job.python, MEASURE, _result(job), *paths))
    elif paths:
        why = (
            "one node has nothing to compare"
            if len(job.everyone) == 1
            else f"nodes compare nothing with {reader.described(settings.MUSTER)}"
        )
        reader.warn(f"{reader.described(settings.SAME)} has no effect: {why}")


def _result(job: Job) -> str:
    return join(base.attempt_dir(job), MEASURED)


def _step(job: Job, reader: Reader, name: str, argv: tuple[str, ...]) -> Process:
    log = join(base.attempt_dir(job), f"{name}.log")
    return Process(name=name, argv=argv, log=log, env=base.common_env(job, reader), unset=misleading(reader.env), tag=f"[{name}] ")
