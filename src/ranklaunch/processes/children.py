"""Child processes of ranklaunch: their start, their states, their end."""

from __future__ import annotations

import errno
import json
import os
import re
import resource  # os.wait4, too, imports it at its first call, for which there may be no descriptor left by then
import signal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ranklaunch.adapters.launchers import started
from ranklaunch.adapters.launchers.shared.base import Launcher
from ranklaunch.env.job import SHELLS, Job
from ranklaunch.env.settings import OUTER_RUN
from ranklaunch.errors import SHORTAGES, ConfigError, MissingProgramError, WaitError, refused
from ranklaunch.files import absolute
from ranklaunch.output.pipe import make_pipe
from ranklaunch.plan.model import Plan, Process
from ranklaunch.showing import clipped
from ranklaunch.supervise.record import bequeath
from ranklaunch.system import tree
from ranklaunch.system.disk import DiskFiles, working_folder
from ranklaunch.system.signals import Signals, block, code_of, name_of, signal_of, unblock
from ranklaunch.verdict.blame import Finish
from ranklaunch.verdict.model import Failure

if TYPE_CHECKING:
    from ranklaunch.output.pipe import PipeReader
    from ranklaunch.processes.child_ranks import Below
    from ranklaunch.processes.pipe_backlog import Unread
    from ranklaunch.supervise.attempt import Attempt

MOST_ADOPTED = 65536
FATAL = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)


@dataclass(frozen=True)
class Daemon:
    """A killed process that carried ranks of another node's launcher, such as Open MPI's orted.

    at: monotonic seconds.
    """

    name: str
    pid: int
    signal: int
    at: float


class Children:
    """Child processes of an attempt.

    env: inherited by all. running: by pid. ended: in the order of their ends. killed: adopted
    processes that a signal ended, by pid, with its name. adopted: wait statuses of adopted
    processes, by pid. daemons: adopted processes that carried ranks.
    """

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
        """Return the ranks of launchers that have ended with 0 by themselves.

        If a launcher kills all remaining ranks then, its ranks are reported at their end, and are not
        included.
        """
        by_files = (child for child in (*self.ended, *self.running.values()) if not (child.announced or child.launcher.kills_ranks))
        return [Finish(node, end.rank, wall(end.ended_at)) for child in by_files if child.below for end in child.below.finished]

    def give(self, own: Mapping[str, str]) -> None:
        """Set ranklaunch's own variables for processes that start from here on."""
        self._own = own

    def require(self, process: Process, job: Job) -> None:
        """Raises MissingProgramError if the process, or a program that it starts, is missing."""
        _, env = self._program(process)
        require_below(process, job, env)

    def start(self, processes: Sequence[Process], role: str, plan: Plan | None = None) -> None:
        """Start all processes, or none if the program of one is missing.

        plan: the plan that has them.
        """
        self._signals.on_child(self._note_deaths)
        for process, (path, env) in [(process, self._program(process)) for process in processes]:
            self._start(process, role, path, env, plan)

    def of(self, roles: Collection[str]) -> list[Child]:
        """Return the running children with one of these roles."""
        return [child for child in self.running.values() if child.role in roles]

    def of_pid(self, pid: int | None) -> Child | None:
        """Return the child with this pid, the last one of several; None without one."""
        children = (*self.running.values(), *reversed(self.ended))
        return next((child for child in children if child.identity.pid == pid), None)

    def remember(self, but: Callable[[tree.Identity], bool] | None = None) -> None:
        """Freeze the output tails: later output does not count.

        but: returns True for an exception.
        """
        for child in self.running.values():
            if child.reader and child.said is None and not (but and but(child.identity)):
                child.said = child.last_words()

    def hear_out(self) -> None:
        """Count the output of ranks that ended by themselves which a filter has passed on since."""
        for child in self.ended:
            if child.reader and child.role == RANK and not child.ended.told:
                child.said = child.last_words()

    def reap(self) -> None:
        """Reap children after SIGCHLD, behind the pidfds of this step: the order of the pidfds is the order of the deaths."""
        if not self._reaping:
            self._reaping = True
            self._loop.after(0, self._reap)

    def _note_deaths(self) -> None:
        """Note the time of each death. Runs in the handler of SIGCHLD: the loop hears of it later.

        Imports and reads hold the loop up, on a busy node for a second, and these times decide which
        of two nodes failed first. One pass may miss a child that dies during the pass before another;
        children with equal times keep the order of their pidfds.
        """
        now = self._loop.clock()
        while self._note(now):
            pass

    def _note(self, now: float) -> bool:
        """Return True if children have died since the last pass."""
        dead = [child for child in self.running.values() if child.died_at is None and _is_dead(child.identity.pid)]
        for child in dead:
            child.died_at = now
        return bool(dead)

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
        child.reader = self._logs.read(readable, sink, partial(self._attempt.on_child_output, child))
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
        """Reap one child. Return True if there was one. which: its pid, -1 for any."""
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
        """Note the name of the next zombie, if it is a killed daemon of ranks, for the verdict."""
        zombie = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if not zombie or zombie.si_pid in self.running or zombie.si_code == os.CLD_EXITED or zombie.si_status not in FATAL:
            return
        names = {name for child in self.of((SERVICE,)) for name in _daemons(child)}
        process = tree.entry(zombie.si_pid) if names else None
        if process and process.name in names:
            self.daemons.append(Daemon(process.name, zombie.si_pid, zombie.si_status, self._loop.clock()))

    def _on_exit(self, pid: int, status: int, max_rss_kb: int) -> None:
        child = self.running.pop(pid, None)
        if child is None:
            if not tree.fetched(pid, status):
                self._note_stranger(pid, status)
            return
        child.end = End(status, child.died_at or self._loop.clock(), max_rss_kb, tuple(child.told))
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


