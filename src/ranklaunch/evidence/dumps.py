"""Dumps of flight recorders: on request through their fifos, and by themselves when a collective times out.

The names are PyTorch's (ProcessGroupNCCL.cpp, FlightRecorder.cpp) and torch_npu's (ProcessGroupHCCL.cpp): a fifo is called
<stem><rank>.pipe, and a dump <stem><rank>.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from ranklaunch.evidence import flight
from ranklaunch.evidence.folder import Folder

# Variables with the stems of fifos, and of dumps.
PIPES = ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_HCCL_DEBUG_INFO_PIPE_FILE")
FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_HCCL_DEBUG_INFO_TEMP_FILE")
STEADY_S = 0.3  # a dump is complete after this time without a new byte
AGAIN_S = 3.0  # wait for a new dump of a rank with an older one: PyTorch ignores its fifo after a dump at a time-out
LOOK_S = 0.05


def poke(env: Mapping[str, str], rank: int) -> bool:
    """Ask a rank for a dump. Return False if no process reads the fifo: a dead rank writes no dump."""
    asked = False
    for stem in filter(None, map(env.get, PIPES)):
        with contextlib.suppress(OSError, ValueError):
            fd = os.open(f"{stem}{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                asked |= stat.S_ISFIFO(os.fstat(fd).st_mode) and os.write(fd, b"1") == 1
            finally:
                os.close(fd)
    return asked


def paths(env: Mapping[str, str], rank: int) -> list[str]:
    """Return the possible paths of a rank's dump: from the variables, else PyTorch's defaults."""
    cache = os.path.join(env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME", "/"), ".cache"), "torch")
    defaults = (f"{cache}/comm_lib_trace_rank_", f"{cache}/nccl_trace_rank_", "/tmp/nccl_trace_rank_", "/tmp/hccl_trace_rank_")
    return [f"{stem}{rank}" for stem in dict.fromkeys([*filter(None, map(env.get, FILES))] or defaults)]


def wait_for(
    wanted: Mapping[int, list[str]], uids: Collection[int], began: float, since: float, deadline: float, lives: Callable[[int], bool]
) -> None:
    """Wait until each living rank has a new and complete dump. For a rank with an older dump, wait AGAIN_S only.

    wanted: possible paths of the dumps, by rank. uids: owners of valid dumps. began: start of the job. since: a later dump is new. Both are
    seconds since 1970. deadline: monotonic seconds.
    """
    steady: dict[int, tuple[list[tuple[int, int] | None], float]] = {}
    started = time.monotonic()
    while time.monotonic() < deadline:
        now = time.monotonic()
        least = since if now - started < AGAIN_S else began
        for rank, candidates in wanted.items():
            state = [_state(path, uids, least) for path in candidates]
            if rank not in steady or steady[rank][0] != state:
                steady[rank] = state, now
        if all(now - at > STEADY_S and (any(state) or not lives(rank)) for rank, (state, at) in steady.items()):
            return
        time.sleep(LOOK_S)


def collect(
    wanted: Mapping[int, Iterable[str]], uids: Collection[int], began: float, folder: Folder, deadline: float
) -> tuple[dict[int, dict[str, flight.Standing]], set[int]]:
    """Copy the dumps since the job began. Return the standings of the ranks, and the ranks with a dump that was not read in time.

    began: seconds since 1970. deadline: monotonic seconds.
    """
    copies: list[tuple[int, str]] = []
    for rank, candidates in wanted.items():
        for path in candidates:
            name = re.sub("[^A-Za-z0-9_.-]", "_", os.path.basename(path))
            if _state(path, uids, began) and folder.copy(path, name):
                copies.append((rank, os.path.join(folder.path, name)))
    standings: dict[int, dict[str, flight.Standing]] = {}
    unread: set[int] = set()
    for rank, path in copies:  # read after all copies are made: reading may exceed the deadline
        try:
            with open(path, "rb") as file:
                standings[rank] = flight.standings(file.read(), partial(_is_over, deadline))
        except TimeoutError:
            unread.add(rank)
        except (OSError, ValueError, RecursionError, MemoryError):
            continue
    return standings, unread - standings.keys()


def _is_over(deadline: float) -> bool:
    return time.monotonic() > deadline


def _state(path: str, uids: Collection[int], since: float) -> tuple[int, int] | None:
    """Return size and mtime of a file; None if the file is empty, older than `since`, or owned by another account."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    fits = status.st_size and status.st_mtime >= since and status.st_uid in uids
    return (status.st_size, status.st_mtime_ns) if fits else None
