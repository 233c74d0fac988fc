"""A session: what lasts as long as the container. It has the signals, the loop, both consoles, the other nodes, and an eye on the outer
process; its attempts come one after the other."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping

from ranklaunch.muster.nodes import Nodes, OfNodes
from ranklaunch.plan.model import Plan
from ranklaunch.supervise.attempt import Attempt
from ranklaunch.supervise.given import Start, Surroundings
from ranklaunch.supervise.output.console import Terminal
from ranklaunch.system.loop import Loop
from ranklaunch.system.signals import PASSED_ON, Signals
from ranklaunch.verdict.model import Verdict


def no_more(verdict: Verdict) -> Start | None:
    """One attempt is all there is."""
    return None


class Session:
    """env: what processes inherit. guard: fd that becomes readable when the outer process dies, or -1."""

    def __init__(self, signals: Signals, env: Mapping[str, str], guard: int = -1) -> None:
        self._signals = signals
        self._env = env
        self._asked: tuple[int, float] | None = None
        self._loop = Loop()
        self._terminal = Terminal(self._loop)
        self._attempt: Attempt | None = None
        self._loop.on_readable(signals.fd, self._take_signals)
        if guard >= 0:
            self._loop.on_readable(guard, lambda: self._on_guard(guard))

    def run(
        self, start: Start, next_start: Callable[[Verdict], Start | None] = no_more,
        kind: Callable[[Start, Surroundings], Attempt] = Attempt,
    ) -> Verdict:  # fmt: skip
        """The last attempt's verdict. next_start: what follows an attempt that has ended so. kind: of the attempts."""
        around = self._surroundings(start.plan)
        while True:
            attempt = self._attempt = kind(start, around)
            verdict = attempt.run()
            following = None if self._asked else next_start(verdict)
            if not following:
                around.nodes.finish()
                attempt.close()
                return verdict
            attempt.close()
            start = following

    def _surroundings(self, plan: Plan) -> Surroundings:
        hear = OfNodes(
            released=lambda text: self._now().on_released(text),
            stop=lambda judgement: self._now().on_stop(judgement),
            judged=lambda judgement: self._now().on_judged(judgement),
            lost=lambda suspect: self._now().on_lost(suspect),
        )
        nodes = Nodes(plan, self._env, self._loop, self._terminal.say, hear)
        return Surroundings(self._loop, self._terminal, self._signals, self._env, nodes, self._take_signals, lambda: self._asked)

    def _now(self) -> Attempt:
        """Whose turn it is."""
        assert self._attempt
        return self._attempt

    def _take_signals(self) -> None:
        for number in self._signals.take():
            if number == signal.SIGCHLD:
                self._now().reap()
            elif number in PASSED_ON:
                self._now().pass_on(number)
            else:
                self._asked = self._asked or (number, self._loop.clock())
                self._now().on_stop_request(number)

    def _on_guard(self, guard: int) -> None:
        self._loop.forget(guard)
        self._now().on_guard()
