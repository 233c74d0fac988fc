"""What a stop did to the ranks of this node, and a clock that tells the next attempt how long the platform has left them.

Nobody says how long a platform waits between its signal and the kill, and some documents nothing of it. So during a stop a byte a second is
appended to a file in the attempt's folder, and a last line when everything has ended: a file without that line is of a container that was
killed, so many seconds after the signal.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ranklaunch.control import rank_ends
from ranklaunch.supervise.plugins import Attended, Companion
from ranklaunch.system import disk, tree
from ranklaunch.system.hearing import Hearing, catches
from ranklaunch.system.signals import name_of
from ranklaunch.verdict import folders

if TYPE_CHECKING:
    from ranklaunch.control.checkpoints import Look, Marks

ENDED_WELL = "ended well"  # of words: node 0's launcher says so of the ranks of all nodes
BEFORE_S = 0.5  # that a stop may be later where a job names markers


class Stops(Companion):
    def __init__(self, attended: Attended) -> None:
        self._attended = attended
        self._signal = 0
        self._at = 0.0
        self._ranks: Mapping[int, tree.Identity] = {}
        self._catch: set[int] = set()
        self._saving: set[tree.Identity] = set()  # ranks that were asked to save because of the stop
        self._seconds = 0.0
        self._clock = -1
        self._over = False
        self._told_well = False
        self._before: Marks | None = None
        self._marks: tuple[Marks | None, Marks | None] = None, None  # at the request, and at the end

    def on_deadline(self, ways: Sequence[str]) -> None:
        hearing = [Hearing(signal.Signals[way], through_all=True) for way in ways if way in signal.Signals.__members__]
        by_file = len(hearing) < len(ways)
        self._saving = {rank for rank in self._attended.ranks().values() if by_file or any(each.of(rank) for each in hearing)}

    def on_stop_of_another(self, number: int) -> None:
        """How long the platform leaves this node is counted from its own signal alone."""
        self._signal, self._at = number, self._attended.loop.clock()
        look = self._look()  # before ranks hear of it: one that saves at once must not be sooner
        self._before = look.found(BEFORE_S) if look else None
        self._ranks = dict(self._attended.ranks())
        self._attended.nodes.hear(ENDED_WELL, self._on_ended_well)
        # Whoever signals all processes has told those whose launcher is gone, whom nobody here will tell.
        self._catch = {rank for rank, process in self._ranks.items() if catches(process.pid, number)}

    def on_stop_request(self, number: int) -> None:
        self.on_stop_of_another(number)
        self._attended.loop.after(0, self._start_clock)  # once the ranks have been told: its folder may not answer

    def _start_clock(self) -> None:
        if self._over:
            return
        try:
            node = self._attended.plan().job.node_index
            self._clock = disk.append(os.path.join(self._attended.record.folder, folders.stop_clock(node)))
            self._write(f"{name_of(self._signal)} {self._attended.stopper.grace_s:g}\n")
            self._attended.loop.after(1.0, self._tick)
        except OSError:  # a full disk; the ranks are what counts now
            pass

    def stopped(self) -> None:
        self._over = True
        if self._signal:
            self._tell_nodes()
            self._seconds = self._attended.loop.clock() - self._at
            self._write("\nended\n")
            after = self._look() if self._before is not None else None
            self._marks = self._before, after.found() if after else None
            self.close()

    def facts(self) -> Mapping[str, Any]:
        """stop: caught_by: ranks that had a way to hear the signal, or what asked them to save because of the stop; ended_by_themselves and
        killed: how those that lived then have ended, as far as anybody knows; saved: whether a checkpoint was completed since, as far as
        that is known."""
        if not self._signal:
            return {}
        from ranklaunch.control.checkpoints import saved  # once the ranks have ended

        found = self._ends()
        caught = [rank for rank, process in self._ranks.items() if rank in self._catch or self._has_heard(process)]
        killed = [rank for rank, end in found.items() if end == "SIGKILL"]
        by_themselves = [rank for rank in found if rank not in killed]
        well = self._ranks.keys() if self._well() else rank_ends.well(self._attended.plan(), self._attended.ended, self._signal)
        stop = {
            "signal": name_of(self._signal),
            "caught_by": sorted(caught),
            "ended_by_themselves": sorted(by_themselves),
            "killed": sorted(killed),
            "seconds": round(self._seconds, 3),
            "saved": saved(*self._marks, caught, killed, any_rank=bool(self._ranks), all_well=self._ranks.keys() <= well),
        }
        return {"stop": stop}

    def _has_heard(self, rank: tree.Identity) -> bool:
        return rank in self._saving or self._attended.stopper.caught(rank)

    def _ends(self) -> dict[int, str]:
        """By rank, of those that lived at the request: the name of the signal that killed it, else "". One of whose end nobody
        knows, which mpirun may have killed, is not there."""
        seen = rank_ends.seen(self._attended.plan(), self._attended.ended)
        by_us = self._attended.stopper.killed - tree.refused.keys()
        found = {rank: "SIGKILL" for rank, process in self._ranks.items() if process in by_us}
        if self._well():
            found = {**dict.fromkeys(self._ranks, ""), **found}
        return {**found, **{rank: end for rank, end in seen.items() if rank in self._ranks}}

    def _well(self) -> bool:
        return self._told_well or rank_ends.told_well(self._attended.ended, self._attended.explained)

    def _tell_nodes(self) -> None:
        """The others know of one launcher's ranks no more than what node 0 has heard of it."""
        if not self._attended.plan().muster:
            return
        if rank_ends.told_well(self._attended.ended, self._attended.explained, of_all_nodes=True):
            self._attended.nodes.tell_nodes(ENDED_WELL, None)

    def _on_ended_well(self, node: int, body: object) -> None:
        self._told_well = True

    def close(self) -> None:
        if self._clock >= 0:
            os.close(self._clock)
            self._clock = -1

    def _look(self) -> Look | None:
        marks = self._attended.plan().marks
        if not marks:
            return None
        from ranklaunch.control.checkpoints import Look  # few jobs name any

        try:
            return Look(marks)
        except OSError:  # no process or descriptor left
            return None

    def _tick(self) -> None:
        if self._clock >= 0:
            self._write(".")
            self._attended.loop.after(1.0, self._tick)

    def _write(self, text: str) -> None:
        try:
            if self._clock >= 0:
                os.write(self._clock, text.encode())
        except OSError:
            pass
