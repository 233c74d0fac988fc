"""Values of ends.json: the end of each process of a node, its own records (ranklaunch.rankside), and further facts of the
job for a verdict.

Times are seconds since 1970 by node 0's clock. Texts are without secrets.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

from ranklaunch import errors
from ranklaunch.fields import as_dict, defaults, from_dict, names
from ranklaunch.redact import redact
from ranklaunch.verdict.blame import Suspect
from ranklaunch.verdict.model import Ending, Failure

# Records. Anybody who can write into the folder may have written such a file. So the content is
# checked field by field, bounded, and believed only together with the kernel's facts about the
# process. No record proves nothing: `python -I`, a crash in C, SIGKILL and os._exit leave none.

RECORD_SCHEMA = "ranklaunch.record/1"
RANK, LAUNCHER, EXCEPTION, EXIT = "rank", "launcher", "exception", "exit"  # kinds of records
MOST_RECORD_FILES, MOST_RECORD_BYTES = 4096, 64 * 1024  # of a node's folder; of one file
MOST_TEXT = 8192  # characters of one text
MOST_ITEMS = 64  # of a list or a mapping
_LATEST = 1e12  # seconds
# Variables that hold the number of a rank in the whole job, the most reliable first.
RANK_NUMBERS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK_ID", "MS_NODE_ID", "JAX_PROCESS_ID")
MOST_RANK_DIGITS = 7
WHERE = ("main", "thread", "process")
LINKS = ("", "cause", "context", "group")
_WORD = re.compile(r"[\w.-]{0,64}")  # name of a launcher
_HOST = re.compile(r"[\w.-]{1,255}")
_NAME = re.compile(r"(rank|launcher|exception|exit)-([0-9]{1,7})-([0-9]{1,10})-([0-9]{1,19})(?:-([0-9]{1,2}))?\.json")


@dataclass(frozen=True)
class Process:
    """pid and start (clock ticks since boot) are one process for good. argv: () where it was not recorded."""

    pid: int
    start: int
    argv: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[int, int]:
        return self.pid, self.start


@dataclass(frozen=True)
class Frame:
    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Raised:
    """One exception of a chain. link: "" for the uncaught one; cause, context or group for the ones behind. frames: of the
    user's code, the innermost last. library: the last frame, if a library's."""

    type: str
    message: str
    link: str
    frames: tuple[Frame, ...] = ()
    library: Frame | None = None


@dataclass(frozen=True)
class Record:
    """Statement of one process about itself at one moment. kind: rank, launcher, exception or exit. at: seconds since 1970 by the host's
    clock. monotonic: seconds by the host's monotonic clock. argv: of a rank or launcher. variables: rank variables at exec, of a rank.
    top: the topmost process with equal variables, of a rank; for a launcher, the top of the rank above. within: of a rank started below
    another rank or below the program, the top of this outer one. parent: of the top, or of the launcher. launcher: name of a launcher;
    for a rank, its starter: ranklaunch, a launcher, or "" for neither. where: main, thread, or process (a child of multiprocessing), of
    an exception or exit. thread: name of the raising thread. number: of an exception, from 1 in each process. signal: number of the
    signal in whose handler the exception was raised; None for none. chain: the uncaught exception, then the exceptions behind; of an
    exit, the exception in handling. code: exit code. text: argument of sys.exit."""

    kind: str
    node: int
    host: str
    pid: int
    start: int
    at: float
    monotonic: float
    argv: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    top: Process | None = None
    within: Process | None = None
    parent: Process | None = None
    launcher: str = ""
    where: str = ""
    thread: str = ""
    number: int = 0
    signal: int | None = None
    chain: tuple[Raised, ...] = ()
    code: int = 0
    text: str = ""

    @property
    def process(self) -> tuple[int, int]:
        return self.pid, self.start

    def as_json(self) -> dict[str, Any]:
        """Leave out fields that have their default, but for the code of an exit."""
        values = _without_defaults(self)
        return {**values, "code": self.code} if self.kind == EXIT else values


def kind_of_file(name: str) -> str:
    """Return the kind of record that a file of this name holds, "" for a name that no record has."""
    named = _NAME.fullmatch(name)
    return named[1] if named else ""


def process_of_file(name: str) -> tuple[int, int] | None:
    """Return pid and start of the process whose record a file of this name holds; None for a name that no record has."""
    named = _NAME.fullmatch(name)
    return (int(named[3]), int(named[4])) if named else None


def record_order(record: Record) -> tuple[float, int, int]:
    """Sort key: the time at which a record was written."""
    return record.monotonic, record.pid, record.number


def parse_record(name: str, data: bytes) -> Record | None:
    """Return the record in a file, None if the content is no record or belongs to another process than the file name says."""
    named = _NAME.fullmatch(name)
    if not named or len(data) > MOST_RECORD_BYTES:
        return None
    try:
        value = json.loads(data)
        return _record(value) if _is_of(value, named) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _is_of(value: Any, named: re.Match[str]) -> bool:
    kind, node, pid, start = named.group(1, 2, 3, 4)
    expected = (RECORD_SCHEMA, kind, int(node), int(pid), int(start))
    return isinstance(value, dict) and (value["schema"], value["record"], value["node"], value["pid"], value["start"]) == expected


# Keys of a file by the fields of Record, where they differ, and the fields of each kind. Those in _MAY_BE_NULL need not be there.
_KEYS = {"kind": "record", "at": "time", "where": "from"}
_KEYS_OF = {LAUNCHER: {"launcher": "name"}, EXIT: {"chain": "handling"}}
_COMMON = ("kind", "node", "host", "pid", "start", "at", "monotonic")
_FIELDS = {
    RANK: ("argv", "variables", "top", "within", "parent", "launcher"),
    LAUNCHER: ("argv", "top", "parent", "launcher"),
    EXCEPTION: ("where", "thread", "number", "signal", "chain", "top"),
    EXIT: ("where", "code", "text", "chain"),
}
_MAY_BE_NULL = ("top", "within", "signal")


def _record(value: Mapping[str, Any]) -> Record:
    kind = value["record"]
    fields = {}
    for name in (*_COMMON, *_FIELDS[kind]):
        key = _KEYS_OF.get(kind, {}).get(name, _KEYS.get(name, name))
        fields[name] = _bounded(value.get(key) if name in _MAY_BE_NULL else value[key])
    if kind == RANK:
        fields["variables"] = [*dict(fields["variables"]).items()]
    host = fields["host"] if isinstance(fields["host"], str) and _HOST.fullmatch(fields["host"]) else ""  # an odd name says nothing
    record = from_dict(Record, {**fields, "host": host, "chain": fields.get("chain") or []})
    fits = record.where in WHERE or "where" not in fields
    fits = fits and all(raised.link in LINKS for raised in record.chain) and max(record.at, record.monotonic) < _LATEST
    if not fits or not _WORD.fullmatch(record.launcher):
        raise ValueError(kind)
    return replace(record, at=float(record.at), monotonic=float(record.monotonic))


def _bounded(value: Any) -> Any:
    """Cut long texts and lists. Raises ValueError for a number that none of ours can be."""
    if isinstance(value, str):
        return value[:MOST_TEXT]
    if isinstance(value, list):
        return [_bounded(each) for each in value[:MOST_ITEMS]]
    if isinstance(value, dict):
        return {name[:MOST_TEXT]: _bounded(each) for name, each in [*value.items()][:MOST_ITEMS]}
    if value is not None and not 0 <= value < 1 << 62:
        raise ValueError(value)
    return value


# What a record says


def rank_number(variables: Iterable[tuple[str, str]]) -> int | None:
    """Return the number of the rank that a process with these variables (name, value) belongs to; None where none says one."""
    values = dict(variables)
    for name in RANK_NUMBERS:
        value = values.get(name, "")
        if value.isascii() and value.isdigit() and len(value) <= MOST_RANK_DIGITS:
            return int(value)
    return None


def program_of(argv: Sequence[str]) -> str:
    """Return the script or module that a command line of Python runs; the command itself where it runs none."""
    words = iter(argv[1:])
    for word in words:
        if word in ("-W", "-X"):
            next(words, "")
        elif re.fullmatch("-[A-Za-z]{0,8}m", word):
            return next(words, "")
        elif re.fullmatch("-[A-Za-z]{0,8}c", word) or word == "-":
            break
        elif not word.startswith("-"):
            return word
    return argv[0] if argv else ""


# Records without secrets, and as JSON


def record_without_secrets(record: Record) -> Record:
    """Return a record without secrets: ranks hide them with plainer rules, and others may have written the file."""
    return replace(
        record, argv=redact.argv(record.argv),
        variables=tuple(redact.environment(dict(record.variables)).items()),
        parent=replace(record.parent, argv=redact.argv(record.parent.argv)) if record.parent else None,
        thread=_hidden(record.thread), chain=_hide(record.chain), text=_hidden(record.text),
    )  # fmt: skip


def _hide(value: Any) -> Any:
    """Hide secrets in all texts of an exception."""
    if isinstance(value, tuple):
        return tuple(map(_hide, value))
    if is_dataclass(value):
        return replace(value, **{name: _hide(getattr(value, name)) for name in names(type(value))})  # type: ignore[type-var]
    return _hidden(value) if isinstance(value, str) else value


@functools.lru_cache(maxsize=1024)  # ranks of one program have the same frames
def _hidden(text: str) -> str:
    return "\n".join(errors.quoted(text.split("\n"))) if text else ""


def _without_defaults(value: Any) -> dict[str, Any]:
    usual, values = defaults(type(value)), {name: getattr(value, name) for name in names(type(value))}
    return {name: _plain(each) for name, each in values.items() if name not in usual or each != usual[name]}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return _without_defaults(value)
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


# Ends

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
    """A process that starts ranks, or did the work of several. says_failing: True if its output announces the end of its ranks after a
    failure. own_pid: its pid by its own output, 0 if unknown. fails_as: exit code of the job if this process fails; 0: its own. watched:
    how ranklaunch knew its ranks: "announced", "files", or "". expected: expected ranks, if watched. reported: the first failed rank by
    its output. reported_at: time of the report's first line. ends_ranks: True if this launcher announced, or was seen, to end its ranks
    after a failure. failing: True if the other nodes know. dismissed: True if ranklaunch killed this process after its complete report.
    by_host: reports by the lines of each host, if the host's name prefixes the lines (pdsh); () for one host."""

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
    """The end of one process. rank, local_rank: None for other processes than ranks. pid: None if the process was never seen. start: clock
    ticks after boot, from /proc; pid and start together name one process for good. role: rank, launcher, service, step or experiment
    for a child of ranklaunch; below for a rank of a launcher; daemon for a killed process with ranks of another node below. parent: pid
    of its launcher. status: wait status, None if unknown. exit_code: 128+N after signal N. signal: its number, 0 for none. at: time
    when the end was seen, None if the end was not seen. sent: signals from ranklaunch, in order. by_itself: False if the process was
    signalled before; None for a child, see `sent`. surely: True if its launcher was stopped then, and so cannot have signalled the
    process. launcher: None for a process without ranks of its own. output: its last output, at most 32 KiB; None if the job succeeded.
    at_stop: output up to the signal after which further output does not count. records: written by the process itself."""

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
    """A process with records that is neither a child of ranklaunch nor a rank with a known pid: the Python below a shell, a helper, a
    child of multiprocessing, a launcher started by the program. rank: the number from its own variables, None if these have none or the
    process is a launcher."""

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
    """Facts of the job around the ends. run: id of the job, "" if unknown here. attempt: from 1. restart: how often ranks were started
    again in place before. runs: ranks, program (one on each node) or nodes (each played by a process). node_index: this node. idle:
    nodes without part in the job. program: its path or module, and its arguments. module: True if program is a module. outputs: of
    ranks below a launcher, where ranklaunch shows them. kept: the same, where the user keeps them in files. restarts: None without
    restarts. hang: the action at a hang of the job."""

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
    """All ends of one node in one round. stop: None if nobody asked. state: this node's statement to node 0, for the decision about a
    restart. lost: statement of the start barrier (the muster) on nodes without a report. ends: children in the order of their ends, and
    then the ranks below them. others: further processes with records of their own."""

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
    """Attach to each end the records of its process, and put the remaining records into `others`.

    A rank without a pid, because of an early exit, gets the records of its head. Processes with a recorded exception or exit come first
    there. records: by pid and start, in the order of writing, without secrets.
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
        if any(each.kind == RANK and each.launcher for each in records[process]):
            by_rank.setdefault(_rank_of(records[process]), []).append(process)
    return {rank: several[0] for rank, several in by_rank.items() if len(several) == 1 and rank is not None}


_OF_ENDS = (EXCEPTION, EXIT)


def _rank_of(written: Sequence[Record]) -> int | None:
    if any(each.kind == LAUNCHER for each in written):
        return None
    return next((rank_number(each.variables) for each in written if each.variables), None)
