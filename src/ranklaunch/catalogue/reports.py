"""What a launcher whose ranks share its output says of one that has failed, and what had been written before that."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection

from ranklaunch.catalogue.scripts import by_torchrun
from ranklaunch.catalogue.tracebacks import HOOKED

_TORCHRUN_ENDS = "closing signal SIGTERM"
_TORCHRUN_TOLD = r"SignalException: Process \d{1,10} got signal: \d{1,2}\n"
_LOGGED_BY_LAUNCHERS = (  # torchrun's formats, of several versions, and DeepSpeed's
    r"^(?:(?:[EWI]\d{4} \S{1,20} +\d{1,10} |\[\d{4}-.{1,30}\] |[A-Z]{4,8}:)torch[./]distributed[./](?:run|elastic|launcher)\b|"
    r"\[W\d{4} \S{1,20} \w{1,30}\.cpp:\d{1,5}\] \[c10d\] The hostname of the client socket cannot be retrieved|"
    r"\[\d{4}-.{1,30}\] \[(?:INFO|WARNING)\] \[(?:runner|launch|real_accelerator)\.py:).*\n?"
)
_BY_SRUN = r"^srun: error: \S{1,300}: tasks? \d"
_BY_MPIRUN = r"^(?:-{60,90}\n)?(?:Primary job  terminated normally, but|mpirun (?:noticed|detected) that |MPI_ABORT was invoked on rank )"
_BY_MSRUN = r"\] Worker process \d{1,10} exit with exception\. Error code: "
_ENDS = (  # the second also of our own program, below MPICH
    rf"\[launch\.py:\d{{1,5}}:sigkill_handler\] |exits with return code = |{_BY_SRUN}|{_BY_MPIRUN}|{_BY_MSRUN}"
)
# Of launch.py on this host; after the last of them it has ended.
_BY_LAUNCH_PY = (
    r"^\[\d{4}-.{1,30}\] \[\w{4,8}\] \[launch\.py:\d{1,5}:sigkill_handler\] "
    r"(?:Killing subprocess (?P<pid>\d{1,10})$|(?P<last>Main |\[)).*\n?"
)
_OF_A_RANK = re.compile(HOOKED)
LOST_HOST = b"pdsh@"  # the beginning of what pdsh says of a host that it has lost
TORCHRUN, LAUNCH_PY = "torchrun", "launch.py"  # launchers that write no other's words; ranks may have started more of them


def before_report(text: str, host: str = "", rank: int | None = None, launcher: str = "", pids: Collection[int] = ()) -> str:
    """What ranks had written when their launcher said that one had failed; "" where it did not. host: whose lines these are, where pdsh has
    put the name of a host before each, all of them where it only says that it has lost that host; rank: which it was, so that lines which
    are marked as another's are left out. launcher: TORCHRUN or LAUNCH_PY where it is known to be that; pids: of the ranks of the latter."""
    if launcher:
        return _of(rank, _before_torchruns(text) if launcher == TORCHRUN else _before_launch_pys(text, pids))
    said = of_host(text, host) if host else ""
    lost = host and re.search(rf"^pdsh@\S{{1,300}}: {re.escape(host)}: ssh exited with .*", text, re.MULTILINE)
    if lost and not said:
        return f"{lost[0]}\n"
    return _of(rank, before_end(said or text) or (said if lost else "") or _before_torchruns(text))


def beside_report(text: str, rank: int | None = None) -> str:
    """What ranks have written at all, where srun has told of one: it may do so while what that wrote is still on its way."""
    if not re.search(_BY_SRUN, text, re.MULTILINE):
        return ""
    return _of(rank, "".join(line for line in text.splitlines(keepends=True) if not line.startswith("srun: ")))


def tells_of_host(text: str, name: str) -> bool:
    """Whether pdsh has put this name before lines, or says it of a host itself."""
    return bool(re.search(rf"^(?:pdsh@\S{{1,300}}: )?{re.escape(name)}: ", text, re.MULTILINE))


def of_host(text: str, name: str) -> str:
    """Its lines, without the name before each."""
    return "".join(line[len(name) + 2 :] for line in text.splitlines(keepends=True) if line.startswith(f"{name}: "))


def of_hosts(text: str, hosts: Collection[str]) -> dict[str, str]:
    """The lines of each host, where pdsh has put its name before them."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines(keepends=True):
        host = line.partition(": ")[0]
        if host in hosts:
            found.setdefault(host, []).append(line)
    return {host: "".join(lines) for host, lines in found.items()}


def of_marked_ranks(text: str) -> dict[int, str]:
    """The lines of each rank that PyTorch has marked as its own, in the order of the first."""
    found: dict[int, list[str]] = {}
    for line in text.splitlines(keepends=True):
        mark = _OF_A_RANK.match(line)
        if mark:
            found.setdefault(int(mark[1]), []).append(line)
    return {rank: "".join(lines) for rank, lines in found.items()}


def without_marked_ranks(text: str) -> str:
    """Who has ended otherwise than by an exception has written none of the lines that PyTorch marks."""
    return "".join(line for line in text.splitlines(keepends=True) if not _OF_A_RANK.match(line))


def before_end(text: str) -> str:
    """Up to the line in which a launcher tells that a rank has ended; "" where none does."""
    end = re.search(_ENDS, text, re.MULTILINE)
    return text[: text.rfind("\n", 0, end.start()) + 1] if end else ""


def without_launchers(text: str) -> str:
    """Without what these have logged themselves."""
    return re.sub(_LOGGED_BY_LAUNCHERS, "", text, flags=re.MULTILINE)


def without_teed(text: str, marks: tuple[str, ...]) -> str:
    """Without the lines that torchrun has marked as those of others of its ranks."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(marks))


def _before_torchruns(text: str) -> str:
    """Return what was written before the last report of a torchrun: since its report of an earlier round, the report of a torchrun that a
    rank had started, or a stop."""
    reports = by_torchrun(text)
    if not reports:
        return ""
    said = text[max((each.end for each in reports[:-1]), default=0) : reports[-1].begin]
    *lines, last = f"{said} ".splitlines(keepends=True)
    found = re.search(r" \d{1,10} (?=torch/)", last)  # its own pid, which older ones do not write
    itself = found[0] if found else ""
    before = "".join(itertools.takewhile(lambda line: not (_TORCHRUN_ENDS in line and itself in line), lines))
    return before[max((each.end() for each in re.finditer(_TORCHRUN_TOLD, before)), default=0) :]


def _before_launch_pys(text: str, pids: Collection[int]) -> str:
    """Since another one had ended, which a rank had started."""
    told = [*re.finditer(_BY_LAUNCH_PY, text, re.MULTILINE)]
    own = next((each.start() for each in told if each["pid"] and int(each["pid"]) in pids), -1)
    if own < 0:
        later = max((each.end() for each in told[:-1] if each["last"]), default=0)
        own = next((each.start() for each in told if each.start() >= later), 0)
    return text[max((each.end() for each in told if each["last"] and each.end() <= own), default=0) : own]


def _of(rank: int | None, said: str) -> str:
    return said if rank is None else "".join(line for line in said.splitlines(keepends=True) if _may_be_of(rank, line))


def _may_be_of(rank: int, line: str) -> bool:
    found = _OF_A_RANK.match(line)
    return not found or int(found[1]) == rank
