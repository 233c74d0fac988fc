"""Collector of one node's evidence, in a process apart from the supervisor. Slow sources are started at the same time, and no wait
exceeds TAKE_S."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ranklaunch import errors
from ranklaunch.ends import exceptions
from ranklaunch.ends.model import EXCEPTION, RANK, rank_number, record_order
from ranklaunch.evidence import dumps, flight, processes, ras, stack_signals, stacks, tools
from ranklaunch.evidence.all_nodes import GONE
from ranklaunch.evidence.folder import Folder, reason
from ranklaunch.processes.records import Records
from ranklaunch.system import disk, tree
from ranklaunch.system.bounded import Apart

TAKE_S = 12.0  # limit of the whole collection; a stop has 15 s, and the rest is for messages between nodes
APART_S = 2.0  # between two samples of the processes
RESERVE_S = 2.0  # part of TAKE_S for the last files
RECORDS_S = 1.0  # most time for reading records
MOST_EXCEPTIONS = 64
MOST_SOURCE = 4 << 20  # bytes of a source file that are searched for a line
MOST_CALL = 200  # characters of a source line


@dataclass(frozen=True)
class Order:
    """Order to collect evidence. number: of the collection. folder: for the files. ranks: processes of local ranks. env: for
    tools, and for ranks with unknown environment. began: start of the attempt, in seconds since 1970; older dumps are of
    other attempts. left: bytes that may be written. own: all ranks of this node. records: folder of this node's records, ""
    for none."""

    number: int
    why: str
    folder: str
    ranks: Mapping[int, tree.Identity]
    env: Mapping[str, str]
    began: float
    left: int
    own: tuple[int, ...] = ()
    records: str = ""


def start(order: Order) -> Apart:
    """Start the collector process. Its answer is JSON: the value of take(), or {"failed": reason}. Raises OSError."""
    return Apart(partial(_answer, order))


def _answer(order: Order) -> bytes:
    signal.setitimer(signal.ITIMER_REAL, TAKE_S + 1.0)  # SIGALRM then kills this process, even in a blocking call
    try:
        return json.dumps(take(order)).encode()
    except OSError as error:
        return json.dumps({"failed": reason(error)}).encode()


def take(order: Order) -> dict[str, Any]:
    """Write the evidence. Return its summary: the folder, and each rank's state, stack and recorder."""
    folder = Folder(order.folder, order.left)
    folder.make()
    return _Taking(order, folder).result()


