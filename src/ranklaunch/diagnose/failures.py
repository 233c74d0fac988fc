"""Processes of one node that failed, each with its own lines of output. Pure.

The kernel comes first: the exit status and the time of the end. A launcher's report counts for
ranks with an unseen end. The lines of one rank in an output of several follow below, and the last
lines of an output for people.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ranklaunch import errors
from ranklaunch.ends.host_lines import names_of, of_hosts
from ranklaunch.ends.model import BELOW, DAEMON, JobFacts, NodeEnds, RankEnd
from ranklaunch.showing import with_returns_told
from ranklaunch.system.signals import name_of
from ranklaunch.verdict import blame
from ranklaunch.verdict.blame import LINES
from ranklaunch.verdict.model import Culprit, Failure, Suspect

RANK, EXPERIMENT = "rank", "experiment"  # roles of children
ANNOUNCED = "announced"  # in Launcher.watched: it names the pid of each rank
TELLS_S = 1.0  # that a launcher takes at most to act on a failure that it has seen: a rank that ended earlier has not failed
AFTER_S = 1e-6  # tie-break: keeps the order of suspects with equal times
_SIGTERM, _SIGABRT, _SIGKILL = map(int, (signal.SIGTERM, signal.SIGABRT, signal.SIGKILL))
_TERMINATED = 128 + _SIGTERM
OF_SIGNALS = range(128, 128 + 65)
_BY_OTHERS = (*map(int, (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)), _SIGTERM, _SIGKILL)


@dataclass(frozen=True)
class Failed:
    """A process with a certain or possible failure, and the output about its end.

    suspect: the process as the culprit, without a reason. output: its last lines, as far as they are
    known apart. shared: other ranks write into the same output. by_itself: nobody had signalled the
    process. only_cause: the failure is uncertain, so the process counts only if its output names a
    cause. only_known: the cause must be an entry of its own in the catalogue. launcher: the launcher
    with a report on the process, or with the searched output.
    """

    suspect: Suspect
    output: str = ""
    shared: bool = False
    by_itself: bool = True
    only_cause: bool = False
    only_known: bool = False
    launcher: RankEnd | None = None

    @property
    def culprit(self) -> Culprit:
        assert self.suspect.culprit
        return self.suspect.culprit


def suspect_of(end: RankEnd | Failure, node: NodeEnds, at: float, lines: str = "", job_code: int | None = None) -> Suspect:
    """Return a failed process as the culprit of a suspect, without a reason.

    end: as the end was seen, or as a launcher reports it. at: seconds since 1970 by node 0's clock.
    lines: output for people. job_code: exit code of the job if this failure is the first; None:
    that of the process.
    """
    index = node_of(end.rank, node) if end.node is None else end.node
    code = end.exit_code or 0
    culprit = Culprit(
        node=index,
        rank=end.rank,
        pid=end.pid,
        exit_code=code,
        signal=name_of(end.signal) if end.signal else None,
        out_of_memory=False,
        last_lines=errors.quoted(last_lines(lines)),
        name=end.name,
        host=host_of(index, node),
        time=blame.iso(at),
    )
    return Suspect(index, at, "failed", code if job_code is None else job_code, "", culprit)


def node_of(rank: int | None, node: NodeEnds) -> int:
    """Return the node of a rank, this node or another one; this node for None."""
    own = node.job.node_index
    return own if rank is None else next((n.index for n in node.job.nodes if n.first_rank <= rank < n.first_rank + n.slots), own)


def host_of(index: int, node: NodeEnds) -> str:
    """Return the host of a node, "" on a job of one node."""
    everyone = (*node.job.nodes, *node.job.idle)
    return next((each.host for each in everyone if each.index == index), "") if len(everyone) > 1 else ""


def failed(node: NodeEnds) -> Iterator[Failed]:
    """Yield the processes of a node that failed, or may have. Daemons are read apart: ranklaunch
    kills them without a note in `sent`."""
    for end in node.ends:
        if end.role in (BELOW, DAEMON, EXPERIMENT) or not failure_code(end, node):
            continue
        yield from _of_launcher(end, node) if end.launcher else _of_child(end, node)


def failure_code(end: RankEnd, node: NodeEnds) -> int:
    """Return the exit code of a child; the code of its first failed rank if the child ended with 0
    all the same."""
    launcher = end.launcher
    if end.exit_code or not launcher:
        return int(end.exit_code or 0)
    codes = [rank.exit_code or 0 for rank in _below(end, node) if rank.by_itself and launcher.watched == ANNOUNCED]
    return next(filter(None, codes), int(launcher.ends_ranks))


def _of_child(end: RankEnd, node: NodeEnds) -> Iterator[Failed]:
    """Yield the failure of a child, unless the child ended by a signal that it was sent."""
    sent = {each.signal for each in end.sent}
    output = at_stop(end) if end.role == RANK or sent else end.output or ""
    by_itself = not sent or (end.signal == _SIGKILL and _SIGKILL not in sent)
    if by_itself or not _ended_as_signalled(end, sent):
        suspect = suspect_of(end, node, end.at or 0.0, output)
        yield Failed(suspect, output, by_itself=not sent, only_cause=not by_itself)


def _ended_as_signalled(end: RankEnd, sent: Collection[int]) -> bool:
    """True for an end by a signal, or with the exit code of one that was sent."""
    return bool(end.signal) or (end.exit_code or 0) - 128 in sent


# Ranks of a launcher


def _of_launcher(end: RankEnd, node: NodeEnds) -> Iterator[Failed]:
    """Yield the ranks in a launcher's report, the ranks below it, and the launcher itself without
    any failed rank."""
    reports = _reports(end, node)
    first = reports[0] if reports else None
    ranks = [rank for rank in _below(end, node) if rank.at is not None]
    seen = [rank for rank in ranks if _failed_for_sure(rank, end)]
    by_itself = not end.sent or bool(first and _had_reported(end) and first.exit_code != _TERMINATED)
    for i, report in enumerate(reports):
        yield replace(_reported(report, end, node, i * AFTER_S), by_itself=by_itself, only_cause=not by_itself)
    if not first and not seen:
        yield _itself(end, node, by_itself=by_itself)
    unreported = [rank for rank in ranks if not first or rank.rank != first.rank]
    for rank in unreported:
        if rank in seen:
            yield _seen(rank, end, node)
    yield from _with_a_cause(end, [rank for rank in unreported if rank not in seen], first, node)


def _failed_for_sure(rank: RankEnd, launcher: RankEnd) -> bool:
    """True if a rank ended by itself with a failure.

    A launcher that was not signalled may have ended its ranks unseen. Then only two ends are sure:
    one while the launcher was stopped, and an exit code while the launcher was known to send
    nothing but SIGTERM and SIGKILL.
    """
    assert launcher.launcher
    if not rank.by_itself or not rank.exit_code:
        return False
    if launcher.launcher.watched == ANNOUNCED or launcher.sent:
        return True
    if rank.surely:
        return rank.signal != _SIGTERM
    return launcher.launcher.ends_ranks and rank.signal not in (_SIGTERM, _SIGKILL)


def _seen(rank: RankEnd, launcher: RankEnd, node: NodeEnds) -> Failed:
    """Return the failure of a rank below a launcher, with the launcher's output where the rank's
    own is not known apart."""
    rank = replace(rank, exit_code=rank.exit_code or 1)
    at = rank.at or launcher.at or 0.0
    if rank.output or node.job.outputs:
        return Failed(suspect_of(rank, node, at, rank.output or ""), rank.output or "")
    output = output_of_rank(words_of(launcher), Failure(rank.rank, rank.exit_code or 1, rank.signal), node.job)
    return Failed(suspect_of(rank, node, at, output), output, shared=True, launcher=launcher)


def _with_a_cause(end: RankEnd, ranks: Sequence[RankEnd], report: Failure | None, node: NodeEnds) -> Iterator[Failed]:
    """Yield ranks that failed only if their output names a cause.

    Their launcher ended them, or fetched their exit status before ranklaunch saw the end.
    """
    for rank in (*ranks, *_never_seen(end, report, node)):
        if not _may_have_failed(rank) or _is_long_before_stop(rank, node):
            continue
        output = rank.output or ""
        coded = replace(rank, exit_code=rank.exit_code or _code_for_ranks(end))
        yield Failed(
            suspect_of(coded, node, _time_of_rank(rank, end), output),
            output,
            by_itself=not report and not end.sent,
            only_cause=True,
            only_known=rank.exit_code is None and bool(report),
        )


def _code_for_ranks(launcher: RankEnd) -> int:
    """Return the exit code of a launcher's ranks whose own is unknown."""
    code = launcher.exit_code
    return 1 if not code or code in OF_SIGNALS else code


