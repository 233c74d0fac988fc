"""Accelerators of a node, by the output of nvidia-smi and npu-smi."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping

from ranklaunch.hangs.sample import Device
from ranklaunch.system import bounded, tree
from ranklaunch.system.loop import Loop

# Commands for the state of each device, for its used memory only, and for everything about the devices.
NVIDIA = (
    "nvidia-smi", "--query-gpu=utilization.gpu,memory.used,power.draw,power.limit,utilization.memory", "--format=csv,noheader,nounits",
)  # fmt: skip
NVIDIA_MEMORY = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
NVIDIA_ALL = ("nvidia-smi", "-q")
ASCEND = ("npu-smi", "info")  # for all three purposes
# The second line of each chip in npu-smi's table: its bus, then the use of its cores, its memory and its HBM.
_CHIP = re.compile(r"\|\s*[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\s*\|\s*(\d+)\s+(\d+)\s*/\s*\d+(?:\s+(\d+)\s*/\s*\d+)?")
LIMIT_S = 5.0
MOST = 1024 * 1024  # bytes of an answer


def nvidia(text: str) -> list[Device]:
    """Return the devices in the answer to NVIDIA: a line each, with words in brackets for unknown values."""
    devices = []
    for line in text.splitlines():
        values = [_number(word) for word in line.split(",")]
        if len(values) == 5 and values[0] is not None:
            _, memory, power, limit, moves = values
            devices.append(Device(values[0], memory, power / limit if power is not None and limit else None, moves))
    return devices


def ascend(text: str) -> list[Device]:
    return [Device(float(chip[1]), float(chip[3] or chip[2])) for chip in _CHIP.finditer(text)]


TOOLS: dict[str, tuple[tuple[str, ...], Callable[[str], list[Device]]]] = {"gpu": (NVIDIA, nvidia), "npu": (ASCEND, ascend)}


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def found(name: str, env: Mapping[str, str]) -> str:
    """Return the path of a program by PATH, "" for none. An empty part of PATH does not mean the working folder."""
    paths = (os.path.join(folder, name) for folder in os.get_exec_path(env) if folder)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), "")


class Tool:
    """Program that is run again and again, one process at a time. A process without an end within LIMIT_S is killed.

    hear: called with the output of a process after its end.
    """

    def __init__(self, argv: tuple[str, ...], env: Mapping[str, str], loop: Loop, hear: Callable[[str], None]) -> None:
        path = found(argv[0], env)
        self._argv = (path, *argv[1:]) if path else ()
        self._env = env
        self._loop = loop
        self._hear = hear
        self._answer = bytearray()
        self._child: tree.Identity | None = None
        self._readable = -1

    @property
    def running(self) -> bool:
        return self._child is not None

    def ask(self) -> None:
        if not self._argv or self._child:
            return
        try:
            pid, self._readable = bounded.program(self._argv, self._env)
        except OSError:  # no process or descriptor left
            return
        child = self._child = tree.identify(pid)
        self._answer.clear()
        os.set_blocking(self._readable, False)
        self._loop.on_readable(self._readable, self._read)
        self._loop.after(LIMIT_S, self._give_up, child)

    def close(self) -> None:
        if self._child:
            self._give_up(self._child)

    def _read(self) -> None:
        try:
            block = os.read(self._readable, 65536)
        except BlockingIOError:
            return
        self._answer += block
        if len(self._answer) > MOST:
            self.close()
        elif not block:
            self._end()
            self._hear(self._answer.decode(errors="replace"))

    def _give_up(self, child: tree.Identity) -> None:
        if self._child == child:
            tree.send(child, signal.SIGKILL)
            self._end()

    def _end(self) -> None:
        self._loop.forget(self._readable)
        os.close(self._readable)
        self._child = None
