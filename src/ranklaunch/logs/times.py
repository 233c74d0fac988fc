"""When each part of a folder's logs came, as its times_<node> tells (ranklaunch.verdict.folders). Such a file may be cut, damaged or made
up: what could not be true is left out, and no byte of a log is ever told of twice."""

from __future__ import annotations

from typing import NamedTuple

LONGEST = 512  # bytes of a line
MOST_LOGS = 65536
MOST_END = 1 << 62
LATEST = 1 << 52  # microseconds since 1970: of a hundred years from now
LOG = ".log"


class Part(NamedTuple):
    """A log has come as far as this, at so many microseconds since 1970."""

    at: int
    name: str
    end: int


class Times:
    """Reader of such a file, fed with pieces cut anywhere. ends: position reached by each log. at: the latest time. wrong: lines with
    nothing possibly true."""

    def __init__(self) -> None:
        self.ends: dict[str, int] = {}
        self.at = 0
        self.wrong = 0
        self._names: dict[int, str] = {}
        self._begun = b""
        self._skips = False  # the rest of a line that is too long
        self._late: dict[str, int] = {}  # how far what comes now comes too late to count

    def feed(self, data: bytes) -> list[Part]:
        *lines, begun = (self._begun + data).split(b"\n")
        if lines and self._skips:
            del lines[0]
            self._skips = False
        if len(begun) > LONGEST:
            self.wrong += not self._skips
            self._skips, begun = True, b""
        self._begun = begun
        return [part for line in lines if (part := self._part(line))]

    def reach(self, name: str, end: int, at: int) -> Part:
        """Return a log's part up to `end`, even if unrecorded; no sooner than the last part."""
        self.ends[name] = end
        self.at = max(self.at, at)
        return Part(self.at, name, end)

    def go_on_from(self, name: str, end: int) -> None:
        """The log was read as far as this without a time."""
        self.ends[name] = self._late[name] = end

    def _part(self, line: bytes) -> Part | None:
        try:
            first, second, third = line[:LONGEST].split(b" ", 2)
            if first == b"f":
                self._name(int(second), third)
                return None
            name, end, at = self._names[int(first)], int(second), int(third)
        except (ValueError, KeyError):
            self.wrong += 1
            return None
        if 0 < end <= self._late.get(name, 0):
            return None
        if not self.ends.get(name, 0) < end < MOST_END or not 0 < at < LATEST:
            self.wrong += 1
            return None
        return self.reach(name, end, at)

    def _name(self, number: int, name: bytes) -> None:
        """Of a log in the same folder, and nothing else."""
        text = name.decode(errors="surrogateescape")
        if "/" in text or "\0" in text or not text.endswith(LOG) or len(self._names) >= MOST_LOGS:
            self.wrong += 1
        else:
            self._names[number] = text
