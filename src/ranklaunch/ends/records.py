"""Records that ranks and launchers wrote of themselves (ranklaunch.rankside), as values.

Anybody who can write into the folder may have written such a file. So the content is checked field by field, bounded, and believed only
together with what the kernel says of the process. No record proves nothing: `python -I`, a crash in C, SIGKILL and os._exit leave none.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

from ranklaunch import errors
from ranklaunch.fields import defaults, from_dict, names
from ranklaunch.redact import redact

SCHEMA = "ranklaunch.record/1"
RANK, LAUNCHER, EXCEPTION, EXIT = "rank", "launcher", "exception", "exit"
MOST_FILES, MOST_BYTES = 4096, 64 * 1024  # of a node's folder; of one file
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
    """One exception of a chain. link: "" for the one that nobody caught; cause, context or group for those behind it. frames: of the
    user's code, the innermost last. library: the last frame, where that is a library's."""

    type: str
    message: str
    link: str
    frames: tuple[Frame, ...] = ()
    library: Frame | None = None


@dataclass(frozen=True)
class Record:
    """What one process wrote down of itself at one moment. kind: rank, launcher, exception or exit. at: seconds since 1970 by the host's
    clock. monotonic: seconds by the host's monotonic clock. argv: of a rank or launcher. variables: rank variables at exec, of a rank.
    top: the topmost process with equal variables, of a rank; for a launcher, that of the rank that started it. within: the
    same, of a rank that was started below another or below the program. parent: of the top, or
    of the launcher. launcher: name of a launcher, or what placed a rank: ranklaunch, a launcher, or "" for neither. where: main,
    thread, or process (a child of multiprocessing), of an exception or exit. thread: name of the thread that raised. number: of an
    exception, from 1 in each process. chain: the exception that nobody caught, then those behind it; of an exit, the exception that was
    being handled. code: exit code. text: argument of sys.exit."""

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


def kind_of(name: str) -> str:
    """Return the kind of record that a file of this name holds, "" for a name that no record has."""
    named = _NAME.fullmatch(name)
    return named[1] if named else ""


def process_of(name: str) -> tuple[int, int] | None:
    """Return pid and start of the process whose record a file of this name holds; None for a name that no record has."""
    named = _NAME.fullmatch(name)
    return (int(named[3]), int(named[4])) if named else None


def order(record: Record) -> tuple[float, int, int]:
    """Sort key: the time at which a record was written."""
    return record.monotonic, record.pid, record.number


def parse(name: str, data: bytes) -> Record | None:
    """Return the record in a file, None if the content is no record or belongs to another process than the file name says."""
    named = _NAME.fullmatch(name)
    if not named or len(data) > MOST_BYTES:
        return None
    try:
        value = json.loads(data)
        return _record(value) if _is_of(value, named) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _is_of(value: Any, named: re.Match[str]) -> bool:
    kind, node, pid, start = named.group(1, 2, 3, 4)
    expected = (SCHEMA, kind, int(node), int(pid), int(start))
    return isinstance(value, dict) and (value["schema"], value["record"], value["node"], value["pid"], value["start"]) == expected


# Keys of a file by the fields of Record, where they differ, and the fields of each kind. Those in _MAY_BE_NULL need not be there.
_KEYS = {"kind": "record", "at": "time", "where": "from"}
_KEYS_OF = {LAUNCHER: {"launcher": "name"}, EXIT: {"chain": "handling"}}
_COMMON = ("kind", "node", "host", "pid", "start", "at", "monotonic")
_FIELDS = {
    RANK: ("argv", "variables", "top", "within", "parent", "launcher"),
    LAUNCHER: ("argv", "top", "parent", "launcher"),
    EXCEPTION: ("where", "thread", "number", "chain", "top"),
    EXIT: ("where", "code", "text", "chain"),
}
_MAY_BE_NULL = ("top", "within")


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


def program(argv: Sequence[str]) -> str:
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


def hidden(record: Record) -> Record:
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
