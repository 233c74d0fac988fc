"""Conditions that would make run fail or wait, as far as visible on this node before anything starts."""

from __future__ import annotations

import errno
import functools
import ipaddress
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ranklaunch.adapters.launchers.shared.base import MASTER_PORT, attempt_dir
from ranklaunch.adapters.launchers.shared.ssh import NAME as SSHD
from ranklaunch.adapters.launchers.shared.ssh import PORT as SSHD_PORT
from ranklaunch.adapters.launchers.shared.variables import GLOO_INTERFACE
from ranklaunch.cli.launch import machine_notes
from ranklaunch.env.job import Job
from ranklaunch.env.settings import BY_MPI
from ranklaunch.errors import ConfigError, RanklaunchError, WaitError
from ranklaunch.muster.secret import secret
from ranklaunch.plan import facts
from ranklaunch.plan.hints import behind
from ranklaunch.plan.model import Plan, Process
from ranklaunch.processes import children
from ranklaunch.supervise import judge
from ranklaunch.supervise.waits.waiting import some
from ranklaunch.system import disk, lookup
from ranklaunch.system.ports import holder

LOOKED_UP_AT_ONCE = 32  # names
OF_RANKS = "of the rendezvous"
PACKAGES = ("ray", "jax")  # methods that need the package of their name


@dataclass(frozen=True)
class Finding:
    """code: of run's exit, 0 for what need not make it fail."""

    text: str
    code: int = 0


def findings(plan: Plan, env: Mapping[str, str], root: str = "") -> Iterator[Finding]:
    """root: a folder below which the container's files are looked up."""
    yield from (Finding(warning) for warning in plan.warnings)
    yield from (Finding(hint) for hint in filter(None, [behind.hint(plan.job.program)]))
    yield from _programs(plan, env, root)
    yield from _package(plan, env, root)
    if root:
        yield Finding(f"what starts programs, folders, ports and names are those of this machine, not below {root}")
    yield from _folder("log directory", attempt_dir(plan.job), "--log-dir or RANKLAUNCH_LOG_DIR")
    if plan.private:
        yield from _folder("folder for keys", plan.private, "RANKLAUNCH_RUN_DIR")
    if plan.muster:
        yield from _tried(functools.partial(secret, plan.muster, env))
    yield from (Finding(text, WaitError.exit_code) for text in judge.are_full(plan, disk.full(judge.stored_in(plan))))
    yield from _ports(plan)
    yield from _hosts(plan)
    yield from _own_name(plan, env)
    yield from map(Finding, machine_notes(plan, env))
    for wait in plan.waits:
        if wait.kind not in ("hosts", "muster", "port"):  # of the last two nothing can be said before the others have started
            yield Finding(f"run would wait for {wait.kind} {wait.what}{f': {wait.seen}' if wait.seen else ''}")


def _programs(plan: Plan, env: Mapping[str, str], root: str) -> Iterator[Finding]:
    yield from _tried(lambda: children.require_program(plan, root))
    steps = (*plan.gather, *plan.prepare, *plan.services, *plan.processes)
    for process in {step.argv[0]: step for step in steps}.values():
        try:
            yield from _startable(process, plan.job, env)
        except RanklaunchError as error:
            yield Finding(str(error), error.exit_code)


def _package(plan: Plan, env: Mapping[str, str], root: str) -> Iterator[Finding]:
    """Yield a note if the packages of the user's interpreter are seen, without the one that the method needs."""
    if plan.method not in PACKAGES:
        return
    seen = (plan.job, disk.DiskFiles(root), env, disk.working_folder())
    if "Python" in facts.of_versions(*seen, "") and not facts.has(f"{plan.method}/__init__.py", *seen):
        where = f"{plan.method} is not among the packages of {plan.job.python}"
        yield Finding(f"{where}: pip install {plan.method} there; where .pth files lead was not looked")


