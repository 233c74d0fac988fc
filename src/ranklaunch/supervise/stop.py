"""Stop of all started processes: in stages within one grace, for all processes in parallel.

1. Leaders: the process started for a rank gets the signal alone, so its data loading workers live while a checkpoint is saved. If
   a leader is a shell that would only die of the signal, the programs in the shell get the signal instead.
2. Every process below ranklaunch gets SIGTERM once the leaders are gone (first processes with a handler, the rest after their
   end), or once most of the grace is spent.
3. At the end of the grace: SIGKILL, again and again until nothing is left.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ranklaunch.processes.children import LEADING, LONE_S, SERVICE, Child, Lone, Spared, note, wake, watch_backlog
from ranklaunch.supervise.record import bequeath
from ranklaunch.system import tree
from ranklaunch.system.loop import Loop, Timer
from ranklaunch.system.signals import ALARMS
from ranklaunch.system.tree import Hearing, heard_behind, is_to_outlast

if TYPE_CHECKING:
    from ranklaunch.evidence.stack_signals import Aborts
    from ranklaunch.processes.pipe_backlog import PipeBacklog

LEADERS_SHARE = 0.8  # share of the grace before all other processes are signalled too
SPARED_SHARE = 0.5  # share of the grace that is left when spared ranks are signalled at the latest: see Spared
KILL_AGAIN_S = 0.1  # a process that forks while it is being killed needs more than one round
LOOK_S = 0.25  # between looks at launchers' ranks, and at programs in shells
LEAST_S = 1.0  # least time for a stop, if ranks have spent the grace before the stop began
SHELL_S = 1.0  # for a shell to end after the programs in it, before the shell gets the signal itself
WRAPPER_S = 5.0  # for a wrapper that reads its program's output: it may have much to pass on
WRITES_S = 0.5  # for a process to write its stacks after SIGABRT at the end of the grace, before SIGKILL
REFUSE_S = 1.0  # after the first SIGKILL, if no remaining process may be signalled: their children were killed
GIVE_UP_S = 5.0  # after the first SIGKILL: a process that lives longer is stuck in the kernel
FRESH_S = 0.05  # a look at all processes may be used again for this long


class Started(Protocol):
    """Running children of ranklaunch, as a stop uses them: processes.children.Children."""

    def of(self, roles: Collection[str]) -> Sequence[Child]: ...


class Peers(Protocol):
    """Other nodes of the job, as a stop uses them: muster.nodes.Nodes."""

    @property
    def others_end(self) -> bool: ...


class Signaller:
    """Sender of a signal to ranks. If a shell or wrapper would die of the signal, the programs inside get
    the signal instead.

    look(), called again and again, signals programs once they catch the signal, and a shell once no
    program in the shell does. children: processes started by ranklaunch itself. caught: ranks in which a
    process caught the signal. aborts: ends ranks that do not catch the signal, so that they write their
    stacks; None for a normal stop.
    """

    def __init__(self, clock: Callable[[], float], children: Started) -> None:
        self._clock = clock
        self._children = children
        self.caught: set[tree.Identity] = set()
        self._signalled: set[tree.Identity] = set()  # processes with a handler, after their signal
        self._bound: set[tree.Identity] = set()  # ranks whose launcher ends all ranks once one has died
        self._shells: dict[tree.Identity, tuple[int, float | None]] = {}  # signal, and time since which no program inside catches it
        self._behind: dict[tree.Identity, list[tree.Identity]] = {}  # programs that were signalled in place of a wrapper
        self._spared: list[Spared] = []
        self._looks: dict[int, tuple[float, Hearing]] = {}  # by signal
        self.aborts: Aborts | None = None

    @property
    def says_where(self) -> bool:
        return self.aborts is not None

    @property
    def waiting(self) -> bool:
        return bool(self._shells or self._spared)

    def signal_in_turn(self, ranks: Iterable[tree.Identity], number: int, until: float) -> None:
        """Signal the ranks of a launcher that ends all ranks after the death of one.

        Ranks with a handler come first: they may be saving. The rest follow after their end, or at `until`, in seconds of the clock.
        """
        now, hearing = list(ranks), self._hearing(number)
        self._bound.update(now)
        first = [rank for rank in now if hearing.of(rank) or heard_behind(rank, hearing)]
        rest = list(set(now).difference(first))
        if first and rest and not self.says_where:
            self._spared.append(Spared(rest, number, first, until))
            now = first
        self.signal(now, number)

    def signal(self, ranks: Iterable[tree.Identity], number: int) -> None:
        """Send a signal to each rank, or to the processes in it that catch the signal."""
        hearing = self._hearing(number)
        for rank in ranks:
            heard = hearing.of(rank)
            if heard and heard != [rank]:
                self._shells[rank] = number, None
            elif not heard and self.aborts and self.aborts.end(rank):
                continue
            self._signal_one(rank, number, heard, [] if heard else heard_behind(rank, hearing))

    def _signal_one(self, rank: tree.Identity, number: int, heard: list[tree.Identity], behind: list[tree.Identity]) -> None:
        """Send a signal to one rank. heard: its processes with a handler. behind: processes with a handler behind a wrapper, looked
        for before the wrapper dies of the signal."""
        targets = heard or (behind if rank in self._bound or is_to_outlast(rank, behind, number) else [])
        if targets == behind != [] and rank not in self._bound:
            self._shells[rank], self._behind[rank] = (number, None), behind
        self._signalled.update(targets)
        sent = [self._send(process, number) for process in targets or [rank]]
        if (heard or behind) and any(sent):
            self.caught.add(rank)
        wake(rank)

    def _hearing(self, number: int) -> Hearing:
        """Return a look at all processes, at most FRESH_S old: ranks are often signalled one by one, and each look reads all of /proc."""
        at, hearing = self._looks.get(number, (-FRESH_S, None))
        if not hearing or self._clock() - at > FRESH_S:
            hearing = Hearing(number)
            self._looks[number] = self._clock(), hearing
        return hearing

    def signal_below(self, root: int) -> bool:
        """Send SIGTERM, once, to the processes below root that have a handler for SIGTERM. Return True if one of them lives."""
        hearing = Hearing(signal.SIGTERM, signalled=self._signalled)
        heard = [process for child in tree.generation(root, 1) for process in hearing.of(child) or heard_behind(child, hearing)]
        self._signal_once(heard, signal.SIGTERM)
        return bool(heard)

    def look(self) -> None:
        for spared in [each for each in self._spared if self._clock() >= each.until or all(tree.state(p) in "ZX" for p in each.hearing)]:
            self._spared.remove(spared)
            self.signal(spared.ranks, spared.number)
        for number in {number for number, _ in self._shells.values()}:
            hearing = Hearing(number, signalled=self._signalled)
            for shell, (_, since) in [each for each in self._shells.items() if each[1][0] == number]:
                living = [each for each in self._behind.get(shell, ()) if tree.state(each) not in "ZX"]
                self._look_into(shell, number, living or hearing.of(shell) or heard_behind(shell, hearing), since)

    def _signal_once(self, heard: list[tree.Identity], number: int) -> None:
        for process in [each for each in heard if each not in self._signalled]:
            self._signalled.add(process)
            self._send(process, number)

    def _send(self, process: tree.Identity, number: int) -> bool:
        sent = tree.send(process, number)
        if not sent and process not in tree.refused and self._is_own(process):
            sent = tree.send_to_child(process, number)  # no descriptor is left for a pidfd
        wake(process)
        return sent

    def _is_own(self, process: tree.Identity) -> bool:
        return any(child.identity == process for child in self._children.of(LEADING))

    def _look_into(self, shell: tree.Identity, number: int, heard: list[tree.Identity], since: float | None) -> None:
        now = self._clock()
        self._signal_once(heard, number)
        if heard:
            self._shells[shell] = number, None
        elif since is None:
            self._shells[shell] = number, now
        elif now - since > (WRAPPER_S if shell in self._behind else SHELL_S):
            del self._shells[shell]
            # As a terminal does: a shell that waits for a program dies of SIGINT only if the program dies of SIGINT too.
            waited_for = tree.descendants(shell.pid) if number == signal.SIGINT else []
            for process in (shell, *waited_for):
                self._send(process, number)


class Stopper:
    """Stop in stages: begin() starts the first one, done() returns True once nothing is left to end.
    grace_s: seconds for the whole stop.

    Leaders are signalled first, and services once the leaders are gone. Services that outlast all
    ranks stay as long as other nodes have ranks to end. backlog: unread output of the program in pipes of
    filters, once the program has ended. killed: processes that got SIGKILL; stuck: those of them that still live.
    """

    def __init__(self, loop: Loop, grace_s: float, children: Started, nodes: Peers, say: Callable[[str], None]) -> None:
        self.begun = False
        self._due = 0.0
        self._latest = math.inf
        self.stuck: tuple[tree.Identity, ...] = ()
        self._loop = loop
        self._grace_s = grace_s
        self._children = children
        self._nodes = nodes
        self._say = say
        self._killing_since: float | None = None
        self.killed: set[tree.Identity] = set()
        self._signalled_all = self._carrying = self._gave_up = False
        self._resting = False  # some processes have been signalled, the rest not yet
        self.backlog: PipeBacklog | None = None
        self._signaller = Signaller(loop.clock, children)
        self._next_look: Timer | None = None
        self._lone = Lone(loop.clock, grace_s)
        self._timers: list[Timer] = []
        self._refused: set[tree.Identity] = set()  # processes with a message about their refusal

    def begin(self, number: int, since: float | None = None) -> None:
        """Begin the stop. A later call changes nothing.

        number: signal for the leaders; an alarm is replaced by SIGTERM, because no program saves on an
        alarm. since: time at which a launcher began to end its ranks; the grace counts from there.
        """
        if self.begun:
            return
        self.begun = True
        now, number = self._loop.clock(), signal.SIGTERM if number in ALARMS else number
        spent_s = now - since if since is not None else 0.0
        remaining_s = min(max(self._grace_s - spent_s, min(LEAST_S, self._grace_s)), self._at_most_s)
        self._grace_s = min(self._grace_s, spent_s + remaining_s)
        self._due = now + remaining_s
        for child in (*self._leaders(), *self._services()):
            child.wake()
        for child in self._leaders():
            self._stop(child, number)
        self._signaller.signal_in_turn(self.carried(), number, self._spares_until())
        bequeath("signalled", "1")
        self._say_refused()
        self._look()
        self._timers.append(self._loop.after(max(0.0, self._grace_s * LEADERS_SHARE - spent_s), self.signal_all))
        self._timers.append(self._loop.after(remaining_s, self.kill_all))

    def _leaders(self) -> Sequence[Child]:
        return self._children.of(LEADING)

    def _services(self) -> Sequence[Child]:
        return self._children.of((SERVICE,))

    @property
    def grace_s(self) -> float:
        """Seconds for the whole stop."""
        return self._grace_s if self.begun else min(self._grace_s, self._at_most_s)

    @property
    def _at_most_s(self) -> float:
        return max(0.0, round(self._latest - self._loop.clock(), 1))

    def end_by(self, due: float) -> None:
        """Kill remaining processes at this time at the latest, however long the grace is. due: monotonic seconds."""
        if due >= self._latest:
            return
        self._latest = due
        if self.begun and due < self._due and self._killing_since is None:
            self._grace_s = max(0.0, round(self._grace_s - (self._due - due), 1))
            self._due = due
            self._timers.append(self._loop.after(max(0.0, due - self._loop.clock()), self.kill_all))
        bequeath("grace_s", f"{self.grace_s:g}")

    @property
    def says_where(self) -> bool:
        return self._signaller.says_where

    def say_where(self) -> None:
        """End ranks by SIGABRT from now on where Python has a handler for it, so that they write their stacks."""
        from ranklaunch.evidence.stack_signals import Aborts  # needed by few stops

        self._signaller.aborts = Aborts()

    def _signal_rest(self) -> None:
        """Signal the rest once the leaders are gone: first processes with a SIGTERM handler. They may be saving, and need other
        processes, such as the tee that still reads their output."""
        if self._signalled_all:
            return
        if not self._resting:
            self._timers.append(self._loop.after(LONE_S, self._kill_lasting))
        services = [] if self._resting else list(self._services())
        self.backlog = self.backlog or watch_backlog(self._loop.clock)
        now = self._loop.clock()
        self._resting = self._signaller.signal_below(os.getpid()) or bool(self.backlog and self.backlog.is_read())
        for child in services:
            note(child, signal.SIGTERM, now)
        if not self._resting:
            self.signal_all()

    def _kill_lasting(self) -> None:
        """End services that ignore SIGTERM when all ranks are gone, such as a scheduler."""
        for child in self._lasting():
            child.launcher.outlived(partial(self._kill_alone, child))

    def _kill_alone(self, child: Child) -> None:
        if signal.SIGKILL not in child.told:
            self._say(f"{child.process.name} does not end although no rank is left: SIGKILL")
        now = self._loop.clock()
        tree.send(child.identity, signal.SIGKILL)
        note(child, signal.SIGKILL, now)

    def _lasting(self) -> list[Child]:
        return [child for child in self._services() if child.process.outlasts]

    def signal_all(self) -> None:
        """Send SIGTERM to every process below this one, in whatever session."""
        if self._signalled_all:
            return
        self._signalled_all, self._resting = True, False
        now = self._loop.clock()
        for process in tree.descendants(os.getpid()):
            tree.send(process, signal.SIGTERM)
        self._note_all(signal.SIGTERM, now)

    def kill_all(self) -> None:
        """Send SIGKILL to all remaining processes, again and again.

        A process may fork while it is killed, and a child that starts and ends between two reads of /proc is in neither.
        """
        remaining = tree.descendants(os.getpid())
        now = self._loop.clock()
        aborts = self._signaller.aborts
        if self._killing_since is None and aborts and now >= self._due and aborts.end_all(remaining):
            self._note_aborted()
            self._timers.append(self._loop.after(WRITES_S, self.kill_all))
            return
        if self._killing_since is None:
            self._killing_since = now
            self._say_killing(remaining, now)
        refuse = all(process in tree.refused for process in remaining)
        if now - self._killing_since > (REFUSE_S if remaining and refuse else GIVE_UP_S):
            self._gave_up = True
            self.stuck = tuple(process for process in remaining if process in self.killed)  # the rest have only just been forked
            return
        self.killed.update(remaining)
        for process in remaining:
            tree.send(process, signal.SIGKILL)
        self._note_all(signal.SIGKILL, now)
        self._timers.append(self._loop.after(KILL_AGAIN_S, self.kill_all))

    def _say_killing(self, remaining: Collection[tree.Identity], now: float) -> None:
        if any(process not in tree.refused for process in remaining):
            late = f" after the grace of {self._grace_s:g} s" if now >= self._due else ""  # an early kill was requested
            self._say(f"{len(remaining)} {'process' if len(remaining) == 1 else 'processes'} left{late}: SIGKILL")

    def _note_all(self, number: int, now: float) -> None:
        for child in (*self._leaders(), *self._services()):
            note(child, number, now)
        self._say_refused()

    def _say_refused(self) -> None:
        for process in tree.refused.keys() - self._refused:
            self._say(f"{tree.refused[process]} cannot be signalled: it may be left running")
        self._refused |= tree.refused.keys()

    def _note_aborted(self) -> None:
        aborted = self._signaller.aborts.told if self._signaller.aborts else ()
        for child in self._leaders() if aborted else ():
            if child.identity in aborted and signal.SIGABRT not in child.told:
                child.told.append(signal.SIGABRT)
                child.sent_at.append(self._loop.clock())

    def caught(self, rank: tree.Identity) -> bool:
        """Return True if a process of a rank caught the first signal."""
        return rank in self._signaller.caught

    def signal_early(self, ranks: Iterable[tree.Identity]) -> None:
        """Send SIGTERM to some ranks before the rest."""
        self._signaller.signal(ranks, signal.SIGTERM)

    def _stop(self, child: Child, number: int) -> None:
        is_dead = child.is_dead()
        now = self._loop.clock()  # before the signal: a child may answer within a millisecond
        child.launcher.stop(self, child, number)
        if not is_dead:
            note(child, number, now)
        self._note_aborted()

    # Methods for launchers in a stop: ranklaunch.adapters.launchers.shared.base.Signals

    def signal(self, child: Child, number: int) -> None:
        if child.launcher.DEPTH:
            tree.send_to_child(child.identity, number)
        else:
            self._signaller.signal([child.identity], number)

    def signal_ranks(self, child: Child, number: int) -> None:
        self._signaller.signal(child.left(), number)

    def signal_in_turn(self, child: Child, number: int) -> None:
        self._signaller.signal_in_turn(child.ranks(), number, self._spares_until())

    def remind(self, child: Child) -> None:
        self._lone.tell(child.identity)

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self._timers.append(self._loop.after(seconds, act))

    def _spares_until(self) -> float:
        return self._due - self._grace_s * SPARED_SHARE

    def _look(self) -> None:
        """Check the signalled processes, until everything is being killed."""
        if self._next_look:
            self._next_look.cancel()
        if self._killing_since is not None:
            return
        launchers = [child for child in self._leaders() if child.launcher.starts_ranks]
        for child in launchers:
            self._look_at(child)
        self._lone.end_beside()
        self._signaller.look()
        self._carrying = self._serving()
        if self._resting:
            self._signal_rest()
        if launchers or self._lone.waiting or self._signaller.waiting or self._carrying or self._resting:
            self._next_look = self._loop.after(LOOK_S, self._look)

    def _look_at(self, child: Child) -> None:
        """Act once a launcher's ranks are gone: give the launcher time to report how they ended, and kill it if it does not end.

        A launcher with ranks on other nodes ends by itself.
        """
        if child.launcher.CARRIERS or not self._lone.look(child):
            return
        child.launcher.alone(self, child)
        child.go_on()
        if self._lone.for_long(child):
            self._kill_alone(child)

    def carried(self) -> list[tree.Identity]:
        """Return the ranks that another node's launcher has started here through a service (sshd)."""
        through = [child.launcher for child in self._services() if child.launcher.CARRIERS]
        carriers = [name for launcher in through for name in launcher.CARRIERS]
        generations = max((launcher.DEPTH for launcher in through), default=0)
        leaders = {child.identity for child in self._leaders()}
        processes = [each for each in tree.carried(os.getpid(), carriers) if each not in leaders] if carriers else []
        return [rank for each in processes for rank in tree.generation(each.pid, generations)] if generations else processes

    def _serving(self) -> bool:
        """Return True if a service is still needed: by ranks of other nodes, or by a rank or daemon started here through the service."""
        if self._lasting() and self._nodes.others_end:
            return True
        services = [child for child in self._services() if child.launcher.CARRIERS]
        if not services or self._leaders():
            return False
        names = tuple(os.path.basename(child.process.argv[0]) for child in services)  # the names of their sessions begin with these
        return any(not name.startswith(names) for name in tree.names_below(os.getpid()))

    def done(self) -> bool:
        """Return True once nothing is left to end. Called after each step of the loop; each death of a
        child or signal ends a step."""
        if self._gave_up:
            return True
        if self._leaders():
            return False
        if not tree.has_children():
            return True
        if self._carrying and not self._signalled_all:
            return False
        if not (self._signalled_all or self._resting):
            self._signal_rest()
            self._look()
        return False

    def finish(self) -> None:
        for timer in (*self._timers, *filter(None, [self._next_look])):
            timer.cancel()
