"""Samples of ranks and of their node: looks at one moment, and windows of several looks. Computes only.

A signal that this machine does not have is None: it is left out, and never counts as silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

LEAST_IO = 64 * 1024  # bytes in a window: less is what processes write and read while they wait
LEAST_CPU = 0.08  # of a core
LEAST_PACKETS = 100  # in a window
SMALL_PACKET = 256  # bytes: what libraries ask each other for signs of life has no more
HEARTBEATS = 8.0  # packets in a second for each rank: PyTorch's watchdogs ask their store each second while they wait
PINGS = 5.0  # packets in a second of the muster, for each connection
IDLE_PERCENT = 5.0  # of a device
WAITING_POWER = 0.45  # of its limit: a device whose kernel waits for others says that it is busy, moves no memory and draws little
FULL = (0.85, 1.15)  # cores: what counts as a full one; and so with two, for a library may let a thread of its own spin as well

OUTPUT, IO, CPU, TRAFFIC, DEVICES, DEBUGGER, START = "output", "I/O", "CPU", "traffic", "devices", "a debugger", "a new process"


class Look(NamedTuple):
    """Look at one rank. process: its identity. state: as in /proc, "" for a gone process. output: bytes written so far. io:
    bytes read and written by its process tree. cpu_s: of this tree. wanted_s: time its first thread has run or waited for a
    core. traced: by a debugger. The sums only grow, even after ends in the tree."""

    process: object
    state: str
    output: int
    io: int | None = None
    cpu_s: float | None = None
    wanted_s: float | None = None
    traced: bool = False


class Seen(NamedTuple):
    """One rank over a window. cpu: cores, None if unknown. full: it has wanted full cores all the time, no more, no less. step: the last,
    -1 for none. gap: the longest between its steps. printed: it has written anything since the launch."""

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
    """Accelerator, by its tool. memory: in use, in MB. power: share of its limit. moves: percent of the time in which its memory was read
    or written. None: not in the tool's answer."""

    busy: float
    memory: float | None = None
    power: float | None = None
    moves: float | None = None

    @property
    def idle(self) -> bool:
        waits = self.power is not None and self.moves is not None and self.power < WAITING_POWER and self.moves < 1
        return self.busy < IDLE_PERCENT or waits


class Traffic(NamedTuple):
    packets: int
    bytes: int


class Place(NamedTuple):
    """Sources of packets on a node that are no sign of life: connections of the muster, and ranks that look for each other."""

    connections: int
    ranks: int


def moving(seen: Seen, begun: bool) -> set[str]:
    """Return the signs of life of a rank. begun: after the first step, a steady full core is no sign of life, for libraries spin while they
    wait; before, it may be a compiler."""
    signs = {
        OUTPUT: seen.output > 0,
        IO: seen.io is not None and seen.io >= LEAST_IO,
        CPU: seen.cpu is not None and seen.cpu >= LEAST_CPU and not (begun and seen.full),
        DEBUGGER: seen.traced,
        START: seen.started,
    }
    return {sign for sign, there in signs.items() if there}


def flows(traffic: Traffic | None, seconds: float, place: Place) -> bool | None:
    """Return True if the ranks of a node exchange data with others, None if unknown."""
    if traffic is None:
        return None
    own = LEAST_PACKETS + PINGS * seconds * place.connections
    are_small = traffic.bytes < SMALL_PACKET * traffic.packets
    return traffic.packets >= own + (HEARTBEATS * seconds * place.ranks if are_small else 0)


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
        """Return the samples, and begin the next window with the last look. A rank that the last look misses is gone."""
        there = {rank for rank, looks in self._looks.items() if looks[-1][0] == self._last_at and looks[-1][1].state}
        samples = [_seen(rank, looks) for rank, looks in self._looks.items()]
        self._looks = {rank: looks[-1:] for rank, looks in self._looks.items() if rank in there}
        return [sample if sample.rank in there else sample._replace(state="") for sample in samples]


def _seen(rank: int | None, looks: list[tuple[float, Look]]) -> Seen:
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
    """True if a rank has used one or two full cores all the time, or would have if others had left it one."""
    least, most = FULL
    steady = bool(cores) and all(any(least * count <= each <= most * count for count in (1, 2)) for each in cores)
    held_up = bool(wanted) and all(each is not None and each >= least for each in wanted) and max(cores, default=0) <= most
    return steady or held_up


def _shares(sums: Sequence[tuple[float, float | None]]) -> list[float | None]:
    """Return the growth per second between each two times, None where unknown."""
    return [
        None if before is None or now is None or at <= began else max(0.0, now - before) / (at - began)
        for (began, before), (at, now) in zip(sums, sums[1:])
    ]
