"""What the events of one start of one node tell, taken in line by line: of a million lines no more is kept than of a hundred. Pure.

A file may end in the middle of a line, have lines of any length, or be no text at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ranklaunch.report import checked
from ranklaunch.report.model import Outcome, Seen, Span

MOST = 256  # things of a kind that are kept; of processes, MOST_NAMES
MOST_NAMES = 8192  # processes of a node
MOST_STEPS = 200  # of a rank
MOST_ADDED = 1_000_000  # steps of ranks that are looked at one by one; of what comes after them, every so many events
EVERY = 256
MOST_CLOCK_S = 4e9  # by which a clock may be wrong: one that has never been set stands at 1970
Line = Mapping[str, Any]


class Thinned:
    """The steps of a rank: of very many, the first and the last, and of those between them every second, fourth, ..."""

    def __init__(self) -> None:
        self._kept: list[Seen] = []
        self._last: Seen | None = None
        self._stride = 1
        self._since = 0

    def add(self, seen: Seen) -> None:
        self._last = seen
        if not self._since:
            self._kept.append(seen)
        self._since = (self._since + 1) % self._stride
        if len(self._kept) > MOST_STEPS:
            del self._kept[1::2]
            self._stride *= 2

    def all(self) -> list[Seen]:
        return [*self._kept, *([self._last] if self._last and self._last is not self._kept[-1] else [])]


class Told:
    """feed() each line. Times are by this node's own clock: the wall's at the first line, and the monotonic one from there. before: what
    the same supervisor told of an earlier round, whose first line counts then: the wall's clock may have been set in between."""

    def __init__(self, before: Told | None = None) -> None:
        self.first: float | None = None
        self.last: float | None = None
        self.read: Line = {}
        self.container_s: float | None = None
        self.waits: list[Span] = []
        self.settled_at: float | None = None
        self.released: float | None = None
        self.clock_s: float | None = None
        self.late = ""
        self.spawned: dict[str, tuple[float, int | None, int | None]] = {}  # when, rank, pid
        self.wrote: dict[str, float] = {}
        self.exits: dict[str, tuple[float, Line]] = {}
        self.steps: dict[int, Thinned] = {}
        self.saved: list[Span] = []
        self.signals: list[tuple[float, str]] = []
        self.hangs: list[tuple[float, str, float | None]] = []  # when, what, since when
        self.slows: list[tuple[bool, float]] = []  # changes of a slow job: True for a recovery, and since when
        self.evidence: list[Line] = []
        self.troubles: list[str] = []
        self.failing: float | None = None
        self.done: float | None = None
        self.decided: tuple[float, Outcome | None, str] | None = None  # when, outcome, by
        self.end: tuple[float, Outcome | None, int | None] | None = None  # when, outcome, exit code
        self.starts = 0
        self.spoilt = 0  # lines that are no events
        self._added = 0
        self._skipped: tuple[float, Line] | None = None  # the last event of steps that was passed over
        self._passed = 0
        self._anchor: tuple[float, float] | None = None
        self._before = before and before._anchor

    def feed(self, data: bytes) -> None:
        try:
            line = json.loads(data)
        except (ValueError, RecursionError):
            self.spoilt += 1
            return
        event = line.get("event") if isinstance(line, dict) else None
        hear = _HEARD.get(event) if isinstance(event, str) else None
        at = self._at(line) if isinstance(event, str) else None
        if at is None:
            self.spoilt += 1
            return
        if event == "read" and self.first is not None:
            self._again(at)
        self.first = at if self.first is None else min(self.first, at)
        self.last = at if self.last is None else max(self.last, at)
        if hear:
            hear(self, at, line)

    def _again(self, at: float) -> None:
        """A start that writes behind what an earlier one has left in the same folder: the last one counts."""
        starts, spoilt, anchor, before = self.starts, self.spoilt, self._anchor, self._before
        self.__init__()  # type: ignore[misc]
        self.starts, self.spoilt, self._anchor, self._before = starts, spoilt, anchor, before

    def _at(self, line: Line) -> float | None:
        clock = checked.number(line.get("monotonic"))
        if clock is not None and self._anchor and line.get("event") != "read":
            at = self._anchor[0] + clock - self._anchor[1]
            return at if 0 <= clock - self._anchor[1] < 1e9 else None
        at_wall = checked.time(line.get("time"))
        if clock is not None and self._before and 0 <= clock - self._before[1] < 1e9:
            at_wall = self._before[0] + clock - self._before[1]
        if at_wall is not None and clock is not None:
            self._anchor = (at_wall, clock)
        return at_wall

    def _read(self, at: float, line: Line) -> None:
        self.starts += 1
        self.read = line
        seconds = checked.number(line.get("container_s"))
        self.container_s = seconds if seconds is not None and 0 <= seconds < 1e7 else None

    def _wait(self, at: float, line: Line) -> None:
        if len(self.waits) < MOST:
            self.waits.append(Span(checked.text(line.get("kind"), 40), at, None, checked.text(line.get("what"), 300)))

    def _waited(self, at: float, line: Line) -> None:
        kind = checked.text(line.get("kind"), 40)
        for number, wait in enumerate(self.waits):
            if wait.kind == kind and wait.ended is None:
                self.waits[number] = Span(kind, wait.began, at, wait.text)
                return

    def _settled(self, at: float, line: Line) -> None:
        self.settled_at = at

    def _released(self, at: float, line: Line) -> None:
        self.released, self.late = at, checked.text(line.get("late"), 600)
        shift = checked.number(line.get("clock_s"))
        self.clock_s = shift if shift is not None and abs(shift) < MOST_CLOCK_S else None

    def _spawn(self, at: float, line: Line) -> None:
        name = checked.text(line.get("name"), 80)
        if len(self.spawned) < MOST_NAMES:
            self.spawned.setdefault(name, (at, checked.index(line.get("rank")), checked.whole(line.get("pid"))))

    def _wrote(self, at: float, line: Line) -> None:
        if len(self.wrote) < MOST_NAMES:
            self.wrote.setdefault(checked.text(line.get("name"), 80), at)

    def _exit(self, at: float, line: Line) -> None:
        name = checked.text(line.get("name"), 80)
        if len(self.exits) < MOST_NAMES:
            kept = {key: line.get(key) for key in ("rank", "pid", "exit_code", "signal", "max_rss_kb")}
            self.exits.setdefault(name, (at, kept))

    def _steps(self, at: float, line: Line) -> None:
        self._passed += self._added > MOST_ADDED
        if self._passed % EVERY:
            self._skipped = (at, line)
            return
        self._skipped = None
        self._take_steps(at, line)

    def finish(self) -> None:
        """There is no more."""
        if self._skipped:
            self._take_steps(*self._skipped)

    def _take_steps(self, at: float, line: Line) -> None:
        for group in checked.each_of(line.get("ranks"))[:MOST]:
            values = [checked.number(each) for each in checked.each_of(group)]
            if len(values) < 6 or None in values:
                continue
            first, last, epoch, step, _, ago = (each or 0.0 for each in values[:6])
            if 0 <= first <= last < min(first + MOST_NAMES, 1 << 20) and 0 <= ago < 1e7 and abs(epoch) < 1e15 and abs(step) < 1e15:
                seen = Seen(at - ago, int(epoch), int(step))
                self._added += int(last) - int(first) + 1
                for rank in range(int(first), int(last) + 1):
                    if rank in self.steps or len(self.steps) < MOST_NAMES:
                        self.steps.setdefault(rank, Thinned()).add(seen)

    def _saved(self, at: float, line: Line) -> None:
        seconds, ago = checked.number(line.get("seconds")), checked.number(line.get("ago_s"))
        if seconds is not None and ago is not None and 0 <= seconds < 1e7 and 0 <= ago < 1e7 and len(self.saved) < 40 * MOST:
            self.saved.append(Span("saving", at - ago - seconds, at - ago))

    def _signal(self, at: float, line: Line) -> None:
        if len(self.signals) < MOST:
            self.signals.append((at, checked.text(line.get("signal"), 40)))

    def _hang(self, at: float, line: Line) -> None:
        if len(self.hangs) < MOST:
            self.hangs.append((at, checked.text(line.get("text")), checked.time(line.get("since"))))

    def _slow(self, at: float, line: Line) -> None:
        if len(self.slows) < MOST:
            since = checked.time(line.get("since"))
            self.slows.append((line.get("over") is True, at if since is None else since))

    def _evidence(self, at: float, line: Line) -> None:
        if len(self.evidence) < MOST:
            self.evidence.append({key: line.get(key) for key in ("number", "why", "folder")})

    def _trouble(self, at: float, line: Line) -> None:
        if len(self.troubles) < MOST:
            self.troubles.append(checked.text(line.get("text"), 400))

    def _failing(self, at: float, line: Line) -> None:
        self.failing = at if self.failing is None else self.failing

    def _done(self, at: float, line: Line) -> None:
        self.done = at

    def _ending(self, at: float, line: Line) -> None:
        self.decided = self.decided or (at, checked.outcome(line.get("outcome")), checked.text(line.get("by")))

    def _end(self, at: float, line: Line) -> None:
        self.end = (at, checked.outcome(line.get("outcome")), checked.whole(line.get("exit_code")))


_HEARD: dict[str, Callable[[Told, float, Line], None]] = {
    "read": Told._read, "wait": Told._wait, "waited": Told._waited, "settled": Told._settled, "released": Told._released,
    "spawn": Told._spawn, "first output": Told._wrote, "exit": Told._exit, "steps": Told._steps, "saved": Told._saved,
    "signal": Told._signal, "hang": Told._hang, "slow": Told._slow, "evidence": Told._evidence, "trouble": Told._trouble,
    "failing": Told._failing, "done": Told._done, "ending": Told._ending, "end": Told._end,
}  # fmt: skip
