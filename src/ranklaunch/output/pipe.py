"""Output of one rank: raw bytes into its files, complete lines with a tag to the console, and a tail
for the verdict. A file beside the logs has the arrival times of their parts."""

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
TURN = 64 * 1024  # bytes read at once after the console was too slow: small turns serve all ranks sooner
PIPE = 1024 * 1024
HEAP = 4 * 1024 * 1024
F_SETPIPE_SZ = 1031
TAIL = 32 * 1024  # bytes kept for the verdict
LONGEST_LINE = 8 * 1024 * 1024  # a longer line is shown in pieces, to bound memory
BAR_S = 5.0  # a progress bar (a line redrawn with carriage returns) is shown at this interval, this long after it stops, and at its end


class Output:
    """Output of one process. feed() stores and shows bytes that are cut anywhere; store() stores them
    only; finish() also shows a last line without a line end.

    show: takes complete lines, in one piece or several, because joining a block costs as much as
    writing it. on_first: called at the first bytes. after: sets a timer. times: keeps the arrival
    times of the first file. aloud: shows lines that no file takes any more, even while other lines
    are hidden. written_at: time of the last bytes. taken: all bytes so far. unshown: lines since hush()
    or fold(). heard: called after each block. step_reader: reads steps from the output, if needed.
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
        self._line = bytearray()  # the incomplete last line
        self._bar_shown_at = -BAR_S
        self._bar = False  # True if the incomplete line redraws itself
        self._unfed = b""  # the part of a progress bar that is in the file but not fed yet
        self._drawn_at = 0.0
        self._look_is_due = False  # a timer for _look is set
        self._shown_state = b""  # state of the bar that was shown because the bar had stopped
        self._folded: Callable[..., None] | None = None  # the sink of lines to restore at unfold()
        self._folded_at = 0  # bytes taken before fold()
        self.path = paths[0] if paths else ""
        self._files = [(path, disk.append(path)) for path in paths]
        self._timed = times.of(*self._files[0]) if times and self._files else None

    def feed(self, data: bytes) -> None:
        self.store(data)
        self._unfed = b""
        self._show(data)

    def draws(self, ahead: bytes) -> None:
        """Note the newest state of a progress bar. The file has it, but it may still change before it
        is fed."""
        if self._bar and ahead != self._unfed:
            self._unfed = ahead
            self._look_later()

    def hush(self) -> None:
        """Show no further lines, as long as a file takes them."""
        self._show_lines = self._count

    def fold(self) -> None:
        """Show no further lines until unfold(); the files get them."""
        if not self._folded and self._files:
            self._folded = self._show_lines
            self._folded_at = self.taken - (0 if self._bar else len(self._line))
            self.hush()

    def unfold(self) -> int:
        """Show the folded lines, at most the last TAIL bytes, and all further lines. Return the number of folded lines not shown."""
        if not self._folded:
            return 0
        self._show_lines, self._folded = self._folded, None
        lines, self.unshown = self.unshown, 0
        size = self.taken - self._folded_at
        kept = self.tail[-size:] if size else b""
        if size > len(self.tail):
            kept = kept.partition(b"\n")[2]
        self._line.clear()
        self._bar, self._shown_state = False, b""
        self._show(kept)
        if not self._files:
            self.end_line()
        return max(0, lines - kept.count(b"\n")) if size > len(self.tail) else 0

    def hide_stacks(self) -> None:
        """Show no Python stacks that are written at SIGABRT, which ranklaunch is about to send. The files get them."""
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
        """Show the incomplete line: later bytes do not belong to it."""
        if self._line and _last_drawn(self._line) != self._shown_state:
            self._show_lines(self.tag + _last_drawn(self._line) + b"\n")
        self._line.clear()
        self._bar, self._shown_state = False, b""

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
            # replace() tags a whole block of lines in one pass in C. The last tag would belong to the incomplete line, so it is cut.
            tagged = memoryview(data.replace(b"\n", b"\n" + self.tag))
            whole = tagged[: len(tagged) - len(self.tag) - (len(data) - ended)]
            self._show_lines(self.tag + self._line, whole)
            self._line = bytearray(data[ended:])
        else:
            self._line += data

    def _show_bars(self, data: bytes) -> None:
        """Show lines with a progress bar: its last state, and from time to time an earlier one."""
        data = with_returns_told((self._line + data).decode("latin-1")).encode("latin-1")
        *ended, line = data.replace(b"\r\n", b"\n").split(b"\n")
        if ended:
            first = 1 if self._shown_state and _last_drawn(ended[0]) == self._shown_state else 0  # this state was shown already
            if ended[first:]:
                self._show_lines(b"".join([self.tag + _last_drawn(whole) + b"\n" for whole in ended[first:]]))
            self._bar, self._shown_state = False, b""
        drawn = [state for state in line.split(b"\r") if state]
        now = self.clock()
        if len(drawn) > 1 and now - self._bar_shown_at >= BAR_S and drawn[-2] != self._shown_state:
            self._bar_shown_at = now
            self._show_lines(self.tag + drawn[-2] + b"\n")
        self._line = bytearray((drawn[-1] if drawn else b"") + (b"\r" if line.endswith(b"\r") else b""))
        self._bar |= b"\r" in line
        if self._bar:
            self._look_later()

    def _look_later(self) -> None:
        self._drawn_at = self.clock()
        if self._after and not self._look_is_due:
            self._look_is_due = True
            self._after(BAR_S, self._look)

    def _look(self) -> None:
        """Show the state of a progress bar that has stopped."""
        self._look_is_due = False
        remaining_s = self._drawn_at + BAR_S - self.clock()
        state = bytes(_last_drawn(self._unfed or self._line)) if self._bar else b""
        if self._bar and remaining_s > 0 and self._after:
            self._look_is_due = True
            self._after(remaining_s, self._look)
        elif state and state != self._shown_state:
            self._shown_state, self._bar_shown_at = state, self.clock()
            self._show_lines(self.tag + state + b"\n")

    def _count(self, *lines: bytes | memoryview) -> None:
        if not self._files:  # a full disk: no file has these lines
            self._show_aloud(*lines)
            return
        self.unshown += b"".join(lines).count(b"\n")

    def _cut_long_line(self, data: bytes) -> bytes:
        """Show the incomplete line in pieces of LONGEST_LINE, and return the rest of data. So the cuts depend on the length of the line
        alone, not on the blocks in which it arrives."""
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
    """Return the state of a redrawn line that a terminal shows: the last nonempty one."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _character_start(data: bytearray, cut: int) -> int:
    """Return the last offset up to `cut` at which a UTF-8 character starts."""
    for back in range(4):
        if data[cut - back] & 0xC0 != 0x80:
            return cut - back
    return cut


