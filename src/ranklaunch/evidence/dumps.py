"""What flight recorders dump: on request through their fifos, and by themselves when a collective times out.

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
from typing import Any

from ranklaunch.evidence import flight
from ranklaunch.evidence.folder import Folder

# The names of stems for fifos, and for dumps with where they are where nothing is said.
PIPES = ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_HCCL_DEBUG_INFO_PIPE_FILE")
FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_HCCL_DEBUG_INFO_TEMP_FILE")
STEADY_S = 0.3  # without another byte a dump is whole
AGAIN_S = 3.0  # for a rank that has dumped before: PyTorch's that has done so at a time-out looks at its fifo no more
LOOK_S = 0.05


def poke(env: Mapping[str, str], rank: int) -> bool:
    """Asks for a dump; whether somebody reads the fifo. A dead rank has none, so nothing is waited for."""
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
    """Where a rank's dumps are."""
    cache = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME", "/"), ".cache")
    usual = [os.path.join(cache, "torch", f"{name}_trace_rank_") for name in ("comm_lib", "nccl")]
    told = [stem for stem in map(env.get, FILES) if stem]
    return [
        f"{stem}{rank}" for stem in dict.fromkeys([*told, *([] if told else [*usual, "/tmp/nccl_trace_rank_", "/tmp/hccl_trace_rank_"])])
    ]


def wait_for(
    wanted: Mapping[int, list[str]], uids: Collection[int], began: float, since: float, deadline: float, lives: Callable[[int], bool]
) -> None:
    """Until each rank that still lives has a new dump that is whole, but not for long where it has an older one. uids: whose dumps may be
    its own. began, since: of the job, and from when a dump is new, seconds since 1970; deadline: monotonic ones."""
    steady: dict[int, tuple[Any, float]] = {}
    started = time.monotonic()
    while time.monotonic() < deadline:
        now = time.monotonic()
        least = since if now - started < AGAIN_S else began
        for rank, found in wanted.items():
            state = [_state(path, uids, least) for path in found]
            if steady.get(rank, (None,))[0] != state:
                steady[rank] = state, now
        if all(now - at > STEADY_S and (any(state) or not lives(rank)) for rank, (state, at) in steady.items()):
            return
        time.sleep(LOOK_S)


def collect(
    wanted: Mapping[int, Iterable[str]], uids: Collection[int], began: float, folder: Folder, deadline: float
) -> tuple[dict[int, dict[str, flight.Standing]], set[int]]:
    """Copies what these accounts have dumped since the job began, in seconds since 1970. Where the ranks stand by that, and whose dumps
    there was no time to read. deadline: in monotonic seconds."""
    copied: dict[int, list[str]] = {}
    for rank, candidates in wanted.items():
        for path in candidates:
            name = re.sub("[^A-Za-z0-9_.-]", "_", os.path.basename(path))
            if _state(path, uids, began) and folder.copy(path, name):
                copied.setdefault(rank, []).append(os.path.join(folder.path, name))
    found: dict[int, dict[str, flight.Standing]] = {}
    unread: set[int] = set()
    for rank, paths_of_rank in copied.items():
        for path in paths_of_rank:
            try:
                found[rank] = _standings(path, deadline)
            except TimeoutError:
                unread.add(rank)
            except (OSError, ValueError, RecursionError, MemoryError):
                continue
    return found, unread - found.keys()


def _standings(path: str, deadline: float) -> dict[str, flight.Standing]:
    with open(path, "rb") as file:
        return flight.standings(file.read(), lambda: time.monotonic() > deadline)


def _state(path: str, uids: Collection[int], since: float) -> tuple[int, int] | None:
    """Of a file of one of these accounts, with something in it, that is no older."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    fits = status.st_size and status.st_mtime >= since and status.st_uid in uids
    return (status.st_size, status.st_mtime_ns) if fits else None
