"""Takes evidence of one node, in a process of its own, so that the supervisor is there for everybody meanwhile. All that may take long is
begun at once, and nothing is waited for longer than TAKE_S."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping

from ranklaunch import errors
from ranklaunch.evidence import flight, ras, stacks
from ranklaunch.evidence.gathered import GONE
from ranklaunch.supervise.taking import asking, dumps, processes, tools
from ranklaunch.supervise.taking.folder import Folder, reason
from ranklaunch.system import bounded, tree
from ranklaunch.system.signals import OURS
from ranklaunch.typed import Any, NoReturn
from ranklaunch.values import Value

TAKE_S = 12.0  # in all; what is left of the 15 s of a stop is for the words between nodes
APART_S = 2.0  # between two looks at the processes
RESERVE_S = 2.0  # of it, for what is written last


class Order(Value):
    """number: which time evidence is taken. folder: where to. ranks: the processes of those that live here. env: of tools, and of ranks
    whose own is not known. began: of the attempt, in seconds since 1970, before which no dump is its own. own: the ranks of this node, also
    those that have died."""

    number: int
    why: str
    folder: str
    ranks: Mapping[int, tree.Identity]
    env: Mapping[str, str]
    began: float
    left: int
    own: tuple[int, ...] = ()


def start(order: Order) -> tuple[int, int]:
    """The pid of the process, and a pipe from which comes what it has found, as JSON. Raises OSError."""
    return bounded.forked(lambda writable: _become(order, writable))


def _become(order: Order, writable: int) -> NoReturn:
    """In the child: never returns."""
    try:
        signal.set_wakeup_fd(-1)  # that pipe is the supervisor's
        for number in OURS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        tree.die_with_parent()
        os.dup2(writable, 3)
        os.closerange(4, 65536)  # of the supervisor's own; a peer must not wait for the end of this copy
        signal.setitimer(signal.ITIMER_REAL, TAKE_S + 1.0)  # whatever it waits for then
        _tell(3, json.dumps(_taken(order)).encode())
    finally:
        os._exit(0)


def _taken(order: Order) -> dict[str, Any]:
    """What take() says; where it fails for the system's reasons, these as failed."""
    try:
        return take(order)
    except OSError as error:
        return {"failed": reason(error)}


def take(order: Order) -> dict[str, Any]:
    """What is said of it to other nodes: where it lies, and of each rank its state, its stack and where its recorder stands."""
    folder = Folder(order.folder, order.left)
    folder.make()
    return _Taking(order, folder).result()


