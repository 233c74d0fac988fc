"""A report as text: one screen that says what ran, where, how it ended, who and why, what to do, and where the time went."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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
from ranklaunch.report.model import Accounting, Attempt, Culprit, Hang, KnownError, Report, Round
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
    is_open = report.outcome == model.UNFINISHED
    reason = report.reason or (unfinished(report) if is_open else NO_REASON)
    yield f"{report.outcome.upper()}{code}: {reason}".replace("\n", "\n  ")
    yield from _labelled("  ", limits(report) if is_open else "")
    yield from _culprit(report.culprit) if report.culprit else ()
    yield from _verdict(report.attempts[-1], apart(report))


def _verdict(last: Attempt, second: list[Culprit]) -> Iterator[str]:
    """second: failures that are no victims of the culprit."""
    yield from (f"  a second cause: {failure(each)}" for each in second)
    others = [who(each) for each in last.failures if each not in second]
    more = f" and {len(others) - MOST_TOLD} more" if len(others) > MOST_TOLD else ""
    yield from _labelled("  failed too: ", f"{', '.join(others[:MOST_TOLD])}{more}")
    yield from _labelled("  why this verdict: ", "; ".join(last.because))
    if last.suspect_host:
        host = last.suspect_host
        yield f"  leave out the next time: {host.host} (node {host.node}): {host.why}"
    yield from _labelled("  ", last.stop)
    yield from (f"  {note}" for note in last.notes[:MOST_TOLD])


def _labelled(label: str, text: str) -> Iterator[str]:
    """Yield a line with a label, nothing for an empty text."""
    if text:
        yield f"{label}{text}"


def _culprit(culprit: Culprit) -> Iterator[str]:
    memory = "; the kernel killed it for memory" if culprit.out_of_memory else ""
    at = f" at {culprit.time[:19].replace('T', ' ')}" if culprit.time else ""
    how = f"killed by {culprit.signal}" if culprit.signal else f"exit code {culprit.exit_code}"
    yield f"  who: {who(culprit)}, {how}{at}{memory}"
    yield from _error(culprit.error) if culprit.error else ()
    yield from _labelled("  do:  " if culprit.out_of_memory else "       ", culprit.meaning)
    if culprit.last_lines:
        yield f"  last lines{f' of {culprit.log}' if culprit.log else ''}:"
        yield from (f"    {line}"[:WIDTH] for line in culprit.last_lines[-MOST_LAST_LINES:])


def _error(error: KnownError) -> Iterator[str]:
    yield f"  why: {error.line}{f' [{error.name}]' if error.name else ''}"
    yield from _labelled("       ", error.meaning)
    yield from _labelled("  do:  ", error.remedy)
    again = blame.RETRY.get(error.retry, "")
    yield from _labelled("       ", f"{again} ({error.source})" if again and error.source else again)


# What processes wrote down of themselves


def _exceptions(report: Report) -> Iterator[str]:
    """Of the last round, equal ones of several ranks once."""
    groups = exception_records.alike(report.exceptions)
    if groups:
        yield "exceptions:"
        lines = [f"  {raised_by(group)}: {group[0].text}{f'; {group[0].cause}' if group[0].cause else ''}" for group in groups]
        yield from _first(lines, MOST_EXCEPTIONS, "  and {} more")
        yield f"  ({OF_EXCEPTIONS})"


def _first(lines: Sequence[str], most: int, more: str) -> Iterator[str]:
    """Yield the first lines, and how many more there are."""
    yield from lines[:most]
    if len(lines) > most:
        yield more.format(len(lines) - most)


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
        yield from _alarm(report, hang, stands=report.outcome == model.UNFINISHED and hang is last.hangs[-1] and not has_moved(last, hang))
        lines = [f"  suspect: rank {each.rank} on node {each.node}: {each.why}" for each in hang.suspects]
        yield from _first(lines, MOST_SUSPECTS, "  and {} more")
    yield from (f"  {numbered(group.ranks, 'rank')}: {group.place}" for group in last.stacks[:MOST_GROUPS])
    if last.evidence:
        more = f" and {len(last.evidence) - 1} more" if len(last.evidence) > 1 else ""
        yield f"  evidence: {last.evidence[-1].folder}{more}"


def _alarm(report: Report, hang: Hang, *, stands: bool) -> Iterator[str]:
    """stands: the job may still hang."""
    since = f" since {clock(hang.since)}" if hang.since else ""
    over = f", and moved again at {clock(hang.ended)}" if hang.ended and has_moved(report.attempts[-1], hang) else ""
    signals = f" ({', '.join(hang.signals)})" if hang.signals else ""
    silent = f", {lasted(report.read_at - hang.since)} ago" if stands and hang.since and report.read_at > hang.since else ""
    yield f"{hang.what}{since}{silent}{signals}{over}"
    yield from _labelled("  ", hang.text if stands else "")


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
    unended = [each.node for each in report.attempts[-1].rounds[-1].nodes if each.state == "unfinished"]
    if unended and report.outcome != model.UNFINISHED:
        yield f"{_nodes(unended)} stopped telling before the end: killed, or gone"
    yield from _labelled("other jobs in the same folder: ", ", ".join(report.other_jobs[:MOST_TOLD]))
    yield from _first([f"note: {trouble}" for trouble in report.troubles], MOST_TOLD, "note: and {} more of these")


def _nodes(indexes: Iterable[int]) -> str:
    return numbered(indexes, "node")
