"""Next steps of the user after the end of a job: repairs, logs to read, another start."""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ranklaunch.errors import EXIT_CODES, numbered
from ranklaunch.report import model
from ranklaunch.report.formats import words
from ranklaunch.report.model import Culprit, Report, Suspect
from ranklaunch.verdict.model import YES

MOST_SUSPECTS = 4
LINES = 100  # lines of a log in a suggested command


@dataclass(frozen=True)
class Step:
    """Next step. text: the advice. code: a command or a path, "" for none."""

    text: str
    code: str = ""


def steps(report: Report) -> list[Step]:
    return [*_repairs(report), *look(report), *_again(report), *explanations(report)]


def _repairs(report: Report) -> Iterator[Step]:
    """Yield the catalogue's remedies for the culprit, then for second causes."""
    culprit = report.culprit
    if culprit and culprit.out_of_memory:
        yield Step(words.sentence(culprit.meaning))
    if culprit and culprit.error and culprit.error.remedy:
        yield Step(culprit.error.remedy)
    for each in words.second_causes(report):
        if each.error and each.error.remedy:
            yield Step(f"For {words.process_name(each)}: {each.error.remedy}")


def look(report: Report) -> Iterator[Step]:
    """Yield places with more details: a running job, logs, evidence."""
    if report.outcome == model.UNFINISHED:
        yield Step("If the job still runs, in one of its containers:", _command("status", report))
        if words.standing(report.attempts[-1]):
            yield Step("In the same container, for the stacks of its ranks:", _command("stacks", report))
    yield from _read(report)
    yield from _evidence(report)


def _read(report: Report) -> Iterator[Step]:
    culprit = report.culprit
    if culprit and _wrote_nothing(culprit, report):
        exits = f"look in the program for an exit with code {culprit.exit_code}, and " if culprit.exit_code and not culprit.signal else ""
        yield Step(f"No output of {words.process_name(culprit)}: {exits}read the last lines of all ranks:", _logs(report))
    elif culprit and culprit.log:
        path = os.path.join(report.folder, culprit.log)
        read = path if culprit.rank is None else _logs(report, [culprit.rank])
        yield Step(f"Read the last lines of {words.process_name(culprit)}:", read)
    suspects = [each for each in _suspects(report) if each.log][:MOST_SUSPECTS]
    if suspects:
        ranks, nodes = {each.rank for each in suspects}, {each.node for each in suspects}
        hosts = ", ".join(filter(None, [each.host for each in report.job.nodes if each.index in nodes]))
        suspected = f"{numbered(sorted(ranks), 'rank')}{f' ({hosts})' if hosts else ''}"
        yield Step(
            f"Read the last lines of {suspected}, which may hold up the others:",
            _logs(report, sorted(ranks)),
        )


def _wrote_nothing(culprit: Culprit, report: Report) -> bool:
    """Return True for a rank with an empty log. A silent launcher may have ranks with output."""
    is_empty = any(tail.log == culprit.log and not tail.lines for tail in report.tails)
    return culprit.rank is not None and is_empty and not culprit.last_lines and not culprit.error


def _suspects(report: Report) -> tuple[Suspect, ...]:
    hang = words.standing(report.attempts[-1])
    return hang.suspects if hang else ()


def _evidence(report: Report) -> Iterator[Step]:
    """Yield the newest evidence of the node of a suspect or of the culprit, else of any node."""
    last = report.attempts[-1]
    if not last.evidence or (report.outcome == model.SUCCEEDED and not words.standing(last)):
        return
    concerned = (*_suspects(report), *((report.culprit,) if report.culprit else ()))
    nodes = [each.node for each in concerned] or [-1]
    taken = [each for each in last.evidence if each.node == nodes[0]] or last.evidence
    folder = os.path.join(report.folder, taken[-1].folder)
    yield Step("See the evidence: stacks, states of processes, devices:", folder)


def _command(name: str, report: Report) -> str:
    return f"ranklaunch {name} {shlex.quote(report.folder)}"


def _logs(report: Report, ranks: Iterable[int] = ()) -> str:
    """Return the command for the last lines of some ranks, or of all."""
    attempt = f" --attempt {report.attempts[-1].number}" if len(report.attempts) > 1 else ""
    chosen = ",".join(map(str, ranks))
    return f"{_command('logs', report)}{attempt}{f' --rank {chosen}' if chosen else ''} --tail {LINES}"


def _again(report: Report) -> Iterator[Step]:
    """Yield advice on another start, from the catalogue and the verdict: if one helps, and without which host."""
    error, host = report.culprit and report.culprit.error, report.attempts[-1].suspect_host
    if host:
        yield Step(f"Leave out {host.host} (node {host.node}) the next time: {host.why}")
    if error and words.restart_advice(error):
        yield Step(words.sentence(words.restart_advice(error)))
    restarted = any(len(each.rounds) > 1 for each in report.attempts)
    if error and error.retry == YES and not restarted:
        yield Step(
            "To restart all ranks automatically after such a failure, in the same containers, set",
            "RANKLAUNCH_MAX_RESTARTS=3",
        )


def explanations(report: Report) -> Iterator[Step]:
    """Yield explanations of an exit code, a pause, a stop or a missing node, with the change for the next start."""
    last, code, culprit = report.attempts[-1], report.exit_code, report.culprit
    hang = last.hangs[-1] if last.hangs and words.is_alarm(last.hangs[-1]) else None
    if hang and report.job.hang_s and hang.subject == model.STILL:
        moved = words.has_moved(last, hang)
        why = "such pauses are usual" if moved else "the job only looked as if it hung"
        yield Step(f"If {why}, raise RANKLAUNCH_HANG_S (it was {report.job.hang_s:g} s).")
    elif code in EXIT_CODES and code and not (culprit and culprit.exit_code == code):
        yield Step(f"Exit code {code}: {EXIT_CODES[code]}.")
    if report.outcome == "stopped" and last.stop.endswith("saved: no"):
        yield Step("To lose no work at a stop, let the program save at SIGTERM (docs/status.md).")
    if last.missing:
        nodes = numbered(last.missing, "node")
        yield Step(f"If logs of {nodes} lie elsewhere, put them here and report again.")
