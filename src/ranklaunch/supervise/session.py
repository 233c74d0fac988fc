"""Session: everything that lasts as long as the container (signals, the loop, both consoles, the
other nodes, a watch over the outer process). Its attempts follow one another."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ranklaunch.errors import RanklaunchError, refused
from ranklaunch.muster.nodes import Nodes
from ranklaunch.output.console import Terminal
from ranklaunch.plan.model import Plan, as_json
from ranklaunch.supervise.attempt import Attempt
from ranklaunch.supervise.context import Start, Teller
from ranklaunch.supervise.record import bequeath
from ranklaunch.system import disk, tree
from ranklaunch.system.loop import Loop
from ranklaunch.system.signals import PASSED_ON, Signals, name_of
from ranklaunch.verdict.model import Verdict

if TYPE_CHECKING:
    from ranklaunch.control.desk import Desk
    from ranklaunch.muster.events import Again
    from ranklaunch.restarts.cleaning import Held


BEAT_S = 1.0
SPARE_DESCRIPTORS = 3  # kept for imports at a failure: a job may take all others
OPENS_S = 1.0  # before the control socket opens: nobody queries a shorter job


def _round_after(start: Start, again: Again, held: Held | None) -> Start:
    """Return the start values of the next round.

    A round without a usable folder or plan fails at its beginning, so that all nodes learn of the
    failure and there is a verdict. held: resources that the last round may have left behind.
    """
    assert start.again
    try:
        return replace(start.again(again, held), companions=start.companions, has_plugins=start.has_plugins, work=start.work)
    except RanklaunchError as error:
        failure = error
    except (OSError, MemoryError) as error:
        failure = refused(error)
    record = start.record.of_attempt(type(failure)(f"restart {again.round} cannot begin: {failure}"))
    after = replace(start.after, restarts=(*start.after.restarts, again.next.get("restart", {})))
    plan = replace(start.plan, job=replace(start.plan.job, restart=again.round))
    return replace(start, plan=plan, record=record, replan=None, again=None, companions=(), has_plugins=False, after=after)


def no_more(verdict: Verdict) -> Start | None:
    """Return None: no attempt follows."""
    return None


class Session:
    """Session of one container. Public attributes are for its attempts.

    env: environment that all processes inherit. spare: descriptors for the imports of a failure. guard: fd that becomes readable
    when the outer process dies, or -1. has_desk: False for a job without a control socket.
    """

    nodes: Nodes

    def __init__(self, signals: Signals, env: Mapping[str, str], guard: int = -1, *, has_desk: bool = True) -> None:
        self.signals = signals
        self.env = env
        self._has_desk = has_desk
        self._asked: tuple[int, float] | None = None
        self._due = math.inf  # deadline for the end of all processes, by the loop's clock
        self.spare = disk.spare_descriptors(SPARE_DESCRIPTORS)
        self.loop = Loop()
        self.terminal = Terminal(self.loop, env)
        self._attempt: Attempt | None = None
        self._desk: Desk | None = None
        self._teller = Teller()
        self._orphaned = False
        self.loop.on_readable(signals.fd, self.take_signals)
        bequeath("beats", "1")
        if guard >= 0:
            self.loop.on_readable(guard, self._on_guard, guard)

    def run(self, start: Start, next_start: Callable[[Verdict], Start | None] = no_more) -> Verdict:
        """Return the last attempt's verdict. next_start: the start after an attempt with this verdict."""
        self.nodes = Nodes(start.plan, self.env, self.loop, self.terminal.say, self.attempt, start.decide, start.run_id)
        if not tree.sees_itself():
            self.terminal.say("warning: /proc does not show this container's processes: orphans of ranks are not found; mount a new /proc")
        if self._has_desk:
            self.loop.after(OPENS_S, self._open_desk)
        while True:
            attempt = self._attempt = Attempt(start, self)
            self._end_by(self._due)
            self._set_teller(start)
            if self._orphaned:  # also set while the nodes decided on a restart; the new attempt must be informed
                attempt.on_guard()
            elif self._asked:
                attempt.on_stop_request(self._asked[0])
            verdict = attempt.run()
            again = self.nodes.again
            following = _round_after(start, again, attempt.held) if again and start.again else self._next(verdict, next_start)
            if not following:
                self._close_desk()
                self.nodes.finish()
                attempt.close()
                self._teller.ended(verdict, start.record.of_verdict)
                self.terminal.flush_own()
                return verdict
            attempt.close()
            folder, start = start.record.folder, following
            if again:
                self.nodes.begin(start.plan)
                self._teller.restarts(folder)

    def _next(self, verdict: Verdict, next_start: Callable[[Verdict], Start | None]) -> Start | None:
        return None if self._asked else next_start(verdict)

    def _set_teller(self, start: Start) -> None:
        """Make the notifier of tools, once. If no descriptor is left, the job runs without."""
        if not start.tell or type(self._teller) is not Teller:
            return
        try:
            self._teller = start.tell(self, self.loop, self.terminal.say, self.env)
        except (OSError, ImportError) as error:
            self.terminal.say(f"warning: hooks and metrics get no news of this job: {error}")

    # For attempts, tools and the control socket

    def asked(self) -> tuple[int, float] | None:
        """Return the signal of the first stop request, and when it came, in monotonic seconds."""
        return self._asked

    def teller(self) -> Teller:
        return self._teller

    def orphaned(self) -> bool:
        return self._orphaned

    def plan(self) -> Plan:
        return self.attempt().plan

    def attempt(self) -> Attempt:
        """Return the attempt that runs."""
        assert self._attempt
        return self._attempt

    def phase(self) -> tuple[str, str]:
        return self.attempt().phase()

    def begun(self) -> bool:
        return self.phase()[0] != "starting"

    def of_ranks(self) -> Mapping[int, Mapping[str, Any]]:
        return self.attempt().companions.of_ranks()

    def present(self) -> Mapping[str, Any]:
        return self.attempt().companions.present()

    def hang(self) -> object:
        return self.attempt().companions.facts().get("hang")

    def slow(self) -> bool:
        return self.attempt().companions.slow

    def offer(self, number: int) -> tuple[bool, list[str]]:
        return self.attempt().pass_on(number)

    def stop(self) -> None:
        self._stop(signal.SIGTERM)

    def end_by(self, due: float, ways: Sequence[str]) -> None:
        """Set the deadline for the stop of this node. due: by the loop's clock. ways: ways in which ranks were asked to save before."""
        self._end_by(due)
        self.attempt().companions.on_deadline(ways)

    def take_signals(self) -> None:
        for number in self.signals.take():
            if number == signal.SIGCHLD:
                self.attempt().reap()
            elif number in PASSED_ON:
                self._pass_on(number)
            else:
                self._stop(number)

    def _stop(self, number: int) -> None:
        if not self._asked:
            self._asked = number, self.loop.clock()
            bequeath("stop", str(number))
            self._beat()
        self.attempt().on_stop_request(number)

    def _end_by(self, due: float) -> None:
        self._due = min(self._due, due)
        self.attempt().stopper.end_by(self._due)

    def _beat(self) -> None:
        bequeath("beat", "")
        self.loop.after(BEAT_S, self._beat)

    def _pass_on(self, number: int) -> None:
        if self._desk and self._desk.is_warning(name_of(number)):
            self._desk.warn()
        else:
            self.attempt().pass_on(number)

    def _open_desk(self) -> None:
        """Open the control socket of a job that lasts. A failure is ignored: the job runs without."""
        try:
            from ranklaunch.control.desk import Desk

            self._desk = Desk(self, self.loop)
            if self._desk.path:
                self.attempt().record.plan({**as_json(self.plan()), "socket": self._desk.path})
        except (OSError, ImportError):
            pass

    def _close_desk(self) -> None:
        if self._desk:
            self._desk.close()
            self._desk = None

    def _on_guard(self, guard: int) -> None:
        self.loop.forget(guard)
        self._orphaned = True
        self.attempt().on_guard()
