"""Processes of one node that failed, each with its own lines of output. Pure.

The exit status and the time of an end count first. A launcher's report counts for ranks whose exit
status ranklaunch did not see.

The second half of the module finds the lines of one rank in an output that several ranks share, and
the last lines of an output for people.
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
ANNOUNCED = "announced"  # value of Launcher.watched: the launcher names the pid of each rank
TELLS_S = 1.0  # from the failure of a rank to the launcher's reaction, at most
AFTER_S = 1e-6  # tie-break: keeps the order of suspects with equal times
_SIGTERM, _SIGABRT, _SIGKILL = map(int, (signal.SIGTERM, signal.SIGABRT, signal.SIGKILL))
_TERMINATED = 128 + _SIGTERM
OF_SIGNALS = range(128, 128 + 65)  # exit codes
# Signals that a process does not cause itself: its output cannot explain them.
_SENT_FROM_OUTSIDE = (*map(int, (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)), _SIGTERM, _SIGKILL)


@dataclass(frozen=True)
class Failed:
    """Process with a certain or possible failure, and the output about its end.

    suspect: the process as the culprit, without a reason. output: its last lines, without those
    known to be another rank's. shared: other ranks write into the same output. by_itself: the
    process was not signalled before. only_cause: the failure is uncertain, so the process counts
    only if its output names a cause. only_known: the cause must have an entry of its own in the
    catalogue. launcher: the launcher that reported the process, or that wrote `output`.
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

    end: from the kernel, or from a launcher's report. at: seconds since 1970 by node 0's clock.
    lines: output for people. job_code: exit code of the job if this failure is the first; None
    stands for the exit code of the process.
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
    """Return the index of the node of a rank; this node's for None and for an unknown rank."""
    local = node.job.node_index
    return local if rank is None else next((n.index for n in node.job.nodes if n.first_rank <= rank < n.first_rank + n.slots), local)


def host_of(index: int, node: NodeEnds) -> str:
    """Return the host of a node, "" in a job of one node."""
    nodes = (*node.job.nodes, *node.job.idle)
    return next((each.host for each in nodes if each.index == index), "") if len(nodes) > 1 else ""


def failed(node: NodeEnds) -> Iterator[Failed]:
    """Yield the processes of a node that failed, or may have failed.

    Daemons are left to `suspects`: ranklaunch kills them without an entry in `sent`.
    """
    for end in node.ends:
        if end.role in (BELOW, DAEMON, EXPERIMENT) or not failure_code(end, node):
            continue
        yield from _of_launcher(end, node) if end.launcher else _of_child(end, node)


def failure_code(end: RankEnd, node: NodeEnds) -> int:
    """Return the exit code of a child. For a launcher that exited with 0 despite a failed rank,
    return the code of its first failed rank."""
    launcher = end.launcher
    if end.exit_code or not launcher:
        return int(end.exit_code or 0)
    codes = [rank.exit_code or 0 for rank in _child_ranks(end, node) if rank.by_itself and launcher.watched == ANNOUNCED]
    return next(filter(None, codes), int(launcher.ends_ranks))


def _of_child(end: RankEnd, node: NodeEnds) -> Iterator[Failed]:
    """Yield the failure of a child, unless a signal from ranklaunch ended the child."""
    sent = {each.signal for each in end.sent}
    output = output_at_stop(end) if end.role == RANK or sent else end.output or ""
    by_itself = not sent or (end.signal == _SIGKILL and _SIGKILL not in sent)
    if by_itself or not _ended_as_signalled(end, sent):
        suspect = suspect_of(end, node, end.at or 0.0, output)
        yield Failed(suspect, output, by_itself=not sent, only_cause=not by_itself)


def _ended_as_signalled(end: RankEnd, sent: Collection[int]) -> bool:
    """True for an end by a signal, or with exit code 128+N for a sent signal N."""
    return bool(end.signal) or (end.exit_code or 0) - 128 in sent


# Ranks of a launcher


def _of_launcher(end: RankEnd, node: NodeEnds) -> Iterator[Failed]:
    """Yield the ranks in a launcher's report and its other failed ranks. Without any failed rank,
    yield the launcher itself."""
    reports = _reports(end, node)
    first = reports[0] if reports else None
    ranks = [rank for rank in _child_ranks(end, node) if rank.at is not None]
    certain = [rank for rank in ranks if _failed_for_sure(rank, end)]
    by_itself = not end.sent or bool(first and _had_reported(end) and first.exit_code != _TERMINATED)
    for i, report in enumerate(reports):
        yield replace(_reported_failure(report, end, node, i * AFTER_S), by_itself=by_itself, only_cause=not by_itself)
    if not first and not certain:
        yield _launcher_failure(end, node, by_itself=by_itself)
    unreported = [rank for rank in ranks if not first or rank.rank != first.rank]
    for rank in unreported:
        if rank in certain:
            yield _certain_failure(rank, end, node)
    yield from _with_a_cause(end, [rank for rank in unreported if rank not in certain], first, node)


