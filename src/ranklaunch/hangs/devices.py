"""What tools say of a node's accelerators."""

from __future__ import annotations

import re

from ranklaunch.hangs.sample import Device

# Tools, by how they are asked: what devices do, how much of their memory is used, and all that is known of them.
NVIDIA = (
    "nvidia-smi", "--query-gpu=utilization.gpu,memory.used,power.draw,power.limit,utilization.memory", "--format=csv,noheader,nounits",
)  # fmt: skip
NVIDIA_MEMORY = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
NVIDIA_ALL = ("nvidia-smi", "-q")
ASCEND = ("npu-smi", "info")  # for all of these
# The second line of each chip in npu-smi's table: its bus, then the use of its cores, its memory and its HBM.
_CHIP = re.compile(r"\|\s*[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\s*\|\s*(\d+)\s+(\d+)\s*/\s*\d+(?:\s+(\d+)\s*/\s*\d+)?")


def nvidia(text: str) -> list[Device]:
    """A line for each; what it does not know it says in brackets."""
    found = []
    for line in text.splitlines():
        values = [_number(word) for word in line.split(",")]
        if len(values) == 5 and values[0] is not None:
            _, memory, power, limit, moves = values
            found.append(Device(values[0], memory, power / limit if power is not None and limit else None, moves))
    return found


def ascend(text: str) -> list[Device]:
    return [Device(float(chip[1]), float(chip[3] or chip[2])) for chip in _CHIP.finditer(text)]


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
