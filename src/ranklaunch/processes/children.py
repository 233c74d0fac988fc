"""Child processes of ranklaunch: start, states, end."""

from __future__ import annotations

import errno
import json
import os
import re
import resource  # also for os.wait4, which imports it at its first call: no descriptor may be left by then
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
    from ranklaunch.processes.pipe_backlog import PipeBacklog
    from ranklaunch.supervise.attempt import Attempt

MOST_ADOPTED = 65536
FATAL = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)


@dataclass(frozen=True)
class Daemon:
    """Killed process that carried ranks of another node's launcher, such as Open MPI's orted.

    at: monotonic seconds.
    """

    name: str
    pid: int
    signal: int
    at: float


class Children:
    """Child processes of an attempt.

    env: environment that all inherit. running: living children, by pid. ended: ended children, in the order of their ends. killed: name of
    the signal that ended an adopted process, by pid. adopted: wait statuses of adopted processes, by pid. daemons: killed daemons that
    carried ranks.
    """

    def __init__(self, attempt: Attempt, env: Mapping[str, str], signals: Signals) -> None:
        self.running: dict[int, Child] = {}
        self.ended: list[Child] = []
        self.killed: dict[int, str] = {}
        self.adopted: dict[int, int] = {}
        self.daemons: list[Daemon] = []
        self._attempt = attempt
        self.env = env
        self._variables: Mapping[str, str] = {}
        self._signals = signals
        self._loop = attempt.loop
        self._logs = attempt.logs
        self._reaping = False

    def finished(self, node: int, wall: Callable[[float], float]) -> list[Finish]:
        """Return the launchers' ranks that have ended with 0 by themselves.

        Not included: announced ranks, and ranks of a launcher that kills its remaining ranks. Both are reported at their end.
        """
        by_files = (child for child in (*self.ended, *self.running.values()) if not (child.announced or child.launcher.kills_ranks))
        return [Finish(node, end.rank, wall(end.ended_at)) for child in by_files if child.below for end in child.below.finished]

    def set_variables(self, variables: Mapping[str, str]) -> None:
        """Set ranklaunch's own variables for the processes started from now on."""
        self._variables = variables

    def require(self, process: Process, job: Job) -> None:
        """Check that the programs of a process are there. Raises MissingProgramError if its own, or one that it starts, is missing."""
        _, env = self._program(process)
        require_below(process, job, env)

    def start(self, processes: Sequence[Process], role: str, plan: Plan | None = None) -> None:
        """Start all processes, or none if the program of one is missing.

        plan: the plan of the processes; None for steps, which have no launcher class.
        """
        self._signals.on_child(self._note_deaths)
        for process, (path, env) in [(process, self._program(process)) for process in processes]:
            self._start(process, role, path, env, plan)

    def of(self, roles: Collection[str]) -> list[Child]:
        """Return the running children with one of these roles."""
        return [child for child in self.running.values() if child.role in roles]

    def of_pid(self, pid: int | None) -> Child | None:
        """Return the newest child with this pid, None without one."""
        children = (*self.running.values(), *reversed(self.ended))
        return next((child for child in children if child.identity.pid == pid), None)

    def remember(self, but: Callable[[tree.Identity], bool] | None = None) -> None:
        """Freeze the output tails of running children: later output does not count.

        but: returns True for a child whose output still counts.
        """
        for child in self.running.values():
            if child.reader and child.said is None and not (but and but(child.identity)):
                child.said = child.last_words()

    def take_filtered_output(self) -> None:
        """Refresh the output tails of ranks that ended by themselves: a filter (tee, sed) may have passed on more since."""
        for child in self.ended:
            if child.reader and child.role == RANK and not child.ended.told:
                child.said = child.last_words()

    def reap(self) -> None:
        """Reap children after SIGCHLD, once the pidfds of this step are handled: their order is the order of the deaths."""
        if not self._reaping:
            self._reaping = True
            self._loop.after(0, self._reap)

    def _note_deaths(self) -> None:
        """Note the time of each death, in the handler of SIGCHLD.

        The loop may be busy for up to a second with imports and reads, and these times decide which of two nodes failed first. One
        pass may miss a child that dies before another one. Children with equal times keep the order of their pidfds.
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
        env = {**environment(process, self.env), **self._variables}
        return executable(process, env), env

    def _start(self, process: Process, role: str, path: str, env: dict[str, str], plan: Plan | None) -> None:
        launcher = started(process, plan) if plan else None
        on_each_node = launcher.ON_EACH_NODE if launcher else ""
        sink = self._logs.sink(process, plan.outputs if plan and role in DECIDING else None, on_each_node)
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
        """Reap every child that has ended. Most are adopted orphans."""
        self._reaping = False
        while self._reap_one(-1):
            pass

    def _reap_one(self, wanted: int) -> bool:
        """Reap one child. Return True if there was one. wanted: pid of the child, -1 for any."""
        try:
            if wanted < 0:
                self._look_at_next()
            pid, status, usage = os.wait4(wanted, os.WNOHANG)
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
                self._note_adopted(pid, status)
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

    def _note_adopted(self, pid: int, status: int) -> None:
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
    """Return the names of daemons that a service starts for ranks of other nodes, without shells and the service itself."""
    service_name = os.path.basename(service.process.argv[0])
    return (name for name in service.launcher.CARRIERS if name not in SHELLS and not name.startswith(service_name))


def _pidfd(pid: int) -> int:
    """Return a pidfd; -1 if this system has none, or no descriptor is left."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


