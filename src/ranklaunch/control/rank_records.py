"""Records of launchers and ranks of this node (ranklaunch.rankside), for `ranklaunch status`.

The supervisor keeps little of each record, and reads records for a short time in one call; a later question reads the rest. The rank
has hidden secrets in its records; the code that prints an exception hides secrets again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ranklaunch.ends import exceptions
from ranklaunch.ends.model import EXCEPTION, EXIT, LAUNCHER, Record, program_of, rank_number
from ranklaunch.processes.records import Records
from ranklaunch.redact import redact
from ranklaunch.system import tree
from ranklaunch.system.tree import Identity

MOST_S = 0.01  # for reading, in one call
MOST_WORDS, MOST_WORD = 16, 100  # of a launcher's command line
MOST_LAUNCHERS = 8 * 1024  # bytes of all launchers of a node, in an answer
MOST_NAME = 60


class _Head(NamedTuple):
    """First Python process of a rank. placed_by: name of the launcher that started the rank, or ranklaunch; "" if unknown."""

    process: Identity
    parent: Identity
    program: str
    placed_by: str


class Recorded:
    """Records of one round. folder: where they are."""

    def __init__(self, folder: str) -> None:
        self._files = Records(folder)
        self._launchers: dict[Identity, dict[str, Any]] = {}
        self._codes: dict[Identity, int] = {}
        self._heads: dict[int, list[_Head]] = {}
        self._raised: dict[Identity, dict[str, Any]] = {}

    @property
    def folder(self) -> str:
        return self._files.folder

    def look(self) -> None:
        """Read new records."""
        for record in self._files.new(MOST_S):
            self._take(record, Identity(*record.process))

    def launchers(self) -> list[dict[str, Any]]:
        """Return name, pid, argv, alive and ended of each launcher. ended: the exit code that it recorded, None before."""
        result: list[dict[str, Any]] = []
        room = MOST_LAUNCHERS
        for process, launcher in self._launchers.items():
            value = {**launcher, "alive": _lives(process), "ended": self._codes.get(process)}
            room -= len(json.dumps(value))
            if room < 0:
                break
            result.append(value)
        return result

    def of_ranks(self, ranks: Collection[int], known: Mapping[int, Identity]) -> dict[int, dict[str, Any]]:
        """Return head (pid, program, placed_by) and exception (at, from, thread, text) of the ranks with records.

        ranks: of this node. known: their processes, as far as ranklaunch knows them without records."""
        return {rank: fields for rank in ranks if (fields := self._of_rank(rank, known.get(rank)))}

    def _of_rank(self, rank: int, known: Identity | None) -> dict[str, Any]:
        head, fields = self._head(rank), {}
        if head and _lives(head.process):
            fields["head"] = {"pid": head.process.pid, "program": head.program, "placed_by": head.placed_by}
        for process in (head.process if head else None, known):
            if process in self._raised:
                return {**fields, "exception": self._raised[process]}
        return fields

    def _take(self, record: Record, process: Identity) -> None:
        if record.kind == LAUNCHER:
            argv = [word[:MOST_WORD] for word in redact.argv(record.argv[:MOST_WORDS])]
            self._launchers[process] = {"name": record.launcher, "pid": process.pid, "argv": argv}
        elif record.kind == EXIT:
            self._codes[process] = record.code
        elif record.kind == EXCEPTION:
            self._take_exception(record, process)
        elif (rank := rank_number(record.variables)) is not None and record.parent:
            program = program_of(redact.argv(record.argv)).rpartition("/")[2][-MOST_NAME:]
            parent = Identity(record.parent.pid, record.parent.start)
            self._heads.setdefault(rank, []).append(_Head(process, parent, program, record.launcher))

    def _take_exception(self, record: Record, process: Identity) -> None:
        """Keep the main thread's exception, or without one the newest: a process may continue after an exception of another thread."""
        before = self._raised.get(process)
        text = exceptions.line(record)
        if text and (before is None or (before["from"] != "main" and (record.where == "main" or record.at > before["at"]))):
            thread = record.thread[:MOST_NAME]
            self._raised[process] = {"at": round(record.at, 3), "from": record.where, "thread": thread, "text": text}

    def _head(self, rank: int) -> _Head | None:
        """Return one of several Python processes with this rank's number: a living one that started none of the others."""
        heads = [head for head in self._heads.get(rank, ()) if head.process not in self._launchers]
        parents = {head.parent for head in heads}
        leaves = [head for head in heads if head.process not in parents] or heads
        placed = [head for head in leaves if head.placed_by] or leaves
        return next((head for head in placed if _lives(head.process)), placed[-1] if placed else None)


def _lives(process: Identity) -> bool:
    return tree.state(process) not in ("X", "Z")
