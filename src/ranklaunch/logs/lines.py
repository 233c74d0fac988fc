"""Reader of complete lines from a log that is read in parts; a part may end within a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

CHUNK = 1024 * 1024
LONGEST_LINE = 8 * 1024 * 1024  # a longer line is shown in pieces, to bound memory
NEAR = 64 * 1024  # an incomplete line up to this length is read again with the next block


class Log:
    """Reader of the lines of one log.

    read: returns the bytes from one offset to another, fewer at the end. ahead: returns the number
    of bytes to read ahead for small parts. at: offset behind the returned lines. short: the log has
    fewer bytes than its times say.
    """

    def __init__(self, read: Callable[[int, int], bytes], ahead: Callable[[], int]) -> None:
        self.at = 0
        self.short = False
        self._read = read
        self._looked = 0  # offset up to which the line that begins at `at` was searched for its end
        self._ahead = ahead
        self._block = b""
        self._block_at = 0

    def quick(self, end: int) -> bytes:
        """Return the lines of a small part with complete lines, the usual case; b"" for any other
        part, which needs upto()."""
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
        """Yield blocks of complete lines up to an offset. A line that ends behind the offset is left
        for later."""
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
        """Skip the lines that end before an offset. Only the beginning of the next line is read."""
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
        """Return the incomplete last line of a log, with a line end added; b"" for none."""
        begun = self._begun(self._looked)
        self.at = self._looked
        return begun + b"\n" if begun else b""

    def again(self) -> None:
        """Start again at offset 0: the log was emptied."""
        self.at = self._looked = self._block_at = 0
        self._block = b""

    def _piece(self) -> bytes:
        """Return the first piece of a line that is too long."""
        data = self._read(self.at, self.at + LONGEST_LINE)
        cut = _character_start(data) if len(data) == LONGEST_LINE else LONGEST_LINE
        self.at += cut
        return data[:cut] + b"\n"

    def _begun(self, end: int) -> bytes:
        return self._read(self.at, end) if end > self.at else b""


def _character_start(data: bytes) -> int:
    """Return the last offset in a block that does not cut a UTF-8 character."""
    for back in range(1, 4):
        if data[-back] & 0xC0 == 0xC0:
            return len(data) - back
        if data[-back] & 0x80 == 0:
            break
    return len(data)
