"""Account of the spent time. Each attempt's time is a line with layers, of which only the topmost counts at each moment. So the
buckets add up to the wall time, even for time without events. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ranklaunch.report import model
from ranklaunch.report.layers import painted
from ranklaunch.report.model import Accounting, Buckets, Gap, Span
from ranklaunch.report.rounds import Place, Together, first, known_or, regained

WAITING, STARTUP, PRODUCTIVE, REPEATED, SAVING, STALLED, STOPPING, GATE, RUNNING, UNKNOWN = model.BUCKETS
LOST_AFTER_S = 20.0  # silence after which the other nodes take a node for lost


def timeline(began: float, ended: float, rounds: Sequence[Together], before: Place | None, steps_seen: bool) -> tuple[Span, ...]:
    """Return the time line of one attempt as spans without a gap. before: the best step of earlier attempts. steps_seen: True if any
    attempt shows steps."""
    layers: dict[str, list[Span]] = {kind: [] for kind in _LAYERS}
    best = before
    for last, round_ in zip((None, *rounds), rounds):
        best = max((each for each in (best, last and last.best) if each), default=None)
        for span in _spans(round_, last, best, steps_seen) if round_.began is not None else ():
            layers[span.kind].append(span)
    return painted(began, ended, list(layers.values()), UNKNOWN)


_LAYERS = (STARTUP, RUNNING, PRODUCTIVE, REPEATED, WAITING, SAVING, STALLED, GATE, STOPPING)


def _spans(round_: Together, last: Together | None, best: Place | None, steps_seen: bool) -> Iterator[Span]:
    """Yield the spans of one round. Where spans overlap, the later kind in _LAYERS counts. last: the round before."""
    assert round_.began is not None
    assert round_.sign is not None
    over = known_or(round_.failed, round_.sign)
    launched = known_or(round_.launched, over)
    released = known_or(round_.released, launched)  # a job of one node is released by nobody
    if last:
        yield Span(GATE, last.sign or round_.began, released)
    trained = known_or(round_.first_step, over) if steps_seen else launched
    yield Span(STARTUP, released if last else round_.began, trained)
    if not steps_seen:
        yield Span(RUNNING, launched, over)
    if round_.first_step is not None:
        yield Span(PRODUCTIVE, round_.first_step, over)
        yield Span(REPEATED, round_.first_step, min(known_or(regained(round_, best), over), over))
    for kind, spans in ((WAITING, () if last else round_.waits), (SAVING, round_.saved), (STALLED, round_.stalls)):
        yield from (Span(kind, span.began, min(known_or(span.ended, over), over), span.text) for span in spans)
    if round_.failed is not None:
        yield Span(STOPPING, round_.failed, round_.sign)
        if round_.lost_node and round_.last_step is not None:
            yield Span(STALLED, max(round_.last_step, over - LOST_AFTER_S), over, "a node was gone")


def of_attempt(spans: Sequence[Span], rounds: Sequence[Together], interruptions: int, steps_seen: bool) -> Accounting:
    """Return the account of one attempt, or of all attempts. spans: the time line of the attempt, or the time lines of all."""
    sums = dict.fromkeys(model.BUCKETS, 0.0)
    for span in spans:
        sums[span.kind] += _end(span) - span.began
    wall_s = sum(sums.values())
    began, first_step = (
        (spans[0].began if spans else None),
        min((each.first_step for each in rounds if each.first_step is not None), default=None),
    )
    return Accounting(
        wall_s, Buckets(**sums), steps_seen,
        goodput=sums[PRODUCTIVE] / wall_s if steps_seen and wall_s > 0 else None,
        time_to_first_step_s=max(0.0, first_step - began) if first_step is not None and began is not None else None,
        time_to_recover_s=tuple(_recoveries(rounds)),
        interruptions=interruptions,
        slow_s=_slow_s(spans, rounds),
    )  # fmt: skip


def of_all(timelines: Iterable[Sequence[Span]], rounds: Sequence[Together], gaps: Sequence[Gap], interruptions: int) -> Accounting:
    spans = [span for each in timelines for span in each]
    accounting = of_attempt(spans, rounds, interruptions, any(each.first_step is not None for each in rounds))
    return replace(accounting, gaps_s=sum(gap.ended - gap.began for gap in gaps))


def _slow_s(spans: Iterable[Span], rounds: Iterable[Together]) -> float:
    """Return the seconds of productive and repeated time in which the job was slow. All nodes report the same slow times, so overlaps
    count once."""
    slows = _merged(slow for each in rounds for slow in each.slows)
    steps = [span for span in spans if span.kind in (PRODUCTIVE, REPEATED)]
    return sum(_overlap_s(span, slow) for slow in slows for span in steps)


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Return the union of some spans, in order of time."""
    result: list[Span] = []
    for span in sorted(spans, key=lambda span: span.began):
        last = result[-1] if result else None
        if last and span.began <= _end(last):
            result[-1] = replace(last, ended=max(_end(last), _end(span)))
        else:
            result.append(span)
    return result


def _overlap_s(one: Span, two: Span) -> float:
    return max(0.0, min(_end(one), _end(two)) - max(one.began, two.began))


def _end(span: Span) -> float:
    return span.began if span.ended is None else span.ended


def _recoveries(rounds: Iterable[Together]) -> Iterator[float]:
    """Yield the seconds from each failure to the next first step. Further failures in between do not count again."""
    failed: float | None = None
    for each in rounds:
        if failed is not None and each.first_step is not None:
            yield max(0.0, each.first_step - failed)
            failed = None
        if failed is None:
            failed = first((each.failed, each.sign))
