"""A node's part in a search: starts its run of an experiment when node 0 says so, ends it when it is told to, and tells how it ended.

One experiment at a time. The first of an experiment's nodes leads: it chooses free ports, and says how fast it was.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ranklaunch.command.below import free_ports
from ranklaunch.fields import as_dict
from ranklaunch.plan.model import Process
from ranklaunch.supervise.ranks.child import Child
from ranklaunch.system import tree
from ranklaunch.system.loop import Loop
from ranklaunch.tune.experiments import experiment, measure
from ranklaunch.tune.experiments.experiment import Order
from ranklaunch.tune.experiments.site import NODE_GRACE_S, Site

LOOK_S = 0.05
LEFT_S = 1.0  # for what an experiment has left to end by itself, before it is killed


@dataclass(frozen=True)
class Hands:
    """What the attempt does for it. start: a process of the node. left: identities of processes below this one that run. tell: node 0.
    finish: the search is over, as node 0 says. best: starts the program with what was found. over: this node ends."""

    start: Callable[[Process], Child]
    left: Callable[[], list[tree.Identity]]
    tell: Callable[[Mapping[str, Any]], None]
    finish: Callable[[str], None]
    best: Callable[[Mapping[str, Any]], None]
    over: Callable[[], bool]


class Crew:
    def __init__(self, site: Site, loop: Loop, hands: Hands) -> None:
        self._site = site
        self._loop = loop
        self._hands = hands
        self._waiting: list[Callable[[], None]] | None = []  # what was asked for before all was ready; None: it is
        self._others: frozenset[tree.Identity] = frozenset()  # that ran below this process before the experiment did
        self._order: Order | None = None
        self._child: Child | None = None
        self._began = 0.0
        self._hung_after_s = 0.0

    def begin(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        for work in waiting:
            work()

    def on_word(self, node: int, body: Mapping[str, Any]) -> None:
        """Reads it, and does it in a turn of the loop of its own: what goes wrong then is no fault of the word."""
        work = self._asked(body)
        if work and self._waiting is not None:
            self._waiting.append(work)
        elif work:
            self._loop.after(0, work)

    def on_end(self, child: Child) -> None:
        """Of an experiment. What it has left is ended before anything else begins here."""
        if child is self._child:
            self._sweep(child, self._loop.clock() + LEFT_S)

    def _asked(self, body: Mapping[str, Any]) -> Callable[[], None] | None:
        """Raises ValueError, TypeError or LookupError. None: it is of a later version."""
        what = body["do"]
        if what == "start":
            order = experiment.read(body["experiment"])
            return lambda: self._start(order)
        if what == "stop":
            name, after_s = str(body["name"]), float(body["after_s"])
            return lambda: self._stop(name, after_s)
        if what == "over":
            text = str(body["text"])
            return lambda: self._hands.finish(text)
        if what == "best":
            best = {"config": dict(body["config"]), "args": dict(body["args"]), "port": int(body["port"])}
            return lambda: self._hands.best(best)
        return None

    def _start(self, order: Order) -> None:
        if self._hands.over():
            return
        site, own = self._site, self._site.plan.job.node_index
        if order.leader == own:
            order = replace(order, ports=free_ports(2))
            experiment.fresh(site, order)
            if len(order.nodes) > 1:
                self._hands.tell({"do": "led", "name": order.name, "ports": list(order.ports)})
        self._order, self._hung_after_s, self._began = order, 0.0, self._loop.clock()
        self._others = frozenset(self._hands.left())
        self._child = self._hands.start(experiment.process(site, order))

    def _stop(self, name: str, after_s: float) -> None:
        """It hangs: its run ends it within its grace, and is killed where it does not."""
        child = self._child
        if not child or not child.alive or not self._order or self._order.name != name:
            return
        self._hung_after_s = after_s
        child.told.append(signal.SIGTERM)
        tree.send(child.identity, signal.SIGTERM)
        self._loop.after(self._site.grace_s + NODE_GRACE_S, lambda: self._kill(child))

    def _kill(self, child: Child) -> None:
        """Its supervisor ends all below it then, as it does whenever the process that started it is gone."""
        if child.alive:
            child.told.append(signal.SIGKILL)
            tree.send(child.identity, signal.SIGKILL)

    def _sweep(self, child: Child, until: float) -> None:
        left = [process for process in self._hands.left() if process not in self._others]
        if left and self._loop.clock() > until:
            for process in left:
                tree.send(process, signal.SIGKILL)
        if left:
            self._loop.after(LOOK_S, lambda: self._sweep(child, until))
        else:
            self._report(child)

    def _report(self, child: Child) -> None:
        order = self._order
        assert order
        self._order = self._child = None
        body: dict[str, Any] = {"do": "ended", "name": order.name}
        found = experiment.verdict(self._site, order)
        if order.leader == self._site.plan.job.node_index:
            status, reason = experiment.status(found, child.ended.code, self._hung_after_s)
            seconds = round(self._loop.clock() - self._began, 3)
            body["result"] = as_dict(measure.result(self._site, order, status, reason, child.ended.code, seconds))
        self._hands.tell(body)