def _failed_for_sure(rank: RankEnd, launcher: RankEnd) -> bool:
    """True if a rank certainly failed by itself.

    A launcher that was not signalled may have ended its ranks, and ranklaunch cannot see these
    signals. Then only two kinds of ends are certain: an end while the launcher was stopped
    (SIGSTOP), and an end by anything but SIGTERM and SIGKILL if the launcher sends only those two.
    """
    assert launcher.launcher
    if not rank.by_itself or not rank.exit_code:
        return False
    if launcher.launcher.watched == ANNOUNCED or launcher.sent:
        return True
    if rank.surely:
        return rank.signal != _SIGTERM
    return launcher.launcher.ends_ranks and rank.signal not in (_SIGTERM, _SIGKILL)


def _certain_failure(rank: RankEnd, launcher: RankEnd, node: NodeEnds) -> Failed:
    """Return the failure of a launcher's rank, with its own output or its lines in the launcher's
    output."""
    rank = replace(rank, exit_code=rank.exit_code or 1)
    at = rank.at or launcher.at or 0.0
    if rank.output or node.job.outputs:
        return Failed(suspect_of(rank, node, at, rank.output or ""), rank.output or "")
    output = output_of_rank(launcher_output(launcher), Failure(rank.rank, rank.exit_code or 1, rank.signal), node.job)
    return Failed(suspect_of(rank, node, at, output), output, shared=True, launcher=launcher)


def _with_a_cause(end: RankEnd, ranks: Sequence[RankEnd], report: Failure | None, node: NodeEnds) -> Iterator[Failed]:
    """Yield uncertain failures: these ranks failed only if their output names a cause.

    Their launcher may have ended them, or it reaped them before ranklaunch saw the exit status.
    """
    for rank in (*ranks, *_ranks_without_process(end, report, node)):
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
    """Return the exit code for ranks of a launcher whose own exit code is unknown."""
    code = launcher.exit_code
    return 1 if not code or code in OF_SIGNALS else code


def _time_of_rank(rank: RankEnd, launcher: RankEnd) -> float:
    """Return the time of a rank's end; just after the launcher's end if ranklaunch may have seen the
    rank's end late."""
    assert launcher.launcher
    is_seen = launcher.launcher.watched == ANNOUNCED or launcher.sent
    return (rank.at if is_seen else None) or (launcher.at or 0.0) + AFTER_S


def _is_long_before_stop(rank: RankEnd, node: NodeEnds) -> bool:
    """True if the rank ended so long before the stop request that its launcher would have acted on
    a failure."""
    return node.stop is not None and (rank.at or 0.0) < node.stop.at - TELLS_S


def _ranks_without_process(end: RankEnd, report: Failure | None, node: NodeEnds) -> list[RankEnd]:
    """Return the ranks of a launcher with an output but without a process that ranklaunch saw. The
    rank of the launcher's report is left out."""
    known = {rank.rank for rank in _child_ranks(end, node)} | ({report.rank} if report else set())
    ranks = (each for each in node.ends if each.role == BELOW and each.parent == end.pid and each.pid is None)
    return [each for each in ranks if each.rank is not None and each.rank not in known]


def _may_have_failed(rank: RankEnd) -> bool:
    """False for a rank that succeeded or was ended by its launcher."""
    was_stopped = rank.signal == _SIGTERM or rank.exit_code == _TERMINATED or (rank.signal == _SIGABRT and not rank.by_itself)
    return rank.exit_code != 0 and not was_stopped


def _launcher_failure(end: RankEnd, node: NodeEnds, *, by_itself: bool) -> Failed:
    """Return the launcher's own failure, without a failed rank."""
    assert end.launcher
    code, output = failure_code(end, node), launcher_output(end)
    job_code = code if end.signal else end.launcher.fails_as or code
    suspect = suspect_of(end, node, end.launcher.reported_at or end.at or 0.0, output, job_code)
    searched = "" if end.signal in _SENT_FROM_OUTSIDE else output
    return Failed(suspect, searched, shared=True, by_itself=by_itself, only_cause=not by_itself)


