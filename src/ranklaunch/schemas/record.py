"""Files of records/: records of ranks and launchers about themselves (ranklaunch.rankside)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict, Union


class ProcessSeen(TypedDict):
    """Identity of a process. start: start in clock ticks since boot; pid and start together name one process for ever."""

    pid: int
    start: int


class ParentSeen(ProcessSeen):
    """Parent process. argv: command line without secrets, at most 32 words; empty if unreadable."""

    argv: list[str]


class FrameSeen(TypedDict):
    """Place in a traceback."""

    file: str
    line: int
    function: str


class RaisedSeen(TypedDict):
    """One exception. type: with its module, except for builtins and the program's own module. message: at most 4096 characters. link: empty
    for the uncaught exception; cause, context, or group (a member of an exception group) for the exceptions behind. frames: of the user's
    code, at most 12, the innermost last. library: the last frame, if of a library; else null."""

    type: str
    message: str
    link: Literal["", "cause", "context", "group"]
    frames: list[FrameSeen]
    library: FrameSeen | None


class _OfAnyRecord(TypedDict):
    schema: Literal["ranklaunch.record/1"]
    node: int
    host: str
    pid: int
    start: int
    time: float
    monotonic: float


class RankRecord(_OfAnyRecord):
    """Start of the first Python of a rank. start: clock ticks since boot. time: seconds since 1970 by the host's clock.
    monotonic: by the host's monotonic clock. top: the topmost process with the same rank variables, such as a shell.
    variables: the rank variables at exec. argv: command line without secrets, at most 32 words. parent: of the top.
    launcher: starter of the rank: ranklaunch or the name of a launcher; empty for anything else. within: the topmost
    process of the rank, or of the program, above this one; null for none. python: version."""

    record: Literal["rank"]
    top: ProcessSeen
    within: ProcessSeen | None
    variables: Mapping[str, str]
    argv: list[str]
    parent: ParentSeen
    launcher: str
    python: str


class LauncherRecord(_OfAnyRecord):
    """Start of a launcher written in Python. name: of the launcher. argv: command line without secrets, at most 32 words. top:
    topmost process of the rank above the launcher, as in this rank's record; null for none."""

    record: Literal["launcher"]
    name: str
    argv: list[str]
    parent: ParentSeen
    top: ProcessSeen | None
    python: str


class ExceptionRecord(_OfAnyRecord):
    """Uncaught exception, written before hooks and exit handlers run. The record explains an end only together with the exit code. from_:
    main, thread, or process for a child of multiprocessing. thread: name of the raising thread. number: from 1, in each process; the first
    8 and the last 8 are kept. signal: number of the signal in whose handler the exception was raised; null for none. chain: the uncaught
    exception, then the exceptions behind, at most 8. top: the topmost process of the rank, as in its rank record; null for a process of
    no rank."""

    record: Literal["exception"]
    from_: Literal["main", "thread", "process"]
    thread: str
    number: int
    signal: int | None
    chain: list[RaisedSeen]
    top: ProcessSeen | None


class ExitRecord(_OfAnyRecord):
    """Exit by sys.exit with another code than 0, or end of a launcher. code: exit code. text: argument of sys.exit, if that was a text.
    handling: the exception that was being handled; null for none."""

    record: Literal["exit"]
    from_: Literal["main", "process"]
    code: int
    text: str
    handling: list[RaisedSeen] | None


DOCUMENTS: Mapping[str, Any] = {"record": Union[RankRecord, LauncherRecord, ExceptionRecord, ExitRecord]}
