"""Times, processes, ends and hangs of a report in words, for all formats."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from ranklaunch.errors import counted, numbered
from ranklaunch.report import model
from ranklaunch.report.model import (
    Accounting,
    Attempt,
    Culprit,
    Hang,
    KnownError,
    Process,
    Raised,
    Report,
)
from ranklaunch.verdict import blame

OF_EXCEPTIONS = "recorded by the processes themselves; an exception explains an end only together with the exit code"
NO_REASON = "no reason is known"
ALARM, WARNING, MOVED, RULE = "alarm", "warning", "moved", "rule"  # kinds of hang events
BAR = 30  # characters
ABORT = "SIGABRT"  # sent by ranklaunch to make Python write its stacks


def reason(report: Report) -> str:
    nothing = unfinished(report) if report.outcome == model.UNFINISHED else NO_REASON
    return report.reason or nothing


def restart_advice(error: KnownError) -> str:
    """Return the catalogue's advice on another start, "" for none."""
    return blame.RETRY.get(error.retry, "")


def bar(share: float) -> int:
    """Return the length of a bar of text, in characters."""
    return round(BAR * share)


def unfinished(report: Report) -> str:
    """Return why a report has no outcome, with the age of the job's last sign."""
    age = f", {lasted(report.read_at - report.ended)} before this report" if report.read_at > report.ended else ""
    sign = f"the last sign of the job is from {clock(report.ended)} UTC{age}" if report.ended else "no file shows when it ran"
    return f"there is no verdict; {sign}: it still runs, or all of it was killed"


def has_moved(attempt: Attempt, hang: Hang) -> bool:
    """Return True if the job moved again after an alarm by itself, and not because the alarm ended it."""
    ended = hang.ended or 0.0
    by_stop = any(each.failed and (hang.since or 0.0) <= each.failed <= ended + 1 for each in attempt.rounds)
    return bool(hang.ended) and not by_stop and ended < attempt.ended


def alarm_kind(text: str) -> str:
    """Return the kind of a hang event by the beginning of its text."""
    if text.startswith(("it moves again", "over")):
        return MOVED
    if not text.startswith("RANKLAUNCH_EXPECT"):
        return WARNING if "; hang alarm at " in text else ALARM
    return RULE


def standing(attempt: Attempt) -> Hang | None:
    """Return the last hang, unless the job moved again."""
    last = attempt.hangs[-1] if attempt.hangs else None
    return last if last and not has_moved(attempt, last) else None


def is_alarm(hang: Hang) -> bool:
    """Return True if an alarm was raised, and not only a warning."""
    return bool(hang.signals) or alarm_kind(hang.text) == ALARM


def hang(attempt: Attempt, each: Hang) -> str:
    """Return a hang as a sentence; a hang after which the job went on is worded as a pause."""
    if each.since and each.ended and has_moved(attempt, each):
        took, began = lasted(each.ended - each.since), clock(each.since)
        return f"Nothing moved for {took}, from {began} UTC on; then the job went on."
    since = f" since {clock(each.since)} UTC" if each.since else ""
    signals = f" ({', '.join(each.signals)})" if each.signals else ""
    return f"{each.subject.capitalize()}{since}{signals}."


def unended(report: Report) -> list[int]:
    """Return the nodes whose events stop before the end of the job."""
    nodes = report.attempts[-1].rounds[-1].nodes if report.outcome != model.UNFINISHED else ()
    return [each.node for each in nodes if each.state == "unfinished"]


def limits(report: Report) -> str:
    """Return the limits of the hang alarm of a job that may still run, "" if the alarm stands or is off."""
    job, last = report.job, report.attempts[-1]
    if not job.hang_s or (last.hangs and not has_moved(last, last.hangs[-1])):
        return ""
    return f"hang alarm at {job.hang_s:g} s without a sign of life, {job.first_step_s:g} s before the first output"


