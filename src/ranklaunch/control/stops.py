"""Facts about a stop by request: how this node's ranks ended, if a checkpoint was completed, and how long the platform waited.

Platforms do not report the time between their signal and the kill, and some document nothing. So during a stop the stop clock, a file in
the attempt's folder, gets one dot each second, and a last line after the end of all processes. If the last line is missing, the
container was killed as many seconds after the signal as the file has dots.

Checkpoints are known by the trainer's own markers (RANKLAUNCH_PROGRESS_FILE). The markers at the request are compared with the
markers at the end, so clocks of file servers do not matter. Markers may be on a mount that hangs, so a child process reads them.
"""

from __future__ import annotations

import glob
import json
import os
import signal
import stat
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Optional

from ranklaunch.plan.model import PROGRAM, Plan
from ranklaunch.processes.children import LAUNCHER, Child
from ranklaunch.supervise.context import Companion
from ranklaunch.supervise.ending import decoded
from ranklaunch.system import disk, tree
from ranklaunch.system.bounded import LOOK_S, Apart
from ranklaunch.system.signals import name_of
from ranklaunch.system.tree import Hearing, catches
from ranklaunch.verdict import folders

if TYPE_CHECKING:
    from ranklaunch.supervise.attempt import Attempt

ENDED_WELL = "ended well"  # topic: node 0's launcher reports that the ranks of all nodes ended with 0
BEFORE_S = 0.5  # for the first look at markers, which delays the stop
MOST_MARKS = 10_000

# By path: 1 for a file or 0 for a folder, mtime in nanoseconds, inode, size. None: no markers are configured, or no answer in time.
Marks = Optional[Mapping[str, Sequence[int]]]


class Stops(Companion):
    """Plugin of an attempt that notes the facts of a stop for verdict.json."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._signal = 0
        self._at = 0.0
        self._ranks: Mapping[int, tree.Identity] = {}
        self._catch: set[int] = set()
        self._saving: set[tree.Identity] = set()  # ranks that were asked to save because of the stop
        self._seconds = 0.0
        self._clock = -1
        self._over = False
        self._all_ended_well = False
        self._before: Marks = None  # at the request
        self._after: Marks = None  # at the end

    def on_deadline(self, ways: Sequence[str]) -> None:
        hearing = [Hearing(signal.Signals[way], through_all=True) for way in ways if way in signal.Signals.__members__]
        by_file = len(hearing) < len(ways)
        self._saving = {rank for rank in self._attempt.launchers.living().values() if by_file or any(each.of(rank) for each in hearing)}

    def on_stop_of_another(self, number: int) -> None:
        """Note a stop without the stop clock: the platform's wait begins with its signal to this node."""
        self._signal, self._at = number, self._attempt.loop.clock()
        self._before = look(self._attempt.plan.marks, BEFORE_S)  # before the ranks are signalled: a rank may save at once
        self._ranks = dict(self._attempt.launchers.living())
        self._attempt.nodes.hear(ENDED_WELL, self._on_ended_well)
        # Also ranks whose launcher is gone: some platforms signal all processes themselves.
        self._catch = {rank for rank, process in self._ranks.items() if catches(process.pid, number)}

    def on_stop_request(self, number: int) -> None:
        self.on_stop_of_another(number)
        self._attempt.loop.after(0, self._start_clock)  # after the ranks are signalled: the folder may not answer

    def _start_clock(self) -> None:
        if self._over:
            return
        try:
            node = self._attempt.plan.job.node_index
            self._clock = disk.append(os.path.join(self._attempt.record.folder, folders.stop_clock(node)))
            self._write(f"{name_of(self._signal)} {self._attempt.stopper.grace_s:g}\n")
            self._attempt.loop.after(1.0, self._tick)
        except OSError:  # a full disk must not disturb the stop
            pass

    def _tick(self) -> None:
        if self._clock >= 0:
            self._write(".")
            self._attempt.loop.after(1.0, self._tick)

    def _write(self, text: str) -> None:
        try:
            if self._clock >= 0:
                os.write(self._clock, text.encode())
        except OSError:
            pass

    def stopped(self) -> None:
        self._over = True
        if self._signal:
            if self._attempt.plan.muster and self._launchers_ended_well(of_all_nodes=True):
                self._attempt.nodes.tell_nodes(ENDED_WELL, None)  # other nodes do not see how node 0's launcher reports their ranks
            self._seconds = self._attempt.loop.clock() - self._at
            self._write("\nended\n")
            self._after = look(self._attempt.plan.marks) if self._before is not None else None
            self.close()

    def facts(self) -> Mapping[str, Any]:
        """Return the facts of the stop for verdict.json.

        | key | meaning |
        | --- | --- |
        | signal, seconds | of the request; time from it to the end of all processes |
        | caught_by | ranks that catch the signal, or caught the earlier request to save |
        | ended_by_themselves, killed | of the ranks alive at the request |
        | saved | yes, no or unknown, see saved() |
        """
        if not self._signal:
            return {}
        plan, ended = self._attempt.plan, self._attempt.children.ended
        ends, ended_well = _ends(plan, ended), self._all_ended_well or self._launchers_ended_well()
        by_us = {rank for rank, process in self._ranks.items() if process in self._attempt.stopper.killed - tree.refused.keys()}
        killed = {rank for rank in self._ranks if (ends[rank][1] == signal.SIGKILL if rank in ends else rank in by_us)}
        # The ends of other ranks are unknown: mpirun may have killed them.
        known = self._ranks.keys() if ended_well else self._ranks.keys() & (ends.keys() | by_us)
        well = ended_well or all(ends.get(rank) in ((0, 0), (128 + self._signal, 0)) for rank in self._ranks)
        caught = [rank for rank, process in self._ranks.items() if rank in self._catch or self._catches(process)]
        stop = {
            "signal": name_of(self._signal),
            "caught_by": sorted(caught),
            "ended_by_themselves": sorted(known - killed),
            "killed": sorted(killed),
            "seconds": round(self._seconds, 3),
            "saved": saved(self._before, self._after, caught, killed, any_rank=bool(self._ranks), all_well=well),
        }
        return {"stop": stop}

    def _catches(self, rank: tree.Identity) -> bool:
        """Return True for a rank that was asked to save, or caught a signal of the stop."""
        return rank in self._saving or self._attempt.stopper.caught(rank)

    def _launchers_ended_well(self, *, of_all_nodes: bool = False) -> bool:
        """Return True if the launchers ended with 0 and reported no failure of a rank: a launcher that killed a rank reports this.

        of_all_nodes: True only if a launcher also has ranks on other nodes.
        """
        launchers = [child for child in self._attempt.children.ended if child.role == LAUNCHER and child.launcher.starts_ranks]
        reach = any(child.launcher.CARRIERS for child in launchers) if of_all_nodes else bool(launchers)
        return reach and not any(child.failure_code or self._reports_failure(child) for child in launchers)

    def _reports_failure(self, launcher: Child) -> bool:
        output = decoded(launcher.reader.output.tail) if launcher.reader else ""
        return self._attempt.launchers.explained(launcher, output) is not None

    def _on_ended_well(self, node: int, body: object) -> None:
        self._all_ended_well = True

    def close(self) -> None:
        if self._clock >= 0:
            os.close(self._clock)
            self._clock = -1


