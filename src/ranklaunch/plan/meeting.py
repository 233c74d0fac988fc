"""The start barrier of a job's nodes (muster): its place, its deadline, and the facts that nodes compare."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ranklaunch.adapters import launchers
from ranklaunch.adapters.launchers.shared import base
from ranklaunch.env import settings
from ranklaunch.env.job import Job, hosts_of
from ranklaunch.env.reader import Reader, Reading, show
from ranklaunch.plan import agreement, facts, prelaunch
from ranklaunch.plan.model import Muster, Plan, Wait
from ranklaunch.version import __version__


def planned(plan: Plan, job: Job, reader: Reader, args: tuple[str, ...] | None) -> Plan:
    """Return the plan with the muster, in place of the wait for node 0's name.

    job: from the platform, before any rank table is known. Idle nodes meet the rest too.
    args: the program's arguments in the same words on all nodes; None: the plan's.
    """
    job = plan.job if plan.job.idle else job
    followers = plan.followers + len(job.idle)
    if not reader.get(settings.MUSTER):
        if followers:
            why = f"with method {plan.method} some nodes wait for the end of the rest, which only the muster tells them; leave it on"
            reader.problem(f"{reader.described(settings.MUSTER)}: {why}")
        return plan
    port, timeout_s = reader.get(settings.MUSTER_PORT), _timeout_s(plan, reader)
    readings = _launcher_readings(plan, reader)
    if any(each.name == base.MASTER_PORT.value and each.value == str(port) for each in readings):
        clash = "is the port of the rendezvous too: give one of them another port"
        reader.problem(f"{reader.described(settings.MUSTER_PORT)} {clash}")
    muster = Muster(
        node=job.node_index,
        hosts=hosts_of(job.everyone),
        port=port,
        timeout_s=timeout_s,
        lost_after_s=reader.get(settings.LOST_AFTER_S),
        end_timeout_s=reader.get(settings.END_TIMEOUT_S),
        secret=agreement.secret(reader),
        facts={
            **_shape(plan, job, readings),
            **({} if followers else facts.of_policy(plan)),  # the settings of nodes without ranks may differ
            **_software(plan, job, reader),
            **agreement.of_ranks(plan, reader.env, args),
        },
        allowed=reader.get(settings.MUSTER_ALLOW),
        followers=followers,
    )
    facts.refuse_allowed(reader, [name for name in muster.allowed if name in facts.FIXED])
    return replace(plan, muster=muster, waits=tuple(_waits(muster, plan, job)))


def _launcher_readings(plan: Plan, reader: Reader) -> list[Reading]:
    """Return the readings of the launcher's variables that are the same on all nodes."""
    variables = launchers.launcher(plan.method).VARIABLES
    readings = (reader.ledger.reading(each.value) for each in variables if not each.per_node)
    return [reading for reading in readings if reading]


def _shape(plan: Plan, job: Job, readings: list[Reading]) -> dict[str, str]:
    """Return the facts of the job, its launcher and its rank table."""
    waits_for_table = any(wait.kind == "rank table" for wait in plan.waits)
    without = {settings.MASTER_ADDR.value} if job.own_master else set()
    return {
        # Until the rank table is complete, a node may know only its own slots.
        **facts.of_job(job if waits_for_table else plan.job, plan.method),
        **{each.name: each.value for each in readings if each.name not in without},
        **facts.of_table(plan),
    }


def _software(plan: Plan, job: Job, reader: Reader) -> dict[str, str]:
    """Return the facts of the program, of installed packages, and of the files that --same names."""
    cann = reader.peek(settings.CANN_FOLDER)
    compares = reader.is_set(settings.SAME) and not reader.arrived.restart
    return {
        **facts.of_program(job, reader.files, reader.cwd),
        **facts.of_versions(job, reader.files, reader.env, reader.cwd, cann),
        **(prelaunch.measured(plan.job, reader) if compares else {}),
        "ranklaunch": __version__,
    }


def _timeout_s(plan: Plan, reader: Reader) -> float:
    """Return the muster's deadline in seconds. If only RANKLAUNCH_WAIT_S is set, it holds for the muster too."""
    if reader.is_set(settings.MUSTER_TIMEOUT_S) or not reader.is_set(settings.WAIT_S):
        return reader.get(settings.MUSTER_TIMEOUT_S)
    seconds = plan.limits.wait_s
    reader.note(settings.MUSTER_TIMEOUT_S, show(seconds), reader.source(settings.WAIT_S))
    return seconds


def _waits(muster: Muster, plan: Plan, job: Job) -> Iterator[Wait]:
    """Insert the muster wait before the waits for other nodes' ports and host names."""
    later = [wait for wait in plan.waits if wait.kind == "port" or (wait.kind == "hosts" and plan.by_address)]
    for wait in plan.waits:
        if wait not in later and (wait.kind, wait.what) != ("hosts", job.master):
            yield wait
    place = f"{len(job.everyone)} nodes at {base.address(job.master)}:{muster.port}"
    yield Wait("muster", place, muster.timeout_s)
    yield from later