def _startable(process: Process, job: Job, env: Mapping[str, str]) -> Iterator[Finding]:
    own = children.environment(process, env)
    path = children.executable(process, own)
    if hindrance := children.hindrance(path):
        yield Finding(f"{process.name}: cannot execute {path}: {hindrance}", children.CANNOT_EXECUTE)
    children.require_below(process, job, own)


def _tried(look: Callable[[], object]) -> Iterator[Finding]:
    try:
        look()
    except RanklaunchError as error:
        yield Finding(str(error), error.exit_code)


def _folder(what: str, folder: str, setting: str) -> Iterator[Finding]:
    """The nearest folder that is there must let the rest be made."""
    there = os.path.abspath(folder)
    while not os.path.exists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        text = f"{what} {folder}: {there} cannot be written by uid {os.getuid()}; name another with {setting}"
        yield Finding(text, ConfigError.exit_code)


def _ports(plan: Plan) -> Iterator[Finding]:
    """Yield ports that this node would open, and that another program has."""
    for port, what in _opened_here(plan).items() if len(plan.job.everyone) > 1 else ():
        if port.isdigit() and _taken(int(port)):
            owner = holder(int(port))
            may_work = plan.method in BY_MPI and what == OF_RANKS  # ranks that meet by MPI alone need no port
            text = f"port {port} {what} is taken on this node{f' by {owner.text}' if owner else ''}"
            yield Finding(text, 0 if may_work else WaitError.exit_code)


def _opened_here(plan: Plan) -> dict[str, str]:
    """Return ports that this node would open, each with its owner; "" for a port that is not known."""
    values = {reading.name: reading.value for reading in plan.values}
    ports = {values.get(SSHD_PORT.value, ""): "of the job's sshd"} if any(service.name == SSHD for service in plan.services) else {}
    if not plan.job.node_index:
        ports |= {values.get(MASTER_PORT.value, ""): OF_RANKS, str(plan.muster.port) if plan.muster else "": "of the muster"}
    return ports


def _taken(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one whose last user has just ended is free
        try:
            sock.bind(("", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _hosts(plan: Plan) -> Iterator[Finding]:
    """Yield a finding with the host names that do not resolve. They are no error: run waits until the platform publishes them."""
    if len(plan.job.everyone) == 1:
        return
    waited = [name for wait in plan.waits if wait.kind == "hosts" for name in wait.what.split(",")]
    names = list(dict.fromkeys(name for name in (plan.job.master, *waited) if name))
    unknown = {name: why for name, (addresses, why) in zip(names, _looked_up(names)) if not addresses}
    if unknown:
        yield Finding(f"run would wait for hosts: {some(unknown)}")


def _own_name(plan: Plan, env: Mapping[str, str]) -> Iterator[Finding]:
    """Gloo offers other nodes the address that the host's own name stands for, where nobody names an interface."""
    name = socket.gethostname()
    named = any(GLOO_INTERFACE.names[0] in children.environment(process, env) for process in plan.processes)
    looked_up = _look_up(name)[0] if len(plan.job.everyone) > 1 and plan.processes and not named else []
    addresses = list(dict.fromkeys(address.sockaddr[0] for address in looked_up))
    if addresses and all(ipaddress.ip_address(address).is_loopback for address in addresses):
        text = f"this host's own name, {name}, stands for {' and '.join(addresses)} here, which Gloo would offer to the other nodes"
        yield Finding(f"{text}: name the interface between them with RANKLAUNCH_INTERFACE or GLOO_SOCKET_IFNAME")


def _looked_up(names: Sequence[str]) -> list[tuple[list[lookup.Address], str]]:
    """What is found of each, or why nothing is."""
    try:
        with ThreadPoolExecutor(LOOKED_UP_AT_ONCE) as pool:
            return list(pool.map(_look_up, names))
    except RuntimeError:  # the system has no thread left
        return list(map(_look_up, names))


def _look_up(name: str) -> tuple[list[lookup.Address], str]:
    return lookup.resolve(name, 0)
