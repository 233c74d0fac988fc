"""Stacks of all ranks for whoever asks one node for them: node 0 has evidence taken, and hands on what all have found.

Words between nodes: "stacks" to node 0 from the node that was asked; "stacked" back to it, a few ranks in each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ranklaunch.muster.nodes import Nodes
from ranklaunch.muster.wire import WireError
from ranklaunch.supervise.plugins import Attended

if TYPE_CHECKING:
    from ranklaunch.evidence.all_nodes import Gathered

STACKS, STACKED = "stacks", "stacked"
WHY = "ranklaunch stacks asks for it"

Answer = Callable[[Mapping[str, Any]], None]


class Stacked:
    """attended: the attempt that runs."""

    def __init__(self, nodes: Nodes, index: int, attended: Callable[[], Attended]) -> None:
        self._nodes = nodes
        self._attended = attended
        self._answers: list[Answer] = []
        self._ranks: list[Mapping[str, Any]] = []
        self._askers: set[int] = set()
        # Whose answer is waited for, as who asks and as node 0: an attempt, by its list of who hears of evidence.
        self._awaited: object = None
        self._gathering: list[Callable[[Any], object]] = []
        if index == 0:
            nodes.hear(STACKS, self._on_asked, at_node_0=True)
        nodes.hear(STACKED, self._on_stacked)

    def ask(self, answer: Answer) -> None:
        """answer: ranks, of which each has rank, node, state, stack (the innermost frame first, "" where there is none), file and
        exception; silent: nodes that have said nothing in time; and failed: nodes that could take no evidence, with node and why."""
        attempt = self._attended().evidence
        self._answers.append(answer)
        if len(self._answers) == 1 or self._awaited is not attempt:  # one that has ended answers nobody
            self._awaited, self._ranks = attempt, []
            self._nodes.tell_node_0(STACKS, {})

    def _on_asked(self, node: int, body: object) -> None:
        """As node 0."""
        seen = self._attended()
        if not self._askers or self._gathering is not seen.evidence:
            self._gathering = seen.evidence
            self._gathering.append(self._on_gathered)
            seen.take(WHY, False)
        self._askers.add(node)

    def _on_gathered(self, gathered: Gathered) -> None:
        from ranklaunch.evidence.collection import RANKS_A_MESSAGE  # it has been taken

        self._gathering.remove(self._on_gathered)
        askers, self._askers = sorted(self._askers), set()
        ranks = [
            {
                "rank": rank,
                "node": each.node,
                "state": each.state,
                "stack": each.stack,
                "file": each.file,
                "exception": each.exception,
            }
            for rank, each in gathered.ranks.items()
        ]
        rest = {"silent": list(gathered.silent), "failed": [{"node": who, "why": why} for who, why in sorted(gathered.failed.items())]}
        for i in range(0, max(1, len(ranks)), RANKS_A_MESSAGE):
            part = {"ranks": ranks[i : i + RANKS_A_MESSAGE], "more": i + RANKS_A_MESSAGE < len(ranks), **rest}
            try:
                self._nodes.tell_nodes(STACKED, part, askers)
            except WireError:  # they are in the folders
                self._nodes.tell_nodes(STACKED, {**part, "ranks": []}, askers)

    def _on_stacked(self, node: int, body: Mapping[str, Any]) -> None:
        ranks, more, silent = [dict(rank) for rank in body["ranks"]], body["more"], list(body["silent"])
        failed = [dict(each) for each in body.get("failed", ())]
        self._ranks += ranks
        if not more:
            answers, self._answers = self._answers, []
            for answer in answers:
                answer({"ranks": self._ranks, "silent": silent, "failed": failed})
