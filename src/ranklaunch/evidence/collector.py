"""Takes evidence of one node, in a process of its own, so that the supervisor is there for everybody meanwhile. All that may take long is
begun at once, and nothing is waited for longer than TAKE_S."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ranklaunch import errors
from ranklaunch.ends import exceptions
from ranklaunch.ends.records import EXCEPTION, RANK, Record, order, rank_number
from ranklaunch.evidence import dumps, flight, processes, ras, stack_requests, stacks, tools
from ranklaunch.evidence.all_nodes import GONE
from ranklaunch.evidence.folder import Folder, reason
from ranklaunch.processes.records import Records
from ranklaunch.system import bounded, disk, tree
from ranklaunch.system.signals import OURS

TAKE_S = 12.0  # in all; what is left of the 15 s of a stop is for the words between nodes
APART_S = 2.0  # between two looks at the processes
RESERVE_S = 2.0  # of it, for what is written last
RECORDS_S = 1.0  # for reading records
MOST_EXCEPTIONS = 64
MOST_SOURCE = 4 << 20  # bytes of a source file in which a line is looked up
MOST_CALL = 200  # characters of a source line


@dataclass(frozen=True)
class Order:
    """number: which time evidence is taken. folder: where to. ranks: the processes of those that live here. env: of tools, and of ranks
    whose own is not known. began: of the attempt, in seconds since 1970, before which no dump is its own. own: the ranks of this node, also
    those that have died. records: the folder of this node's records, "" for none."""

    number: int
    why: str
    folder: str
    ranks: Mapping[int, tree.Identity]
    env: Mapping[str, str]
    began: float
    left: int
    own: tuple[int, ...] = ()
    records: str = ""


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


class _Raised:
    """An exception that a process wrote down of itself. rank: to whose tree the process belongs, None where that is not known. is_head: the
    process is the rank itself, or the first Python in it."""

    def __init__(self, record: Record, rank: int | None, is_head: bool) -> None:
        self.rank, self.is_head = rank, is_head
        self.text = exceptions.shown(exceptions.line(record))
        self._record = record

    def as_json(self) -> dict[str, Any]:
        record = self._record
        return {
            "rank": self.rank, "pid": record.pid, "at": round(record.at, 3), "from": record.where,
            "thread": exceptions.shown(record.thread[:120]), "text": self.text, "cause": exceptions.shown(exceptions.cause(record)),
        }  # fmt: skip


class _Taking:
    def __init__(self, order: Order, folder: Folder) -> None:
        self._order = order
        self._folder = folder
        self._began = time.monotonic()
        self._notes: list[str] = []
        self._lines: dict[tuple[str, int], str] = {}  # of source files
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
        asked = stack_requests.stacks(self._pids)
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
        main = {rank: stacks.main(texts.get(rank, "")) for rank in self._leaders}
        ranks = {
            str(rank): {
                "pid": pid,
                "state": states.get(pid, ""),
                "stack": [stacks.line(frame) for frame in main[rank]],
                "call": self._call(pid, main[rank]),
                "recorder": flight.as_json(standings[rank]) if rank in standings else None,
                **({"unread": True} if rank in unread else {}),
            }
            for rank, pid in self._leaders.items()
        }
        for rank in sorted(standings.keys() - self._leaders.keys()):  # what it dumped before it died
            ranks[str(rank)] = {"pid": None, "state": GONE, "stack": [], "recorder": flight.as_json(standings[rank])}
        raised = self._exceptions()
        for each in raised:
            if each.is_head and str(each.rank) in ranks:
                ranks[str(each.rank)]["exception"] = each.text
        summary = {
            "number": self._order.number, "why": self._order.why, "seconds": round(time.monotonic() - self._began, 2), "ranks": ranks,
            "exceptions": [each.as_json() for each in raised], "behind": self._behind(), "notes": self._notes,
        }  # fmt: skip
        self._folder.write_json("summary.json", summary)
        return {**summary, "folder": self._folder.path, "bytes": self._folder.written, "unwritten": self._folder.failed}

    def _call(self, pid: int, frames: Sequence[stacks.Frame]) -> str:
        """Return the source line of the innermost frame: a call of C has no frame of its own. "" where the file cannot be read."""
        if not frames:
            return ""
        key = os.path.join(f"/proc/{pid}/cwd", frames[0].file), frames[0].line
        if key not in self._lines:
            self._lines[key] = _source(*key)
        return self._lines[key]

    def _exceptions(self) -> list[_Raised]:
        """Exceptions that processes of this node wrote down of themselves by now, the newest last: a rank that has raised one may be held
        by a thread or by an exit handler."""
        found = list(Records(self._order.records).new(seconds=RECORDS_S)) if self._order.records else []
        heads = {record.process: rank_number(record.variables) for record in found if record.kind == RANK}
        heads.update({process: rank for rank, process in self._order.ranks.items()})
        trees = {pid: rank for rank, pids in self._trees.items() for pid in pids}
        raised = sorted((record for record in found if record.kind == EXCEPTION), key=order)[-MOST_EXCEPTIONS:]
        return [_Raised(record, heads.get(record.process, trees.get(record.pid)), record.process in heads) for record in raised]

    def _behind(self) -> list[list[Any]]:
        """By NCCL's RAS, which may be of another job of this machine's, and names processes: only ranks of this node."""
        ranks = {pid: rank for rank, pids in self._trees.items() for pid in pids}
        try:
            with open(os.path.join(self._folder.path, "ras.txt"), encoding="utf-8", errors="replace") as file:
                found = [each for each in ras.behind(file.read()) if each.pid in ranks and tools.is_own(each.address)]
        except OSError:
            return []
        return [[each.communicator, ranks[each.pid], each.operation, each.launched, each.most] for each in found]


def _source(path: str, number: int) -> str:
    try:
        with open(disk.given(path), "rb") as file:
            lines = file.read(MOST_SOURCE).split(b"\n", number)
    except (OSError, disk.NotRegularError, ValueError):
        return ""
    text = lines[number - 1].decode(errors="replace").strip() if 0 < number <= len(lines) else ""
    return errors.quoted((text[:MOST_CALL],))[0]


def _tell(fd: int, text: bytes) -> None:
    while text:
        text = text[os.write(fd, text) :]
