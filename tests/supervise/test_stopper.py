"""The stages of ending, without processes: a clock that is set, a tree that is told."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest

from ranklaunch.adapters.launchers import msrun
from ranklaunch.adapters.launchers.shared import ssh
from ranklaunch.adapters.launchers.shared.base import RanksFirst
from ranklaunch.plan.model import Process
from ranklaunch.processes.child_ranks import Below, Watcher
from ranklaunch.processes.children import LAUNCHER, LONE_S, RANK, SERVICE, Child, Lone
from ranklaunch.supervise import stop
from ranklaunch.system import tree
from ranklaunch.system.loop import Loop

GRACE_S = 10.0


class World:
    """What a Stopper sees and does. looks: what each look at the tree shows; the last one for good."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, looks: list[list[tree.Identity]], leaders: Sequence[Any] = ()) -> None:
        self.now = 0.0
        self.sent: list[tuple[float, int, int]] = []
        self.said: list[str] = []
        self._looks = looks
        self.loop = Loop(lambda: self.now)
        monkeypatch.setattr(tree, "descendants", lambda root: self._looks.pop(0) if len(self._looks) > 1 else self._looks[0])
        monkeypatch.setattr(tree, "send", lambda target, number: self.sent.append((round(self.now, 1), target.pid, number)) or True)
        monkeypatch.setattr(stop.tree, "has_children", lambda: True)
        monkeypatch.setattr(tree, "is_dead", lambda pid: False)
        monkeypatch.setattr(tree, "state", lambda process: "S")
        monkeypatch.setattr(stop, "watch_backlog", lambda clock: None)
        self.services: list[Any] = []
        self.needed_until = 0.0
        self._leaders = leaders
        self.stopper = stop.Stopper(self.loop, GRACE_S, self, self, self.said.append)

    def of(self, roles: Collection[str]) -> Sequence[Any]:
        """Return the running children."""
        return self.services if SERVICE in roles else self._leaders

    @property
    def others_end(self) -> bool:
        return self.now < self.needed_until

    def pass_time(self, until: float) -> None:
        """Steps of the loop, with `done` asked after each, as the supervisor does."""
        while self.now < until and not self.stopper.done():
            self.now += 0.05
            wake = self.loop.after(0, lambda: None)
            self.loop.step()
            wake.cancel()


CHILD = tree.Identity(10, 1)
NEXT = tree.Identity(11, 2)


def test_sigterm_then_sigkill_when_the_grace_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, [[CHILD], [CHILD], []])
    world.stopper.begin(15)
    world.pass_time(GRACE_S + 1)
    assert world.sent == [(0.0, 10, 15), (10.0, 10, 9)]
    assert world.said == ["1 process left after the grace of 10 s: SIGKILL"]


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(("due", "killed"), [(4.0, 4.0), (20.0, GRACE_S)])
def test_what_has_to_have_ended_sooner_has_less_of_the_grace(
    monkeypatch: pytest.MonkeyPatch, begun: bool, due: float, killed: float
) -> None:
    """Whether that is known before the stop has begun, or later."""
    world = World(monkeypatch, [[CHILD], [CHILD], []])
    steps = [lambda: world.stopper.begin(15), lambda: world.stopper.end_by(due)]
    for step in steps if begun else steps[::-1]:
        step()
    assert world.stopper.grace_s == killed
    world.pass_time(GRACE_S + 1)
    assert world.sent == [(0.0, 10, 15), (killed, 10, 9)]
    assert world.said == [f"1 process left after the grace of {killed:g} s: SIGKILL"]


@pytest.mark.parametrize(("began", "killed"), [(6.0, GRACE_S), (GRACE_S + 2, GRACE_S + 3)])
def test_ranks_that_their_launcher_ends_have_the_same_grace(monkeypatch: pytest.MonkeyPatch, began: float, killed: float) -> None:
    """From 0 on, when it has begun to: the other nodes wait for no more than one grace."""
    world = World(monkeypatch, [[CHILD], [CHILD], []])
    world.now = began
    world.stopper.begin(15, since=0.0)
    world.pass_time(3 * GRACE_S)
    assert [(round(at), number) for at, _, number in world.sent] == [(began, 15), (killed, 9)]


def test_what_forks_faster_than_it_is_killed_is_not_said_to_be_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, [[tree.Identity(pid, pid)] for pid in range(10, 1000)])
    world.stopper.begin(15)
    world.pass_time(GRACE_S + stop.GIVE_UP_S + 2)
    assert world.stopper.done()
    assert world.stopper.stuck == ()


