"""Lines of ranks between two looks: steps, and lines that the user's rules expect.

Only the end of each output is kept. If a rank writes more than this between two looks, the rest is not read, and nothing is concluded
from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ranklaunch.hangs import cpu_limit, expect
from ranklaunch.hangs.expect import Expected, OnNode
from ranklaunch.hangs.frames import Rule
from ranklaunch.hangs.sample import Seen
from ranklaunch.hangs.steps import READ, Steps, step_reader
from ranklaunch.output.pipe import Output

MOST_CPU_S = 1.0  # for the rules, in one look
MOST_LINE = 2000  # characters of a line that are matched against rules
# Lines that libraries print again and again while they wait for other ranks: no sign of life.
_WAITS = re.compile(
    r"(?i)\b(?:still )?waiting (?:for|on)\b|\bstill waiting\b|\bretrying\b|\bnot (?:yet )?ready\b|\bheart ?beat|\bkeep-?alive\b"
)


class _News(NamedTuple):
    """New lines of a rank. is_all: True if all new output was read, False if only the end."""

    rank: int
    lines: Sequence[str]
    is_all: bool
    at: float


class Heard:
    """Output of all ranks of a node. given_up: by number, rules that take too long and are not applied any more."""

    def __init__(self, rules: Sequence[Expected]) -> None:
        self.steps: dict[int, Steps] = {}
        self.given_up: dict[int, str] = {}
        self._rules = rules
        self._read: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._begun: dict[int, str] = {}  # by rank: last line, without its end yet
        self._matched: list[float | None] = [None] * len(rules)
        self._wrong: list[tuple[str, int | None]] = [("", None)] * len(rules)
        self._limits = {number: OnNode(rule.limit) for number, rule in enumerate(rules) if rule.limit}
        self._trying = 0  # number of the rule that is being matched

    def look(self, outputs: Mapping[int, Output], now: float) -> Mapping[int, int]:
        """Read new output. Return the bytes that each rank has written so far, without pieces in which all lines only report waiting."""
        news = []
        for rank, output in outputs.items():
            reader = step_reader(output)
            reader.look()
            self.steps[rank] = reader.steps
            new = self._news(rank, output)
            if new:
                news.append(new)
        if self._rules and news:
            self._try_all(news, now)
        return self._counts

    def _news(self, rank: int, output: Output) -> _News | None:
        """Return the new lines of a rank, None for no new output."""
        size = output.taken - self._read.get(rank, 0)
        self._read[rank] = output.taken
        if size <= 0 or output.written_at is None:
            return None
        is_all = size <= len(output.tail)
        data = output.tail[-size:] if is_all else _whole_lines(output.tail)
        if not self._rules and len(data) > READ:
            data = _whole_lines(data[-READ:])
        text = data.decode(errors="replace").replace("\r", "\n")
        *lines, begun = (self._begun.get(rank, "") + text).split("\n")
        self._begun[rank] = begun[-MOST_LINE:]
        if not is_all or not _only_waits([*lines, begun]):
            self._counts[rank] = self._counts.get(rank, 0) + size
        return _News(rank, lines, is_all, output.written_at)

    def add(self, sample: Seen) -> Seen:
        """Return a sample with the steps of its rank."""
        steps = self.steps.get(sample.rank) if sample.rank is not None else None
        if not steps:
            return sample
        return sample._replace(step=steps.last.place.step if steps.last else -1, gap=steps.largest_gap, printed=sample.rank in self._begun)

    def rules(self, now: float) -> tuple[Rule, ...]:
        """Return the state of each rule. A breach that is over is reported once more, then forgotten."""
        return tuple(self._limited(number, now) if rule.limit else self._rule(number, now) for number, rule in enumerate(self._rules))

    def _rule(self, number: int, now: float) -> Rule:
        at = now if number in self.given_up else self._matched[number]
        return Rule(None if at is None else max(0.0, now - at), *self._wrong[number])

    def _limited(self, number: int, now: float) -> Rule:
        report = self._limits[number].report()
        if not report:
            return Rule()
        rank, breach = report
        return Rule(max(0.0, now - breach.since), breach.value, rank, breach.bound)

    def _try_all(self, news: Iterable[_News], now: float) -> None:
        """Match the rules against new lines, for at most MOST_CPU_S: an expression may take for ever on a line, and meanwhile the
        supervisor gets no stop request."""
        try:
            with cpu_limit.cpu(MOST_CPU_S):
                for new in news:
                    for number, rule in enumerate(self._rules):
                        if number not in self.given_up:
                            self._trying = number
                            self._try(number, rule, new)
        except cpu_limit.TooLongError:
            self.given_up[self._trying] = self._rules[self._trying].shown
            self._matched = [now] * len(self._rules)  # the unread lines may match: no rule must break because of them

    def _try(self, number: int, rule: Expected, new: _News) -> None:
        lines = [line[:MOST_LINE] for line in new.lines]
        if rule.limit:
            for value in filter(None, map(rule.value, lines)):
                self._limits[number].feed(new.rank, value, new.at)
        elif rule.kind == expect.NUMBER:
            wrong = [wrong for wrong in map(rule.wrong, lines) if wrong is not None]
            if wrong and self._wrong[number][1] is None:
                self._wrong[number] = (wrong[0] or "nothing", new.rank)
        elif not new.is_all or any(map(rule.pattern.search, lines)):
            self._matched[number] = new.at


def _whole_lines(data: bytes) -> bytes:
    """Return data without its first, partial line; a newline stands in its place."""
    return b"\n" + data.partition(b"\n")[2]


def _only_waits(lines: Iterable[str]) -> bool:
    return all(_WAITS.search(line[:MOST_LINE]) for line in lines if line.strip())
