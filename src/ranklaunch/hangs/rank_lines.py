"""What ranks have said between two looks: their steps, and lines that users expect.

Only the end of each output is kept, so of a rank that writes more between two looks the last of it is read; of what was not, nothing
is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ranklaunch.hangs import cpu_limit, expect
from ranklaunch.hangs.expect import Expected
from ranklaunch.hangs.frames import Rule
from ranklaunch.hangs.limits import OnNode
from ranklaunch.hangs.sample import Said
from ranklaunch.hangs.step_reader import READ, step_reader
from ranklaunch.hangs.steps import Steps
from ranklaunch.output.pipe import Output

MOST_CPU_S = 1.0  # for the rules on all that is new
MOST_LINE = 2000  # characters of one that rules are tried on
# What libraries write again and again while they wait for others: it is no sign of life.
_WAITS = re.compile(
    r"(?i)\b(?:still )?waiting (?:for|on)\b|\bstill waiting\b|\bretrying\b|\bnot (?:yet )?ready\b|\bheart ?beat|\bkeep-?alive\b"
)


class _News(NamedTuple):
    data: bytes
    is_all: bool


class Heard:
    """Of all ranks of a node. began: when they were launched, in the loop's seconds."""

    def __init__(self, began: float, rules: Sequence[Expected]) -> None:
        self.steps: dict[int, Steps] = {}
        self._began = began
        self._rules = rules
        self._read: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._begun: dict[int, str] = {}  # a line that has not ended
        self._matched: list[float | None] = [None] * len(rules)
        self._wrong: list[tuple[str, int | None]] = [("", None)] * len(rules)
        self._limits = {number: OnNode(rule.limit) for number, rule in enumerate(rules) if rule.limit}
        self._trying = 0  # the number of a rule
        self.given_up: dict[int, str] = {}  # rules that take too long, as they are shown

    def look(self, outputs: Mapping[int, Output], now: float) -> Mapping[int, int]:
        """Return the bytes that each rank has written so far, without pieces whose lines only say that the rank waits."""
        new = []
        for rank, output in outputs.items():
            reader = step_reader(output)
            reader.look()
            self.steps[rank] = reader.steps
            before = self._read.get(rank, 0)
            news = self._news(rank, output)
            if news.data:
                at = now if output.written_at is None else output.written_at
                end = _end(news.data)
                text = (news.data if self._rules else end).decode(errors="replace").replace("\r", "\n")
                *lines, begun = (self._begun.get(rank, "") + text).split("\n")
                self._begun[rank] = begun[-MOST_LINE:]
                if not news.is_all or not _only_waits([*lines, begun]):
                    self._counts[rank] = self._counts.get(rank, 0) + output.taken - before
                new.append((rank, lines, news.is_all, at))
        if self._rules and new:
            self._try_all(new, now)
        return self._counts

    def said(self, outputs: Mapping[int, Output], now: float) -> dict[int | None, Said]:
        """What the next frame tells of each."""
        found: dict[int | None, Said] = {}
        for rank, output in outputs.items():
            steps = self.steps.get(rank)
            last = steps.last if steps else None
            silent_s = now - (self._began if output.written_at is None else output.written_at)
            gap = steps.largest_gap if steps else 0.0
            found[rank] = Said(max(0.0, silent_s), last.place.step if last else -1, gap, output.written_at is not None)
        return found

    def rules(self, now: float) -> tuple[Rule, ...]:
        """Return the state of each rule. A breach of a limit that is over is reported once more, and forgotten."""
        return tuple(self._limited(number, now) if rule.limit else self._rule(number, now) for number, rule in enumerate(self._rules))

    def _rule(self, number: int, now: float) -> Rule:
        at = now if number in self.given_up else self._matched[number]
        return Rule(None if at is None else max(0.0, now - at), *self._wrong[number])

    def _limited(self, number: int, now: float) -> Rule:
        found = self._limits[number].report()
        if not found:
            return Rule()
        rank, breach = found
        return Rule(max(0.0, now - breach.since), breach.value, rank, breach.bound)

    def _news(self, rank: int, output: Output) -> _News:
        new = output.taken - self._read.get(rank, 0)
        self._read[rank] = output.taken
        if new <= 0:
            return _News(b"", is_all=True)
        if new <= len(output.tail):
            return _News(output.tail[-new:], is_all=True)
        return _News(b"\n" + output.tail.partition(b"\n")[2], is_all=False)

    def _try_all(self, new: Iterable[tuple[int, Sequence[str], bool, float]], now: float) -> None:
        """An expression may take for ever on a line. Whoever tries it could hear no stop request meanwhile."""
        try:
            with cpu_limit.cpu(MOST_CPU_S):
                for each in new:
                    self._try(*each)
        except cpu_limit.TooLongError:
            self.given_up[self._trying] = self._rules[self._trying].shown
            self._matched = [now] * len(self._rules)  # what of it was not read is not held against the others

    def _try(self, rank: int, lines: Sequence[str], is_all: bool, now: float) -> None:
        for number, rule in enumerate(self._rules):
            if number in self.given_up:
                continue
            self._trying = number
            if rule.limit:
                self._judge(number, rule, rank, lines, now)
            elif rule.kind == expect.NUMBER:
                wrong = next((wrong for line in lines if (wrong := rule.wrong(line[:MOST_LINE])) is not None), None)
                if wrong is not None and self._wrong[number][1] is None:
                    self._wrong[number] = (wrong or "nothing", rank)
            elif any(rule.pattern.search(line[:MOST_LINE]) for line in lines) or not is_all:
                self._matched[number] = now

    def _judge(self, number: int, rule: Expected, rank: int, lines: Iterable[str], now: float) -> None:
        for line in lines:
            text = rule.value(line[:MOST_LINE])
            if text is not None:
                self._limits[number].feed(rank, text, now)


def _end(data: bytes) -> bytes:
    return data if len(data) <= READ else b"\n" + data[-READ:].partition(b"\n")[2]


def _only_waits(lines: Iterable[str]) -> bool:
    return all(_WAITS.search(line[:MOST_LINE]) for line in lines if line.strip())