def _time_of_rank(rank: RankEnd, launcher: RankEnd) -> float:
    """Return the time of a rank's end; the launcher's where the end may have been seen late."""
    assert launcher.launcher
    is_seen = launcher.launcher.watched == ANNOUNCED or launcher.sent
    return (rank.at if is_seen else None) or (launcher.at or 0.0) + AFTER_S


def _is_long_before_stop(rank: RankEnd, node: NodeEnds) -> bool:
    """True if the launcher would have acted on a failure of the rank before the stop request."""
    return node.stop is not None and (rank.at or 0.0) < node.stop.at - TELLS_S


def _never_seen(end: RankEnd, report: Failure | None, node: NodeEnds) -> list[RankEnd]:
    """Return the ranks of a launcher with a known output and an unseen process, without the rank of
    the launcher's report."""
    known = {rank.rank for rank in _below(end, node)} | ({report.rank} if report else set())
    ranks = (each for each in node.ends if each.role == BELOW and each.parent == end.pid and each.pid is None)
    return [each for each in ranks if each.rank is not None and each.rank not in known]


def _may_have_failed(rank: RankEnd) -> bool:
    """False for a rank that succeeded or was ended by its launcher."""
    was_stopped = rank.signal == _SIGTERM or rank.exit_code == _TERMINATED or (rank.signal == _SIGABRT and not rank.by_itself)
    return rank.exit_code != 0 and not was_stopped