def _ends(plan: Plan, ended: Sequence[Child]) -> dict[int, tuple[int | None, int]]:
    """Return exit code and signal (0 for none) by rank, as far as known: mostly a launcher reaps its ranks before ranklaunch can look.

    ended: children of ranklaunch. A program that starts its ranks itself counts as the first of them.
    """
    watched = (each for child in ended if child.below for each in child.below.ended if each.status is not None and each.rank is not None)
    ends: dict[int, tuple[int | None, int]] = {each.rank: (each.code, each.signal) for each in watched if each.rank is not None}
    for child in ended:
        rank = plan.job.node.first_rank if child.role == LAUNCHER and plan.runs == PROGRAM else child.process.rank
        if rank is not None:
            ends[rank] = child.ended.code, child.ended.signal
    return ends


def saved(before: Marks, after: Marks, caught: Collection[int], killed: Collection[int], *, any_rank: bool, all_well: bool) -> str:
    """Return "yes", "no" or "unknown" for a checkpoint completed between two looks at the markers.

    caught, killed: ranks that catch the request, and ranks killed after it. any_rank: a rank was alive at the request. all_well: no rank
    may have failed or been killed. A new or changed file means a complete checkpoint: trainers write it last. A folder is made first, so
    a new folder means a checkpoint only if all_well.
    """
    new = None
    if before is not None and after is not None:
        new = [mark for path, mark in after.items() if list(before.get(path, ())) != list(mark)]
    if new and any(is_file or all_well for is_file, *_ in new):
        return "yes"
    in_vain = new == [] and killed
    return "no" if (any_rank and not caught) or in_vain else "unknown"


def look(patterns: Sequence[str], seconds: float = LOOK_S) -> Marks:
    """Return the markers that match; None without patterns, without an answer in time, or if no process or descriptor is left."""
    try:
        answer = Apart(partial(_marks, patterns)).answer(seconds) if patterns else None
    except OSError:
        return None
    marks: Marks = None if answer is None else json.loads(answer)
    return marks


def _marks(patterns: Sequence[str]) -> bytes:
    """Return the markers as JSON."""
    marks: dict[str, tuple[int, ...]] = {}
    for pattern in patterns:
        for path in glob.glob(pattern)[:MOST_MARKS]:
            try:
                status = os.stat(path)
            except OSError:
                continue
            marks[path] = int(not stat.S_ISDIR(status.st_mode)), status.st_mtime_ns, status.st_ino, status.st_size
    return json.dumps(marks).encode()
