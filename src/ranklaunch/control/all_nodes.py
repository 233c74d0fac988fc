"""One node asks, all answer: a question goes to node 0, from there to all, and each answer the same way back.

Words of the muster are no larger than 128 KiB, so a long answer comes in pages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ranklaunch.muster.nodes import Nodes
from ranklaunch.system.loop import Loop, Timer

ASK, DO, DID, SAID = "ask", "do", "did", "said"
PAGE, PAGE_BYTES = 256, 64 * 1024  # of ranks, and of what is said of them
ANSWER_S = 0.8  # for all nodes to answer

Asked = Mapping[str, Any]
Do = Callable[[Asked], Mapping[str, Any]]
Judge = Callable[[Mapping[str, Any]], object]
Told = Callable[[Mapping[int, Mapping[str, Any]]], None]


@dataclass(frozen=True)
class _Question:
    answers: dict[int, dict[str, Any]]
    of: int
    told: Told
    judge: Judge
    timer: Timer


class Circle:
    """do: what this node does with a question of any node, and answers: values that JSON can hold, and `ranks`, a list, at will.
    number: of the job's nodes."""

    def __init__(self, nodes: Nodes, index: int, number: int, loop: Loop, do: Do) -> None:
        self._nodes = nodes
        self._index = index
        self._number = number
        self._loop = loop
        self._do = do
        self._last = 0
        self._open: dict[int, _Question] = {}
        if index == 0:
            nodes.hear(ASK, self._pass_on, at_node_0=True)
            nodes.hear(DID, self._pass_back, at_node_0=True)
        nodes.hear(DO, self._answer)
        nodes.hear(SAID, self._hear)

    def ask(self, question: Asked, told: Told, judge: Judge) -> None:
        """told: of all answers by node, or of those that have come within ANSWER_S. judge: raises what is in wire.NOT_UNDERSTOOD for one
        that is not as told needs it."""
        self._last += 1
        number = self._last
        self._open[number] = _Question({}, self._number, told, judge, self._loop.after(ANSWER_S, lambda: self._close(number)))
        self._nodes.tell_node_0(ASK, {"number": number, "asked": dict(question)})

    def _pass_on(self, node: int, body: Mapping[str, Any]) -> None:
        self._nodes.tell_nodes(DO, {"number": int(body["number"]), "asked": dict(body["asked"]), "by": node})

    def _answer(self, node: int, body: Mapping[str, Any]) -> None:
        answer = dict(self._do(body["asked"]))
        ranks = answer.pop("ranks", [])
        pages = list(_pages(ranks))
        for page, part in enumerate(pages):
            said = {**answer, "ranks": part, "page": page, "pages": len(pages)}
            self._nodes.tell_node_0(DID, {"number": body["number"], "by": body["by"], "said": said})

    def _pass_back(self, node: int, body: Mapping[str, Any]) -> None:
        self._nodes.tell_nodes(SAID, {"number": body["number"], "node": node, "said": body["said"]}, [int(body["by"])])

    def _hear(self, node: int, body: Mapping[str, Any]) -> None:
        who, said = int(body["node"]), dict(body["said"])
        question = self._open.get(int(body["number"]))
        if not question:
            return
        question.judge(said)
        before = question.answers.get(who)
        page, pages, ranks = int(said.pop("page")), int(said.pop("pages")), [dict(rank) for rank in said["ranks"]]
        answer = {**said, "ranks": [*before["ranks"], *ranks] if before else ranks, "left": pages - page - 1}
        question.answers[who] = answer
        if len(question.answers) >= question.of and not any(each["left"] for each in question.answers.values()):
            self._close(int(body["number"]))

    def _close(self, number: int) -> None:
        question = self._open.pop(number, None)
        if question:
            question.timer.cancel()
            for answer in question.answers.values():
                answer.pop("left", None)
            question.told(question.answers)


def _pages(ranks: list[Any]) -> Iterator[list[Any]]:
    """At least one, which may be empty."""
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
