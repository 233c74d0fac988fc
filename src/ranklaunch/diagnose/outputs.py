"""Lines of one rank in an output that several ranks and their launcher write. Pure."""

from __future__ import annotations

import re

from ranklaunch.ends.host_lines import names_of, of_hosts
from ranklaunch.ends.model import JobFacts
from ranklaunch.verdict.model import Failure

_MARK = re.compile(r"\[rank([0-9]{1,7})\]: ")  # of PyTorch, before each line of an uncaught exception
# First lines of what launchers report of an end: torchrun, DeepSpeed, srun (also of our own program, below MPICH), mpirun, msrun.
_REPORTS = re.compile(
    r"^.*(?:failed \(exitcode: -?\d+\) local_rank: \d|closing signal SIGTERM)"
    r"|\[launch\.py:\d{1,5}:sigkill_handler\] |exits with return code = "
    r"|^srun: error: \S{1,300}: tasks? \d"
    r"|^(?:-{60,90}\n)?(?:Primary job  terminated normally, but|mpirun\S{0,20} (?:noticed|detected) that |MPI_ABORT was invoked on rank )"
    r"|\] Worker process \d{1,10} exit with exception\. Error code: ",
    re.MULTILINE,
)
_END_OF_BOX = re.compile(r"^={20,}\n", re.MULTILINE)
# Reports of launchers that a rank, or a script, has started itself, and what they say. Groups: code, negative for a signal; or signal.
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


def of_rank(text: str, report: Failure, job: JobFacts) -> str:
    """Return what the rank that a launcher reports may have written into the launcher's output, up to the report.

    Lines of other hosts and lines that are marked as another rank's are left out. srun may report before the last lines have come. A host
    that pdsh has lost reports nothing, so all its lines count.
    """
    names = [name for name, node in names_of(job.nodes).items() if node == report.node]
    of_host = "".join(of_hosts(text, names).values())
    before = before_report(of_host or text)
    if before is None and any(f": {name}: ssh exited with " in text for name in names):
        before = of_host
    elif f"\n{_EARLY_REPORTER[0]}error" in f"\n{text}":
        before = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(_EARLY_REPORTER))
    others = _others(report.rank, job)
    lines = [line for line in (before or "").splitlines(keepends=True) if not _OWN_LINE.search(line) and not line.startswith(others)]
    return "".join(line for line in lines if _may_be_of(report, line))


def inner_report(text: str) -> str:
    """Return what the last launcher that a program started itself reports of a rank, "" for nothing."""
    found = [(match.end(), match.groupdict(), says) for pattern, says in _INNER for match in re.finditer(pattern, text)]
    if not found:
        return ""
    _, groups, says = max(found, key=lambda each: each[0])
    code = int(groups.get("code") or -int(groups["signal"]))
    return f"{says.format(**groups)} {f'exited with code {code}' if code >= 0 else f'was killed by signal {-code}'}"


def marked_rank(text: str, ranks: range) -> int | None:
    """Return the first of some ranks that has marked lines as its own: an exception was ending it."""
    numbers = (int(mark[1]) for mark in map(_MARK.match, text.splitlines()) if mark)
    return next((number for number in numbers if number in ranks), None)


def _may_be_of(report: Failure, line: str) -> bool:
    """False for a line that is marked as another rank's; for every marked line if the rank ended otherwise than by an exception."""
    mark = _MARK.match(line)
    if not mark:
        return True
    return int(mark[1]) == report.rank if report.rank is not None else report.exit_code in _BY_EXCEPTION


def _others(rank: int | None, job: JobFacts) -> tuple[str, ...]:
    """Return the marks of other ranks, where the user has the launcher mark the lines of its ranks."""
    kept = job.kept
    return tuple(mark for number, mark in zip(kept.ranks, kept.marks) if mark and number != rank) if kept and rank is not None else ()


def before_report(text: str) -> str | None:
    """Return an output up to the line in which a launcher reports an end; None without a report. A report that ends in a box, with
    another report behind it, is of a launcher that a rank has started."""
    reports = [text.rfind("\n", 0, report.start()) + 1 for report in _REPORTS.finditer(text)]
    if not reports:
        return None
    begin = max((box.end() for box in _END_OF_BOX.finditer(text, reports[0], reports[-1])), default=0)
    return text[begin : next(report for report in reports if report >= begin)]
