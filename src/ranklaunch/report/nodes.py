"""One node in one round: its time line, its moments and its processes, from what its events tell and its plan. Pure."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ranklaunch.report import checked, model
from ranklaunch.report.layers import painted
from ranklaunch.report.model import Mark, OnNode, Process, Seen, Span
from ranklaunch.report.node_events import Told
from ranklaunch.verdict import folders

ENDED: Final = "ended"  # states of a node
UNFINISHED: Final = "unfinished"
MISSING: Final = "missing"
UNREAD: Final = "unread"
WAITS_FOR_NODES = ("muster", "hosts", "rank table", "topology", "hosts command", "port")  # kinds of waits: all are for what others bring
MOST_SEEN = 65536  # steps of a whole job that are kept
LEAST_SEEN = 16  # of a rank


class Clock:
    """From this node's clock to node 0's."""

    def __init__(self, shift: float) -> None:
        self.shift = shift
        self._moved: dict[int, Seen] = {}  # by the identity of the other

    def __call__(self, at: float | None) -> float | None:
        return None if at is None else at + self.shift

    def steps(self, steps: Iterable[Seen]) -> tuple[Seen, ...]:
        """Ranks that went on together share what was seen, and go on to: there may be very many."""
        return tuple(map(self._of, steps)) if self.shift else tuple(steps)

    def _of(self, seen: Seen) -> Seen:
        moved = self._moved.get(id(seen))
        if moved is None:
            moved = self._moved[id(seen)] = Seen(seen.at + self.shift, seen.epoch, seen.step)
        return moved

    def span(self, span: Span) -> Span:
        return Span(span.kind, span.began + self.shift, self(span.ended), span.text)


def on_node(
    node: int, host: str, below: str, told: Told, plan: Mapping[str, Any], logs: Mapping[str, str], shift: float, restart: int, most: int
) -> OnNode:
    """below: its folder. logs: names of logs there, and their paths. most: steps of a rank that are kept."""
    clock = Clock(shift)
    first_step = first_step_of(told)
    ended = told.end[0] if told.end else told.last
    return OnNode(
        node, host, below, ENDED if told.end else UNFINISHED,
        began=clock(began_of(told)), ended=clock(ended), clock_s=round(shift, 3),
        spans=tuple(map(clock.span, _spans(told, plan, first_step, ended, restart, shift))),
        marks=tuple(sorted((Mark(mark.kind, mark.at + shift, mark.text, mark.rank) for mark in _marks(told, plan, first_step)), key=_when)),
        processes=tuple(_processes(node, told, plan, logs, clock, most)),
        troubles=tuple(told.troubles),
    )  # fmt: skip


def began_of(told: Told) -> float | None:
    """With its container."""
    return None if told.first is None else told.first - (told.container_s or 0.0)


def launched_of(told: Told, plan: Mapping[str, Any]) -> float | None:
    """When the first of the ranks, or of their launchers, was started; not a preparing step or a service."""
    planned = {str(checked.mapping(each).get("name")) for each in checked.each_of(plan.get("processes"))}
    waited = max((wait.ended or 0.0 for wait in told.waits), default=0.0)
    tiers = (
        [at for name, (at, rank, _) in told.spawned.items() if rank is not None or name in planned],
        [at for at, _, _ in told.spawned.values() if at >= waited],
    )
    return next((min(times) for times in tiers if times), None)


def first_step_of(told: Told) -> float | None:
    return min((steps.all()[0].at for steps in told.steps.values()), default=None)


def failed_of(told: Told) -> float | None:
    """When what decided came, good or bad."""
    at = told.decided[0] if told.decided else None
    return min((each for each in (at, told.failing) if each is not None), default=None)


def _when(mark: Mark) -> float:
    return mark.at


def _spans(
    told: Told, plan: Mapping[str, Any], first_step: float | None, ended: float | None, restart: int, shift: float
) -> tuple[Span, ...]:
    began = began_of(told)
    if began is None or ended is None or told.first is None:
        return ()
    decided, launched = failed_of(told), launched_of(told, plan)
    over = decided if decided is not None else ended
    gate = [Span(model.GATE, began, told.released or launched or over, "")] if restart else []
    waits = [Span(model.MUSTER if wait.kind == "muster" else model.WAIT, wait.began, min(wait.ended or over, over),
                  f"{wait.kind}: {wait.text}" if wait.kind != "muster" else told.late or wait.text) for wait in told.waits]  # fmt: skip
    layers: list[list[Span]] = [
        [Span(model.CONTAINER, began, told.first)],
        [Span(model.START, told.first, min(launched or over, over))],
        [] if launched is None else [Span(model.LAUNCH, launched, over)],
        [] if first_step is None else [Span(model.STEPS, first_step, over)],
        waits,
        [Span(model.SAVING, span.began, span.ended) for span in told.saved],
        list(stalls_of(told, over, shift)),
        gate,
        [] if decided is None else [Span(model.STOP, decided, ended)],
    ]
    return tuple(painted(began, ended, layers, "unknown"))


def stalls_of(told: Told, over: float, shift: float) -> Iterator[Span]:
    """From when nothing moved to when it did again: alarms and warnings have since when, by node 0's clock, what takes them back has
    none."""
    since: float | None = None
    for at, _, still in told.hangs:
        if still is not None:
            since = still - shift if since is None else min(since, still - shift)
        elif since is not None:
            yield Span(model.STALLED, since, min(at, over))
            since = None
    if since is not None:
        yield Span(model.STALLED, since, over)


def slows_of(told: Told, over: float, shift: float) -> Iterator[Span]:
    """Yield the times of a slow job, from the first slow step to the first fast one, or to `over`. Events have them by node 0's clock."""
    began: float | None = None
    for is_recovery, since in told.slows:
        if not is_recovery:
            began = since - shift if began is None else began
        elif began is not None:
            yield Span(model.SLOW, began, max(began, min(since - shift, over)))
            began = None
    if began is not None:
        yield Span(model.SLOW, began, max(began, over))


