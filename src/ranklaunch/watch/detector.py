"""Whether a job hangs: from what its nodes say of each window to a suspicion that grows, becomes an alarm, and is taken back.

A hang is suspected where in five windows in a row no rank of any node moves: one burst spoils one window, not the whole time, and one
pause makes no five. Or where ranks that had been writing steps are silent for five times the longest gap between these and move nothing
else than their CPUs; or so where an exception has ended the program of one of them. Whatever a node cannot tell is left out, and a node
that says nothing is never silent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ranklaunch.typed import NamedTuple
from ranklaunch.watch import expect
from ranklaunch.watch.expect import Expected
from ranklaunch.watch.frames import Frame, Rule, ranks_of
from ranklaunch.watch.sample import CPU, DEBUGGER, DEVICES, IO, OUTPUT, START, TRAFFIC, moving
from ranklaunch.watch.who import Raised

WINDOWS = 5
GAPS = 5.0  # times the longest between steps
LATE = 2.5  # windows, after which a node's last word says nothing of now
ALMOST = 0.98  # windows are as long as timers make them
WARNING, ALARM, OVER = "warning", "alarm", "over"
_LIFE = (OUTPUT, IO, TRAFFIC, DEBUGGER, START)  # of what is silent, whatever its CPUs and devices do


class Limits(NamedTuple):
    """Seconds: after which a hang is suspected, and the same before the first step."""

    hang_s: float
    first_step_s: float

    @property
    def window_s(self) -> float:
        return self.hang_s / WINDOWS


class Change(NamedTuple):
    """kind: WARNING: half the time is over. ALARM. OVER: it moves again. since: since when nothing has moved, by the detector's clock.
    signals: what was looked at and has not moved; of OVER: what has. rule: the user's that was broken, "" where nothing moves; number: its
    place among the rules."""

    kind: str
    since: float
    signals: tuple[str, ...]
    rule: str = ""
    number: int | None = None


class _Node:
    def __init__(self) -> None:
        self.heard_at: float | None = None
        self.flat_since: float | None = None
        self.flat = 0  # windows in a row
        self.silent_since: float | None = None
        self.moved: frozenset[str] = frozenset()
        self.frame: Frame | None = None


class Detector:
    """nodes: all of which something must be heard. began: when the job was launched. Times are the caller's seconds."""

    def __init__(self, nodes: Collection[int], limits: Limits, began: float, rules: Sequence[Expected] = ()) -> None:
        self.begun = False
        self._limits = limits
        self._began = began
        self._rules = rules
        self._nodes = {node: _Node() for node in nodes}
        self._level = ""
        self._broken: dict[int, str] = {}
        self._breached_at: dict[int, float] = {}  # limit: time of the last frame with a breach
        self._matched: dict[int, float] = {}  # rule: when its last match was
        self._gap = 0.0

    def raised(self, now: float) -> dict[int, Raised]:
        """Exceptions after which no rank of any node has shown more than its CPU and its device at work, but for what others may have been
        in the middle of."""
        since = self._silent_since()
        if since is None:
            return {}
        least = since - 2 * self._limits.window_s - self._gap
        nodes = [(node.frame, node.heard_at) for node in self._nodes.values() if node.frame and node.heard_at is not None]
        found = [each._replace(silent_s=now - at + each.silent_s) for frame, at in nodes for each in frame.raised]
        return {each.rank: each for each in found if now - each.silent_s >= least}

    @property
    def frames(self) -> dict[int, Frame]:
        """The last of each node."""
        return {number: node.frame for number, node in self._nodes.items() if node.frame}

    def feed(self, number: int, frame: Frame, now: float) -> list[Change]:
        """What a node has seen until now."""
        node = self._nodes.get(number)
        if not node:
            return []
        self._learn(frame, now)
        node.heard_at, node.frame = now, frame
        node.moved = frozenset(moved(frame, self.begun))
        began = now - frame.seconds
        node.flat = 0 if node.moved else node.flat + 1
        node.flat_since = None if node.moved else began if node.flat_since is None else node.flat_since
        silent = not node.moved.intersection(_LIFE)
        node.silent_since = None if not silent else began if node.silent_since is None else node.silent_since
        return [*self._expected(frame, now), *self._judge(now)]

    def _learn(self, frame: Frame, now: float) -> None:
        self._gap = max([self._gap, *(seen.gap for seen in frame.ranks)])
        stepped = any(seen.step >= 0 for seen in frame.ranks)
        self.begun = self.begun or stepped or now - self._began >= self._limits.first_step_s * ALMOST

    # Nothing moves

    def _judge(self, now: float) -> Iterator[Change]:
        share, since = self._suspicion(now)
        if share >= 1 and self._level != ALARM:
            self._level = ALARM
            yield Change(ALARM, since, self._silent())
        elif 0.5 <= share < 1 and not self._level:
            self._level = WARNING
            yield Change(WARNING, since, self._silent())
        elif share == 0 and self._level and (signs := self._signs(now)):
            self._level = ""
            yield Change(OVER, now, signs)

    def _signs(self, now: float) -> tuple[str, ...]:
        """Of life. There are none where a node is not heard of for a while, which ends no alarm."""
        found = {sign for node in self._nodes.values() for sign in node.moved}
        return tuple(sorted(found | ({OUTPUT} if self._is_expected(now) else set())))

    def _suspicion(self, now: float) -> tuple[float, float]:
        """How much of the time is over, 1 or more at the alarm, and since when nothing moves."""
        nodes = self._nodes.values()
        if self._is_expected(now) or not all(self._is_heard(node, now) for node in nodes):
            return 0.0, now
        found = [(0.0, now)]
        flat = [node.flat_since for node in nodes if node.flat_since is not None]
        if len(flat) == len(nodes):
            since = max(flat)
            windows = min(node.flat for node in nodes)
            found.append((self._share(min((now - since) / ALMOST, windows * self._limits.window_s), since), since))
        silent = self._silent_since()
        if silent is not None and (self._gap or (self.begun and self._misses_some(now))):
            found.append(((now - silent) / ALMOST / max(self._limits.hang_s, GAPS * self._gap), silent))
        return max(found)

    def _silent_since(self) -> float | None:
        """Since when all nodes are; None where one is not."""
        since = [node.silent_since for node in self._nodes.values() if node.silent_since is not None]
        return max(since) if len(since) == len(self._nodes) else None

    def _misses_some(self, now: float) -> bool:
        """Whether exceptions have ended the programs of some ranks, which the others wait for, with a core at work or not."""
        ranks = {seen.rank for frame in self.frames.values() for seen in frame.ranks}
        return 0 < sum(each.sure for each in self.raised(now).values()) < len(ranks)

    def _share(self, flat_s: float, since: float) -> float:
        """Before the first step the limit is another, by which it must have come."""
        if self.begun:
            return flat_s / self._limits.hang_s
        return min(flat_s / self._limits.hang_s, flat_s / self._limits.first_step_s)

    def _is_heard(self, node: _Node, now: float) -> bool:
        return node.heard_at is not None and now - node.heard_at < LATE * self._limits.window_s

    def _silent(self) -> tuple[str, ...]:
        """What was looked at, and did not move."""
        frames = self.frames.values()
        there = {
            OUTPUT: True,
            IO: any(seen.io is not None for frame in frames for seen in frame.ranks),
            CPU: any(seen.cpu is not None for frame in frames for seen in frame.ranks),
            TRAFFIC: any(frame.traffic is not None for frame in frames),
            DEVICES: any(frame.devices is not None for frame in frames),
        }
        moved = {sign for node in self._nodes.values() for sign in node.moved}
        return tuple(sign for sign, is_there in there.items() if is_there and sign not in moved)

    # What users expect

    def _is_expected(self, now: float) -> bool:
        """Whether a line that is to come again and again has come in time: who says so knows better how long the job may be still."""
        return any(
            rule.kind == expect.EVERY and number in self._matched and now - self._matched[number] < rule.seconds
            for number, rule in enumerate(self._rules)
        )

    def _expected(self, frame: Frame, now: float) -> Iterator[Change]:
        for number, (rule, seen) in enumerate(zip(self._rules, frame.rules)):
            if rule.limit:
                yield from self._limited(number, rule, now)
                continue
            if seen.age_s is not None:
                self._matched[number] = max(self._matched.get(number, self._began), now - seen.age_s)
            reason = self._reason(number, rule, seen, now)
            if reason and number not in self._broken:
                self._broken[number] = reason
                yield Change(ALARM, self._matched.get(number, self._began), (), f"RANKLAUNCH_EXPECT: {reason}", number)
            elif not reason and rule.kind == expect.EVERY and self._broken.pop(number, ""):
                yield Change(OVER, now, (OUTPUT,), f"RANKLAUNCH_EXPECT: {rule.shown} has come again", number)

    def _reason(self, number: int, rule: Expected, seen: Rule, now: float) -> str:
        """Why it is broken, "" where it is not."""
        last = self._matched.get(number)
        if rule.kind == expect.NUMBER:
            by = "" if seen.rank is None else f" of rank {seen.rank}"
            return f"{rule.shown}, but a line{by} has {seen.wrong!r}" if seen.wrong else ""
        if not all(node.heard_at is not None for node in self._nodes.values()):
            return ""
        if rule.kind == expect.BY:
            return f"{rule.shown}, and no line has matched" if last is None and now - self._began >= rule.seconds else ""
        return f"{rule.shown}; the last was {now - last:.0f} s ago" if last is not None and now - last >= rule.seconds else ""

    def _limited(self, number: int, rule: Expected, now: float) -> Iterator[Change]:
        """Alarm at the first breach of any node. The alarm is over once all nodes have reported none for hang_s."""
        breach = self._breach(number)
        if breach:
            self._breached_at[number] = now
        if breach and number not in self._broken:
            node, found = breach
            self._broken[number] = reason = f"{rule.shown}: {self._breached(rule, found, node, now)}"
            yield Change(ALARM, now - (found.age_s or 0.0), (), f"RANKLAUNCH_EXPECT: {reason}", number)
        elif number in self._broken and now - self._breached_at[number] >= self._limits.hang_s:
            del self._broken[number]
            yield Change(OVER, now, (OUTPUT,), f"RANKLAUNCH_EXPECT: {rule.shown}: the limit is kept again", number)

    def _breach(self, number: int) -> tuple[int, Rule] | None:
        """The earliest breach of a limit in the last frames of all nodes, with its node."""
        found = [
            (node, frame.rules[number]) for node, frame in self.frames.items() if number < len(frame.rules) and frame.rules[number].wrong
        ]
        return max(found, key=_age, default=None)

    def _breached(self, rule: Expected, found: Rule, node: int, now: float) -> str:
        # Node 0 may have the output of ranks of other nodes.
        runs_on = max((number for number, frame in self.frames.items() if found.rank in ranks_of(frame)), default=node)
        bound = "" if found.bound is None else f"; the limit is {found.bound:.6g}"
        lasts = f"; no value has kept the limit for {found.age_s:.0f} s" if rule.limit and rule.limit.hold_s else ""
        return f"rank {found.rank} on node {runs_on} wrote {found.wrong}{bound}{lasts}"


def _age(found: tuple[int, Rule]) -> float:
    return found[1].age_s or 0.0


def moved(frame: Frame, begun: bool) -> set[str]:
    """By which signals the ranks of a node have moved."""
    found = {sign for seen in frame.ranks for sign in moving(seen, begun)}
    if frame.traffic:
        found.add(TRAFFIC)
    if frame.devices:
        found.add(DEVICES)
    return found