def test_a_look_that_shows_nothing_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that forks and ends between two entries of /proc is seen in neither; as long as there are children, it looks again."""
    world = World(monkeypatch, [[CHILD], [], [], [NEXT], []])
    world.stopper.begin(15)
    world.pass_time(GRACE_S + 2)
    assert (11, 9) in [(pid, number) for _, pid, number in world.sent]


def test_it_gives_up_on_what_does_not_die(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, [[CHILD]])
    world.stopper.begin(15)
    world.pass_time(GRACE_S + 60)
    assert world.stopper.stuck == (CHILD,)
    assert GRACE_S + stop.GIVE_UP_S <= world.now < GRACE_S + stop.GIVE_UP_S + 1


def test_it_gives_up_where_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that no look ever shows (another user's, where /proc hides those) does not hold the end for ever."""
    world = World(monkeypatch, [[]])
    world.stopper.begin(15)
    world.pass_time(GRACE_S + 60)
    assert world.now < GRACE_S + stop.GIVE_UP_S + 1


def test_ranks_below_what_came_through_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """What leaders have started is none of them."""
    world = World(monkeypatch, [[CHILD]], leaders=[Child(Process("rank 0", ("python",), "/log"), NEXT, RANK)])
    server = Process("sshd", ("sshd",), "/log")
    world.services.append(Child(server, tree.Identity(9, 1), SERVICE, ssh.BelowPdsh(server)))
    monkeypatch.setattr(tree, "carried", lambda root, carriers: [CHILD, NEXT])
    monkeypatch.setattr(tree, "generation", lambda root, number: [tree.Identity(root + 90 + number, 3)])
    assert world.stopper.carried() == [tree.Identity(CHILD.pid + 91, 3)]


@pytest.mark.parametrize(("needed_until", "told_at"), [(0.0, 0.0), (3.0, 3.0), (60.0, GRACE_S * stop.LEADERS_SHARE)])
def test_a_service_that_ranks_elsewhere_need(monkeypatch: pytest.MonkeyPatch, needed_until: float, told_at: float) -> None:
    """It is told when they have ended, or late in the grace; where it hears nothing it is killed soon after."""
    world = World(monkeypatch, [[CHILD]])
    scheduler = Process("scheduler", ("python",), "/log", outlasts=True)
    world.services.append(Child(scheduler, CHILD, SERVICE, msrun.Scheduler(scheduler)))
    world.needed_until = needed_until
    world.stopper.begin(15)
    world.pass_time(GRACE_S + 0.5)
    at, _, number = world.sent[0]
    assert (number, at) == (15, pytest.approx(told_at, abs=0.3))
    killed = next(at for at, _, number in world.sent if number == 9)
    assert killed == pytest.approx(min(told_at + LONE_S, GRACE_S), abs=0.3)


class SlowLauncher(RanksFirst):
    DEPTH = 1


class Beside(Below):
    """No ranks, and one process that the launcher has started beside them."""

    def ranks(self) -> list[tree.Identity]:
        return []

    def beside(self) -> list[tree.Identity]:
        return [NEXT]


def test_a_launcher_without_ranks_is_soon_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 3 s, however long the grace is, with what it had started beside its ranks."""
    world = World(monkeypatch, [[CHILD]])
    launcher = Process("torchrun", ("torchrun",), "/log")
    child = Child(launcher, CHILD, LAUNCHER, SlowLauncher(launcher))
    child.below = Beside(Watcher(world.loop, print), range(1))
    monkeypatch.setattr(world.stopper, "_leaders", lambda: [child])
    monkeypatch.setattr(world.stopper, "_grace_s", 600.0)
    world.stopper.begin(15)
    world.pass_time(10)
    killed = {pid: at for at, pid, number in reversed(world.sent) if number == 9}
    assert killed.keys() == {CHILD.pid, NEXT.pid}
    assert max(killed.values()) <= 3
    assert world.said == ["torchrun does not end although no rank is left: SIGKILL"]


def test_a_launcher_that_has_not_heard_is_told_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """After half of the grace, and never again."""
    world = World(monkeypatch, [[]])
    lone = Lone(lambda: world.now, GRACE_S)
    for tenths in range(20 * int(GRACE_S)):
        world.now = tenths / 10
        lone.tell(CHILD)
    assert world.sent == [(0.0, 10, 15), (pytest.approx(GRACE_S / 2, abs=0.2), 10, 15)]