def _is_dead(pid: int) -> bool:
    """Return True for a child that has ended and is not reaped."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


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


# One process: its states, and its launcher's ranks

# What a child is there for. Of these, ranks and launchers (of ranks, or of a whole node) decide on success; steps are run to their end
# before them, services beside them; an experiment is tried: how it ends says nothing of the job.
RANK, LAUNCHER, SERVICE, STEP, EXPERIMENT = "rank", "launcher", "service", "step", "experiment"
DECIDING = (RANK, LAUNCHER)
UNJUDGED = (EXPERIMENT,)
LEADING = (RANK, LAUNCHER, STEP, EXPERIMENT)  # those that are told first when everything is to end
REMIND_SHARE = 0.5  # of the budget, before a launcher that was told to end is told once more
SILENT_S = 5.0  # for one whose ranks are all gone to end itself after a failure, while it only waits
BUSY = "RD"  # states of a process, as /proc has them, that runs or waits for a disk
LONE_S = 2.5  # for a launcher without ranks to end, before it is killed
LOOK_FOR_RANKS_S = 5.0  # between looks at whether a launcher still has ranks


@dataclass(frozen=True)
class End:
    """End of a child.

    status: wait status. at: monotonic seconds. max_rss_kb: peak resident memory, from the kernel's
    accounting. told: signals that were sent before.
    """

    status: int
    at: float
    max_rss_kb: int = 0
    told: tuple[int, ...] = ()

    @property
    def code(self) -> int:
        """Exit code as a shell gives it: 128+N after signal N."""
        return code_of(self.status)

    @property
    def signal(self) -> int:
        """The signal that killed the child, 0 for none."""
        return signal_of(self.status)


@dataclass(frozen=True)
class Success:
    """Success of a node: all its launchers and ranks ended with 0. text: for people. unseen: number of ranks not seen. fewer:
    the reason if the success counts as a failure after all, else "". code: exit code of such a failure."""

    text: str
    unseen: int = 0
    fewer: str = ""
    code: int = ConfigError.exit_code


class Child:
    """Process started by ranklaunch.

    | state | is |
    | --- | --- |
    | lives | `end` is None |
    | held | `held`: a launcher kept by SIGSTOP from ending its ranks |
    | signalled | `told`: the signals; `told_at`: when the first was sent, monotonic seconds |
    | reports a failure | `reported_at`: since when |
    | ends its ranks | `ends_ranks`: announced or seen; `failing`: the other nodes know, and wait for its report |
    | dismissed | `dismissed`: killed after its complete report |
    | has ended | `end` |

    said: output tail frozen at its end or at the stop; later output comes from its orphaned workers. below: its ranks, if
    watched. most_ranks: highest number of ranks seen at one time.
    """

    def __init__(self, process: Process, identity: tree.Identity, role: str, launcher: Launcher | None = None) -> None:
        self.process, self.identity, self.role = process, identity, role
        self.launcher = launcher or Launcher(process, None)
        self.end: End | None = None
        self.died_at: float | None = None  # by the handler of SIGCHLD, monotonic seconds
        self.told: list[int] = []
        self.told_at: float | None = None
        self.sent_at: list[float] = []  # when each of `told` was sent, monotonic seconds
        self.reader: PipeReader | None = None
        self.pidfd = -1
        self.said: bytes | None = None
        self.below: Below | None = None
        self.ends_ranks = self.failing = False
        self.reported_at: float | None = None
        self.most_ranks = 0
        self.held = False
        self.dismissed = False
        self._hears = False

    @property
    def alive(self) -> bool:
        return self.end is None

    @property
    def announced(self) -> Below | None:
        """Return the ranks announced by a launcher at their start; None for a process without announcements."""
        return self.below if self.launcher.STARTS else None

    @property
    def own_pid(self) -> int:
        """Return the pid that the launcher writes of itself; 0 if a template starts it through another program."""
        name = self.process.argv[0].rpartition("/")[2] if self.process.argv else ""
        return self.identity.pid if name.startswith((self.process.name, "python")) else 0

    @property
    def was_killed(self) -> bool:
        """Return True if a signal from outside ended the launcher before it reported a failure."""
        expected = self.told or self.ends_ranks or self.dismissed or self.reported_at is not None
        return bool(self.end and self.end.signal and not expected)

    def is_dead(self) -> bool:
        """Return True for a zombie: a signal sent from now on has nothing to do with its end."""
        try:
            return tree.is_dead(self.identity.pid)
        except ChildProcessError:
            return True

    @property
    def ended(self) -> End:
        """Return the end of a process that has ended."""
        assert self.end
        return self.end

    @property
    def had_said_all(self) -> bool:
        """Return True if later output comes from orphans.

        The output of a launcher counts to its end, with the output of its ranks, unless it was
        killed.
        """
        return self.role == RANK or self.ended.signal == signal.SIGKILL

    @property
    def had_begun_to_tell(self) -> bool:
        """Return True if a failure was reported before the stop: later output belongs to it."""
        return self.reported_at is not None and (self.told_at is None or self.reported_at < self.told_at)

    def says_failing(self, output: bytes) -> bool:
        """Return True if the launcher's output says that it ends its ranks after a failure of one."""
        patterns = self.launcher.ENDS_RANKS
        matches = [match.groupdict() for pattern in patterns for match in re.finditer(pattern.encode(), output, re.MULTILINE)]
        own = str(self.own_pid).encode() if self.own_pid else None
        own_matches = [groups for groups in matches if not own or groups.get("agent") in (None, own)]
        named = {int(groups.get("living") or groups.get("pid") or 0): "living" in groups for groups in own_matches}
        if self.below and named:
            self.below.named.update(named)
            self.below.look()
        return any(map(self.may_have_told, named)) or bool(named and self.may_have_told(None))

    def hear(self, read: Callable[[Child], None]) -> None:
        """Read the launcher's output up to now: one of its ranks was seen to exit before the output was read."""
        if self.launcher.ENDS_RANKS and self.reader and not self._hears:
            self._hears = True
            self.reader.drain()
            read(self)
            self._hears = False

    def reported(self, tail: str) -> Failure | None:
        """Return the rank that its launcher reports in an output.

        If the launcher has ended by itself, the last report counts, also one by another process.
        """
        return self.launcher.report(tail, self.own_pid) or (None if self.told else self.launcher.report(tail))

    def confirmed(self, failure: Failure | None) -> Failure | None:
        """Return the report of a rank, corrected by the state of the ranks below."""
        has_failed = self.ends_ranks or bool(self.end and self.end.code)
        return self.below.confirmed(failure, signalled=bool(self.told), has_failed=has_failed) if self.below else failure

    def has_told_all(self, failure: Failure) -> bool:
        """Return True if the report names a rank of this launcher, or the signal that the launcher itself got."""
        whole = failure.rank is not None or failure.pid == self.identity.pid
        return whole and bool(self.told or self.may_have_told(failure.pid))

    def may_have_told(self, pid: int | None) -> bool:
        """Return False if a reported failure cannot be of this launcher's ranks: a launcher that a rank has started may report its own."""
        return not self.below or self.below.may_have_failed(pid)

    def look_for_report(self, output: bytes, now: float) -> None:
        """Note when the launcher begins to report a failure."""
        pattern = self.launcher.REPORTS
        if pattern and self.reported_at is None and re.search(pattern.encode(), output):
            self.reported_at = now

    def last_words(self) -> bytes:
        """Return the output tail."""
        return self.reader.output.tail if self.reader else b""

    def ranks(self) -> list[tree.Identity]:
        """Return the launcher's ranks that live; every process in their place, if its files do not tell them."""
        if self.launcher.CARRIERS:
            return tree.carried(self.identity.pid, self.launcher.CARRIERS)
        known = self.below.ranks() if self.below else None
        return tree.generation(self.identity.pid, self.launcher.DEPTH) if known is None else known

    def left(self) -> list[tree.Identity]:
        """Return the launcher's ranks that live; while not all are known, every process where ranks are, if only ranks are there."""
        ranks = self.ranks()  # which looks for those that have come since
        known = not self.below or self.below.knows_all or self.below.beside()
        return ranks if known else tree.generation(self.identity.pid, self.launcher.DEPTH)

    def beside(self) -> list[tree.Identity]:
        """Return processes that the launcher has started beside its ranks, as far as its files tell."""
        return self.below.beside() if self.below else []

    def hold(self) -> None:
        """Send SIGSTOP to the launcher and to all between it and its ranks, until go_on()."""
        if self.alive:  # else its pid may be another's by now
            self.held = True
            self._send_down(signal.SIGSTOP)

    def hold_with_ranks(self) -> None:
        """Hold a launcher that would kill its ranks, until these have ended by themselves."""
        if self.alive and self.ranks():
            self.hold()

    def serve(self) -> None:
        """Let a held launcher go on, whose store its ranks may need, unless a rank has failed."""
        if not (self.below and any(rank.code for rank in self.below.ended)):
            self.go_on()

    def go_on(self) -> None:
        if self.held and self.alive:
            if self.below:
                self.below.look()  # before it can make their ends forgotten
            self.held = False
            self._send_down(signal.SIGCONT)

    def wake(self) -> None:
        """Send SIGCONT if somebody else has stopped the process: a stopped process neither forwards signals nor exits."""
        for process in () if self.held else (self.identity, *self.between()):
            wake(process)

    def between(self) -> list[tree.Identity]:
        """Return the processes between a launcher and its ranks."""
        return [each for i in range(1, self.launcher.DEPTH) for each in tree.generation(self.identity.pid, i)]

    def _send_down(self, number: int) -> None:
        tree.send_to_child(self.identity, number)
        for process in self.between():
            tree.send(process, number)

    @property
    def failure_code(self) -> int:
        """Return its exit code; if that is 0 although a rank had failed, the rank's, or 1 if unknown."""
        failed = next((rank.code or 0 for rank in self.announced.failed), 0) if self.announced else 0
        return int(self.dismissed) or self.ended.code or failed or int(self.ends_ranks)

    @property
    def code_of_job(self) -> int:
        """Return the exit code of the job if this was its first failure."""
        return self.failure_code if self.ended.signal else self.process.fails_as or self.failure_code


