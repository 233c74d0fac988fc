"""The processes that ranklaunch itself has started, from their start until they are reaped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ranklaunch.adapters.launchers import started
from ranklaunch.env.job import SHELLS, Job
from ranklaunch.output.pipe import make_pipe
from ranklaunch.plan.model import Plan, Process
from ranklaunch.processes.child import DECIDING, RANK, SERVICE, Child, End
from ranklaunch.processes.start import environment, executable, require_below, start
from ranklaunch.supervise.record import bequeath
from ranklaunch.system import tree
from ranklaunch.system.signals import Signals, name_of, signal_of
from ranklaunch.verdict.blame import Finish

if TYPE_CHECKING:
    from ranklaunch.supervise.attempt import Attempt


MOST_ADOPTED = 65536
FATAL = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)


@dataclass(frozen=True)
class Daemon:
    """What carries ranks of another node's launcher here, such as Open MPI's orted, and was killed. at: monotonic seconds."""

    name: str
    pid: int
    signal: int
    at: float


class Children:
    """Those that ranklaunch itself has started. env: what they inherit. running: by pid. ended: in that order. killed: strangers that
    ended as its children, by pid, with the signal's name. adopted: wait statuses of strangers, by pid. daemons: those of them that carried
    ranks."""

    def __init__(self, attempt: Attempt, env: Mapping[str, str], signals: Signals) -> None:
        self.running: dict[int, Child] = {}
        self.ended: list[Child] = []
        self.killed: dict[int, str] = {}
        self.adopted: dict[int, int] = {}
        self.daemons: list[Daemon] = []
        self._attempt = attempt
        self.env = env
        self._own: Mapping[str, str] = {}
        self._signals = signals
        self._loop = attempt.loop
        self._logs = attempt.logs
        self._reaping = False

    def finished(self, node: int, wall: Callable[[float], float]) -> list[Finish]:
        """The ranks of launchers that have ended with 0 by themselves, since the launcher last started them. Of launchers that kill all
        others then, it is said at once."""
        by_files = (child for child in (*self.ended, *self.running.values()) if not (child.announced or child.launcher.kills_ranks))
        return [Finish(node, end.rank, wall(end.ended_at)) for child in by_files if child.below for end in child.below.finished]

    def give(self, own: Mapping[str, str]) -> None:
        """Variables of ranklaunch's own, for those that are started from here on."""
        self._own = own

    def require(self, process: Process, job: Job) -> None:
        """Raises MissingProgramError where it could not be started, or would not find what it is to start."""
        _, env = self._program(process)
        require_below(process, job, env)

    def start(self, processes: Sequence[Process], role: str, plan: Plan | None = None) -> None:
        """Start all of them, or none if one could not be. plan: of which they are."""
        for process, (path, env) in [(process, self._program(process)) for process in processes]:
            self._start(process, role, path, env, plan)

    def of(self, roles: Collection[str]) -> list[Child]:
        """Return the running children with one of these roles."""
        return [child for child in self.running.values() if child.role in roles]

    def of_pid(self, pid: int | None) -> Child | None:
        """Return the child with this pid, the last one of several; None without one."""
        children = (*self.running.values(), *reversed(self.ended))
        return next((child for child in children if child.identity.pid == pid), None)

    def remember(self, but: Callable[[tree.Identity], bool] = lambda process: False) -> None:
        """What they write from now on does not count, but for these."""
        for child in self.running.values():
            if child.reader and child.said is None and not but(child.identity):
                child.said = child.last_words()

    def hear_out(self) -> None:
        """What ranks that ended by themselves had said, and a filter has passed on since, is theirs."""
        for child in self.ended:
            if child.reader and child.role == RANK and not child.ended.told:
                child.said = child.last_words()

    def reap(self) -> None:
        """Reap children after SIGCHLD, behind the pidfds of this step: the order of the pidfds is the order of the deaths."""
        if not self._reaping:
            self._reaping = True
            self._loop.after(0, self._reap)

    def _program(self, process: Process) -> tuple[str, dict[str, str]]:
        env = {**environment(process, self.env), **self._own}
        return executable(process, env), env

    def _start(self, process: Process, role: str, path: str, env: dict[str, str], plan: Plan | None) -> None:
        launcher = started(process, plan) if plan else None
        alike = launcher.ON_EACH_NODE if launcher else ""
        sink = self._logs.sink(process, plan.outputs if plan and role in DECIDING else None, alike)
        readable, writable = make_pipe()
        try:
            repeats = bool(launcher and launcher.repeats)
            child = Child(process, start(process, path, env, writable, self._signals, repeats=repeats), role, launcher)
        finally:
            os.close(writable)
        child.pidfd = _pidfd(child.identity.pid)
        if child.launcher.starts_ranks:
            bequeath(f"launcher_{child.identity.pid}", " ".join((f"{child.launcher.DEPTH:d}", *child.launcher.CARRIERS)))
        child.reader = self._logs.read(readable, sink, lambda: self._attempt.on_child_output(child))
        self.running[child.identity.pid] = child
        if child.pidfd >= 0:
            self._loop.on_readable(child.pidfd, self._reap_one, child.identity.pid)
        self._attempt.on_child_start(child)

    def _reap(self) -> None:
        """Reap every child that has ended. Most are inherited orphans."""
        self._reaping = False
        while self._reap_one(-1):
            pass

    def _reap_one(self, which: int) -> bool:
        """Reap one child, and return True if there was one. which: its pid, -1 for any."""
        try:
            if which < 0:
                self._look_at_next()
            pid, status, usage = os.wait4(which, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid:
            self._on_exit(pid, status, usage.ru_maxrss)
        return bool(pid)

    def _look_at_next(self) -> None:
        """Note the name of the next zombie before it is reaped: a killed daemon that carried ranks matters for the verdict."""
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if not found or found.si_pid in self.running or found.si_code == os.CLD_EXITED or found.si_status not in FATAL:
            return
        names = {name for child in self.of((SERVICE,)) for name in _daemons(child)}
        process = tree.entry(found.si_pid) if names else None
        if process and process.name in names:
            self.daemons.append(Daemon(process.name, found.si_pid, found.si_status, self._loop.clock()))

    def _on_exit(self, pid: int, status: int, max_rss_kb: int) -> None:
        child = self.running.pop(pid, None)
        if child is None:
            if not tree.fetched(pid, status):
                self._note_stranger(pid, status)
            return
        child.end = End(status, self._loop.clock(), max_rss_kb, tuple(child.told))
        self.ended.append(child)
        if child.pidfd >= 0:
            self._loop.forget(child.pidfd)
            os.close(child.pidfd)
        if child.reader:
            child.reader.drain()
            if child.had_said_all and (child.said is None or not child.told):
                child.said = child.last_words()
        self._attempt.on_child_end(child)

    def _note_stranger(self, pid: int, status: int) -> None:
        if len(self.adopted) < MOST_ADOPTED:
            self.adopted[pid] = status
        if signal_of(status):
            self.killed[pid] = name_of(signal_of(status))


def _daemons(service: Child) -> Iterable[str]:
    """Yield names of daemons that a service starts for ranks of other nodes, without shells and the service itself."""
    own = os.path.basename(service.process.argv[0])
    return (name for name in service.launcher.CARRIERS if name not in SHELLS and not name.startswith(own))


def _pidfd(pid: int) -> int:
    """-1 where this system has none, or no descriptor is left."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1
