"""One node in one round: its time line, moments and processes, from its events (by node 0's clock) and its plan. Pure."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ranklaunch.report import checked, model
from ranklaunch.report.layers import painted
from ranklaunch.report.model import Mark, OnNode, Process, Seen, Span, State
from ranklaunch.report.node_events import NodeEvents
from ranklaunch.report.reading import NodeFiles
from ranklaunch.verdict import folders

ENDED: Final = "ended"  # states of a node
UNFINISHED: Final = "unfinished"
MISSING: Final = "missing"
UNREAD: Final = "unread"
MOST_PROCESSES = 65536  # of a plan
MOST_SEEN = 65536  # steps that are kept of a whole job
LEAST_SEEN = 16  # steps that are kept of a rank, at least


def on_node(node: int, host: str, files: NodeFiles, shift: float, most: int) -> OnNode:
    """Return one node in one round. shift: seconds to add to its clock. most: steps that are kept of a rank."""
    events = files.events
    return OnNode(
        node, host, files.subpath, _state(files), events.began, _last_sign(events), round(shift, 3), _spans(files), _marks(files),
        tuple(_processes(node, files, most)), tuple(each["text"] for each in events.of("trouble")),
    )  # fmt: skip


def _state(files: NodeFiles) -> State:
    if files.events.one("end") or (files.events.first is None and files.verdict):  # a verdict without events: only the events are lost
        return ENDED
    return UNREAD if files.unread else UNFINISHED


def _last_sign(events: NodeEvents) -> float | None:
    at: float | None = events.one("end").get("at", events.last)
    return at


def launched_of(files: NodeFiles) -> float | None:
    """Return the time when the first rank or launcher was started, None if unknown. Preparing steps and services do not count."""
    planned = {str(checked.mapping(each).get("name")) for each in checked.each_of(files.plan.get("processes"))}
    waited = max((wait.ended or 0.0 for wait in files.events.waits), default=0.0)
    started = files.events.of("spawn")
    tiers = (
        [each["at"] for each in started if each["rank"] is not None or each["name"] in planned],
        [each["at"] for each in started if each["at"] >= waited],
    )
    return next((min(times) for times in tiers if times), None)


def _spans(files: NodeFiles) -> tuple[Span, ...]:
    events = files.events
    began, ended, decided, launched = events.began, _last_sign(events), events.failed, launched_of(files)
    if began is None or ended is None or events.first is None:
        return ()
    over = decided if decided is not None else ended
    layers: list[list[Span]] = [
        [Span(model.CONTAINER, began, events.first)],
        [Span(model.START, events.first, min(launched or over, over))],
        _until(over, model.LAUNCH, launched),
        _until(over, model.STEPS, events.first_step),
        [_wait(wait, over, events.late) for wait in events.waits],
        events.saved,
        list(stalls_of(events, over)),
        [Span(model.GATE, began, events.one("released").get("at") or launched or over)] if files.restart else [],
        _until(ended, model.STOP, decided),
    ]
    return tuple(painted(began, ended, layers, "unknown"))


def _until(ended: float, kind: str, began: float | None) -> list[Span]:
    return [] if began is None else [Span(kind, began, ended)]


def _wait(wait: Span, over: float, late: str) -> Span:
    is_muster = wait.kind == "muster"
    text = late or wait.text if is_muster else f"{wait.kind}: {wait.text}"
    return Span(model.MUSTER if is_muster else model.WAIT, wait.began, min(wait.ended or over, over), text)


def stalls_of(events: NodeEvents, over: float) -> Iterator[Span]:
    """Yield the times in which nothing moved. Alarms and warnings have the start in `since`; the event that the job moves again has
    none."""
    since: float | None = None
    for each in events.of("hang"):
        if each["since"] is not None:
            since = each["since"] if since is None else min(since, each["since"])
        elif since is not None:
            yield Span(model.STALLED, since, min(each["at"], over))
            since = None
    if since is not None:
        yield Span(model.STALLED, since, over)


def slows_of(events: NodeEvents, over: float) -> Iterator[Span]:
    """Yield the times of a slow job, from the first slow step to the first fast one, or to `over`."""
    began: float | None = None
    for each in (*events.of("slow"), {"over": True, "at": over, "since": over}):
        since = each["at"] if each["since"] is None else each["since"]
        if not each["over"]:
            began = since if began is None else began
        elif began is not None:
            yield Span(model.SLOW, began, max(began, min(since, over)))
            began = None


def _marks(files: NodeFiles) -> tuple[Mark, ...]:
    events = files.events
    released, end, decided = map(events.one, ("released", "end", "ending"))
    known: tuple[tuple[str, float | None, str], ...] = (
        (model.READ, events.first, ""),
        (model.RELEASED, released.get("at"), events.late),
        (model.LAUNCHED, launched_of(files), ""),
        (model.FIRST_OUTPUT, events.first_output, ""),
        (model.FIRST_STEP, events.first_step, ""),
        (model.DONE, events.one("done").get("at"), ""),
        (model.ENDED, end.get("at"), end.get("outcome") or ""),
    )
    marks = [Mark(kind, at, text) for kind, at, text in known if at is not None]
    marks += [Mark(model.SIGNAL, each["at"], each["signal"]) for each in events.of("signal")]
    marks += [Mark(model.HANG, each["at"], each["text"]) for each in events.of("hang")]
    if decided and decided["outcome"] != model.SUCCEEDED:
        rank = events.named("spawn").get(decided["by"], {}).get("rank")
        marks.append(Mark(model.FAILURE, decided["at"], f"{decided['outcome'] or 'ended'}: {decided['by']}", rank))
    return tuple(sorted(marks, key=lambda mark: mark.at))


def _processes(node: int, files: NodeFiles, most: int) -> Iterator[Process]:
    """Yield processes in the plan's order, then processes and ranks that only the events have."""
    events, planned = files.events, list(_planned(files.plan))
    known = {name for name, _, _ in planned}
    spawned = [(name, each["rank"], "") for name, each in events.named("spawn").items() if name not in known]
    ranks = {rank for _, rank, _ in (*planned, *spawned) if rank is not None}
    with_steps = [(f"rank {rank}", rank, "") for rank in sorted(events.steps) if rank not in ranks]
    for name, rank, path in (*planned, *spawned, *with_steps):
        spawn, wrote, end = (events.named(kind).get(name, {}) for kind in ("spawn", "first output", "exit"))
        steps = _thin(events.steps.get(rank, []), most) if rank is not None else []
        pid = spawn.get("pid")
        yield Process(
            name, rank, node, end.get("pid") if pid is None else pid, spawn.get("at"), wrote.get("at"), end.get("at"), end.get("exit_code"),
            end.get("signal", ""), end.get("max_rss_kb"), tuple(steps), _step_s(steps), _log(path, name, rank, files),
        )  # fmt: skip


