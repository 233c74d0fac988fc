"""Samples of ranks and of their node: a look is one moment, a window is several looks. Pure.

A signal that this machine does not have is None. Such a signal is left out, and never counts as silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

LEAST_IO = 64 * 1024  # bytes in a window: waiting processes read and write less
LEAST_CPU = 0.08  # of a core: waiting processes use less
LEAST_PACKETS = 100  # in a window: waiting nodes exchange fewer
SMALL_PACKET = 256  # bytes: heartbeats of libraries are not larger
HEARTBEATS = 8.0  # packets a second for each rank: PyTorch's watchdogs ask their store each second while they wait
PINGS = 5.0  # packets a second for each connection of the muster
IDLE_PERCENT = 5.0  # use of an idle device, at most
WAITING_POWER = 0.45  # of the limit: a device in a waiting kernel reports full use, but moves no memory and draws little power
FULL = (0.85, 1.15)  # cores: range for one full core; twice this for two, since a library may have a spinning thread of its own

OUTPUT, IO, CPU, TRAFFIC, DEVICES, DEBUGGER, START = "output", "I/O", "CPU", "traffic", "devices", "a debugger", "a new process"


class Look(NamedTuple):
    """Look at one rank.

    | field | meaning |
    | --- | --- |
    | process | identity of its process |
    | state | as in /proc; "" for a process that is gone |
    | output | bytes written so far |
    | io, cpu_s | bytes read and written, and CPU seconds, of its process tree |
    | wanted_s | seconds in which its first thread has run, or waited for a core |
    | traced | True under a debugger |

    The sums never decrease, also if processes of the tree end.
    """

    process: object
    state: str
    output: int
    io: int | None = None
    cpu_s: float | None = None
    wanted_s: float | None = None
    traced: bool = False


class Seen(NamedTuple):
    """Sample of one rank over a window.

    | field | meaning |
    | --- | --- |
    | output, io | bytes in this window |
    | cpu | cores in use, None if unknown |
    | full | True if it has used, or waited for, one or two full cores all the time |
    | started | True if its process is a new one |
    | step | last step, -1 for none |
    | gap | longest seconds between two of its steps |
    | printed | True if it has written anything since the launch |
    """

    rank: int | None
    state: str
    output: int
    io: float | None
    cpu: float | None
    full: bool
    traced: bool
    started: bool
    step: int = -1
    gap: float = 0.0
    printed: bool = False


class Device(NamedTuple):
    """Accelerator, by its tool. busy: use in percent. memory: in use, in MB. power: as a part of its limit. moves: percent of the time in
    which memory was read or written. None: not in the tool's answer."""

    busy: float
    memory: float | None = None
    power: float | None = None
    moves: float | None = None

    @property
    def idle(self) -> bool:
        """True if the device does nothing, or runs a kernel that waits for other devices."""
        waits = self.power is not None and self.moves is not None and self.power < WAITING_POWER and self.moves < 1
        return self.busy < IDLE_PERCENT or waits


class Traffic(NamedTuple):
    """Network traffic of a node: sums of both directions."""

    packets: int
    bytes: int


class Place(NamedTuple):
    """Sources of packets that are no sign of life: number of muster connections, and number of ranks with heartbeats."""

    connections: int
    ranks: int


def moving(sample: Seen, begun: bool) -> set[str]:
    """Return the signs of life of a rank. begun: True after the first step. Then a steady full core is no sign of life, because libraries
    spin while they wait; before, a compiler may use the core."""
    signs = {
        OUTPUT: sample.output > 0,
        IO: sample.io is not None and sample.io >= LEAST_IO,
        CPU: sample.cpu is not None and sample.cpu >= LEAST_CPU and not (begun and sample.full),
        DEBUGGER: sample.traced,
        START: sample.started,
    }
    return {sign for sign, is_shown in signs.items() if is_shown}


def flows(traffic: Traffic | None, seconds: float, place: Place) -> bool | None:
    """Return True if the ranks of a node exchange data with others, None if unknown."""
    if traffic is None:
        return None
    expected = LEAST_PACKETS + PINGS * seconds * place.connections
    are_small = traffic.bytes < SMALL_PACKET * traffic.packets
    return traffic.packets >= expected + (HEARTBEATS * seconds * place.ranks if are_small else 0)


def works(before: Sequence[Device], after: Sequence[Device]) -> bool | None:
    """Return True if a device works or fills its memory, None if unknown. before, after: two answers of the tool."""
    if not after:
        return None
    fills = len(before) == len(after) and any(
        one.memory is not None and two.memory is not None and two.memory > one.memory for one, two in zip(before, after)
    )
    return fills or not all(device.idle for device in after)


class Window:
    """Looks at all ranks of a node."""

    def __init__(self) -> None:
        self._looks: dict[int | None, list[tuple[float, Look]]] = {}
        self._last_at = 0.0

    def look(self, at: float, looks: Mapping[int | None, Look]) -> None:
        self._last_at = at
        for rank, look in looks.items():
            self._looks.setdefault(rank, []).append((at, look))

    def close(self) -> list[Seen]:
        """Return the samples, and begin the next window with the last look. A rank without a last look is gone: its state is ""."""
        present = {rank for rank, looks in self._looks.items() if looks[-1][0] == self._last_at and looks[-1][1].state}
        samples = [_sample(rank, looks) for rank, looks in self._looks.items()]
        self._looks = {rank: looks[-1:] for rank, looks in self._looks.items() if rank in present}
        return [sample if sample.rank in present else sample._replace(state="") for sample in samples]


def _sample(rank: int | None, looks: list[tuple[float, Look]]) -> Seen:
    (_, first), (_, last) = looks[0], looks[-1]
    cores = _shares([(at, look.cpu_s) for at, look in looks])
    known = [each for each in cores if each is not None]
    wanted = _shares([(at, look.wanted_s) for at, look in looks])
    return Seen(
        rank=rank, state=last.state, output=max(0, last.output - first.output),
        io=None if first.io is None or last.io is None else max(0, last.io - first.io),
        cpu=sum(known) / len(known) if known and len(known) == len(cores) else None, full=_is_full(known, wanted),
        traced=any(look.traced for _, look in looks), started=any(look.process != first.process for _, look in looks if look.state),
    )  # fmt: skip


def _is_full(cores: Sequence[float], wanted: Sequence[float | None]) -> bool:
    """Return True if a rank has used one or two full cores all the time, or would have if other processes had not used the cores."""
    least, most = FULL
    steady = bool(cores) and all(any(least * count <= each <= most * count for count in (1, 2)) for each in cores)
    held_up = bool(wanted) and all(each is not None and each >= least for each in wanted) and max(cores, default=0) <= most
    return steady or held_up


def _shares(sums: Sequence[tuple[float, float | None]]) -> list[float | None]:
    """Return the growth per second between each two times, None if unknown. sums: (time, sum)."""
    return [
        None if before is None or now is None or at <= began else max(0.0, now - before) / (at - began)
        for (began, before), (at, now) in zip(sums, sums[1:])
    ]
