"""Output of one rank: raw into its files, whole lines with a tag to the console, and its tail
kept for the verdict. Arrival times of each part of the files are in a file beside them."""

from __future__ import annotations

import errno
import fcntl
import functools
import os
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Protocol

from ranklaunch.showing import with_returns_told
from ranklaunch.system import disk
from ranklaunch.system.loop import Loop
from ranklaunch.verdict import folders

READ = 256 * 1024
TURN = 64 * 1024  # once the console was too slow: the smaller the turns, the sooner each rank has its own
PIPE = 1024 * 1024
HEAP = 4 * 1024 * 1024
F_SETPIPE_SZ = 1031
TAIL = 32 * 1024  # bytes kept for the verdict
LONGEST_LINE = 8 * 1024 * 1024  # a line beyond this is shown in pieces: memory is bounded, and its rank is not the only one
BAR_S = 5.0  # a progress bar that redraws itself with carriage returns is shown so often, so long after it stops, and when it is done


class Output:
    """feed() takes bytes as they come, cut anywhere; store() does not show them; finish() shows a last
    line without its newline.

    show: takes whole lines, in one piece or several: joining a block costs as much as writing one.
    on_first: called at the first bytes. after: sets a timer. times: keeps the arrival times of the
    first file. aloud: shows lines that no file takes any more, also while other lines are hidden.
    written_at: time of the last bytes. taken: bytes in all. unshown: lines since hush() or fold().
    heard: called after each block. step_reader: reads steps from the output, once somebody asks for
    them.
    """

    def __init__(
        self,
        paths: tuple[str, ...],
        tag: str,
        show: Callable[..., None],
        clock: Callable[[], float],
        on_trouble: Callable[[str], None],
        on_first: Callable[[], object] | None = None,
        after: Callable[[float, Callable[[], None]], object] | None = None,
        times: Times | None = None,
        aloud: Callable[..., None] | None = None,
    ) -> None:
        self.written_at: float | None = None
        self.taken = self.unshown = 0
        self.heard: Callable[[], None] | None = None
        self.step_reader: Any = None  # ranklaunch.hangs.steps.StepReader
        self._after = after
        self.tag = tag.encode(errors="surrogateescape")
        self.tail = b""
        self._show_lines = show
        self._show_aloud = aloud or show
        self.clock = clock
        self._on_trouble = on_trouble
        self._on_first = on_first
        self._line = bytearray()  # begun, not ended
        self._bar_shown = -BAR_S
        self._bar = False  # whether the line that has begun redraws itself
        self._ahead = b""  # what of it has not been fed yet
        self._drawn_at = 0.0
        self._looks = False
        self._stood = b""  # its state that was shown because it had stopped
        self._folded: Callable[..., None] | None = None  # shows lines again, once they are folded
        self._folded_at = 0  # bytes taken by then
        self.path = paths[0] if paths else ""
        self._files = [(path, disk.append(path)) for path in paths]
        self._timed = times.of(*self._files[0]) if times and self._files else None

    def feed(self, data: bytes) -> None:
        self.store(data)
        self._ahead = b""
        self._show(data)

    def draws(self, ahead: bytes) -> None:
        """Take the state of a progress bar that is in the file and may still change before it is
        fed."""
        if self._bar and ahead != self._ahead:
            self._ahead = ahead
            self._look_later()

    def hush(self) -> None:
        """Write further lines to the files alone, as long as a file takes them."""
        self._show_lines = self._count

    def fold(self) -> None:
        """Write further lines to the files alone, until unfold()."""
        if not self._folded and self._files:
            self._folded = self._show_lines
            self._folded_at = self.taken - (0 if self._bar else len(self._line))
            self.hush()

    def unfold(self) -> int:
        """Show what was folded, at most the last TAIL bytes, and what comes from here on. Return the number of lines before these."""
        if not self._folded:
            return 0
        self._show_lines, self._folded = self._folded, None
        lines, self.unshown = self.unshown, 0
        size = self.taken - self._folded_at
        kept = self.tail[-size:] if size else b""
        if size > len(self.tail):
            kept = kept.partition(b"\n")[2]
        self._line.clear()
        self._bar, self._stood = False, b""
        self._show(kept)
        if not self._files:
            self.end_line()
        return max(0, lines - kept.count(b"\n")) if size > len(self.tail) else 0

    def hide_stacks(self) -> None:
        """Show no further stacks of Python that SIGABRT brings: ranklaunch is about to send it. The files get them."""
        from ranklaunch.output.abort_stacks import WithoutStacks  # few stops need it

        self._show_lines = WithoutStacks(self._show_lines, self.tag)
        self._folded = self._folded and WithoutStacks(self._folded, self.tag)

    def store(self, data: bytes) -> None:
        self.written_at = self.clock()
        self.taken += len(data)
        if self._on_first:
            self._on_first()
            self._on_first = None
        for path, fd in list(self._files):
            self._store(path, fd, data)
        if self._timed:
            self._timed(len(data), self.written_at)
        self.tail = data[-TAIL:] if len(data) >= TAIL else (self.tail + data)[-TAIL:]
        if self.heard:
            self.heard()

    def end_line(self) -> None:
        """Show the line that has begun: later bytes are no part of it."""
        if self._line and _last_drawn(self._line) != self._stood:
            self._show_lines(self.tag + _last_drawn(self._line) + b"\n")
        self._line.clear()
        self._bar, self._stood = False, b""

    def finish(self) -> None:
        self.end_line()
        for _, fd in self._files:
            os.close(fd)
        self._files = []

    def _store(self, path: str, fd: int, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(fd, view) :]
        except OSError as error:
            self._files.remove((path, fd))
            os.close(fd)
            self._timed = None
            if not self._files:
                self._show_lines, self._folded = self._show_aloud, None
            full = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else os.strerror(error.errno or 0)
            self._on_trouble(f"cannot write {path}: {full}; its lines go to the console only from here on")

    def _show(self, data: bytes) -> None:
        if len(self._line) + len(data) > LONGEST_LINE:
            data = self._cut_long_line(data)
        if b"\r" in data or self._bar:
            self._show_bars(data)
            return
        ended = data.rfind(b"\n") + 1
        if ended:
            # One pass in C over a whole block of lines, however many there are; the last tag is that of the line that has begun.
            tagged = memoryview(data.replace(b"\n", b"\n" + self.tag))
            whole = tagged[: len(tagged) - len(self.tag) - (len(data) - ended)]
            self._show_lines(self.tag + self._line, whole)
            self._line = bytearray(data[ended:])
        else:
            self._line += data

    def _show_bars(self, data: bytes) -> None:
        """Show a progress bar: its last state, and now and then a state before."""
        data = with_returns_told((self._line + data).decode("latin-1")).encode("latin-1")
        *ended, line = data.replace(b"\r\n", b"\n").split(b"\n")
        if ended:
            first = 1 if self._stood and _last_drawn(ended[0]) == self._stood else 0  # it has been shown as it is
            if ended[first:]:
                self._show_lines(b"".join([self.tag + _last_drawn(whole) + b"\n" for whole in ended[first:]]))
            self._bar, self._stood = False, b""
        drawn = [state for state in line.split(b"\r") if state]
        now = self.clock()
        if len(drawn) > 1 and now - self._bar_shown >= BAR_S and drawn[-2] != self._stood:
            self._bar_shown = now
            self._show_lines(self.tag + drawn[-2] + b"\n")
        self._line = bytearray((drawn[-1] if drawn else b"") + (b"\r" if line.endswith(b"\r") else b""))
        self._bar |= b"\r" in line
        if self._bar:
            self._look_later()

    def _look_later(self) -> None:
        self._drawn_at = self.clock()
        if self._after and not self._looks:
            self._looks = True
            self._after(BAR_S, self._look)

    def _look(self) -> None:
        """Show the state of a progress bar that has stopped."""
        self._looks = False
        left = self._drawn_at + BAR_S - self.clock()
        state = bytes(_last_drawn(self._ahead or self._line)) if self._bar else b""
        if self._bar and left > 0 and self._after:
            self._looks = True
            self._after(left, self._look)
        elif state and state != self._stood:
            self._stood, self._bar_shown = state, self.clock()
            self._show_lines(self.tag + state + b"\n")

    def _count(self, *lines: bytes | memoryview) -> None:
        if not self._files:  # a full disk: nobody else would have them
            self._show_aloud(*lines)
            return
        self.unshown += b"".join(lines).count(b"\n")

    def _cut_long_line(self, data: bytes) -> bytes:
        """Show the begun line as far as it is too long, and return the rest of data. So a line is cut by its length alone, and not
        by the arriving blocks."""
        ends = (data.find(b"\n"), data.find(b"\r"), len(data))
        end = min(at for at in ends if at >= 0)
        self._line += data[:end]
        while len(self._line) > LONGEST_LINE:
            cut = _character_start(self._line, LONGEST_LINE)
            self._show_lines(self.tag + self._line[:cut] + b"\n")
            del self._line[:cut]
        return data[end:]