def _itself(end: RankEnd, node: NodeEnds, *, by_itself: bool) -> Failed:
    """Return the failure of a launcher without a failed rank."""
    assert end.launcher
    code, output = failure_code(end, node), words_of(end)
    job_code = code if end.signal else end.launcher.fails_as or code
    suspect = suspect_of(end, node, end.launcher.reported_at or end.at or 0.0, output, job_code)
    searched = "" if end.signal in _BY_OTHERS else output
    return Failed(suspect, searched, shared=True, by_itself=by_itself, only_cause=not by_itself)


def _reported(report: Failure, end: RankEnd, node: NodeEnds, later_s: float) -> Failed:
    """Return the rank in a launcher's report, with its own output if ranks do not share one.
    later_s: keeps the order of several reports."""
    local = _output_of_its_own(report.rank, node)
    is_apart = bool(node.job.outputs and report.rank in node.job.outputs.ranks)
    output = local or ("" if is_apart else _output_before_report(report, end, node.job))
    lines = output if is_apart else output or words_of(end)
    suspect = suspect_of(replace(report, name=report.name or end.name), node, _time_of(report, end) + later_s, lines)
    return Failed(suspect, output, shared=not local, launcher=end)


def _output_of_its_own(rank: int | None, node: NodeEnds) -> str:
    """Return the output of a rank below a launcher; "" where ranks share one."""
    if rank is None:
        return ""
    return next((end.output for end in node.ends if end.role == BELOW and end.rank == rank), None) or ""