class Lone:
    """Launchers without ranks. grace_s: seconds of the whole stop."""

    def __init__(self, clock: Callable[[], float], grace_s: float) -> None:
        self._clock = clock
        self._grace_s = grace_s
        self._since: dict[tree.Identity, float] = {}
        self._beside: dict[tree.Identity, list[tree.Identity]] = {}
        self._empty: dict[tree.Identity, tuple[float, float]] = {}  # since when it is, and since when it only waits
        self._told: dict[tree.Identity, tuple[int, float]] = {}  # how often, and when first

    @property
    def waiting(self) -> bool:
        return bool(self._beside)

    def look(self, child: Child) -> bool:
        """Return True if the launcher has no ranks. Wake its ranks: a stopped process does not handle SIGTERM."""
        ranks = child.left()
        for rank in ranks:
            wake(rank)
        if ranks:
            self._since.pop(child.identity, None)
            return False
        if child.identity not in self._since:
            self._since[child.identity] = self._clock()
            self._beside[child.identity] = child.beside()
        return True

    def for_long(self, child: Child) -> bool:
        return self._clock() - self._since.get(child.identity, self._clock()) > LONE_S

    def is_silent(self, child: Child) -> bool:
        """Return True if a launcher has had no child for SILENT_S and only waits. A busy one has the whole grace."""
        now, process = self._clock(), child.identity
        if tree.descendants(process.pid):
            self._empty.pop(process, None)
            return False
        first, waits_since = self._empty.setdefault(process, (now, now))
        if tree.state(process) in BUSY and now - first < self._grace_s:
            self._empty[process] = first, now
            return False
        return now - waits_since > SILENT_S

    def tell(self, process: tree.Identity) -> None:
        """Send SIGTERM, and once more after half of the grace."""
        now = self._clock()
        times, first = self._told.get(process, (0, now))
        if times == 0 or (times == 1 and now - first > self._grace_s * REMIND_SHARE):
            self._told[process] = times + 1, first
            tree.send(process, signal.SIGTERM)

    def end_beside(self) -> None:
        """Kill processes that launchers started beside their ranks, such as a scheduler."""
        for launcher, beside in list(self._beside.items()):
            if launcher in self._since and self._clock() - self._since[launcher] > LONE_S:
                for process in beside:
                    tree.send(process, signal.SIGKILL)
                del self._beside[launcher]


