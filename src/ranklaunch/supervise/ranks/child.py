"""A started process: what is known of it while it lives, and how it ended."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Collection
from types import ModuleType

from ranklaunch.adapters.launchers.shared.launcher import Launcher
from ranklaunch.errors import ConfigError
from ranklaunch.plan.model import Process
from ranklaunch.system import tree
from ranklaunch.system.hearing import Hearing
from ranklaunch.system.signals import code_of, signal_of
from ranklaunch.typed import TYPE_CHECKING, NamedTuple
from ranklaunch.values import Value
from ranklaunch.verdict.model import Failure

if TYPE_CHECKING:
    from ranklaunch.supervise.output.pipe import PipeReader
    from ranklaunch.supervise.ranks.below import Below, Watched
    from ranklaunch.supervise.ranks.unread import Unread

# What a child is there for. Of these, ranks and launchers (of ranks, or of a whole node) decide on success; steps are run to their end
# before them, services beside them; an experiment is tried: how it ends says nothing of the job.
RANK, LAUNCHER, SERVICE, STEP, EXPERIMENT = "rank", "launcher", "service", "step", "experiment"
DECIDING = (RANK, LAUNCHER)
UNJUDGED = (EXPERIMENT,)
LEADING = (RANK, LAUNCHER, STEP, EXPERIMENT)  # those that are told first when everything is to end
TELLS_S = 1.0  # that a launcher takes at most to act on a failure that it has seen
REMIND_SHARE = 0.5  # of the budget, before a launcher that was told to end is told once more
SILENT_S = 5.0  # for one whose ranks are all gone to end itself after a failure, while it only waits
BUSY = "RD"  # states of a process, as /proc has them, that runs or waits for a disk
LONE_S = 2.5  # for a launcher without ranks to end, before it is killed
LOOK_FOR_RANKS_S = 5.0  # between looks at whether a launcher still has ranks


class End(Value):
    """How a child ended. status: its wait status. at: monotonic seconds. max_rss_kb: its peak resident memory, from the kernel's
    accounting. told: the signals that it had been sent by then."""

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
        """The signal that killed it, 0 when none did."""
        return signal_of(self.status)


class Success(Value):
    """Of a node's launchers and ranks, all of which ended with 0. text: what is said of it. unseen: ranks that are not known to have run.
    fewer: why it is none after all, "" where it is one. code: of the exit then."""

    text: str
    unseen: int = 0
    fewer: str = ""
    code: int = ConfigError.exit_code


class Child:
    """A process that ranklaunch has started.

    | state | is |
    | --- | --- |
    | lives | `end` is None |
    | held | `held`: a launcher that SIGSTOP keeps from ending its ranks |
    | signalled | `told`: the signals; `told_at`: when the first was sent, monotonic seconds |
    | reports a failure | `reported_at`: since when |
    | ends its ranks | `ends_ranks`: it says so, or was seen to; `failing`: the other nodes know, and wait for its report |
    | dismissed | `dismissed`: it had reported all, and was killed then |
    | has ended | `end` |

    said: output tail frozen at its end or at the stop; later output comes from its orphaned workers. below: the ranks that it has started,
    where they are watched. most_ranks: how many it was seen to have at one time.
    """

    def __init__(self, process: Process, identity: tree.Identity, role: str, launcher: Launcher | None = None) -> None:
        self.process, self.identity, self.role = process, identity, role
        self.launcher = launcher or Launcher(process, None)
        self.end: End | None = None
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
        """Its ranks, where it announces them as it starts them."""
        return self.below if self.launcher.STARTS else None

    @property
    def pids_of_ranks(self) -> Collection[int]:
        """Of a launcher: of those that it has named as it started them."""
        return self.announced.pids if self.announced else ()

    @property
    def own_pid(self) -> int:
        """Of a launcher, the pid that it writes of itself; 0 where a template has something else start it."""
        name = self.process.argv[0].rpartition("/")[2] if self.process.argv else ""
        return self.identity.pid if name.startswith((self.process.name, "python")) else 0

    @property
    def was_killed(self) -> bool:
        """Of a launcher: whether a signal has ended it that it knew nothing of, before it had told of a failure."""
        told = self.told or self.ends_ranks or self.dismissed or self.reported_at is not None
        return bool(self.end and self.end.signal and not told)

    def is_dead(self) -> bool:
        """Whether it is, and only waits to be reaped: what it is sent from here on has nothing to do with its end."""
        try:
            return tree.is_dead(self.identity.pid)
        except ChildProcessError:
            return True

    @property
    def ended(self) -> End:
        """Its end, of one that has ended."""
        assert self.end
        return self.end

    @property
    def had_said_all(self) -> bool:
        """Of one that has ended: what comes behind it is of what it has left. A launcher's own output counts to its end, with what its
        ranks wrote into it, unless it was killed."""
        return self.role == RANK or self.ended.signal == signal.SIGKILL

    def had_taken(self, rank: Watched) -> bool:
        """Of a launcher: whether it had fetched the end of a rank well before it was told to end, and has not called that a failure."""
        return rank.status is None and rank.by_itself and self.told_at is not None and rank.ended_at < self.told_at - TELLS_S

    @property
    def tells_of_ranks(self) -> bool:
        """Of a launcher that was told to end: whether what it had said by then counts. After a failure it says that it ends the others, and
        of a lone rank only how that ended."""
        return self.ends_ranks or self.had_begun_to_tell or bool(self.launcher.ENDS_RANKS and self.said is not None)

    @property
    def had_begun_to_tell(self) -> bool:
        """Of a failure, when it was told to end: what it writes then is about that failure too."""
        return self.reported_at is not None and (self.told_at is None or self.reported_at < self.told_at)

    def says_failing(self, said: bytes) -> bool:
        """Of a launcher, in what it has written by now: whether it ends its ranks after a failure of one."""
        patterns = self.launcher.ENDS_RANKS
        matches = [match.groupdict() for pattern in patterns for match in re.finditer(pattern.encode(), said, re.MULTILINE)]
        own = str(self.own_pid).encode() if self.own_pid else None
        found = [groups for groups in matches if not own or groups.get("agent") in (None, own)]
        named = {int(groups.get("living") or groups.get("pid") or 0): "living" in groups for groups in found}
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
        """Return the rank that its launcher reports in this output. Of one that has ended by itself the last report counts, whoever has
        written it."""
        return self.launcher.report(tail, self.own_pid) or (None if self.told else self.launcher.report(tail))

    def confirmed(self, failure: Failure | None) -> Failure | None:
        """Return what a launcher reports of a rank, by what was seen of its ranks."""
        has_failed = self.ends_ranks or bool(self.end and self.end.code)
        return self.below.confirmed(failure, signalled=bool(self.told), has_failed=has_failed) if self.below else failure

    def has_told_all(self, failure: Failure) -> bool:
        """Of a launcher that has ended its ranks: which rank of its own had failed, or that it was told to end."""
        whole = failure.rank is not None or failure.pid == self.identity.pid
        return whole and bool(self.told or self.may_have_told(failure.pid))

    def may_have_told(self, pid: int | None) -> bool:
        """Of a launcher: that a rank of it has failed, this one where a pid is known, and no launcher that one of its ranks has started."""
        return not self.below or self.below.may_have_failed(pid)

    def look_for_report(self, said: bytes, now: float) -> None:
        """Of a launcher, in what it has written by now."""
        pattern = self.launcher.REPORTS
        if pattern and self.reported_at is None and re.search(pattern.encode(), said):
            self.reported_at = now

    def ended_at_of(self, rank: int | None) -> float:
        """When a rank ended of a launcher that was told to end, where that was seen; else when the process itself began to tell of it, or
        ended."""
        ranks = self.below.ended if self.below and self.ended.told and not self.announced else ()
        return next((each.ended_at for each in ranks if each.rank == rank), self.reported_at or self.ended.at)

    def last_words(self) -> bytes:
        """The last that it has written; where an exception may have ended it, with which Python ends with 1, in the order in which it was
        said."""
        output = self.reader.output if self.reader else None
        if not output:
            return b""
        return output.settled(ended=bool(self.end)) if not self.end or self.end.code == 1 else output.tail

    def ranks(self) -> list[tree.Identity]:
        """Of a launcher: those that live. Where its files do not tell them, whoever is where they are."""
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
        """Of a launcher: what it has started that is no rank, as far as its files tell."""
        return self.below.beside() if self.below else []

    def hold(self) -> None:
        """Until go_on(): it does nothing by itself, nor does who stands between it and its ranks."""
        if self.alive:  # else its pid may be another's by now
            self.held = True
            self._send_down(signal.SIGSTOP)

    def hold_with_ranks(self) -> None:
        """A launcher that would kill its ranks, until they have ended by themselves."""
        if self.alive and self.ranks():
            self.hold()

    def serve(self) -> None:
        """Goes on, for its ranks may need its store; unless one has failed, for which it would end the others."""
        if not (self.below and any(rank.code for rank in self.below.ended)):
            self.go_on()

    def go_on(self) -> None:
        if self.held and self.alive:
            if self.below:
                self.below.look()  # before it can make their ends forgotten
            self.held = False
            self._send_down(signal.SIGCONT)

    def wake(self) -> None:
        """What somebody else has stopped passes nothing on, and ends nothing."""
        for process in () if self.held else (self.identity, *self.between()):
            wake(process)

    def between(self) -> list[tree.Identity]:
        """Of a launcher: who stands between it and its ranks."""
        return [each for i in range(1, self.launcher.DEPTH) for each in tree.generation(self.identity.pid, i)]

    def _send_down(self, number: int) -> None:
        tree.send_to_child(self.identity, number)
        for process in self.between():
            tree.send(process, number)

    @property
    def failure_code(self) -> int:
        """Its own exit code; where it ended with 0 although a rank had failed, that of the rank, or 1 where it is not known."""
        failed = next((rank.code or 0 for rank in self.announced.failed), 0) if self.announced else 0
        return int(self.dismissed) or self.ended.code or failed or int(self.ends_ranks)

    @property
    def code_of_job(self) -> int:
        """With which the job ends where this was its first failure."""
        return self.failure_code if self.ended.signal else self.process.fails_as or self.failure_code


class Lone:
    """Launchers that have no ranks left. grace_s: the whole budget in seconds."""

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
        """Whether it has none. Its ranks are woken: who was stopped by SIGSTOP does not hear that it is to end."""
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
        """After a failure: whether it has had nothing below it for long, and only waits. One that has much to do may be slow on a busy
        machine, and is left to it as long as the budget lasts."""
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
        """SIGTERM, once, and once more after half of the budget."""
        now = self._clock()
        times, first = self._told.get(process, (0, now))
        if times == 0 or (times == 1 and now - first > self._grace_s * REMIND_SHARE):
            self._told[process] = times + 1, first
            tree.send(process, signal.SIGTERM)

    def end_beside(self) -> None:
        """What such launchers had started beside their ranks, and that has nothing to do without these."""
        for launcher, beside in list(self._beside.items()):
            if launcher in self._since and self._clock() - self._since[launcher] > LONE_S:
                for process in beside:
                    tree.send(process, signal.SIGKILL)
                del self._beside[launcher]


class Spared(NamedTuple):
    """Ranks that are not told yet. hearing: those that were, and whose end is waited for, until then."""

    ranks: list[tree.Identity]
    number: int
    hearing: list[tree.Identity]
    until: float


def wake(process: tree.Identity) -> None:
    if tree.state(process) == "T":
        tree.send(process, signal.SIGCONT)


def heard_behind(rank: tree.Identity, hearing: Hearing) -> list[tree.Identity]:
    """Who hears a signal behind wrappers, which would only die of it."""
    wrapped = _wrapped()
    return wrapped.heard(rank, hearing) if wrapped else []


def is_to_outlast(rank: tree.Identity, behind: list[tree.Identity], number: int) -> bool:
    """Whether they are to be told in such a wrapper's place."""
    wrapped = _wrapped() if behind else None
    return bool(wrapped and wrapped.is_to_outlast(rank, behind, number))


def _wrapped() -> ModuleType | None:
    try:
        from ranklaunch.supervise.ranks import wrapped  # where there are ranks to end
    except (OSError, ImportError):  # no descriptor left
        return None
    return wrapped


def unread(clock: Callable[[], float]) -> Unread | None:
    """Bytes still unread in the pipes of filters (tee, sed) that outlived the program; None without a free descriptor."""
    try:
        from ranklaunch.supervise.ranks.unread import Unread  # where something is left

        return Unread(clock)
    except (OSError, ImportError):  # no descriptor left
        return None


def note(child: Child, number: int, now: float) -> None:
    """It was sent a signal, unless it may not be signalled. now: monotonic seconds."""
    if child.identity not in tree.refused:
        child.told.append(number)
        child.sent_at.append(now)
        child.told_at = child.told_at or now
