"""A report as text: one screen that says what ran, where, how it ended, who and why, what to do, and where the time went."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ranklaunch.errors import counted, numbered
from ranklaunch.report import exception_records, model
from ranklaunch.report.formats.words import (
    NO_REASON,
    OF_EXCEPTIONS,
    apart,
    clock,
    failure,
    has_moved,
    lasted,
    limits,
    raised_by,
    unfinished,
    who,
)
from ranklaunch.report.model import Accounting, Attempt, Culprit, Hang, Report, Round
from ranklaunch.verdict import blame

WIDTH = 140
MOST_LAST_LINES = 12
MOST_EXCEPTIONS = 8
MOST_ROUNDS = 8
MOST_GROUPS = 6
MOST_SUSPECTS = 6
MOST_TOLD = 6  # troubles, differences, notes
BAR = 30  # characters


def shown(report: Report) -> str:
    parts = (_job(report), _end(report), _exceptions(report), _rounds(report), _hang(report), _time(report), _more(report))
    blocks = [block for block in map(list, parts) if block]
    return "\n\n".join("\n".join(line[: 4 * WIDTH] for line in block) for block in blocks) + "\n"


# What ran, and where


def _job(report: Report) -> Iterator[str]:
    job, last = report.job, report.attempts[-1]
    what = " on ".join(filter(None, (job.method, job.platform)))
    where = f"{counted(len(job.nodes), 'node')}, {counted(job.world_size, 'rank')}" if job.nodes else ""
    about = ", ".join(filter(None, (what, where)))
    yield f"{job.name or report.folder}{f': {about}' if about else ''}"
    if job.command:
        yield f"  {' '.join(job.command)[:WIDTH]}"
    when = f", from {clock(report.began)} UTC, {lasted(report.ended - report.began)}" if report.began else ""
    restarts = sum(len(each.rounds) - 1 for each in report.attempts)
    again = f", {counted(restarts, 'restart')} in place" if restarts else ""
    several = (
        f"{counted(len(report.attempts), 'attempt')}, the last number {last.number}"
        if len(report.attempts) > 1
        else f"attempt {last.number}"
    )
    yield f"  {several}{again}{when}"
    if last.missing and job.nodes:
        yield f"  of {_nodes(last.missing)} nothing is here: what follows is what the others tell"


# How it ended


def _end(report: Report) -> Iterator[str]:
    code = "" if report.exit_code is None else f" with exit code {report.exit_code}"
    reason = report.reason or (unfinished(report) if report.outcome == model.UNFINISHED else NO_REASON)
    yield f"{report.outcome.upper()}{code}: {reason}".replace("\n", "\n  ")
    last = report.attempts[-1]
    if report.outcome == model.UNFINISHED and (told := limits(report)):
        yield f"  {told}"
    yield from _culprit(report.culprit)
    second = apart(report)
    yield from (f"  a second cause: {failure(each)}" for each in second)
    others = [each for each in last.failures if each not in second]
    if others:
        names = ", ".join(who(each) for each in others[:MOST_TOLD])
        yield f"  failed too: {names}{f' and {len(others) - MOST_TOLD} more' if len(others) > MOST_TOLD else ''}"
    if last.because:
        yield f"  why this verdict: {'; '.join(last.because)}"
    if last.suspect_host:
        host = last.suspect_host
        yield f"  leave out the next time: {host.host} (node {host.node}): {host.why}"
    if last.stop:
        yield f"  {last.stop}"
    yield from (f"  {note}" for note in last.notes[:MOST_TOLD])


def _culprit(culprit: Culprit | None) -> Iterator[str]:
    if culprit is None:
        return
    error = culprit.error
    memory = "; the kernel killed it for memory" if culprit.out_of_memory else ""
    at = f" at {culprit.time[:19].replace('T', ' ')}" if culprit.time else ""
    yield f"  who: {who(culprit)}, {_ended(culprit)}{at}{memory}"
    if error:
        yield f"  why: {error.line}" + (f" [{error.name}]" if error.name else "")
        yield from ((f"       {error.meaning}",) if error.meaning else ())
        yield from ((f"  do:  {error.remedy}",) if error.remedy else ())
        again = blame.RETRY.get(error.retry, "")
        yield from ((f"       {again}{f' ({error.source})' if error.source else ''}",) if again else ())
    yield from ((f"  {'do: ' if culprit.out_of_memory else '    '} {culprit.meaning}",) if culprit.meaning else ())
    if culprit.last_lines:
        yield f"  last lines{f' of {culprit.log}' if culprit.log else ''}:"
        yield from (f"    {line}"[:WIDTH] for line in culprit.last_lines[-MOST_LAST_LINES:])


def _ended(culprit: Culprit) -> str:
    return f"killed by {culprit.signal}" if culprit.signal else f"exit code {culprit.exit_code}"


# What processes wrote down of themselves


def _exceptions(report: Report) -> Iterator[str]:
    """Of the last round, equal ones of several ranks once."""
    groups = exception_records.alike(report.exceptions)
    if not groups:
        return
    yield "exceptions:"
    for group in groups[:MOST_EXCEPTIONS]:
        cause = f"; {group[0].cause}" if group[0].cause else ""
        yield f"  {raised_by(group)}: {group[0].text}{cause}"
    if len(groups) > MOST_EXCEPTIONS:
        yield f"  and {len(groups) - MOST_EXCEPTIONS} more"
    yield f"  ({OF_EXCEPTIONS})"


# What was before


def _rounds(report: Report) -> Iterator[str]:
    """Earlier attempts and rounds, where there are any; the newest ones."""
    every = [(attempt, each) for attempt in report.attempts for each in attempt.rounds]
    if len(every) < 2:
        return
    yield "before that:"
    before = every[:-1]
    if len(before) > MOST_ROUNDS:
        yield f"  {len(before) - MOST_ROUNDS} more, and then"
    for attempt, each in before[-MOST_ROUNDS:]:
        yield f"  {_round(attempt, each)}"
    yield from (
        f"  after attempt {gap.after}, {lasted(gap.ended - gap.began)} until the platform started the next" for gap in report.gaps[-3:]
    )


def _round(attempt: Attempt, each: Round) -> str:
    name = f"attempt {attempt.number}{f', restart {each.number}' if each.number else ''}"
    over = each.failed if each.failed is not None else each.ended
    took = f" after {lasted(over - each.began)}" if over is not None and each.began is not None else ""
    best = f" at step {each.best[1]}" if each.best else ""
    why = f": {each.reason}" if each.reason else ""
    return f"{name}: {each.outcome}{took}{best}{why}{f'; {each.decision}' if each.decision else ''}"


# A hang


def _hang(report: Report) -> Iterator[str]:
    last = report.attempts[-1]
    for hang in last.hangs[-2:]:
        since = f" since {clock(hang.since)}" if hang.since else ""
        moved = has_moved(last, hang)
        over = f", and moved again at {clock(hang.ended)}" if hang.ended and moved else ""
        signals = f" ({', '.join(hang.signals)})" if hang.signals else ""
        stands = report.outcome == model.UNFINISHED and not moved and hang is last.hangs[-1]
        silent = f", {lasted(report.read_at - hang.since)} ago" if stands and hang.since and report.read_at > hang.since else ""
        yield f"{hang.what}{since}{silent}{signals}{over}"
        if stands and hang.text:
            yield f"  {hang.text}"
        yield from _suspects(hang)
    for group in last.stacks[:MOST_GROUPS]:
        yield f"  {numbered(group.ranks, 'rank')}: {group.place}"
    if last.evidence:
        yield f"  evidence: {last.evidence[-1].folder}" + (f" and {len(last.evidence) - 1} more" if len(last.evidence) > 1 else "")


def _suspects(hang: Hang) -> Iterator[str]:
    for each in hang.suspects[:MOST_SUSPECTS]:
        yield f"  suspect: rank {each.rank} on node {each.node}: {each.why}"
    if len(hang.suspects) > MOST_SUSPECTS:
        yield f"  and {len(hang.suspects) - MOST_SUSPECTS} more"


# Where the time went


def _time(report: Report) -> Iterator[str]:
    told = report.accounting
    if told.wall_s <= 0:
        return
    good = f", {100 * told.goodput:.1f} % of it productive" if told.goodput is not None else ""
    gaps = f", and {lasted(told.gaps_s)} between attempts, which is the platform's" if told.gaps_s else ""
    yield f"where {lasted(told.wall_s)} went{good}{gaps}:"
    for name, label in model.BUCKETS.items():
        seconds = getattr(told.buckets, name)
        if seconds >= 0.0005 * told.wall_s and seconds > 0:
            share = seconds / told.wall_s
            yield f"  {label:22} {lasted(seconds):>10}  {100 * share:5.1f} %  {'#' * round(BAR * share)}".rstrip()
    if told.slow_s:
        yield f"  {'of which slow':22} {lasted(told.slow_s):>10}  {100 * told.slow_s / told.wall_s:5.1f} %"
    yield from _figures(told, report)


def _figures(told: Accounting, report: Report) -> Iterator[str]:
    if not told.steps_seen and told.buckets.running_s:
        yield "  no steps were found in what ranks wrote: what of the running was productive is not known"
    figures = []
    if told.time_to_first_step_s is not None:
        figures.append(f"first step after {lasted(told.time_to_first_step_s)}")
    if told.interruptions:
        figures.append(counted(told.interruptions, "interruption"))
    if told.time_to_recover_s:
        figures.append(f"back at a first step after {', '.join(lasted(each) for each in told.time_to_recover_s[-3:])}")
    if figures:
        yield f"  {'; '.join(figures)}"
    late = next((each for each in report.attempts[-1].rounds[:1] if each.last is not None), None)
    if late:
        yield f"  node {late.last} was the last to come: {late.late}"


# What else is worth knowing


def _more(report: Report) -> Iterator[str]:
    if report.differences:
        yield "not the same on all nodes:"
        for each in report.differences[:MOST_TOLD]:
            yield f"  {each.name}: " + "; ".join(f"{value or '(nothing)'} on {_nodes(nodes)}" for value, nodes in each.values[:4])
    unended = [each for each in report.attempts[-1].rounds[-1].nodes if each.state == "unfinished"]
    if unended and report.outcome != model.UNFINISHED:
        yield f"{_nodes([each.node for each in unended])} stopped telling before the end: killed, or gone"
    if report.other_jobs:
        yield f"other jobs in the same folder: {', '.join(report.other_jobs[:MOST_TOLD])}"
    yield from (f"note: {trouble}" for trouble in report.troubles[:MOST_TOLD])
    if len(report.troubles) > MOST_TOLD:
        yield f"note: and {len(report.troubles) - MOST_TOLD} more of these"


# Words


def _nodes(found: Iterable[int]) -> str:
    return numbered(found, "node")
