"""Follower of the files that a launcher gives its ranks for output. Their lines reach the console with
tags.

inotify reports growing files; without inotify the folder is read twice a second. In each turn of the
loop, one block of each growing file is read, like from a pipe. The number of copied bytes is limited:
if one of the files were ranklaunch's own output, each copy would make the file longer.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping

from ranklaunch.output.files import Files
from ranklaunch.output.pipe import READ, TAIL, Output, joined
from ranklaunch.supervise.record import bequeath
from ranklaunch.system import disk
from ranklaunch.system.inotify import Inotify
from ranklaunch.system.loop import Loop, Timer

LOOK_AGAIN_S = 0.5
MOST_COPIED = 16 * 1024**3  # bytes in one attempt
LEAST_COPIED = 16 * 1024**2  # bytes, also on a full disk
UNKNOWN_COPIED = 1024**3  # bytes if the free space is unknown, as on some mounts of buckets
OTHERS = "others"  # key for ranks of an inner launcher, and prefix of such keys
MOST_TURNS = 64  # turns of read_all(): 16 MiB of a file
FREE_SHARE = 4  # 1/4 of the free space may be copied: a file that reads itself is written several times


class Follower:
    """Reader of the files below a folder.

    pattern: of paths below the folder; its matching group is the key of an output. on_trouble: reports
    files that are not read. on_file: called for each new file. others: makes the output for an inner
    launcher, which a rank started. Inner launchers inherit the folder, and write into new folders
    there, later than this node's launcher. kept: the files are the user's, from this start alone, and
    are not copied.
    """

    def __init__(
        self,
        folder: str,
        pattern: str,
        outputs: Mapping[str, Output],
        loop: Loop,
        on_trouble: Callable[[str], None],
        on_file: Callable[[], object] | None = None,
        others: Callable[[int | None], Output] | None = None,
        kept: bool = False,
    ) -> None:
        disk.make_folder(folder)
        self._pattern = re.compile(pattern)
        self._outputs = dict(outputs)
        self._others = others
        self._run = ""  # folder of this node's own launcher
        self._keys: dict[str, str] = {}  # keys of inner launchers, by folder
        self._on_file = on_file
        self._on_trouble = on_trouble
        self._known: set[str] = set()
        self._rounds: dict[str, str] = {}  # by key: folder of the rank's round
        self._newest: dict[str, list[str]] = {key: [] for key in outputs}  # by key: files in this folder
        self._refused: set[str] = set()  # paths that are no files
        self._loop = loop
        self._files = Files(self._on_gone)
        self._warned_gone = False
        self._offsets: dict[str, int] = {} if kept else _sizes(folder)  # bytes of an earlier start are not shown again
        self._earlier = {path[len(folder) + 1 :].partition("/")[0] for path in self._offsets}
        self._left = math.inf if kept else _budget(folder)
        self._grown: dict[str, None] = {}  # paths with unread bytes, in the order of their turns
        self._copied: dict[str, tuple[str, int]] = {}  # by key: last copied file, and its bytes since another file was copied
        self._read_first: dict[str, int] = {}  # files that another file of the rank waits for: offset up to which they are read first
        self._ends: dict[str, int] = {}  # after catch_up(): offset up to which each file is read
        self._folder = folder
        self._timer: Timer | None = None
        self._turn: Timer | None = None
        self._paused = False
        self._inotify = Inotify()
        if self._inotify.fd >= 0:
            self._watch(folder)
            loop.on_readable(self._inotify.fd, self._on_change)
        else:
            self._look_again()

    @property
    def idle(self) -> bool:
        """True if all known bytes in the files have been read."""
        return not self._grown

    def tail_of(self, key: str) -> bytes:
        """Return the tail of a rank's output."""
        output = self._outputs.get(key)
        if output and self._spent:
            output.tail = self._last_of(key)
        return output.tail if output else b""

    def end_of(self, key: str) -> tuple[str, bytes]:
        """Return the folder of a rank's round, and the tail of its output in the files now."""
        self._visit(self._folder)
        return self._rounds.get(key, ""), self._last_of(key)

    def newest(self, key: str) -> list[str]:
        """Return the files of a rank's current round."""
        return self._newest.get(key, [])

    def is_newest(self, key: str, folder: str) -> bool:
        return self._rounds.get(key, "") == folder

    def pause(self, paused: bool) -> None:
        """Pause or resume reading; the files keep the lines."""
        resumed = self._paused and not paused
        self._paused = paused
        if resumed:
            self._visit(self._folder)
            self._go_on()

    def read_all(self) -> None:
        """Read the bytes that are in the files now, for at most MOST_TURNS turns, without waiting for the loop."""
        self._visit(self._folder)
        for _ in range(MOST_TURNS):
            if not self._grown or self._paused:
                break
            self._take_turn()

    def catch_up(self) -> None:
        """Read up to the present ends of the files, then stop; `idle` is True then."""
        self._stop_looking()
        self._paused = False
        self._visit(self._folder)
        self._ends = {**_sizes(self._folder), **self._files.sizes()}
        self._go_on()

    def finish(self) -> int:
        """Store the rest without showing it. Return the number of its lines."""
        unshown = 0
        if self._turn:
            self._turn.cancel()

        def store(output: Output, data: bytes) -> None:
            nonlocal unshown
            output.store(data)
            unshown += data.count(b"\n")

        for path in sorted(self._grown, key=self._files.order):
            while path in self._grown:
                self._copy(path, store)
                bequeath("beat", "")  # heartbeat: gigabytes take longer than a supervisor may be silent
        rests = [] if self._spent else sorted(self._known, key=self._files.order)
        tails = {output: self._last_of(key) for key, output in self._outputs.items() if rests}
        for path in rests:  # incomplete last lines come behind all lines of their rank
            rest, output = self._block(path), self._output_of(path)
            if output and rest:
                output.feed(rest)
                output.end_line()
        for output in self._outputs.values():
            output.tail = tails.get(output, output.tail)
            output.finish()
        self._files.close()
        return unshown

    def _stop_looking(self) -> None:
        if self._timer:
            self._timer.cancel()
        if self._inotify.fd >= 0:
            self._loop.forget(self._inotify.fd)
        self._inotify.close()

    # Growing files

    def _on_change(self) -> None:
        for path in self._inotify.changed():
            if not path:
                self._visit(self._folder)
            elif _is_folder(path):
                self._watch(path)
            else:
                self._note(path)
        self._go_on()

    def _watch(self, folder: str) -> None:
        """Watch a folder and all folders below it. Links to folders are not followed: they may form a
        cycle."""
        self._inotify.watch(folder)
        for parent, inner, names in os.walk(folder):
            for name in inner:
                if _is_folder(os.path.join(parent, name)):
                    self._inotify.watch(os.path.join(parent, name))
            for name in sorted(names, reverse=True):
                self._note(os.path.join(parent, name))
        self._go_on()

    def _look_again(self) -> None:
        self._visit(self._folder)
        self._timer = self._loop.after(LOOK_AGAIN_S, self._look_again)
        self._go_on()

    def _on_gone(self, path: str) -> None:
        """Poll a file by its descriptor: inotify reports nothing about a file without a path."""
        if not self._warned_gone:
            self._warned_gone = True
            self._on_trouble(f"{path} was removed or moved while its rank writes to it: its lines are still shown")
        if not self._timer and not self._ends:
            self._timer = self._loop.after(LOOK_AGAIN_S, self._look_again)

    def _visit(self, folder: str) -> None:
        for path in {**dict.fromkeys(_paths(folder)), **self._files.sizes()}:
            self._note(path)

    def _note(self, path: str) -> None:
        if not self._output_of(path):
            return
        if path not in self._known:
            self._known.add(path)
            self._enter(path)
            if self._on_file:
                self._on_file()
        if not self._spent:
            self._grown[path] = None

    def _enter(self, path: str) -> None:
        """Note the round of a new file. A launcher that restarts its ranks gives them another folder,
        and their tails start again."""
        key, place = self._placed(path)
        if key != OTHERS and self._rounds.get(key, place) != place:
            self._outputs[key].tail = b""
            self._newest[key].clear()
        self._rounds[key] = place
        self._newest[key].append(path)

    def _output_of(self, path: str) -> Output | None:
        return self._outputs.get(self._placed(path)[0])

    def _placed(self, path: str) -> tuple[str, str]:
        key, place = key_and_round(self._pattern, path[len(self._folder) + 1 :])
        run, nested, _ = place.partition("/")
        if not (nested and self._others) or run in self._earlier:
            return key, place
        self._run = self._run or run
        return (key if run == self._run else self._key_of(run)), place

    def _key_of(self, run: str) -> str:
        """Return the key of the output for another launcher's folder."""
        assert self._others
        if run not in self._keys:
            rank = _rank_behind(os.path.join(self._folder, run))
            key = self._keys[run] = _key_of_others(rank)
            if key not in self._outputs:
                self._outputs[key], self._newest[key] = self._others(rank), []
        return self._keys[run]

    # Reading

    def _go_on(self) -> None:
        """Schedule the next turn, behind all other work of the loop."""
        if self._grown and not self._paused and not (self._turn and self._turn.callback):
            self._turn = self._loop.after(0, self._take_turn)

    def _take_turn(self) -> None:
        for path in list(self._grown):
            if self._paused:
                break
            if not self._waits(path):
                self._copy(path, Output.feed)
        self._go_on()

    def _waits(self, path: str) -> bool:
        """Return True if a file must wait for files of its rank that were written before.

        These are read up to their size at the begin of the wait. Otherwise their later blocks would
        push an exception out of the tail.
        """
        others = [other for other in self._newest[self._placed(path)[0]] if other != path and other in self._grown]
        earlier = [other for other in others if self._files.order(other) < self._files.order(path)]
        for other in earlier:
            self._read_first.setdefault(other, self._files.size(other))
        if any(self._offsets.get(other, 0) < self._read_first[other] for other in earlier):
            return True
        for other in others:
            self._read_first.pop(other, None)
        return False

    def _copy(self, path: str, take: Callable[[Output, bytes], None]) -> None:
        """Copy the next block of a file. A file without unread bytes gets no turn until it grows."""
        output = self._output_of(path)
        data = self._block(path)
        full = len(data) == READ
        whole = _whole(data) or (READ if full else 0)
        if not full:
            self._grown.pop(path, None)
            if path in self._read_first:
                self._read_first[path] = 0
        if output and whole:
            self._offsets[path] = self._offsets.get(path, 0) + whole
            take(output, data[:whole])
            key = self._placed(path)[0]
            last, size = self._copied.get(key, ("", 0))
            self._copied[key] = path, min(TAIL, whole + size * (last == path))
            self._spend(whole)
        if output and data[whole:]:
            output.draws(data[whole:])

    def _block(self, path: str) -> bytes:
        try:
            with self._files.opened(path) as fd:
                if os.fstat(fd).st_size < self._offsets.get(path, 0):  # emptied by a restarted launcher
                    self._offsets[path] = 0
                at = self._offsets.get(path, 0)
                return os.pread(fd, max(0, min(READ, self._ends.get(path, at + READ) - at)), at)
        except disk.NotRegularError as error:
            self._refuse(path, error.kind)
        except OSError:
            pass
        return b""

    def _refuse(self, path: str, kind: str) -> None:
        if path not in self._refused:
            self._refused.add(path)
            self._on_trouble(f"{path} is {kind}, not a file that a rank writes: it is not read")

    # Limit of copied bytes

    @property
    def _spent(self) -> bool:
        return self._left <= 0

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._spent:
            self._grown.clear()
            self._on_trouble(f"the limit for copies of the files below {self._folder} is reached: further lines are only in these files")

    def _last_of(self, key: str) -> bytes:
        """Return the end of one output: the copied part, then the uncopied ends of its files.

        The last written file comes last, because it has the reason of the rank's end. An incomplete line of another file comes before the
        part that was copied from the last file since.
        """
        paths = sorted(self._newest[key], key=self._files.order)
        if self._spent:  # no more copies
            return joined(*(self._files.end_of(path) for path in paths))
        *others, end = [b"", *(self._files.end_of(path, self._offsets.get(path, 0)) for path in paths)]
        tail, (last, size) = self._outputs[key].tail, self._copied.get(key, ("", 0))
        cut = len(tail) if last not in paths[-1:] or any(map(_whole, others)) else max(0, len(tail) - size)
        return joined(tail[:cut], *others, tail[cut:] + end)