# One process: its states, and the ranks of a launcher

# Roles of a child. Ranks and launchers (of ranks, or of a whole node) decide on success. Steps run to their end before these, services
# beside them. The end of an experiment does not decide about the job.
RANK, LAUNCHER, SERVICE, STEP, EXPERIMENT = "rank", "launcher", "service", "step", "experiment"
DECIDING = (RANK, LAUNCHER)
UNJUDGED = (EXPERIMENT,)
LEADING = (RANK, LAUNCHER, STEP, EXPERIMENT)  # roles that are signalled first in a stop
REMIND_SHARE = 0.5  # share of the grace before a launcher gets its SIGTERM once more
SILENT_S = 5.0  # for a launcher without ranks to end after a failure, while it only waits
BUSY = "RD"  # /proc states of a process that runs or waits for a disk
LONE_S = 2.5  # for a launcher without ranks to end, before it is killed
LOOK_FOR_RANKS_S = 5.0  # between two looks for ranks of a launcher


@dataclass(frozen=True)
class End:
    """End of a child.

    status: wait status. at: monotonic seconds. max_rss_kb: peak resident memory, from the kernel's
    accounting. told: signals that ranklaunch sent before the end.
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
        """Signal that killed the child, 0 for none."""
        return signal_of(self.status)


@dataclass(frozen=True)
class Success:
    """Success of a node: all its launchers and ranks ended with 0.

    text: description for the verdict. unseen: number of planned ranks that were not seen. fewer: reason if the success counts as a
    failure after all, else "". code: exit code of such a failure.
    """

    text: str
    unseen: int = 0
    fewer: str = ""
    code: int = ConfigError.exit_code


class Child:
    """Process started by ranklaunch.

    | state | attributes |
    | --- | --- |
    | lives | `end` is None |
    | held | `held`: a launcher is kept by SIGSTOP from ending its ranks |
    | signalled | `told`: signals sent; `told_at`: time of the first one, monotonic seconds |
    | reports a failure | `reported_at`: begin of the report |
    | ends its ranks | `ends_ranks`: announced or seen; `failing`: the other nodes know, and wait for its report |
    | dismissed | `dismissed`: killed after its complete report |
    | has ended | `end` |

    said: output tail, frozen at its end or at the stop; later output comes from its orphaned workers. below: its ranks, if
    watched. most_ranks: highest number of ranks seen at one time.
    """

    def __init__(self, process: Process, identity: tree.Identity, role: str, launcher: Launcher | None = None) -> None:
        self.process, self.identity, self.role = process, identity, role
        self.launcher = launcher or Launcher(process, None)
        self.end: End | None = None
        self.died_at: float | None = None  # noted by the handler of SIGCHLD, monotonic seconds
        self.told: list[int] = []
        self.told_at: float | None = None
        self.sent_at: list[float] = []  # time of each signal in `told`, monotonic seconds
        self.reader: PipeReader | None = None
        self.pidfd = -1
        self.said: bytes | None = None
        self.below: Below | None = None
        self.ends_ranks = self.failing = False
        self.reported_at: float | None = None
        self.most_ranks = 0
        self.held = False
        self.dismissed = False
        self._is_hearing = False

    @property
    def alive(self) -> bool:
        return self.end is None

    @property
    def announced(self) -> Below | None:
        """Ranks announced by a launcher at their start; None for a process without announcements."""
        return self.below if self.launcher.STARTS else None

    @property
    def own_pid(self) -> int:
        """Pid by which the launcher names itself in its output; 0 if a template starts it through another program."""
        name = self.process.argv[0].rpartition("/")[2] if self.process.argv else ""
        return self.identity.pid if name.startswith((self.process.name, "python")) else 0

    @property
    def was_killed(self) -> bool:
        """True if a signal from outside ended the launcher before it reported a failure."""
        expected = self.told or self.ends_ranks or self.dismissed or self.reported_at is not None
        return bool(self.end and self.end.signal and not expected)

    def is_dead(self) -> bool:
        """Return True for a zombie: a signal sent from now on is not the cause of its end."""
        try:
            return tree.is_dead(self.identity.pid)
        except ChildProcessError:
            return True

    @property
    def ended(self) -> End:
        """End of a process that has ended."""
        assert self.end
        return self.end

    @property
    def had_said_all(self) -> bool:
        """True if output after the end of this process comes from its orphans only.

        Output in a launcher's pipe counts to the end of its ranks, unless the launcher was killed.
        """
        return self.role == RANK or self.ended.signal == signal.SIGKILL

    @property
    def had_begun_to_tell(self) -> bool:
        """True if a failure was reported before the stop: later output belongs to this report."""
        return self.reported_at is not None and (self.told_at is None or self.reported_at < self.told_at)

    def says_failing(self, output: bytes) -> bool:
        """Return True if the launcher's output announces the end of its ranks after the failure of one."""
        patterns = self.launcher.ENDS_RANKS
        matches = [match.groupdict() for pattern in patterns for match in re.finditer(pattern.encode(), output, re.MULTILINE)]
        own_pid = str(self.own_pid).encode() if self.own_pid else None
        own_matches = [groups for groups in matches if not own_pid or groups.get("agent") in (None, own_pid)]
        named = {int(groups.get("living") or groups.get("pid") or 0): "living" in groups for groups in own_matches}
        if self.below and named:
            self.below.named.update(named)
            self.below.look()
        return any(map(self.may_concern, named)) or bool(named and self.may_concern(None))

    def hear(self, read: Callable[[Child], None]) -> None:
        """Read the launcher's output up to now: the end of a rank was noticed before the launcher's output about it."""
        if self.launcher.ENDS_RANKS and self.reader and not self._is_hearing:
            self._is_hearing = True
            self.reader.drain()
            read(self)
            self._is_hearing = False

    def reported(self, tail: str) -> Failure | None:
        """Return the failed rank that the launcher reports in an output.

        If the launcher was not signalled, the last report of another process counts too.
        """
        return self.launcher.report(tail, self.own_pid) or (None if self.told else self.launcher.report(tail))

    def confirmed(self, failure: Failure | None) -> Failure | None:
        """Return the launcher's report, corrected by the state of its ranks."""
        has_failed = self.ends_ranks or bool(self.end and self.end.code)
        return self.below.confirmed(failure, signalled=bool(self.told), has_failed=has_failed) if self.below else failure

    def has_told_all(self, failure: Failure) -> bool:
        """Return True if the report names a rank of this launcher, or the signal that the launcher itself got."""
        whole = failure.rank is not None or failure.pid == self.identity.pid
        return whole and bool(self.told or self.may_concern(failure.pid))

    def may_concern(self, pid: int | None) -> bool:
        """Return False if a reported failure cannot be of this launcher's ranks: a launcher started by a rank may report its own ranks."""
        return not self.below or self.below.may_have_failed(pid)

    def look_for_report(self, output: bytes, now: float) -> None:
        """Note the time at which the launcher begins to report a failure."""
        pattern = self.launcher.REPORTS
        if pattern and self.reported_at is None and re.search(pattern.encode(), output):
            self.reported_at = now

    def last_words(self) -> bytes:
        """Return the output tail."""
        return self.reader.output.tail if self.reader else b""

    def ranks(self) -> list[tree.Identity]:
        """Return the launcher's living ranks; if output files do not identify them, all processes at the depth of ranks."""
        if self.launcher.CARRIERS:
            return tree.carried(self.identity.pid, self.launcher.CARRIERS)
        known = self.below.ranks() if self.below else None
        return tree.generation(self.identity.pid, self.launcher.DEPTH) if known is None else known

    def left(self) -> list[tree.Identity]:
        """Return the launcher's living ranks; while not all are known, all processes at the depth of ranks, unless the launcher started
        other processes there too."""
        ranks = self.ranks()  # also finds new ranks
        known = not self.below or self.below.knows_all or self.below.beside()
        return ranks if known else tree.generation(self.identity.pid, self.launcher.DEPTH)

    def beside(self) -> list[tree.Identity]:
        """Return the processes that the launcher has started beside its ranks, as far as output files identify them."""
        return self.below.beside() if self.below else []

    def hold(self) -> None:
        """Send SIGSTOP to the launcher and to all processes between it and its ranks, until go_on()."""
        if self.alive:  # after its end, another process may have the pid
            self.held = True
            self._send_down(signal.SIGSTOP)

    def hold_with_ranks(self) -> None:
        """Hold a launcher that would kill its ranks, until its ranks have ended by themselves."""
        if self.alive and self.ranks():
            self.hold()

    def serve(self) -> None:
        """Continue a held launcher unless a rank has failed: the ranks may need its store."""
        if not (self.below and any(rank.code for rank in self.below.ended)):
            self.go_on()

    def go_on(self) -> None:
        if self.held and self.alive:
            if self.below:
                self.below.look()  # before the launcher reaps the ranks, which would lose their exit statuses
            self.held = False
            self._send_down(signal.SIGCONT)

    def wake(self) -> None:
        """Send SIGCONT if the process was stopped from outside: a stopped process neither forwards signals nor exits."""
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
        """Exit code of the child; if this is 0 although a rank had failed, the exit code of the rank, or 1 if unknown."""
        failed = next((rank.code or 0 for rank in self.announced.failed), 0) if self.announced else 0
        return int(self.dismissed) or self.ended.code or failed or int(self.ends_ranks)

    @property
    def code_of_job(self) -> int:
        """Exit code of the job if this child is the first failure."""
        return self.failure_code if self.ended.signal else self.process.fails_as or self.failure_code