class Spared(NamedTuple):
    """Ranks whose signal is deferred until `until`, or until the ranks in `hearing` have exited."""

    ranks: list[tree.Identity]
    number: int
    hearing: list[tree.Identity]
    until: float


def wake(process: tree.Identity) -> None:
    if tree.state(process) == "T":
        tree.send(process, signal.SIGCONT)


def unread(clock: Callable[[], float]) -> Unread | None:
    """Return the bytes still unread in pipes of filters (tee, sed) that outlived the program.

    None if no descriptor is left.
    """
    try:
        from ranklaunch.processes.pipe_backlog import Unread  # where something is left

        return Unread(clock)
    except (OSError, ImportError):  # no descriptor left
        return None


def note(child: Child, number: int, now: float) -> None:
    """Note a signal to a child, unless the kernel refused it.

    now: monotonic seconds, before it was sent.
    """
    if child.identity not in tree.refused:
        child.told.append(number)
        child.sent_at.append(now)
        child.told_at = child.told_at or now


# The start of a process: its environment, where its program is, and what becomes of the fork

MARK = OUTER_RUN
CANNOT_EXECUTE = 126  # as shells say it
BLANKS = b" \n"
# Options of mpirun by which it looks for programs where this module does not.
_ELSEWHERE = frozenset(f"{dash}{name}" for dash in ("-", "--") for name in ("wd", "wdir", "path"))
# Of open files: what ranks get, whatever ranklaunch needs for itself.
INHERITED_LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)


