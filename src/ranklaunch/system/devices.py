"""How much memory the devices of this machine have, as their own tools say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess  # noqa: TID251 - a tool that answers at once, before anything is started
from collections.abc import Mapping, Sequence

from ranklaunch.system import memory

ANSWER_S = 20.0
MIB = 1 << 20
NVIDIA = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
ASCEND = ("npu-smi", "info", "-t", "usages", "-i", "0")
_CAPACITY = re.compile(r"(?m)^\s*(?:HBM|DDR|Memory) Capacity\(MB\)\s*:\s*([0-9]+)\s*$")


def memory_of(kind: str, env: Mapping[str, str], slots: int) -> tuple[int, str]:
    """Bytes of each device, of the smallest one; and who says so. 0: nobody does. kind: gpu, npu or cpu."""
    if kind == "gpu":
        lines = _answer(NVIDIA, env).split("\n")
        found = [int(line) for line in map(str.strip, lines) if line.isdecimal()]
        return (min(found) * MIB, NVIDIA[0]) if found else (0, "")
    if kind == "npu":
        found = [int(number) for number in _CAPACITY.findall(_answer(ASCEND, env)) if int(number)]
        return (max(found) * MIB, ASCEND[0]) if found else (0, "")
    limit, machine = memory.look().limit, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    whole, who = (limit, "the container's limit") if 0 < limit < machine else (machine, "the machine's memory")
    return whole // slots, f"{who} for {slots} rank{'' if slots == 1 else 's'}"


def _answer(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """What a tool prints; "" where there is none, or it does not answer."""
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