def _marks(told: Told, plan: Mapping[str, Any], first_step: float | None) -> Iterator[Mark]:
    known: Iterable[tuple[str, float | None, str]] = (
        (model.READ, told.first, ""),
        (model.RELEASED, told.released, told.late),
        (model.LAUNCHED, launched_of(told, plan), ""),
        (model.FIRST_OUTPUT, min(told.wrote.values(), default=None), ""),
        (model.FIRST_STEP, first_step, ""),
        (model.DONE, told.done, ""),
        (model.ENDED, told.end[0] if told.end else None, (told.end[1] or "") if told.end else ""),
    )
    yield from (Mark(kind, at, text) for kind, at, text in known if at is not None)
    yield from (Mark(model.SIGNAL, at, name) for at, name in told.signals)
    yield from (Mark(model.HANG, at, text) for at, text, _ in told.hangs)
    if told.decided and told.decided[1] != model.SUCCEEDED:
        at, outcome, by = told.decided
        yield Mark(model.FAILURE, at, f"{outcome or 'ended'}: {by}", told.spawned.get(by, (0, None, None))[1])


def _processes(node: int, told: Told, plan: Mapping[str, Any], logs: Mapping[str, str], clock: Clock, most: int) -> Iterator[Process]:
    """As the plan names them, then others that were seen."""
    planned = list(_planned(plan))
    known = {name for name, _, _ in planned}
    seen = [(name, rank, "") for name, (_, rank, _) in told.spawned.items() if name not in known]
    ranks = {rank for _, rank, _ in (*planned, *seen) if rank is not None}
    others = [(f"rank {rank}", rank, "") for rank in sorted(told.steps) if rank not in ranks]
    for name, rank, path in (*planned, *seen, *others):
        at, _, pid = told.spawned.get(name, (None, None, None))
        ended, end = told.exits.get(name, (None, {}))
        steps = _thin(told.steps[rank].all(), most) if rank is not None and rank in told.steps else []
        yield Process(
            name, rank, node, pid if pid is not None else checked.whole(end.get("pid")), clock(at), clock(told.wrote.get(name)),
            clock(ended),
            checked.whole(end.get("exit_code")), checked.text(end.get("signal"), 40), checked.whole(end.get("max_rss_kb")),
            clock.steps(steps), _step_s(steps), _log(path, name, rank, logs),
        )  # fmt: skip


def _planned(plan: Mapping[str, Any]) -> Iterator[tuple[str, int | None, str]]:
    """name, rank, log."""
    for key in ("processes", "rank_logs"):
        for each in map(checked.mapping, checked.each_of(plan.get(key))[:65536]):
            rank = checked.index(each.get("rank"))
            name = checked.text(each.get("name"), 80) or ("" if rank is None else f"rank {rank}")
            log = each.get("log")
            if name:
                yield name, rank, log if isinstance(log, str) else ""


def _log(path: str, name: str, rank: int | None, logs: Mapping[str, str]) -> str:
    """Where it lies now: a folder that was copied has another name."""
    names = [os.path.basename(path), folders.rank_log("", rank) if rank is not None else f"{name}.log"]
    return next((logs[each] for each in names if each in logs), "")


def _thin(steps: list[Seen], most: int) -> list[Seen]:
    while len(steps) > max(2, most):
        steps = [*steps[:-1:2], steps[-1]]
    return steps


def _step_s(steps: list[Seen]) -> float | None:
    """Of the last epoch that has two."""
    for first in range(len(steps) - 1):
        one, two = steps[first], steps[-1]
        if one.epoch == two.epoch and two.step > one.step and two.at > one.at:
            return round((two.at - one.at) / (two.step - one.step), 4)
    return None