def _planned(plan: Mapping[str, Any]) -> Iterable[tuple[str, int | None, str]]:
    """Yield (name, rank, log) of the processes of a plan."""
    for key in ("processes", "rank_logs"):
        for each in map(checked.mapping, checked.each_of(plan.get(key))[:MOST_PROCESSES]):
            rank = checked.field("rank", each)
            name = checked.field("name", each) or ("" if rank is None else f"rank {rank}")
            log = each.get("log")
            if name:
                yield name, rank, log if isinstance(log, str) else ""


def _log(path: str, name: str, rank: int | None, files: NodeFiles) -> str:
    """Return the path of a log below the report's folder, "" for none. The plan's path may be stale: the folder may have been copied."""
    names = [os.path.basename(path), folders.rank_log("", rank) if rank is not None else f"{name}.log"]
    return next((os.path.join(files.subpath, each) for each in names if each in files.logs), "")


def _thin(steps: list[Seen], most: int) -> list[Seen]:
    while len(steps) > max(2, most):
        steps = [*steps[:-1:2], steps[-1]]
    return steps


def _step_s(steps: list[Seen]) -> float | None:
    """Return the mean seconds of a step in the epoch of the last step, None for fewer than two steps in it."""
    for first in range(len(steps) - 1):
        one, two = steps[first], steps[-1]
        if one.epoch == two.epoch and two.step > one.step and two.at > one.at:
            return round((two.at - one.at) / (two.step - one.step), 4)
    return None
