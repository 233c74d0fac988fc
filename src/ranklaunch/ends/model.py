"""Values of ends.json: the end of each process of a node, its records (ranklaunch.rankside), and the facts of the job that a
verdict needs.

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

# Records. Any process that can write into the folder may have written such a file. So the content is
# checked field by field, bounded, and believed only together with the kernel's facts about the
# process. A missing record proves nothing: `python -I`, a crash in C, SIGKILL and os._exit leave none.

RECORD_SCHEMA = "ranklaunch.record/1"
RANK, LAUNCHER, EXCEPTION, EXIT = "rank", "launcher", "exception", "exit"  # kinds of records
MOST_RECORD_FILES, MOST_RECORD_BYTES = 4096, 64 * 1024  # in a node's folder; in one file
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
    """Identity of a process: pid and start (clock ticks since boot) never name another one. argv: () if not recorded."""

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
    """Exception of a chain. link: "" for the uncaught exception; cause, context or group for the exceptions behind it.
    frames: of the user's code, the innermost last. library: the last frame, if a library's."""

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
        """Return the fields that differ from their defaults, and the code of an exit."""
        values = _without_defaults(self)
        return {**values, "code": self.code} if self.kind == EXIT else values


def kind_of_file(name: str) -> str:
    """Return the kind of the record in a file of this name; "" for any other file name."""
    match = _NAME.fullmatch(name)
    return match[1] if match else ""


def process_of_file(name: str) -> tuple[int, int] | None:
    """Return pid and start of the process with its record in a file of this name; None for any other file name."""
    match = _NAME.fullmatch(name)
    return (int(match[3]), int(match[4])) if match else None


def record_order(record: Record) -> tuple[float, int, int]:
    """Return a sort key: the time of a record, then pid and number."""
    return record.monotonic, record.pid, record.number


def parse_record(name: str, data: bytes) -> Record | None:
    """Return the record in a file; None if the content is no record, or if the file name has another kind, node or process."""
    match = _NAME.fullmatch(name)
    if not match or len(data) > MOST_RECORD_BYTES:
        return None
    try:
        value = json.loads(data)
        return _record(value) if _fits_name(value, match) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _fits_name(value: Any, match: re.Match[str]) -> bool:
    kind, node, pid, start = match.group(1, 2, 3, 4)
    expected = (RECORD_SCHEMA, kind, int(node), int(pid), int(start))
    return isinstance(value, dict) and (value["schema"], value["record"], value["node"], value["pid"], value["start"]) == expected


# Keys of a file by the fields of Record, where the two differ, and the fields of each kind. Keys in _MAY_BE_NULL are optional.
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
    host = fields["host"] if isinstance(fields["host"], str) and _HOST.fullmatch(fields["host"]) else ""
    record = from_dict(Record, {**fields, "host": host, "chain": fields.get("chain") or []})
    fits = record.where in WHERE or "where" not in fields
    fits = fits and all(raised.link in LINKS for raised in record.chain) and max(record.at, record.monotonic) < _LATEST
    if not fits or not _WORD.fullmatch(record.launcher):
        raise ValueError(kind)
    return replace(record, at=float(record.at), monotonic=float(record.monotonic))


def _bounded(value: Any) -> Any:
    """Cut long texts and lists. Raises ValueError for a negative number or one beyond 62 bits."""
    if isinstance(value, str):
        return value[:MOST_TEXT]
    if isinstance(value, list):
        return [_bounded(each) for each in value[:MOST_ITEMS]]
    if isinstance(value, dict):
        return {name[:MOST_TEXT]: _bounded(each) for name, each in [*value.items()][:MOST_ITEMS]}
    if value is not None and not 0 <= value < 1 << 62:
        raise ValueError(value)
    return value


# Facts in a record


def rank_number(variables: Iterable[tuple[str, str]]) -> int | None:
    """Return the rank of a process with these variables (name, value); None if no variable has a rank."""
    values = dict(variables)
    for name in RANK_NUMBERS:
        value = values.get(name, "")
        if value.isascii() and value.isdigit() and len(value) <= MOST_RANK_DIGITS:
            return int(value)
    return None


def program_of(argv: Sequence[str]) -> str:
    """Return the script or module in a command line of Python; the command itself if there is none."""
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
    """Return a record without secrets. Ranks hide secrets themselves, but with simpler rules, and other processes may have written the
    file."""
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
MOST_OTHERS = 256  # processes with records besides ranks and children
MOST_RECORDS = 64  # of one process
DIES_S = 10.0  # from the kernel's count of a kill to the end of the killed process, at most
_GIB = 1 << 30
BELOW, DAEMON = "below", "daemon"  # roles besides those of children: rank of a launcher; killed daemon with another node's ranks below


@dataclass(frozen=True)
class Sent:
    """Signal that ranklaunch sent to a process. signal: its number. at: None if the time is unknown."""

    signal: int
    at: float | None = None


@dataclass(frozen=True)
class Tail:
    """Last bytes of an output at some moment. text: None if the last bytes at the end of the process are the same. at: time of the last
    byte; None if unknown."""

    text: str | None
    at: float | None = None


@dataclass(frozen=True)
class Launcher:
    """Launcher: a process that starts ranks, or that stands for several ranks. says_failing: True if its output announces the end of its
    ranks after a failure. own_pid: its pid by its own output, 0 if unknown. fails_as: exit code of the job if this process fails; 0: its
    own. watched: source of its ranks' pids, "announced" (by the launcher), "files" (open output files), or "". expected: expected ranks,
    if watched. reported: the first failed rank by its output. reported_at: time of the report's first line. ends_ranks: True if this
    launcher announced that it ends its ranks after a failure, or if ranklaunch saw it do so. failing: True if the other nodes know.
    dismissed: True if ranklaunch killed this process after its complete report. by_host: reports by the lines of each host, if the host's
    name prefixes the lines (pdsh); () for one host."""

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
    """End of one process. rank, local_rank: None for other processes than ranks. pid: None if the process was never seen. start: clock
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
    """Process with records that is neither a child of ranklaunch nor a rank with a known pid: the Python below a shell, a helper, a
    child of multiprocessing, a launcher started by the program. rank: the number from its own variables, None if these have none or the
    process is a launcher."""

    pid: int
    start: int
    rank: int | None
    records: tuple[Record, ...]


