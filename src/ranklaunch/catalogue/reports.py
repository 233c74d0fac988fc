"""What a launcher whose ranks share its output says of one that has failed, and what had been written before that."""

from __future__ import annotations

import re
from collections.abc import Collection

from ranklaunch.catalogue.tracebacks import HOOKED

_BY_TORCHRUN = r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+) \(pid: (?P<pid>\d+)\)"
# Of Open MPI 4 and 5.
_BY_MPIRUN = (
    r"Process name: \[[^\]\n]{1,300}\]?,(?P<rank>\d+)\]\s+Exit code:\s+(?P<code>\d+)"
    r"|noticed that process rank (?P<killed>\d+) with PID \d+ on node (?P<node>\S+) exited on\s+signal (?P<signal>\d+)"
)
# Of MPICH, whose exit code 9 may also be that of ranks which it has killed.
_BY_MPIEXEC = r"=   PID (?P<pid>\d+) RUNNING AT (?P<node>\S+)\n=   EXIT CODE: (?P<code>\d+)\n"
_ITS_WORD = r"^YOUR APPLICATION TERMINATED WITH THE EXIT STRING: (.{1,80})"
_TORCHRUN_ENDS = "closing signal SIGTERM"
_BY_SRUN = r"^srun: error: \S{1,300}: tasks? \d"
_ENDS = (
    rf"\[launch\.py:\d{{1,5}}:sigkill_handler\] |exits with return code = |{_BY_SRUN}"  # the second also of our own program, below MPICH
)
_OF_A_RANK = re.compile(HOOKED)


def reported(text: str) -> str:
    """What a launcher that the program itself has started says of its failure, with restarts of the last one: which of its processes it
    was, and how that ended."""
    matches = [*re.finditer(_BY_TORCHRUN, text)]
    if not matches:
        return _reported_by_mpirun(text)
    found = matches[-1]
    code = int(found["code"])
    how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    return f"its torchrun says that local rank {found['rank']} (pid {found['pid']}) {how}"


def _reported_by_mpirun(text: str) -> str:
    found = re.search(_BY_MPIRUN, text)
    if not found:
        return _reported_by_mpiexec(text)
    if found["signal"]:
        return f"its mpirun says that rank {found['killed']} on {found['node']} was killed by signal {found['signal']}"
    return f"its mpirun says that rank {found['rank']} exited with code {found['code']}"


def _reported_by_mpiexec(text: str) -> str:
    found, word = re.search(_BY_MPIEXEC, text), re.search(_ITS_WORD, text, re.MULTILINE)
    if not found:
        return ""
    return f"its mpiexec says of pid {found['pid']} on {found['node']}: {word[1] if word else 'exit code ' + found['code']}"


def before_report(text: str, host: str = "", rank: int | None = None) -> str:
    """What ranks had written when their launcher said that one had failed; "" where it did not. host: whose lines these are, where pdsh has
    put the name of a host before each; rank: which it was, so that lines which are marked as another's are left out."""
    of_host = "".join(line[len(host) + 2 :] for line in text.splitlines(keepends=True) if line.startswith(f"{host}: ")) if host else ""
    return _of(rank, _before_end(of_host or text) or _before_torchruns(text))


def beside_report(text: str, rank: int | None = None) -> str:
    """What ranks have written at all, where srun has told of one: it may do so while what that wrote is still on its way."""
    if not re.search(_BY_SRUN, text, re.MULTILINE):
        return ""
    return _of(rank, "".join(line for line in text.splitlines(keepends=True) if not line.startswith("srun: ")))


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


def _before_end(text: str) -> str:
    end = re.search(_ENDS, text, re.MULTILINE)
    return text[: text.rfind("\n", 0, end.start()) + 1] if end else ""


def _before_torchruns(text: str) -> str:
    """With restarts it had said so before: from that on."""
    reports = [*re.finditer(_BY_TORCHRUN, text)]
    if not reports:
        return ""
    said = text[reports[-2].end() if len(reports) > 1 else 0 : reports[-1].start()].partition(_TORCHRUN_ENDS)[0]
    return said[: said.rfind("\n") + 1]


def _of(rank: int | None, said: str) -> str:
    return said if rank is None else "".join(line for line in said.splitlines(keepends=True) if _may_be_of(rank, line))


def _may_be_of(rank: int, line: str) -> bool:
    found = _OF_A_RANK.match(line)
    return not found or int(found[1]) == rank
