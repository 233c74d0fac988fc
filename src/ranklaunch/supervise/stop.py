"""Ending everything that was started, in stages and inside one budget, all processes in parallel.

Leaders first: the process that was started for a rank gets the signal alone, so that it can save a checkpoint while its data loading
workers still live. Then everybody below ranklaunch gets SIGTERM: when the leaders are gone, or when most of the budget is. Then,
when the budget is spent, SIGKILL, again and again until nothing is left.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable

from ranklaunch.supervise.ranks.child import Child
from ranklaunch.system import tree
from ranklaunch.system.loop import Loop, Timer

LEADERS_SHARE = 0.8  # of the budget, before the others are told too
KILL_AGAIN_S = 0.1  # a process that forks while it is being killed needs more than one round
DEAF_S = 0.25  # between looks at whether the ranks of a deaf launcher are gone
GIVE_UP_S = 5.0  # after the first SIGKILL: what is left then is stuck in the kernel


class Stopper:
    """begin() starts the stages; done() says whether nothing is left to end. grace_s: the whole budget in seconds. leaders: running
    processes that are told first; services: those that are needed until the leaders are gone."""

    def __init__(
        self,
        loop: Loop,
        grace_s: float,
        leaders: Callable[[], Iterable[Child]],
        say: Callable[[str], None],
        services: Callable[[], Iterable[Child]] = list,
    ) -> None:
        self.begun = False
        self.stuck: tuple[tree.Identity, ...] = ()
        self._loop = loop
        self._grace_s = grace_s
        self._leaders = leaders
        self._services = services
        self._say = say
        self._killing_since: float | None = None
        self._told_all = False
        self._carrying = False
        self._gave_up = False
        self._timers: list[Timer] = []

    def begin(self, number: int) -> None:
        """number: the signal for the leaders. A later call changes nothing."""
        if self.begun:
            return
        self.begun = True
        for child in self._leaders():
            _signal(child, number)
        for rank in self.carried():
            tree.send(rank, number)
        self._look_at_deaf()
        self._timers.append(self._loop.after(self._grace_s * LEADERS_SHARE, self.tell_all))
        self._timers.append(self._loop.after(self._grace_s, self.kill_all))

    def tell_all(self) -> None:
        """SIGTERM for every process below this one, those in sessions of their own included."""
        if self._told_all:
            return
        self._told_all = True
        for child in (*self._leaders(), *self._services()):
            child.told.append(signal.SIGTERM)
        for process in tree.descendants(os.getpid()):
            tree.send(process, signal.SIGTERM)

    def kill_all(self) -> None:
        """Again and again: a process may fork while it is killed, and one that forks and ends between two entries of /proc is seen in
        neither."""
        left = tree.descendants(os.getpid())
        now = self._loop.clock()
        if self._killing_since is None:
            self._killing_since = now
            if left:
                self._say(f"{len(left)} processes left after the grace of {self._grace_s:g} s: SIGKILL")
        if now - self._killing_since > GIVE_UP_S:
            self._gave_up = True
            self.stuck = tuple(left)
            return
        for child in (*self._leaders(), *self._services()):
            child.told.append(signal.SIGKILL)
        for process in left:
            tree.send(process, signal.SIGKILL)
        self._timers.append(self._loop.after(KILL_AGAIN_S, self.kill_all))

    def _look_at_deaf(self) -> None:
        """A launcher that does not pass signals on is told when its ranks are gone, so that it can say what became of them. One that has
        ranks on other nodes ends by itself when those are gone too."""
        if self._told_all:
            return
        deaf = [child for child in self._leaders() if child.process.conduct.deaf]
        for child in deaf:
            if not child.process.conduct.carriers and not child.ranks():
                os.kill(child.identity.pid, signal.SIGTERM)
                os.kill(child.identity.pid, signal.SIGCONT)
        self._carrying = self._serving()
        if deaf or self._carrying:
            self._timers.append(self._loop.after(DEAF_S, self._look_at_deaf))

    def carried(self) -> list[tree.Identity]:
        """Ranks that came here through a service: another node's mpirun has started them."""
        carriers = [name for child in self._services() for name in child.process.conduct.carriers]
        leaders = {child.identity for child in self._leaders()}
        return [each for each in tree.carried(os.getpid(), carriers) if each not in leaders] if carriers else []

    def _serving(self) -> bool:
        """Whether something that came here through a service is left: a rank, or the daemon that will tell of its end."""
        services = [child for child in self._services() if child.process.conduct.carriers]
        if not services or any(True for _ in self._leaders()):
            return False
        own = tuple(os.path.basename(child.process.argv[0]) for child in services)  # their sessions are called after them
        return any(not name.startswith(own) for name in tree.names_below(os.getpid()))

    def done(self) -> bool:
        """Called after each step of the loop, which any child's death or signal ends."""
        if self._gave_up:
            return True
        if any(True for _ in self._leaders()):
            return False
        if not tree.has_children():
            return True
        if self._carrying and not self._told_all:
            return False
        self.tell_all()
        return False

    def finish(self) -> None:
        for timer in self._timers:
            timer.cancel()


def _signal(child: Child, number: int) -> None:
    child.told.append(number)
    if child.process.conduct.impatient:
        os.kill(child.identity.pid, signal.SIGSTOP)
    if child.process.conduct.deaf:
        for rank in child.ranks():
            tree.send(rank, number)
    else:
        os.kill(child.identity.pid, number)  # our own child, not reaped yet: the pid is its own
