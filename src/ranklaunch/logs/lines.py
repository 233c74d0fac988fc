"""From parts of a raw log, which may end within a line, to its whole lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

CHUNK = 1024 * 1024
LONGEST_LINE = 8 * 1024 * 1024  # what is longer is shown in pieces: memory is bounded, as on the console
NEAR = 64 * 1024  # a line that began so far back is read once more, rather than kept


class Log:
    """read: bytes of it from one offset to another, fewer where there are no more. at: how far its lines have been given. short: it has
    less than it is said to have. ahead: so many bytes are read before they are asked for, where parts are small."""

    def __init__(self, read: Callable[[int, int], bytes], ahead: Callable[[], int] = lambda: 0) -> None:
        self.at = 0
        self.short = False
        self._read = read
        self._looked = 0  # up to here, the line that begins at `at` has no end
        self._ahead = ahead
        self._block = b""
        self._block_at = 0

    def quick(self, end: int) -> bytes:
        """As upto, of a small part that ends with a line and begins with one, as most do; empty where it is another."""
        begin = self.at - self._block_at
        if end - self._block_at > len(self._block) or begin < 0:
            ahead = self._ahead()
            if end - self.at > ahead:
                return b""
            self._block, self._block_at, begin = self._read(self.at, self.at + ahead), self.at, 0
        data = self._block[begin : end - self._block_at]
        if self._looked > self.at or data[-1:] != b"\n" or len(data) != end - self.at:
            return b""
        self.at = self._looked = end
        return data

    def upto(self, end: int) -> Iterator[bytes]:
        """Blocks of whole lines, each line where its end has come by then."""
        while self._looked < end:
            begin = self.at if self._looked - self.at < NEAR else self._looked
            data = self._read(begin, min(end, self._looked + CHUNK))
            if begin + len(data) <= self._looked:
                self.short = True
                return
            cut = data.rfind(b"\n", self._looked - begin) + 1
            if cut:
                yield self._begun(begin) + data[:cut] if begin > self.at else data[:cut]
                self.at = begin + cut
            self._looked = begin + len(data)
            while self._looked - self.at > LONGEST_LINE:
                yield self._piece()

    def skip(self, end: int) -> None:
        """Pass over the lines that have ended by then, unread but for the begin of the next one."""
        if end <= self._looked:
            return
        begin, cut = end, 0
        while begin > self.at and not cut:
            until, begin = begin, max(self.at, begin - NEAR)
            cut = self._read(begin, until).rfind(b"\n") + 1
        self.at, self._looked = begin + cut, end
        while self._looked - self.at > LONGEST_LINE:
            self._piece()

    def last(self) -> bytes:
        """The line that has begun and will not end, with an end."""
        begun = self._begun(self._looked)
        self.at = self._looked
        return begun + b"\n" if begun else b""

    def again(self) -> None:
        """It was emptied, and begins anew."""
        self.at = self._looked = self._block_at = 0
        self._block = b""

    def _piece(self) -> bytes:
        """Of a line that is too long."""
        data = self._read(self.at, self.at + LONGEST_LINE)
        cut = _character_start(data) if len(data) == LONGEST_LINE else LONGEST_LINE
        self.at += cut
        return data[:cut] + b"\n"

    def _begun(self, end: int) -> bytes:
        return self._read(self.at, end) if end > self.at else b""


def _character_start(data: bytes) -> int:
    """The nearest place at or before the end where a UTF-8 character may be cut."""
    for back in range(1, 4):
        if data[-back] & 0xC0 == 0xC0:
            return len(data) - back
        if data[-back] & 0x80 == 0:
            break
    return len(data)
