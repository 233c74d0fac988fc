"""Reader of a folder's files: folders by node, attempt and restart, their plans, verdicts and events, and the last lines of logs.
Nothing waits for any content, and memory and time are bounded.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from ranklaunch.ends.model import (
    EXCEPTION,
    EXIT,
    MOST_RECORD_BYTES,
    MOST_RECORD_FILES,
    Record,
    kind_of_file,
    parse_record,
    process_of_file,
)
from ranklaunch.errors import ConfigError
from ranklaunch.fields import NOTHING
from ranklaunch.logs.written import Point, Written
from ranklaunch.report import checked
from ranklaunch.report.node_events import NodeEvents
from ranklaunch.system import disk
from ranklaunch.verdict import folders

DEEPEST = 6  # folders between the one that was named and an attempt's
MOST_FOLDERS = 50_000
MOST_PLAN = 32 * 1024 * 1024  # bytes
PLANS = 64 * 1024 * 1024  # of all: that of node 0 is read first, and names all nodes
MOST_VERDICT = 8 * 1024 * 1024
MOST_LINE = 256 * 1024
EVENTS = 64 * 1024 * 1024  # of all; of a file that has more, its beginning and its end are read
LEAST_EVENTS = 64 * 1024
TIMES = 32 * 1024 * 1024  # of all
RECORDS = 16 * 1024 * 1024  # of all
LEAST_RECORD = 512  # bytes that a file counts at least, however small
BLOCK = 256 * 1024
TAIL = 256 * 1024
MOST_FILES = 200  # of evidence, by name
_ATTEMPT = re.compile(r"attempt_([0-9]{1,6})")
_RESTART = re.compile(r"restart_([0-9]{1,6})")
_NODE = re.compile(r"node_([0-9]{1,7})")
_NUMBER = re.compile(r"[0-9]{1,9}")
_TIMES = re.compile(r"times_[0-9]{1,7}")
_JOB = re.compile(r"job_(.{1,200})")
_EXPECTED = "expected a log folder of ranklaunch, a folder with several, or a verdict.json"
_OURS = (folders.EVENTS, folders.VERDICT, folders.PLAN)


@dataclass(frozen=True)
class Place:
    """A folder of an attempt. path: on the disk; below: what is below the folder that was named. node, attempt: None where its names do not
    tell. job: "" where there is no folder for one."""

    path: str
    below: str
    node: int | None
    attempt: int | None
    job: str


@dataclass(frozen=True)
class Left:
    """By one node in one round. plan, verdict, round: empty where there is none. logs: names of files that end as logs do.
    evidence: folders below the one that was named, with their files. written: how many bytes ranks had by when, file by file.
    unread: its folder, its events or its verdict are there and could not be read."""

    place: Place
    restart: int
    below: str
    plan: Mapping[str, Any]
    verdict: Mapping[str, Any]
    round: Mapping[str, Any]
    events: NodeEvents
    logs: frozenset[str] = frozenset()
    evidence: tuple[tuple[str, tuple[str, ...]], ...] = ()
    written: tuple[tuple[Point, ...], ...] = ()
    unread: bool = False


class Reader:
    """top: the named folder, or a file in it, or a verdict by any name. troubles: omitted parts, and the reasons."""

    def __init__(self, top: str) -> None:
        self.top = disk.absolute(top)
        self.troubles: list[str] = []
        self._verdict = folders.VERDICT
        self._plans = PLANS
        self._events = EVENTS
        self._times = TIMES
        self._record_bytes = RECORDS

    def places(self) -> list[Place]:
        """Of all jobs, nodes and attempts, by their numbers. Raises ConfigError where there is none."""
        if os.path.isfile(self.top):
            self._open_file()
            return [self._top()]
        is_one = bool(_ATTEMPT.fullmatch(os.path.basename(self.top)))
        places = [] if is_one else [Place(os.path.join(self.top, below), below, *_numbers(below.split("/"))) for below in self._found()]
        if not places and self._is_ours(self.top):
            places = [self._top()]
        if not places:
            raise ConfigError(list(self._nothing()))
        tried = [place.path for place in places if os.path.lexists(os.path.join(place.path, folders.COMMAND))]
        if len(tried) > 1:
            msg = f"{self.top}: experiments of a search, each a job of its own; name one of them, such as {tried[0]}"
            raise ConfigError(msg)
        return sorted(places, key=lambda place: (place.job, place.attempt or 0, -1 if place.node is None else place.node, place.below))

    def _top(self) -> Place:
        return Place(self.top, "", *_numbers(self.top.split("/")[-3:]))

    def _open_file(self) -> None:
        """Of a verdict that was copied under a name of its own, nothing beside it is read."""
        named = os.path.realpath(self.top)
        self.top, name = os.path.split(named)
        if name in _OURS:
            return
        if _is_verdict(self.json_of(name)):
            self._verdict = name
        elif not self._is_ours(self.top):
            msg = f"{named}: no verdict; {_EXPECTED}; ranklaunch explain {named} looks for known errors in a log"
            raise ConfigError(msg)
        self.troubles = []

    def _nothing(self) -> Iterator[str]:
        """Why there is no place."""
        if self.troubles and self.troubles[0].startswith(f"{self.top}: ") and os.path.isdir(self.top):
            yield self.troubles[0]
            return
        seen = "not all of it can be read" if self.troubles else "no attempt of a job is in it, nor a verdict.json"
        what = seen if os.path.isdir(self.top) else "there is no such folder"
        yield f"{self.top}: {what}; {_EXPECTED}"
        yield from self.troubles if os.path.isdir(self.top) else ()

    def left(self, place: Place) -> Iterator[Left]:
        """Of the first round, and of each restart in place."""
        names = self._names(place.below) if self._verdict == folders.VERDICT else [self._verdict]
        left = self._left(place, 0, place.below, names, None)
        yield left
        for number, name in sorted((int(match[1]), match[0]) for match in map(_RESTART.fullmatch, names or ()) if match):
            below = os.path.join(place.below, name)
            left = self._left(place, number, below, self._names(below), left.events)
            yield left

    def tail(self, below: str) -> tuple[str, ...]:
        """The last lines of a log; of one line that is longer than what is read, its end."""
        data, size = b"", 0
        with self._reading(below, missing=True), self._open(below) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            data = file.read(TAIL)
        behind = data.partition(b"\n")[2] if size > TAIL else b""
        written = (behind or data).decode(errors="replace").replace("\r\n", "\n").rstrip("\n")
        return checked.lines([line.rstrip("\r").rpartition("\r")[2] for line in written.split("\n")]) if written else ()

    def json_of(self, below: str, most: int = MOST_VERDICT) -> Any:
        """None where there is none; what cannot be read is told."""
        data = None
        with self._reading(below, missing=True), self._open(below) as file:
            data = file.read(most + 1)
        if data is None:
            return None
        if len(data) > most:
            return self.trouble(f"{below}: larger than {most >> 20} MB, and left out")
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            return self.trouble(f"{below}: is no whole JSON, and left out")

    def _open(self, below: str) -> BinaryIO:
        """Raises OSError and ConfigError, the latter for what is no regular file."""
        return open(disk.own(os.path.join(self.top, below)), "rb")

    @contextlib.contextmanager
    def _reading(self, below: str, *, missing: bool = False) -> Iterator[None]:
        """Note what cannot be read. missing: unless it is not there."""
        try:
            yield
        except (OSError, ValueError, ConfigError) as error:
            if not (missing and isinstance(error, FileNotFoundError)):
                self.trouble(f"{below or self.top}: {getattr(error, 'strerror', '') or error}")

    def trouble(self, text: str) -> None:
        shown = checked.text(text, 400)
        if len(self.troubles) < checked.MOST_LINES and shown not in self.troubles:
            self.troubles.append(shown)

    def exceptions(self, below: str) -> Iterator[Record]:
        """Exception records of one round, and what the processes that wrote them recorded of their start, in one folder of nodes."""
        top = os.path.join(below, folders.RECORDS)
        if not os.path.isdir(os.path.join(self.top, top)):
            return
        for node in sorted(filter(_NODE.fullmatch, self._folders(top))):
            yield from self._records(os.path.join(top, node))

    def _records(self, below: str) -> Iterator[Record]:
        names = sorted(filter(kind_of_file, self._names(below) or ()))
        raised = {process_of_file(name) for name in names if kind_of_file(name) == EXCEPTION}
        wanted = [name for name in names if kind_of_file(name) != EXIT and process_of_file(name) in raised]
        if len(wanted) > MOST_RECORD_FILES:
            self.trouble(f"{below}: {len(wanted)} records of exceptions; {MOST_RECORD_FILES} of them were read")
        for name in wanted[:MOST_RECORD_FILES]:
            if self._record_bytes <= 0:
                self.trouble(f"{below}: records of exceptions are left out: all of them have more than {RECORDS >> 20} MB")
                return
            try:
                with self._open(os.path.join(below, name)) as file:
                    data = file.read(MOST_RECORD_BYTES + 1)
            except (OSError, ValueError, ConfigError):  # a link or a FIFO among them is no record
                continue
            self._record_bytes -= len(data) + LEAST_RECORD
            record = parse_record(name, data)
            if record:
                yield record

    # Folders

    def age(self, places: Iterable[Place]) -> float:
        """When the newest of them was written to."""
        times = [0.0]
        for place in places:
            with contextlib.suppress(OSError):
                times.append(os.stat(place.path).st_mtime)
        return max(times)

    def _found(self) -> Iterator[str]:
        """Folders of attempts below the top."""
        waiting, seen = [("", 0)], 0
        while waiting and seen < MOST_FOLDERS:
            below, depth = waiting.pop()
            seen += 1
            folder = os.path.join(self.top, below)
            if below and self._is_ours(folder):
                yield below
            elif depth < DEEPEST:
                names = (name for name in self._folders(below) if name not in self._apart(below) and not _RESTART.fullmatch(name))
                waiting += [(os.path.join(below, name), depth + 1) for name in sorted(names, reverse=True)]
        if waiting:
            self.trouble(f"more than {MOST_FOLDERS} folders: the others are left out")

    def _apart(self, below: str) -> tuple[str, ...]:
        """What is none of the job's own: of a search, each experiment and what was run with the best is a job."""
        folder = os.path.join(self.top, below, folders.TUNE)
        if not any(os.path.lexists(os.path.join(folder, name)) for name in folders.OF_TUNE):
            return (folders.EVIDENCE,)
        where = os.path.join(below, folders.TUNE)
        self.trouble(f"{where}: a search's experiments are left out, and what was run with the best ({folders.BEST})")
        return (folders.EVIDENCE, folders.TUNE, folders.BEST)

    def _is_ours(self, folder: str) -> bool:
        """A folder of several that one player of a simulation has left files in, too, is none."""
        return any(os.path.lexists(os.path.join(folder, name)) for name in _OURS) or bool(_ATTEMPT.fullmatch(os.path.basename(folder)))

    def _left(self, place: Place, restart: int, below: str, names: list[str] | None, before: NodeEvents | None) -> Left:
        known = set(names or ())
        events, is_read = NodeEvents(before), names is not None
        if folders.EVENTS in known:
            is_read = self._feed(os.path.join(below, folders.EVENTS), events)
        verdict, round_ = (self.json_of(os.path.join(below, name)) if name in known else None for name in (self._verdict, folders.ROUND))
        return Left(
            place, restart, below,
            plan=checked.mapping(self._plan(os.path.join(below, folders.PLAN))) if folders.PLAN in known else NOTHING,
            verdict=checked.mapping(verdict), round=checked.mapping(round_), events=events,
            logs=frozenset(name for name in known if name.endswith((".log", ".txt"))),
            evidence=tuple(self._evidence(os.path.join(below, folders.EVIDENCE))) if folders.EVIDENCE in known else (),
            written=tuple(self._written([os.path.join(below, name) for name in sorted(known) if _TIMES.fullmatch(name)])),
            unread=not is_read or (self._verdict in known and verdict is None),
        )  # fmt: skip

    def _plan(self, below: str) -> Any:
        """One that names thousands of nodes is large, and all say the same."""
        size = self._plans + 1
        with contextlib.suppress(OSError):
            size = os.lstat(os.path.join(self.top, below)).st_size
        if size > self._plans:
            return None
        self._plans -= size
        return self.json_of(below, MOST_PLAN)

    def _evidence(self, below: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        for node in sorted(filter(_NODE.fullmatch, self._folders(below))):
            for number in sorted(filter(_NUMBER.fullmatch, self._folders(os.path.join(below, node))), key=int)[-6:]:
                folder = os.path.join(below, node, number)
                yield folder, tuple(sorted(self._names(folder) or ())[:MOST_FILES])

    def _names(self, below: str) -> list[str] | None:
        """None where the folder cannot be read, which is told."""
        with self._reading(below):
            return os.listdir(os.path.join(self.top, below))
        return None

    def _folders(self, below: str) -> list[str]:
        """Real ones: a link may lead to itself."""
        with self._reading(below), os.scandir(os.path.join(self.top, below)) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")]
        return []

    # Output

    def _written(self, files: Iterable[str]) -> Iterator[tuple[Point, ...]]:
        """Return bytes written by time, one series a node. A file that is too large is left out."""
        for below in files:
            written = Written()
            with self._reading(below), self._open(below) as file:
                size = os.fstat(file.fileno()).st_size
                if size > self._times:
                    self.trouble(f"{below}: {size >> 20} MB; when what was written is left out")
                    continue
                self._times -= size
                written.feed_all(file.read(BLOCK) for _ in range(0, size, BLOCK))
            yield tuple(written.points)

    # Events

    def _feed(self, below: str, events: NodeEvents) -> bool:
        """Return True if they could be read, as far as they are to be."""
        with self._reading(below), self._open(below) as file:
            size = os.fstat(file.fileno()).st_size
            most = max(LEAST_EVENTS, min(size, self._events // 2))
            self._events -= min(size, most)
            if size > most:
                _take(file, most // 2, events)
                file.seek(size - most // 2)
                file.readline(MOST_LINE)
                self.trouble(f"{below}: {size >> 20} MB; of that, the first and the last {most // 2 >> 20} MB were read")
            _take(file, size, events)
            events.finish()
            return True
        return False


def _is_verdict(data: Any) -> bool:
    return isinstance(data, dict) and "outcome" in data and "exit_code" in data


def _take(file: BinaryIO, end: int, events: NodeEvents) -> None:
    """The lines up to there. What is longer than a line of ours is none."""
    left, within = end - file.tell(), False  # a line that is too long
    while left > 0 and (line := file.readline(MOST_LINE)):
        left -= len(line)
        ended = line.endswith(b"\n")
        if within or (len(line) == MOST_LINE and not ended):
            events.spoilt += not within
            within = not ended
        elif line.strip():
            events.feed(line)


def _numbers(parts: list[str]) -> tuple[int | None, int | None, str]:
    """node, attempt and job, as the names of folders tell."""
    node, attempt, job = (
        ([match[1] for match in map(pattern.fullmatch, parts) if match] or [""])[-1] for pattern in (_NODE, _ATTEMPT, _JOB)
    )
    return int(node) if node else None, int(attempt) if attempt else None, job
