"""An attempt whose processes are the experiments of a search. How one of them ends decides nothing; the search ends when node 0 says so."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ranklaunch.errors import ConfigError, WaitError
from ranklaunch.muster.wire import WireError
from ranklaunch.plan.model import Process
from ranklaunch.supervise.attempt import Attempt
from ranklaunch.supervise.given import Start, Surroundings
from ranklaunch.supervise.judge import Circumstances, Ending
from ranklaunch.supervise.ranks.child import EXPERIMENT, LAUNCHER, Child, Success
from ranklaunch.system import memory, tree
from ranklaunch.tune.experiments.coordinator import Director, Voice, failure
from ranklaunch.tune.experiments.folder import Searches
from ranklaunch.tune.experiments.site import TOPIC, Site
from ranklaunch.tune.experiments.worker import Crew, Hands
from ranklaunch.tune.search import Search
from ranklaunch.verdict.blame import Finish
from ranklaunch.verdict.model import Verdict

ENDS_S = 5.0  # beyond the grace: for a search to end
LOOK_S = 0.2


class Tuning(Attempt):
    def __init__(self, start: Start, around: Surroundings, searches: Searches) -> None:
        super().__init__(start, around)
        self._searches = searches
        hands = Hands(self._try, self._below, self._tell_node_0, self._finish, self._start_best, lambda: self.ending is not None)
        self._crew = Crew(self._site, self.loop, hands)
        self._director: Director | None = None
        self.nodes.hear(TOPIC, self._crew.on_word)
        if self.plan.job.node_index == 0:
            self.nodes.hear(TOPIC, self._on_word, at_node_0=True)

    @property
    def _site(self) -> Site:
        return self._searches.site

    # In place of what a job starts

    def _launch(self) -> None:
        if self.plan.job.node_index == 0:
            self._wait_for_another()
            if self.ending:
                return
            voice = Voice(self._tell_nodes, self.say, self._searches.write, self._on_over, lambda: self.ending is not None)
            self._director = Director(self._site, self._searches.begin(self.say), self.loop, voice)
        self._crew.begin()
        if self._director:
            self._director.begin()

    def _wait_for_another(self) -> None:
        """Whose outer process was killed, say: it has the grace to end what it had started. Raises WaitError."""
        until = self.loop.clock() + self.plan.limits.grace_s + ENDS_S
        is_told = False
        while (folder := self._searches.held()) and not self.ending:
            if self.loop.clock() >= until:
                msg = f"another search is at work in {folder}: wait for its end, or give this one a --log-dir of its own"
                raise WaitError(msg)
            if not is_told:
                self.say(f"tune: another search is at work in {folder}; waiting for its end, {until - self.loop.clock():.0f} s at most")
            is_told = True
            self.loop.run_until(lambda: self.ending is not None, self.loop.clock() + LOOK_S)

    def _decide(self, child: Child) -> None:
        if child.role != EXPERIMENT:
            super()._decide(child)

    def _on_end(self, child: Child) -> None:
        super()._on_end(child)
        if child.role == EXPERIMENT and not self.ending:
            self._crew.on_end(child)

    def _circumstances(self) -> Circumstances:
        """What experiments did to memory is none of the search's failures."""
        return replace(super()._circumstances(), memory=memory.UNKNOWN)

    def _report(self, verdict: Verdict, own: Collection[str]) -> None:
        """What the search has found, however it ended."""
        if self._director:
            self._searches.close(self._director.search, self.say)
        super()._report(verdict, own)

    # What the crew and the director want

    def _try(self, process: Process) -> Child:
        before = set(self.children.running)
        self.children.start((process,), EXPERIMENT)
        (pid,) = set(self.children.running) - before
        return self.children.running[pid]

    def _below(self) -> list[tree.Identity]:
        return tree.descendants(os.getpid())

    def _tell_node_0(self, body: Mapping[str, Any]) -> None:
        self.nodes.tell_node_0(TOPIC, body)

    def _tell_nodes(self, body: Mapping[str, Any], nodes: Sequence[int]) -> None:
        try:
            self.nodes.tell_nodes(TOPIC, body, nodes)
        except WireError as error:
            msg = f"the DeepSpeed configuration cannot be told to the nodes: {error}"
            raise ConfigError(msg) from None

    def _on_word(self, node: int, body: Mapping[str, Any]) -> None:
        if self._director and not self.ending:
            self._director.on_word(node, body)

    # The end of the search

    def _on_over(self, search: Search) -> None:
        if not search.best:
            code, text = failure(search)
            self.fail(Ending("failed", code, text))
            return
        text = self._searches.summary(search)
        if not self._site.run:
            self.nodes.succeeds_with(text)
            self._tell_nodes({"do": "over", "text": text}, ())
            return
        chosen = search.experiment(search.best.name)
        order = {"config": self._searches.optimal(search), "args": dict(chosen.args), "port": self._searches.free_port()}
        self.say(f"{text}; starting the program with it")
        self._tell_nodes({"do": "best", **order}, ())

    def _finish(self, text: str) -> None:
        """On each node: nothing of the search runs any more."""
        if self.ending:
            return
        self._success = Success(text)
        own = Finish(self.plan.job.node_index, None, self.nodes.wall(self.loop.clock()))
        if self.nodes.done(own, text):
            self.finishes[:] = [own]
            self.record.event("done")
        else:
            self._end(Ending("succeeded", 0, text))

    def _start_best(self, body: Mapping[str, Any]) -> None:
        if not self.ending:
            self.children.start((self._searches.best_run(body),), LAUNCHER)