def clock(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def long(seconds: float) -> str:
    """Return a duration in words: 4 ms, else as lasted()."""
    return f"{1000 * seconds:.3g} ms" if 0 < seconds < 0.0995 else lasted(seconds)


def lasted(seconds: float) -> str:
    """Return a duration in words: 2.5 s, 3 min 20 s, 4 h 05 min, 2 d 03 h."""
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes < 48 * 60 else f"{minutes // 1440} d {minutes // 60 % 24:02} h"


def exact(seconds: float) -> str:
    """Return the duration of a step in words, with three digits."""
    return f"{1000 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s" if seconds < 99.95 else long(seconds)


def process_name(culprit: Culprit) -> str:
    """Return a process with its node and host: rank 3 on node 1 (h1)."""
    host = f" ({culprit.host})" if culprit.host else ""
    name = culprit.name or "a process"
    named = f"rank {culprit.rank}, of {name}," if culprit.rank is not None and name != f"rank {culprit.rank}" else name
    return f"{named} on node {culprit.node}{host}"


def second_causes(report: Report) -> list[Culprit]:
    """Return failures with a known cause that differs from the culprit's: they are no victims of the culprit."""
    first = report.culprit.error if report.culprit else None
    with_cause = [each for each in report.attempts[-1].failures if each.error and each.error.kind == blame.CAUSE]
    return [each for each in with_cause if not first or (each.error and (each.error.name, each.error.line) != (first.name, first.line))]


def failure(culprit: Culprit) -> str:
    """Return the process, its exit status and the line of its output that names the error."""
    line = culprit.error.line if culprit.error else ""
    return ": ".join(filter(None, (f"{process_name(culprit)}, {end(culprit.exit_code, culprit.signal)}", line)))


def end(exit_code: int | None, signal: str) -> str:
    return f"killed by {signal}" if signal else "" if exit_code is None else f"exit code {exit_code}"


def process_end(process: Process) -> str:
    """Return the end of a process as text, with the stop that caused it, "" if unknown."""
    ended = end(process.exit_code, process.signal)
    if not (ended and process.sent):
        return ended
    if process.signal != process.sent:
        return f"{ended} after {process.sent} of the stop"
    if process.sent == ABORT:
        return f"ended by {ABORT}, sent by ranklaunch to get its stack"
    return f"ended by {process.sent} of the stop"


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def figures(accounting: Accounting) -> list[str]:
    """Return the known figures of a job: first step, interruptions and recoveries."""
    first = accounting.time_to_first_step_s
    texts = [] if first is None else [f"first step after {lasted(first)}"]
    texts += [counted(accounting.interruptions, "interruption")] if accounting.interruptions else []
    recovered = ", ".join(lasted(each) for each in accounting.time_to_recover_s[-3:])
    return texts + ([f"back at a first step after {recovered}"] if recovered else [])


def memory(kilobytes: int) -> str:
    return f"{kilobytes / 1024**2:.1f} GiB" if kilobytes >= 1024**2 else f"{kilobytes / 1024:.0f} MiB"


def raised_by(group: Sequence[Raised]) -> str:
    """Return the processes that raised equal exceptions, with the time of the first: rank 1 (pid 4711), 12:03:04."""
    first = group[0]
    ranks = sorted({each.rank for each in group if each.rank is not None})
    at = clock(first.at).partition(" ")[2]
    times = f", {counted(len(group), 'time')}, first" if len(group) > max(1, len(ranks)) else ", first" if len(group) > 1 else ","
    thread = f", in thread {first.thread}" if first.where == "thread" else ""
    if len(ranks) > 1:
        return f"{numbered(ranks, 'rank')}{thread}{times} {at}"
    if ranks:
        name = f"rank {ranks[0]}"
    else:
        name = first.launcher or ("a child process" if first.where == "process" else "a helper")
        thread = f" on node {first.node}{thread}"
    return f"{name} (pid {first.pid}){thread}{times} {at}"
