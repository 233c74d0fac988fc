"""Notes about this machine: what it lacks may make ranks fail later, and need not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ranklaunch.adapters.launchers.shared.variables import GLOO_INTERFACE, NCCL_INTERFACE
from ranklaunch.plan.model import Plan
from ranklaunch.processes import start
from ranklaunch.showing import clipped
from ranklaunch.system import disk, interfaces

SHARED, SMALL_BYTES = "/dev/shm", 64 * 1024 * 1024
GLOO, NCCL = GLOO_INTERFACE.names[0], NCCL_INTERFACE.names[0]


def notes(plan: Plan, env: Mapping[str, str]) -> Iterator[str]:
    """Yield notes about a plan's own node. env: what its processes inherit."""
    yield from _interfaces(plan, env)
    yield from _shared_memory(plan)


def _shared_memory(plan: Plan) -> Iterator[str]:
    """Yield a small /dev/shm beside several ranks: 64 MiB is what Docker and Kubernetes give a container that asks for no more."""
    size = disk.size_of(SHARED) if plan.ranks_here > 1 else None
    if size is not None and size <= SMALL_BYTES:
        yield (
            f"{SHARED} has {disk.shown(size)} for {plan.ranks_here} ranks on this node, and loaders' workers and NCCL share memory there: "
            "give the container more by docker's --shm-size, in Kubernetes by an emptyDir of medium Memory"
        )


def _interfaces(plan: Plan, env: Mapping[str, str]) -> Iterator[str]:
    """Yield variables of several nodes by which a library finds no interface. Of each variable the first process counts."""
    own = start.environment(plan.processes[0], env) if len(plan.job.everyone) > 1 and plan.processes else {}
    gloo, nccl = own.get(GLOO, ""), own.get(NCCL, "") if plan.job.accelerator == "gpu" else ""
    if not gloo and not nccl:
        return
    try:
        there = interfaces.with_address()
    except OSError:
        return
    machine = f"names no interface of this machine ({clipped(', '.join(there))})"
    if gloo and not are_there(gloo, there):
        yield f"{GLOO}={clipped(gloo)} {machine}: Gloo takes whole names, with commas between"
    if nccl and not any_fits(nccl, there):
        yield f"{NCCL}={clipped(nccl)} {machine}: NCCL takes beginnings of names; = before them means whole names, ^ all but these"


def are_there(names: str, there: Sequence[str]) -> bool:
    """Return True if Gloo finds each of these interfaces. A colon and what follows is an alias of one."""
    return all(name.partition(":")[0] in there for name in names.split(",") if name)


def any_fits(names: str, there: Sequence[str]) -> bool:
    """Return True if NCCL finds an interface: ^ before the list excludes what it names, = makes whole names of it."""
    excludes = names.startswith("^")
    is_exact = names[excludes:].startswith("=")
    wanted = [name.partition(":")[0] for name in names[excludes + is_exact :].split(",") if name]
    return any(excludes != any(each == name if is_exact else each.startswith(name) for name in wanted) for each in there)
