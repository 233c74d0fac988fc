"""Reader of a log folder: folders by node, attempt and restart, their plans, verdicts and events, and the last lines of logs.
No read blocks, and memory and time are bounded.
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

DEEPEST = 6  # levels of folders between the named folder and an attempt's folder
MOST_FOLDERS = 50_000
MOST_PLAN = 32 * 1024 * 1024  # bytes
PLANS = 64 * 1024 * 1024  # of all plans; the plan of node 0 is read first, and has all nodes
MOST_VERDICT = 8 * 1024 * 1024
MOST_LINE = 256 * 1024
EVENTS = 64 * 1024 * 1024  # of all events; only the beginning and the end of a larger file are read
LEAST_EVENTS = 64 * 1024
TIMES = 32 * 1024 * 1024  # of all times of output
RECORDS = 16 * 1024 * 1024  # of all exception records
LEAST_RECORD = 512  # bytes that each record counts at least
BLOCK = 256 * 1024
TAIL = 256 * 1024
MOST_FILES = 200  # names of evidence files in a folder
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
    """Folder of an attempt. path: on the disk. subpath: relative to the named folder. node, attempt: None if no folder name has the number.
    job: id of the job, "" without a folder for each job."""

    path: str
    subpath: str
    node: int | None
    attempt: int | None
    job: str


@dataclass(frozen=True)
class NodeFiles:
    """Files of one node in one round. subpath: relative to the named folder. plan, verdict, round: empty without the file. logs: names of
    files with the ending of a log. evidence: folders (relative to the named folder) with their file names. written: bytes of output by
    time, one series for each file. unread: True if the folder, the events or the verdict exist and could not be read."""

    place: Place
    restart: int
    subpath: str
    plan: Mapping[str, Any]
    verdict: Mapping[str, Any]
    round: Mapping[str, Any]
    events: NodeEvents
    logs: frozenset[str] = frozenset()
    evidence: tuple[tuple[str, tuple[str, ...]], ...] = ()
    written: tuple[tuple[Point, ...], ...] = ()
    unread: bool = False


class Reader:
    """Reader of one log folder, within limits of memory. top: the named folder, or a file in it, or a verdict by any name. troubles:
    omitted parts, with the reasons."""

    def __init__(self, top: str) -> None:
        self.top = disk.absolute(top)
        self.troubles: list[str] = []
        self._verdict = folders.VERDICT
        self._plans = PLANS
        self._events = EVENTS
        self._times = TIMES
        self._record_bytes = RECORDS

    def places(self) -> list[Place]:
        """Return the folders of all jobs, nodes and attempts, in order of their numbers. Raises ConfigError if there is none."""
        if os.path.isfile(self.top):
            self._open_file()
            return [self._top()]
        is_one = bool(_ATTEMPT.fullmatch(os.path.basename(self.top)))
        subpaths = () if is_one else self._attempt_folders()
        places = [Place(os.path.join(self.top, subpath), subpath, *_numbers(subpath.split("/"))) for subpath in subpaths]
        if not places and self._is_attempt(self.top):
            places = [self._top()]
        if not places:
            raise ConfigError(list(self._why_no_place()))
        experiments = [place.path for place in places if os.path.lexists(os.path.join(place.path, folders.COMMAND))]
        if len(experiments) > 1:
            msg = f"{self.top}: experiments of a search, each a job of its own; name one of them, such as {experiments[0]}"
            raise ConfigError(msg)
        return sorted(places, key=lambda place: (place.job, place.attempt or 0, -1 if place.node is None else place.node, place.subpath))

    def _top(self) -> Place:
        return Place(self.top, "", *_numbers(self.top.split("/")[-3:]))

    def _open_file(self) -> None:
        """Take the folder of the named file as the top. Beside a verdict under another name, which is a copy, nothing else is read."""
        named = os.path.realpath(self.top)
        self.top, name = os.path.split(named)
        if name in _OURS:
            return
        if _is_verdict(self.json_of(name)):
            self._verdict = name
        elif not self._is_attempt(self.top):
            msg = f"{named}: no verdict; {_EXPECTED}; ranklaunch explain {named} looks for known errors in a log"
            raise ConfigError(msg)
        self.troubles = []

    def _why_no_place(self) -> Iterator[str]:
        """Yield the reasons for which there is nothing to report."""
        if self.troubles and self.troubles[0].startswith(f"{self.top}: ") and os.path.isdir(self.top):
            yield self.troubles[0]
            return
        content = "not all of it can be read" if self.troubles else "no attempt of a job is in it, nor a verdict.json"
        reason = content if os.path.isdir(self.top) else "there is no such folder"
        yield f"{self.top}: {reason}; {_EXPECTED}"
        yield from self.troubles if os.path.isdir(self.top) else ()

    def rounds(self, place: Place) -> Iterator[NodeFiles]:
        """Yield the files of the first round, and of each restart in place."""
        names = self._names(place.subpath) if self._verdict == folders.VERDICT else [self._verdict]
        files = self._node_files(place, 0, place.subpath, names, None)
        yield files
        for number, name in sorted((int(match[1]), match[0]) for match in map(_RESTART.fullmatch, names or ()) if match):
            subpath = os.path.join(place.subpath, name)
            files = self._node_files(place, number, subpath, self._names(subpath), files.events)
            yield files

    def tail(self, subpath: str) -> tuple[str, ...]:
        """Return the last lines of a log, at most TAIL bytes. Of a line longer than that, return the end."""
        data, size = b"", 0
        with self._noting_errors(subpath, missing=True), self._open(subpath) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            data = file.read(TAIL)
        whole_lines = data.partition(b"\n")[2] if size > TAIL else b""
        written = (whole_lines or data).decode(errors="replace").replace("\r\n", "\n").rstrip("\n")
        return checked.lines([line.rstrip("\r").rpartition("\r")[2] for line in written.split("\n")]) if written else ()

    def json_of(self, subpath: str, most: int = MOST_VERDICT) -> Any:
        """Return the content of a JSON file, None if missing. A file that cannot be read is None, with a trouble noted."""
        data = None
        with self._noting_errors(subpath, missing=True), self._open(subpath) as file:
            data = file.read(most + 1)
        if data is None:
            return None
        if len(data) > most:
            return self.trouble(f"{subpath}: larger than {most >> 20} MB, and left out")
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            return self.trouble(f"{subpath}: incomplete or no JSON, and left out")

    def _open(self, subpath: str) -> BinaryIO:
        """Open a file for reading. Raises OSError, and ConfigError for anything but a regular file."""
        return open(disk.own(os.path.join(self.top, subpath)), "rb")

    @contextlib.contextmanager
    def _noting_errors(self, subpath: str, *, missing: bool = False) -> Iterator[None]:
        """Note an error of reading as a trouble. missing: True if the file may be missing."""
        try:
            yield
        except (OSError, ValueError, ConfigError) as error:
            if not (missing and isinstance(error, FileNotFoundError)):
                self.trouble(f"{subpath or self.top}: {getattr(error, 'strerror', '') or error}")

    def trouble(self, text: str) -> None:
        shown = checked.text(text, 400)
        if len(self.troubles) < checked.MOST_LINES and shown not in self.troubles:
            self.troubles.append(shown)

    def exceptions(self, subpath: str) -> Iterator[Record]:
        """Yield the exception records of one round, each with the record that its process wrote at its start."""
        top = os.path.join(subpath, folders.RECORDS)
        if not os.path.isdir(os.path.join(self.top, top)):
            return
        for node in sorted(filter(_NODE.fullmatch, self._folders(top))):
            yield from self._records(os.path.join(top, node))

    def _records(self, subpath: str) -> Iterator[Record]:
        names = sorted(filter(kind_of_file, self._names(subpath) or ()))
        raised = {process_of_file(name) for name in names if kind_of_file(name) == EXCEPTION}
        wanted = [name for name in names if kind_of_file(name) != EXIT and process_of_file(name) in raised]
        if len(wanted) > MOST_RECORD_FILES:
            self.trouble(f"{subpath}: {len(wanted)} records of exceptions; {MOST_RECORD_FILES} of them were read")
        for name in wanted[:MOST_RECORD_FILES]:
            if self._record_bytes <= 0:
                self.trouble(f"{subpath}: records of exceptions are left out: those of the whole job exceed {RECORDS >> 20} MB")
                return
            try:
                with self._open(os.path.join(subpath, name)) as file:
                    data = file.read(MOST_RECORD_BYTES + 1)
            except (OSError, ValueError, ConfigError):  # a link or a FIFO is no record
                continue
            self._record_bytes -= len(data) + LEAST_RECORD
            record = parse_record(name, data)
            if record:
                yield record

    # Folders

    def age(self, places: Iterable[Place]) -> float:
        """Return the time of the newest change in some folders, 0 for none."""
        times = [0.0]
        for place in places:
            with contextlib.suppress(OSError):
                times.append(os.stat(place.path).st_mtime)
        return max(times)

    def _attempt_folders(self) -> Iterator[str]:
        """Yield the folders of attempts in the top folder, by their subpaths."""
        waiting, visited = [("", 0)], 0
        while waiting and visited < MOST_FOLDERS:
            subpath, depth = waiting.pop()
            visited += 1
            folder = os.path.join(self.top, subpath)
            if subpath and self._is_attempt(folder):
                yield subpath
            elif depth < DEEPEST:
                in_job = [name for name in self._folders(subpath) if name not in self._excluded_folders(subpath)]
                names = sorted((name for name in in_job if not _RESTART.fullmatch(name)), reverse=True)
                waiting += [(os.path.join(subpath, name), depth + 1) for name in names]
        if waiting:
            self.trouble(f"more than {MOST_FOLDERS} folders: the others are left out; name a folder further down")

    def _excluded_folders(self, subpath: str) -> tuple[str, ...]:
        """Return the names of folders without files of this job. Each experiment of a search, and the run with the best values, is a job of
        its own."""
        folder = os.path.join(self.top, subpath, folders.TUNE)
        if not any(os.path.lexists(os.path.join(folder, name)) for name in folders.OF_TUNE):
            return (folders.EVIDENCE,)
        where = os.path.join(subpath, folders.TUNE)
        also = f"the run with the best values ({folders.BEST})"
        self.trouble(f"{where}: experiments of a search are left out, and {also}; name the folder of one for its report")
        return (folders.EVIDENCE, folders.TUNE, folders.BEST)

    def _is_attempt(self, folder: str) -> bool:
        """Return True for a folder with files of an attempt, or with the name of one."""
        return any(os.path.lexists(os.path.join(folder, name)) for name in _OURS) or bool(_ATTEMPT.fullmatch(os.path.basename(folder)))

    def _node_files(self, place: Place, restart: int, subpath: str, names: list[str] | None, before: NodeEvents | None) -> NodeFiles:
        known = set(names or ())
        events, is_read = NodeEvents(before), names is not None
        if folders.EVENTS in known:
            is_read = self._feed_events(os.path.join(subpath, folders.EVENTS), events)
        verdict, round_ = (self.json_of(os.path.join(subpath, name)) if name in known else None for name in (self._verdict, folders.ROUND))
        return NodeFiles(
            place, restart, subpath,
            plan=checked.mapping(self._plan(os.path.join(subpath, folders.PLAN))) if folders.PLAN in known else NOTHING,
            verdict=checked.mapping(verdict), round=checked.mapping(round_), events=events,
            logs=frozenset(name for name in known if name.endswith((".log", ".txt"))),
            evidence=tuple(self._evidence(os.path.join(subpath, folders.EVIDENCE))) if folders.EVIDENCE in known else (),
            written=tuple(self._written([os.path.join(subpath, name) for name in sorted(known) if _TIMES.fullmatch(name)])),
            unread=not is_read or (self._verdict in known and verdict is None),
        )  # fmt: skip

    def _plan(self, subpath: str) -> Any:
        """Return a plan, None once all read plans exceed PLANS: plans of thousands of nodes are large and nearly equal."""
        size = self._plans + 1
        with contextlib.suppress(OSError):
            size = os.lstat(os.path.join(self.top, subpath)).st_size
        if size > self._plans:
            return None
        self._plans -= size
        return self.json_of(subpath, MOST_PLAN)

    def _evidence(self, subpath: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        for node in sorted(filter(_NODE.fullmatch, self._folders(subpath))):
            for number in sorted(filter(_NUMBER.fullmatch, self._folders(os.path.join(subpath, node))), key=int)[-6:]:
                folder = os.path.join(subpath, node, number)
                yield folder, tuple(sorted(self._names(folder) or ())[:MOST_FILES])

    def _names(self, subpath: str) -> list[str] | None:
        """Return the names in a folder. None if the folder cannot be read, with a trouble noted."""
        with self._noting_errors(subpath):
            return os.listdir(os.path.join(self.top, subpath))
        return None

    def _folders(self, subpath: str) -> list[str]:
        """Return the names of folders in a folder. Links are left out: a link may lead to its own folder."""
        with self._noting_errors(subpath), os.scandir(os.path.join(self.top, subpath)) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")]
        return []

    # Output

    def _written(self, files: Iterable[str]) -> Iterator[tuple[Point, ...]]:
        """Yield bytes of output by time, one series a file. A file that is too large is left out."""
        for subpath in files:
            written = Written()
            with self._noting_errors(subpath), self._open(subpath) as file:
                size = os.fstat(file.fileno()).st_size
                if size > self._times:
                    self.trouble(f"{subpath}: {size >> 20} MB, and left out: the plot of output lacks these ranks")
                    continue
                self._times -= size
                written.feed_all(file.read(BLOCK) for _ in range(0, size, BLOCK))
            yield tuple(written.points)

    # Events

    def _feed_events(self, subpath: str, events: NodeEvents) -> bool:
        """Read events.jsonl into `events`, of a large file the beginning and the end. Return False if it could not be read."""
        with self._noting_errors(subpath), self._open(subpath) as file:
            size = os.fstat(file.fileno()).st_size
            most = max(LEAST_EVENTS, min(size, self._events // 2))
            self._events -= min(size, most)
            if size > most:
                _feed_lines(file, most // 2, events)
                file.seek(size - most // 2)
                file.readline(MOST_LINE)
                self.trouble(f"{subpath}: {size >> 20} MB; of that, the first and the last {most // 2 >> 20} MB were read")
            _feed_lines(file, size, events)
            events.finish()
            return True
        return False


def _is_verdict(data: Any) -> bool:
    return isinstance(data, dict) and "outcome" in data and "exit_code" in data


def _feed_lines(file: BinaryIO, end: int, events: NodeEvents) -> None:
    """Feed the lines up to offset `end`. A line longer than MOST_LINE is no event: it counts once as spoilt."""
    remaining, in_long_line = end - file.tell(), False
    while remaining > 0 and (line := file.readline(MOST_LINE)):
        remaining -= len(line)
        ended = line.endswith(b"\n")
        if in_long_line or (len(line) == MOST_LINE and not ended):
            events.spoilt += not in_long_line
            in_long_line = not ended
        elif line.strip():
            events.feed(line)


def _numbers(parts: list[str]) -> tuple[int | None, int | None, str]:
    """Return (node, attempt, job) by the names of some folders."""
    node, attempt, job = (
        ([match[1] for match in map(pattern.fullmatch, parts) if match] or [""])[-1] for pattern in (_NODE, _ATTEMPT, _JOB)
    )
    return int(node) if node else None, int(attempt) if attempt else None, job