def _rank_behind(folder: str) -> int | None:
    """Return the rank that started the inner launcher of a folder, None if unknown."""
    try:
        from ranklaunch.output import inner_launcher  # few ranks start launchers
    except (OSError, ImportError):  # no free descriptor
        return None
    return inner_launcher.rank_behind(folder)


def _key_of_others(rank: int | None) -> str:
    return OTHERS if rank is None else f"{OTHERS} of {rank}"


def key_and_round(pattern: re.Pattern[str], path: str) -> tuple[str, str]:
    """Return the key in the path of a rank's file, and the folder before it; "" for a path that
    does not match."""
    match = pattern.fullmatch(path)
    return (match[match.lastindex or 0], os.path.dirname(path[: match.start(match.lastindex or 0)])) if match else ("", "")


def _whole(data: bytes) -> int:
    """Return the number of bytes up to the end of the last line or redrawn line, because a rank's
    stdout and stderr must not be mixed within a line."""
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1


def _budget(folder: str) -> int:
    """Return the limit of bytes to copy from the files below a folder."""
    try:
        usage = os.statvfs(folder)
    except OSError:
        return UNKNOWN_COPIED
    if not usage.f_blocks:
        return UNKNOWN_COPIED
    return min(MOST_COPIED, max(LEAST_COPIED, usage.f_bavail * usage.f_frsize // FREE_SHARE))


def _paths(folder: str) -> Iterator[str]:
    """Yield the paths of all files below a folder, without following links to folders. stdout.log
    comes before stderr.log, which usually has the last output."""
    for parent, _, names in os.walk(folder):
        for name in sorted(names, reverse=True):
            yield os.path.join(parent, name)


def _sizes(folder: str) -> dict[str, int]:
    """Return the sizes of all files below a folder."""
    sizes = {}
    for path in _paths(folder):
        try:
            sizes[path] = os.lstat(path).st_size
        except OSError:  # removed meanwhile
            continue
    return sizes


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
