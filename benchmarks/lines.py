"""Numbered lines that ranks write fast, and the count of lines that did not arrive as written.

A line has 100 bytes: its rank, its block, its number in the block, and a filling. The check makes the same block again.
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
    """Return a block of a rank, with NUMBER in place of its number."""
    starts = (b"w%02d %s %03d " % (rank, NUMBER, line) for line in range(BLOCK_LINES))
    return b"".join(start.ljust(LINE - 1, b".") + b"\n" for start in starts)


def block(lines: bytes, number: int) -> bytes:
    """Return a template with a number. One replace in C, so that the writer is faster than the reader under test."""
    return lines.replace(NUMBER, b"%08d" % number)


def wrong(paths: Iterable[Path], ranks: int, blocks: int) -> int:
    """Return the number of lines that are missing, torn, repeated or out of order within their rank, in files that together should
    have each line once. Text before a line in its file is a tag."""
    checks = [_RankCheck(template(rank)) for rank in range(ranks)]
    for line in _lines(paths):
        body = line[-LINE:]
        if body[:1] == b"w" and body[1:3].isdigit() and int(body[1:3]) < ranks:
            checks[int(body[1:3])].take(body)
    return sum(each.wrong(blocks * BLOCK_LINES) for each in checks)


class _RankCheck:
    """Check of the lines of one rank. Counts all lines, and the correct ones: whole, and in order."""

    def __init__(self, lines: bytes) -> None:
        self._lines = lines
        self._waiting: list[bytes] = []
        self._last = -1
        self._count = self._correct = 0

    def take(self, body: bytes) -> None:
        self._count += 1
        self._waiting.append(body)
        if len(self._waiting) == BLOCK_LINES:
            self._compare()

    def wrong(self, expected: int) -> int:
        """Return the number of missing or surplus lines. A line out of order counts as wrong."""
        self._compare()
        return max(expected, self._count) - self._correct

    def _compare(self) -> None:
        """Compare the waiting lines: a whole block at once, and a block with an error line by line."""
        lines, self._waiting = self._waiting, []
        if b"".join(lines) == block(self._lines, (self._last + 1) // BLOCK_LINES):
            self._last += BLOCK_LINES
            self._correct += BLOCK_LINES
            return
        for body in lines:
            number = self._number(body)
            if number > self._last:
                self._last = number
                self._correct += 1

    def _number(self, body: bytes) -> int:
        """Return the number of a line in its rank's output, -1 for a damaged line."""
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
    """Return all files in a launcher's folder that have output of a rank, wherever the launcher writes them; Open MPI's have tags too."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink() and _has_lines(path)]


def _has_lines(path: Path) -> bool:
    with path.open("rb") as file:
        return bool(re.search(rb"w\d\d \d{8} \d{3} \.", file.read(2 * LINE)))
