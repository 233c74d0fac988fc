"""Hang detector: from the frames of all nodes to a warning, an alarm, and its end.

Rules, each with its limit:
1. After the first step: no rank of any node has moved for hang_s. A steady full core is no sign of life: waiting libraries spin.
2. Before the first step, once a rank has printed anything: the same, but a busy core is a sign of life, because of compilers.
3. Before the first step, while nothing was printed or cores are busy: first_step_s without a move, full cores aside.
4. Ranks with printed steps are silent for five times the longest gap (at least hang_s) and move nothing but CPUs and devices.
5. An exception has ended a rank's program, and since then all ranks have been silent for hang_s, whatever their CPUs do.

A limit means five windows in a row, each a fifth of the limit. So a short burst spoils one window only, and a short pause is no hang.
A signal that a node does not have is left out. A node without contact never counts as silent, unless its ranks had ended before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from ranklaunch.hangs import expect
from ranklaunch.hangs.expect import Expected
from ranklaunch.hangs.frames import Frame, Rule, ranks_of
from ranklaunch.hangs.sample import CPU, DEBUGGER, DEVICES, IO, LEAST_CPU, OUTPUT, START, TRAFFIC, moving
from ranklaunch.hangs.suspicion import Raised

WINDOWS = 5
GAPS = 5.0  # rule 4: limit as a multiple of the longest gap between steps
LATE = 2.5  # windows, after which a node's last frame is too old
ALMOST = 0.98  # tolerance: windows are as long as timers make them
WARNING, ALARM, OVER = "warning", "alarm", "over"
HANG_S, FIRST_STEP_S = "RANKLAUNCH_HANG_S", "RANKLAUNCH_FIRST_STEP_S"
_LIFE = (OUTPUT, IO, TRAFFIC, DEBUGGER, START)  # signs of life for rules 4 and 5: all but CPUs and devices


class Limits(NamedTuple):
    """Seconds without a sign of life before a hang is suspected: in general, and before the first step (module docstring)."""

    hang_s: float
    first_step_s: float

    @property
    def window_s(self) -> float:
        return self.hang_s / WINDOWS


class Change(NamedTuple):
    """Change of the detector's state.

    | field | meaning |
    | --- | --- |
    | kind | WARNING after half of the limit, ALARM after the whole, OVER when the job moves again |
    | since | time of the last sign of life, by the caller's clock |
    | signals | watched signals that did not move; for OVER, signals that moved |
    | rule, number | the user's broken rule as a message, and its place among the rules; "" and None for a standstill |
    | limit_s, setting | limit in seconds, and the setting that it comes from |
    """

    kind: str
    since: float
    signals: tuple[str, ...]
    rule: str = ""
    number: int | None = None
    limit_s: float = 0.0
    setting: str = ""


class Silence(NamedTuple):
    """Time without a sign of life. share: this time as a part of the limit. since: by the caller's clock. name: setting that the limit
    comes from."""

    share: float
    since: float
    limit_s: float
    name: str = HANG_S


class _Still:
    """Windows in a row without a sign of life. since: begin of the first one; None if the last window has a sign."""

    def __init__(self) -> None:
        self.since: float | None = None
        self.windows = 0

    def feed(self, is_still: bool, began: float) -> None:
        self.windows = self.windows + 1 if is_still else 0
        self.since = None if not is_still else began if self.since is None else self.since


class _Node:
    """State of a node. Windows in a row without a sign of life: idle, where a busy core is a sign; still, where a full core is none;
    silent, where CPUs and devices are none."""

    def __init__(self) -> None:
        self.heard_at: float | None = None  # time of its last frame
        self.idle, self.still, self.silent = _Still(), _Still(), _Still()
        self.moved: frozenset[str] = frozenset()
        self.frame: Frame | None = None

    @property
    def has_ended(self) -> bool:
        """True if no rank of the node lived at its last frame: it may have left the job."""
        return self.frame is not None and not any(sample.state for sample in self.frame.ranks)


class Detector:
    """Detector for one job. nodes: nodes that must send frames. began: time of the launch. rules: the user's, of RANKLAUNCH_EXPECT. Times
    are seconds of the caller's clock."""

    def __init__(self, nodes: Collection[int], limits: Limits, began: float, rules: Sequence[Expected] = ()) -> None:
        self.begun = False  # True after the first step, or after first_step_s
        self._has_printed = False
        self._limits = limits
        self._began = began
        self._rules = rules
        self._nodes = {node: _Node() for node in nodes}
        self._level = ""
        self._broken: set[int] = set()  # numbers of rules
        self._breached_at: dict[int, float] = {}  # limit: time of the last frame with a breach
        self._matched: dict[int, float] = {}  # rule: when its last match was
        self._gap = 0.0

    def raised(self, now: float) -> dict[int, Raised]:
        """Return the exceptions after which all ranks have been silent, by rank. Peers may have finished their step after an exception."""
        since = self._silent_since()
        if since is None:
            return {}
        least = since - 2 * self._limits.window_s - self._gap
        nodes = [(node.frame, node.heard_at) for node in self._nodes.values() if node.frame and node.heard_at is not None]
        exceptions = [each._replace(silent_s=now - at + each.silent_s) for frame, at in nodes for each in frame.raised]
        return {each.rank: each for each in exceptions if now - each.silent_s >= least}

    @property
    def frames(self) -> dict[int, Frame]:
        """Return the last frame of each node."""
        return {number: node.frame for number, node in self._nodes.items() if node.frame}

    def feed(self, number: int, frame: Frame, now: float) -> list[Change]:
        """Take the frame of a node's last window. Return the changes that follow from it."""
        node = self._nodes.get(number)
        if not node:
            return []
        self._learn(frame, now)
        node.heard_at, node.frame = now, frame
        node.moved = frozenset(moved(frame, self.begun))
        began = now - frame.seconds
        node.idle.feed(not moved(frame, begun=False), began)
        node.still.feed(not moved(frame, begun=True), began)
        node.silent.feed(not node.moved.intersection(_LIFE), began)
        return [*self._expected(frame, now), *self._judge(now)]

    def _learn(self, frame: Frame, now: float) -> None:
        self._gap = max([self._gap, *(sample.gap for sample in frame.ranks)])
        self._has_printed = self._has_printed or any(sample.printed for sample in frame.ranks)
        stepped = any(sample.step >= 0 for sample in frame.ranks)
        self.begun = self.begun or stepped or now - self._began >= self._limits.first_step_s * ALMOST

    # Nothing moves

    def silence(self, now: float) -> Silence:
        """Return the silence that is nearest to an alarm; a share of 0 if something moves, or a node sends no frames."""
        rules = self._flat_rules()
        _, limit_s, name = rules[-1]
        silences = [Silence(0.0, self._began, limit_s, name)]
        if self._is_expected(now) or not all(self._is_heard(node, now) for node in self._working):
            return silences[0]
        for rule in rules:
            silences += self._lasting(*rule, now)
        silent = self._silent_since()
        if silent is not None and (self._gap or (self.begun and self._misses_some(now))):
            limit_s = max(self._limits.hang_s, GAPS * self._gap)
            silences.append(Silence((now - silent) / ALMOST / limit_s, silent, limit_s))
        return max(silences, key=attrgetter("share"))

    @property
    def _working(self) -> list[_Node]:
        """Nodes with a rank that lives, or all nodes if none has one: a node whose ranks have ended may have left the job."""
        return [node for node in self._nodes.values() if not node.has_ended] or [*self._nodes.values()]

    def _flat_rules(self) -> list[tuple[str, float, str]]:
        """Return those of rules 1 to 3 that apply now, each as (kind of windows, limit, setting). The last one gives the limit if nothing
        moves from now on."""
        hang_s, first_step_s = self._limits
        if self.begun:
            return [("still", hang_s, HANG_S)]
        return [("still", first_step_s, FIRST_STEP_S), *([("idle", hang_s, HANG_S)] if self._has_printed else [])]

    def _lasting(self, windows: str, limit_s: float, name: str, now: float) -> Iterator[Silence]:
        """Yield the silence of all nodes by one kind of windows; nothing if a node has moved."""
        stills: list[_Still] = [getattr(node, windows) for node in self._working]
        since = [each.since for each in stills if each.since is not None]
        if len(since) == len(stills):
            began = max(since)
            seconds = min((now - began) / ALMOST, min(each.windows for each in stills) * self._limits.window_s)
            yield Silence(seconds / limit_s, began, limit_s, name)

    def _judge(self, now: float) -> Iterator[Change]:
        share, since, limit_s, setting = self.silence(now)
        if share >= 1 and self._level != ALARM:
            self._level = ALARM
            yield Change(ALARM, since, self._silent(), limit_s=limit_s, setting=setting)
        elif 0.5 <= share < 1 and not self._level:
            self._level = WARNING
            yield Change(WARNING, since, self._silent(), limit_s=limit_s, setting=setting)
        elif share == 0 and self._level and (signs := self._signs(now)):
            self._level = ""
            yield Change(OVER, now, signs)

    def _signs(self, now: float) -> tuple[str, ...]:
        """Return the signs of life in the last windows. Without signs an alarm does not end, so a node without contact ends none."""
        signs = {sign for node in self._nodes.values() for sign in node.moved}
        return tuple(sorted(signs | ({OUTPUT} if self._is_expected(now) else set())))

    def _silent_since(self) -> float | None:
        """Return the time since which all nodes are silent; None if one is not."""
        since = [node.silent.since for node in self._working if node.silent.since is not None]
        return max(since) if len(since) == len(self._working) else None

    def _misses_some(self, now: float) -> bool:
        """Return True if exceptions have ended the programs of some ranks, but not of all: the others may wait for them."""
        ranks = {sample.rank for frame in self.frames.values() for sample in frame.ranks}
        return 0 < sum(each.sure for each in self.raised(now).values()) < len(ranks)

    def _is_heard(self, node: _Node, now: float) -> bool:
        return node.heard_at is not None and now - node.heard_at < LATE * self._limits.window_s

    def _silent(self) -> tuple[str, ...]:
        """Return the watched signals that did not move."""
        frames = self.frames.values()
        samples = [sample for frame in frames for sample in frame.ranks]
        cores = [sample.cpu for sample in samples if sample.cpu is not None]
        looked_at = {
            OUTPUT: True,
            IO: any(sample.io is not None for sample in samples),
            CPU: bool(cores) and max(cores) < LEAST_CPU,  # with a full core, the message must not list CPU as silent
            TRAFFIC: any(frame.traffic is not None for frame in frames),
            DEVICES: any(frame.devices is not None for frame in frames),
        }
        moved = {sign for node in self._nodes.values() for sign in node.moved}
        return tuple(sign for sign, is_looked_at in looked_at.items() if is_looked_at and sign not in moved)

    # Rules of the user

    def _is_expected(self, now: float) -> bool:
        """Return True if a line of an `every` rule has come in time: such a rule replaces the limits for silence."""
        return any(
            rule.kind == expect.EVERY and number in self._matched and now - self._matched[number] < rule.seconds
            for number, rule in enumerate(self._rules)
        )

    def _expected(self, frame: Frame, now: float) -> Iterator[Change]:
        """Yield the changes that follow from the user's rules."""
        for number, (rule, state) in enumerate(zip(self._rules, frame.rules)):
            if rule.limit:
                yield from self._limited(number, rule, now)
                continue
            if state.age_s is not None:
                self._matched[number] = max(self._matched.get(number, self._began), now - state.age_s)
            reason = self._not_number(rule, state) if rule.kind == expect.NUMBER else self._overdue(number, rule, now)
            if reason and number not in self._broken:
                since = now - frame.seconds if rule.kind == expect.NUMBER else self._matched.get(number, self._began)
                yield self._break(number, since, reason)
            elif not reason and rule.kind == expect.EVERY and number in self._broken:
                yield self._keep(number, now, f"{rule.shown} has come again")

    def _break(self, number: int, since: float, reason: str) -> Change:
        self._broken.add(number)
        return Change(ALARM, since, (), f"RANKLAUNCH_EXPECT: {reason}", number)

    def _keep(self, number: int, now: float, reason: str) -> Change:
        self._broken.discard(number)
        return Change(OVER, now, (OUTPUT,), f"RANKLAUNCH_EXPECT: {reason}", number)

    def _not_number(self, rule: Expected, state: Rule) -> str:
        by = "" if state.rank is None else f" of rank {state.rank}"
        return f"{rule.shown}, but a line{by} has {state.wrong!r}" if state.wrong else ""

    def _overdue(self, number: int, rule: Expected, now: float) -> str:
        """Return why a `by` or `every` rule is broken; "" if it is kept, or while a node has sent no frame: it may have the line."""
        last = self._matched.get(number)
        late = now - (self._began if last is None else last) >= rule.seconds
        if not late or (rule.kind == expect.BY) != (last is None) or any(node.heard_at is None for node in self._nodes.values()):
            return ""
        return f"{rule.shown}, and no line has matched" if last is None else f"{rule.shown}; the last was {now - last:.0f} s ago"

    def _limited(self, number: int, rule: Expected, now: float) -> Iterator[Change]:
        """Alarm at the first breach of any node. The alarm is over once all nodes have reported none for hang_s."""
        breaches = [
            (node, frame.rules[number]) for node, frame in self.frames.items() if number < len(frame.rules) and frame.rules[number].wrong
        ]
        if breaches:
            self._breached_at[number] = now
        if breaches and number not in self._broken:
            node, breach = max(breaches, key=_age)  # the earliest
            yield self._break(number, now - (breach.age_s or 0.0), f"{rule.shown}: {self._breached(rule, breach, node)}")
        elif number in self._broken and now - self._breached_at[number] >= self._limits.hang_s:
            yield self._keep(number, now, f"{rule.shown}: the limit is kept again")

    def _breached(self, rule: Expected, breach: Rule, node: int) -> str:
        # Not always the reporting node: node 0 may read the output of other nodes' ranks.
        runs_on = max((number for number, frame in self.frames.items() if breach.rank in ranks_of(frame)), default=node)
        bound = "" if breach.bound is None else f"; the limit is {breach.bound:.6g}"
        lasts = f"; no value has kept the limit for {breach.age_s:.0f} s" if rule.limit and rule.limit.hold_s else ""
        return f"rank {breach.rank} on node {runs_on} wrote {breach.wrong}{bound}{lasts}"


def _age(breach: tuple[int, Rule]) -> float:
    """Return the seconds since the breach that a node reports."""
    return breach[1].age_s or 0.0


def moved(frame: Frame, begun: bool) -> set[str]:
    """Return the signs of life of a node's ranks."""
    result = {sign for sample in frame.ranks for sign in moving(sample, begun)}
    if frame.traffic:
        result.add(TRAFFIC)
    if frame.devices:
        result.add(DEVICES)
    return result