class Lone:
    """Launchers without ranks. grace_s: seconds for the whole stop."""

    def __init__(self, clock: Callable[[], float], grace_s: float) -> None:
        self._clock = clock
        self._grace_s = grace_s
        self._since: dict[tree.Identity, float] = {}
        self._beside: dict[tree.Identity, list[tree.Identity]] = {}
        self._empty: dict[tree.Identity, tuple[float, float]] = {}  # a launcher without children: since when, and since when it only waits
        self._sent: dict[tree.Identity, tuple[int, float]] = {}  # number of SIGTERMs, and time of the first

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
        """Return True if a launcher has had no child for SILENT_S and only waits. A busy launcher has the whole grace."""
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
        """Send SIGTERM at the first call, and once more after half of the grace."""
        now = self._clock()
        times, first = self._sent.get(process, (0, now))
        if times == 0 or (times == 1 and now - first > self._grace_s * REMIND_SHARE):
            self._sent[process] = times + 1, first
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


def watch_backlog(clock: Callable[[], float]) -> PipeBacklog | None:
    """Return a watch over unread output in pipes of filters (tee, sed) that outlived the program.

    None if no descriptor is left.
    """
    try:
        from ranklaunch.processes.pipe_backlog import PipeBacklog  # few programs leave filters behind

        return PipeBacklog(clock)
    except (OSError, ImportError):  # no descriptor left
        return None