def environment(process: Process, inherited: Mapping[str, str]) -> dict[str, str]:
    gone = set(process.unset)
    return {**{name: value for name, value in inherited.items() if name not in gone}, **process.env}


def marked(env: Mapping[str, str], job: str, logs: str, attempt: str) -> dict[str, str]:
    """Return an environment with the mark that ranklaunch.supervise.nested reads."""
    own = tree.identify(os.getpid())
    return {**env, MARK: json.dumps([own.pid, own.start, job, logs, attempt])}


def executable(process: Process, env: Mapping[str, str]) -> str:
    """Return the path of the process's program.

    Raises MissingProgramError that names the places looked at.
    """
    hint = f"; {process.comes_with}" if process.comes_with else ""
    path = _found(process.argv[0], process, env, hint)
    _refuse_rival(process, path)
    _refuse_older(process, path)
    _require_others(process, env)
    return path


def require_below(process: Process, job: Job, env: Mapping[str, str]) -> None:
    """Raises MissingProgramError if the user's executable is missing, which ranks are to run.

    The launcher would find out itself, but late, after its imports, and with an exit code of its
    own.
    """
    program = job.program
    own, words = process.argv[: -len(program.words)], process.argv[-len(program.words) :]
    here = bool(job.node.slots) and not job.is_idle and bool(process.behaviour) and not os.path.isabs(process.template)
    if here and words == program.words and not (program.is_python or program.is_shell or _ELSEWHERE & {*own}):
        _found(program.path, process, env, "; it is what the ranks are to run")


