"""What launchers and ranks of this node recorded of themselves, for whoever asks how the job stands.

A supervisor keeps little of each record, and reads few in one call: whoever asks again soon hears of the others. Secrets were hidden by
the rank; who shows an exception hides them again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ranklaunch.ends import exceptions, records
from ranklaunch.ends.records import Record
from ranklaunch.processes.records import Records
from ranklaunch.redact import redact
from ranklaunch.system import tree
from ranklaunch.system.tree import Identity

MOST_S = 0.01  # for reading, in one call
MOST_WORDS, MOST_WORD = 16, 100  # of a launcher's command line
MOST_LAUNCHERS = 8 * 1024  # bytes of all launchers of a node, in an answer
MOST_NAME = 60


@dataclass(frozen=True)
class _Head:
    """The first Python of a rank. placed_by: what started the rank: ranklaunch, a launcher, "" for something else."""

    process: Identity
    program: str
    placed_by: str
    parent: Identity


@dataclass(frozen=True)
class _Launcher:
    process: Identity
    name: str
    argv: tuple[str, ...]


class Recorded:
    """folder: of the records of one round."""

    def __init__(self, folder: str) -> None:
        self._files = Records(folder)
        self._launchers: dict[Identity, _Launcher] = {}
        self._codes: dict[Identity, int] = {}
        self._heads: dict[int, list[_Head]] = {}
        self._raised: dict[Identity, dict[str, Any]] = {}

    @property
    def folder(self) -> str:
        return self._files.folder

    def look(self) -> None:
        """Read what is new."""
        for record in self._files.new(MOST_S):
            self._take(record, Identity(*record.process))

    def launchers(self) -> list[dict[str, Any]]:
        """Return name, pid, argv, alive, and ended: the exit code that a launcher wrote down of itself, None for none."""
        found: list[dict[str, Any]] = []
        left = MOST_LAUNCHERS
        for process, each in self._launchers.items():
            value = {
                "name": each.name, "pid": process.pid, "argv": list(each.argv), "alive": _lives(process), "ended": self._codes.get(process),
            }  # fmt: skip
            left -= len(json.dumps(value))
            if left < 0:
                break
            found.append(value)
        return found

    def of_ranks(self, ranks: Collection[int], known: Mapping[int, Identity]) -> dict[int, dict[str, Any]]:
        """By rank, what its records say: head (pid, program, placed_by) and exception (at, from, thread, text).

        ranks: of this node. known: their processes, as far as ranklaunch knows them without records."""
        found: dict[int, dict[str, Any]] = {}
        for rank in ranks:
            head = self._head(rank)
            said: dict[str, Any] = {}
            if head and _lives(head.process):
                said["head"] = {"pid": head.process.pid, "program": head.program, "placed_by": head.placed_by}
            processes = (*((head.process,) if head else ()), *((known[rank],) if rank in known else ()))
            raised = next((self._raised[process] for process in processes if process in self._raised), None)
            if raised:
                said["exception"] = raised
            if said:
                found[rank] = said
        return found

    def _take(self, record: Record, process: Identity) -> None:
        if record.kind == records.LAUNCHER:
            argv = tuple(word[:MOST_WORD] for word in redact.argv(record.argv[:MOST_WORDS]))
            self._launchers[process] = _Launcher(process, record.launcher, argv)
        elif record.kind == records.EXIT:
            self._codes[process] = record.code
        elif record.kind == records.EXCEPTION:
            self._take_exception(record, process)
        elif (rank := records.rank_number(record.variables)) is not None and record.parent:
            program = records.program(redact.argv(record.argv)).rpartition("/")[2][-MOST_NAME:]
            parent = Identity(record.parent.pid, record.parent.start)
            self._heads.setdefault(rank, []).append(_Head(process, program, record.launcher, parent))

    def _take_exception(self, record: Record, process: Identity) -> None:
        """The main thread's counts: after that of another thread a process may go on."""
        before = self._raised.get(process)
        text = exceptions.line(record)
        if text and (before is None or (before["from"] != "main" and (record.where == "main" or record.at > before["at"]))):
            thread = record.thread[:MOST_NAME]
            self._raised[process] = {"at": round(record.at, 3), "from": record.where, "thread": thread, "text": text}

    def _head(self, rank: int) -> _Head | None:
        """Of several Pythons with this rank's number: one that lives and started no other of them."""
        found = [head for head in self._heads.get(rank, ()) if head.process not in self._launchers]
        parents = {head.parent for head in found}
        leaves = [head for head in found if head.process not in parents] or found
        placed = [head for head in leaves if head.placed_by] or leaves
        return next((head for head in placed if _lives(head.process)), placed[-1] if placed else None)


def _lives(process: Identity) -> bool:
    return tree.state(process) not in ("X", "Z")