def note(child: Child, number: int, now: float) -> None:
    """Note a signal that was sent to a child, unless the kernel refused it.

    now: monotonic seconds just before it was sent.
    """
    if child.identity not in tree.refused:
        child.told.append(number)
        child.sent_at.append(now)
        child.told_at = child.told_at or now


# The start of a process: environment, search for the program, fork

MARK = OUTER_RUN
CANNOT_EXECUTE = 126  # as in shells
BLANKS = b" \n"
# Options of mpirun that change where mpirun looks for programs.
_ELSEWHERE = frozenset(f"{dash}{name}" for dash in ("-", "--") for name in ("wd", "wdir", "path"))
# Limits of open files for ranks; ranklaunch raises its own.
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

    Raises MissingProgramError, which names the searched places.
    """
    hint = f"; {process.comes_with}" if process.comes_with else ""
    path = _path_of(process.argv[0], process, env, hint)
    _refuse_rival(process, path)
    _refuse_older(process, path)
    _require_others(process, env)
    return path


def require_below(process: Process, job: Job, env: Mapping[str, str]) -> None:
    """Check that the user's executable for the ranks is there. Raises MissingProgramError.

    The launcher itself would report a missing one late, after its imports, and with an exit code of its own.
    """
    program = job.program
    options, words = process.argv[: -len(program.words)], process.argv[-len(program.words) :]
    here = bool(job.node.slots) and not job.is_idle and bool(process.behaviour) and not os.path.isabs(process.template)
    if here and words == program.words and not (program.is_python or program.is_shell or _ELSEWHERE & {*options}):
        _path_of(program.path, process, env, "; all ranks run this program")


def _path_of(name: str, process: Process, env: Mapping[str, str], hint: str) -> str:
    """Return the path of an executable. hint: end of the message if there is none."""
    folders = [""] if "/" in name else [folder for folder in env.get("PATH", os.defpath).split(":") if folder]
    files = [path for path in (os.path.join(process.cwd or "", folder, name) for folder in folders) if os.path.isfile(path)]
    path = next((path for path in files if os.access(path, os.X_OK)), "")
    if path:
        return path
    if files:
        msg = f"{files[-1]} is not executable (object storage drops this permission); chmod +x it, or start it through its interpreter"
        raise MissingProgramError(msg)
    msg = f"{process.name}: {_why_missing(name, process, env, hint)}"
    raise MissingProgramError(msg)


def _why_missing(name: str, process: Process, env: Mapping[str, str], hint: str) -> str:
    if "/" not in name:
        return f"program {name!r} not found on PATH={clipped(env.get('PATH', ''))!r}{hint}"
    path = os.path.join(process.cwd or "", name)
    if _is_inaccessible(path):
        return f"{name} cannot be accessed by user id {os.geteuid()}: a folder above it denies access"
    if os.path.isdir(path):
        return f"program {name!r} is a folder"
    return f"program {name!r} not found from {process.cwd or working_folder()}{hint}"


def _is_inaccessible(path: str) -> bool:
    try:
        os.stat(path)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _require_others(process: Process, env: Mapping[str, str]) -> None:
    """Check the programs that a process starts. Raises MissingProgramError if one is missing."""
    for name, comes_with in process.needs:
        search = env.get("PATH", os.defpath)
        paths = [os.path.join(process.cwd or "", folder, name) for folder in ([""] if "/" in name else search.split(":"))]
        if not any(os.path.isfile(path) and os.access(path, os.X_OK) for path in paths):
            msg = f"{process.name}: it starts {clipped(name)!r}, which is not found on PATH={clipped(search)!r}; {comes_with}"
            raise MissingProgramError(msg)


def _refuse_rival(process: Process, path: str) -> None:
    """Refuse another program of the same name. Raises MissingProgramError.

    Not with a user's template, which may be for this other program.
    """
    if not process.rival or os.path.isabs(process.template):
        return
    name, what = process.rival
    if os.path.basename(os.path.realpath(path)) == name:
        msg = f"{process.name}: {path} is {what}; put the folder of the right program first on PATH; {process.comes_with}"
        raise MissingProgramError(msg)


def _refuse_older(process: Process, path: str) -> None:
    """Refuse a version that is too old, by pip's metadata. Raises MissingProgramError.

    Nothing is imported; an unknown version is accepted.
    """
    if not process.least:
        return
    from ranklaunch.plan import facts  # few programs need a minimum version

    package, least = process.least
    version = facts.beside(DiskFiles(), absolute(path, working_folder())).get(package, "")
    if version and facts.is_older(version, least):
        msg = f"{process.name}: {path} is of {package} {version}, which is too old: {least} or newer is needed; {process.comes_with}"
        raise MissingProgramError(msg)


def lift_limit(files: int) -> None:
    """Raise the limit of open files for ranklaunch. Ranks get the inherited limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        wanted = soft + files
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def require_program(plan: Plan, root: str = "") -> None:
    """Check that the user's program is there. Raises MissingProgramError. root: folder with the container's files, "" for /."""
    program = plan.job.program
    if plan.job.is_idle:
        return
    path = absolute(program.path, working_folder())
    is_file = program.is_python or program.is_shell
    if not program.module and is_file and not os.path.exists(f"{root}{path}" if root else program.path):
        below = f", below {root}" if root else ""
        hint = "; the name contains a space: do not quote a whole command, and write arguments in chart values as args"
        msg = f"program {program.path!r}: no such file (looked for from {working_folder()}{below}){hint if ' ' in program.path else ''}"
        raise MissingProgramError(msg)