def _output_before_report(report: Failure, end: RankEnd, job: JobFacts) -> str:
    """Return the reported rank's lines in the output of its launcher; "" if a signal from outside
    ended the launcher."""
    is_killed = report.pid == end.pid and report.signal in _BY_OTHERS
    return "" if is_killed else output_of_rank(words_of(end), report, job)


def _time_of(report: Failure, end: RankEnd) -> float:
    reported_at = end.launcher.reported_at if end.launcher else None
    return report.at or reported_at or end.at or 0.0


def _reports(end: RankEnd, node: NodeEnds) -> list[Failure]:
    """Return the reports of a launcher, first to last: one for each host, if the launcher marks
    hosts. Ranks ended by SIGTERM are left out, unless all were."""
    assert end.launcher
    names, report = names_of(node.job.nodes), end.launcher.reported
    if not report:
        return []
    first, *more = [_marked(_placed(each, end, node, names), end, node) for each in (report, *end.launcher.by_host)]
    if not more or (first.node is not None and first.node not in {each.node for each in more}):
        return [first]  # of a node whose own lines report nothing: the others ended later
    ordered = sorted(more, key=lambda each: each.node != first.node)
    return [each for each in ordered if each.signal != _SIGTERM] or ordered


def _marked(report: Failure, end: RankEnd, node: NodeEnds) -> Failure:
    """Return a report of a node with the rank that marked the lines of its exception. Its exit code
    is 1, whatever signal followed."""
    of = next((each for each in node.job.nodes if report.rank is None and each.index == report.node), None)
    lines = output_of_rank(words_of(end), report, node.job) if of else ""
    rank = marked_rank(lines, range(of.first_rank, of.first_rank + of.slots)) if of else None
    return report if rank is None else replace(report, rank=rank, exit_code=1, signal=0)


def _placed(report: Failure, end: RankEnd, node: NodeEnds, names: Mapping[str, int]) -> Failure:
    """Return a report with the node, and with the number of the rank, if the pid is one rank's or
    only one rank remains."""
    assert end.launcher
    if report.rank is not None and report.rank >= sum(each.slots for each in node.job.nodes):  # whatever has written that
        report = replace(report, rank=None)
    report = replace(report, node=names.get(report.host)) if report.node is None else report
    if report.rank is not None or report.pid == end.pid:
        return report
    meant = [rank for rank in _below(end, node) if rank.pid == report.pid]
    return replace(report, rank=meant[0].rank) if len(meant) == 1 else report


def _below(launcher: RankEnd, node: NodeEnds) -> list[RankEnd]:
    """Return the ranks of a launcher with a seen process, in the order of their ends."""
    return [each for each in node.ends if each.role == BELOW and each.parent == launcher.pid and each.pid is not None]


def _had_reported(end: RankEnd) -> bool:
    """True if a launcher had begun to report a failure before it was signalled, or announces the
    end of its ranks."""
    launcher = end.launcher
    assert launcher
    return _had_begun(end) or bool(launcher.says_failing and end.at_stop)


def _had_begun(end: RankEnd) -> bool:
    signalled_at = min((sent.at for sent in end.sent if sent.at is not None), default=float("inf"))
    begun = end.launcher.reported_at if end.launcher else None
    return begun is not None and begun < signalled_at


def words_of(end: RankEnd) -> str:
    """Return the output of a launcher: at the stop, unless its report had begun before."""
    return at_stop(end) if (end.sent or end.signal == _SIGKILL) and not _had_begun(end) else end.output or ""


def at_stop(end: RankEnd) -> str:
    """Return the output of a process at the moment when it stopped to count; all output if that
    moment never came."""
    return end.output or "" if not end.at_stop or end.at_stop.text is None else end.at_stop.text


# Lines of one rank in an output of several

