"""Events of one start of one node, read line by line with bounded memory, however long the file. Pure.

A file may end in the middle of a line, have lines of any length, or be no text at all.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from ranklaunch.fields import NOTHING
from ranklaunch.report import checked
from ranklaunch.report.model import Seen, Span

MOST = 256  # events of a kind that are kept
SAVED = 40  # factor of MOST for checkpoints
MOST_NAMES = 8192  # processes of a node
MOST_STEPS = 200  # of a rank
MOST_ADDED = 1_000_000  # steps of ranks that are read one by one; after them, one event out of EVERY is read
EVERY = 256
Line = Mapping[str, Any]
# Fields that are kept of each event. For an event with a name, the first one of each name is kept.
KEPT: Mapping[str, tuple[str, ...]] = {
    "read": ("attempt", "container_s"), "wait": ("kind", "what"), "released": ("late", "clock_s"), "spawn": ("name", "rank", "pid"),
    "first output": ("name",), "exit": ("name", "pid", "exit_code", "signal", "max_rss_kb"), "saved": ("seconds", "ago_s"),
    "signal": ("signal",), "hang": ("text", "since"), "slow": ("over", "since"), "evidence": ("number", "why"), "trouble": ("text",),
    "failing": (), "done": (), "ending": ("outcome", "by"), "end": ("outcome", "exit_code"),
}  # fmt: skip


class Thinned:
    """Steps of a rank: the first and the last, and every n-th between them, where n doubles as more steps come."""

    def __init__(self) -> None:
        self._kept: list[Seen] = []
        self._last: Seen | None = None
        self._stride = 1
        self._since = 0

    def add(self, step: Seen) -> None:
        self._last = step
        if not self._since:
            self._kept.append(step)
        self._since = (self._since + 1) % self._stride
        if len(self._kept) > MOST_STEPS:
            del self._kept[1::2]
            self._stride *= 2

    def all(self) -> list[Seen]:
        return [*self._kept, *([self._last] if self._last and self._last is not self._kept[-1] else [])]


class NodeEvents:
    """Events of one node in one round: feed() each line, then finish().

    first, last: times of the first and the last event. starts: number of starts that wrote to the file; the last one counts. spoilt: lines
    that are no events. steps: steps of each rank. Times are by this node's clock until move(): the wall clock at the first line, and the
    monotonic clock from there on. before: events of an earlier round of the same supervisor. The first line of that round sets the wall
    clock for this round too, because someone may have set the wall clock in between.
    """

    def __init__(self, before: NodeEvents | None = None) -> None:
        self.starts = 0
        self.spoilt = 0
        self._anchor: tuple[float, float] | None = None
        self._before = before and before._anchor
        self._begin()

    def _begin(self) -> None:
        self.first: float | None = None
        self.last: float | None = None
        self.steps: dict[int, list[Seen]] = {}
        self._kept: dict[str, dict[object, dict[str, Any]]] = defaultdict(dict)
        self._steps: dict[int, Thinned] = {}
        self._added = 0
        self._skipped: tuple[float, Line] | None = None  # the last event of steps that was not read
        self._passed = 0

    def feed(self, data: bytes) -> None:
        try:
            line = json.loads(data)
        except (ValueError, RecursionError):
            line = None
        event = line.get("event") if isinstance(line, dict) else None
        at = self._at(line) if isinstance(event, str) else None
        if at is None or not isinstance(event, str):
            self.spoilt += 1
            return
        if event == "read":
            self.starts += 1
            if self.first is not None:
                self._begin()
        self.first = at if self.first is None else min(self.first, at)
        self.last = at if self.last is None else max(self.last, at)
        self._take(event, at, line)

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

    def _take(self, event: str, at: float, line: Line) -> None:
        if event == "steps":
            self._passed += self._added > MOST_ADDED
            self._skipped = (at, line) if self._passed % EVERY else None
            if not self._skipped:
                self._take_steps(at, line)
        elif event == "waited":
            kind = checked.field("kind", line)
            wait = next((each for each in self.of("wait") if each["kind"] == kind and "ended" not in each), {})
            wait["ended"] = at
        elif event in KEPT:
            fields = KEPT[event]
            kept = self._kept[event]
            most = MOST_NAMES if "name" in fields else SAVED * MOST if event == "saved" else MOST
            values = {"at": at, **{name: checked.field(name, line) for name in fields}}
            if len(kept) < most:
                kept.setdefault(values.get("name", len(kept)), values)

    def _take_steps(self, at: float, line: Line) -> None:
        for group in checked.each_of(line.get("ranks"))[:MOST]:
            ranks, step = _steps_of(checked.each_of(group), at)
            self._added += len(ranks)
            for rank in ranks:
                if rank in self._steps or len(self._steps) < MOST_NAMES:
                    self._steps.setdefault(rank, Thinned()).add(step)

    def finish(self) -> None:
        """Complete the steps after the last line."""
        if self._skipped:
            self._take_steps(*self._skipped)
        self.steps = {rank: steps.all() for rank, steps in self._steps.items()}

    def move(self, seconds: float) -> None:
        """Add seconds to all times, to move them from this node's clock to node 0's."""
        if not seconds or self.first is None or self.last is None:
            return
        self.first, self.last = self.first + seconds, self.last + seconds
        for line in (line for lines in self._kept.values() for line in lines.values()):
            line.update({name: line[name] + seconds for name in ("at", "ended") if name in line})
        moved: dict[Seen, Seen] = {}  # ranks with equal steps share one object: there may be very many
        self.steps = {
            rank: [moved.setdefault(seen, Seen(seen.at + seconds, seen.epoch, seen.step)) for seen in steps]
            for rank, steps in self.steps.items()
        }

    # Kept events. `since` is by node 0's clock.

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the events of one kind, in their order."""
        return list(self._kept[event].values())

    def named(self, event: str) -> Mapping[Any, Line]:
        """Return the events of one kind by the names of their processes."""
        return self._kept[event]

    def one(self, event: str) -> Line:
        """Return the event of a kind that comes once, {} for none. Of several, the first "failing" or "ending" counts, else the last."""
        events = self.of(event)
        return NOTHING if not events else events[0] if event in ("failing", "ending") else events[-1]

    @property
    def late(self) -> str:
        """Return the node that came last to the muster, in words."""
        return str(self.one("released").get("late", ""))

    @property
    def clock_s(self) -> float | None:
        """Return the seconds that the muster measured between this node's clock and node 0's, None if unknown."""
        seconds: float | None = self.one("released").get("clock_s")
        return seconds

    @property
    def first_output(self) -> float | None:
        return min((line["at"] for line in self.of("first output")), default=None)

    @property
    def first_step(self) -> float | None:
        return min((steps[0].at for steps in self.steps.values()), default=None)

    @property
    def began(self) -> float | None:
        """Return the time of the start of the container, or of the first event outside a container."""
        return None if self.first is None else self.first - (self.one("read").get("container_s") or 0.0)

    @property
    def failed(self) -> float | None:
        """Return the time of the decision to end, after a failure or a success."""
        return min((line["at"] for line in map(self.one, ("ending", "failing")) if line), default=None)

    @property
    def waits(self) -> list[Span]:
        return [Span(each["kind"], each["at"], each.get("ended"), each["what"]) for each in self.of("wait")]

    @property
    def saved(self) -> list[Span]:
        """Return the times in which checkpoints were written."""
        known = (each for each in self.of("saved") if None not in each.values())
        return [Span("saving", each["at"] - each["ago_s"] - each["seconds"], each["at"] - each["ago_s"]) for each in known]


def _steps_of(group: list[Any], at: float) -> tuple[range, Seen]:
    """Return the ranks of one group in an event of steps, and their step. A damaged group has no ranks."""
    ago = checked.seconds(group[5]) if len(group) > 5 else None
    first, last, epoch, step = map(checked.whole, (*group, None, None, None, None)[:4])
    if ago is None or first is None or last is None or epoch is None or step is None:
        return range(0), Seen(at, 0, 0)
    fits = 0 <= first <= last < min(first + MOST_NAMES, 1 << 20)
    return range(first, last + 1 if fits else first), Seen(at - ago, epoch, step)
