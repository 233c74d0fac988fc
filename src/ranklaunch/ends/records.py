"""Records that ranks and launchers wrote of themselves (ranklaunch.rankside), as values.

Anybody who can write into the folder may have written such a file. So the content is checked field by field, bounded, and believed only
together with what the kernel says of the process. No record proves nothing: `python -I`, a crash in C, SIGKILL and os._exit leave none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from ranklaunch.typed import Any
from ranklaunch.values import Value

SCHEMA = "ranklaunch.record/1"
RANK, LAUNCHER, EXCEPTION, EXIT = "rank", "launcher", "exception", "exit"
MOST_FILES, MOST_BYTES = 4096, 64 * 1024  # of a node's folder; of one file
MOST_TEXT = 8192  # characters of one text
MOST_ITEMS = 64  # of a list or a mapping
_NAME = re.compile(r"(rank|launcher|exception|exit)-([0-9]{1,7})-([0-9]{1,10})-([0-9]{1,19})(?:-([0-9]{1,2}))?\.json")


class Process(Value):
    """pid and start (clock ticks since boot) are one process for good. argv: () where it was not recorded."""

    pid: int
    start: int
    argv: tuple[str, ...] = ()


class Frame(Value):
    file: str
    line: int
    function: str


class Raised(Value):
    """One exception of a chain. link: "" for the one that nobody caught; cause, context or group for those behind it. frames: of the
    user's code, the innermost last. library: the last frame, where that is a library's."""

    type: str
    message: str
    link: str
    frames: tuple[Frame, ...] = ()
    library: Frame | None = None


class Record(Value):
    """One record. kind: rank, launcher, exception or exit. at: seconds since 1970 by the host's clock; monotonic: by its monotonic clock.

    Of a rank: variables (its rank variables at exec), top (the topmost process with equal variables), parent (of the top), launcher (the
    parent's name, "" where the parent is neither ranklaunch nor a launcher). Of a launcher: launcher (its own name), argv, parent.
    Of an exception: where (main, thread, process), thread, number (from 1, per process), chain. Of an exit: where, code, text (of
    sys.exit), chain (the exception that was being handled, () for none)."""

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


def read(files: Iterable[tuple[str, bytes]]) -> list[Record]:
    """The records among these files (name, content), in the order in which they were written. What is no record is left out."""
    found = filter(None, (parse(name, data) for name, data in files))
    return sorted(found, key=lambda record: (record.monotonic, record.pid, record.number))


def parse(name: str, data: bytes) -> Record | None:
    """None for what is no record, or not that of the process in its name."""
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
    common = (kind, value["node"], _text(value["host"]), value["pid"], value["start"], _number(value["time"]), _number(value["monotonic"]))
    if kind == RANK:
        variables = tuple((_text(name), _text(each)) for name, each in [*_mapping(value["variables"]).items()][:MOST_ITEMS])
        return Record(
            *common, argv=_texts(value["argv"]), variables=variables, top=_process(value["top"]), parent=_process(value["parent"]),
            launcher=_text(value["launcher"]),
        )  # fmt: skip
    if kind == LAUNCHER:
        return Record(*common, argv=_texts(value["argv"]), parent=_process(value["parent"]), launcher=_text(value["name"]))
    if kind == EXCEPTION:
        chain = _chain(value["chain"])
        return Record(*common, where=_text(value["from"]), thread=_text(value["thread"]), number=_count(value["number"]), chain=chain)
    return Record(
        *common, where=_text(value["from"]), code=_count(value["code"]), text=_text(value["text"]), chain=_chain(value["handling"] or [])
    )


def _chain(value: Any) -> tuple[Raised, ...]:
    return tuple(map(_raised, _list(value)))


def _raised(value: Any) -> Raised:
    frames, library = tuple(map(_frame, _list(value["frames"]))), value["library"]
    return Raised(_text(value["type"]), _text(value["message"]), _text(value["link"]), frames, None if library is None else _frame(library))


def _frame(value: Any) -> Frame:
    return Frame(_text(value["file"]), _count(value["line"]), _text(value["function"]))


def _process(value: Any) -> Process:
    return Process(_count(value["pid"]), _count(value["start"]), _texts(value.get("argv", [])))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value[:MOST_TEXT]


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