_MARK = re.compile(r"\[rank([0-9]{1,7})\]: ")  # of PyTorch, before each line of an uncaught exception
# First lines of what launchers report of an end: torchrun, DeepSpeed, srun (also of our own
# program, below MPICH), mpirun, msrun.
_REPORT_LINES = re.compile(
    r"^.*(?:failed \(exitcode: -?\d+\) local_rank: \d|closing signal SIGTERM)"
    r"|\[launch\.py:\d{1,5}:sigkill_handler\] |exits with return code = "
    r"|^srun: error: \S{1,300}: tasks? \d"
    r"|^(?:-{60,90}\n)?(?:Primary job  terminated normally, but|mpirun\S{0,20} (?:noticed|detected) that |MPI_ABORT was invoked on rank )"
    r"|\] Worker process \d{1,10} exit with exception\. Error code: ",
    re.MULTILINE,
)
_END_OF_BOX = re.compile(r"^={20,}\n", re.MULTILINE)
# Reports of launchers that a rank, or a script, has started itself, and what they say. Groups:
# code, negative for a signal; or signal.
_INNER = (
    (
        r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+) \(pid: (?P<pid>\d+)\)",
        "its torchrun says that local rank {rank} (pid {pid})",
    ),
    (r"\[launch\.py:\d{1,5}:sigkill_handler\] \[.*\] exits with return code = (?P<code>-?\d+)", "its deepspeed says that a rank"),
    (r"Process name: \[[^\]\n]{1,300}\]?,(?P<rank>\d+)\]\s+Exit code:\s+(?P<code>\d+)", "its mpirun says that rank {rank}"),
    (
        r"noticed that process rank (?P<rank>\d+) with PID \d+ on node (?P<node>\S{1,253}) exited on\s+signal (?P<signal>\d+)",
        "its mpirun says that rank {rank} on {node}",
    ),
)
# Begin lines of a launcher that may report before the last lines of its ranks have come.
_EARLY_REPORTER = ("srun: ", "slurmstepd")
_OWN_LINE = re.compile(r"\] \[(?:launch|runner)\.py:")  # of DeepSpeed, about the programs that it starts
_BY_EXCEPTION = (1, 143, 134)  # exit codes of a rank that an exception was ending, maybe until a signal came


def output_of_rank(text: str, report: Failure, job: JobFacts) -> str:
    """Return the lines of a launcher's output, up to its report, that the reported rank may have
    written.

    Lines of other hosts, and lines that are marked as another rank's, are left out.
    """
    before = _before_report_of_host(text, report, job)
    marks = _marks_of_others(report.rank, job)
    lines = (line for line in before.splitlines(keepends=True) if not _OWN_LINE.search(line))
    return "".join(line for line in lines if not line.startswith(marks) and _may_be_of(report, line))


def _before_report_of_host(text: str, report: Failure, job: JobFacts) -> str:
    """Return the lines of the reported rank's host up to the report; all lines where the launcher
    puts no host before them.

    srun may report before the last lines of its ranks have come. A host that pdsh has lost reports
    nothing, so all its lines count.
    """
    names = [name for name, node in names_of(job.nodes).items() if node == report.node]
    of_host = "".join(of_hosts(text, names).values())
    before = before_report(of_host or text)
    if before is None and any(f": {name}: ssh exited with " in text for name in names):
        return of_host
    if f"\n{_EARLY_REPORTER[0]}error" in f"\n{text}":
        lines = text.splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith(_EARLY_REPORTER))
    return before or ""


def inner_report(text: str) -> str:
    """Return the report of the last launcher that a program started itself, "" for none."""
    matched = [(match.end(), match.groupdict(), says) for pattern, says in _INNER for match in re.finditer(pattern, text)]
    if not matched:
        return ""
    _, groups, says = max(matched, key=lambda each: each[0])
    code = int(groups.get("code") or -int(groups["signal"]))
    return f"{says.format(**groups)} {f'exited with code {code}' if code >= 0 else f'was killed by signal {-code}'}"


