"""Reader of times_<node>, the times of the parts of a folder's logs (format: ranklaunch.verdict.folders). The file may be cut, damaged or
forged: impossible lines are left out, and no byte of a log has two times."""

from __future__ import annotations

from typing import NamedTuple

LONGEST = 512  # bytes of a line
MOST_LOGS = 65536
MOST_END = 1 << 62
LATEST = 1 << 52  # microseconds since 1970: of a hundred years from now
LOG = ".log"


class Part(NamedTuple):
    """Part of a log, up to offset `end`. at: time of reading, in microseconds since 1970."""

    at: int
    name: str
    end: int


class Times:
    """Parser of times_<node>, fed with blocks that are cut anywhere. ends: last offset of each log. at: the latest time. wrong: number of
    invalid lines."""

    def __init__(self) -> None:
        self.ends: dict[str, int] = {}
        self.at = 0
        self.wrong = 0
        self._names: dict[int, str] = {}
        self._begun = b""  # the incomplete last line
        self._skips = False  # True within a line that is too long
        self._late: dict[str, int] = {}  # offsets of logs that were read without times: times up to there come too late

    def feed(self, data: bytes) -> list[Part]:
        """Return the parts of the lines that are complete now."""
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
        """Return the part of a log up to `end`, not earlier than the last part."""
        self.ends[name] = end
        self.at = max(self.at, at)
        return Part(self.at, name, end)

    def go_on_from(self, name: str, end: int) -> None:
        """Set the offset up to which a log was read without times."""
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
        """Note the number of a log. Only names of logs in the same folder are valid."""
        text = name.decode(errors="surrogateescape")
        if "/" in text or "\0" in text or not text.endswith(LOG) or len(self._names) >= MOST_LOGS:
            self.wrong += 1
        else:
            self._names[number] = text
