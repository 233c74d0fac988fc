"""Stacks for whoever asks, between nodes that are values: what becomes of a question when the attempt that it was about ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ranklaunch.evidence.gathered import Gathered, OfRank
from ranklaunch.supervise.desk.stacked import Stacked


class OneNode:
    """A job's only node, which hears at once what it says."""

    def __init__(self) -> None:
        self._hearers: dict[tuple[str, bool], Callable[[int, Any], None]] = {}

    def hear(self, topic: str, hearer: Callable[[int, Any], None], at_node_0: bool = False) -> None:
        self._hearers[topic, at_node_0] = hearer

    def tell_node_0(self, topic: str, body: Mapping[str, Any]) -> None:
        self._hearers[topic, True](0, body)

    def tell_nodes(self, topic: str, body: Mapping[str, Any], nodes: Sequence[int]) -> None:
        self._hearers[topic, False](0, body)


class Attempt:
    """evidence: who hears what was found. taken: how often it was to be taken."""

    def __init__(self) -> None:
        self.evidence: list[Callable[[Gathered], None]] = []
        self.taken = 0

    def seen(self) -> Any:
        return SimpleNamespace(evidence=self.evidence, take=self._take)

    def _take(self, why: str, ends: bool) -> None:
        self.taken += 1

    def find(self, ranks: int) -> None:
        found = {rank: OfRank(0, "S", "wait (a.py:1)") for rank in range(ranks)}
        for hear in list(self.evidence):
            hear(Gathered(1, "asked", found))


def test_who_asks_twice_waits_for_one_taking_and_many_ranks_come_in_several_messages() -> None:
    attempt, answers = Attempt(), list[Any]()
    stacked = Stacked(OneNode(), 0, attempt.seen)  # type: ignore[arg-type]
    stacked.ask(answers.append)
    stacked.ask(answers.append)
    assert (attempt.taken, answers) == (1, [])
    attempt.find(ranks=20)
    assert [[rank["rank"] for rank in answer["ranks"]] for answer in answers] == [[*range(20)]] * 2
    assert attempt.evidence == []


def test_an_attempt_that_ends_before_it_answers_is_not_waited_for() -> None:
    attempts, answers = [Attempt()], list[Any]()
    stacked = Stacked(OneNode(), 0, lambda: attempts[-1].seen())  # type: ignore[arg-type]
    stacked.ask(answers.append)
    attempts.append(Attempt())
    stacked.ask(answers.append)
    assert [attempt.taken for attempt in attempts] == [1, 1]
    attempts[-1].find(ranks=1)
    assert [len(answer["ranks"]) for answer in answers] == [1, 1]
