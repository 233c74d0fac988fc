"""Checks for conditions that would make `run` fail or wait, if they are visible on this node before a start."""

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

LOOKED_UP_AT_ONCE = 32  # host names
OF_RANKS = "of the rendezvous"
PACKAGES = ("ray", "jax")  # methods that need the package of their name


@dataclass(frozen=True)
class Finding:
    """Finding of a check. code: exit code of `run` because of it; 0 for a note."""

    text: str
    code: int = 0


def findings(plan: Plan, env: Mapping[str, str], root: str = "") -> Iterator[Finding]:
    """Yield the findings about a plan. root: folder with a copy of the container's files, "" for this machine's."""
    yield from (Finding(warning) for warning in plan.warnings)
    yield from (Finding(hint) for hint in filter(None, [behind.hint(plan.job.program)]))
    yield from _programs(plan, env, root)
    yield from _package(plan, env, root)
    if root:
        yield Finding(f"programs of launchers, folders, ports and host names were checked on this machine, not below {root}")
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
        if wait.kind not in ("hosts", "muster", "port"):  # hosts are looked up above; the last two need the other nodes
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
    """Yield a note if the user's Python has no package for the method, as far as its packages are visible."""
    if plan.method not in PACKAGES:
        return
    where = (plan.job, disk.DiskFiles(root), env, disk.working_folder())
    if "Python" in facts.of_versions(*where, "") and not facts.has(f"{plan.method}/__init__.py", *where):
        missing = f"{plan.method} is not among the packages of {plan.job.python}"
        yield Finding(f"{missing}: pip install {plan.method} there; paths in .pth files were not searched")


def _startable(process: Process, job: Job, env: Mapping[str, str]) -> Iterator[Finding]:
    process_env = children.environment(process, env)
    path = children.executable(process, process_env)
    if hindrance := children.hindrance(path):
        yield Finding(f"{process.name}: cannot execute {path}: {hindrance}", children.CANNOT_EXECUTE)
    children.require_below(process, job, process_env)


def _tried(look: Callable[[], object]) -> Iterator[Finding]:
    try:
        look()
    except RanklaunchError as error:
        yield Finding(str(error), error.exit_code)


def _folder(what: str, folder: str, setting: str) -> Iterator[Finding]:
    """Yield a finding if a folder cannot be made, since its nearest existing parent is not writable."""
    existing = os.path.abspath(folder)
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing) or not os.access(existing, os.W_OK | os.X_OK):
        text = f"{what} {folder}: {existing} cannot be written by uid {os.getuid()}; name another with {setting}"
        yield Finding(text, ConfigError.exit_code)


def _ports(plan: Plan) -> Iterator[Finding]:
    """Yield a finding for each port that this node would open and another program has."""
    for port, what in _opened_here(plan).items() if len(plan.job.everyone) > 1 else ():
        if port.isdigit() and _taken(int(port)):
            owner = holder(int(port))
            may_work = plan.method in BY_MPI and what == OF_RANKS  # ranks that meet only by MPI need no port
            text = f"port {port} {what} is taken on this node{f' by {owner.text}' if owner else ''}"
            yield Finding(text, 0 if may_work else WaitError.exit_code)


def _opened_here(plan: Plan) -> dict[str, str]:
    """Return the ports that this node would open, each with its purpose; the key is "" if a port is unknown."""
    values = {reading.name: reading.value for reading in plan.values}
    ports = {values.get(SSHD_PORT.value, ""): "of the job's sshd"} if any(service.name == SSHD for service in plan.services) else {}
    if not plan.job.node_index:
        ports |= {values.get(MASTER_PORT.value, ""): OF_RANKS, str(plan.muster.port) if plan.muster else "": "of the muster"}
    return ports


def _taken(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
        try:
            sock.bind(("", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _hosts(plan: Plan) -> Iterator[Finding]:
    """Yield a note with the host names that do not resolve. They are no error: run waits until the platform publishes them."""
    if len(plan.job.everyone) == 1:
        return
    of_waits = [name for wait in plan.waits if wait.kind == "hosts" for name in wait.what.split(",")]
    names = list(dict.fromkeys(name for name in (plan.job.master, *of_waits) if name))
    unknown = {name: why for name, (addresses, why) in zip(names, _looked_up(names)) if not addresses}
    if unknown:
        yield Finding(f"run would wait for hosts: {some(unknown)}")


def _own_name(plan: Plan, env: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a note if the host's own name resolves to loopback: without a named interface, Gloo offers this address to other nodes."""
    name = socket.gethostname()
    has_interface = any(GLOO_INTERFACE.names[0] in children.environment(process, env) for process in plan.processes)
    looked_up = _look_up(name)[0] if len(plan.job.everyone) > 1 and plan.processes and not has_interface else []
    addresses = list(dict.fromkeys(address.sockaddr[0] for address in looked_up))
    if addresses and all(ipaddress.ip_address(address).is_loopback for address in addresses):
        text = f"this host's own name, {name}, resolves to {' and '.join(addresses)} here, which Gloo would offer to the other nodes"
        yield Finding(f"{text}: name the interface between nodes with RANKLAUNCH_INTERFACE or GLOO_SOCKET_IFNAME")


def _looked_up(names: Sequence[str]) -> list[tuple[list[lookup.Address], str]]:
    """Return the addresses of each name, or the reason why there are none."""
    try:
        with ThreadPoolExecutor(LOOKED_UP_AT_ONCE) as pool:
            return list(pool.map(_look_up, names))
    except RuntimeError:  # the system has no thread left
        return list(map(_look_up, names))


def _look_up(name: str) -> tuple[list[lookup.Address], str]:
    return lookup.resolve(name, 0)