def joined(*parts: bytes) -> bytes:
    """Join outputs, each from the beginning of a line, and return the last TAIL bytes."""
    text = b""
    for part in filter(None, parts):
        text += part if not text or text.endswith((b"\n", b"\r")) else b"\n" + part
    return text[-TAIL:]


def _last_drawn(line: bytes | bytearray) -> bytes | bytearray:
    """Return the state of a redrawn line that a terminal would show: the last one that is not
    empty."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _character_start(data: bytearray, cut: int) -> int:
    """Return the nearest place at or before cut where a UTF-8 character starts."""
    for back in range(4):
        if data[cut - back] & 0xC0 != 0x80:
            return cut - back
    return cut


class Sink(Protocol):
    """Taker of the output of a process: an Output, or a Demux that parts it into several."""

    @property
    def tail(self) -> bytes: ...
    def feed(self, data: bytes) -> None: ...
    def finish(self) -> None: ...


class PipeReader:
    """Reader that feeds a Sink from a pipe until all holders of the other end have closed it.
    on_data: called after each block."""

    def __init__(self, fd: int, output: Sink, loop: Loop, on_data: Callable[[], object] | None = None) -> None:
        self.output = output
        self._on_data = on_data
        self.closed = False
        self.read_at = 0.0
        self._most = READ
        self._fd = fd
        self._loop = loop
        self._paused = False
        os.set_blocking(fd, False)
        loop.on_readable(fd, self.read)

    def read(self) -> None:
        try:
            data = os.read(self._fd, self._most)
        except BlockingIOError:
            return
        self.read_at = self._loop.clock()
        if data:
            self.output.feed(data)
            if self._on_data:
                self._on_data()
        else:
            self.close()

    def drain(self) -> None:
        """Read the bytes that are in the pipe now. A process that outlives its rank may go on to
        write without end."""
        left = PIPE
        while left > 0 and not self.closed:
            try:
                data = os.read(self._fd, min(READ, left))
            except BlockingIOError:
                return
            if not data:
                self.close()
                return
            left -= len(data)
            self.output.feed(data)

    def pause(self, paused: bool) -> None:
        if self.closed or paused == self._paused:
            return
        self._paused = paused
        if paused:
            self._most = TURN
            self._loop.forget(self._fd)
        else:
            self._loop.on_readable(self._fd, self.read)

    def close(self) -> None:
        if self.closed:
            return
        if not self._paused:
            self._loop.forget(self._fd)
        os.close(self._fd)
        self.closed = True
        self.output.finish()


def hold_up(readers: Iterable[PipeReader], paused: bool) -> None:
    """Pause readers, or let them go on: the one whose turn is longest ago first, as there may
    not be room for all."""
    for reader in sorted(readers, key=attrgetter("read_at")):
        reader.pause(paused)


@functools.cache  # once: a second piece would come from the heap, and be cleared
def keep_heap() -> None:
    """Make glibc keep the memory of one block for the next. Else glibc returns the memory to the kernel
    each time, and the kernel clears and maps the pages anew, one by one: more work than all other work
    on the block. The release of a large piece raises the threshold (mallopt(3), M_MMAP_THRESHOLD);
    nothing touches this piece, so it costs no memory."""
    bytes(HEAP)


def make_pipe() -> tuple[int, int]:
    """Return (reading end, writing end) of a pipe, with much room if the system allows: a rank
    that writes a burst need not wait."""
    keep_heap()
    readable, writable = os.pipe2(os.O_CLOEXEC)
    try:
        fcntl.fcntl(writable, F_SETPIPE_SZ, PIPE)
    except OSError:
        pass
    return readable, writable


# Arrival times: `ranklaunch logs` orders lines by them

FLUSH_S = 0.25  # for so long are times kept in memory
GRAIN_S, COARSE_S = 0.001, 0.01  # what a log grows by in this time is one part of it; the second while there are
MOST_PARTS = 250  # more than so many in FLUSH_S
ENDED = -1  # in place of a descriptor


class Times:
    """File with the arrival times of the logs in a folder. After a failed write, the file ends early, and nothing else
    changes.

    wall: turns seconds of the loop's clock into seconds since 1970. on_trouble: reports something else in the file's place.
    """

    def __init__(self, folder: str, node: int, loop: Loop, wall: Callable[[float], float], on_trouble: Callable[[str], None]) -> None:
        self._path = folders.times(folder, node)
        self._folder = folder
        self._loop = loop
        self._wall = wall
        self._on_trouble = on_trouble
        self._fd: int | None = None
        self._last: list[list[float] | None] = []  # of each log, its newest part that has not been written yet
        self._parts: list[list[float]] = []  # [log, end, when its first byte came]
        self._grain_s = GRAIN_S
        self._new = b""  # names that have not been written yet

    def of(self, path: str, fd: int) -> Callable[[int, float], None] | None:
        """Return a function that notes a part of a log: its bytes, and when it came. None for a
        log in another folder."""
        folder, name = os.path.split(path)
        if folder != self._folder or "\n" in name:
            return None
        log, end = len(self._last), os.fstat(fd).st_size  # an earlier start may have written to it
        self._last.append(None)
        self._new += b"f %d %s\n" % (log, os.fsencode(name))

        def note(size: int, at: float) -> None:
            nonlocal end
            end += size
            last = self._last[log]
            if last and at - last[2] < self._grain_s:
                last[1] = end
                return
            if not self._parts:
                self._loop.after(FLUSH_S, self._write)
            self._last[log] = last = [log, end, at]
            self._parts.append(last)

        return note

    def close(self) -> None:
        self._write()
        self._end()

    def _write(self) -> None:
        parts, self._parts = self._parts, []
        for log, _, _ in parts:
            self._last[int(log)] = None
        if not parts or self._fd == ENDED:
            return
        self._grain_s = COARSE_S if len(parts) > MOST_PARTS else GRAIN_S
        began = self._wall(0.0)
        names, self._new = self._new, b""
        lines = names + b"".join([b"%d %d %d\n" % (log, end, (began + at) * 1e6) for log, end, at in parts])
        try:
            self._fd = disk.append(self._path) if self._fd is None else self._fd
            whole = os.write(self._fd, lines) == len(lines)
        except OSError:  # a full disk is reported with the log that fails first
            whole = False
        except disk.NotRegularError as error:
            self._on_trouble(f"{self._path} is {error.kind}, not a file: when lines came is not kept")
            whole = False
        if not whole:
            self._end()

    def _end(self) -> None:
        if self._fd is not None and self._fd >= 0:
            os.close(self._fd)
        self._fd = ENDED
