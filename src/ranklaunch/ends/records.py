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
from ranklaunch.fields import defaults, names
from ranklaunch.redact import redact

SCHEMA = "ranklaunch.record/1"
RANK, LAUNCHER, EXCEPTION, EXIT = "rank", "launcher", "exception", "exit"
MOST_FILES, MOST_BYTES = 4096, 64 * 1024  # of a node's folder; of one file
MOST_TEXT = 8192  # characters of one text
MOST_ITEMS = 64  # of a list or a mapping
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
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def _is_of(value: Any, named: re.Match[str]) -> bool:
    kind, node, pid, start = named.group(1, 2, 3, 4)
    told = (SCHEMA, kind, int(node), int(pid), int(start))
    return isinstance(value, dict) and (value["schema"], value["record"], value["node"], value["pid"], value["start"]) == told


def _record(value: Mapping[str, Any]) -> Record:
    kind = value["record"]
    common = (kind, value["node"], _host(value["host"]), value["pid"], value["start"], _number(value["time"]), _number(value["monotonic"]))
    if kind == RANK:
        variables = tuple((_text(name), _text(each)) for name, each in [*_mapping(value["variables"]).items()][:MOST_ITEMS])
        return Record(
            *common, argv=_texts(value["argv"]), variables=variables, top=_process(value["top"]), parent=_process(value["parent"]),
            within=_process(value["within"]) if value.get("within") else None,
            launcher=_word(value["launcher"]),
        )  # fmt: skip
    if kind == LAUNCHER:
        top = _process(value["top"]) if value.get("top") else None
        return Record(*common, argv=_texts(value["argv"]), top=top, parent=_process(value["parent"]), launcher=_word(value["name"]))
    if kind == EXCEPTION:
        chain = _chain(value["chain"])
        top = _process(value["top"]) if value.get("top") else None
        where, number = _one_of(value["from"], WHERE), _count(value["number"])
        return Record(*common, where=where, thread=_text(value["thread"]), number=number, chain=chain, top=top)
    return Record(
        *common,
        where=_one_of(value["from"], WHERE),
        code=_count(value["code"]),
        text=_text(value["text"]),
        chain=_chain(value["handling"] or []),
    )


def _chain(value: Any) -> tuple[Raised, ...]:
    return tuple(map(_raised, _list(value)))


def _raised(value: Any) -> Raised:
    frames, library = tuple(map(_frame, _list(value["frames"]))), value["library"]
    return Raised(
        _text(value["type"]), _text(value["message"]), _one_of(value["link"], LINKS), frames, None if library is None else _frame(library)
    )


def _frame(value: Any) -> Frame:
    return Frame(_text(value["file"]), _count(value["line"]), _text(value["function"]))


def _process(value: Any) -> Process:
    return Process(_count(value["pid"]), _count(value["start"]), _texts(value.get("argv", [])))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value[:MOST_TEXT]


def _host(value: Any) -> str:
    """An odd name of a host says nothing."""
    return value if isinstance(value, str) and _HOST.fullmatch(value) else ""


def _word(value: Any) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise TypeError(value)
    return value


def _one_of(value: Any, known: Sequence[str]) -> str:
    if value not in known:
        raise TypeError(value)
    return str(value)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, _list(value)))


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value[:MOST_ITEMS]


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(value)
    return value


def _number(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1e12:
        raise TypeError(value)
    return float(value)


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise TypeError(value)
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


# Records as JSON


def as_mapping(record: Record) -> dict[str, Any]:
    """Return a record as JSON has it, without secrets. Fields that have their default are left out, but for the code of an exit."""
    found = _without_defaults(hidden(record))
    return {**found, "code": record.code} if record.kind == EXIT else found


def chain_of(record: Mapping[str, Any]) -> tuple[Raised, ...]:
    """Return the exceptions of a record that as_mapping has made."""
    return tuple(
        Raised(
            each["type"], each.get("message", ""), each.get("link", ""), tuple(Frame(**frame) for frame in each.get("frames", ())),
            Frame(**each["library"]) if each.get("library") else None,
        )
        for each in record.get("chain", ())
    )  # fmt: skip


def hidden(record: Record) -> Record:
    """Return a record without secrets: ranks hide them with plainer rules, and others may have written the file."""
    return replace(
        record, argv=redact.argv(record.argv),
        variables=tuple(redact.environment(dict(record.variables)).items()),
        parent=replace(record.parent, argv=redact.argv(record.parent.argv)) if record.parent else None,
        thread=_hidden(record.thread), chain=tuple(map(_hidden_raised, record.chain)), text=_hidden(record.text),
    )  # fmt: skip


def _hidden_raised(raised: Raised) -> Raised:
    frames, library = tuple(map(_hidden_frame, raised.frames)), raised.library and _hidden_frame(raised.library)
    return replace(raised, type=_hidden(raised.type), message=_hidden(raised.message), frames=frames, library=library)


def _hidden_frame(frame: Frame) -> Frame:
    return replace(frame, file=_hidden(frame.file), function=_hidden(frame.function))


@functools.lru_cache(maxsize=1024)  # ranks of one program have the same frames
def _hidden(text: str) -> str:
    return "\n".join(errors.quoted(text.split("\n"))) if text else ""


def _without_defaults(value: Any) -> dict[str, Any]:
    usual, found = defaults(type(value)), {name: getattr(value, name) for name in names(type(value))}
    return {name: _plain(each) for name, each in found.items() if name not in usual or each != usual[name]}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return _without_defaults(value)
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