def start(process: Process, path: str, env: dict[str, str], output: int, signals: Signals, *, repeats: bool = False) -> tree.Identity:
    """Fork and execute.

    output: pipe end for stdout and stderr; the caller closes it. repeats: True to discard stdout.
    """
    parent = os.getpid()
    block()  # until the child has its own handlers, a signal to the child would be written into our pipe
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

    The interpreter in its first line is missing, or this user may not execute it: the Python environment was
    moved, or made by root.
    """
    first = _first_line(path)
    named = first[2:].strip(BLANKS)
    interpreter = os.fsdecode(re.split(rb"[ \t]", named)[0])
    if not first.startswith(b"#!") or not os.path.isabs(interpreter) or os.access(interpreter, os.X_OK):
        return ""
    if not os.path.exists(interpreter) and not _is_inaccessible(interpreter):
        # Quoted, to show the carriage return of a file from Windows.
        return f"its first line names an interpreter that is not there: {os.fsdecode(named)!r}"
    return f"its first line names an interpreter that user id {os.geteuid()} may not execute: {os.fsdecode(named)!r}"


def _first_line(path: str) -> bytes:
    """Return the first line of a file, b"" if the file cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.readline(256) or b"\n"
    except OSError:
        return b""


def _become(process: Process, path: str, env: dict[str, str], output: int, signals: Signals, parent: int, repeats: bool) -> None:
    """Execute the program, in the forked child. Never returns."""
    code = ConfigError.exit_code
    try:
        os.dup2(output, 2)  # first, so that later errors are in this process's log
        os.setpgid(0, 0)
        tree.die_with_parent()
        if os.getppid() != parent:  # the parent died before die_with_parent()
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
    """Return exit code and message of a child that could not execute its program.

    code: exit code for all errors except a shortage.
    """
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SHORTAGES):
        return WaitError.exit_code, str(refused(error, f" to start {path}"))
    if code == CANNOT_EXECUTE:
        return code, f"cannot execute {path}: {_why(path, error)}"
    return code, f"cannot start {path}: {error}"
