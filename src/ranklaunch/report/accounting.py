"""Where the time went. Each attempt's time is one line with layers on it, and what is seen from above is what counts: so the buckets add up
to the wall time, whatever was seen or not. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ranklaunch.report import model
from ranklaunch.report.layers import painted
from ranklaunch.report.model import Accounting, Buckets, Gap, Span
from ranklaunch.report.rounds import Place, Together, best_of, regained

WAITING, STARTUP, PRODUCTIVE, REPEATED, SAVING, STALLED, STOPPING, GATE, RUNNING, UNKNOWN = model.BUCKETS
LOST_AFTER_S = 20.0  # without a sign, after which the others take a node for lost


def timeline(began: float, ended: float, rounds: Sequence[Together], before: Place | None, steps_seen: bool) -> tuple[Span, ...]:
    """Of one attempt. before: the best step of those before it. steps_seen: in any attempt."""
    layers: list[list[Span]] = [[] for _ in _LAYERS]
    for i, round_ in enumerate(rounds):
        if round_.began is None:
            continue
        last = rounds[i - 1] if i else None
        gone_by = best_of(rounds[:i])
        best = max((each for each in (before, gone_by) if each is not None), default=None)
        for span in _spans(round_, last, best, steps_seen):
            layers[_LAYERS.index(span.kind)].append(span)
    return painted(began, ended, layers, UNKNOWN)


_LAYERS = (STARTUP, RUNNING, PRODUCTIVE, REPEATED, WAITING, SAVING, STALLED, GATE, STOPPING)


def _spans(round_: Together, last: Together | None, best: Place | None, steps_seen: bool) -> Iterator[Span]:
    """Of one round; where they overlap, the later in _LAYERS is seen. last: the round before it."""
    assert round_.began is not None
    assert round_.sign is not None
    over = round_.failed if round_.failed is not None else round_.sign
    launched = round_.launched if round_.launched is not None else over
    released = round_.released if round_.released is not None else launched  # a job of one node is released by nobody
    opened = released if last else round_.began
    if last:
        yield Span(GATE, last.sign or round_.began, released)
    first = round_.first_step
    yield Span(STARTUP, opened, launched if not steps_seen else first if first is not None else over)
    if not steps_seen:
        yield Span(RUNNING, launched, over)
    if first is not None:
        yield Span(PRODUCTIVE, first, over)
        again = regained(round_, best)
        yield Span(REPEATED, first, over if again is None else min(again, over))
    for wait in () if last else round_.waits:
        yield Span(WAITING, wait.began, min(over if wait.ended is None else wait.ended, over), wait.text)
    yield from (Span(SAVING, span.began, min(span.ended or over, over)) for span in round_.saved)
    yield from (Span(STALLED, span.began, min(span.ended or over, over)) for span in round_.stalls)
    if round_.lost_node and round_.last_step is not None and round_.failed is not None:
        yield Span(STALLED, max(round_.last_step, over - LOST_AFTER_S), over, "a node was gone")
    if round_.failed is not None:
        yield Span(STOPPING, round_.failed, round_.sign)


def of_attempt(spans: Sequence[Span], rounds: Sequence[Together], interruptions: int, steps_seen: bool) -> Accounting:
    began = spans[0].began if spans else None
    found = _accounting(_buckets(spans), rounds, began, interruptions, steps_seen)
    return replace(found, slow_s=_slow_s(spans, rounds))


def of_all(timelines: Iterable[Sequence[Span]], rounds: Sequence[Together], gaps: Sequence[Gap], interruptions: int) -> Accounting:
    spans = [span for each in timelines for span in each]
    steps_seen = any(each.first_step is not None for each in rounds)
    found = _accounting(_buckets(spans), rounds, spans[0].began if spans else None, interruptions, steps_seen)
    return replace(found, gaps_s=sum(gap.ended - gap.began for gap in gaps), slow_s=_slow_s(spans, rounds))


def _slow_s(spans: Iterable[Span], rounds: Iterable[Together]) -> float:
    """Return the seconds of productive and repeated time in which the job was slow. All nodes tell of the same times."""
    slows = _merged(slow for each in rounds for slow in each.slows)
    steps = [span for span in spans if span.kind in (PRODUCTIVE, REPEATED)]
    return sum(_overlap_s(span, slow) for slow in slows for span in steps)


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Return the times that any of the spans covers, each once."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda span: span.began):
        last = found[-1] if found else None
        if last and span.began <= _end(last):
            found[-1] = replace(last, ended=max(_end(last), _end(span)))
        else:
            found.append(span)
    return found


def _overlap_s(one: Span, two: Span) -> float:
    return max(0.0, min(_end(one), _end(two)) - max(one.began, two.began))


def _end(span: Span) -> float:
    return span.began if span.ended is None else span.ended


def _buckets(spans: Iterable[Span]) -> Buckets:
    sums = dict.fromkeys(model.BUCKETS, 0.0)
    for span in spans:
        sums[span.kind] += (span.ended or span.began) - span.began
    return Buckets(**sums)


def _accounting(buckets: Buckets, rounds: Sequence[Together], began: float | None, interruptions: int, steps_seen: bool) -> Accounting:
    wall_s = sum(getattr(buckets, name) for name in model.BUCKETS)
    first = min((each.first_step for each in rounds if each.first_step is not None), default=None)
    return Accounting(
        wall_s, buckets, steps_seen,
        goodput=buckets.productive_s / wall_s if steps_seen and wall_s > 0 else None,
        time_to_first_step_s=max(0.0, first - began) if first is not None and began is not None else None,
        time_to_recover_s=tuple(_recoveries(rounds)),
        interruptions=interruptions,
    )  # fmt: skip


def _recoveries(rounds: Iterable[Together]) -> Iterator[float]:
    """From a failure to the next first step, whatever failed again between them."""
    failed: float | None = None
    for each in rounds:
        if failed is not None and each.first_step is not None:
            yield max(0.0, each.first_step - failed)
            failed = None
        if failed is None:
            failed = each.failed if each.failed is not None else each.sign
