"""Part of each node in a search: starts the node's run of each experiment, and reports the end to node 0."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ranklaunch.cli.child_command import free_ports
from ranklaunch.fields import as_dict
from ranklaunch.processes.children import EXPERIMENT, LAUNCHER, Child
from ranklaunch.supervise.attempt import Attempt
from ranklaunch.system import tree
from ranklaunch.tune.experiments import best, experiment, outcome
from ranklaunch.tune.experiments.experiment import Order
from ranklaunch.tune.experiments.folder import Folder
from ranklaunch.tune.experiments.site import NODE_GRACE_S, TOPIC, Site

LOOK_S = 0.05
LEFTOVERS_S = 1.0  # time for leftover processes of an experiment to end by themselves, before they are killed


class Worker:
    """Runs one experiment at a time. The first node of an experiment leads: this node chooses free ports
    for the other nodes, and measures the speed."""

    def __init__(self, attempt: Attempt, folder: Folder) -> None:
        self._attempt = attempt
        self._folder = folder
        self._early: list[Callable[[], None]] | None = []  # actions before begin(); None after it
        self._older: frozenset[tree.Identity] = frozenset()  # processes from before the experiment
        self._order: Order | None = None
        self._child: Child | None = None
        self._began = 0.0
        self._hung_after_s = 0.0

    @property
    def _site(self) -> Site:
        return self._folder.site

    def begin(self) -> None:
        early, self._early = self._early or [], None
        for action in early:
            action()

    def on_message(self, node: int, body: Mapping[str, Any]) -> None:
        """Read a message of node 0, and act in a later turn of the loop, so that a failure of the action does
        not count as a damaged message. Raises ValueError, TypeError or LookupError."""
        action = self._action(body)
        if action and self._early is not None:
            self._early.append(action)
        elif action:
            self._attempt.loop.after(0, action)

    def _action(self, body: Mapping[str, Any]) -> Callable[[], None] | None:
        """Return the action for a message, None for an unknown message of a later version."""
        kind = body["do"]
        if kind == "start":
            order = experiment.read(body["experiment"])
            return lambda: self._start(order)
        if kind == "stop":
            name, after_s = str(body["name"]), float(body["after_s"])
            return lambda: self._stop(name, after_s)
        if kind == "over":
            text = str(body["text"])
            return lambda: self._attempt.succeed(text)
        if kind == "best":
            chosen = best.read(body)
            return lambda: self._start_best(chosen)
        return None

    def on_end(self, child: Child) -> None:
        """End leftover processes of an experiment before the next one begins on this node."""
        if child is self._child:
            self._sweep(child, self._attempt.loop.clock() + LEFTOVERS_S)

    def _start(self, order: Order) -> None:
        if self._attempt.ending:
            return
        site = self._site
        if order.leader == site.plan.job.node_index:
            order = replace(order, ports=free_ports(2))
            experiment.clear_folder(site, order)
            if len(order.nodes) > 1:
                self._report({"do": "led", "name": order.name, "ports": list(order.ports)})
        self._order, self._hung_after_s, self._began = order, 0.0, self._attempt.loop.clock()
        self._older = frozenset(tree.descendants(os.getpid()))
        self._child = self._attempt.start_process(experiment.process(site, order), EXPERIMENT)

    def _stop(self, name: str, after_s: float) -> None:
        """End a hung experiment: send SIGTERM to its run, and SIGKILL if the run outlasts its own grace."""
        child = self._child
        if not child or not child.alive or not self._order or self._order.name != name:
            return
        self._hung_after_s = after_s
        child.told.append(signal.SIGTERM)
        tree.send(child.identity, signal.SIGTERM)
        self._attempt.loop.after(self._site.grace_s + NODE_GRACE_S, _kill, child)

    def _start_best(self, chosen: best.Chosen) -> None:
        if not self._attempt.ending:
            self._attempt.start_process(best.process(self._site, chosen), LAUNCHER)

    def _sweep(self, child: Child, until: float) -> None:
        leftovers = [each for each in tree.descendants(os.getpid()) if each not in self._older]
        if not leftovers:
            self._report_end(child)
            return
        if self._attempt.loop.clock() > until:
            for process in leftovers:
                tree.send(process, signal.SIGKILL)
        self._attempt.loop.after(LOOK_S, self._sweep, child, until)

    def _report_end(self, child: Child) -> None:
        order, site = self._order, self._site
        assert order
        self._order = self._child = None
        body: dict[str, Any] = {"do": "ended", "name": order.name}
        verdict = outcome.verdict(site, order)
        if order.leader == site.plan.job.node_index:
            code = child.ended.code
            status, reason = outcome.status(verdict, code, self._hung_after_s)
            seconds = round(self._attempt.loop.clock() - self._began, 3)
            body["result"] = as_dict(outcome.result(site, order, status, reason, code, seconds))
        self._report(body)

    def _report(self, body: Mapping[str, Any]) -> None:
        self._attempt.nodes.tell_node_0(TOPIC, body)


def _kill(child: Child) -> None:
    """Kill a run whose supervisor does not end: the run's outer process then ends all of its processes."""
    if child.alive:
        child.told.append(signal.SIGKILL)
        tree.send(child.identity, signal.SIGKILL)
