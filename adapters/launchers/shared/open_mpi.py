"""Facts about Open MPI: options, CPUs available to its ranks, transports that the installation excludes, and reports of a failure."""

from __future__ import annotations

import math
import re

from ranklaunch.adapters.launchers.shared.base import failed_with
from ranklaunch.adapters.launchers.shared.user_options import Parser
from ranklaunch.env import parse
from ranklaunch.files import Files, folder_of, join, text_of
from ranklaunch.verdict.model import Failure

CONFIG = "openmpi-mca-params.conf"

_EXITED = r"Process name: \[[^\]]*\]?,(?P<rank>[0-9]+)\]\s+Exit code:\s+(?P<code>[0-9]+)"
# MPI_Abort, as called by mpi4py after an exception (python -m mpi4py); text of Open MPI 4, and of 5.
_ABORTED = (
    r"MPI_ABORT was invoked on rank (?P<rank>[0-9]{1,9}) in communicator MPI_COMM_WORLD\n(?:\s+Proc: .*\n)?\s*"
    r"(?:with errorcode|Errorcode:) (?P<code>-?[0-9]{1,9})"
)
# Invalid MPI call of a rank: Open MPI ends the job with the number of the error class (mpi.h of Open MPI).
_FATAL = r"\*\*\* reported by process \[[0-9]+,(?P<rank>[0-9]{1,9})\](?:.*\n){1,3}?.*\*\*\* MPI_ERR_(?P<name>[A-Z]+): "
_CLASSES = (
    "BUFFER", "COUNT", "TYPE", "TAG", "COMM", "RANK", "REQUEST", "ROOT", "GROUP", "OP", "TOPOLOGY", "DIMS", "ARG", "UNKNOWN", "TRUNCATE",
    "OTHER", "INTERN",
)  # fmt: skip
_KILLED = r"noticed that process rank (?P<rank>[0-9]+) with PID (?P<pid>[0-9]+) on node \S+ exited on\s+signal (?P<sig>[0-9]+)"
# Exit of a rank before MPI_Finalize, also with 0: mpirun then exits with 1.
_IMPROPER = r"has exited due to process rank (?P<rank>[0-9]{1,9}) with PID [0-9]+ on\s+node \S+ exiting improperly"

# Options of mpirun (Open MPI 4.1 and 5.0) without dashes (one or two are accepted), by the number of words that follow.
_OPTIONS = {
    2: "mca gmca omca prtemca pmixmca gpmixmca gprtemca",
    1: """
        H N am app bind-to c cartofile cf cpu-list cpu-set cpus-per-proc cpus-per-rank debugger default-hostfile display dvm-uri hnp
        host hostfile launch-agent machinefile map-by max-restarts max-vm-size n np npernode npersocket ompi-server output
        output-directory output-filename path personality ppr prefix preload-files rank-by rankfile report-events report-pid
        report-uri rf runtime-options stdin timeout tune wd wdir x xml-file xterm
    """,
    0: """
        allow-run-as-root bind-to-core bind-to-socket bycore bynode byslot continuous debug debug-daemons debug-daemons-file
        disable-recovery display-allocation display-devel-allocation display-devel-map display-diffable-map display-map display-topo
        do-not-launch do-not-resolve enable-recovery get-stack-traces index-argv-by-rank leave-session-attached
        merge-stderr-to-stdout nolocal nooversubscribe noprefix novm output-proctable oversubscribe pernode q quiet report-bindings
        report-child-jobs-separately report-state-on-timeout show-progress tag-output timestamp-output tv use-hwthread-cpus
        use-regexp v verbose xml
    """,
}
_FOLLOWING = {name: count for count, names in _OPTIONS.items() for name in names.split()}


class _Parser(Parser):
    def spelled(self, name: str) -> str:
        """Return the name with one dash, and -np for every spelling of -np that Open MPI accepts."""
        return re.sub("^-(np?|c)$", "-np", re.sub("^--", "-", name))

    def following(self, name: str) -> int | None:
        return _FOLLOWING.get(name.lstrip("-"))


OPTIONS = _Parser()


# First message of mpirun about a failure. mpirun then ends its other ranks, which may fail meanwhile; the last message of mpirun names
# the first failed rank.
_ENDED = "Primary job  terminated normally, but"
REPORTS = rf"{_ENDED}|MPI_ABORT was invoked on rank|\*\*\* reported by process \["


def cpus(files: Files) -> int | None:
    """Return the number of CPUs available to this container: the smaller of the affinity mask and the cgroup quota (version 2 or 1).

    None if neither can be read.
    """
    allowed = re.search(r"^Cpus_allowed_list:\s*([0-9,-]+)$", text_of(files, "/proc/self/status"), re.MULTILINE)
    counts = [len(parse.cores(allowed[1]))] if allowed else []
    words = text_of(files, "/sys/fs/cgroup/cpu.max").split()
    words = words or [text_of(files, f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if len(words) == 2 and all(word.isdecimal() for word in words):  # quota and period in microseconds; other words mean no limit
        counts.append(math.ceil(int(words[0]) / int(words[1])))
    return min(counts, default=None)


def excluded(files: Files, mpirun: str) -> list[str]:
    """Return the transports (btl) that the installation's configuration excludes. A list from the command line would replace this one."""
    prefix = folder_of(folder_of(mpirun))
    for folder in ("/etc/openmpi", "/etc", *((f"{prefix}/etc", f"{prefix}/etc/openmpi") if prefix else ())):
        lists = re.findall(r"^\s*btl\s*=\s*\^([\w,]+)", text_of(files, join(folder, CONFIG)), re.MULTILINE)
        if lists:
            return sorted(filter(None, lists[-1].split(",")))
    return []


def report(text: str, pid: int = 0) -> Failure | None:
    """Return the first failed rank, from mpirun's output. The exit code is the rank's own, or its code for MPI_Abort.

    A rank may call MPI_Abort because another rank is lost: mpirun then reports the exit of the lost rank first.
    """
    aborted = re.search(_ABORTED, text)
    ended = _ended(text)
    if aborted and not (ended and 0 <= text.find(_ENDED) < aborted.start()):
        return failed_with(int(aborted["code"]) & 255 or 1, int(aborted["rank"]))
    if ended:
        return ended
    improper = re.search(_IMPROPER, text)
    if improper:
        return failed_with(1, int(improper["rank"]))
    fatal = re.search(_FATAL, text)
    return failed_with(_CLASSES.index(fatal["name"]) + 1, int(fatal["rank"])) if fatal and fatal["name"] in _CLASSES else None


def _ended(tail: str) -> Failure | None:
    """Return the failure of the rank that exited first, by mpirun's summary."""
    killed = _last(_KILLED, tail)
    if killed:
        return failed_with(-int(killed["sig"]), int(killed["rank"]), int(killed["pid"]) or None)
    exited = _last(_EXITED, tail)
    return failed_with(int(exited["code"]), int(exited["rank"])) if exited else None


def _last(pattern: str, text: str) -> re.Match[str] | None:
    return next(reversed([*re.finditer(pattern, text)]), None)