def _found(name: str, process: Process, env: Mapping[str, str], hint: str) -> str:
    """Return the path of an executable. hint: end of the message if there is none."""
    folders = [""] if "/" in name else [folder for folder in env.get("PATH", os.defpath).split(":") if folder]
    files = [path for path in (os.path.join(process.cwd or "", folder, name) for folder in folders) if os.path.isfile(path)]
    path = next((path for path in files if os.access(path, os.X_OK)), "")
    if path:
        return path
    if files:
        msg = f"{files[-1]} is not executable (files from object storage lose that mark): chmod +x it, or start it through its interpreter"
        raise MissingProgramError(msg)
    msg = f"{process.name}: {_why_missing(name, process, env, hint)}"
    raise MissingProgramError(msg)


def _why_missing(name: str, process: Process, env: Mapping[str, str], hint: str) -> str:
    if "/" not in name:
        return f"program {name!r} not found on PATH={clipped(env.get('PATH', ''))!r}{hint}"
    path = os.path.join(process.cwd or "", name)
    if _may_not_be_reached(path):
        return f"{name} may not be reached by user id {os.geteuid()}: a folder above it denies that"
    if os.path.isdir(path):
        return f"program {name!r} is a folder"
    return f"program {name!r} not found from {process.cwd or working_folder()}{hint}"


def _may_not_be_reached(path: str) -> bool:
    try:
        os.stat(path)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _require_others(process: Process, env: Mapping[str, str]) -> None:
    """Raises MissingProgramError if a program that the process starts is missing."""
    for name, comes_with in process.needs:
        search = env.get("PATH", os.defpath)
        paths = [os.path.join(process.cwd or "", folder, name) for folder in ([""] if "/" in name else search.split(":"))]
        if not any(os.path.isfile(path) and os.access(path, os.X_OK) for path in paths):
            msg = f"{process.name}: it starts {clipped(name)!r}, which is not found on PATH={clipped(search)!r}; {comes_with}"
            raise MissingProgramError(msg)


def _refuse_rival(process: Process, path: str) -> None:
    """Raises MissingProgramError for another program of the same name.

    A user's template may be for that one.
    """
    if not process.rival or os.path.isabs(process.template):
        return
    name, what = process.rival
    if os.path.basename(os.path.realpath(path)) == name:
        msg = f"{process.name}: {path} is {what}: put the folder of the other first on PATH; {process.comes_with}"
        raise MissingProgramError(msg)


def _refuse_older(process: Process, path: str) -> None:
    """Raises MissingProgramError for a version that is too old, by pip's metadata.

    Nothing is imported; an unknown version is accepted.
    """
    if not process.least:
        return
    from ranklaunch.plan import facts  # few programs have an oldest version

    package, least = process.least
    version = facts.beside(DiskFiles(), absolute(path, working_folder())).get(package, "")
    if version and facts.is_older(version, least):
        msg = f"{process.name}: {package} {version}, to which {path} belongs, is too old: {least} or newer is needed; {process.comes_with}"
        raise MissingProgramError(msg)


