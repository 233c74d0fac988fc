"""Questions of one node to all nodes. A question goes to node 0 and from there to all nodes; each answer takes the same way back.

Messages of the muster have at most 128 KiB, so a long answer is sent in pages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ranklaunch.muster.nodes import Nodes
from ranklaunch.system.loop import Loop, Timer

# Topics, in order of a question's way: asking node to node 0, to all nodes, back to node 0, back to the asking node.
ASK, DO, DID, SAID = "ask", "do", "did", "said"
PAGE, PAGE_BYTES = 256, 64 * 1024  # ranks in a page, and their bytes, at most
ANSWER_S = 0.8  # for all nodes to answer

Question = Mapping[str, Any]
Answers = Mapping[int, Mapping[str, Any]]  # by node


@dataclass(frozen=True)
class _Open:
    """Question without all answers yet."""

    answered: Callable[[Answers], object]
    judge: Callable[[Question], object]
    timer: Timer
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)
    pages_left: dict[int, int] = field(default_factory=dict)


class AllNodes:
    """Questions to all nodes, and this node's answers.

    index: of this node. number: of the job's nodes. do: returns the answer of this node to a question: JSON values, and perhaps `ranks`,
    a list that may be long.
    """

    def __init__(self, nodes: Nodes, index: int, number: int, loop: Loop, do: Callable[[Question], Question]) -> None:
        self._nodes = nodes
        self._number = number
        self._loop = loop
        self._do = do
        self._last = 0
        self._open: dict[int, _Open] = {}
        if index == 0:
            nodes.hear(ASK, self._pass_on, at_node_0=True)
            nodes.hear(DID, self._pass_back, at_node_0=True)
        nodes.hear(DO, self._answer)
        nodes.hear(SAID, self._hear)

    def ask(self, question: Question, answered: Callable[[Answers], object], judge: Callable[[Question], object]) -> None:
        """Ask all nodes. answered: takes the answers that come within ANSWER_S. judge: checks each answer, and raises an exception of
        wire.NOT_UNDERSTOOD for an invalid one."""
        self._last += 1
        timer = self._loop.after(ANSWER_S, partial(self._close, self._last))
        self._open[self._last] = _Open(answered, judge, timer)
        self._nodes.tell_node_0(ASK, {"number": self._last, "asked": dict(question)})

    def _pass_on(self, node: int, body: Mapping[str, Any]) -> None:
        self._nodes.tell_nodes(DO, {"number": int(body["number"]), "asked": dict(body["asked"]), "by": node})

    def _answer(self, node: int, body: Mapping[str, Any]) -> None:
        answer = {"ranks": [], **self._do(body["asked"])}
        pages = list(_pages(answer["ranks"]))
        for page, part in enumerate(pages):
            answer_part = {**answer, "ranks": part, "page": page, "pages": len(pages)}
            self._nodes.tell_node_0(DID, {"number": body["number"], "by": body["by"], "said": answer_part})

    def _pass_back(self, node: int, body: Mapping[str, Any]) -> None:
        self._nodes.tell_nodes(SAID, {"number": body["number"], "node": node, "said": body["said"]}, [int(body["by"])])

    def _hear(self, node: int, body: Mapping[str, Any]) -> None:
        node_index, page = int(body["node"]), dict(body["said"])
        question = self._open.get(int(body["number"]))
        if not question:
            return
        question.judge(page)
        question.pages_left[node_index] = int(page.pop("pages")) - int(page.pop("page")) - 1
        before = question.answers.get(node_index, {"ranks": []})
        question.answers[node_index] = {**page, "ranks": [*before["ranks"], *map(dict, page["ranks"])]}
        if len(question.answers) >= self._number and not any(question.pages_left.values()):
            self._close(int(body["number"]))

    def _close(self, number: int) -> None:
        question = self._open.pop(number, None)
        if question:
            question.timer.cancel()
            question.answered(question.answers)


def _pages(ranks: list[Any]) -> Iterator[list[Any]]:
    """Yield ranks in pages; one empty page for no ranks."""
    page: list[Any] = []
    size = 0
    for rank in ranks:
        of_rank = len(json.dumps(rank))
        if page and (len(page) >= PAGE or size + of_rank > PAGE_BYTES):
            yield page
            page, size = [], 0
        page.append(rank)
        size += of_rank
    yield page