def _reported_failure(report: Failure, end: RankEnd, node: NodeEnds, later_s: float) -> Failed:
    """Return the rank in a launcher's report, with its own output if ranks do not share one.
    later_s: seconds to add, to keep the order of several reports."""
    separate = _output_apart(report.rank, node)
    is_apart = bool(node.job.outputs and report.rank in node.job.outputs.ranks)
    output = separate or ("" if is_apart else _output_before_report(report, end, node.job))
    lines = output if is_apart else output or launcher_output(end)
    suspect = suspect_of(replace(report, name=report.name or end.name), node, _time_of(report, end) + later_s, lines)
    return Failed(suspect, output, shared=not separate, launcher=end)


def _output_apart(rank: int | None, node: NodeEnds) -> str:
    """Return the output of a launcher's rank; "" if ranks share one output."""
    if rank is None:
        return ""
    return next((end.output for end in node.ends if end.role == BELOW and end.rank == rank), None) or ""


def _output_before_report(report: Failure, end: RankEnd, job: JobFacts) -> str:
    """Return the reported rank's lines in the output of its launcher; "" if a signal from outside
    ended the launcher."""
    is_killed = report.pid == end.pid and report.signal in _SENT_FROM_OUTSIDE
    return "" if is_killed else output_of_rank(launcher_output(end), report, job)


def _time_of(report: Failure, end: RankEnd) -> float:
    reported_at = end.launcher.reported_at if end.launcher else None
    return report.at or reported_at or end.at or 0.0


def _reports(end: RankEnd, node: NodeEnds) -> list[Failure]:
    """Return the reports of a launcher, first to last: one per host if the launcher prefixes lines
    with the host. Ranks ended by SIGTERM are left out, unless SIGTERM ended all of them."""
    assert end.launcher
    names, report = names_of(node.job.nodes), end.launcher.reported
    if not report:
        return []
    first, *more = [_with_marked_rank(_with_node_and_rank(each, end, node, names), end, node) for each in (report, *end.launcher.by_host)]
    if not more or (first.node is not None and first.node not in {each.node for each in more}):
        return [first]  # the first failure is on a node whose own lines report nothing: all other reports came later
    ordered = sorted(more, key=lambda each: each.node != first.node)
    return [each for each in ordered if each.signal != _SIGTERM] or ordered


def _with_marked_rank(report: Failure, end: RankEnd, node: NodeEnds) -> Failure:
    """Return a report without a rank as one about the rank whose mark precedes an exception. The
    exit code is then 1, whatever signal followed."""
    reported_node = next((each for each in node.job.nodes if report.rank is None and each.index == report.node), None)
    if not reported_node:
        return report
    lines = output_of_rank(launcher_output(end), report, node.job)
    rank = marked_rank(lines, range(reported_node.first_rank, reported_node.first_rank + reported_node.slots))
    return report if rank is None else replace(report, rank=rank, exit_code=1, signal=0)


def _with_node_and_rank(report: Failure, end: RankEnd, node: NodeEnds, names: Mapping[str, int]) -> Failure:
    """Return a report with the index of its node, and with the rank of the reported pid."""
    assert end.launcher
    if report.rank is not None and report.rank >= sum(each.slots for each in node.job.nodes):  # no rank of this job
        report = replace(report, rank=None)
    report = replace(report, node=names.get(report.host)) if report.node is None else report
    if report.rank is not None or report.pid == end.pid:
        return report
    with_pid = [rank for rank in _child_ranks(end, node) if rank.pid == report.pid]
    return replace(report, rank=with_pid[0].rank) if len(with_pid) == 1 else report


def _child_ranks(launcher: RankEnd, node: NodeEnds) -> list[RankEnd]:
    """Return the ranks of a launcher whose processes ranklaunch saw, in the order of their ends."""
    return [each for each in node.ends if each.role == BELOW and each.parent == launcher.pid and each.pid is not None]


def _had_reported(end: RankEnd) -> bool:
    """True if a launcher had begun to report a failure before it was signalled, or if launchers of
    its kind announce that they end their ranks."""
    launcher = end.launcher
    assert launcher
    return _report_had_begun(end) or bool(launcher.says_failing and end.at_stop)


def _report_had_begun(end: RankEnd) -> bool:
    signalled_at = min((sent.at for sent in end.sent if sent.at is not None), default=float("inf"))
    begun = end.launcher.reported_at if end.launcher else None
    return begun is not None and begun < signalled_at


def launcher_output(end: RankEnd) -> str:
    """Return the output of a launcher: all of it, or the part up to the stop if the launcher was
    signalled before its report began."""
    return output_at_stop(end) if (end.sent or end.signal == _SIGKILL) and not _report_had_begun(end) else end.output or ""


