"""What is seen of ranks and of their node: at one moment, and over a window of several.

A signal that this machine does not have is None: it is left out, and never counts as silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    """At one rank. process: which one it is. state: as in /proc, "" of one that is gone. output: bytes written so far. io: bytes read and
    written, of its whole process tree. cpu_s: of that tree. wanted_s: what its first thread has run and waited for a core. traced: by a
    debugger. The sums only grow, whatever ends of the tree."""

    process: object
    state: str
    output: int
    io: int | None = None
    cpu_s: float | None = None
    wanted_s: float | None = None
    traced: bool = False


class Seen(NamedTuple):
    """Of one rank over a window. cpu: cores, None where that is not known. full: whether it has wanted full cores all the time, no more and
    no less. silent_s: since its last output, or the launch. step: the last, -1 where none is known. gap: the longest between its steps.
    printed: it has written anything since the launch."""

    rank: int | None
    state: str
    output: int
    io: int | None
    cpu: float | None
    full: bool
    traced: bool
    started: bool
    silent_s: float
    step: int = -1
    gap: float = 0.0
    printed: bool = False


class Device(NamedTuple):
    """What a tool says of one. memory: in use, in MB. power: share of its limit; moves: share of the time in which its memory was read or
    written, in percent. None: the tool does not say that."""

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
    """Of a node: how many connections the muster has there, and how many ranks may look for each other's signs of life."""

    connections: int
    ranks: int


def moving(seen: Seen, begun: bool) -> set[str]:
    """By which signals a rank moves. begun: the first step has been: from then on a steady full core is no sign of life, for libraries spin
    while they wait; before, it may be a compiler."""
    signs = {
        OUTPUT: seen.output > 0,
        IO: seen.io is not None and seen.io >= LEAST_IO,
        CPU: seen.cpu is not None and seen.cpu >= LEAST_CPU and not (begun and seen.full),
        DEBUGGER: seen.traced,
        START: seen.started,
    }
    return {sign for sign, there in signs.items() if there}


def flows(traffic: Traffic | None, seconds: float, place: Place) -> bool | None:
    """Whether a node's ranks talk to others."""
    if traffic is None:
        return None
    own = LEAST_PACKETS + PINGS * seconds * place.connections
    are_small = traffic.bytes < SMALL_PACKET * traffic.packets
    return traffic.packets >= own + (HEARTBEATS * seconds * place.ranks if are_small else 0)


def works(before: Iterable[Device], after: Iterable[Device]) -> bool | None:
    """Whether a node's devices do; what fills its memory does."""
    first, last = list(before), list(after)
    if not last:
        return None
    fills = len(first) == len(last) and any(
        one.memory is not None and two.memory is not None and two.memory > one.memory for one, two in zip(first, last)
    )
    return fills or not all(device.idle for device in last)


class Window:
    """Looks at all ranks of a node, from one moment to another."""

    def __init__(self) -> None:
        self._looks: dict[int | None, list[tuple[float, Look]]] = {}
        self._last_at = 0.0

    def look(self, at: float, looks: Mapping[int | None, Look]) -> None:
        self._last_at = at
        for rank, look in looks.items():
            self._looks.setdefault(rank, []).append((at, look))

    def close(self, last: Mapping[int | None, Said]) -> list[Seen]:
        """What was seen; the next window begins with the last look, and who was not there then is gone. last: what is known of the ranks'
        outputs."""
        there = {rank for rank, looks in self._looks.items() if looks[-1][0] == self._last_at and looks[-1][1].state}
        seen = [_seen(rank, looks, last.get(rank, SILENT)) for rank, looks in self._looks.items()]
        self._looks = {rank: looks[-1:] for rank, looks in self._looks.items() if rank in there}
        return [each if each.rank in there else each._replace(state="") for each in seen]


class Said(NamedTuple):
    """Output of a rank. silent_s: seconds since its last. step, gap, printed: as in Seen."""

    silent_s: float = 0.0
    step: int = -1
    gap: float = 0.0
    printed: bool = False


SILENT = Said()


def _seen(rank: int | None, looks: list[tuple[float, Look]], said: Said) -> Seen:
    (_, first), (_, last) = looks[0], looks[-1]
    started = any(look.process != first.process for _, look in looks if look.state)
    cores = [_cores(one, two) for one, two in zip(looks, looks[1:])]
    known = [each for each in cores if each is not None]
    wanted = [_wanted(one, two) for one, two in zip(looks, looks[1:])]
    cpu = sum(known) / len(known) if known and len(known) == len(cores) else None
    steady = bool(known) and all(_is_full(core) for core in known)
    held_up = bool(wanted) and all(want is not None and want >= FULL[0] for want in wanted) and max(known, default=0) <= FULL[1]
    return Seen(
        rank=rank, state=last.state, output=max(0, last.output - first.output),
        io=None if first.io is None or last.io is None else max(0, last.io - first.io),
        cpu=cpu, full=steady or held_up, traced=any(look.traced for _, look in looks), started=started,
        silent_s=said.silent_s, step=said.step, gap=said.gap, printed=said.printed,
    )  # fmt: skip


def _is_full(cores: float) -> bool:
    return any(FULL[0] * count <= cores <= FULL[1] * count for count in (1, 2))


def _cores(one: tuple[float, Look], two: tuple[float, Look]) -> float | None:
    return _share(one[0], one[1].cpu_s, two[0], two[1].cpu_s)


def _wanted(one: tuple[float, Look], two: tuple[float, Look]) -> float | None:
    return _share(one[0], one[1].wanted_s, two[0], two[1].wanted_s)


def _share(began: float, before: float | None, at: float, now: float | None) -> float | None:
    if before is None or now is None or at <= began:
        return None
    return max(0.0, now - before) / (at - began)
