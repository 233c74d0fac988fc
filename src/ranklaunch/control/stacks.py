"""Stacks of all ranks for `ranklaunch stacks`: node 0 has all nodes collect evidence, and returns the stacks to the asking node.

Messages: "stacks" from the asking node to node 0; "stacked" back to this node, with a few ranks in each message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ranklaunch.muster.nodes import Nodes
from ranklaunch.muster.wire import WireError

if TYPE_CHECKING:
    from ranklaunch.evidence.all_nodes import Gathered
    from ranklaunch.supervise.attempt import Attempt

STACKS, STACKED = "stacks", "stacked"
WHY = "ranklaunch stacks asks for it"
RANKS_A_MESSAGE = 8
_FIELDS = ("node", "state", "stack", "file", "exception")

Answer = Callable[[Mapping[str, Any]], None]


class Stacked:
    """Stacks for the clients of this node. running: returns the attempt that runs."""

    def __init__(self, nodes: Nodes, index: int, running: Callable[[], Attempt]) -> None:
        self._nodes = nodes
        self._running = running
        self._answers: list[Answer] = []
        self._ranks: list[Mapping[str, Any]] = []
        self._askers: set[int] = set()
        # The attempts of the last question: of this node (_awaited), and of node 0 (_gathering). Known by their lists of listeners.
        self._awaited: object = None
        self._gathering: list[Callable[[Any], object]] = []
        if index == 0:
            nodes.hear(STACKS, self._on_asked, at_node_0=True)
        nodes.hear(STACKED, self._on_stacked)

    def ask(self, answer: Answer) -> None:
        """Ask for the stacks of all ranks. answer: is called with a dict:

        | key | meaning |
        | --- | --- |
        | ranks | rank, node, state, stack (the innermost frame first), file, exception of each rank |
        | silent | nodes without an answer in time |
        | failed | node and why, for nodes that could collect no evidence |
        """
        hearers = self._running().companions.hear_evidence
        self._answers.append(answer)
        if len(self._answers) == 1 or self._awaited is not hearers:  # a question to an ended attempt gets no answer
            self._awaited, self._ranks = hearers, []
            self._nodes.tell_node_0(STACKS, {})

    def _on_asked(self, node: int, body: object) -> None:
        """As node 0, have evidence collected, and note the asking node."""
        companions = self._running().companions
        if not self._askers or self._gathering is not companions.hear_evidence:
            self._gathering = companions.hear_evidence
            self._gathering.append(self._on_gathered)
            companions.take(WHY, False)
        self._askers.add(node)

    def _on_gathered(self, gathered: Gathered) -> None:
        self._gathering.remove(self._on_gathered)
        askers, self._askers = sorted(self._askers), set()
        ranks = [{"rank": rank, **{name: getattr(each, name) for name in _FIELDS}} for rank, each in gathered.ranks.items()]
        failed = [{"node": node, "why": why} for node, why in sorted(gathered.failed.items())]
        for i in range(0, max(1, len(ranks)), RANKS_A_MESSAGE):
            part = {
                "ranks": ranks[i : i + RANKS_A_MESSAGE], "more": i + RANKS_A_MESSAGE < len(ranks), "silent": list(gathered.silent),
                "failed": failed,
            }  # fmt: skip
            try:
                self._nodes.tell_nodes(STACKED, part, askers)
            except WireError:  # too large; the stacks are in the files of the evidence
                self._nodes.tell_nodes(STACKED, {**part, "ranks": []}, askers)

    def _on_stacked(self, node: int, body: Mapping[str, Any]) -> None:
        ranks, failed = ([dict(each) for each in body[key]] for key in ("ranks", "failed"))
        silent = list(body["silent"])
        self._ranks += ranks
        if not body["more"]:
            answers, self._answers = self._answers, []
            for answer in answers:
                answer({"ranks": self._ranks, "silent": silent, "failed": failed})
