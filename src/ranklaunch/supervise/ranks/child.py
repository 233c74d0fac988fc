"""Starting processes, and what is known of each while it lives and after."""

from __future__ import annotations

import os
import resource  # os.wait4, too, imports it at its first call, for which there may be no descriptor left by then
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ranklaunch.errors import MissingProgramError
from ranklaunch.plan.model import Plan, Process, RankOutputs
from ranklaunch.redact import clipped
from ranklaunch.supervise.output.pipe import PipeReader, make_pipe
from ranklaunch.system import tree
from ranklaunch.system.loop import Loop
from ranklaunch.system.signals import Signals, block, unblock

if TYPE_CHECKING:
    from ranklaunch.supervise.output.logs import Logs
    from ranklaunch.supervise.ranks.below import Below
    from ranklaunch.supervise.ranks.watched import Announced

CANNOT_EXECUTE = 126  # as shells say it
# Of open files: what ranks get, whatever ranklaunch needs for itself.
INHERITED_LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)


class Child:
    """A started process. status: its wait status once reaped. max_rss_kb: its peak resident memory, from the kernel's accounting.
    ranks: those that it has started, where they are watched. ends_ranks: it has said that it does."""

    def __init__(self, process: Process, identity: tree.Identity) -> None:
        self.process, self.identity = process, identity
        self.reader: PipeReader | None = None
        self.pidfd = -1
        self.status: int | None = None
        self.max_rss_kb = 0
        self.ended_at = 0.0  # monotonic seconds
        self.said: bytes | None = None  # the last of its output when what it writes stopped to count
        self.signalled: list[int] = []
        self.below: Below | None = None
        self.announced: Announced | None = None
        self.ends_ranks = False

    @property
    def alive(self) -> bool:
        return self.status is None

    def ranks(self) -> list[tree.Identity]:
        """Of a launcher: those that live. Where its files do not tell them, whoever is where they are."""
        if self.process.conduct.carriers:
            return tree.carried(self.identity.pid, self.process.conduct.carriers)
        known = self.below.ranks() if self.below else None
        return tree.generation(self.identity.pid, self.process.conduct.ranks_below) if known is None else known

    @property
    def code(self) -> int:
        """Exit code as a shell gives it: 128+N after signal N."""
        assert self.status is not None
        return os.WEXITSTATUS(self.status) if os.WIFEXITED(self.status) else 128 + os.WTERMSIG(self.status)

    @property
    def signal(self) -> int:
        """The signal that killed it, 0 when none did."""
        assert self.status is not None
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else 0

    @property
    def failure_code(self) -> int:
        """Its own exit code; where it ended with 0 although a rank had failed, that of the rank, or 1 where it is not known."""
        failed = next((rank.code or 0 for rank in self.announced.failed), 0) if self.announced else 0
        return self.code or failed or int(self.ends_ranks)

    @property
    def code_of_job(self) -> int:
        """With which the job ends where this was its first failure."""
        return self.failure_code if self.signal else self.process.conduct.fails_as or self.failure_code


class Parent(Protocol):
    """What hears of the processes that it has started."""

    def on_start(self, child: Child) -> None: ...
    def on_output(self, child: Child) -> None: ...
    def on_exit(self, child: Child) -> None: ...


