"""Out-of-memory kills and peak memory of this container's cgroup, as the kernel counts them; and the memory of this machine's
devices, as reported by their tools."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ranklaunch.system.loop import Loop

_PLACES = (
    # cgroup v2, then v1: (controller in /proc/self/cgroup, folder of the hierarchy, file with an "oom_kill N" line, peak, limit)
    ("", "/sys/fs/cgroup", "memory.events", "memory.peak", "memory.max"),
    (
        "memory",
        "/sys/fs/cgroup/memory",
        "memory.oom_control",
        "memory.max_usage_in_bytes",
        "memory.limit_in_bytes",
    ),
)
LOOK_S = 15.0  # between two looks at the kernel's count
_NO_LIMIT = 1 << 60  # bytes; cgroup v1 writes a larger number for no limit


@dataclass(frozen=True)
class Memory:
    """The kernel's count of out-of-memory kills in this container.

    kills: number since a start. peak, limit: bytes, 0 if unknown. counted: False if the kernel has no count. seen: (time of a look,
    kills until then), oldest first; kills after the last look are missing.
    """

    kills: int = 0
    peak: int = 0
    limit: int = 0
    counted: bool = True
    seen: tuple[tuple[float, int], ...] = ()

    def since(self, before: Memory) -> Memory:
        """Return the count without the kills of an earlier count."""
        return replace(self, kills=max(0, self.kills - before.kills))


UNKNOWN = Memory(counted=False)


class Kills:
    """Reader of the kernel's count, every LOOK_S seconds: the kernel does not record the times of kills."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._before = look()
        self._seen: list[tuple[float, int]] = []
        loop.after(LOOK_S, self._look)

    def since(self, wall: Callable[[float], float]) -> Memory:
        """Return the kills since the start. wall: converts seconds of the loop's clock to the times in `seen`."""
        return replace(look().since(self._before), seen=tuple((wall(at), kills) for at, kills in self._seen))

    def _look(self) -> None:
        kills = look().since(self._before).kills
        if kills > (self._seen[-1][1] if self._seen else 0):
            self._seen.append((self._loop.clock(), kills))
        self._loop.after(LOOK_S, self._look)


def look(proc: str = "/proc/self/cgroup", root: str = "") -> Memory:
    """Return the counts of this container's own cgroup. root: folder with the hierarchies, for tests."""
    groups = [line.split(":", 2) for line in _read(proc).split("\n") if line.count(":") > 1]
    for controller, folder, events, peak, limit in _PLACES:
        own_groups = [group.rstrip("/") for _, controllers, group in groups if controller in controllers.split(",")]
        # Inside a container the hierarchy's own folder may already be the container's group.
        for group in dict.fromkeys((*own_groups[:1], "")):
            place = f"{root}{folder}{group}"
            kills = _count(f"{place}/{events}")
            if kills is not None:
                return Memory(kills, _number(f"{place}/{peak}"), _number(f"{place}/{limit}"))
    return UNKNOWN


def _count(path: str) -> int | None:
    """Return the counter of out-of-memory kills in a file of counters, None without one."""
    counters = dict(line.split(" ", 1) for line in _read(path).split("\n") if " " in line)
    kills = counters.get("oom_kill", "")
    return int(kills) if kills.isascii() and kills.isdigit() else None


def _number(path: str) -> int:
    text = _read(path).strip()
    value = int(text) if text.isascii() and text.isdigit() else 0
    return value if value < _NO_LIMIT else 0


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""


# Devices

ANSWER_S = 20.0
MIB = 1 << 20
NVIDIA = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
ASCEND = ("npu-smi", "info", "-t", "usages", "-i", "0")
_CAPACITY = r"(?m)^\s*(?:HBM|DDR|Memory) Capacity\(MB\)\s*:\s*([0-9]+)\s*$"


def of_devices(kind: str, env: Mapping[str, str], slots: int) -> tuple[int, str]:
    """Return the memory of one device (for gpu, of the smallest one) in bytes, 0 if unknown, and the source of this number.

    kind: gpu, npu or cpu. slots: ranks of this node, which share the memory of a machine without devices.
    """
    if kind == "gpu":
        lines = _answer(NVIDIA, env).split("\n")
        sizes = [int(line) for line in map(str.strip, lines) if line.isdecimal()]
        return (min(sizes) * MIB, NVIDIA[0]) if sizes else (0, "")
    if kind == "npu":
        sizes = [int(number) for number in re.findall(_CAPACITY, _answer(ASCEND, env)) if int(number)]
        return (max(sizes) * MIB, ASCEND[0]) if sizes else (0, "")
    limit, machine = look().limit, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    whole, source = (limit, "the container's limit") if 0 < limit < machine else (machine, "the machine's memory")
    return whole // slots, f"{source} for {slots} rank{'' if slots == 1 else 's'}"


def _answer(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Return the output of a tool; "" if it is missing, fails or does not answer in ANSWER_S."""
    import shutil  # not needed on machines without devices
    import subprocess  # noqa: TID251 - a short query, before any process is started

    program = shutil.which(argv[0], path=env.get("PATH", os.defpath))
    if not program:
        return ""
    try:
        done = subprocess.run(
            [program, *argv[1:]], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", env=dict(env),
            timeout=ANSWER_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""