@dataclass(frozen=True)
class Stop:
    """First stop request. signal: its number."""

    signal: int
    at: float


@dataclass(frozen=True)
class MemoryKills:
    """Kernel's count of processes killed for memory. kills: since the attempt began. peak, limit: bytes, 0 if unknown. counted: False if
    this host has no count. seen: times of reading and the count at each."""

    kills: int = 0
    peak: int = 0
    limit: int = 0
    counted: bool = True
    seen: tuple[tuple[float, int], ...] = ()

    def lately(self, at: float) -> int:
        """Return the number of kills, without processes that had died well before `at`."""
        return self.kills - max((kills for seen, kills in self.seen if seen < at - DIES_S), default=0)

    @property
    def described(self) -> str:
        """Count as the end of a sentence."""
        if not self.limit:
            return f" ({self.kills} killed)"
        if not self.peak:  # cgroup v2 has the peak since Linux 5.19
            return f" ({self.kills} killed; {self.limit / _GIB:.2f} GiB allowed)"
        return f" ({self.kills} killed; at most {self.peak / _GIB:.2f} GiB in use of {self.limit / _GIB:.2f} GiB allowed)"


@dataclass(frozen=True)
class NodeFacts:
    """Node of the job. slots: number of its ranks."""

    index: int
    host: str
    slots: int
    first_rank: int


@dataclass(frozen=True)
class Outputs:
    """Outputs of a launcher's ranks. ranks: None for an output of no rank. marks: the launcher's prefix of each line, in the same
    order."""

    ranks: tuple[int | None, ...]
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class RestartSettings:
    """Settings of restarts in place. most: restarts without progress. never: exit codes without a restart. restarted_outside: the platform
    starts the job again."""

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
    """All ends of one node in one round. stop: None without one. state: this node's statement to node 0, for the decision about a
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
    """Return the content of ends.json (schema ranklaunch.ends/1). Keys are only ever added."""
    return {"schema": SCHEMA, **as_dict(node)}


def with_records(node: NodeEnds, records: Mapping[tuple[int, int], Sequence[Record]]) -> NodeEnds:
    """Attach to each end the records of its process, and put the remaining records into `others`.

    A rank that exited before ranklaunch saw its pid gets the records of its head, the topmost process with its rank variables. In
    `others`, processes with a recorded exception or exit come first. records: by pid and start, in the order of writing, without
    secrets.
    """
    remaining = {process: tuple(written[:MOST_RECORDS]) for process, written in records.items()}
    heads = _heads(remaining.keys() - {(end.pid or 0, end.start or 0) for end in node.ends}, remaining)
    ends = []
    for end in node.ends:
        process = heads.get(end.rank) if end.pid is None else (end.pid, end.start or 0)
        ends.append(replace(end, records=remaining.pop(process, ())) if process else end)
    ordered = sorted(remaining.items(), key=lambda item: not any(each.kind in _OF_ENDS for each in item[1]))
    others = [OtherProcess(pid, start, _rank_of(written), written) for (pid, start), written in ordered[:MOST_OTHERS]]
    return replace(node, ends=tuple(ends), others=tuple(others))


def _heads(processes: Iterable[tuple[int, int]], records: Mapping[tuple[int, int], Sequence[Record]]) -> dict[int | None, tuple[int, int]]:
    """Return the head of each rank that a launcher placed, by rank. Ranks with several heads are left out."""
    by_rank: dict[int | None, list[tuple[int, int]]] = {}
    for process in processes:
        if any(each.kind == RANK and each.launcher for each in records[process]):
            by_rank.setdefault(_rank_of(records[process]), []).append(process)
    return {rank: heads[0] for rank, heads in by_rank.items() if len(heads) == 1 and rank is not None}


_OF_ENDS = (EXCEPTION, EXIT)


def _rank_of(written: Sequence[Record]) -> int | None:
    if any(each.kind == LAUNCHER for each in written):
        return None
    return next((rank_number(each.variables) for each in written if each.variables), None)
