"""The values of ends.json: how each process of a node ended, and the facts of the job that a verdict needs besides.

Times are seconds since 1970 by node 0's clock. Texts are without secrets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ranklaunch.ends import records as recorded
from ranklaunch.ends.records import Record
from ranklaunch.fields import as_dict
from ranklaunch.verdict.blame import Suspect
from ranklaunch.verdict.model import Ending, Failure

SCHEMA = "ranklaunch.ends/1"
MOST_OTHERS = 256  # processes besides ranks and children whose records are kept
MOST_RECORDS = 64  # of one process
DIES_S = 10.0  # for a process to be gone that the kernel has killed and counted
_GIB = 1 << 30
BELOW, DAEMON = "below", "daemon"  # roles besides those of children: a rank that a launcher started; a killed carrier of ranks


@dataclass(frozen=True)
class Sent:
    """A signal that ranklaunch sent to a process. signal: its number. at: None where nobody noted the time."""

    signal: int
    at: float | None = None


@dataclass(frozen=True)
class Tail:
    """The last bytes of an output at some moment. text: None where the last bytes at the end of the process are the same. at: when the
    last of them came; None where nobody knows."""

    text: str | None
    at: float | None = None


@dataclass(frozen=True)
class Launcher:
    """A process that starts ranks, or did the work of several. says_failing: its output tells when it ends its ranks after a failure.
    own_pid: the pid that it writes of itself, 0 where that is not known. fails_as: exit code of the job if it fails; 0: its own. watched:
    how ranklaunch knew its ranks: "announced", "files", or "". expected: ranks that it was to start, where they are watched. reported:
    what its output says of the rank that failed first. reported_at: when that report began. ends_ranks: it said, or was seen, to end its
    ranks after a failure. failing: ranklaunch told the other nodes so. dismissed: ranklaunch killed it when its report was complete.
    by_host: what each host's lines report, where it puts the host's name before them (pdsh); () for one host."""

    says_failing: bool = False
    own_pid: int = 0
    fails_as: int = 0
    watched: str = ""
    expected: tuple[int, ...] = ()
    reported: Failure | None = None
    reported_at: float | None = None
    ends_ranks: bool = False
    failing: bool = False
    dismissed: bool = False
    by_host: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class RankEnd:
    """How one process ended. rank, local_rank: None for what is no rank. pid: None where the process was never seen. start: clock ticks
    after boot, as /proc has them, so that pid and start are one process for good. role: rank, launcher, service, step or experiment for a
    child of ranklaunch; below for a rank that a launcher started; daemon for a killed process that carried ranks of another node. parent:
    pid of the launcher that started it. status: wait status, None where nobody knows. exit_code: 128+N after signal N. signal: its number,
    0 for none. at: when the end was seen, None where it was not. sent: signals from ranklaunch, in order. by_itself: False if somebody told
    it to end before, None for a child, whose `sent` tells. surely: its launcher was stopped then, so it cannot have told it. launcher: None
    for what starts no ranks. output: its last output, at most 32 KiB; None if the job succeeded. at_stop: the same when it
    stopped to count, because the process was told to end. records: what the process wrote
    down of itself."""

    node: int
    rank: int | None
    local_rank: int | None
    pid: int | None
    start: int | None
    name: str
    role: str
    parent: int | None = None
    status: int | None = None
    exit_code: int | None = None
    signal: int = 0
    at: float | None = None
    sent: tuple[Sent, ...] = ()
    by_itself: bool | None = None
    surely: bool | None = None
    launcher: Launcher | None = None
    output: str | None = None
    at_stop: Tail | None = None
    records: tuple[Record, ...] = ()


@dataclass(frozen=True)
class OtherProcess:
    """A process with records that is no child of ranklaunch and no rank whose pid was known: the Python below a shell, a helper, a child of
    multiprocessing, a launcher that the program started. rank: number of the rank that its own variables name, None where they name none
    or where it is a launcher."""

    pid: int
    start: int
    rank: int | None
    records: tuple[Record, ...]


@dataclass(frozen=True)
class Stop:
    """The first stop request. signal: its number."""

    signal: int
    at: float


@dataclass(frozen=True)
class MemoryKills:
    """The kernel's count of processes killed for memory. kills: since the attempt began. peak, limit: bytes, 0 where the kernel does not
    say. counted: False where it counts nothing. seen: when the count was read, and how many it was."""

    kills: int = 0
    peak: int = 0
    limit: int = 0
    counted: bool = True
    seen: tuple[tuple[float, int], ...] = ()

    def lately(self, at: float) -> int:
        """Return the kills without those of processes that had died well before `at`."""
        return self.kills - max((kills for seen, kills in self.seen if seen < at - DIES_S), default=0)

    @property
    def described(self) -> str:
        """The count for the end of a sentence."""
        if not self.limit:
            return f" ({self.kills} killed)"
        if not self.peak:  # version 2 of control groups has it since Linux 5.19
            return f" ({self.kills} killed; {self.limit / _GIB:.2f} GiB allowed)"
        return f" ({self.kills} killed; at most {self.peak / _GIB:.2f} GiB in use of {self.limit / _GIB:.2f} GiB allowed)"


@dataclass(frozen=True)
class NodeFacts:
    """A node of the job. slots: ranks on it."""

    index: int
    host: str
    slots: int
    first_rank: int


@dataclass(frozen=True)
class Outputs:
    """Where ranks of a launcher write. ranks: None for what is no rank. marks: what the launcher puts before each line, in the
    same order."""

    ranks: tuple[int | None, ...]
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class RestartSettings:
    """most: restarts without progress. never: exit codes after which there is none. restarted_outside: the platform starts the job
    again."""

    most: int
    never: tuple[int, ...] = ()
    restarted_outside: bool = False


@dataclass(frozen=True)
class JobFacts:
    """What the ends belong to. run: id of the job, "" where this node never learned it. attempt: from 1. restart: how often ranks were
    started again in place before. runs: ranks, program (one on each node) or nodes (each played by a process). node_index: this node. idle:
    nodes without part in the job. program: its path or module, and its arguments. module: whether it is a module. outputs: of ranks below a
    launcher, where ranklaunch shows them. kept: the same, where the user keeps them in files. restarts: None where there are none. hang:
    what is done when the job hangs."""

    name: str
    run: str
    attempt: int
    restart: int
    platform: str
    method: str
    runs: str
    accelerator: str
    node_index: int
    nodes: tuple[NodeFacts, ...]
    program: tuple[str, ...]
    module: bool = False
    idle: tuple[NodeFacts, ...] = ()
    outputs: Outputs | None = None
    kept: Outputs | None = None
    restarts: RestartSettings | None = None
    hang: str = "observe"


@dataclass(frozen=True)
class NodeEnds:
    """All ends of one node in one round. stop: None if nobody asked. state: what this node told node 0 for its decision about a restart.
    lost: what the start barrier (the muster) says of nodes that never reported. ends: children in the order of their ends, and then
    the ranks below them. others: further processes that wrote down something of themselves."""

    job: JobFacts
    ending: Ending
    stop: Stop | None
    memory: MemoryKills
    state: Mapping[str, Any] = field(default_factory=dict)
    lost: tuple[Suspect, ...] = ()
    ends: tuple[RankEnd, ...] = ()
    others: tuple[OtherProcess, ...] = ()


def as_json(node: NodeEnds) -> dict[str, Any]:
    """The content of ends.json (schema ranklaunch.ends/1): keys are only ever added."""
    return {"schema": SCHEMA, **as_dict(node)}


def with_records(node: NodeEnds, records: Mapping[tuple[int, int], Sequence[Record]]) -> NodeEnds:
    """Attach to each end the records of its process, and put those of other processes into `others`.

    A rank that exited before ranklaunch saw it gets the records of its head. Processes that recorded an exception or an exit come first
    in `others`. records: by pid and start, in the order in which they were written, without secrets.
    """
    remaining = {process: tuple(written[:MOST_RECORDS]) for process, written in records.items()}
    heads = _heads(remaining.keys() - {(end.pid or 0, end.start or 0) for end in node.ends}, remaining)
    ends = []
    for end in node.ends:
        process = heads.get(end.rank) if end.pid is None else (end.pid, end.start or 0)
        ends.append(replace(end, records=remaining.pop(process, ())) if process else end)
    telling = sorted(remaining.items(), key=lambda item: not any(each.kind in _OF_ENDS for each in item[1]))
    others = [OtherProcess(pid, start, _rank_of(written), written) for (pid, start), written in telling[:MOST_OTHERS]]
    return replace(node, ends=tuple(ends), others=tuple(others))


def _heads(processes: Iterable[tuple[int, int]], records: Mapping[tuple[int, int], Sequence[Record]]) -> dict[int | None, tuple[int, int]]:
    """Return the head of each rank that a launcher placed, by rank; leave out ranks with several."""
    by_rank: dict[int | None, list[tuple[int, int]]] = {}
    for process in processes:
        if any(each.kind == recorded.RANK and each.launcher for each in records[process]):
            by_rank.setdefault(_rank_of(records[process]), []).append(process)
    return {rank: several[0] for rank, several in by_rank.items() if len(several) == 1 and rank is not None}


_OF_ENDS = (recorded.EXCEPTION, recorded.EXIT)


def _rank_of(written: Sequence[Record]) -> int | None:
    if any(each.kind == recorded.LAUNCHER for each in written):
        return None
    return next((recorded.rank_number(each.variables) for each in written if each.variables), None)
