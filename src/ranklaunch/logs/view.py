"""Display of pieces of logs: all of them, or the last lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from ranklaunch.logs import shown
from ranklaunch.logs.merging import Job, Piece
from ranklaunch.logs.shown import Look

LEAST_PIECES = 1000  # last pieces that are searched for the last lines
MORE_PIECES = 8  # factor for the next search, if these have too few lines


class View:
    """View of a job's pieces as text. job: the job, set before the first piece."""

    def __init__(self, look: Look) -> None:
        self.job: Job | None = None
        self._look = look
        self._tags: dict[tuple[str, str, bool], bytes] = {}

    def all(self, pieces: Iterable[Piece | None]) -> Iterator[bytes]:
        """Yield the lines of pieces; b"" for None, to show the lines so far."""
        for piece in pieces:
            yield from self._lines(piece) if piece else (b"",)

    def _lines(self, piece: Piece) -> Iterator[bytes]:
        (at, name, end), each, node, restart, whole = piece
        several = bool(self.job and self.job.is_of_several)
        key = each.path, name, several
        if key not in self._tags:
            shown_node = node if several else None
            self._tags[key] = shown.tag(name, shown_node, restart, self._look.colours)
        log = each.log(name)
        quick = log.quick(end)
        for lines in (quick,) if quick else log.upto(end):
            yield self._look.block(lines, self._tags[key], at)
        last = log.last() if whole else b""
        if last:
            yield self._look.block(last, self._tags[key], at)

    def tail(self, make: Callable[[], Iterator[Piece | None]], lines: int) -> Iterator[bytes]:
        """Yield the last lines of the present pieces, then the lines of all later pieces.

        Only the last pieces are read. If they have too few lines, `make` returns the pieces again, and more of them are read.
        """
        most = max(LEAST_PIECES, 2 * lines)
        while True:
            pieces = make()
            kept, is_all = _last(pieces, most)
            blocks, count = _last_lines(self.all(kept), lines)
            if count >= lines or is_all:
                break
            most *= MORE_PIECES
        if count > lines:
            blocks[0] = blocks[0].split(b"\n", count - lines)[-1]
        yield from blocks
        yield b""
        yield from self.all(pieces)


def _last(pieces: Iterator[Piece | None], most: int) -> tuple[deque[Piece], bool]:
    """Return the last present pieces, and True if these are all pieces."""
    kept: deque[Piece] = deque()
    is_all = True
    for piece in pieces:
        if piece is None:
            break
        kept.append(piece)
        if len(kept) > most:
            kept.popleft().skip()
            is_all = False
    return kept, is_all


def _last_lines(blocks: Iterable[bytes], lines: int) -> tuple[deque[bytes], int]:
    """Return the blocks with the last lines, and the number of lines in them."""
    kept: deque[bytes] = deque()
    count = 0
    for block in blocks:
        kept.append(block)
        count += block.count(b"\n")
        while kept and count - kept[0].count(b"\n") >= lines:
            count -= kept.popleft().count(b"\n")
    return kept, count