def marked_rank(text: str, ranks: range) -> int | None:
    """Return the first of some ranks with marked lines: an exception was ending this rank."""
    numbers = (int(mark[1]) for mark in map(_MARK.match, text.splitlines()) if mark)
    return next((number for number in numbers if number in ranks), None)


def _may_be_of(report: Failure, line: str) -> bool:
    """False for a line with another rank's mark; for every marked line if the rank did not end by
    an exception."""
    mark = _MARK.match(line)
    if not mark:
        return True
    return int(mark[1]) == report.rank if report.rank is not None else report.exit_code in _BY_EXCEPTION


def _marks_of_others(rank: int | None, job: JobFacts) -> tuple[str, ...]:
    """Return the marks of other ranks, where the user has the launcher mark the lines of its ranks."""
    kept = job.kept
    return tuple(mark for number, mark in zip(kept.ranks, kept.marks) if mark and number != rank) if kept and rank is not None else ()


def before_report(text: str) -> str | None:
    """Return an output up to the first line of a launcher's report; None without a report.

    A report that ends in a box before another report is from a launcher that a rank has started.
    """
    reports = [text.rfind("\n", 0, report.start()) + 1 for report in _REPORT_LINES.finditer(text)]
    if not reports:
        return None
    begin = max((box.end() for box in _END_OF_BOX.finditer(text, reports[0], reports[-1])), default=0)
    return text[begin : next(report for report in reports if report >= begin)]


# Last lines of an output, for people

_BEFORE = r"(?:\[rank ?[0-9]+\]:? ?)?"  # of PyTorch
_MARKS = re.compile(rf"{_BEFORE}\s{{4,}}[~^][~^ ]*")  # below a source line, since Python 3.11
_HEAD = re.compile(rf"{_BEFORE}\s*Traceback \(most recent call last\):")
_FRAME = re.compile(rf'{_BEFORE}(\s*)File "([^"]*)", line [0-9]+')
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python[0-9.]+/|^<frozen ")
_INDENT = re.compile(rf"{_BEFORE}(\s*)")


def last_lines(text: str, most: int = LINES) -> tuple[str, ...]:
    """Return the last lines of an output, without empty ones; of a redrawn line, the last state. A
    long traceback keeps its beginning and leaves out frames in libraries."""
    drawn = [line.rstrip("\r").rpartition("\r")[2] for line in with_returns_told(text).replace("\r\n", "\n").split("\n")]
    lines = [line for line in drawn if line.strip()]
    plain = [line for line in lines if not _MARKS.fullmatch(line)]
    if len(plain) > most and any(map(_HEAD.match, plain)):
        plain = list(_without_libraries(plain))
    last = plain[-most:]
    head = next((i for i in range(len(plain) - 1, -1, -1) if _HEAD.match(plain[i])), -1)
    if 0 <= head < len(plain) - most and _reaches(plain[head + 1 :], len(last)):
        last = [plain[head], "  ...", *plain[-(most - 2) :]]
    return tuple(last)


def _reaches(rest: Sequence[str], most: int) -> bool:
    """True if a traceback continues up to the shown lines."""
    return all(_depth(line) for line in rest[: max(0, len(rest) - most)])


def _without_libraries(lines: Sequence[str]) -> Iterator[str]:
    left_out, depth = 0, -1
    for line in lines:
        frame = _FRAME.match(line)
        if frame and _LIBRARY.search(frame[2]):
            left_out, depth = left_out + 1, len(frame[1])
        elif depth >= 0 and not frame and _depth(line) > depth:
            continue
        else:
            if left_out:
                yield f"{' ' * depth}... {left_out} frame{'s' if left_out > 1 else ''} in libraries"
            left_out, depth = 0, -1
            yield line


def _depth(line: str) -> int:
    match = _INDENT.match(line)
    return len(match[1]) if match else 0