class _Taking:
    def __init__(self, order: Order, folder: Folder) -> None:
        self._order = order
        self._folder = folder
        self._began = time.monotonic()
        self._notes: list[str] = []
        self._trees = processes.of_ranks(order.ranks)
        self._pids = [pid for pids in self._trees.values() for pid in pids]
        self._leaders = {rank: process.pid for rank, process in order.ranks.items()}

    def result(self) -> dict[str, Any]:
        first = processes.sample(self._pids, time.time)
        since = time.time() - 1.0
        environments = {rank: processes.environment(pid) or self._order.env for rank, pid in self._leaders.items()}
        poked = {rank for rank, env in environments.items() if dumps.poke(env, rank)}
        running = [*tools.device_tools(self._order.env)]
        spying = tools.py_spy(self._leaders.values(), self._order.env)
        asked = asking.stacks(self._pids)
        self._write_kernel(environments)
        tools.wait_for((*running, *spying.values()), self._began + tools.TOOL_S)
        found = self._write_stacks(asked, {pid: each.end() for pid, each in spying.items() if not each.alive and each.succeeded})
        for tool in (*running, *(each for each in spying.values() if not each.succeeded)):
            self._folder.write(f"{os.path.basename(tool.argv[0])}.txt", tool.end())
        time.sleep(max(0.0, self._began + APART_S - time.monotonic()))
        second = processes.sample(self._pids, time.time)
        self._write_processes(first, second)
        wanted = {rank: dumps.paths(env, rank) for rank, env in environments.items()}
        uids = {os.geteuid(), *processes.accounts(self._leaders.values())}
        until = self._began + TAKE_S - RESERVE_S
        dumps.wait_for({rank: wanted[rank] for rank in poked}, uids, self._order.began, since, until, self._lives)
        wanted.update({rank: dumps.paths(self._order.env, rank) for rank in self._order.own if rank not in wanted})
        standings, unread = dumps.collect(wanted, uids, self._order.began, self._folder, self._began + TAKE_S)
        self._notes += [f"there was no time to read what the recorder of rank {rank} has dumped" for rank in sorted(unread)]
        return self._told(found, standings, unread, second)

    def _lives(self, rank: int) -> bool:
        return tree.state(self._order.ranks[rank]) not in ("X", "Z")

    def _write_stacks(self, *sources: Mapping[int, bytes]) -> dict[int, str]:
        """A file for each process; the first source that has something of it counts. The texts of those that are ranks, by rank."""
        ranks = {pid: rank for rank, pid in self._leaders.items()}
        told: dict[int, str] = {}
        for rank, pids in self._trees.items():
            for pid in pids:
                text = next((source[pid] for source in sources if source.get(pid)), b"")
                self._folder.write(f"rank_{rank}.stacks.txt" if pid in ranks else f"rank_{rank}.{pid}.stacks.txt", text)
                if pid in ranks and text:
                    told[rank] = text.decode(errors="replace")
        return told

    def _write_processes(self, *samples: list[dict[str, Any]]) -> None:
        described = {each["pid"]: each for each in processes.described(self._pids)}
        told = [
            {"rank": rank, **described[pid], "samples": [each for sample in samples for each in sample if each["pid"] == pid]}
            for rank, pids in self._trees.items()
            for pid in pids
        ]
        self._folder.write_json("processes.json", told)

    def _write_kernel(self, environments: Mapping[int, Mapping[str, str]]) -> None:
        self._folder.write("kernel.txt", tools.kernel_log())
        self._folder.write("pressure.txt", tools.pressure())
        address = ras.address(next((env["NCCL_RAS_ADDR"] for env in environments.values() if "NCCL_RAS_ADDR" in env), ""))
        self._folder.write("ras.txt", self._tried(lambda: tools.ras_report(address).encode()))

    def _tried(self, look: Callable[[], bytes]) -> bytes:
        try:
            return look()
        except ConnectionRefusedError:  # mostly there is none
            return b""
        except (OSError, ValueError) as error:
            self._notes.append(errors.reason(str(error)))
            return b""

    def _told(
        self, texts: Mapping[int, str], standings: Mapping[int, Mapping[str, flight.Standing]], unread: Collection[int],
        sample: list[dict[str, Any]],
    ) -> dict[str, Any]:  # fmt: skip
        states = {each["pid"]: each["state"] for each in sample}
        ranks = {
            str(rank): {
                "pid": pid,
                "state": states.get(pid, ""),
                "stack": [stacks.line(frame) for frame in stacks.main(texts.get(rank, ""))],
                "recorder": flight.as_json(standings[rank]) if rank in standings else None,
                **({"unread": True} if rank in unread else {}),
            }
            for rank, pid in self._leaders.items()
        }
        for rank in sorted(standings.keys() - self._leaders.keys()):  # what it dumped before it died
            ranks[str(rank)] = {"pid": None, "state": GONE, "stack": [], "recorder": flight.as_json(standings[rank])}
        summary = {
            "number": self._order.number, "why": self._order.why, "seconds": round(time.monotonic() - self._began, 2), "ranks": ranks,
            "behind": self._behind(), "notes": self._notes,
        }  # fmt: skip
        self._folder.write_json("summary.json", summary)
        return {**summary, "folder": self._folder.path, "bytes": self._folder.written, "unwritten": self._folder.failed}

    def _behind(self) -> list[list[Any]]:
        """By NCCL's RAS, which may be of another job of this machine's, and names processes: only ranks of this node."""
        ranks = {pid: rank for rank, pids in self._trees.items() for pid in pids}
        try:
            with open(os.path.join(self._folder.path, "ras.txt"), encoding="utf-8", errors="replace") as file:
                found = [each for each in ras.behind(file.read()) if each.pid in ranks and tools.is_own(each.address)]
        except OSError:
            return []
        return [[each.communicator, ranks[each.pid], each.operation, each.launched, each.most] for each in found]


def _tell(fd: int, text: bytes) -> None:
    while text:
        text = text[os.write(fd, text) :]
