"""What ranks have said between two looks: their steps, and lines that users expect.

Only the end of each output is kept, so of a rank that writes more between two looks the last 32 KiB are read; of what was not, nothing
is said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ranklaunch.supervise.output.pipe import Output
from ranklaunch.watch import expect
from ranklaunch.watch.expect import Expected
from ranklaunch.watch.frames import Rule
from ranklaunch.watch.sample import Said
from ranklaunch.watch.steps import Steps

MOST_LINE = 2000  # characters of one that rules are tried on


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
        self._begun: dict[int, str] = {}  # a line that has not ended
        self._matched: list[float | None] = [None] * len(rules)
        self._wrong: list[tuple[str, int | None]] = [("", None)] * len(rules)

    def look(self, outputs: Mapping[int, Output], now: float) -> None:
        for rank, output in outputs.items():
            news = self._news(rank, output)
            if news.data:
                at = now if output.written_at is None else output.written_at
                self.steps.setdefault(rank, Steps()).feed(news.data, at)
                if self._rules:
                    self._try(rank, news, at)

    def said(self, outputs: Mapping[int, Output], now: float) -> dict[int | None, Said]:
        """What the next frame tells of each."""
        found: dict[int | None, Said] = {}
        for rank, output in outputs.items():
            steps = self.steps.get(rank)
            last = steps.last if steps else None
            silent_s = now - (self._began if output.written_at is None else output.written_at)
            found[rank] = Said(max(0.0, silent_s), last.place.step if last else -1, steps.largest_gap if steps else 0.0)
        return found

    def rules(self, now: float) -> tuple[Rule, ...]:
        """What has become of each so far."""
        return tuple(Rule(None if at is None else max(0.0, now - at), wrong, rank) for at, (wrong, rank) in zip(self._matched, self._wrong))

    def _news(self, rank: int, output: Output) -> _News:
        new = output.taken - self._read.get(rank, 0)
        self._read[rank] = output.taken
        if new <= 0:
            return _News(b"", is_all=True)
        if new <= len(output.tail):
            return _News(output.tail[-new:], is_all=True)
        return _News(b"\n" + output.tail.partition(b"\n")[2], is_all=False)

    def _try(self, rank: int, news: _News, now: float) -> None:
        *lines, begun = re.split(r"[\r\n]", self._begun.get(rank, "") + news.data.decode(errors="replace"))
        self._begun[rank] = begun[-MOST_LINE:]
        for number, rule in enumerate(self._rules):
            if rule.kind == expect.NUMBER:
                wrong = next((wrong for line in lines if (wrong := rule.wrong(line[:MOST_LINE])) is not None), None)
                if wrong is not None and self._wrong[number][1] is None:
                    self._wrong[number] = (wrong or "nothing", rank)
            elif any(rule.pattern.search(line[:MOST_LINE]) for line in lines) or not news.is_all:
                self._matched[number] = now