class _Taking:
    def __init__(self, order: Order, folder: Folder) -> None:
        self._order = order
        self._folder = folder
        self._began = time.monotonic()
        self._notes: list[str] = []
        self._leaders = {rank: process.pid for rank, process in order.ranks.items()}
        trees = {pid: rank for rank, pids in processes.of_ranks(order.ranks).items() for pid in pids}
        self._rank_of = {**trees, **{pid: rank for rank, pid in self._leaders.items()}}

    def result(self) -> dict[str, Any]:
        order = self._order
        first = processes.sample(self._rank_of)
        since = time.time() - 1.0
        environments = {rank: processes.environment(pid) or order.env for rank, pid in self._leaders.items()}
        poked = [rank for rank, env in environments.items() if dumps.poke(env, rank)]
        texts = self._ask_tools(environments)
        time.sleep(max(0.0, self._began + APART_S - time.monotonic()))
        second = processes.sample(self._rank_of)
        self._write_processes(first, second)
        ranks = {rank: self._rank(rank, second[pid]["state"], texts.get(rank, "")) for rank, pid in self._leaders.items()}
        self._add_dumps(ranks, environments, poked, since)
        raised = self._add_exceptions(ranks)
        summary = {
            "number": order.number, "why": order.why, "seconds": round(time.monotonic() - self._began, 2),
            "ranks": {str(rank): fields for rank, fields in ranks.items()}, "exceptions": raised, "behind": self._behind(),
            "notes": self._notes,
        }  # fmt: skip
        self._folder.write_json("summary.json", summary)
        return {**summary, "folder": self._folder.path, "bytes": self._folder.written, "unwritten": self._folder.failed}

    def _ask_tools(self, environments: Mapping[int, Mapping[str, str]]) -> dict[int, str]:
        """Write the answers of processes, tools and the kernel. Return the stacks of the ranks, as text."""
        running = [*tools.device_tools(self._order.env)]
        spying = tools.py_spy(self._leaders.values(), self._order.env)
        asked = stack_signals.stacks(self._rank_of)
        self._folder.write("kernel.txt", tools.kernel_log())
        self._folder.write("pressure.txt", tools.pressure())
        self._write_ras(environments)
        tools.wait_for((*running, *spying.values()), self._began + tools.TOOL_S)
        texts = self._write_stacks(asked, {pid: tool.end() for pid, tool in spying.items() if tool.succeeded})
        for tool in (*running, *(tool for tool in spying.values() if not tool.succeeded)):
            self._folder.write(f"{os.path.basename(tool.argv[0])}.txt", tool.end())
        return texts

    def _write_ras(self, environments: Mapping[int, Mapping[str, str]]) -> None:
        address = ras.address(next((env["NCCL_RAS_ADDR"] for env in environments.values() if "NCCL_RAS_ADDR" in env), ""))
        try:
            self._folder.write("ras.txt", tools.ras_report(address, tools.TOOL_S).encode())
        except ConnectionRefusedError:  # the usual case: no RAS
            pass
        except (OSError, ValueError) as error:
            self._notes.append(errors.reason(str(error)))

    def _write_stacks(self, *sources: Mapping[int, bytes]) -> dict[int, str]:
        """Write a file for each process, from the first source with its stacks. Return the texts of the ranks' own processes."""
        texts: dict[int, str] = {}
        for pid, rank in self._rank_of.items():
            text = next((source[pid] for source in sources if source.get(pid)), b"")
            is_leader = self._leaders[rank] == pid
            self._folder.write(f"rank_{rank}.stacks.txt" if is_leader else f"rank_{rank}.{pid}.stacks.txt", text)
            if is_leader:
                texts[rank] = text.decode(errors="replace")
        return texts

    def _write_processes(self, *samples: Mapping[int, Any]) -> None:
        described = [
            {"rank": rank, **processes.described(pid), "samples": [sample[pid] for sample in samples]}
            for pid, rank in self._rank_of.items()
        ]
        self._folder.write_json("processes.json", described)

    def _add_dumps(
        self, ranks: dict[int, dict[str, Any]], environments: Mapping[int, Mapping[str, str]], poked: Sequence[int], since: float
    ) -> None:
        """Wait for the dumps of flight recorders, copy them, and add the ranks' standings."""
        order, until = self._order, self._began + TAKE_S
        wanted = {rank: dumps.paths(environments.get(rank, order.env), rank) for rank in (*environments, *order.own)}
        uids = {os.geteuid(), *processes.accounts(self._leaders.values())}
        dumps.wait_for({rank: wanted[rank] for rank in poked}, uids, order.began, since, until - RESERVE_S, self._lives)
        standings, unread = dumps.collect(wanted, uids, order.began, self._folder, until)
        for rank, of_rank in standings.items():  # a rank without a process may have dumped before it died
            ranks.setdefault(rank, {"pid": None, "state": GONE, "stack": []})["recorder"] = flight.as_json(of_rank)
        for rank in sorted(unread):
            self._notes.append(f"no time was left to read the flight recorder's dump of rank {rank}: see the file")
            if rank in ranks:
                ranks[rank]["unread"] = True

    def _lives(self, rank: int) -> bool:
        return tree.state(self._order.ranks[rank]) not in ("X", "Z")

    def _rank(self, rank: int, state: str, text: str) -> dict[str, Any]:
        pid, frames = self._leaders[rank], stacks.main(text)
        call = _source(os.path.join(f"/proc/{pid}/cwd", frames[0].file), frames[0].line) if frames else ""
        return {"pid": pid, "state": state, "stack": [stacks.line(frame) for frame in frames], "call": call, "recorder": None}

    def _add_exceptions(self, ranks: Mapping[int, dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the exceptions that processes of this node recorded, the newest last. Add the ranks' own to `ranks`.

        A rank may still run after an exception, because of another thread or an exit handler."""
        records = list(Records(self._order.records).new(seconds=RECORDS_S)) if self._order.records else []
        heads = {record.process: rank_number(record.variables) for record in records if record.kind == RANK}
        heads.update({process: rank for rank, process in self._order.ranks.items()})
        listed = []
        for record in sorted((record for record in records if record.kind == EXCEPTION), key=record_order)[-MOST_EXCEPTIONS:]:
            text, rank = exceptions.shown(exceptions.line(record)), heads.get(record.process)
            listed.append({
                "rank": heads.get(record.process, self._rank_of.get(record.pid)), "pid": record.pid, "at": round(record.at, 3),
                "from": record.where, "thread": exceptions.shown(record.thread[:120]), "text": text,
                "cause": exceptions.shown(exceptions.cause(record)),
            })  # fmt: skip
            if rank is not None and rank in ranks:
                ranks[rank]["exception"] = text
        return listed

    def _behind(self) -> list[list[Any]]:
        """Return the ranks of this node that are behind by NCCL's RAS. Its report has pids and addresses, and may be about another job on
        this machine."""
        try:
            with open(os.path.join(self._folder.path, "ras.txt"), encoding="utf-8", errors="replace") as file:
                named = [each for each in ras.behind(file.read()) if each.pid in self._rank_of and tools.is_own(each.address)]
        except OSError:
            return []
        return [[each.communicator, self._rank_of[each.pid], each.operation, each.launched, each.most] for each in named]


def _source(path: str, number: int) -> str:
    """Return a line of a source file; "" if the file cannot be read. The line of the innermost frame shows a call into C, which has no
    frame of its own."""
    try:
        with open(disk.readable(path), "rb") as file:
            lines = file.read(MOST_SOURCE).split(b"\n", number)
    except (OSError, disk.NotRegularError, ValueError):
        return ""
    text = lines[number - 1].decode(errors="replace").strip() if 0 < number <= len(lines) else ""
    return errors.quoted((text[:MOST_CALL],))[0]