class Children:
    """Those that ranklaunch itself has started. running: by pid. ended: in that order."""

    def __init__(self, parent: Parent, env: Mapping[str, str], signals: Signals, loop: Loop, logs: Logs) -> None:
        self.running: dict[int, Child] = {}
        self.ended: list[Child] = []
        self._parent = parent
        self._env = env
        self._signals = signals
        self._loop = loop
        self._logs = logs
        self._reaping = False

    def require(self, processes: Sequence[Process]) -> None:
        """Raises MissingProgramError where one could not be started."""
        for process in processes:
            self._program(process)

    def start(self, processes: Sequence[Process], outputs: RankOutputs | None = None) -> None:
        """All of them, or none where one could not be. outputs: of ranks that they start."""
        for process, (path, env) in [(process, self._program(process)) for process in processes]:
            self._start(process, path, env, outputs)

    def reap(self) -> None:
        """Those whose end SIGCHLD tells: behind the pidfds of this step, whose order says who died first."""
        if not self._reaping:
            self._reaping = True
            self._loop.after(0, self._reap)

    def _program(self, process: Process) -> tuple[str, dict[str, str]]:
        env = environment(process, self._env)
        return executable(process, env), env

    def _start(self, process: Process, path: str, env: dict[str, str], outputs: RankOutputs | None) -> None:
        sink = self._logs.sink(process, outputs)
        readable, writable = make_pipe()
        try:
            child = start(process, path, env, writable, self._signals)
        finally:
            os.close(writable)
        child.reader = self._logs.read(readable, sink, lambda: self._parent.on_output(child))
        self.running[child.identity.pid] = child
        if child.pidfd >= 0:
            self._loop.on_readable(child.pidfd, lambda: self._reap_one(child.identity.pid))
        self._parent.on_start(child)

    def _reap(self) -> None:
        """Every child that has ended; most of them are orphans that this process inherited."""
        self._reaping = False
        while self._reap_one(-1):
            pass

    def _reap_one(self, which: int) -> bool:
        """Whether there was one. which: a pid; -1: any."""
        try:
            pid, status, usage = os.wait4(which, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid:
            self._on_exit(pid, status, usage.ru_maxrss)
        return bool(pid)

    def _on_exit(self, pid: int, status: int, max_rss_kb: int) -> None:
        child = self.running.pop(pid, None)
        if child is None:
            return
        child.status, child.max_rss_kb, child.ended_at = status, max_rss_kb, self._loop.clock()
        self.ended.append(child)
        if child.pidfd >= 0:
            self._loop.forget(child.pidfd)
            os.close(child.pidfd)
        if child.reader:
            child.reader.drain()
        self._parent.on_exit(child)


def environment(process: Process, inherited: Mapping[str, str]) -> dict[str, str]:
    gone = set(process.unset)
    return {**{name: value for name, value in inherited.items() if name not in gone}, **process.env}


def executable(process: Process, env: Mapping[str, str]) -> str:
    """Path of the process's program. Raises MissingProgramError that says where it was looked for."""
    name = process.argv[0]
    folders = [""] if "/" in name else [folder for folder in env.get("PATH", os.defpath).split(":") if folder]
    denied = ""
    for folder in folders:
        path = os.path.join(process.cwd or "", folder, name)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            denied = path
    if denied:
        msg = f"{denied} is not executable (files from object storage lose that mark): chmod +x it, or start it through its interpreter"
        raise MissingProgramError(msg)
    where = f"on PATH={clipped(env.get('PATH', ''))!r}" if "/" not in name else f"from {process.cwd or os.getcwd()}"
    hint = f"; {process.comes_with}" if process.comes_with else ""
    msg = f"{process.name}: program {name!r} not found {where}{hint}"
    raise MissingProgramError(msg)


def lift_limit(files: int) -> None:
    """So many more open files for ranklaunch itself, as far as it may; ranks get what it was given."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        wanted = soft + files
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def require_program(plan: Plan) -> None:
    """Raises MissingProgramError where the user's program is not there."""
    program = plan.job.program
    is_file = program.is_python or program.is_shell
    if not program.module and is_file and not os.path.exists(program.path):
        msg = f"program {program.path!r}: no such file (looked for from {os.getcwd()})"
        raise MissingProgramError(msg)


def start(process: Process, path: str, env: dict[str, str], output: int, signals: Signals) -> Child:
    """Forks and executes. output: the pipe end that becomes its stdout and stderr; the caller closes it."""
    parent = os.getpid()
    block()  # until the child has its own handlers, a signal to it would be written into our pipe
    try:
        pid = os.fork()
        if pid == 0:
            _become(process, path, env, output, signals, parent)
    finally:
        unblock()
    child = Child(process, tree.identify(pid))
    if hasattr(os, "pidfd_open"):
        try:
            child.pidfd = os.pidfd_open(pid)
        except OSError:
            pass
    return child


def _become(process: Process, path: str, env: dict[str, str], output: int, signals: Signals, parent: int) -> None:
    """In the child: never returns."""
    try:
        os.setpgid(0, 0)
        tree.die_with_parent()
        if os.getppid() != parent:  # it died before the line above
            os._exit(CANNOT_EXECUTE)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY) if process.conduct.repeats else output, 1)
        os.dup2(output, 2)
        if process.cwd:
            os.chdir(process.cwd)
        signals.to_default()
        resource.setrlimit(resource.RLIMIT_NOFILE, INHERITED_LIMIT)
        unblock()
        os.execve(path, process.argv, env)
    except BaseException as error:
        text = f"ranklaunch: cannot execute {path}: {error}\n"
        os.write(2, text.encode(errors="backslashreplace"))
    finally:
        os._exit(CANNOT_EXECUTE)