class Sink(Protocol):
    """Receiver of the output of a process: an Output, or a Demux that splits it by rank."""

    @property
    def tail(self) -> bytes: ...
    def feed(self, data: bytes) -> None: ...
    def finish(self) -> None: ...


class PipeReader:
    """Reader that feeds a Sink from a pipe until all writers have closed the pipe. on_data: called
    after each block."""

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
        """Read the bytes that are in the pipe now, at most PIPE: an orphan of the rank may write
        without end."""
        remaining = PIPE
        while remaining > 0 and not self.closed:
            try:
                data = os.read(self._fd, min(READ, remaining))
            except BlockingIOError:
                return
            if not data:
                self.close()
                return
            remaining -= len(data)
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
    """Pause readers, or let them go on. The reader with the earliest turn comes first, because the
    console may not have room for all."""
    for reader in sorted(readers, key=attrgetter("read_at")):
        reader.pause(paused)


@functools.cache  # only once: a second allocation would come from the heap and be cleared
def keep_heap() -> None:
    """Make glibc keep the memory of one block for the next.

    Otherwise glibc returns the memory to the kernel each time, and the kernel clears and maps each page
    again: more work than all other work on the block. The release of one large allocation raises the
    threshold (mallopt(3), M_MMAP_THRESHOLD). The allocation is never touched, so it costs no memory.
    """
    bytes(HEAP)


def make_pipe() -> tuple[int, int]:
    """Return (reading end, writing end) of a pipe. The pipe is large if the system allows that, so a
    rank can write a burst without waiting."""
    keep_heap()
    readable, writable = os.pipe2(os.O_CLOEXEC)
    try:
        fcntl.fcntl(writable, F_SETPIPE_SZ, PIPE)
    except OSError:
        pass
    return readable, writable


# Arrival times, for the order of lines in `ranklaunch logs`

FLUSH_S = 0.25  # times are written this long after they were noted
GRAIN_S, COARSE_S = 0.001, 0.01  # bytes that arrive within GRAIN_S are one part of a log; within COARSE_S after more than
MOST_PARTS = 250  # parts in FLUSH_S
ENDED = -1  # value of _fd after the end of the file


class Times:
    """File with the arrival times of the logs in a folder. After a failed write the file ends early; the job goes on.

    wall: converts seconds of the loop's clock to seconds since 1970. on_trouble: reports a path that is no file.
    """

    def __init__(self, folder: str, node: int, loop: Loop, wall: Callable[[float], float], on_trouble: Callable[[str], None]) -> None:
        self._path = folders.times(folder, node)
        self._folder = folder
        self._loop = loop
        self._wall = wall
        self._on_trouble = on_trouble
        self._fd: int | None = None
        self._last: list[list[float] | None] = []  # by log: its newest unwritten part
        self._parts: list[list[float]] = []  # unwritten parts: [log, end, arrival time of the first byte]
        self._grain_s = GRAIN_S
        self._new = b""  # unwritten lines with names of logs

    def of(self, path: str, fd: int) -> Callable[[int, float], None] | None:
        """Return a function that notes a part of a log, with its size and its arrival time. Return
        None for a log in another folder."""
        folder, name = os.path.split(path)
        if folder != self._folder or "\n" in name:
            return None
        log, end = len(self._last), os.fstat(fd).st_size  # from an earlier start, if not 0
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
        except OSError:  # a full disk: reported with the first log that fails
            whole = False
        except disk.NotRegularError as error:
            self._on_trouble(f"{self._path} is {error.kind}, not a file: times of lines are not kept")
            whole = False
        if not whole:
            self._end()

    def _end(self) -> None:
        if self._fd is not None and self._fd >= 0:
            os.close(self._fd)
        self._fd = ENDED
