"""Reader of the logs in one folder, part by part in the order of their times. The number of open
descriptors is bounded."""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial

from ranklaunch.logs import search
from ranklaunch.logs.lines import Log
from ranklaunch.logs.times import LOG, Part, Times
from ranklaunch.system import disk

MOST_OPEN = 512  # logs at a time
SPARE = 8  # descriptors kept free for other files
CHUNK = 256 * 1024  # bytes read at once from a file of times
LEAST_CHUNK = 4096
MOST_AHEAD, ALL_AHEAD = 64 * 1024, 16 * 1024 * 1024  # bytes kept of one log; of all logs
ALL_CHUNKS = 8 * 1024 * 1024  # bytes of all files of times that are read side by side
_TIME = re.compile(rb"^[0-9]+ [0-9]+ ([0-9]{1,16})\n", re.MULTILINE)
SILENT_S = 2.0  # a log has no times if it grows for this long without a new time


class Files:
    """Reader of logs by path. The last read logs stay open. say: reports unreadable logs. logs:
    number of all logs."""

    def __init__(self, say: Callable[[str], None], most: int = MOST_OPEN) -> None:
        self.logs = 0
        self._say = say
        self._most = most
        self._open: OrderedDict[str, int] = OrderedDict()

    def read(self, path: str, begin: int, end: int) -> bytes:
        """Return the bytes of a file between two offsets; b"" if the path is no readable file."""
        try:
            fd = self._open.get(path)
            if fd is None:
                fd = self._opened(path)
            else:
                self._open.move_to_end(path)
            return os.pread(fd, max(0, end - begin), begin)
        except disk.NotRegularError as error:
            self._say(f"{path} is {error.kind}, not a log: it is not read")
        except OSError as error:  # another account's file, a dead mount
            self._say(f"{path}: {error.strerror}")
        return b""

    def ahead(self) -> int:
        """Return the bytes of each log that may be kept in memory."""
        return max(LEAST_CHUNK, min(MOST_AHEAD, ALL_AHEAD // (self.logs or 1)))

    def _opened(self, path: str) -> int:
        while len(self._open) >= self._most:
            self._close_oldest()
        while True:
            try:
                fd = self._open[path] = disk.own(path)
                return fd
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._open:
                    raise
            for _ in range(min(SPARE, len(self._open))):
                self._close_oldest()
            self._most = max(1, len(self._open))

    def _close_oldest(self) -> None:
        os.close(self._open.popitem(last=False)[1])


def edges(path: str) -> Iterator[float]:
    """Yield times of the first and the last lines of logs in a folder, in seconds since 1970; without
    times, the mtime of each file."""
    blocks = [block for each in search.times(path) for block in _ends(each)]
    times = [int(at) / 1e6 for block in blocks for at in _TIME.findall(block)]
    yield from times
    for name in search.names(path) if not times else ():
        with contextlib.suppress(OSError):
            yield os.lstat(os.path.join(path, name)).st_mtime


def _ends(path: str) -> Iterator[bytes]:
    """Yield the first and the last bytes of a file."""
    try:
        fd = disk.own(path)
    except (OSError, disk.NotRegularError):
        return
    with open(fd, "rb") as file:
        yield file.read(LEAST_CHUNK)
        file.seek(max(0, os.fstat(fd).st_size - LEAST_CHUNK))
        yield file.read(LEAST_CHUNK)


class Source:
    """File of times, read block by block."""

    def __init__(self, path: str) -> None:
        self.times = Times()
        self._path = path
        self._at = 0

    def read(self, most: int) -> tuple[list[Part], bool]:
        """Return the next parts, and True if there may be more."""
        try:
            fd = disk.own(self._path)
        except (OSError, disk.NotRegularError):
            return [], False
        try:
            data = os.pread(fd, most, self._at)
        except OSError:
            return [], False
        finally:
            os.close(fd)
        self._at += len(data)
        return self.times.feed(data), len(data) == most


class Round:
    """Logs of one start of a node's ranks. wanted: returns True for the name of a wanted log.
    side_by_side: number of folders that are read together. say: reports problems."""

    def __init__(self, path: str, wanted: Callable[[str], bool], files: Files, say: Callable[[str], None], side_by_side: int = 1) -> None:
        self.path = path
        self._wanted = wanted
        self._files = files
        self._say = say
        self._chunk = max(LEAST_CHUNK, min(CHUNK, ALL_CHUNKS // side_by_side))
        self._sources: dict[str, Source] = {}
        self._logs: dict[str, Log] = {}
        self._last_at: dict[str, int] = {}
        self._silent: dict[str, tuple[int, float]] = {}  # logs longer than their times: offset of the last time, and since when
        self._skipped: dict[str, int] = {}  # offset up to which a log is skipped

    def timed(self) -> Iterator[Part]:
        """Yield the parts with times up to now."""
        for path in search.times(self.path):
            self._sources.setdefault(path, Source(path))
        streams = [self._parts(source) for source in self._sources.values()]
        for part in streams[0] if len(streams) == 1 else heapq.merge(*streams):
            if self._wanted(part.name):
                self._last_at[part.name] = part.at
                yield part

    def rest(self) -> list[Part]:
        """Return the parts without times, one for each log, in the order of the last writes. Each
        reaches to the end of its log, also within a line."""
        self._judge()
        parts = []
        for name, size, at in self._sizes():
            known = self._known(name)
            if size > known:
                parts.append(Part(max(at, self._last_at.get(name, 0)), name, size))
            elif size > self.log(name).at:
                parts.append(Part(self._last_at.get(name, at), name, size))
        return sorted(parts)

    def grown(self, now: float) -> list[Part]:
        """Return new parts of logs that grow without times; their time is `now`, in seconds since
        1970."""
        parts = []
        for name, size, _ in self._sizes():
            known = self._known(name)
            if size < self.log(name).at:
                self._say(f"{os.path.join(self.path, name)} was emptied; it is shown from its new beginning on")
                self.log(name).again()
                self._reach(name, 0)
            elif size <= known:
                self._silent.pop(name, None)
            elif self._silent.get(name, (-1, now))[0] != known:  # times may be a little behind a log that is growing
                self._silent[name] = (known, now)
            elif now - self._silent[name][1] >= SILENT_S:
                self._reach(name, size)
                parts.append(Part(int(now * 1e6), name, size))
        return parts

    def log(self, name: str) -> Log:
        if name not in self._logs:
            path = os.path.join(self.path, name)
            self._logs[name] = Log(partial(self._files.read, path), self._files.ahead)
            self._files.logs += 1
        if name in self._skipped:
            self._logs[name].skip(self._skipped.pop(name))
        return self._logs[name]

    def skip(self, name: str, end: int) -> None:
        """Skip the lines of a log that end before an offset."""
        self._skipped[name] = end

    def _parts(self, source: Source) -> Iterator[Part]:
        more = True
        while more:
            parts, more = source.read(self._chunk)
            yield from parts

    def _known(self, name: str) -> int:
        """Return the offset up to which a log has times."""
        return max((source.times.ends.get(name, 0) for source in self._sources.values()), default=0)

    def _reach(self, name: str, end: int) -> None:
        for source in self._sources.values():
            source.times.go_on_from(name, end)
        if not self._sources:
            self._sources[""] = Source("")
            self._reach(name, end)

    def _sizes(self) -> Iterator[tuple[str, int, int]]:
        """Yield name, size and time of the last write (microseconds since 1970) of each wanted
        log."""
        for name in sorted(each for each in search.names(self.path) if each.endswith(LOG) and self._wanted(each)):
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(self.path, name))
                yield name, status.st_size, status.st_mtime_ns // 1000

    def _judge(self) -> None:
        wrong = sum(source.times.wrong for source in self._sources.values())
        if wrong:
            self._say(f"{self.path}: {wrong} lines of its times_* are invalid and left out")
        logs = list(self._sizes())
        untimed = sum(max(0, size - self._known(name)) for name, size, _ in logs)
        short = [name for name, size, _ in logs if size < self._known(name)]
        if untimed and not any(self._known(name) for name, _, _ in logs):
            self._say(f"{self.path}: its logs have no times: lines are shown log by log, in the order of the logs' last writes")
        elif untimed:
            self._say(f"{self.path}: the last {untimed} bytes of its logs have no times: they are shown log by log")
        if short:
            self._say(f"{self.path}: {', '.join(short[:5])}{' ...' if short[5:] else ''}: shorter than its times say; a part is missing")
