"""Questions of one node to all: a question goes to node 0, from there to all nodes, and each answer the same way back.

Messages of the muster are no larger than 128 KiB, so a long answer comes in pages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ranklaunch.muster.nodes import Nodes
from ranklaunch.system.loop import Loop, Timer

ASK, DO, DID, SAID = "ask", "do", "did", "said"
PAGE, PAGE_BYTES = 256, 64 * 1024  # most ranks of a page, and most bytes of them
ANSWER_S = 0.8  # for all nodes to answer

Asked = Mapping[str, Any]
Answers = Mapping[int, Mapping[str, Any]]  # by node


@dataclass(frozen=True)
class _Question:
    told: Callable[[Answers], object]
    judge: Callable[[Asked], object]
    timer: Timer
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)
    pages_left: dict[int, int] = field(default_factory=dict)


class Circle:
    """do: answers a question of any node: values that JSON can hold, and perhaps `ranks`, a list. number: of the job's nodes."""

    def __init__(self, nodes: Nodes, index: int, number: int, loop: Loop, do: Callable[[Asked], Asked]) -> None:
        self._nodes = nodes
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

    def ask(self, question: Asked, answered: Callable[[Answers], object], judge: Callable[[Asked], object]) -> None:
        """Ask all nodes. answered: gets the answers within ANSWER_S. judge: raises one of wire.NOT_UNDERSTOOD for a useless
        answer."""
        self._last += 1
        timer = self._loop.after(ANSWER_S, partial(self._close, self._last))
        self._open[self._last] = _Question(answered, judge, timer)
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
        by, page = int(body["node"]), dict(body["said"])
        question = self._open.get(int(body["number"]))
        if not question:
            return
        question.judge(page)
        question.pages_left[by] = int(page.pop("pages")) - int(page.pop("page")) - 1
        before = question.answers.get(by, {"ranks": []})
        question.answers[by] = {**page, "ranks": [*before["ranks"], *map(dict, page["ranks"])]}
        if len(question.answers) >= self._number and not any(question.pages_left.values()):
            self._close(int(body["number"]))

    def _close(self, number: int) -> None:
        question = self._open.pop(number, None)
        if question:
            question.timer.cancel()
            question.told(question.answers)


def _pages(ranks: list[Any]) -> Iterator[list[Any]]:
    """Yield at least one page, which may be empty."""
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
