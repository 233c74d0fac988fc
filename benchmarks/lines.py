"""Numbered lines that ranks write fast, and how many of them did not arrive as they were written.

A line has 100 bytes: its rank, its block, its number in the block, and a filling. Whoever checks it makes the same block again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

LINE = 100
BLOCK_LINES = 640
BLOCK = LINE * BLOCK_LINES
NUMBER = b"NNNNNNNN"
READ = 1 << 20


def template(rank: int) -> bytes:
    """A block of a rank, before it has its number."""
    begun = (b"w%02d %s %03d " % (rank, NUMBER, line) for line in range(BLOCK_LINES))
    return b"".join(line.ljust(LINE - 1, b".") + b"\n" for line in begun)


def block(lines: bytes, number: int) -> bytes:
    """One pass in C: whoever reads is to be the slower one."""
    return lines.replace(NUMBER, b"%08d" % number)


def wrong(paths: Iterable[Path], ranks: int, blocks: int) -> int:
    """Lines that are missing, torn, repeated or out of order within their rank, in files that together should have all of it
    once. Whatever stands before a line in its file is a tag."""
    right = [_Right(template(rank)) for rank in range(ranks)]
    for line in _lines(paths):
        body = line[-LINE:]
        if body[:1] == b"w" and body[1:3].isdigit() and int(body[1:3]) < ranks:
            right[int(body[1:3])].take(body)
    return sum(each.wrong(blocks * BLOCK_LINES) for each in right)


class _Right:
    """Counts the lines of one rank, and those among them that are whole and come after those that belong before them."""

    def __init__(self, lines: bytes) -> None:
        self._lines = lines
        self._waiting: list[bytes] = []
        self._last = -1
        self._seen = self._count = 0

    def take(self, body: bytes) -> None:
        self._seen += 1
        self._waiting.append(body)
        if len(self._waiting) == BLOCK_LINES:
            self._look()

    def wrong(self, expected: int) -> int:
        """Those that are missing, or those that are too many: a line that is out of order is both."""
        self._look()
        return max(expected, self._seen) - self._count

    def _look(self) -> None:
        """A whole block in one comparison; one that is not as it should be, line by line."""
        found, self._waiting = self._waiting, []
        if b"".join(found) == block(self._lines, (self._last + 1) // BLOCK_LINES):
            self._last += BLOCK_LINES
            self._count += BLOCK_LINES
            return
        for body in found:
            number = self._number(body)
            if number > self._last:
                self._last = number
                self._count += 1

    def _number(self, body: bytes) -> int:
        """-1 where it is not what it was."""
        try:
            number, line = int(body[4:12]), int(body[13:16])
        except ValueError:
            return -1
        whole = line < BLOCK_LINES and body == self._lines[line * LINE : (line + 1) * LINE].replace(NUMBER, b"%08d" % number)
        return number * BLOCK_LINES + line if whole else -1


def _lines(paths: Iterable[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb", READ) as file:
            yield from file


def files_of_ranks(folder: Path) -> list[Path]:
    """Those below a launcher's folder that a rank's output is in, wherever the launcher puts them; Open MPI's have tags too."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink() and _has_lines(path)]


def _has_lines(path: Path) -> bool:
    with path.open("rb") as file:
        return bool(re.search(rb"w\d\d \d{8} \d{3} \.", file.read(2 * LINE)))
