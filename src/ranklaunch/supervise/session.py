"""A session: what lasts as long as the container. It has the signals, the loop, both consoles, the other nodes, and an eye on the outer
process; its attempts come one after the other."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ranklaunch.errors import RanklaunchError, refused
from ranklaunch.muster.nodes import Nodes, OfNodes
from ranklaunch.output.console import Terminal
from ranklaunch.plan.model import as_json
from ranklaunch.supervise.attempt import Attempt
from ranklaunch.supervise.context import Seen, Start, Surroundings, Teller
from ranklaunch.supervise.record import bequeath
from ranklaunch.system import tree
from ranklaunch.system.loop import Loop
from ranklaunch.system.signals import PASSED_ON, Signals, name_of
from ranklaunch.verdict.model import Verdict

if TYPE_CHECKING:
    from ranklaunch.control.desk import Desk
    from ranklaunch.muster.events import Again
    from ranklaunch.restarts.cleaning import Held


BEAT_S = 1.0
OPENS_S = 1.0  # after the start: a job that is shorter is asked nothing


def _round_after(start: Start, again: Again, held: Held | None) -> Start:
    """Where it cannot be opened, for its folder cannot be made or its plan not be made anew, it fails at its beginning: so that all nodes
    hear of it, and there is a verdict."""
    assert start.again
    try:
        return replace(start.again(again, held), companions=start.companions, work=start.work)
    except RanklaunchError as error:
        failure = error
    except (OSError, MemoryError) as error:
        failure = refused(error)
    record = start.record.of_attempt(type(failure)(f"restart {again.round} cannot begin: {failure}"))
    after = replace(start.after, restarts=(*start.after.restarts, again.next.get("restart", {})))
    plan = replace(start.plan, job=replace(start.plan.job, restart=again.round))
    return replace(start, plan=plan, record=record, replan=None, again=None, companions=(), after=after)


def no_more(verdict: Verdict) -> Start | None:
    """One attempt is all there is."""
    return None


class Session:
    """env: what processes inherit. guard: fd that becomes readable when the outer process dies, or -1. has_desk: whether its job is asked
    here how it stands."""

    def __init__(self, signals: Signals, env: Mapping[str, str], guard: int = -1, *, has_desk: bool = True) -> None:
        self._signals = signals
        self._env = env
        self._has_desk = has_desk
        self._asked: tuple[int, float] | None = None
        self._due = math.inf  # when all has to have ended
        self._loop = Loop()
        self._terminal = Terminal(self._loop, env)
        self._attempt: Attempt | None = None
        self._desk: Desk | None = None
        self._teller = Teller()
        self._orphaned = False
        self._loop.on_readable(signals.fd, self._take_signals)
        bequeath("beats", "1")
        if guard >= 0:
            self._loop.on_readable(guard, lambda: self._on_guard(guard))

    def run(self, start: Start, next_start: Callable[[Verdict], Start | None] = no_more) -> Verdict:
        """Return the last attempt's verdict. next_start: the start after an attempt with this verdict."""
        around = self._surroundings(start)
        if not tree.sees_itself():
            self._terminal.say("warning: there is no /proc that tells of this container's processes: what ranks leave behind is not found")
        if self._has_desk:
            self._loop.after(OPENS_S, self._open_desk)
        while True:
            attempt = self._attempt = Attempt(start, around)
            self._end_by(self._due)
            self._tell_of(start)
            if self._orphaned:  # this, or the next, came while it was being decided that all start again: they are told
                attempt.on_guard()
            elif self._asked:
                attempt.on_stop_request(self._asked[0])
            verdict = attempt.run()
            again = around.nodes.again
            if again and start.again:
                following: Start | None = _round_after(start, again, attempt.held)
            else:
                following = None if self._asked else next_start(verdict)
            if not following:
                self._close_desk()
                around.nodes.finish()
                attempt.close()
                self._teller.ended(verdict, start.record.of_verdict)
                self._terminal.flush_own()
                return verdict
            attempt.close()
            folder, start = start.record.folder, following
            if again:
                around.nodes.begin(start.plan)
                self._teller.restarts(folder)

    def _surroundings(self, start: Start) -> Surroundings:
        hear = OfNodes(
            released=lambda text, waited_s: self._now().on_released(text, waited_s),
            stop=lambda judgement: self._now().on_stop(judgement),
            judged=lambda judgement: self._now().on_judged(judgement),
            lost=lambda suspect: self._now().on_lost(suspect),
        )
        nodes = Nodes(start.plan, self._env, self._loop, self._terminal.say, hear, start.decide, start.run_id)
        return Surroundings(
            self._loop, self._terminal, self._signals, self._env, nodes, self._take_signals, lambda: self._asked, lambda: self._teller
        )

    def _tell_of(self, start: Start) -> None:
        """Once there is something to tell of. Where no descriptor is left for that, nobody is told."""
        if not start.tell or type(self._teller) is not Teller:
            return
        seen = Seen(
            plan=lambda: self._now().plan, begun=lambda: self._now().phase()[0] != "starting", attended=lambda: self._now().attended(),
            phase=lambda: self._now().phase(), of_ranks=lambda: self._now().companions.of_ranks(),
            hang=lambda: self._now().companions.facts().get("hang"), asked=lambda: self._asked, orphaned=lambda: self._orphaned,
            slow=lambda: self._now().companions.slow,
        )  # fmt: skip
        try:
            self._teller = start.tell(seen, self._loop, self._terminal.say, self._env)
        except (OSError, ImportError) as error:
            self._terminal.say(f"tools are told nothing of the job: {error}")

    def _now(self) -> Attempt:
        """Whose turn it is."""
        assert self._attempt
        return self._attempt

    def _take_signals(self) -> None:
        for number in self._signals.take():
            if number == signal.SIGCHLD:
                self._now().reap()
            elif number in PASSED_ON:
                self._pass_on(number)
            else:
                self._stop(number)

    def _stop(self, number: int) -> None:
        if not self._asked:
            self._asked = number, self._loop.clock()
            bequeath("stop", str(number))
            self._beat()
        self._now().on_stop_request(number)

    def _end_by(self, due: float) -> None:
        self._due = min(self._due, due)
        self._now().attended().stopper.end_by(self._due)

    def _on_deadline(self, due: float, ways: Sequence[str]) -> None:
        self._end_by(due)
        self._now().companions.on_deadline(ways)

    def _beat(self) -> None:
        bequeath("beat", "")
        self._loop.after(BEAT_S, self._beat)

    def _pass_on(self, number: int) -> None:
        if self._desk and self._desk.is_warning(name_of(number)):
            self._desk.warn()
        else:
            self._now().pass_on(number)

    def _open_desk(self) -> None:
        """Of a job that lasts. One that cannot be asked runs all the same."""
        try:
            from ranklaunch.control.desk import Asked, Desk

            asked = Asked(
                attended=lambda: self._now().attended(), phase=lambda: self._now().phase(),
                of_ranks=lambda: self._now().companions.of_ranks(), present=lambda: self._now().companions.present(),
                offer=lambda number: self._now().pass_on(number), stop=lambda: self._stop(signal.SIGTERM), end_by=self._on_deadline,
            )  # fmt: skip
            self._desk = Desk(asked, self._loop)
            seen = self._now().attended()
            if self._desk.path:
                seen.record.plan({**as_json(seen.plan()), "socket": self._desk.path})
        except (OSError, ImportError):
            pass

    def _close_desk(self) -> None:
        if self._desk:
            self._desk.close()
            self._desk = None

    def _on_guard(self, guard: int) -> None:
        self._loop.forget(guard)
        self._orphaned = True
        self._now().on_guard()