def output_at_stop(end: RankEnd) -> str:
    """Return the output of a process up to the stop; all output if there was no stop."""
    return end.output or "" if not end.at_stop or end.at_stop.text is None else end.at_stop.text


# Lines of one rank in an output that several ranks share

_MARK = re.compile(r"\[rank([0-9]{1,7})\]: ")  # PyTorch's prefix of each line of an uncaught exception
# First lines of launchers' reports of an end: torchrun, DeepSpeed, srun (also if srun runs ranklaunch
# below MPICH), mpirun, msrun.
_REPORT_LINES = re.compile(
    r"^.*(?:failed \(exitcode: -?\d+\) local_rank: \d|closing signal SIGTERM)"
    r"|\[launch\.py:\d{1,5}:sigkill_handler\] |exits with return code = "
    r"|^srun: error: \S{1,300}: tasks? \d"
    r"|^(?:-{60,90}\n)?(?:Primary job  terminated normally, but|mpirun\S{0,20} (?:noticed|detected) that |MPI_ABORT was invoked on rank )"
    r"|\] Worker process \d{1,10} exit with exception\. Error code: ",
    re.MULTILINE,
)
_END_OF_BOX = re.compile(r"^={20,}\n", re.MULTILINE)
# Reports of launchers that a rank or a script started itself: pattern and text. Groups of a pattern:
# `code` (negative for a signal), or `signal`.
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
# Beginnings of lines of launchers that may report before the last lines of their ranks arrive.
_EARLY_REPORTER = ("srun: ", "slurmstepd")
_OWN_LINE = re.compile(r"\] \[(?:launch|runner)\.py:")  # DeepSpeed's own lines about the programs that it starts
_BY_EXCEPTION = (1, 143, 134)  # exit codes after an exception: Python's own, or a signal that came while the exception ended the rank


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
    """Return the lines of the reported rank's host up to the report. If the launcher does not prefix
    lines with the host, return the lines of all hosts.

    srun may report before the last lines of its ranks arrive, so its own lines are left out instead.
    A host that pdsh has lost reports nothing, so all its lines count.
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
    """Return the first rank in `ranks` with marked lines, that is, with an exception; None for none."""
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
    """Return the marks of other ranks if the user set the launcher to mark the lines of its ranks."""
    kept = job.kept
    return tuple(mark for number, mark in zip(kept.ranks, kept.marks) if mark and number != rank) if kept and rank is not None else ()


def before_report(text: str) -> str | None:
    """Return an output up to the first line of a launcher's report; None without a report.

    A boxed report before another report is skipped: it comes from a launcher that a rank started.
    """
    reports = [text.rfind("\n", 0, report.start()) + 1 for report in _REPORT_LINES.finditer(text)]
    if not reports:
        return None
    begin = max((box.end() for box in _END_OF_BOX.finditer(text, reports[0], reports[-1])), default=0)
    return text[begin : next(report for report in reports if report >= begin)]


# Last lines of an output, for people

_BEFORE = r"(?:\[rank ?[0-9]+\]:? ?)?"  # PyTorch's prefix
_MARKS = re.compile(rf"{_BEFORE}\s{{4,}}[~^][~^ ]*")  # carets below a source line, since Python 3.11
_HEAD = re.compile(rf"{_BEFORE}\s*Traceback \(most recent call last\):")
_FRAME = re.compile(rf'{_BEFORE}(\s*)File "([^"]*)", line [0-9]+')
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python[0-9.]+/|^<frozen ")
_INDENT = re.compile(rf"{_BEFORE}(\s*)")


def last_lines(text: str, most: int = LINES) -> tuple[str, ...]:
    """Return the last lines of an output, without empty lines. A redrawn line (a progress bar) is
    shown in its last state. A long traceback keeps its beginning and loses its frames in libraries."""
    drawn = [line.rstrip("\r").rpartition("\r")[2] for line in with_returns_told(text).replace("\r\n", "\n").split("\n")]
    lines = [line for line in drawn if line.strip()]
    plain = [line for line in lines if not _MARKS.fullmatch(line)]
    if len(plain) > most and any(map(_HEAD.match, plain)):
        plain = list(_without_libraries(plain))
    last = plain[-most:]
    head = next((i for i in range(len(plain) - 1, -1, -1) if _HEAD.match(plain[i])), -1)
    if 0 <= head < len(plain) - most and _continues_to_shown(plain[head + 1 :], len(last)):
        last = [plain[head], "  ...", *plain[-(most - 2) :]]
    return tuple(last)


def _continues_to_shown(rest: Sequence[str], most: int) -> bool:
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
