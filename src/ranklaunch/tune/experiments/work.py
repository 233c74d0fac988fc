"""A search as the work of an attempt: each node's worker, and on node 0 the coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ranklaunch.errors import WaitError
from ranklaunch.processes.children import Child
from ranklaunch.supervise.attempt import Attempt
from ranklaunch.tune.experiments.coordinator import Coordinator
from ranklaunch.tune.experiments.folder import Folder
from ranklaunch.tune.experiments.site import TOPIC
from ranklaunch.tune.experiments.worker import Worker

ENDS_S = 5.0  # beyond the grace, for another search to end
LOOK_S = 0.2


class Tuning:
    """Work of an attempt (`ranklaunch.supervise.context.Work`) that is a search. The end of one experiment does
    not end the attempt; the search ends by a message of node 0."""

    def __init__(self, attempt: Attempt, folder: Folder) -> None:
        self._attempt = attempt
        self._folder = folder
        self._worker = Worker(attempt, folder)
        self._coordinator: Coordinator | None = None
        attempt.nodes.hear(TOPIC, self._worker.on_message)
        if attempt.plan.job.node_index == 0:
            attempt.nodes.hear(TOPIC, self._on_message, at_node_0=True)

    def begin(self) -> None:
        if self._attempt.plan.job.node_index == 0:
            self._lock()
            if self._attempt.ending:
                return
            search = self._folder.begin(self._attempt.say)
            self._coordinator = Coordinator(self._attempt, self._folder, search)
        self._worker.begin()
        if self._coordinator:
            self._coordinator.begin()

    def on_end(self, child: Child) -> None:
        self._worker.on_end(child)

    def close(self) -> None:
        """Write and print the results, for any end of the search."""
        if self._coordinator:
            self._folder.close(self._coordinator.search, self._attempt.say)

    def _lock(self) -> None:
        """Wait until no other search uses the folder: a search whose outer process was killed has the
        grace to end its experiments. Raises WaitError after that time."""
        attempt = self._attempt
        until = attempt.loop.clock() + attempt.plan.limits.grace_s + ENDS_S
        waits = False
        while (busy := self._folder.lock()) and not attempt.ending:
            remaining_s = until - attempt.loop.clock()
            if remaining_s <= 0:
                msg = f"another search is at work in {busy}: wait for its end, or give this one a --log-dir of its own"
                raise WaitError(msg)
            if not waits:
                attempt.say(f"tune: another search is at work in {busy}; waiting for its end, {remaining_s:.0f} s at most")
            waits = True
            attempt.loop.run_until(lambda: attempt.ending is not None, attempt.loop.clock() + LOOK_S)

    def _on_message(self, node: int, body: Mapping[str, Any]) -> None:
        if self._coordinator and not self._attempt.ending:
            self._coordinator.on_message(node, body)