def lift_limit(files: int) -> None:
    """Raise the limit of open files for ranklaunch. Ranks get the inherited limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        wanted = soft + files
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def require_program(plan: Plan, root: str = "") -> None:
    """Raises MissingProgramError where the user's program is not there. root: a folder below which the container's files are."""
    program = plan.job.program
    if plan.job.is_idle:
        return
    path = absolute(program.path, working_folder())
    is_file = program.is_python or program.is_shell
    if not program.module and is_file and not os.path.exists(f"{root}{path}" if root else program.path):
        below = f", below {root}" if root else ""
        hint = "; it has a space in it: no quotes stand around a whole command, and in values its arguments are args"
        msg = f"program {program.path!r}: no such file (looked for from {working_folder()}{below}){hint if ' ' in program.path else ''}"
        raise MissingProgramError(msg)


def start(process: Process, path: str, env: dict[str, str], output: int, signals: Signals, *, repeats: bool = False) -> tree.Identity:
    """Fork and execute.

    output: pipe end for stdout and stderr; the caller closes it. repeats: stdout is thrown away.
    """
    parent = os.getpid()
    block()  # until the child has its own handlers, a signal to it would be written into our pipe
    try:
        pid = os.fork()
        if pid == 0:
            _become(process, path, env, output, signals, parent, repeats)
    finally:
        unblock()
    return tree.identify(pid)


def _why(path: str, error: BaseException) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOENT, errno.EACCES):
        return hindrance(path) or str(error)
    first = _first_line(path) if number == errno.ENOEXEC else b""
    return str(error) if not first or first.startswith(b"\x7fELF") else "its first line does not say what runs it, such as #!/bin/sh"


def hindrance(path: str) -> str:
    """Return the reason why the kernel would refuse an executable script, "" for none.

    The interpreter in its first line is missing, or not for this user: its environment was moved or
    made by root.
    """
    first = _first_line(path)
    named = first[2:].strip(BLANKS)
    interpreter = os.fsdecode(re.split(rb"[ \t]", named)[0])
    if not first.startswith(b"#!") or not os.path.isabs(interpreter) or os.access(interpreter, os.X_OK):
        return ""
    if not os.path.exists(interpreter) and not _may_not_be_reached(interpreter):
        # Quoted, so that the carriage return of a file from Windows is seen.
        return f"its first line names an interpreter that is not there: {os.fsdecode(named)!r}"
    return f"its first line names an interpreter that user id {os.geteuid()} may not execute: {os.fsdecode(named)!r}"


def _first_line(path: str) -> bytes:
    """Return the first line of a file, b"" if it may only be executed."""
    try:
        with open(path, "rb") as file:
            return file.readline(256) or b"\n"
    except OSError:
        return b""


def _become(process: Process, path: str, env: dict[str, str], output: int, signals: Signals, parent: int, repeats: bool) -> None:
    """In the child: become the program. Never returns."""
    code = ConfigError.exit_code
    try:
        os.dup2(output, 2)  # first, so that what fails after it is in this process's log
        os.setpgid(0, 0)
        tree.die_with_parent()
        if os.getppid() != parent:  # it died before the line above
            os._exit(CANNOT_EXECUTE)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY) if repeats else output, 1)
        if process.cwd:
            os.chdir(process.cwd)
        signals.to_default()
        resource.setrlimit(resource.RLIMIT_NOFILE, INHERITED_LIMIT)
        unblock()
        code = CANNOT_EXECUTE
        os.execve(path, process.argv, env)
    except BaseException as error:
        code, text = _failed(path, error, code)
        os.write(2, f"ranklaunch: {text}\n".encode(errors="backslashreplace"))
    finally:
        os._exit(code)


def _failed(path: str, error: BaseException, code: int) -> tuple[int, str]:
    """Return exit code and message of a child that did not become its program.

    code: exit code for all errors but a shortage.
    """
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SHORTAGES):
        return WaitError.exit_code, str(refused(error, f" to start {path}"))
    if code == CANNOT_EXECUTE:
        return code, f"cannot execute {path}: {_why(path, error)}"
    return code, f"cannot start {path}: {error}"
